//! The lock file itself: TOML, sorted, the same bytes for the same plugins.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use dsh_seam::{PluginName, Seam};
use dsh_wasm::{Grant, Grants, Refusal};
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::config::file::{describe, place};
use crate::config::sources;
use crate::exit::Stop;

/// The file's name when none is given.
pub const FILE_NAME: &str = "dsh.lock";
/// The format that is written and read.
const VERSION: i64 = 1;
/// How git marks the beginning of what it could not merge.
const CONFLICT: &str = "<<<<<<< ";
/// A lock of a thousand plugins has less; a file that lies in a repository may be anything.
const MAX_BYTES: usize = 1024 * 1024;
const HEADER: &str = "\
# The plugins that were looked at and agreed to, and what each may do. Written by `dsh-host plugin lock`; commit it.
# With `--locked` nothing runs that is not in here.
";

/// What was agreed to for one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: PluginName,
    /// Its source as it was written; for a person.
    pub source: String,
    /// The SHA-256 of its file, in lower-case hex.
    pub sha256: String,
    /// What it may do.
    pub grants: Grants,
    /// Where it takes part.
    pub seams: Vec<Seam>,
    /// The most it will ask for, if it says so; for a person.
    pub ceiling: Option<Vec<String>>,
}

/// A lock file's entries, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock(BTreeMap<PluginName, Entry>);

/// Why there is no lock.
#[derive(Debug)]
pub enum Unread {
    /// There is no file.
    Missing,
    /// It cannot be read, or does not say what a lock says.
    Ill(Box<Stop>),
    /// It is something else than a file, which must not be replaced.
    NoFile(Box<Stop>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileIn {
    #[serde(rename = "version")]
    _version: i64,
    #[serde(default)]
    plugins: Vec<EntryIn>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct EntryIn {
    name: Spanned<String>,
    source: String,
    sha256: Spanned<String>,
    grants: Vec<Spanned<String>>,
    seams: Vec<Spanned<String>>,
    ceiling: Option<Vec<String>>,
}

#[derive(Serialize)]
struct FileOut<'a> {
    version: i64,
    plugins: Vec<EntryOut<'a>>,
}

#[derive(Serialize)]
struct EntryOut<'a> {
    name: &'a str,
    source: &'a str,
    sha256: &'a str,
    grants: Vec<String>,
    seams: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<&'a [String]>,
}

impl Lock {
    /// A lock of these.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        Self(entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect())
    }

    /// What was agreed to for a plugin.
    pub fn get(&self, name: &PluginName) -> Option<&Entry> {
        self.0.get(name)
    }

    /// All entries, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    /// Reads a lock file; `shown` is how messages call it.
    pub fn read(path: &Path, shown: &str) -> Result<Self, Unread> {
        let ill = |stop: Stop| Unread::Ill(Box::new(stop));
        let bytes = match sources::read_at_most(path, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(sources::Unread::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Err(Unread::Missing),
            Err(sources::Unread::Io(error)) => return Err(ill(Stop::io(Path::new(shown), &error))),
            Err(sources::Unread::Refused(Refusal::NotAFile { what })) => {
                return Err(Unread::NoFile(Box::new(Stop::usage(format!("`{shown}` is {what}, not a file")))));
            }
            Err(sources::Unread::TooLarge { .. } | sources::Unread::Refused(_)) => {
                return Err(ill(Stop::usage(format!("`{shown}` is larger than any lock file"))));
            }
        };
        let text = String::from_utf8(bytes).map_err(|_| ill(Stop::usage(format!("`{shown}` is no text"))))?;
        Self::parse(shown, &text).map_err(ill)
    }

    fn parse(shown: &str, text: &str) -> Result<Self, Stop> {
        if let Some(at) = text.lines().position(|line| line.starts_with(CONFLICT)) {
            return Err(Stop::usage(format!("{shown}:{}: a merge left a conflict here", at + 1)));
        }
        let table: toml::Table = toml::from_str(text).map_err(|error| describe(shown, text, &error))?;
        match table.get("version") {
            Some(toml::Value::Integer(VERSION)) => {}
            Some(other) => {
                return Err(Stop::usage(format!("`{shown}` has the format {other}; this dsh-host knows {VERSION}"))
                    .hint("use the dsh-host that wrote it, or write it anew with `dsh-host plugin lock`"));
            }
            None => return Err(Stop::usage(format!("`{shown}` is no lock file: it has no `version`"))),
        }
        let file: FileIn = toml::from_str(text).map_err(|error| describe(shown, text, &error))?;
        let mut lock = Self::default();
        for entry in file.plugins {
            let span = entry.name.span();
            let at = |span: std::ops::Range<usize>, message: String| {
                Stop::usage(format!("{}: {message}", place(shown, text, span.start)))
            };
            let entry = typed(entry, &at)?;
            if let Some(twice) = lock.0.insert(entry.name.clone(), entry) {
                return Err(at(span, format!("there are two plugins `{}`", twice.name)));
            }
        }
        Ok(lock)
    }

    /// As it stands in a file.
    pub fn text(&self) -> String {
        let entries = self.entries().map(|entry| EntryOut {
            name: entry.name.as_str(),
            source: &entry.source,
            sha256: &entry.sha256,
            grants: entry.grants.iter().map(ToString::to_string).collect(),
            seams: entry.seams.iter().map(|seam| seam.as_str()).collect(),
            ceiling: entry.ceiling.as_deref(),
        });
        let file = FileOut { version: VERSION, plugins: entries.collect() };
        let text = toml::to_string_pretty(&file).expect("invariant: names, texts and lists are TOML");
        format!("{HEADER}{text}")
    }

    /// Puts it in the place of the file, all or nothing.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let name = path.file_name().unwrap_or(FILE_NAME.as_ref()).to_string_lossy();
        let temporary = folder.join(format!(".{name}.{}", std::process::id()));
        let written = (|| {
            // Processes have the same numbers again, in containers soon: one that was stopped here may have left this file.
            let _ = fs::remove_file(&temporary);
            // Nobody's link is followed: the file must not be there yet.
            let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

fn typed(entry: EntryIn, at: &impl Fn(std::ops::Range<usize>, String) -> Stop) -> Result<Entry, Stop> {
    let name = PluginName::new(entry.name.get_ref()).map_err(|error| at(entry.name.span(), error.to_string()))?;
    let sha256 = entry.sha256.get_ref();
    if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
        return Err(at(entry.sha256.span(), "a SHA-256 is 64 digits of lower-case hex".into()));
    }
    let grant =
        |text: &Spanned<String>| text.get_ref().parse::<Grant>().map_err(|error| at(text.span(), error.to_string()));
    let seam = |text: &Spanned<String>| {
        Seam::parse(text.get_ref()).ok_or_else(|| at(text.span(), format!("unknown seam `{}`", text.get_ref())))
    };
    Ok(Entry {
        name,
        sha256: sha256.clone(),
        source: entry.source,
        grants: Grants::new(entry.grants.iter().map(grant).collect::<Result<Vec<_>, _>>()?),
        seams: entry.seams.iter().map(seam).collect::<Result<_, _>>()?,
        ceiling: entry.ceiling,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, grants: &[&str]) -> Entry {
        Entry {
            name: PluginName::new(name).expect("a name"),
            source: format!("./{name}.wasm"),
            sha256: "0123456789abcdef".repeat(4),
            grants: Grants::new(grants.iter().map(|grant| grant.parse::<Grant>().expect("a grant"))),
            seams: vec![Seam::Execute, Seam::Guard],
            ceiling: None,
        }
    }

    #[test]
    fn what_is_written_is_read_and_sorted() {
        let files = Entry { ceiling: Some(vec!["fs".into()]), ..entry("files", &["fs:write:docs", "fs:read:."]) };
        let lock = Lock::new([files.clone(), entry("echo", &[])]);
        let text = lock.text();
        assert_eq!(Lock::parse("dsh.lock", &text).expect("it parses"), lock);
        assert_eq!(Lock::new([entry("echo", &[]), files]).text(), text);
        let expect = "\
version = 1

[[plugins]]
name = \"echo\"
source = \"./echo.wasm\"
sha256 = \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"
grants = []
seams = [
    \"tools/execute\",
    \"tools/guard\",
]

[[plugins]]
name = \"files\"
source = \"./files.wasm\"
sha256 = \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"
grants = [
    \"fs:read:.\",
    \"fs:write:docs\",
]
seams = [
    \"tools/execute\",
    \"tools/guard\",
]
ceiling = [\"fs\"]
";
        assert_eq!(text, format!("{HEADER}{expect}"));
    }

    #[test]
    fn an_ill_formed_lock_says_where() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Lock::parse("dsh.lock", text).expect_err(text).message, expect, "{text}");
        };
        let plugin = "version = 1\n[[plugins]]\nname = \"a\"\nsource = \"a\"\n";
        let hash = "0".repeat(64);
        check("", "`dsh.lock` is no lock file: it has no `version`");
        check("version = 2\nmore = 1\n", "`dsh.lock` has the format 2; this dsh-host knows 1");
        check("version = 1\nplugin = []\n", "dsh.lock:2:1: unknown key `plugin`");
        check("version = \"1\"\n", "`dsh.lock` has the format \"1\"; this dsh-host knows 1");
        check("version = 1\n<<<<<<< ours\n", "dsh.lock:2: a merge left a conflict here");
        check(
            &format!("{plugin}sha256 = \"00\"\ngrants = []\nseams = []\n"),
            "dsh.lock:5:10: a SHA-256 is 64 digits of lower-case hex",
        );
        check(
            &format!("{plugin}sha256 = \"{hash}\"\ngrants = [\"lmm\"]\nseams = []\n"),
            "dsh.lock:6:11: `lmm` is no capability: did you mean `llm`? There are `llm`, `session`, `inbox`, `agents`, `approval`, `process`, `fs:read:PATH`, `fs:write:PATH`, `net:HOST[:PORT]`, `env:NAME`",
        );
        check(
            &format!("{plugin}sha256 = \"{hash}\"\ngrants = []\nseams = [\"tools/gaurd\"]\n"),
            "dsh.lock:7:10: unknown seam `tools/gaurd`",
        );
        let one = format!("[[plugins]]\nname = \"a\"\nsource = \"a\"\nsha256 = \"{hash}\"\ngrants = []\nseams = []\n");
        check(&format!("version = 1\n{one}{one}"), "dsh.lock:9:8: there are two plugins `a`");
    }

    #[test]
    fn a_lock_replaces_another_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dsh.lock");
        std::fs::write(&path, "what was there").expect("a file");
        let lock = Lock::new([entry("echo", &["llm"])]);
        lock.write(&path).expect("it is written");
        assert_eq!(Lock::read(&path, "dsh.lock").expect("it is read"), lock);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
