//! What is in a directory, read in pieces as the guest asks for it: a directory has no bound, and what the host keeps of it has.

use std::collections::VecDeque;
use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, openat, statat};
use rustix::io::Errno;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

use super::slots::Slot;

/// Entries that are read at once. A name has at most 255 bytes, so this is at most 20 KiB, beside the kernel's piece of about as much.
const PIECE: usize = 64;

/// What is known of one entry: a name that is no UTF-8 is an error, and those behind it are not lost.
type Entry = Result<DirectoryEntry, ErrorCode>;

/// A directory on its way to a guest.
pub(crate) struct Listing {
    /// None when it is at its end.
    rest: Option<rustix::fs::Dir>,
    ready: VecDeque<Entry>,
    /// It is an open file.
    _slot: Slot,
}

impl Listing {
    /// Begins at the first entry; `dir` itself is not moved.
    pub(crate) fn open(dir: &File, slot: Slot) -> io::Result<Self> {
        let own = openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { rest: Some(rustix::fs::Dir::new(own)?), ready: VecDeque::new(), _slot: slot })
    }

    /// The next entry that was read already.
    pub(crate) fn next(&mut self) -> Option<Entry> {
        self.ready.pop_front()
    }

    /// Takes the rest to read of it elsewhere; none at the end.
    pub(crate) fn take_rest(&mut self) -> Option<rustix::fs::Dir> {
        self.rest.take()
    }

    /// Puts back what was read, and the rest.
    pub(crate) fn put(&mut self, piece: Piece) {
        self.rest = piece.rest;
        self.ready = piece.entries;
    }
}

/// Some entries, and the rest if there is one.
pub(crate) struct Piece {
    entries: VecDeque<Entry>,
    rest: Option<rustix::fs::Dir>,
}

impl Piece {
    /// Reads on; this asks the disk.
    pub(crate) fn read(mut dir: rustix::fs::Dir) -> Self {
        let mut entries = VecDeque::new();
        while entries.len() < PIECE {
            match dir.read() {
                Some(Ok(entry)) => entries.extend(entry_of(&dir, &entry)),
                Some(Err(errno)) => {
                    entries.push_back(Err(io::Error::from(errno).into()));
                    return Self { entries, rest: None };
                }
                None => return Self { entries, rest: None },
            }
        }
        Self { entries, rest: Some(dir) }
    }
}

/// None for the directory itself, the one around it, and what was removed meanwhile.
fn entry_of(dir: &rustix::fs::Dir, entry: &rustix::fs::DirEntry) -> Option<Entry> {
    let name = entry.file_name();
    if matches!(name.to_bytes(), b"." | b"..") {
        return None;
    }
    let kind = match entry.file_type() {
        // Some file systems do not say.
        FileType::Unknown => match dir.fd().and_then(|fd| statat(fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode as RawMode),
            Err(Errno::NOENT) => return None,
            Err(errno) => return Some(Err(io::Error::from(errno).into())),
        },
        kind => kind,
    };
    Some(match name.to_str() {
        Ok(name) => Ok(DirectoryEntry { type_: type_of(kind), name: name.to_owned() }),
        Err(_) => Err(ErrorCode::IllegalByteSequence),
    })
}

fn type_of(kind: FileType) -> DescriptorType {
    match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Unknown => DescriptorType::Unknown,
    }
}
