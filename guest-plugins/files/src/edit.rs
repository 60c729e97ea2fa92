//! The tool `edit`: every replacement fits exactly once, or nothing changes.

use crate::problem::Problem;
use crate::read::text;
use crate::root::{Root, Verb};
use crate::write::replace;
use schemars::JsonSchema;
use serde::Deserialize;

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The text to replace, exactly as it is in the file; it must occur exactly once.
    pub old: String,
    /// What takes its place.
    pub new: String,
}

/// Makes all edits in a file.
pub fn edit(root: &Root, path: &str, edits: &[Replacement]) -> Result<String, Problem> {
    let place = root.place(path, Verb::Write)?;
    let before = text(root, &place)?;
    let after = apply(&before, edits).map_err(|message| Problem::Edit { path: place.shown.clone(), message })?;
    replace(root, &place, &after)?;
    let count = edits.len();
    Ok(format!("made {count} {} in `{}`", if count == 1 { "edit" } else { "edits" }, place.shown))
}

/// Applies the edits one after the other, each to the outcome of those before it.
fn apply(text: &str, edits: &[Replacement]) -> Result<String, String> {
    let mut text = text.to_owned();
    for (number, edit) in (1..).zip(edits) {
        let Replacement { old, new } = edit;
        if old.is_empty() {
            return Err(format!("edit {number}: `old` is empty; use `write` for a new file"));
        }
        match occurrences(&text, old) {
            1 => text = text.replacen(old.as_str(), new, 1),
            0 => return Err(format!("edit {number}: `old` does not occur{}", why_not(&text, old))),
            count => {
                return Err(format!(
                    "edit {number}: `old` occurs {count} times, not once; add lines around it until it is unique"
                ));
            }
        }
    }
    Ok(text)
}

/// Overlapping ones count too: which of them was meant is just as unclear.
fn occurrences(text: &str, old: &str) -> usize {
    let mut count = 0;
    let mut from = 0;
    while let Some(at) = text[from..].find(old) {
        count += 1;
        let step = text[from + at..].chars().next().map_or(1, char::len_utf8);
        from += at + step;
    }
    count
}

/// The usual reason, when it is that.
fn why_not(text: &str, old: &str) -> &'static str {
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.contains("\r\n") && old.contains('\n') && text.replace("\r\n", "\n").contains(&old.replace("\r\n", "\n")) {
        "; the file's lines end in CR LF"
    } else if !squeezed(old).is_empty() && squeezed(text).contains(&squeezed(old)) {
        "; it does with other white space: copy it exactly"
    } else {
        "; read the file again"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::root;

    fn check(text: &str, edits: &[(&str, &str)], expect: Result<&str, &str>) {
        let edits: Vec<Replacement> =
            edits.iter().map(|(old, new)| Replacement { old: (*old).to_owned(), new: (*new).to_owned() }).collect();
        assert_eq!(apply(text, &edits), expect.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn applied() {
        check("a b c", &[("a", "x"), ("c", "")], Ok("x b "));
        check("a b", &[("a", "bb"), ("bb b", "c")], Ok("c"));
        check("a b", &[("a", "x"), ("z", "y")], Err("edit 2: `old` does not occur; read the file again"));
        check(
            "a a",
            &[("a", "x")],
            Err("edit 1: `old` occurs 2 times, not once; add lines around it until it is unique"),
        );
        check(
            "aaa",
            &[("aa", "x")],
            Err("edit 1: `old` occurs 2 times, not once; add lines around it until it is unique"),
        );
        check(
            "éé",
            &[("é", "x")],
            Err("edit 1: `old` occurs 2 times, not once; add lines around it until it is unique"),
        );
        check("a", &[("", "x")], Err("edit 1: `old` is empty; use `write` for a new file"));
        check("a\r\nb", &[("a\nb", "x")], Err("edit 1: `old` does not occur; the file's lines end in CR LF"));
        check(
            "a\tb",
            &[("a b", "x")],
            Err("edit 1: `old` does not occur; it does with other white space: copy it exactly"),
        );
    }

    #[test]
    fn all_or_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a");
        std::fs::write(&file, "one two").expect("a file");
        let root = root(dir.path());
        let edits =
            [Replacement { old: "one".into(), new: "1".into() }, Replacement { old: "three".into(), new: "3".into() }];
        let message = edit(&root, "a", &edits).map_err(|problem| problem.to_string());
        assert_eq!(
            message,
            Err("nothing was changed in `a`: edit 2: `old` does not occur; read the file again".to_owned())
        );
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "one two");
        assert_eq!(edit(&root, "a", &edits[..1]), Ok("made 1 edit in `a`".to_owned()));
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "1 two");
    }
}
