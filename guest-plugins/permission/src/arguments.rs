//! Which arguments of a call are paths, and which one is a command.

use dsh_glob::{NormalPath, normalise};
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
    /// Normalised, in the order found, each once.
    pub paths: Vec<NormalPath>,
    /// The argument `command`; a list of strings is joined by blanks.
    pub command: Option<String>,
}

/// Reads the subjects of a call.
pub fn subjects(arguments: &str) -> Result<Subjects, String> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    let value: Value = serde_json::from_str(text).map_err(|error| format!("the arguments are not JSON: {error}"))?;
    let mut subjects = Subjects { paths: Vec::new(), command: value.get("command").and_then(joined) };
    collect_paths(&value, &mut subjects.paths);
    Ok(subjects)
}

fn joined(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => words.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|words| words.join(" ")),
        _ => None,
    }
}

fn collect_paths(value: &Value, paths: &mut Vec<NormalPath>) {
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
    let key: String = key.chars().filter(|char| !matches!(char, '_' | '-')).flat_map(char::to_lowercase).collect();
    PATH_KEYS.contains(&key.as_str())
}

fn add_paths(value: &Value, paths: &mut Vec<NormalPath>) {
    match value {
        Value::String(text) => {
            let path = normalise(text);
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_paths(item, paths)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str, paths: &[&str], command: Option<&str>) {
        let got = subjects(arguments).expect(arguments);
        assert_eq!(got.paths.iter().map(NormalPath::as_str).collect::<Vec<_>>(), paths, "{arguments}");
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
    }
}
