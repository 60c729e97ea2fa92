//! A cache for a person who looks at it and cleans it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use dsh_seam::PluginName;

use super::entry::{self, EXTENSION, HEAD_BYTES, engine_tag};
use super::folder::{Folder, Readers, is_older};
use super::{CacheError, is_left_behind};
use crate::classes::compiling_engine;
use crate::compile::Target;

/// A compiled component in a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// The name of its file.
    pub file: String,
    /// The SHA-256 of the component, in hex.
    pub sha256: String,
    /// The plugin that it was first compiled for, if that is known.
    pub plugin: Option<String>,
    /// The version of the host that compiled it, its architecture, and for which processors, if that is known.
    pub engine: Option<String>,
    /// Whether this host on this machine would use it.
    pub usable: bool,
    /// The size of the component, if it is known.
    pub component_bytes: Option<u64>,
    /// Its own size.
    pub bytes: u64,
    /// When it was used, to the minute.
    pub used: SystemTime,
}

impl CacheEntry {
    /// Whether it was used longer ago than `age`.
    #[must_use]
    pub fn is_older(&self, age: Duration) -> bool {
        is_older(self.used, age)
    }
}

/// A cache that is looked at.
pub struct CacheView {
    folder: Folder,
    tags: BTreeSet<String>,
}

impl CacheView {
    /// Opens the cache in `directory`; none: there is no such directory.
    ///
    /// # Errors
    /// When it cannot be opened, or others could write to it.
    pub fn open(directory: &Path) -> Result<Option<Self>, CacheError> {
        let folder = match Folder::open(directory, Readers::User) {
            Err(CacheError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let engines = [Target::Native, Target::Baseline].map(|target| compiling_engine(target, false));
        let tags = engines.iter().flatten().map(engine_tag).collect();
        Ok(Some(Self { folder, tags }))
    }

    /// What is in it, what was used last first.
    ///
    /// # Errors
    /// What the system said.
    pub fn entries(&self) -> io::Result<Vec<CacheEntry>> {
        let listed = self.folder.list()?;
        let mut entries: Vec<CacheEntry> = listed
            .into_iter()
            .filter_map(|listed| {
                let name = listed.name.strip_suffix(EXTENSION)?;
                let (sha256, tag) = name.split_once('-').unwrap_or((name, ""));
                let looked_at = self.folder.look_at(&listed.name).ok().flatten();
                let about = looked_at.as_ref().and_then(|file| entry::about(&file.read(HEAD_BYTES).ok()?));
                let usable = about.is_some() && self.tags.contains(tag);
                let (plugin, engine, component_bytes) = match about {
                    Some(about) => (Some(about.plugin), Some(about.engine), Some(about.component_bytes)),
                    None => (None, None, None),
                };
                Some(CacheEntry {
                    sha256: sha256.to_owned(),
                    // Nobody has checked these; what is no name may be anything.
                    plugin: plugin.filter(|plugin| PluginName::new(plugin.as_str()).is_ok()),
                    engine: engine
                        .filter(|engine| engine.len() < 80 && engine.chars().all(|c| c.is_ascii_graphic() || c == ' ')),
                    component_bytes,
                    usable,
                    bytes: listed.bytes,
                    used: listed.used,
                    file: listed.name,
                })
            })
            .collect();
        entries.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.file.cmp(&b.file)));
        Ok(entries)
    }

    /// Removes an entry. One that is gone already is no error.
    ///
    /// # Errors
    /// What the system said.
    pub fn remove(&self, entry: &CacheEntry) -> io::Result<()> {
        match self.folder.remove(&entry.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Removes what processes that died have left.
    pub fn sweep(&self) {
        for left in self.folder.list().unwrap_or_default().iter().filter(|listed| is_left_behind(listed)) {
            let _ = self.folder.remove(&left.name);
        }
    }
}
