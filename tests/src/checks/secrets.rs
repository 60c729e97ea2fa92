//! No secret of the environment appears in anything that was printed or written.

use std::path::{Path, PathBuf};

/// Variables whose values are secrets, by the end of their name.
const SECRET: &[&str] = &["KEY", "SECRET", "TOKEN", "PASSWORD"];

/// What is wrong; empty when nothing is. `texts`: what was printed, each with its name. `dir` is searched with all below it, but for the
/// files in `given`, which the case itself wrote.
pub fn check<'a>(
    env: impl IntoIterator<Item = (&'a str, &'a str)>,
    texts: &[(&str, &str)],
    dir: &Path,
    given: &[PathBuf],
) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, value) in env {
        if value.is_empty() || !SECRET.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        problems.extend(
            texts
                .iter()
                .filter(|(_, text)| text.contains(value))
                .map(|(what, _)| format!("the value of `{name}` is in {what}")),
        );
        for path in files(dir) {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if !given.contains(&path) && bytes.windows(value.len()).any(|window| window == value.as_bytes()) {
                problems.push(format!("the value of `{name}` is in {}", path.display()));
            }
        }
    }
    problems
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_wherever_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).expect("a folder");
        let check = |stdout: &str, file: &str, given: bool| {
            let path = below.join("log");
            std::fs::write(&path, file).expect("a file");
            let given = if given { vec![path] } else { vec![] };
            check([("X_API_KEY", "s3cret"), ("PATH", "/bin")], &[("standard output", stdout)], dir.path(), &given).len()
        };
        assert_eq!(check("fine /bin", "fine /bin", false), 0);
        assert_eq!(check("it is s3cret", "fine", false), 1);
        assert_eq!(check("fine", "x s3cret x", false), 1);
        assert_eq!(check("fine", "x s3cret x", true), 0);
    }
}
