//! A text guest: one file with a header that says what it is for, the world it implements, how it is loaded and what is to come of it, and
//! the fields of its core module. `tests/guests/hostile/README.md` describes the format.

use std::path::{Path, PathBuf};

use crate::{contract, encode, prelude, repeat};

/// Begins the part of a file that holds fields of the component.
const COMPONENT: &str = ";; component:";

/// WIT packages that a guest may import from beside the contract.
const MORE_WIT: &str = "wit";

/// A text guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextGuest {
    /// Its name: the file's stem.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// The lines of its world.
    pub world: String,
    /// What it is granted.
    pub grants: Vec<String>,
    /// Its limits, by name.
    pub limits: Vec<(String, u32)>,
    /// Its configuration.
    pub config: Option<String>,
    /// What is to come of it.
    pub expected: Expected,
    /// Why it is not called as often as others: it is slow.
    pub slow: Option<String>,
    core: String,
    component: String,
    dir: PathBuf,
}

/// What is to come of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// Why it is not loaded.
    pub load: Option<String>,
    /// What fails in a turn 1, in the order of a turn: `SEAM KIND: MESSAGE`.
    pub fails: Vec<String>,
    /// Why what fails in turn 1 fails in turn 2 too; none: turn 2 is fine.
    pub always: Option<String>,
}

/// All text guests in `dir`, by name.
///
/// # Errors
/// A file that cannot be read, or whose header is wrong.
pub fn find(dir: &Path) -> Result<Vec<TextGuest>, String> {
    let entries = std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wat"));
    paths.sort();
    paths.iter().map(|path| TextGuest::read(path)).collect()
}

impl TextGuest {
    /// Reads one file.
    ///
    /// # Errors
    /// When it cannot be read, or its header is wrong.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let dir = path.parent().unwrap_or(Path::new(".")).to_owned();
        Self::parse(name, dir, &text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(name: String, dir: PathBuf, text: &str) -> Result<Self, String> {
        let mut guest = Self { name, dir, ..Self::default() };
        let is_header = |line: &&str| line.starts_with(";;") && !line.starts_with(COMPONENT);
        let header = text.lines().take_while(is_header).count();
        for line in text.lines().take(header) {
            guest.header_line(line[2..].trim())?;
        }
        if guest.about.is_empty() || guest.world.is_empty() {
            return Err("the header wants a sentence that says what the guest is for, and its `world:`".into());
        }
        let body: Vec<&str> = text.lines().skip(header).collect();
        let body = body.join("\n");
        let (core, component) = body.split_once(COMPONENT).unwrap_or((&body, ""));
        guest.core = repeat::expand(core)?;
        guest.component = component.to_owned();
        Ok(guest)
    }

    /// One line of the header without its `;;`.
    fn header_line(&mut self, line: &str) -> Result<(), String> {
        let (key, value) = line.split_once(": ").unwrap_or(("", line));
        match key {
            "world" => self.world.push_str(&format!("{}\n", repeat::expand(value)?)),
            "grant" => self.grants.push(value.to_owned()),
            "limit" => {
                let (limit, number) = value.split_once(' ').ok_or("`limit:` wants a name and a number")?;
                let number = number.parse().map_err(|_| format!("`{number}` is no number"))?;
                self.limits.push((limit.to_owned(), number));
            }
            "config" => self.config = Some(value.to_owned()),
            "load" => self.expected.load = Some(value.to_owned()),
            "fails" => self.expected.fails.push(value.to_owned()),
            "always" => self.expected.always = Some(value.to_owned()),
            "slow" => self.slow = Some(value.to_owned()),
            _ if self.world.is_empty() => {
                let sep = if self.about.is_empty() || line.is_empty() { "" } else { " " };
                self.about.push_str(&format!("{sep}{line}"));
            }
            _ => return Err(format!("the header has no `{line}`")),
        }
        Ok(())
    }

    /// The component.
    ///
    /// # Errors
    /// When its text is wrong.
    pub fn component(&self) -> Result<Vec<u8>, String> {
        let named = |error: String| format!("{}: {error}", self.name);
        let mut resolve = contract();
        let more = self.dir.join(MORE_WIT);
        if self.world.contains("wasi:") && more.is_dir() {
            resolve.push_dir(&more).map_err(|error| named(format!("{error:#}")))?;
        }
        let bytes = encode(resolve, &self.world, |resolve, world| prelude::module(resolve, world, &self.core))
            .map_err(named)?;
        if self.component.is_empty() { Ok(bytes) } else { self.with_component_fields(bytes).map_err(named) }
    }

    /// Appends the sections of the guest's own component fields. `{modules}` and `{components}` are how many the component has without
    /// them: what the first one of their own is called.
    fn with_component_fields(&self, mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let (modules, components) = count_sections(&bytes)?;
        // Indices in the text count from the fields that stand before it.
        let before = format!("{}{}", "(core module)".repeat(modules), "(component)".repeat(components));
        let fields = repeat::expand(&self.component)?
            .replace("{modules}", &modules.to_string())
            .replace("{components}", &components.to_string());
        let text = format!("(component {before} {fields})");
        let extra = wat::parse_str(&text).map_err(|error| format!("the component's fields: {error}"))?;
        let skip = sections(&extra)?.nth(modules + components).map_or(extra.len(), |(at, _)| at);
        bytes.extend_from_slice(&extra[skip..]);
        Ok(bytes)
    }
}

/// The bytes of a component's magic number and version.
const PREAMBLE: usize = 8;

/// Where each section of a component begins, and its id.
fn sections(bytes: &[u8]) -> Result<std::vec::IntoIter<(usize, u8)>, String> {
    let (mut found, mut at) = (Vec::new(), PREAMBLE);
    while at < bytes.len() {
        found.push((at, bytes[at]));
        let (mut size, mut shift) = (0_usize, 0);
        loop {
            at += 1;
            let byte = *bytes.get(at).ok_or("a section is cut")?;
            size |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        at += 1 + size;
    }
    Ok(found.into_iter())
}

/// How many core modules and components there are at the top; each has a section of its own.
fn count_sections(bytes: &[u8]) -> Result<(usize, usize), String> {
    const MODULE: u8 = 1;
    const COMPONENT: u8 = 4;
    let ids: Vec<u8> = sections(bytes)?.map(|(_, id)| id).collect();
    let count = |wanted: u8| ids.iter().filter(|id| **id == wanted).count();
    Ok((count(MODULE), count(COMPONENT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#";; It says
;; nothing.
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/request trap: it panicked
(func (export "dsh:agent/request@0.1.0#handle") (param i32 i32 i32 i32) (result i32)
  (call $request-next.run (local.get 3) (i32.const 2048)) (call $ok))
"#;

    #[test]
    fn the_header_is_read_and_the_rest_is_written() {
        let guest = TextGuest::parse("x".into(), PathBuf::new(), TEXT).expect("it parses");
        assert_eq!((guest.about.as_str(), guest.limits[0].1), ("It says nothing.", 5));
        assert_eq!(guest.expected.fails, ["agent/request trap: it panicked"]);
        assert!(!guest.component().expect("it is a component").is_empty());
    }

    #[test]
    fn component_fields_are_appended() {
        let text = format!(
            "{TEXT};; component:\n(core module) (@repeat 3 (core instance (instantiate {{modules}}))) (component) (instance (instantiate {{components}}))"
        );
        let guest = TextGuest::parse("x".into(), PathBuf::new(), &text).expect("it parses");
        let plain = TextGuest::parse("x".into(), PathBuf::new(), TEXT).expect("it parses");
        let (with, without) = (guest.component().expect("it is one"), plain.component().expect("it is one"));
        assert!(with.starts_with(&without) && with.len() > without.len());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let check = |text: &str, expect: &str| {
            assert_eq!(TextGuest::parse("x".into(), PathBuf::new(), text), Err(expect.to_owned()));
        };
        check("(func)", "the header wants a sentence that says what the guest is for, and its `world:`");
        check(";; a\n;; world: x\n;; colour: red\n", "the header has no `colour: red`");
        check(";; a\n;; world: x\n;; limit: cpu-ms\n", "`limit:` wants a name and a number");
    }

    #[test]
    fn every_hostile_guest_is_a_component() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guests/hostile");
        let guests = find(&folder).expect("they are read");
        let wrong: Vec<String> = guests.iter().filter_map(|guest| guest.component().err()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
