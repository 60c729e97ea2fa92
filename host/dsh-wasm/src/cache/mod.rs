//! The disk cache of compiled components.
//!
//! An entry's name is the hash of the component and of everything that decides what its machine code looks like; the entry is a hash
//! over its name and all that is in it, a description, and the code (`entry`). The code is loaded from the very bytes whose hash was
//! checked, out of a file that nobody else could write (`folder`); precompiled files are never taken from anybody. Several processes
//! may share a cache: entries appear whole, one process compiles a component while the others wait for it, and an entry that is
//! removed while it is read is read to its end.

mod entry;
mod folder;
mod view;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

pub(crate) use entry::{Key, engine_tag};
pub use folder::Readers;
pub use view::{CacheEntry, CacheView};

use crate::compile::{MAX_CODE_BYTES, Target, Wanted};
use crate::limits::MIB;
use entry::{About, EXTENSION, HEAD_BYTES};
use folder::{Distrust, Folder, Listed, is_older};

/// How large a cache may become, in MiB, unless somebody says otherwise: a dozen of the largest components (an interpreter becomes
/// 50 to 100 MiB of machine code), or a thousand of the usual ones.
pub const DEFAULT_CACHE_MAX_MIB: u32 = 1_024;
/// How exactly the last use of an entry is known: more often than once a minute nobody needs to write it down.
const USE_PRECISION: Duration = Duration::from_secs(60);
/// When a half-written entry, or a lock, is taken to be left by a process that died.
const LEFT_BEHIND: Duration = Duration::from_secs(60 * 60);
/// How often it is looked whether another process is done with compiling what is wanted here too.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
const TEMPORARY: &str = ".tmp";
const LOCK: &str = ".lock";

/// Why the cache cannot be used: each run compiles then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The directory cannot be made or opened.
    #[error("the cache directory `{path}` cannot be used: {source}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else could write machine code into it.
    #[error("the cache directory `{path}` is not used, because {why}; {}", remedy(why, path))]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// What to do about a directory that is not used.
fn remedy(why: &str, path: &Path) -> String {
    match why {
        folder::WRITABLE => format!("make it yours alone: `chmod 700 {}`", path.display()),
        folder::OF_OTHERS => "it has to be yours, or root's".into(),
        _ => "a directory has to stand there".into(),
    }
}

/// A directory of compiled components.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: Folder,
    /// How many bytes all entries may have; 0 is no limit.
    max_bytes: u64,
    /// Whether it was said that nothing can be kept.
    told: AtomicBool,
    /// Of which entries it was said that they are not used: one that cannot be removed is met again.
    rejected: Mutex<BTreeSet<String>>,
}

/// Held while a component is compiled, so that no other process does the same.
pub(crate) struct Turn<'a> {
    cache: &'a Cache,
    name: String,
    _locked: OwnedFd,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Whoever waits for it has it open, and finds the entry when it is let go.
        let _ = self.cache.folder.remove(&self.name);
    }
}

impl Cache {
    /// Opens the cache, making its directory when it is missing.
    pub(crate) fn open(directory: &Path, max_mib: u32, readers: Readers) -> Result<Self, CacheError> {
        let folder = Folder::make(directory, readers)?;
        Ok(Self {
            folder,
            max_bytes: u64::from(max_mib) * MIB as u64,
            told: AtomicBool::new(false),
            rejected: Mutex::default(),
        })
    }

    /// The code of an entry, if it is there, whole, and written by nobody else. Anything else is removed and compiled again.
    pub(crate) fn load(&self, key: &Key, plugin: &str) -> Option<Vec<u8>> {
        let name = key.file_name();
        match self.read(key, &name) {
            Ok(code) => code,
            Err(Distrust(why)) => {
                self.reject(key, plugin, why);
                None
            }
        }
    }

    fn read(&self, key: &Key, name: &str) -> Result<Option<Vec<u8>>, Distrust> {
        let Some(file) = self.folder.look_at(name)? else { return Ok(None) };
        let most = MAX_CODE_BYTES as u64 + HEAD_BYTES;
        if file.size > most {
            return Err(Distrust("it is larger than any machine code"));
        }
        let bytes = file.read(most).map_err(|_| Distrust("it cannot be read"))?;
        let code = entry::code(key, bytes).ok_or(Distrust("it is damaged"))?;
        file.mark_used(USE_PRECISION);
        Ok(Some(code))
    }

    /// Says why an entry is not used, and removes it.
    pub(crate) fn reject(&self, key: &Key, plugin: &str, why: &str) {
        let name = key.file_name();
        let _ = self.folder.remove(&name);
        if !self.rejected.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
            return;
        }
        let path = self.folder.path.join(name);
        tracing::warn!(target: "dsh::plugin", plugin, "its machine code in the cache (`{}`) is not used, because {why}; it is compiled again", path.display());
    }

    /// Waits, at most so long, until no other process compiles the same. None: it is given up, or nothing can be locked here.
    pub(crate) fn turn(&self, key: &Key, most: Duration, wanted: &Wanted) -> Option<Turn<'_>> {
        let name = format!(".{key}{LOCK}");
        let locked = self.folder.lockable(&name).ok()?;
        let deadline = Instant::now() + most;
        loop {
            match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Turn { cache: self, name, _locked: locked }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {}
                Err(_) => return None,
            }
            if !wanted.within(LOCK_INTERVAL) {
                return None;
            }
        }
    }

    /// Keeps `code`. A cache that cannot be written costs time, nothing else, so a failure is only reported.
    pub(crate) fn store(&self, key: &Key, what: Stored<'_>) -> Kept {
        // Several processes, and several plugins of one, may compile the same component at once: each writes a file of its own, the
        // last rename wins.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let (process, n) = (std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
        let temporary = format!(".{key}.{process}-{n}{TEMPORARY}");
        let about = About {
            plugin: what.plugin.to_owned(),
            component_bytes: what.component_bytes as u64,
            engine: engine_words(what.target),
        };
        let head = entry::head(key, &about, what.code);
        let bytes = (head.len() + what.code.len()) as u64;
        let name = key.file_name();
        if self.max_bytes != 0 && bytes > self.max_bytes {
            self.tell(&format!(
                "it has {} MiB, and the cache may have {}: allow more with `--cache-max-mib`",
                bytes.div_ceil(MIB as u64),
                self.max_bytes / MIB as u64
            ));
            return Kept::No;
        }
        let kept = match self.folder.write(&name, &temporary, &[&head, what.code]) {
            Ok(()) => Kept::Yes { path: self.folder.path.join(&name), bytes },
            Err(error) => {
                self.tell(&error.to_string());
                Kept::No
            }
        };
        self.prune(&name);
        kept
    }

    /// Where an entry is, and its size.
    pub(crate) fn place(&self, key: &Key) -> Option<(PathBuf, u64)> {
        let name = key.file_name();
        let size = self.folder.look_at(&name).ok()??.size;
        Some((self.folder.path.join(name), size))
    }

    fn tell(&self, why: &str) {
        if !self.told.swap(true, Ordering::Relaxed) {
            let path = self.folder.path.display();
            tracing::warn!("machine code could not be kept in `{path}` and will be compiled again next time: {why}");
        }
    }

    /// Removes what was not used for the longest time, and what a process that died left half written. `newest` stays.
    fn prune(&self, newest: &str) {
        let Ok(listed) = self.folder.list() else { return };
        let (mut entries, others): (Vec<Listed>, Vec<Listed>) =
            listed.into_iter().partition(|listed| listed.name.ends_with(EXTENSION));
        for left in others.iter().filter(|listed| is_left_behind(listed)) {
            let _ = self.folder.remove(&left.name);
        }
        if self.max_bytes == 0 {
            return;
        }
        let mut bytes: u64 = entries.iter().map(|listed| listed.bytes).sum();
        entries.sort_by_key(|listed| listed.used);
        for listed in entries.iter().filter(|listed| listed.name != newest) {
            if bytes <= self.max_bytes {
                return;
            }
            // Whoever reads it right now has it open and reads on.
            let _ = self.folder.remove(&listed.name);
            bytes -= listed.bytes;
        }
    }
}

/// What a process that died left.
fn is_left_behind(listed: &Listed) -> bool {
    listed.name.starts_with('.')
        && [TEMPORARY, LOCK].iter().any(|end| listed.name.ends_with(end))
        && is_older(listed.used, LEFT_BEHIND)
}

/// What is to be kept.
pub(crate) struct Stored<'a> {
    pub plugin: &'a str,
    pub component_bytes: usize,
    pub target: Target,
    pub code: &'a [u8],
}

/// Whether it was.
pub(crate) enum Kept {
    Yes { path: PathBuf, bytes: u64 },
    No,
}

/// Which engine made an entry, in words.
fn engine_words(target: Target) -> String {
    format!("{} {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, target.name())
}

#[cfg(test)]
mod tests;
