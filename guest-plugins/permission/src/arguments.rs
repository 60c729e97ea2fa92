//! Which arguments of a call are paths, and which one is a command.

use std::borrow::Cow;

use dsh_glob::{NormalPath, normalise, normalise_slashes};
use serde_json::Value;

/// Keys whose value, a string or a list of strings, is taken for a path, at any depth; compared without case, `_` and `-`.
pub const PATH_KEYS: [&str; 17] = [
    "path",
    "paths",
    "file",
    "files",
    "filepath",
    "filepaths",
    "filename",
    "filenames",
    "dir",
    "directory",
    "folder",
    "cwd",
    "workdir",
    "source",
    "target",
    "destination",
    "dest",
];

/// What a rule can be about.
#[derive(Debug, Default, PartialEq)]
pub struct Subjects {
    /// In the order found, each once.
    pub paths: Vec<PathSubject>,
    /// The argument `command`; a list of strings is joined by blanks.
    pub command: Option<String>,
}

/// A path among the arguments.
#[derive(Debug, Clone, PartialEq)]
pub struct PathSubject {
    /// Normalised.
    pub path: NormalPath,
    /// Whether it stands for all below it too.
    pub below: bool,
}

/// Reads the subjects of a call; `searches` when the tool looks at everything below its path.
pub fn subjects(tool: &str, arguments: &str, searches: bool) -> Result<Subjects, String> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    let value: Value = serde_json::from_str(text).map_err(|error| format!("the arguments are not JSON: {error}"))?;
    let mut written = Vec::new();
    collect_paths(&value, &mut written);
    if searches && !has_path(&value) {
        written.push(".");
    }
    let prefix = if searches { fixed_prefix(tool, &value) } else { String::new() };
    let mut subjects = Subjects { paths: Vec::new(), command: value.get("command").and_then(joined) };
    for text in written {
        let text = if text.trim().is_empty() { "." } else { text.trim() };
        let whole = if prefix.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(format!("{text}{prefix}")) };
        for path in readings(&whole) {
            let subject = PathSubject { path, below: searches };
            if !subjects.paths.contains(&subject) {
                subjects.paths.push(subject);
            }
        }
    }
    Ok(subjects)
}

/// A path with backslashes as slashes and, where that leads elsewhere, with backslashes as characters of names: tools differ.
fn readings(text: &str) -> Vec<NormalPath> {
    if !text.contains('\\') {
        return vec![normalise_slashes(text)];
    }
    let separated = normalise(text);
    let literal = normalise_slashes(text);
    if normalise(literal.as_str()) == separated { vec![separated] } else { vec![separated, literal] }
}

/// Only a `path` that is written so counts: any other key may be one that the tool does not know, and then it looks everywhere.
fn has_path(value: &Value) -> bool {
    match value.get("path") {
        Some(Value::String(_)) => true,
        Some(Value::Array(items)) => !items.is_empty() && items.iter().all(Value::is_string),
        _ => false,
    }
}

/// The directories that everything found lies in, below the path, with a `/` before each: `/src/a` for `src/a/*.rs`. The `pattern` of
/// `glob` is such a glob, and so is the `glob` of `grep` when it has a `/`.
fn fixed_prefix(tool: &str, value: &Value) -> String {
    let key = match tool {
        "glob" => "pattern",
        "grep" => "glob",
        _ => return String::new(),
    };
    let glob = value.get(key).and_then(Value::as_str).filter(|glob| glob.contains('/') && !glob.starts_with('/'));
    let segments: Vec<&str> = glob.unwrap_or_default().split('/').collect();
    if segments.contains(&"..") {
        return String::new();
    }
    let fixed = segments.into_iter().take_while(|segment| {
        segment.chars().all(|char| char.is_alphanumeric() || matches!(char, '.' | '_' | '-' | ' '))
    });
    fixed.filter(|segment| !segment.is_empty()).map(|segment| format!("/{segment}")).collect()
}

fn joined(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => words.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|words| words.join(" ")),
        _ => None,
    }
}

fn collect_paths<'a>(value: &'a Value, paths: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                if is_path_key(key) {
                    add_paths(member, paths);
                }
                collect_paths(member, paths);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_paths(item, paths)),
        _ => {}
    }
}

fn is_path_key(key: &str) -> bool {
    let letters = || key.chars().filter(|char| !matches!(char, '_' | '-')).flat_map(char::to_lowercase);
    PATH_KEYS.iter().any(|known| known.chars().eq(letters()))
}

fn add_paths<'a>(value: &'a Value, paths: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => paths.push(text),
        Value::Array(items) => items.iter().for_each(|item| add_paths(item, paths)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str, paths: &[&str], command: Option<&str>) {
        let got = subjects("any", arguments, false).expect(arguments);
        let found: Vec<&str> = got.paths.iter().map(|subject| subject.path.as_str()).collect();
        assert_eq!(found, paths, "{arguments}");
        assert!(got.paths.iter().all(|subject| !subject.below), "{arguments}");
        assert_eq!(got.command.as_deref(), command, "{arguments}");
    }

    #[test]
    fn found() {
        check("", &[], None);
        check(r#"{"path":"./a/../b"}"#, &["b"], None);
        check(r#"{"file_path":"a\\b","filePath":"a/b"}"#, &["a/b"], None);
        check(r#"{"edits":[{"path":"x"},{"path":"/y//z"}],"paths":["q"]}"#, &["x", "/y/z", "q"], None);
        check(r#"{"command":"ls -l","cwd":"src"}"#, &["src"], Some("ls -l"));
        check(r#"{"command":["git","push"]}"#, &[], Some("git push"));
        check(r#"{"pattern":"a/b","text":"c/d"}"#, &[], None);
        check(r#"{"path":"a\\b\\..\\c"}"#, &["a/c"], None);
        check(r#"{"path":"a/x\\../../k"}"#, &["k", "a/k"], None);
    }

    fn check_search(tool: &str, arguments: &str, paths: &[&str]) {
        let got = subjects(tool, arguments, true).expect(arguments);
        let found: Vec<&str> = got.paths.iter().map(|subject| subject.path.as_str()).collect();
        assert_eq!(found, paths, "{tool} {arguments}");
        assert!(got.paths.iter().all(|subject| subject.below), "{tool} {arguments}");
    }

    #[test]
    fn where_a_search_looks() {
        check_search("grep", r#"{"pattern":"src/x"}"#, &["."]);
        check_search("grep", r#"{"pattern":"n","path":null}"#, &["."]);
        check_search("grep", r#"{"pattern":"n","path":""}"#, &["."]);
        check_search("grep", r#"{"pattern":"n","path":"src"}"#, &["src"]);
        check_search("grep", r#"{"pattern":"n","cwd":"src"}"#, &["src", "."]);
        check_search("grep", r#"{"pattern":"n","glob":"*.rs"}"#, &["."]);
        check_search("grep", r#"{"pattern":"n","glob":"secret"}"#, &["."]);
        check_search("grep", r#"{"pattern":"n","glob":"src/*.rs"}"#, &["src"]);
        check_search("grep", r#"{"pattern":"n","glob":"a/**","path":"src"}"#, &["src/a"]);
        check_search("grep", r#"{"pattern":"n","glob":"!src/**"}"#, &["."]);
        check_search("glob", r#"{"pattern":"src/a/*.rs"}"#, &["src/a"]);
        check_search("glob", r#"{"pattern":"./src/a.rs"}"#, &["src/a.rs"]);
        check_search("glob", r#"{"pattern":"src/../secret/*"}"#, &["."]);
        check_search("glob", r#"{"pattern":"{src,secret}/*"}"#, &["."]);
        check_search("glob", r#"{"pattern":"/src/*"}"#, &["."]);
        check_search("glob", r#"{"pattern":"**/x"}"#, &["."]);
        check_search("find", r#"{"pattern":"src/**"}"#, &["."]);
    }
}
