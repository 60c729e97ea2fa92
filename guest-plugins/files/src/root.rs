//! Paths: which are refused by their text or for a link, where the rest are, and what an error of the system means.
//!
//! Rules about paths, those of `permission` and of a sandbox, judge the text of a call. So a path must have one text: one with a
//! symbolic link on the way is refused, also when the link leads to something granted.

use crate::problem::Problem;
use dsh_glob::normalise;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Whether a path may be read or written.
type InProfile<'a> = Box<dyn Fn(&str, Verb) -> bool + 'a>;

/// What the messages need to know from the host; asked for only when there is something to say.
pub struct Who<'a> {
    /// The granted directories.
    pub granted: Box<dyn Fn() -> Vec<String> + 'a>,
    /// Whether a path is in one of them.
    pub is_granted: Box<dyn Fn(&str) -> bool + 'a>,
    /// Whether the profile in force lets a path be read, or written.
    pub in_profile: InProfile<'a>,
    /// The name the plugin was loaded under.
    pub plugin: Box<dyn Fn() -> String + 'a>,
    /// Whether the turn was aborted.
    pub cancelled: Box<dyn Fn() -> bool + 'a>,
}

/// The workspace: in a component the empty path, below which the granted directories are.
pub struct Root<'a> {
    base: PathBuf,
    who: Who<'a>,
}

/// A path inside of the workspace by its text: normalised, without `..`.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// As it is shown; `.` for the workspace.
    pub shown: String,
    /// As it is opened.
    pub real: PathBuf,
    /// Whether the model named a directory, so that it is what would have to be granted.
    pub is_directory: bool,
}

/// What is tried, for messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verb {
    Read,
    Write,
}

impl Verb {
    fn done(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "written",
        }
    }

    fn grant(self) -> &'static str {
        match self {
            Self::Read => "fs:read",
            Self::Write => "fs:write",
        }
    }
}

impl<'a> Root<'a> {
    /// The workspace at `base`.
    pub fn new(base: impl Into<PathBuf>, who: Who<'a>) -> Self {
        Self { base: base.into(), who }
    }

    /// Fails once the turn was aborted.
    pub fn go_on(&self) -> Result<(), Problem> {
        if (self.who.cancelled)() { Err(Problem::Cancelled) } else { Ok(()) }
    }

    /// The place of a directory as the model wrote it.
    pub fn directory(&self, path: &str) -> Result<Place, Problem> {
        self.locate(path, Verb::Read, true)
    }

    /// The place of a file as the model wrote it; no part of it is a symbolic link. `..` is resolved by the text alone, so that a link
    /// cannot bend it.
    pub fn place(&self, path: &str, verb: Verb) -> Result<Place, Problem> {
        self.locate(path, verb, false)
    }

    fn locate(&self, path: &str, verb: Verb, is_directory: bool) -> Result<Place, Problem> {
        if path.contains('\0') {
            return Err(Problem::Outside {
                path: path.replace('\0', "\\0"),
                hint: "a path has no zero byte".to_owned(),
            });
        }
        // Only `/` separates here: a backslash is a character of a name.
        let normal = normalise(&path.trim_end_matches('/').replace('\\', "\u{1}"));
        let shown = normal.as_str().replace('\u{1}', "\\");
        if path.starts_with('/') || normal.is_outside() {
            return Err(Problem::Outside { path: path.to_owned(), hint: self.outside_hint(verb) });
        }
        let below = self.below(&shown);
        let place = Place { is_directory: is_directory || below.is_directory, ..below };
        if !(self.who.is_granted)(&place.shown) {
            Self::ask_for(&place, verb);
            return Err(self.not_granted(&place, verb));
        }
        self.refuse_links(&place, verb)?;
        Ok(place)
    }

    /// Tries what is not granted once, so that the operator hears of it from the host, with the grant that is missing. Nothing else that
    /// is not granted is ever looked for: each look would be one more refusal, of a grant that nobody needs.
    fn ask_for(place: &Place, verb: Verb) {
        let _ = match verb {
            Verb::Read if place.is_directory => std::fs::read_dir(&place.real).map(|_| ()),
            Verb::Read => place.real.metadata().map(|_| ()),
            Verb::Write => std::fs::OpenOptions::new().write(true).open(&place.real).map(|_| ()),
        };
    }

    /// The directories above a path and the path itself, as far as they are granted, the path first.
    pub fn ancestors(&self, shown: &str) -> Vec<Place> {
        let ancestors = Path::new(shown).ancestors().map(|ancestor| ancestor.to_string_lossy().into_owned());
        let named = ancestors.map(|ancestor| if ancestor.is_empty() { ".".to_owned() } else { ancestor });
        named.filter(|ancestor| (self.who.is_granted)(ancestor)).map(|ancestor| self.below(&ancestor)).collect()
    }

    /// Refuses a place with a symbolic link on the way, and says what to name instead.
    fn refuse_links(&self, place: &Place, verb: Verb) -> Result<(), Problem> {
        let Some(link) = self.link_on_the_way(place) else { return Ok(()) };
        let path = place.shown.clone();
        let leads_out = link.real.metadata().is_err_and(|error| error.kind() != ErrorKind::NotFound);
        let target = link.real.read_link().ok().map(|target| target.to_string_lossy().into_owned());
        if !leads_out
            && let Some(target) = target
            && let Some(instead) = around(&path, &link.shown, &target)
        {
            return Err(Problem::Link { path, link: link.shown, target, instead });
        }
        let hint = format!(
            "name the file itself; `--grant {}={}:PATH` grants its directory, when that is in the workspace",
            (self.who.plugin)(),
            verb.grant()
        );
        Err(Problem::LinkOutside { path, link: link.shown, hint })
    }

    /// A place by its normalised text.
    pub fn below(&self, shown: &str) -> Place {
        // The empty path is no path to the system; the directory itself is `.`.
        let real = if self.base.as_os_str().is_empty() { PathBuf::from(shown) } else { self.base.join(shown) };
        Place { shown: shown.to_owned(), real, is_directory: shown == "." }
    }

    /// Where a search without a path starts: the workspace when it is granted as a whole, otherwise every granted directory.
    pub fn starts(&self, path: Option<&str>) -> Result<Vec<Place>, Problem> {
        if let Some(path) = path {
            let place = self.directory(path)?;
            self.metadata(&place)?;
            return Ok(vec![place]);
        }
        let whole = self.below(".");
        if (self.who.is_granted)(&whole.shown) && whole.real.metadata().is_ok() {
            return Ok(vec![whole]);
        }
        let mut starts: Vec<Place> = Vec::new();
        let mut granted: Vec<String> =
            (self.who.granted)().iter().map(|path| normalise(path).as_str().to_owned()).collect();
        granted.sort();
        for path in granted {
            let covered = starts.iter().any(|start| Path::new(&path).starts_with(&start.shown));
            let place = self.below(&path);
            if !covered && place.real.metadata().is_ok() {
                starts.push(place);
            }
        }
        if starts.is_empty() {
            Self::ask_for(&whole, Verb::Read);
            return Err(self.not_granted(&whole, Verb::Read));
        }
        Ok(starts)
    }

    /// What is at a place, links followed.
    pub fn metadata(&self, place: &Place) -> Result<std::fs::Metadata, Problem> {
        place.real.metadata().map_err(|error| self.explain(place, Verb::Read, &error))
    }

    /// Says what an error of the system means for this place.
    pub fn explain(&self, place: &Place, verb: Verb, error: &Error) -> Problem {
        let path = place.shown.clone();
        if !self.is_reachable(place) {
            return self.not_granted(place, verb);
        }
        match error.kind() {
            ErrorKind::NotFound => Problem::NotFound { path, hint: self.not_found_hint(place) },
            ErrorKind::IsADirectory => Problem::NotAFile { path },
            ErrorKind::NotADirectory => Problem::NotADirectory { path },
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => self.not_granted(place, verb),
            _ => Problem::Io { path, verb: verb.done(), message: error.to_string() },
        }
    }

    /// Whether some directory on the way is there: without one, nothing was granted that covers the place.
    fn is_reachable(&self, place: &Place) -> bool {
        self.ancestors(&place.shown).iter().any(|ancestor| ancestor.real.symlink_metadata().is_ok())
    }

    /// The first symbolic link on the way.
    fn link_on_the_way(&self, place: &Place) -> Option<Place> {
        let mut on_the_way = self.ancestors(&place.shown).into_iter().rev().filter(|ancestor| ancestor.shown != ".");
        on_the_way.find(|place| place.real.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()))
    }

    fn not_granted(&self, place: &Place, verb: Verb) -> Problem {
        let path = place.shown.clone();
        if self.is_reachable(place) && !(self.who.in_profile)(&place.shown, verb) {
            return Problem::NotGranted {
                path,
                verb: verb.done(),
                hint: "the sandbox in force does not allow it".to_owned(),
            };
        }
        let mut hint = match (verb, self.is_reachable(place)) {
            (Verb::Write, true) => "it is granted for reading only, or protected".to_owned(),
            (Verb::Read, true) => "the system does not allow it".to_owned(),
            (_, false) => format!("{} is granted", self.granted_text()),
        };
        let plugin = (self.who.plugin)();
        hint += &format!("; `--grant {plugin}={}:{}` would grant it", verb.grant(), directory_of(place));
        Problem::NotGranted { path, verb: verb.done(), hint }
    }

    fn outside_hint(&self, verb: Verb) -> String {
        let plugin = (self.who.plugin)();
        format!(
            "{} is granted, and `--grant {plugin}={}:PATH` grants a directory of the workspace",
            self.granted_text(),
            verb.grant()
        )
    }

    fn granted_text(&self) -> String {
        let granted: Vec<String> = (self.who.granted)().iter().map(|path| format!("`{path}`")).collect();
        if granted.is_empty() { "nothing".to_owned() } else { format!("only {}", granted.join(", ")) }
    }

    /// The nearest directory that is there, so that the model can look.
    fn not_found_hint(&self, place: &Place) -> String {
        let mut above = self.ancestors(&place.shown).into_iter().filter(|ancestor| ancestor.shown != place.shown);
        let there = above.find(|ancestor| ancestor.real.is_dir());
        there.map_or_else(String::new, |there| format!("; `list` shows what is in `{}`", there.shown))
    }
}

/// The text of a path with the link in it replaced by what it leads to; none when that is not below the workspace.
fn around(path: &str, link: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let rest = path.strip_prefix(link)?;
    let parent = Path::new(link).parent()?.to_string_lossy();
    let normal = normalise(&format!("{parent}/{target}{rest}").trim_start_matches('/').replace('\\', "\u{1}"));
    (!normal.is_outside()).then(|| normal.as_str().replace('\u{1}', "\\"))
}

/// The directory to grant for a place.
fn directory_of(place: &Place) -> String {
    if place.is_directory {
        return place.shown.clone();
    }
    let parent = Path::new(&place.shown).parent().map(|parent| parent.to_string_lossy().into_owned());
    parent.filter(|parent| !parent.is_empty()).unwrap_or_else(|| ".".to_owned())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A workspace for tests; `docs` is what messages say is granted.
    pub fn root(base: &Path) -> Root<'static> {
        let granted = || vec!["docs".to_owned()];
        Root::new(
            base,
            Who {
                granted: Box::new(granted),
                is_granted: Box::new(|_| true),
                in_profile: Box::new(|path, _| path != "docs/hidden"),
                plugin: Box::new(|| "files".to_owned()),
                cancelled: Box::new(|| false),
            },
        )
    }

    fn check(path: &str, expect: Result<&str, &str>) {
        let got =
            root(Path::new("")).place(path, Verb::Read).map(|place| place.shown).map_err(|problem| problem.to_string());
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned), "{path}");
    }

    #[test]
    fn places() {
        let refused = |path: &str| {
            format!(
                "`{path}` is refused: paths are relative to the workspace and stay in it; only `docs` is granted, and `--grant \
                 files=fs:read:PATH` grants a directory of the workspace"
            )
        };
        check("a/b", Ok("a/b"));
        check("./a//b/", Ok("a/b"));
        check("a/../b", Ok("b"));
        check("", Ok("."));
        check(".", Ok("."));
        check("a\\b", Ok("a\\b"));
        check("../x", Err(&refused("../x")));
        check("a/../../x", Err(&refused("a/../../x")));
        check("/etc/passwd", Err(&refused("/etc/passwd")));
        check("//", Err(&refused("//")));
        check("~/x", Err(&refused("~/x")));
    }

    #[test]
    fn around_a_link() {
        let check = |path: &str, link: &str, target: &str, expect: Option<&str>| {
            assert_eq!(around(path, link, target), expect.map(str::to_owned), "{path}");
        };
        check("src/dlink/w", "src/dlink", "../secret", Some("secret/w"));
        check("dlink", "dlink", "secret/", Some("secret"));
        check("a/b/c", "a", ".", Some("b/c"));
        check("a", "a", ".", Some("."));
        check("a\\b/c", "a\\b", "d\\e", Some("d\\e/c"));
        check("a/b", "a/b", "../../x", None);
        check("a", "a", "/etc", None);
    }

    #[cfg(unix)]
    #[test]
    fn no_tool_goes_through_a_link() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().expect("a directory");
        for folder in ["src", "secret"] {
            std::fs::create_dir(dir.path().join(folder)).expect("a directory");
            std::fs::write(dir.path().join(folder).join("file"), folder).expect("a file");
        }
        let links =
            [("dlink", "../secret"), ("flink", "file"), ("none", "../secret/new"), ("up", "../.."), ("far", "/usr")];
        for (link, target) in links {
            symlink(target, dir.path().join("src").join(link)).expect("a link");
        }
        let root = root(dir.path());
        let edits = [crate::edit::Replacement { old: "secret".into(), new: "x".into() }];
        let check = |path: &str, expect: &str| {
            let outcomes = [
                crate::read::read(&root, path, None, None),
                crate::write::write(&root, path, "x"),
                crate::edit::edit(&root, path, &edits),
                crate::walk::list(&root, path),
                crate::walk::glob(&root, "**", Some(path)),
                crate::grep::grep(&root, "", Some(path), None),
            ];
            for outcome in outcomes {
                let message = outcome.map_err(|problem| problem.to_string().replace("fs:write", "fs:read"));
                assert_eq!(message, Err(expect.to_owned()), "{path}");
            }
        };
        let rules = "so that the rules see what is meant";
        let out = "leads out of what is granted; name the file itself; `--grant files=fs:read:PATH` grants its directory, when that is in the workspace";
        check(
            "src/dlink",
            &format!(
                "`src/dlink` is refused: it is a symbolic link to `../secret`; name the path itself, `secret`, {rules}"
            ),
        );
        check(
            "./src/dlink/file",
            &format!(
                "`src/dlink/file` is refused: `src/dlink` is a symbolic link to `../secret`; name the path itself, `secret/file`, {rules}"
            ),
        );
        check(
            "src/flink",
            &format!(
                "`src/flink` is refused: it is a symbolic link to `file`; name the path itself, `src/file`, {rules}"
            ),
        );
        check(
            "src/none",
            &format!(
                "`src/none` is refused: it is a symbolic link to `../secret/new`; name the path itself, `secret/new`, {rules}"
            ),
        );
        check("src/up", &format!("`src/up` is refused: it is a symbolic link that {out}"));
        check("src/far/bin", &format!("`src/far/bin` is refused: `src/far` is a symbolic link that {out}"));
        assert_eq!(std::fs::read_to_string(dir.path().join("secret/file")).expect("a file"), "secret");
        assert_eq!(std::fs::read_dir(dir.path().join("secret")).expect("a directory").count(), 1);
        // By the text alone there is no link here.
        assert_eq!(crate::read::read(&root, "src/dlink/../file", None, None), Ok("src".to_owned()));
    }

    #[test]
    fn errors_say_what_to_do() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("docs")).expect("a directory");
        let root = root(dir.path());
        let place = root.below("docs/a/b.md");
        let problem = root.explain(&place, Verb::Read, &Error::from(ErrorKind::NotFound));
        assert_eq!(problem.to_string(), "`docs/a/b.md` does not exist; `list` shows what is in `docs`");
        let problem = root.explain(&place, Verb::Write, &Error::from(ErrorKind::PermissionDenied));
        assert_eq!(
            problem.to_string(),
            "`docs/a/b.md` may not be written: it is granted for reading only, or protected; `--grant files=fs:write:docs/a` would grant it"
        );
        let problem = root.explain(&root.below("docs/hidden"), Verb::Read, &Error::from(ErrorKind::PermissionDenied));
        assert_eq!(problem.to_string(), "`docs/hidden` may not be read: the sandbox in force does not allow it");
        let nowhere = super::tests::root(&dir.path().join("none"));
        let problem = nowhere.explain(&nowhere.below("src/a.rs"), Verb::Read, &Error::from(ErrorKind::NotFound));
        assert_eq!(
            problem.to_string(),
            "`src/a.rs` may not be read: only `docs` is granted; `--grant files=fs:read:src` would grant it"
        );
    }
}
