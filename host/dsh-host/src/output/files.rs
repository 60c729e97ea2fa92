//! Files that a run writes anew: `--receipts`, `--trace-plugins`, `--log-requests`, `--record`.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::exit::Stop;

/// Opens `path` and empties it. It may hold a conversation, so a new one is the user's alone; and two that write one file would leave a
/// mixture, so it is locked while it is open.
///
/// # Errors
/// When it cannot be written, somebody writes it already, or it is a pipe that nobody reads.
pub fn replaced(path: &Path) -> Result<File, Stop> {
    // Without the flag this would wait for a pipe's reader, perhaps for ever.
    let waits_not = OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(waits_not.bits().cast_signed());
    let file = options.open(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NXIO) => {
            Stop::usage(format!("`{}` is a pipe that nobody reads", path.display())).hint("start its reader first")
        }
        _ => Stop::io(path, &error),
    })?;
    claim(&file).map_err(|error| Stop::io(path, &error))?.then_some(file).ok_or_else(|| {
        let message = format!("`{}` is being written already, by another option or another run", path.display());
        Stop::usage(message).hint("name another file")
    })
}

/// Makes `file` ours; false when it is somebody else's. Only a file on disk can be: pipes and devices take what comes.
fn claim(file: &File) -> std::io::Result<bool> {
    fcntl_setfl(file, fcntl_getfl(file)? - OFlags::NONBLOCK)?;
    if file.metadata()?.is_file() {
        // A file system without locks is no reason not to write.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Ok(false);
        }
        file.set_len(0)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn message(path: &Path) -> String {
        replaced(path).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_file_is_emptied_and_has_one_writer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("receipts.jsonl");
        std::fs::write(&path, "of an earlier run").expect("it can be written");
        let first = replaced(&path).expect("it can be written");
        (&first).write_all(b"ours").expect("it can be written");
        let shown = path.display();
        let expect = format!(
            "error: `{shown}` is being written already, by another option or another run\nhint: name another file"
        );
        assert_eq!(message(&path), expect);
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "ours");
        drop(first);
        drop(replaced(&path).expect("it is free again"));
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "");
    }

    #[test]
    fn a_pipe_needs_its_reader() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("a pipe");
        let expect = format!("error: `{}` is a pipe that nobody reads\nhint: start its reader first", path.display());
        assert_eq!(message(&path), expect);
    }

    #[test]
    fn a_device_takes_what_comes() {
        let null = Path::new("/dev/null");
        let both = (replaced(null), replaced(null));
        assert!(both.0.is_ok() && both.1.is_ok());
    }
}
