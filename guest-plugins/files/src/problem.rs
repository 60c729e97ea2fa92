//! What can go wrong, in the words the model reads.

use std::fmt;

/// Why a tool could not do its work.
#[derive(Debug, PartialEq)]
pub enum Problem {
    /// Absolute, or above the workspace.
    Outside {
        path: String,
        hint: String,
    },
    /// Below no granted directory, or below one that is granted for reading only.
    NotGranted {
        path: String,
        verb: &'static str,
        hint: String,
    },
    /// A symbolic link on the way leads out of the granted directory.
    LinkOutside {
        path: String,
        link: String,
        hint: String,
    },
    /// A symbolic link on the way leads to something granted: by another name than the rules would judge.
    Link {
        path: String,
        link: String,
        target: String,
        /// The path without the link.
        instead: String,
    },
    NotFound {
        path: String,
        hint: String,
    },
    NotAFile {
        path: String,
    },
    /// A pipe, a socket, a device: it may never end, or never answer.
    NotRegular {
        path: String,
    },
    NotADirectory {
        path: String,
    },
    Binary {
        path: String,
    },
    TooLarge {
        path: String,
        bytes: u64,
        most: u64,
    },
    /// The file ends before the first line that was asked for.
    NoSuchLine {
        path: String,
        lines: u64,
    },
    /// An edit that does not fit: nothing was changed.
    Edit {
        path: String,
        message: String,
    },
    BadPattern {
        message: String,
    },
    /// What the operating system said.
    Io {
        path: String,
        verb: &'static str,
        message: String,
    },
    Cancelled,
}

impl Problem {
    /// The stable code; it begins with the plugin's name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Outside { .. } | Self::LinkOutside { .. } => "files-outside",
            Self::Link { .. } => "files-link",
            Self::NotGranted { .. } => "files-not-granted",
            Self::NotFound { .. } => "files-not-found",
            Self::NotAFile { .. } | Self::NotRegular { .. } | Self::NotADirectory { .. } => "files-wrong-kind",
            Self::Binary { .. } => "files-binary",
            Self::TooLarge { .. } => "files-too-large",
            Self::NoSuchLine { .. } => "files-no-such-line",
            Self::Edit { .. } => "files-edit",
            Self::BadPattern { .. } => "files-bad-pattern",
            Self::Io { .. } => "files-io",
            Self::Cancelled => "files-cancelled",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outside { path, hint } => {
                write!(f, "`{path}` is refused: paths are relative to the workspace and stay in it; {hint}")
            }
            Self::NotGranted { path, verb, hint } => write!(f, "`{path}` may not be {verb}: {hint}"),
            Self::LinkOutside { path, link, hint } if path == link => {
                write!(f, "`{path}` is refused: it is a symbolic link that leads out of what is granted; {hint}")
            }
            Self::LinkOutside { path, link, hint } => {
                write!(f, "`{path}` is refused: `{link}` is a symbolic link that leads out of what is granted; {hint}")
            }
            Self::Link { path, link, target, instead } => {
                let link = if path == link { "it".to_owned() } else { format!("`{link}`") };
                write!(
                    f,
                    "`{path}` is refused: {link} is a symbolic link to `{target}`; name the path itself, `{instead}`, so that the rules see what is meant"
                )
            }
            Self::NotFound { path, hint } => write!(f, "`{path}` does not exist{hint}"),
            Self::NotRegular { path } => write!(f, "`{path}` is no regular file but a pipe, a socket or a device"),
            Self::NotAFile { path } => write!(f, "`{path}` is a directory, not a file; use `list`"),
            Self::NotADirectory { path } => write!(f, "`{path}` is not a directory"),
            Self::Binary { path } => write!(f, "`{path}` is not a text file (it is not UTF-8 text)"),
            Self::TooLarge { path, bytes, most } => {
                write!(
                    f,
                    "`{path}` is too large: {bytes} bytes, at most {most} are read at once; use `start-line` and `lines`, or `grep`"
                )
            }
            Self::NoSuchLine { path, lines: 1 } => write!(f, "`{path}` has only 1 line"),
            Self::NoSuchLine { path, lines } => write!(f, "`{path}` has only {lines} lines"),
            Self::Edit { path, message } => write!(f, "nothing was changed in `{path}`: {message}"),
            Self::BadPattern { message } => f.write_str(message),
            Self::Io { path, verb, message } => write!(f, "`{path}` could not be {verb}: {message}"),
            Self::Cancelled => f.write_str("stopped, since the turn was aborted"),
        }
    }
}
