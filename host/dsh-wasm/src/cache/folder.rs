//! The directory of a cache, and who may have written what is in it.
//!
//! Machine code that is loaded is run, so every file is opened without following links and looked at before it is read: it has to be
//! a regular file with one name, and nobody but this user or root may have been able to write it. Root is trusted because root can
//! change this program too; so an image may carry a cache that was filled when it was built. Everything happens through the opened
//! directory: what is renamed or replaced meanwhile is not followed.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::CacheError;

/// What others may do with a file or a directory by these bits of its mode: write it.
const OTHERS_WRITE: RawMode = 0o022;

/// Why something is not used.
pub(super) const WRITABLE: &str = "other users can write to it";
/// Why something is not used.
pub(super) const OF_OTHERS: &str = "it belongs to another user";

/// Who may read what is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Readers {
    /// This user.
    #[default]
    User,
    /// Everybody: for a cache that is filled for another user, as in an image.
    Everybody,
}

/// An opened directory.
#[derive(Debug)]
pub(super) struct Folder {
    pub path: PathBuf,
    fd: OwnedFd,
    readers: Readers,
}

/// A file of it, opened and looked at.
pub(super) struct Checked {
    file: File,
    pub size: u64,
}

/// Why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Distrust(pub &'static str);

impl Folder {
    /// Opens it, making it when it is missing.
    pub fn make(path: &Path, readers: Readers) -> Result<Self, CacheError> {
        let mode = match readers {
            Readers::User => 0o700,
            Readers::Everybody => 0o755,
        };
        make_directory(path, mode).map_err(|source| CacheError::Io { path: path.to_owned(), source })?;
        Self::open(path, readers)
    }

    /// Opens one that is there.
    pub fn open(path: &Path, readers: Readers) -> Result<Self, CacheError> {
        let io = |source: rustix::io::Errno| CacheError::Io { path: path.to_owned(), source: source.into() };
        let refuse = |why| Err(CacheError::Unsafe { path: path.to_owned(), why });
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::LOOP) => return refuse("it is a symbolic link"),
            Err(rustix::io::Errno::NOTDIR) if path.is_symlink() => return refuse("it is a symbolic link"),
            Err(rustix::io::Errno::NOTDIR) => return refuse("it is not a directory"),
            Err(error) => return Err(io(error)),
        };
        match others_wrote(&rustix::fs::fstat(&fd).map_err(io)?) {
            Some(why) => refuse(why),
            None => Ok(Self { path: path.to_owned(), fd, readers }),
        }
    }

    /// Opens a file; none: it is not there.
    pub fn look_at(&self, name: &str) -> Result<Option<Checked>, Distrust> {
        // Without waiting: a pipe in place of a file would have no end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP) => return Err(Distrust("it is a symbolic link")),
            Err(_) => return Err(Distrust("it cannot be opened")),
        };
        let Ok(stat) = rustix::fs::fstat(&fd) else { return Err(Distrust("it cannot be looked at")) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Distrust("it is not a file"));
        }
        if let Some(why) = others_wrote(&stat) {
            return Err(Distrust(why));
        }
        if stat.st_nlink != 1 {
            return Err(Distrust("it has a second name (a hard link)"));
        }
        Ok(Some(Checked { file: fd.into(), size: u64::try_from(stat.st_size).unwrap_or(u64::MAX) }))
    }

    /// Writes a file so that it is there whole or not at all.
    pub fn write(&self, name: &str, temporary: &str, parts: &[&[u8]]) -> io::Result<()> {
        let written = self.write_temporary(temporary, parts);
        let written = written.and_then(|()| Ok(rustix::fs::renameat(&self.fd, temporary, &self.fd, name)?));
        if written.is_err() {
            let _ = self.remove(temporary);
        }
        written
    }

    fn write_temporary(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))?);
        parts.iter().try_for_each(|part| file.write_all(part))?;
        if self.readers == Readers::Everybody {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        }
        // Without this a crash could leave a renamed but empty file; it would be found and compiled again, which is slow.
        file.sync_data()
    }

    /// Opens a file to be locked, making it when it is missing.
    pub fn lockable(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))?)
    }

    /// Removes whatever has this name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Err(rustix::io::Errno::ISDIR) => Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)?),
            done => Ok(done?),
        }
    }

    /// The names in it, with their size and when they were last used. What goes meanwhile is left out.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
            let used = SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(u64::from(stat.st_mtime_nsec as u32));
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            found.push(Listed { name: name.to_owned(), bytes, used });
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

/// A name in a directory.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub name: String,
    pub bytes: u64,
    pub used: SystemTime,
}

impl Checked {
    /// Its first bytes, at most `most`.
    pub fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&self.file).take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Notes that it was used, unless that was noted within `precision`.
    pub fn mark_used(&self, precision: Duration) {
        let old =
            self.file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(|used| is_older(used, precision));
        if old {
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            // What may only be read stays as it is.
            let _ = rustix::fs::futimens(&self.file, &Timestamps { last_access: omit, last_modification: now });
        }
    }
}

/// Whether `time` is longer ago than `age`.
pub(super) fn is_older(time: SystemTime, age: Duration) -> bool {
    time.elapsed().is_ok_and(|elapsed| elapsed > age)
}

/// Why somebody else than this user and root may have written it.
fn others_wrote(stat: &Stat) -> Option<&'static str> {
    if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
        return Some(OF_OTHERS);
    }
    (stat.st_mode & OTHERS_WRITE != 0).then_some(WRITABLE)
}

fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
