//! The tool `write`, and how a file is replaced.

use crate::problem::Problem;
use crate::root::{Place, Root, Verb};
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::path::PathBuf;

/// Writes a whole file and makes the directories on the way.
pub fn write(root: &Root, path: &str, content: &str) -> Result<String, Problem> {
    let place = root.place(path, Verb::Write)?;
    if place.real.is_dir() || place.shown == "." {
        return Err(Problem::NotAFile { path: place.shown });
    }
    if place.real.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Problem::NotRegular { path: place.shown });
    }
    make_parents(root, &place)?;
    let existed = place.real.symlink_metadata().is_ok();
    replace(root, &place, content)?;
    let what = if existed { "replaced" } else { "wrote" };
    Ok(format!("{what} `{}`: {} bytes, {} lines", place.shown, content.len(), content.lines().count()))
}

/// Makes missing directories one by one: `create_dir_all` would try those above the granted one too.
fn make_parents(root: &Root, place: &Place) -> Result<(), Problem> {
    let above = root.ancestors(&place.shown).into_iter().skip(1);
    let missing: Vec<Place> = above.take_while(|directory| directory.real.symlink_metadata().is_err()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(&directory.real) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(root.explain(place, Verb::Write, &error)),
        }
    }
    Ok(())
}

/// Replaces a file so that no half-written one is ever seen: a new file beside it takes its name.
///
/// A plugin cannot give a file its mode, so that a script would lose its execute bit: it is written in place.
pub fn replace(root: &Root, place: &Place, content: &str) -> Result<(), Problem> {
    let explain = |error: io::Error| root.explain(place, Verb::Write, &error);
    if is_script(place) {
        return fs::write(&place.real, content).map_err(explain);
    }
    let temporary = temporary(place);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, &place.real));
    if written.is_err() {
        // Whatever went wrong is said; that this file may be left behind would add nothing.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(explain)
}

fn is_script(place: &Place) -> bool {
    use std::io::Read;
    let mut start = [0; 2];
    fs::File::open(&place.real).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"#!"
}

/// A name beside the file that nothing else uses.
fn temporary(place: &Place) -> PathBuf {
    let random = RandomState::new().hash_one(&place.shown);
    let name = place.real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    place.real.with_file_name(format!(".{name}.{random:016x}.tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::root;

    fn names(dir: &std::path::Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn new_and_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = root(dir.path());
        assert_eq!(write(&root, "a/b/c.txt", "x\ny\n"), Ok("wrote `a/b/c.txt`: 4 bytes, 2 lines".to_owned()));
        assert_eq!(write(&root, "./a/b/../b/c.txt", "z"), Ok("replaced `a/b/c.txt`: 1 bytes, 1 lines".to_owned()));
        assert_eq!(fs::read_to_string(dir.path().join("a/b/c.txt")).expect("a file"), "z");
        assert_eq!(names(&dir.path().join("a/b")), ["c.txt"]);
    }

    #[test]
    fn refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = root(dir.path());
        fs::write(dir.path().join("f"), "").expect("a file");
        let text = |result: Result<String, Problem>| result.map_err(|problem| problem.to_string());
        assert_eq!(text(write(&root, ".", "x")), Err("`.` is a directory, not a file; use `list`".to_owned()));
        assert_eq!(text(write(&root, "f/x", "x")), Err("`f/x` is not a directory".to_owned()));
        assert!(text(write(&root, "../x", "x")).is_err_and(|message| message.contains("fs:write:PATH")));
    }

    #[cfg(unix)]
    #[test]
    fn scripts_keep_their_mode() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let root = root(dir.path());
        let script = dir.path().join("run");
        fs::write(&script, "#!/bin/sh\n").expect("a file");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
        write(&root, "run", "#!/bin/sh\nls\n").expect("written");
        assert_eq!(fs::read_to_string(&script).expect("a file"), "#!/bin/sh\nls\n");
        assert_eq!(fs::metadata(&script).expect("a file").permissions().mode() & 0o777, 0o755);
    }
}
