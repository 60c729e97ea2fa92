//! The one writer of a log in a file.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, IntoInnerError, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::event::Entry;
use dsh_seam::session::SessionWriter;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::buffer::{LineBuffer, LineIndex, Part, Reading};
use super::{lines, may_block};

/// Only its owner reads a log: it holds what was said.
const LOG_MODE: u32 = 0o600;
/// The same for the folder of logs.
const DIR_MODE: u32 = 0o700;
/// How often a log may be replaced between opening and locking it before we give up; once is already rare.
const LOCK_TRIES: u32 = 8;
/// How much of a copied log is written at once.
const COPY_BYTES: usize = 256 * 1024;

/// A log that is open for writing.
pub(super) struct FileWriter {
    path: PathBuf,
    state: State,
}

enum State {
    /// Nothing is on disk yet; `replaces` is the empty log that is there, locked.
    Pending { buffer: LineBuffer, replaces: Option<File> },
    /// On disk, locked. `dir` is set until the folder was made durable too.
    Open { file: Arc<File>, index: LineIndex, dir: Option<PathBuf> },
    /// A failed write could not be cut back: what is at the end of the file is not known.
    Broken,
}

impl FileWriter {
    /// A log that is made at the first append, with all that `buffer` holds.
    pub(super) fn pending(path: PathBuf, buffer: LineBuffer, replaces: Option<File>) -> Self {
        Self { path, state: State::Pending { buffer, replaces } }
    }

    /// A log that is there, locked as `file`. Whoever made it may have been killed before its folder was durable.
    pub(super) fn open(path: PathBuf, file: File, index: LineIndex) -> Self {
        let dir = Some(folder(&path).to_path_buf());
        Self { path, state: State::Open { file: Arc::new(file), index, dir } }
    }

    fn named(&self, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    fn try_append(&mut self, entry: &Entry) -> io::Result<()> {
        match &mut self.state {
            State::Pending { buffer, replaces } => {
                let line = lines::line_of(entry, buffer.entries())?;
                // What is copied may be long.
                let (file, mut index) = may_block(|| publish(&self.path, buffer, &line, replaces.is_some()))?;
                index.push(line.len() as u64);
                let dir = Some(folder(&self.path).to_path_buf());
                self.state = State::Open { file: Arc::new(file), index, dir };
                Ok(())
            }
            State::Open { file, index, .. } => {
                let line = lines::line_of(entry, index.entries())?;
                if let Err(error) = file.write_all_at(&line, index.end()) {
                    if file.set_len(index.end()).is_err() {
                        self.state = State::Broken;
                    }
                    return Err(error);
                }
                index.push(line.len() as u64);
                Ok(())
            }
            State::Broken => Err(io::Error::other("an earlier write failed half way and could not be cut back")),
        }
    }
}

#[async_trait]
impl SessionWriter for FileWriter {
    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        self.try_append(entry).map_err(|error| self.named(error))
    }

    async fn flush(&mut self) -> io::Result<()> {
        let State::Open { file, index, dir } = &self.state else { return Ok(()) };
        let (path, file, end, dir) = (self.path.clone(), file.clone(), index.end(), dir.clone());
        let flushed = tokio::task::spawn_blocking(move || {
            file.sync_data()?;
            still_there(&path, &file, end)?;
            // The name of a new log is durable only with its folder.
            dir.map_or(Ok(()), |dir| File::open(dir)?.sync_all())
        });
        flushed.await.map_err(io::Error::other).flatten().map_err(|error| self.named(error))?;
        if let State::Open { dir, .. } = &mut self.state {
            *dir = None;
        }
        Ok(())
    }

    fn read(&mut self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
        match &self.state {
            State::Pending { buffer, .. } => buffer.read(start, limit, max_bytes),
            State::Open { file, index, .. } => {
                let Some((offset, skip)) = index.find(start) else { return Ok(Vec::new()) };
                let mut reading = Reading::new(limit, max_bytes);
                let part = BufReader::new(Part::new(file, offset, index.end()));
                reading.take(part, skip).map_err(|error| self.named(error))?;
                Ok(reading.entries)
            }
            State::Broken => Ok(Vec::new()),
        }
    }
}

/// Where the log at `path` is.
fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Fails when what was written would not be found again: the log at `path` is another file than `file`, or not `bytes` long.
fn still_there(path: &Path, file: &File, bytes: u64) -> io::Result<()> {
    let mine = file.metadata()?;
    let problem = match fs::metadata(path) {
        Ok(there) if (there.dev(), there.ino()) != (mine.dev(), mine.ino()) => "another file took its place".to_owned(),
        Ok(there) if there.len() != bytes => {
            format!("somebody else changed it: it has {} bytes where {bytes} were written", there.len())
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it was removed or renamed".to_owned(),
        Err(error) => return Err(error),
    };
    Err(io::Error::other(format!("while it was open, {problem}")))
}

/// Makes the log at `path` with all of `buffer` and `line`, locked before it can be seen; the index of what was in the buffer. `replace`:
/// an empty log of ours is there.
fn publish(path: &Path, buffer: &LineBuffer, line: &[u8], replace: bool) -> io::Result<(File, LineIndex)> {
    let dir = folder(path);
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = dir.join(format!(".{name}.{}.tmp", ulid::Ulid::generate()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(LOG_MODE).open(&temporary)?;
    let made = file.try_lock().map_err(io::Error::from).and_then(|()| fill(&file, buffer, line)).and_then(|index| {
        match replace {
            true => fs::rename(&temporary, path)?,
            false => rename_new(&temporary, path)?,
        }
        Ok(index)
    });
    match made {
        Ok(index) => Ok((file, index)),
        Err(error) => {
            // The error that matters is the first one; a name that stays behind is never taken for a log.
            let _ = fs::remove_file(&temporary);
            Err(error)
        }
    }
}

fn fill(file: &File, buffer: &LineBuffer, line: &[u8]) -> io::Result<LineIndex> {
    let mut out = BufWriter::with_capacity(COPY_BYTES, file);
    let index = buffer.write_to(&mut out)?;
    out.write_all(line)?;
    out.flush()?;
    Ok(index)
}

/// Renames, unless the new name is taken.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that cannot do it in one step.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

/// Opens and locks the log at `path`; none when another writer has it.
pub(super) fn lock(path: &Path) -> io::Result<Option<File>> {
    for _ in 0..LOCK_TRIES {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // An empty log may have been replaced in between; then the lock is on a file that is no longer there.
        let (mine, there) = (file.metadata()?, fs::metadata(path)?);
        if (mine.dev(), mine.ino()) == (there.dev(), there.ino()) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Moves the torn end of the log to the file beside it, which is returned. It is cut off only when it is durable there.
pub(super) fn set_torn_aside(path: &Path, file: &File, torn: Range<u64>) -> io::Result<PathBuf> {
    let aside = path.with_extension("torn");
    let whole = torn.start;
    let moved = || {
        let kept = OpenOptions::new().append(true).create(true).mode(LOG_MODE).open(&aside)?;
        let before = kept.metadata()?.len();
        let mut out = BufWriter::with_capacity(COPY_BYTES, &kept);
        let copied = io::copy(&mut Part::new(file, torn.start, torn.end), &mut out)
            .and_then(|_| out.write_all(b"\n"))
            .and_then(|()| out.into_inner().map_err(IntoInnerError::into_error));
        if let Err(error) = copied {
            // The error that matters is the first one; the torn line is whole in the log still.
            let _ = kept.set_len(before);
            return Err(error);
        }
        kept.sync_data()?;
        File::open(folder(path))?.sync_all()?;
        file.set_len(whole)
    };
    match moved() {
        Ok(()) => Ok(aside),
        Err(error) => {
            let problem = format!("its last line is not whole and could not be moved to {}: {error}", aside.display());
            Err(io::Error::new(error.kind(), problem))
        }
    }
}
