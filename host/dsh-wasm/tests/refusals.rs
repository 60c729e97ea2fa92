//! The catalogue of refusals: each file in `tests/refusals/` is a file that does not fit, and the whole text that it is refused with, by
//! `inspect` (what `plugin check` shows) and by a load. The README there says how a case is written.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use dsh_wasm::{Engine, LoadError, Refusal, inspect};
use support::*;
use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
use wit_parser::{LiftLowerAbi, ManglingAndAbi, Resolve};

/// What stands between a case and what is expected of it.
const EXPECT: &str = "\n---\n";

/// A case as it is written.
#[derive(Default)]
struct Case {
    /// The lines of the component's world.
    world: String,
    /// More WIT packages.
    wit: Vec<String>,
    /// Texts of the contract and what stands in their place.
    replace: Vec<(String, String)>,
    /// WebAssembly text instead of a world.
    wat: Option<String>,
    /// The bytes themselves, instead of a world.
    bytes: Option<Vec<u8>>,
    /// A `dsh-ceiling` section to add behind.
    ceilings: Vec<String>,
    /// How many bytes to leave of the whole.
    cut: Option<usize>,
}

fn parse(text: &str) -> Case {
    let mut case = Case::default();
    let mut lines = text.lines().skip(1);
    while let Some(line) = lines.next() {
        let Some((key, rest)) =
            line.split_once(": ").or_else(|| line.split_once(":")).filter(|_| !line.starts_with(['-', '+']))
        else {
            if let Some(old) = line.strip_prefix("- ") {
                let new = lines.next().and_then(|line| line.strip_prefix('+')).expect("a line `+` behind one with `-`");
                case.replace.push((old.to_owned(), new.trim_start().to_owned()));
            }
            continue;
        };
        match key {
            "world" => case.world.push_str(&format!("{rest}\n")),
            "wit" => case.wit.push(rest.to_owned()),
            "wat" => case.wat = Some(lines.by_ref().collect::<Vec<_>>().join("\n")),
            "bytes" => case.bytes = Some(unescaped(rest)),
            "ceiling" => case.ceilings.push(if rest == "huge" { "x".repeat(70_000) } else { rest.to_owned() }),
            "cut" => case.cut = Some(rest.parse().expect("a number")),
            other => panic!("unknown key `{other}`"),
        }
    }
    case
}

/// `\n` and `\xNN`.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        (rest, _) = match (first, after) {
            (b'\\', [b'n', after @ ..]) => (after, bytes.push(b'\n')),
            (b'\\', [b'x', a, b, after @ ..]) => {
                let hex = String::from_utf8_lossy(&[*a, *b]).into_owned();
                (after, bytes.push(u8::from_str_radix(&hex, 16).expect("two digits")))
            }
            (byte, after) => (after, bytes.push(*byte)),
        };
    }
    bytes
}

impl Case {
    fn component(&self) -> Vec<u8> {
        let mut bytes = match (&self.bytes, &self.wat) {
            (Some(bytes), _) => bytes.clone(),
            (None, Some(wat)) => wat::parse_str(wat).expect("the text parses"),
            (None, None) => self.stub(),
        };
        for ceiling in &self.ceilings {
            let name = dsh_wasm::CEILING_SECTION;
            let mut section = vec![u8::try_from(name.len()).expect("short")];
            section.extend(name.as_bytes());
            section.extend(ceiling.as_bytes());
            bytes.push(0);
            bytes.extend(leb(section.len()));
            bytes.extend(section);
        }
        bytes.truncate(self.cut.unwrap_or(usize::MAX));
        bytes
    }

    /// A component of the world, whose functions all trap.
    fn stub(&self) -> Vec<u8> {
        let contract = tempfile::tempdir().expect("a temporary directory");
        self.copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit"), contract.path(), true);
        for (old, _) in &self.replace {
            assert!(
                contains(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit"), old),
                "`{old}` is not in the contract"
            );
        }
        let mut resolve = Resolve { all_features: true, ..Resolve::default() };
        resolve.push_dir(contract.path()).expect("the contract parses");
        for (n, wit) in self.wit.iter().enumerate() {
            resolve.push_str(format!("{n}.wit"), wit).expect("the package parses");
        }
        let text = format!("package test:guest;\nworld guest {{\n{}}}\n", self.world);
        let package = resolve.push_str("guest.wit", &text).expect("the world parses");
        let world = resolve.select_world(&[package], Some("guest")).expect("the world is there");
        let mut module = dummy_module(&resolve, world, ManglingAndAbi::Legacy(LiftLowerAbi::Sync));
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false).expect("metadata fits");
        let mut encoder = ComponentEncoder::default();
        encoder.module(&module).expect("a core module with metadata");
        encoder.encode().expect("the module fits its world")
    }

    fn copy(&self, from: &Path, to: &Path, is_root: bool) {
        fs::create_dir_all(to).expect("a directory");
        for entry in fs::read_dir(from).expect("a directory").flatten() {
            let (path, target) = (entry.path(), to.join(entry.file_name()));
            if path.is_dir() {
                // The frozen copy is no part of the package.
                if !(is_root && entry.file_name() == "frozen") {
                    self.copy(&path, &target, false);
                }
            } else if path.extension().is_some_and(|extension| extension == "wit") {
                let mut text = fs::read_to_string(&path).expect("WIT");
                for (old, new) in &self.replace {
                    text = text.replace(old, new);
                }
                fs::write(target, text).expect("to write");
            }
        }
    }
}

fn contains(dir: &Path, text: &str) -> bool {
    fs::read_dir(dir).expect("a directory").flatten().any(|entry| match entry.path() {
        path if path.is_dir() => contains(&path, text),
        path => fs::read_to_string(path).is_ok_and(|file| file.contains(text)),
    })
}

/// A number as WebAssembly writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// A refusal as it is printed.
fn words(refusal: &Refusal) -> String {
    refusal.each().iter().map(|one| format!("{}: {one}\nhint: {}\n", one.code(), one.hint())).collect()
}

async fn found(engine: &Engine, bytes: &[u8]) -> String {
    let refusal = match inspect(bytes) {
        Ok(inspection) => {
            let seams: Vec<&str> = inspection.seams.iter().map(|seam| seam.as_str()).collect();
            return format!("it fits: {}\n", seams.join(", "));
        }
        Err(refusal) => refusal,
    };
    match load(engine, bytes, spec("p")).await {
        Err(LoadError::Refused(at_load)) if at_load == refusal => words(&refusal),
        Err(other) => format!("check and load differ:\n{}{other}\n", words(&refusal)),
        Ok(_) => format!("check and load differ:\n{}it loads\n", words(&refusal)),
    }
}

/// Places behind the types of the contract move with every word that is added to it.
fn without_far_offsets(text: &str) -> String {
    const BEGIN: &str = "(at offset 0x";
    const NEAR_DIGITS: usize = 2;
    let mut parts = text.split(BEGIN);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.find(')').unwrap_or(part.len());
        out.push_str(BEGIN);
        out.push_str(if digits > NEAR_DIGITS { "…" } else { &part[..digits] });
        out.push_str(&part[digits..]);
    }
    out
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals");
    let files = fs::read_dir(folder).expect("the cases").flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "case")).collect();
    files.sort();
    files
}

#[tokio::test]
async fn every_file_that_does_not_fit_is_told_what_it_is_and_what_to_change() {
    let engine = engine();
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let (mut differing, cases) = (Vec::new(), cases());
    for path in &cases {
        let text = fs::read_to_string(path).expect("a case");
        let (case, expect) = text.split_once(EXPECT).unwrap_or((text.trim_end(), ""));
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let Ok(bytes) = std::panic::catch_unwind(|| parse(case).component()) else {
            differing.push(format!("{name} cannot be made, see above"));
            continue;
        };
        let found = without_far_offsets(&found(&engine, &bytes).await);
        if found == expect {
            continue;
        }
        if update {
            fs::write(path, format!("{case}{EXPECT}{found}")).expect("to write");
        }
        differing.push(format!("{name}\nexpected:\n{expect}found:\n{found}"));
    }
    assert!(update || differing.is_empty(), "{}", differing.join("\n"));
    assert!(cases.len() >= 80, "only {} cases", cases.len());
}

/// Where a component is cut, it is never taken for a whole one, and never more than a sentence is said.
#[test]
fn a_component_cut_anywhere_is_refused_with_a_sentence() {
    let whole = request_listener("", DONE);
    for length in 0..whole.len() {
        let refusal = match inspect(&whole[..length]) {
            Err(refusal) => refusal,
            // Only a section that means nothing to this host was cut off.
            Ok(found) => {
                let all = inspect(&whole).expect("it fits");
                assert_eq!((found.exports, found.imports), (all.exports, all.imports), "{length} of {}", whole.len());
                continue;
            }
        };
        let code = refusal.code();
        let is_told = match length {
            0 => code == "empty",
            // What is left may be a whole component that exports nothing.
            _ => code == "truncated" || (code == "no-seam" && refusal.hint().contains("may be cut off")),
        };
        assert!(is_told && !refusal.to_string().contains('\n'), "{length} of {}: {code}: {refusal}", whole.len());
    }
}

#[test]
fn machine_code_of_another_host_is_never_taken() {
    let engine = wasmtime::Engine::default();
    let code = engine.precompile_component(&request_listener("", DONE)).expect("it compiles");
    assert_eq!(inspect(&code), Err(Refusal::Precompiled));
}
