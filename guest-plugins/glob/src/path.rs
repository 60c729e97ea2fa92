//! The one way to normalise a path that came from outside.

use std::fmt;

/// A path without `.`, without `..` where it can be resolved, with single `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NormalPath(String);

impl NormalPath {
    /// As text: `.` for the directory itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Absolute, in a home directory, or above the directory it is relative to.
    pub fn is_outside(&self) -> bool {
        let first = self.0.split('/').next().unwrap_or_default();
        first.is_empty() || first == ".." || first.starts_with('~') || is_drive(first)
    }

    /// Whether a `..` is left over.
    pub fn is_above(&self) -> bool {
        self.0 == ".." || self.0.starts_with("../")
    }

    /// What is left when the first `n` segments are taken away, for each `n` from 1: `b/c` and `c` of `a/b/c`.
    pub fn tails(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[at + 1..]).filter(|tail| !tail.is_empty())
    }
}

impl fmt::Display for NormalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_drive(segment: &str) -> bool {
    segment.len() == 2 && segment.ends_with(':') && segment.starts_with(|char: char| char.is_ascii_alphabetic())
}

/// Normalises a path by its text alone: backslashes are slashes, `file://` goes, `.` and doubled slashes go, `..` takes the
/// segment before it away; at the start of a relative path it stays.
pub fn normalise(path: &str) -> NormalPath {
    normalise_slashes(&path.replace('\\', "/"))
}

/// The same where a backslash is a character of a name.
pub fn normalise_slashes(path: &str) -> NormalPath {
    let path = path.trim();
    let path = path.strip_prefix("file://").unwrap_or(path);
    let absolute = path.starts_with('/');
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => match segments.last() {
                Some(&"..") | None if absolute => {}
                Some(&"..") | None => segments.push(".."),
                Some(_) => {
                    segments.pop();
                }
            },
            other => segments.push(other),
        }
    }
    let joined = segments.join("/");
    NormalPath(match (absolute, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expect: &str, outside: bool) {
        let normal = normalise(path);
        assert_eq!((normal.as_str(), normal.is_outside()), (expect, outside), "{path}");
    }

    #[test]
    fn normalised() {
        check("a/b", "a/b", false);
        check("./a/../b", "b", false);
        check("a//b/", "a/b", false);
        check("a\\..\\b\\c", "b/c", false);
        check("", ".", false);
        check("a/..", ".", false);
        check("../x", "../x", true);
        check("a/../../x", "../x", true);
        check("../../x", "../../x", true);
        check("/etc/../passwd", "/passwd", true);
        check("/../..", "/", true);
        check("~/x", "~/x", true);
        check("file:///etc/x", "/etc/x", true);
        check("C:\\x", "C:/x", true);
    }

    #[test]
    fn a_backslash_in_a_name() {
        assert_eq!(normalise_slashes("a/b\\../../k").as_str(), "a/k");
        assert_eq!(normalise("a/b\\../../k").as_str(), "k");
    }

    #[test]
    fn tails_of_a_path() {
        let path = normalise("/a/b/c");
        assert_eq!(path.tails().collect::<Vec<_>>(), ["a/b/c", "b/c", "c"]);
    }
}
