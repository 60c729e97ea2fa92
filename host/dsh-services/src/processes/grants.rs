//! What a profile means for the files of this machine: a list of paths and rights, as Landlock takes them.
//!
//! Landlock only adds: a right on a folder holds for all below it and cannot be taken away again. So a folder with something denied
//! below it is not granted; its other children are, one by one. What is put directly into such a folder later has no right.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dsh_seam::Failure;
use dsh_seam::tools::{Access, Profile};

/// The most paths of one sandbox; building it costs a system call for each, and the kernel keeps them for each process.
const MAX_GRANTS: usize = 4096;

/// What every program may read and execute.
const SYSTEM: [&str; 15] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/proc",
    "/run/current-system",
    "/run/systemd/resolve",
    "/sys/devices/system",
    "/sys/fs/cgroup",
];
/// The devices that every program may use.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// What may be done to a path and all below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rights {
    /// List the folder.
    List,
    /// Read, list and execute.
    Read,
    /// Everything.
    Write,
    /// Read and write a device.
    Device,
}

/// One path and what may be done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) path: PathBuf,
    pub(super) rights: Rights,
}

/// What a program under `profile` may touch. `workspace` is without links; `temporary` is the program's own.
pub(super) fn grants(workspace: &Path, profile: &Profile, temporary: &Path) -> Result<Vec<Grant>, Failure> {
    let paths = resolve(workspace, profile)?;
    let mut list = List::default();
    for system in SYSTEM {
        // A system folder without links; one that is not there gives nothing.
        if let Ok(system) = Path::new(system).canonicalize() {
            list.around(&system, &paths.not_of_the_system(workspace, &system))?;
        }
    }
    for device in DEVICES {
        list.push(Path::new(device), Rights::Device)?;
    }
    list.push(temporary, Rights::Write)?;
    for (path, _) in &paths.allowed {
        list.workspace(&paths, path, None)?;
    }
    Ok(list.0)
}

/// The paths of a profile, absolute.
struct Paths {
    allowed: Vec<(PathBuf, Access)>,
    /// Each as it is written and as it is without links.
    denied: Vec<(PathBuf, Access)>,
}

fn resolve(workspace: &Path, profile: &Profile) -> Result<Paths, Failure> {
    let unenforceable = |text: String| Failure::new("unenforceable", text);
    let mut paths = Paths { allowed: Vec::new(), denied: Vec::new() };
    for grant in &profile.paths {
        match workspace.join(&grant.path).canonicalize() {
            Ok(path) if path.starts_with(workspace) => paths.allowed.push((path, grant.access)),
            Ok(_) => return Err(unenforceable(format!("`{}` leads out of the workspace", grant.path))),
            // What is not there cannot be reached.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unenforceable(format!("`{}` cannot be looked at: {error}", grant.path))),
        }
    }
    for grant in &profile.denied {
        let written = workspace.join(&grant.path);
        let real = real_path(&written);
        paths.denied.push((written, grant.access));
        paths.denied.extend(real.map(|real| (real, grant.access)));
    }
    // The workspace itself is `join(".")`, which is only the same path once its parts are compared.
    for (path, _) in &mut paths.denied {
        *path = path.components().filter(|part| *part != std::path::Component::CurDir).collect();
    }
    Ok(paths)
}

/// Without links as far as it is there; the rest as written.
fn real_path(path: &Path) -> Option<PathBuf> {
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (above, real) = there?;
    Some(real.join(path.strip_prefix(above).ok()?))
}

impl Paths {
    fn access(&self, path: &Path) -> Option<Access> {
        let over = |list: &[(PathBuf, Access)]| {
            list.iter().filter(|(above, _)| path.starts_with(above)).map(|(_, access)| *access).collect::<Vec<_>>()
        };
        let best = over(&self.allowed).into_iter().max()?;
        match over(&self.denied).into_iter().min() {
            None => Some(best),
            Some(Access::Write) => Some(Access::Read),
            Some(Access::Read) => None,
        }
    }

    /// What is denied below `path`, and not `path` itself.
    fn denied_below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a (PathBuf, Access)> {
        self.denied.iter().filter(move |(denied, _)| denied != path && denied.starts_with(path))
    }

    /// What of a system folder only the profile can grant.
    fn not_of_the_system(&self, workspace: &Path, system: &Path) -> Vec<PathBuf> {
        let hidden = self.denied.iter().filter(|(_, access)| *access == Access::Read).map(|(path, _)| path.as_path());
        let mut holes: Vec<PathBuf> = hidden.filter(|path| path.starts_with(system)).map(Path::to_path_buf).collect();
        if workspace.starts_with(system) {
            holes.push(workspace.to_owned());
        }
        holes
    }
}

#[derive(Default)]
struct List(Vec<Grant>);

impl List {
    fn push(&mut self, path: &Path, rights: Rights) -> Result<(), Failure> {
        if self.0.len() >= MAX_GRANTS {
            return Err(Failure::new(
                "unenforceable",
                format!(
                    "the folders beside what is denied hold more than {MAX_GRANTS} entries, too many to grant one by one"
                ),
            ));
        }
        self.0.push(Grant { path: path.to_owned(), rights });
        Ok(())
    }

    /// Grants reading of `folder` except for `holes`.
    fn around(&mut self, folder: &Path, holes: &[PathBuf]) -> Result<(), Failure> {
        if holes.iter().any(|hole| hole == folder) {
            return Ok(());
        }
        if !holes.iter().any(|hole| hole.starts_with(folder)) {
            return self.push(folder, Rights::Read);
        }
        children(folder)?.iter().try_for_each(|child| self.around(child, holes))
    }

    /// Grants what the profile allows of `path` and below; `have` is what was granted above it.
    fn workspace(&mut self, paths: &Paths, path: &Path, have: Option<Rights>) -> Result<(), Failure> {
        let rights = match paths.access(path) {
            None => return Ok(()),
            Some(Access::Read) => Rights::Read,
            Some(Access::Write) => Rights::Write,
        };
        let below: Vec<&(PathBuf, Access)> =
            paths.denied_below(path).filter(|(_, access)| *access == Access::Read || rights == Rights::Write).collect();
        if below.is_empty() {
            return if have >= Some(rights) { Ok(()) } else { self.push(path, rights) };
        }
        let hidden = || below.iter().filter(|(_, access)| *access == Access::Read);
        let common = if hidden().next().is_none() {
            Some(Rights::Read)
        } else if hidden().all(|(path, _)| !path.is_dir()) {
            // Names are seen, contents are not; with a hidden folder even its names would be.
            Some(Rights::List)
        } else {
            None
        };
        if common > have
            && let Some(common) = common
        {
            self.push(path, common)?;
        }
        let have = have.max(common);
        children(path)?.iter().try_for_each(|child| self.workspace(paths, child, have))
    }
}

/// What is in a folder, without links: what a link leads to has rights of its own.
fn children(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed =
        |error: io::Error| Failure::new("unenforceable", format!("{} cannot be listed: {error}", folder.display()));
    let mut children = Vec::new();
    for child in fs::read_dir(folder).map_err(failed)? {
        let child = child.map_err(failed)?;
        if !child.file_type().map_err(failed)?.is_symlink() {
            children.push(child.path());
        }
    }
    children.sort();
    Ok(children)
}

#[cfg(test)]
mod tests {
    use dsh_seam::tools::PathGrant;

    use super::*;

    /// A workspace with `a`, `docs/x`, `docs/secret/key`, `out/`, and a link `link` to `docs/secret`.
    fn workspace() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["docs/secret", "out"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for file in ["a", "docs/x", "docs/secret/key"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("docs/secret", dir.path().join("link")).unwrap();
        dir
    }

    fn check(paths: &[(&str, Access)], denied: &[(&str, Access)], expect: &[(&str, Rights)]) {
        let dir = workspace();
        let root = dir.path().canonicalize().unwrap();
        let list = |list: &[(&str, Access)]| {
            list.iter().map(|(path, access)| PathGrant { path: (*path).into(), access: *access }).collect()
        };
        let profile = Profile { paths: list(paths), denied: list(denied), ..Profile::unrestricted() };
        let found = grants(&root, &profile, Path::new("/private")).unwrap();
        let inside =
            found.iter().filter_map(|grant| Some((grant.path.strip_prefix(&root).ok()?.to_str()?, grant.rights)));
        assert_eq!(inside.collect::<Vec<_>>(), expect, "{paths:?} without {denied:?}");
        assert!(found.contains(&Grant { path: "/private".into(), rights: Rights::Write }));
        assert!(found.contains(&Grant { path: "/usr".into(), rights: Rights::Read }));
    }

    #[test]
    fn a_denied_path_is_left_out_by_granting_its_neighbours() {
        use Access::{Read, Write};
        check(&[(".", Write)], &[], &[("", Rights::Write)]);
        check(&[(".", Read), ("out", Write)], &[], &[("", Rights::Read), ("out", Rights::Write)]);
        check(&[("missing", Write)], &[], &[]);
        check(&[], &[], &[]);
        let neighbours = [("a", Rights::Write), ("docs/x", Rights::Write), ("out", Rights::Write)];
        check(&[(".", Write)], &[("docs/secret", Read)], &neighbours);
        check(&[(".", Write)], &[("link", Read)], &neighbours);
        let readable = [("", Rights::Read), ("a", Rights::Write), ("docs/x", Rights::Write), ("out", Rights::Write)];
        check(&[(".", Write)], &[("docs/secret", Write)], &readable);
        check(&[(".", Read)], &[("docs/secret", Write)], &[("", Rights::Read)]);
        let without_a = [("", Rights::List), ("docs", Rights::Read), ("out", Rights::Read)];
        check(&[(".", Read)], &[("a", Read)], &without_a);
        check(&[("docs", Read)], &[(".", Read)], &[]);
    }

    #[test]
    fn a_link_out_of_the_workspace_grants_nothing() {
        let dir = workspace();
        let root = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", root.join("etc")).unwrap();
        let profile =
            Profile { paths: vec![PathGrant { path: "etc".into(), access: Access::Write }], ..Profile::unrestricted() };
        let failure = grants(&root, &profile, Path::new("/private")).unwrap_err();
        assert_eq!(failure, Failure::new("unenforceable", "`etc` leads out of the workspace"));
    }

    #[test]
    fn a_workspace_inside_of_a_system_folder_has_only_its_own_rights() {
        let found = |workspace: &str| {
            let profile = Profile { paths: vec![], ..Profile::unrestricted() };
            grants(Path::new(workspace), &profile, Path::new("/private")).unwrap()
        };
        let reads = |list: &[Grant], path: &str| list.iter().any(|grant| Path::new(path).starts_with(&grant.path));
        let list = found("/usr/bin");
        assert!(!reads(&list, "/usr/bin/env") && reads(&list, "/usr/lib/x"), "{list:?}");
        assert!(reads(&found("/tmp"), "/usr/bin/env"));
    }
}
