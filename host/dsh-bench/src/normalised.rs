//! What the compared policies do with a path, for those that are part of this package. A guest and the one without a standard library have
//! their own.

/// A relative path without `.` and `..`.
pub fn normalised(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
