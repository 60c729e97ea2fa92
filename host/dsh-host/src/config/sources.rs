//! Where a plugin's component is: a path, or the name of a plugin that is shipped beside the executable.

use std::fs::{FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use dsh_seam::PluginName;
use dsh_wasm::{MAX_COMPONENT_BYTES, Refusal};
use rustix::fs::OFlags;

use crate::compose;
use crate::env::Environment;
use crate::exit::Stop;
use crate::names;

const EXTENSION: &str = "wasm";

/// Whether a reference is a path; otherwise it is the name of a shipped plugin.
pub fn is_path(reference: &str) -> bool {
    reference.contains('/') || reference.ends_with(".wasm")
}

/// The name that a reference gives: the file's stem with `_` as `-`.
pub fn name_of(reference: &str) -> Result<PluginName, Stop> {
    let stem = if is_path(reference) {
        Path::new(reference).file_stem().unwrap_or_default().to_string_lossy()
    } else {
        reference.into()
    };
    PluginName::new(stem.replace('_', "-"))
        .map_err(|error| Stop::usage(error.to_string()).hint(format!("give it a name: `--plugin NAME={reference}`")))
}

/// Where a reference stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Behind `--plugin`.
    Option,
    /// Behind `source` in a `dsh.toml`.
    File,
    /// An argument of its own.
    Argument,
}

impl Place {
    /// How it is written there.
    fn written(self, reference: &str) -> String {
        match self {
            Self::Option => format!("--plugin {reference}"),
            Self::File => format!("source = \"{reference}\""),
            Self::Argument => reference.to_owned(),
        }
    }
}

/// The file behind a reference; a relative path is relative to `base`.
pub fn locate(reference: &str, place: Place, base: &Path, environment: &Environment) -> Result<PathBuf, Stop> {
    if is_path(reference) {
        let path: PathBuf = base.join(reference).components().collect();
        return match std::fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                Err(Stop::usage(format!("`{reference}` is a folder, not a component")))
            }
            Ok(_) => Ok(path),
            Err(error) => Err(Stop::io(Path::new(reference), &error).hint(missing_hint(reference, place, environment))),
        };
    }
    let file = format!("{reference}.{EXTENSION}");
    let found = folders(environment).into_iter().map(|folder| folder.join(&file)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let shipped = shipped(environment);
        let hint = names::hint(reference, shipped.iter().map(String::as_str));
        Stop::usage(format!("there is no shipped plugin `{reference}`"))
            .hint(format!("{hint} (a path has a `/` or ends in `.wasm`)"))
    })
}

/// The file behind an argument that is a file before anything else: what is no path and no shipped plugin, and lies in the working
/// directory, is that file.
pub fn locate_file(argument: &str, environment: &Environment) -> Result<PathBuf, Stop> {
    let found = locate(argument, Place::Argument, &environment.working_directory, environment);
    let path = environment.path(argument);
    if found.is_err() && !is_path(argument) && path.is_file() { Ok(path) } else { found }
}

/// Why a file's bytes are not there.
#[derive(Debug)]
pub enum Unread {
    /// The system refused.
    Io(io::Error),
    /// It is larger than may be.
    TooLarge {
        /// Its size, as far as it was looked at.
        bytes: usize,
        /// The most that may be.
        most: usize,
    },
    /// It is no file, or no component.
    Refused(Refusal),
}

impl Unread {
    /// As a stop: `what` is how a message calls the file, `path` where it is.
    pub fn stop(&self, what: &str, path: &Path) -> Stop {
        match self {
            Self::Io(error) => Stop::io(path, error),
            Self::TooLarge { bytes, most } => {
                Stop::usage(format!("{what}: it has {bytes} bytes; at most {most} are read of such a file"))
            }
            Self::Refused(refusal) => compose::refused(what, &refusal.clone().into()),
        }
    }
}

/// Reads a component.
pub fn read(path: &Path) -> Result<Vec<u8>, Unread> {
    read_at_most(path, MAX_COMPONENT_BYTES).map_err(|unread| match unread {
        Unread::TooLarge { bytes, .. } => Unread::Refused(Refusal::TooLarge { bytes }),
        other => other,
    })
}

/// Reads a file that may be anything: a pipe is not waited for, and no more than `most` bytes are taken.
pub fn read_at_most(path: &Path, most: usize) -> Result<Vec<u8>, Unread> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("invariant: a flag of `open` is an `int`");
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(Unread::Io)?;
    let metadata = file.metadata().map_err(Unread::Io)?;
    if let Some(what) = no_file(metadata.file_type()) {
        return Err(Unread::Refused(Refusal::NotAFile { what }));
    }
    let too_large = |bytes: usize| Err(Unread::TooLarge { bytes, most });
    let length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    if length > most {
        return too_large(length);
    }
    let mut bytes = Vec::with_capacity(length);
    // It may grow while it is read.
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(Unread::Io)?;
    if bytes.len() > most { too_large(bytes.len()) } else { Ok(bytes) }
}

/// What something is when it is no file.
fn no_file(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// A file that is not there may be meant as the shipped plugin of that name.
fn missing_hint(reference: &str, place: Place, environment: &Environment) -> String {
    let stem = Path::new(reference).file_stem().unwrap_or_default().to_string_lossy().replace('_', "-");
    if shipped(environment).contains(&stem) {
        format!("there is a shipped plugin: `{}`", place.written(&stem))
    } else {
        String::new()
    }
}

/// The names of the shipped plugins, sorted.
pub fn shipped(environment: &Environment) -> Vec<String> {
    let mut names: Vec<String> = folders(environment)
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten())
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// `plugins` beside the executable, and beside its folder.
fn folders(environment: &Environment) -> Vec<PathBuf> {
    let folder = environment.executable.as_deref().and_then(Path::parent);
    let beside = [folder, folder.and_then(Path::parent)];
    beside.into_iter().flatten().map(|folder| folder.join("plugins")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_gives_its_name() {
        let check = |reference: &str, expect: Option<&str>| {
            assert_eq!(name_of(reference).ok().as_ref().map(PluginName::as_str), expect, "{reference}");
        };
        check("compaction", Some("compaction"));
        check("plugins/plan_mode.wasm", Some("plan-mode"));
        check("./my-tool.wasm", Some("my-tool"));
        check("Upper.wasm", None);
        check("failed.wasm", None);
        check("a/2x.wasm", None);
    }

    #[test]
    fn a_pipe_is_not_waited_for_and_no_more_is_read_than_may_be() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        let file = folder.path().join("file");
        std::fs::write(&file, "12345").expect("a file");
        let check = |path: &Path, most: usize, expect: &str| {
            let found = match read_at_most(path, most) {
                Ok(bytes) => String::from_utf8(bytes).expect("UTF-8"),
                Err(unread) => unread.stop("it", path).message,
            };
            assert_eq!(found, expect, "{}", path.display());
        };
        check(&pipe, 10, "it: it is a pipe, not a file");
        check(folder.path(), 10, "it: it is a folder, not a file");
        check(&file, 5, "12345");
        check(&file, 4, "it: it has 5 bytes; at most 4 are read of such a file");
    }

    #[test]
    fn what_is_not_there_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("plugins")).expect("a folder");
        std::fs::write(folder.path().join("plugins/compaction.wasm"), "x").expect("a file");
        let mut environment = Environment::of(&[], folder.path());
        environment.executable = Some(folder.path().join("release/dsh-host"));
        let check = |reference: &str, expect: &str| {
            let found = locate(reference, Place::Option, folder.path(), &environment);
            let message = found.map_or_else(|stop| stop.to_string(), |_| "found".into());
            assert_eq!(message, expect, "{reference}");
        };
        check("compaction", "found");
        check("plugins/compaction.wasm", "found");
        check(
            "compactoin",
            "error: there is no shipped plugin `compactoin`\nhint: did you mean `compaction`? (a path has a `/` or ends in `.wasm`)",
        );
        check(
            "compaction.wasm",
            "error: `compaction.wasm`: no such file or directory (os error 2)\nhint: there is a shipped plugin: `--plugin compaction`",
        );
        check("./plugins/", "error: `./plugins/` is a folder, not a component");
    }
}
