//! The environment of a program: what it needs to work, what was granted, and nothing else.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use dsh_seam::tools::Profile;

use super::grants::{Grant, Rights};

/// What every program gets of the host's environment.
const ALWAYS: [&str; 5] = ["PATH", "HOME", "LANG", "TERM", "TMPDIR"];

/// What a sandbox means for the environment.
#[derive(Clone, Copy)]
pub(super) struct Inside<'a> {
    /// The program's own temporary folder.
    pub(super) temporary: &'a Path,
    /// All that it may touch.
    pub(super) grants: &'a [Grant],
}

/// The variables of a program. In a sandbox TMPDIR is its own, and so is HOME when the real one may not be read, because programs
/// stop at a home that they are refused rather than at an empty one. For the same reason PATH is without folders that may not be
/// read: a shell takes the first program of a name, also when it is refused.
pub(super) fn environment(
    profile: &Profile,
    granted: &[String],
    own: &[(String, String)],
    inside: Option<Inside<'_>>,
) -> BTreeMap<String, OsString> {
    let passed = granted.iter().map(String::as_str).filter(|name| lets_through(&profile.env, name));
    let mut variables = BTreeMap::new();
    for name in ALWAYS.into_iter().chain(passed) {
        if let Some(value) = std::env::var_os(name) {
            variables.insert(name.to_owned(), value);
        }
    }
    if let Some(Inside { temporary, grants }) = inside {
        variables.insert("TMPDIR".into(), temporary.into());
        if !variables.get("HOME").is_some_and(|home| may_read(grants, Path::new(home))) {
            variables.insert("HOME".into(), temporary.into());
        }
        let folders = variables.get("PATH").map(std::env::split_paths).into_iter().flatten();
        // A folder that came out of PATH has no `:` in it, so that it can go back in.
        let path = std::env::join_paths(folders.filter(|folder| may_read(grants, folder))).unwrap_or_default();
        variables.insert("PATH".into(), path);
    }
    variables.extend(own.iter().map(|(name, value)| (name.clone(), value.into())));
    variables
}

fn lets_through(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    })
}

/// Whether a folder may be read, its links followed.
fn may_read(grants: &[Grant], folder: &Path) -> bool {
    let reads = |grant: &&Grant| matches!(grant.rights, Rights::Read | Rights::Write);
    folder.canonicalize().is_ok_and(|real| grants.iter().filter(reads).any(|grant| real.starts_with(&grant.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_what_it_needs_and_what_was_granted() {
        let check = |patterns: &[&str], granted: &[&str], own: &[(&str, &str)], expect: &[&str]| {
            let profile =
                Profile { env: patterns.iter().map(|name| (*name).to_owned()).collect(), ..Profile::unrestricted() };
            let granted: Vec<String> = granted.iter().map(|name| (*name).to_owned()).collect();
            let own: Vec<_> = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let found = environment(&profile, &granted, &own, None);
            let names: Vec<&str> = found.keys().map(String::as_str).filter(|name| !ALWAYS.contains(name)).collect();
            assert_eq!(names, expect);
            assert_eq!(found.get("PATH"), std::env::var_os("PATH").as_ref());
        };
        check(&["*"], &[], &[], &[]);
        check(&["*"], &["CARGO_PKG_NAME", "NO_SUCH_VARIABLE"], &[], &["CARGO_PKG_NAME"]);
        check(&["OTHER"], &["CARGO_PKG_NAME"], &[], &[]);
        check(&["CARGO_*"], &["CARGO_PKG_NAME", "HOME"], &[("OWN", "1")], &["CARGO_PKG_NAME", "OWN"]);
    }

    #[test]
    fn a_sandbox_is_led_only_to_what_it_may_read() {
        let home = std::env::var("HOME").unwrap();
        let of = |readable: &[&str]| {
            let read = |path: &&str| Grant { path: Path::new(*path).canonicalize().unwrap(), rights: Rights::Read };
            let grants: Vec<Grant> = readable.iter().map(read).collect();
            let inside = Inside { temporary: Path::new("/private"), grants: &grants };
            let found = environment(&Profile::unrestricted(), &[], &[], Some(inside));
            ["HOME", "TMPDIR", "PATH"].map(|name| found[name].to_str().unwrap().to_owned())
        };
        assert_eq!(of(&[]), ["/private", "/private", ""]);
        let [home_found, _, path] = of(&["/usr", &home]);
        assert_eq!(home_found, home);
        assert!(path.split(':').any(|folder| folder == "/usr/bin"), "{path}");
        assert!(!of(&["/etc"])[2].contains("/usr/bin"));
    }
}
