//! Reads session logs and files of `--log-requests` as plain JSON, without the product's own types.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// A session log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    /// The file's name without `.jsonl`.
    pub id: String,
    /// The first line.
    pub header: Value,
    /// All other lines.
    pub entries: Vec<Value>,
    /// The same as text, without their newlines.
    pub lines: Vec<String>,
}

impl Log {
    /// Takes a log's text apart. A line that is not JSON, or not ended, is an error.
    pub fn parse(id: &str, text: &str) -> Result<Log, String> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no newline".to_owned());
        }
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut entries = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            entries.push(
                serde_json::from_str::<Value>(line).map_err(|error| format!("line {} is not JSON: {error}", at + 1))?,
            );
        }
        if entries.is_empty() {
            return Err("there is no header".to_owned());
        }
        lines.remove(0);
        let header = entries.remove(0);
        Ok(Log { id: id.to_owned(), header, entries, lines })
    }

    /// How many entries were copied from the session this is a fork of.
    pub fn copied(&self) -> usize {
        let last = self.header["forkedAt"].as_u64().and_then(|last| usize::try_from(last).ok());
        last.map_or(0, |last| last + 1)
    }

    /// The type of the entry at `at`.
    pub fn kind(&self, at: usize) -> &str {
        self.entries[at]["type"].as_str().unwrap_or("")
    }
}

/// The texts of all logs in `dir`, by session id; empty when there is no such folder.
pub fn texts_in(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "jsonl")
            && let Some(id) = path.file_stem().and_then(|stem| stem.to_str())
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            found.insert(id.to_owned(), text);
        }
    }
    found
}

/// The lines of a file of JSON lines; empty when there is no such file.
pub fn json_lines(path: &Path) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let parse = |(at, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| format!("{} line {}: {error}", path.display(), at + 1))
    };
    text.lines().enumerate().map(parse).collect()
}
