//! The environment of the process: the only place that reads variables, the working directory and what the streams are.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

/// What the process was started in, read once.
#[derive(Debug, Clone)]
pub struct Environment {
    variables: HashMap<OsString, OsString>,
    /// The working directory, absolute.
    pub working_directory: PathBuf,
    /// Where this executable is, if the system says so.
    pub executable: Option<PathBuf>,
    /// Whether standard input is a terminal.
    pub stdin_is_terminal: bool,
    /// Whether standard output is a terminal.
    pub stdout_is_terminal: bool,
    /// Whether standard error is a terminal.
    pub stderr_is_terminal: bool,
}

/// The variable with filters for the diagnostics.
pub const LOG_VARIABLE: &str = "DSH_LOG";

/// The arguments of this process, its name first.
pub fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os()
}

/// What stands for this program wherever it is on disk, also when it was replaced or removed since it began.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Keeps other programs of the same user, those of `shell` among them, from reading this process's environment, in which the keys of
/// providers are. It does not stop root, and it costs the core dumps.
pub fn hide() {
    // An old kernel that refuses leaves things as they were.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

impl Environment {
    /// The environment of this process.
    ///
    /// # Errors
    /// When the working directory is gone.
    pub fn of_this_process() -> std::io::Result<Self> {
        Ok(Self {
            variables: std::env::vars_os().collect(),
            working_directory: std::env::current_dir()?,
            executable: std::env::current_exe().ok(),
            stdin_is_terminal: std::io::stdin().is_terminal(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
        })
    }

    /// A variable that is set to something.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.raw(name)?.to_str().map(str::to_owned)
    }

    /// A variable that was granted to a plugin: to the programs in there, one that is set to nothing is set.
    pub fn for_a_plugin(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Whether standard output is a terminal that shows colours, and the user wants them (see no-color.org).
    pub fn shows_colours(&self) -> bool {
        self.stdout_is_terminal && self.raw("NO_COLOR").is_none() && self.raw("TERM").is_some_and(|term| term != "dumb")
    }

    /// How this program starts itself.
    pub fn own_program(&self) -> PathBuf {
        let own = Path::new(OWN_PROGRAM);
        let found = if own.exists() { None } else { self.executable.clone() };
        found.unwrap_or_else(|| own.to_owned())
    }

    /// Whether standard error is a terminal on which a line can be drawn anew.
    pub fn redraws_lines(&self) -> bool {
        self.stderr_is_terminal && self.raw("TERM").is_some_and(|term| term != "dumb")
    }

    /// A path as it was typed: relative to the working directory, without `.` in it.
    pub fn path(&self, typed: impl AsRef<Path>) -> PathBuf {
        self.working_directory.join(typed).components().collect()
    }

    /// `$DSH_HOME`, else `$XDG_DATA_HOME/dsh`, else `~/.local/share/dsh`.
    pub fn data_directory(&self) -> Option<PathBuf> {
        self.own_directory("XDG_DATA_HOME", ".local/share")
    }

    /// `$DSH_HOME/cache`, else `$XDG_CACHE_HOME/dsh`, else `~/.cache/dsh`.
    pub fn cache_directory(&self) -> Option<PathBuf> {
        match self.raw("DSH_HOME") {
            Some(home) => Some(self.path(home).join("cache")),
            None => self.own_directory("XDG_CACHE_HOME", ".cache"),
        }
    }

    fn own_directory(&self, xdg: &str, below_home: &str) -> Option<PathBuf> {
        if let Some(home) = self.raw("DSH_HOME") {
            return Some(self.path(home));
        }
        // The XDG specification says to ignore a relative path.
        let absolute = |name: &str| self.raw(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute(xdg)
            .or_else(|| absolute("HOME").map(|home| home.join(below_home)))
            .map(|directory| directory.join("dsh"))
    }

    fn raw(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// An environment for tests: these variables, this directory, no terminal.
    #[cfg(test)]
    pub fn of(variables: &[(&str, &str)], working_directory: &Path) -> Self {
        Self {
            variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            working_directory: working_directory.to_owned(),
            executable: None,
            stdin_is_terminal: false,
            stdout_is_terminal: false,
            stderr_is_terminal: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_follow_the_rules() {
        let check = |variables: &[(&str, &str)], data: Option<&str>, cache: Option<&str>| {
            let environment = Environment::of(variables, Path::new("/w"));
            let expect = (data.map(PathBuf::from), cache.map(PathBuf::from));
            assert_eq!((environment.data_directory(), environment.cache_directory()), expect, "{variables:?}");
        };
        check(&[("DSH_HOME", "/d"), ("HOME", "/h")], Some("/d"), Some("/d/cache"));
        check(&[("DSH_HOME", "d")], Some("/w/d"), Some("/w/d/cache"));
        check(&[("DSH_HOME", ""), ("HOME", "/h")], Some("/h/.local/share/dsh"), Some("/h/.cache/dsh"));
        check(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")], Some("/x/dsh"), Some("/h/.cache/dsh"));
        check(&[("XDG_DATA_HOME", "x"), ("XDG_CACHE_HOME", "/c")], None, Some("/c/dsh"));
        check(&[], None, None);
    }
}
