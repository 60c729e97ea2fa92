//! The tool `grep`.

use crate::problem::Problem;
use crate::read::looks_binary;
use crate::root::{Place, Root};
use crate::walk::{parse_glob, walk};
use dsh_glob::Glob;
use regex_lite::{Regex, RegexBuilder};
use std::fs;

/// How many lines are shown.
const MAX_LINES: usize = 500;
/// What one line shows at most, in bytes: minified files have lines of a megabyte.
const MAX_LINE_BYTES: usize = 400;
/// Larger files are passed over, in bytes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// What a pattern may compile to, in bytes.
const MAX_REGEX_BYTES: usize = 1024 * 1024;

/// What was found, and what was not looked at.
#[derive(Default)]
struct Found {
    lines: Vec<String>,
    more: bool,
    too_large: usize,
}

/// Lines `path:line:text` that match, files in order.
pub fn grep(root: &Root, pattern: &str, path: Option<&str>, glob: Option<&str>) -> Result<String, Problem> {
    let regex = RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build();
    let regex = regex.map_err(|error| Problem::BadPattern {
        message: format!("`{pattern}` is not a regular expression: {error}"),
    })?;
    let filter = glob.map(Filter::new).transpose()?;
    let mut found = Found::default();
    let mut whole = true;
    for start in root.starts(path)? {
        if root.metadata(&start)?.is_file() {
            search(&regex, &start, &mut found);
            continue;
        }
        whole &= walk(root, &start, &mut |place, relative| {
            if filter.as_ref().is_none_or(|filter| filter.matches(relative)) {
                search(&regex, place, &mut found);
            }
            Ok(!found.more)
        })?;
    }
    Ok(shown(found, whole))
}

/// Which files are searched.
struct Filter {
    glob: Glob,
    by_name: bool,
}

impl Filter {
    fn new(glob: &str) -> Result<Self, Problem> {
        Ok(Self { glob: parse_glob(glob)?, by_name: !glob.contains('/') })
    }

    fn matches(&self, relative: &str) -> bool {
        let name = relative.rsplit('/').next().unwrap_or(relative);
        self.glob.matches(if self.by_name { name } else { relative })
    }
}

/// A file that cannot be read, or is not text, has no matches.
fn search(regex: &Regex, place: &Place, found: &mut Found) {
    if place.real.metadata().is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
        found.too_large += 1;
        return;
    }
    let Ok(bytes) = fs::read(&place.real) else { return };
    if looks_binary(&bytes) {
        return;
    }
    let text = String::from_utf8_lossy(&bytes);
    for (number, line) in (1..).zip(text.lines()) {
        if !regex.is_match(line) {
            continue;
        }
        if found.lines.len() == MAX_LINES {
            found.more = true;
            return;
        }
        found.lines.push(format!("{}:{number}:{}", place.shown, cut(line)));
    }
}

fn cut(line: &str) -> String {
    if line.len() <= MAX_LINE_BYTES {
        return line.to_owned();
    }
    let end = line.floor_char_boundary(MAX_LINE_BYTES);
    format!("{} [{} bytes cut]", &line[..end], line.len() - end)
}

fn shown(found: Found, whole: bool) -> String {
    let mut text = if found.lines.is_empty() { "no line matches".to_owned() } else { found.lines.join("\n") };
    if found.more {
        text +=
            &format!("\n[there is more: the first {MAX_LINES} lines are shown; narrow `path`, `glob` or `pattern`]");
    } else if !whole {
        text += "\n[there is more: not all files were looked at; narrow `path`]";
    }
    if found.too_large > 0 {
        text += &format!("\n[{} files above {MAX_FILE_BYTES} bytes were not searched]", found.too_large);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::root;

    fn check(
        files: &[(&str, &[u8])],
        pattern: &str,
        path: Option<&str>,
        glob: Option<&str>,
        expect: Result<&str, &str>,
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        for (file, content) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, content).expect("a file");
        }
        let got = grep(&root(dir.path()), pattern, path, glob).map_err(|problem| problem.to_string());
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned), "{pattern}");
    }

    const FILES: [(&str, &[u8]); 5] = [
        ("b.rs", b"fn b() {}\r\nlet x = 1;\n"),
        ("a/c.md", b"a fn here\n"),
        ("a/d.rs", b"// none\nfn d() {}"),
        ("bin", b"fn \0"),
        (".git/x", b"fn"),
    ];

    #[test]
    fn searches() {
        check(&FILES, "fn", None, None, Ok("b.rs:1:fn b() {}\na/c.md:1:a fn here\na/d.rs:2:fn d() {}"));
        check(&FILES, r"^fn \w+\(", Some("a"), None, Ok("a/d.rs:2:fn d() {}"));
        check(&FILES, "fn", None, Some("*.md"), Ok("a/c.md:1:a fn here"));
        check(&FILES, "fn", None, Some("a/*.rs"), Ok("a/d.rs:2:fn d() {}"));
        check(&FILES, "fn", Some("b.rs"), None, Ok("b.rs:1:fn b() {}"));
        check(&FILES, "nothing", None, None, Ok("no line matches"));
        check(&FILES, "(?i)FN B", None, None, Ok("b.rs:1:fn b() {}"));
        check(&FILES, "fn", Some("c"), None, Err("`c` does not exist; `list` shows what is in `.`"));
    }

    #[test]
    fn bad_patterns() {
        let dir = tempfile::tempdir().expect("a directory");
        let message = grep(&root(dir.path()), "(", None, None).map_err(|problem| problem.to_string());
        assert!(message.is_err_and(|message| message.starts_with("`(` is not a regular expression: ")));
    }

    #[test]
    fn bounds() {
        let many = "x\n".repeat(MAX_LINES + 1);
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("a"), &many).expect("a file");
        let text = grep(&root(dir.path()), "x", None, None).expect("found");
        assert_eq!(text.lines().count(), MAX_LINES + 1);
        assert!(text.ends_with("[there is more: the first 500 lines are shown; narrow `path`, `glob` or `pattern`]"));
        assert_eq!(cut(&"é".repeat(300)), format!("{} [200 bytes cut]", "é".repeat(200)));
    }
}
