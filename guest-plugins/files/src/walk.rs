//! The tools `list` and `glob`, and the walk that `grep` shares.

use crate::problem::Problem;
use crate::root::{Place, Root, Verb};
use dsh_glob::Glob;
use std::fs;
use std::path::Path;

/// How many entries `list` and `glob` show.
const MAX_SHOWN: usize = 2_000;
/// How many entries a walk looks at: a bound for a tree that somebody built to be walked for ever.
const MAX_WALKED: usize = 200_000;
/// How deep a walk goes.
const MAX_DEPTH: usize = 64;
/// Not looked into by `glob` and `grep`.
const SKIPPED_DIRECTORY: &str = ".git";

/// The entries of a directory, sorted; directories end in `/`, links say what they lead to.
pub fn list(root: &Root, path: &str) -> Result<String, Problem> {
    let place = root.directory(path)?;
    if !root.metadata(&place)?.is_dir() {
        return Err(Problem::NotADirectory { path: place.shown });
    }
    let entries = fs::read_dir(&place.real).map_err(|error| root.explain(&place, Verb::Read, &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| root.explain(&place, Verb::Read, &error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().ok();
        names.push(match kind {
            Some(kind) if kind.is_symlink() => format!("{name} -> {}", target(&entry.path())),
            Some(kind) if kind.is_dir() => name + "/",
            _ => name,
        });
    }
    names.sort();
    Ok(shown(&names, names.len() > MAX_SHOWN, "(empty)"))
}

/// Where a link leads to; `?` when the system does not say, as for one to an absolute path.
fn target(link: &Path) -> String {
    link.read_link().map_or_else(|_| "?".to_owned(), |target| target.to_string_lossy().into_owned())
}

/// The files below `path` whose path relative to it matches, sorted.
pub fn glob(root: &Root, pattern: &str, path: Option<&str>) -> Result<String, Problem> {
    let glob = parse_glob(pattern)?;
    let mut found = Vec::new();
    let mut cut = false;
    for start in root.starts(path)? {
        if !root.metadata(&start)?.is_dir() {
            return Err(Problem::NotADirectory { path: start.shown });
        }
        let whole = walk(root, &start, &mut |place, relative| {
            // Without a path the pattern is relative to the workspace, wherever the walk starts.
            let compared = if path.is_none() { &place.shown } else { relative };
            if glob.matches(compared) {
                found.push(place.shown.clone());
            }
            Ok(true)
        })?;
        cut |= !whole;
    }
    found.sort();
    let cut = cut || found.len() > MAX_SHOWN;
    Ok(shown(&found, cut, "no file matches"))
}

/// A glob, or what is wrong with it.
pub fn parse_glob(pattern: &str) -> Result<Glob, Problem> {
    Glob::path(pattern).map_err(|error| Problem::BadPattern { message: format!("`{pattern}` is not a glob: {error}") })
}

fn shown(lines: &[String], cut: bool, nothing: &str) -> String {
    if lines.is_empty() {
        return nothing.to_owned();
    }
    let mut text = lines[..lines.len().min(MAX_SHOWN)].join("\n");
    if lines.len() > MAX_SHOWN {
        text += &format!("\n[the first {MAX_SHOWN} of {} are shown]", lines.len());
    } else if cut {
        text += &format!("\n[there is more: only the first {MAX_WALKED} files and {MAX_DEPTH} levels were looked at]");
    }
    text
}

/// Calls `visit` for each file below a place, with its path relative to that place, names in order, until it answers false. Links
/// are passed over, whatever they lead to, and `.git` is not entered. False: not all was seen.
pub fn walk(
    root: &Root,
    start: &Place,
    visit: &mut dyn FnMut(&Place, &str) -> Result<bool, Problem>,
) -> Result<bool, Problem> {
    let mut walked = 0;
    let mut whole = true;
    // Directories still to do, the next one last.
    let mut open: Vec<(Place, usize)> = vec![(start.clone(), 0)];
    while let Some((directory, depth)) = open.pop() {
        root.go_on()?;
        // What cannot be read, or is gone meanwhile, is passed over; the start was looked at before.
        let Ok(entries) = fs::read_dir(&directory.real) else { continue };
        let mut entries: Vec<_> = entries.filter_map(Result::ok).map(|entry| (entry.file_name(), entry)).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut below = Vec::new();
        for (name, entry) in entries {
            walked += 1;
            if walked > MAX_WALKED {
                return Ok(false);
            }
            let Ok(kind) = entry.file_type() else { continue };
            let place = child(root, &directory, &name.to_string_lossy());
            if kind.is_dir() {
                let deeper = depth + 1;
                whole &= deeper <= MAX_DEPTH;
                if name != SKIPPED_DIRECTORY && deeper <= MAX_DEPTH {
                    below.push((place, deeper));
                }
            } else if kind.is_file() && !visit(&place, &relative(start, &place))? {
                return Ok(false);
            }
        }
        below.reverse();
        open.append(&mut below);
    }
    Ok(whole)
}

fn child(root: &Root, directory: &Place, name: &str) -> Place {
    if directory.shown == "." { root.below(name) } else { root.below(&format!("{}/{name}", directory.shown)) }
}

fn relative(start: &Place, place: &Place) -> String {
    let relative = Path::new(&place.shown).strip_prefix(&start.shown).unwrap_or(Path::new(&place.shown));
    relative.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::root;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for file in ["b.rs", "a/x.rs", "a/b/y.rs", "a/z.md", ".git/config", ".hidden"] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, "").expect("a file");
        }
        dir
    }

    fn check_list(path: &str, expect: Result<&str, &str>) {
        let dir = tree();
        let got = list(&root(dir.path()), path).map_err(|problem| problem.to_string());
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned), "{path}");
    }

    #[test]
    fn lists() {
        check_list(".", Ok(".git/\n.hidden\na/\nb.rs"));
        check_list("a/", Ok("b/\nx.rs\nz.md"));
        check_list("b.rs", Err("`b.rs` is not a directory"));
        check_list("c", Err("`c` does not exist; `list` shows what is in `.`"));
    }

    fn check_glob(pattern: &str, path: Option<&str>, expect: Result<&str, &str>) {
        let dir = tree();
        let got = glob(&root(dir.path()), pattern, path).map_err(|problem| problem.to_string());
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned), "{pattern}");
    }

    #[test]
    fn globs() {
        check_glob("**/*.rs", None, Ok("a/b/y.rs\na/x.rs\nb.rs"));
        check_glob("*.rs", None, Ok("b.rs"));
        check_glob("*.rs", Some("a"), Ok("a/x.rs"));
        check_glob("a/**", None, Ok("a/b/y.rs\na/x.rs\na/z.md"));
        check_glob("**/config", None, Ok("no file matches"));
        check_glob("[", None, Err("`[` is not a glob: `[` is not closed; write `\\[` for the character"));
        check_glob("*", Some("b.rs"), Err("`b.rs` is not a directory"));
    }

    #[test]
    fn an_empty_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(list(&root(dir.path()), "."), Ok("(empty)".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_shown_and_not_followed() {
        let dir = tree();
        let root = root(dir.path());
        for (link, target) in [("up", ".."), ("file.md", "z.md"), ("none", "nowhere")] {
            std::os::unix::fs::symlink(target, dir.path().join("a").join(link)).expect("a link");
        }
        assert_eq!(list(&root, "a"), Ok("b/\nfile.md -> z.md\nnone -> nowhere\nup -> ..\nx.rs\nz.md".to_owned()));
        assert_eq!(glob(&root, "**/*.md", None), Ok("a/z.md".to_owned()));
        fs::write(dir.path().join("a/z.md"), "text").expect("a file");
        assert_eq!(crate::grep::grep(&root, "text", None, None), Ok("a/z.md:1:text".to_owned()));
    }
}
