//! Where a path leads, found once and then held: the directory that it ends in, by its descriptor, and one name in there.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;
use wasmtime_wasi::OpenMode;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags};
use wasmtime_wasi::p2::{FsError, FsResult};

use super::fs::{MAX_PATH_BYTES, join, portable};
use crate::words::Access;

/// The file system of processes shows what its owner may see, environments with keys in them among it. It is in no workspace but `/`.
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

/// Runs what asks the disk: it may take its time, and the thread that serves tasks may not.
pub(crate) async fn blocking<R: Send + 'static>(
    ask: impl FnOnce() -> std::io::Result<R> + Send + 'static,
) -> FsResult<R> {
    match tokio::task::spawn_blocking(ask).await {
        Ok(answer) => answer.map_err(FsError::from),
        Err(_) => Err(ErrorCode::Io.into()),
    }
}

/// A place below an open directory.
pub(crate) struct Place {
    /// The directory that it is in.
    pub parent: File,
    /// Its name in there; `.` for the open directory itself.
    pub name: String,
    /// Where it is, relative to the workspace and without links.
    pub real: String,
}

/// What was opened.
pub(crate) enum Found {
    Dir(File),
    File(File),
}

impl Place {
    /// Follows `path` from `dir`, which is at `base`. Its last part need not be there; a link there is followed when `follow` is set, or
    /// a `/` stands behind it.
    pub(crate) fn find(dir: &File, base: &str, path: &str, follow: bool) -> std::io::Result<Self> {
        let dir = Dir::from_std_file(dir.try_clone()?);
        if path.is_empty() {
            return Err(Errno::NOENT.into());
        }
        let trimmed = path.trim_end_matches('/');
        let must_be_dir = trimmed.len() < path.len();
        let real = lead(&dir, if trimmed.is_empty() { path } else { trimmed }, follow || must_be_dir)?;
        let whole = join(base, &real);
        // A guest can go deeper and deeper from one open directory to the next, and the way there is kept with each.
        if whole.len() > MAX_PATH_BYTES {
            return Err(Errno::NAMETOOLONG.into());
        }
        let (parent, name) = real.rsplit_once('/').unwrap_or((".", &real));
        let parent = walk(&dir, parent)?;
        if must_be_dir && kind(parent.as_fd(), name).is_some_and(|kind| kind != FileType::Directory) {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Self { parent, name: name.to_owned(), real: whole })
    }

    /// Where it leads, if it is a link.
    pub(crate) fn link_target(&self) -> Option<String> {
        let target = readlinkat(&self.parent, &self.name, Vec::new()).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    /// Opens it, without following a link that stands there now. Only files and directories are opened: a pipe would wait for its other
    /// end, and a device is not what a directory was granted for.
    pub(crate) fn open(&self, wish: Wish) -> std::io::Result<Found> {
        let ordinary = |kind| matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink);
        if kind(self.parent.as_fd(), &self.name).is_some_and(|kind| !ordinary(kind)) {
            return Err(Errno::PERM.into());
        }
        // What was swapped in since does not wait either.
        let flags = wish.flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = File::from(openat(&self.parent, &self.name, flags, Mode::from_raw_mode(0o666))?);
        if fstatfs(&opened)?.f_type as i64 == PROC_SUPER_MAGIC {
            return Err(Errno::PERM.into());
        }
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::Directory => Ok(Found::Dir(opened)),
            FileType::RegularFile => Ok(Found::File(opened)),
            _ => Err(Errno::PERM.into()),
        }
    }
}

fn kind(parent: BorrowedFd<'_>, name: &str) -> Option<FileType> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// `path` relative to `dir` and without links.
fn lead(dir: &Dir, path: &str, follow: bool) -> std::io::Result<String> {
    let is_link = dir.symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    if follow || !is_link {
        match dir.canonicalize(path) {
            Ok(real) => return Ok(portable(&real)),
            // A link to nothing would be created where it points to, which cannot be judged.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound || is_link => return Err(error),
            Err(_) => {}
        }
    }
    let path = Path::new(path);
    let (Some(name), parent) = (path.file_name(), path.parent().filter(|parent| !parent.as_os_str().is_empty())) else {
        return Err(Errno::PERM.into());
    };
    let parent = match parent {
        Some(parent) => portable(&dir.canonicalize(parent)?),
        None => ".".into(),
    };
    Ok(join(&parent, &name.to_string_lossy()))
}

/// The directory `path` below `dir`, step by step: a link on the way is an error.
fn walk(dir: &Dir, path: &str) -> std::io::Result<File> {
    let mut here = dir.as_fd().try_clone_to_owned()?;
    for part in path.split('/').filter(|part| *part != ".") {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next: OwnedFd = openat(&here, part, flags, Mode::empty())?;
        here = next;
    }
    Ok(File::from(here))
}

/// Whether a link at `place` to `target` would lead to something below the open directory `base`, from which the place was found.
pub(crate) fn stays_within(place: &Place, base: &str, target: &str) -> bool {
    let below = if base == "." { place.real.as_str() } else { place.real.strip_prefix(base).unwrap_or("") };
    let mut depth = below.split('/').filter(|part| !part.is_empty() && *part != ".").count().saturating_sub(1);
    if target.starts_with('/') {
        return false;
    }
    let mut named = false;
    for part in target.split('/') {
        match part {
            "" | "." => {}
            // Behind a name, which may be a link itself, nobody knows where up is.
            ".." if named || depth == 0 => return false,
            ".." => depth -= 1,
            _ => named = true,
        }
    }
    true
}

/// How something is to be opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    flags: OFlags,
    read: bool,
    write: bool,
}

impl Wish {
    /// What WASI's flags mean. `MUTATE_DIRECTORY` is left out: libraries ask for it on every directory, and it is a wish, not a write.
    pub(crate) fn new(open: OpenFlags, flags: DescriptorFlags) -> FsResult<Self> {
        let sync = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if flags.intersects(sync) {
            return Err(ErrorCode::Unsupported.into());
        }
        let changes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        if open.contains(OpenFlags::DIRECTORY) && open.intersects(changes) {
            return Err(ErrorCode::Invalid.into());
        }
        let write = flags.contains(DescriptorFlags::WRITE) || open.intersects(changes);
        let read = flags.contains(DescriptorFlags::READ) || !flags.contains(DescriptorFlags::WRITE);
        let flag = |wanted, flag| if open.contains(wanted) { flag } else { OFlags::empty() };
        let access = match (read, write) {
            (true, true) => OFlags::RDWR,
            (false, _) => OFlags::WRONLY,
            (true, false) => OFlags::RDONLY,
        };
        let flags = access
            | flag(OpenFlags::CREATE, OFlags::CREATE)
            | flag(OpenFlags::EXCLUSIVE, OFlags::EXCL)
            | flag(OpenFlags::TRUNCATE, OFlags::TRUNC)
            | flag(OpenFlags::DIRECTORY, OFlags::DIRECTORY);
        Ok(Self { flags, read, write })
    }

    /// What it needs.
    pub(crate) fn access(self) -> Access {
        if self.write { Access::Write } else { Access::Read }
    }

    /// As wasmtime keeps it with a descriptor.
    pub(crate) fn mode(self) -> OpenMode {
        let bit = |set, mode| if set { mode } else { OpenMode::empty() };
        bit(self.read, OpenMode::READ) | bit(self.write, OpenMode::WRITE)
    }
}
