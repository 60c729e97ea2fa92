//! The disk cache of compiled components.
//!
//! An entry's name is the hash of the component and of everything that decides what its machine code looks like; the entry is a hash over
//! its name and its code, then the code. The code is loaded from the very bytes whose hash was checked. The directory is the user's own
//! and closed to everybody else, because machine code is trusted once its hash is right; precompiled files are never taken from anybody.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::inspect::hex;

/// The first bytes of an entry; the number is raised when its layout changes.
const MAGIC: &[u8; 8] = b"dshcwas1";
const HEADER: usize = MAGIC.len() + 32;
/// Entries that are kept; beyond, those that were not used for the longest time go. A plugin has one per version of it and of the host.
const MAX_ENTRIES: usize = 200;
/// How exactly the last use of an entry is known: writing it down more often would cost more than it tells.
const USE_PRECISION: Duration = Duration::from_secs(24 * 60 * 60);

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
    #[error("the cache directory `{path}` is not used, because {why}; make it yours alone: `chmod 700 {path}`")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Which compiled component an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The key for a component with `sha256` (hex) under `engine`.
    pub(crate) fn new(sha256: &str, engine: &wasmtime::Engine) -> Self {
        struct Hasher(Sha256);
        impl std::hash::Hasher for Hasher {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut hasher = Hasher(Sha256::new());
        std::hash::Hash::hash(&engine.precompile_compatibility_hash(), &mut hasher);
        // Checks of shape are not repeated for a cached component, so the contract is part of its name.
        hasher.0.update(Sha256::digest(crate::bindings::COMPONENT_TYPE));
        hasher.0.update(env!("CARGO_PKG_VERSION"));
        Self(format!("{sha256}-{}", &hex(&hasher.0.finalize())[..16]))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A directory of compiled components.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Opens the cache, making its directory (0700) when it is missing.
    pub(crate) fn open(directory: &Path) -> Result<Self, CacheError> {
        let io = |source| CacheError::Io { path: directory.to_owned(), source };
        make_private(directory).map_err(io)?;
        let metadata = fs::symlink_metadata(directory).map_err(io)?;
        let refuse = |why| Err(CacheError::Unsafe { path: directory.to_owned(), why });
        if !metadata.is_dir() {
            return refuse("it is not a directory");
        }
        if let Some(why) = others_can_write(&metadata) {
            return refuse(why);
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// The code of an entry, if it is there and whole. Anything else than whole counts as not there and is removed.
    pub(crate) fn load(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut bytes = fs::read(&path).ok()?;
        if bytes.len() > HEADER
            && bytes.starts_with(MAGIC)
            && bytes[MAGIC.len()..HEADER] == digest(key, &bytes[HEADER..])
        {
            bytes.drain(..HEADER);
            mark_used(&path);
            return Some(bytes);
        }
        tracing::warn!(path = %path.display(), "a cached component is damaged and is compiled again");
        self.remove(key);
        None
    }

    /// Keeps `code`. A cache that cannot be written costs time, nothing else, so a failure is only reported.
    pub(crate) fn store(&self, key: &Key, code: &[u8]) {
        if let Err(error) = self.try_store(key, code) {
            tracing::warn!(path = %self.directory.display(), %error, "a compiled component could not be kept and will be compiled again next time");
        }
    }

    fn try_store(&self, key: &Key, code: &[u8]) -> io::Result<()> {
        // Several processes, and several plugins of one, may compile the same component at once: each writes a file of its own, the
        // last rename wins.
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let (process, n) = (std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
        let temporary = self.directory.join(format!(".{key}.{process}-{n}.tmp"));
        let written = (|| {
            let mut file = private_file(&temporary)?;
            file.write_all(MAGIC)?;
            file.write_all(&digest(key, code))?;
            file.write_all(code)?;
            // Without this a crash could leave a renamed but empty file; it would be found and compiled again, which is slow.
            file.sync_data()?;
            fs::rename(&temporary, self.path(key))
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        self.prune();
        written
    }

    /// Removes what was not used for the longest time, and what a process that died left half written.
    fn prune(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        let mut kept = Vec::new();
        for entry in entries.filter_map(Result::ok) {
            let name = entry.file_name();
            let Ok(used) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            match Path::new(&name).extension().and_then(|extension| extension.to_str()) {
                Some("cwasm") => kept.push((used, entry.path())),
                Some("tmp") if is_old(used) => drop(fs::remove_file(entry.path())),
                _ => {}
            }
        }
        kept.sort();
        for (_, path) in kept.iter().take(kept.len().saturating_sub(MAX_ENTRIES)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Removes an entry that turned out to be of no use.
    pub(crate) fn remove(&self, key: &Key) {
        let _ = fs::remove_file(self.path(key));
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.directory.join(format!("{key}.cwasm"))
    }
}

fn is_old(time: SystemTime) -> bool {
    time.elapsed().is_ok_and(|age| age > USE_PRECISION)
}

/// Notes that an entry was used, if the last note is old.
fn mark_used(path: &Path) {
    let Ok(file) = OpenOptions::new().append(true).open(path) else { return };
    if file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(is_old) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// The integrity value of an entry: over its name too, so that one entry cannot stand in for another.
fn digest(key: &Key, code: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(key.0.as_bytes());
    hasher.update([0]);
    hasher.update(code);
    hasher.finalize().into()
}

#[cfg(unix)]
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(not(unix))]
fn make_private(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)
}

#[cfg(unix)]
fn others_can_write(metadata: &fs::Metadata) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt as _;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Some("it belongs to another user");
    }
    (metadata.mode() & 0o022 != 0).then_some("other users can write to it")
}

#[cfg(not(unix))]
fn others_can_write(_: &fs::Metadata) -> Option<&'static str> {
    None
}

#[cfg(unix)]
fn private_file(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn private_file(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let home = tempfile::tempdir().expect("a temporary directory");
        let cache = Cache::open(&home.path().join("cache")).expect("a cache");
        (home, cache)
    }

    fn key(name: &str) -> Key {
        Key(name.to_owned())
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let (_home, cache) = cache();
        assert_eq!(cache.load(&key("a")), None);
        cache.store(&key("a"), b"code");
        assert_eq!(cache.load(&key("a")).as_deref(), Some(&b"code"[..]));
        assert_eq!(fs::read_dir(&cache.directory).expect("the directory").count(), 1);
    }

    #[test]
    fn damaged_entries_are_not_loaded() {
        let check = |change: fn(Vec<u8>) -> Vec<u8>| {
            let (_home, cache) = cache();
            cache.store(&key("a"), b"some code");
            let path = cache.path(&key("a"));
            fs::write(&path, change(fs::read(&path).expect("the entry"))).expect("to write");
            assert_eq!(cache.load(&key("a")), None);
            assert!(!path.exists(), "a damaged entry is removed");
        };
        check(|mut bytes| {
            *bytes.last_mut().expect("not empty") ^= 1;
            bytes
        });
        check(|mut bytes| {
            bytes.truncate(20);
            bytes
        });
        check(|mut bytes| {
            bytes.pop();
            bytes
        });
        check(|_| Vec::new());
        check(|_| b"\x7fELF".to_vec());
    }

    #[test]
    fn what_is_not_used_goes_first() {
        let (_home, cache) = cache();
        for n in 0..=MAX_ENTRIES {
            cache.store(&key(&format!("k{n}")), b"code");
            // All are written in the same instant; the order is made clear.
            let file = OpenOptions::new().append(true).open(cache.path(&key(&format!("k{n}")))).expect("the entry");
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(n as u64)).expect("to set");
        }
        cache.prune();
        assert_eq!((cache.load(&key("k0")), cache.load(&key("k1")).is_some()), (None, true));
        cache.store(&key("new"), b"code");
        assert!(cache.load(&key("k1")).is_some(), "it was just used");
        assert_eq!(cache.load(&key("k2")), None);
    }

    #[test]
    fn an_entry_cannot_stand_in_for_another() {
        let (_home, cache) = cache();
        cache.store(&key("a"), b"code");
        fs::rename(cache.path(&key("a")), cache.path(&key("b"))).expect("to rename");
        assert_eq!(cache.load(&key("b")), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let home = tempfile::tempdir().expect("a temporary directory");
        let path = home.path().join("cache");
        fs::create_dir(&path).expect("to make it");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("to open it");
        let error = Cache::open(&path).expect_err("not ours alone");
        assert!(matches!(error, CacheError::Unsafe { why: "other users can write to it", .. }), "{error}");
    }
}
