//! What an entry looks like: a magic number, a hash over its name and all that follows, what it is, and the code.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::inspect::hex;

/// The first bytes of an entry; the number is raised when its layout changes.
const MAGIC: &[u8; 8] = b"dshcwas2";
const HASH_END: usize = MAGIC.len() + 32;
const ABOUT_AT: usize = HASH_END + 4;
/// The longest description that is read.
const MAX_ABOUT_BYTES: usize = 4 * 1024;
/// As much of an entry as is read to describe it.
pub(super) const HEAD_BYTES: u64 = (ABOUT_AT + MAX_ABOUT_BYTES) as u64;
/// The end of an entry's name.
pub(super) const EXTENSION: &str = ".cwasm";

/// Which compiled component an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    /// The key for a component with `sha256` (hex) under `engine`.
    pub(crate) fn new(sha256: &str, engine: &wasmtime::Engine) -> Self {
        Self::with_tag(sha256, &engine_tag(engine))
    }

    /// The key for a component under the engine with this [`engine_tag`].
    pub(crate) fn with_tag(sha256: &str, tag: &str) -> Self {
        Self(format!("{sha256}-{tag}"))
    }

    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(super) fn file_name(&self) -> String {
        format!("{self}{EXTENSION}")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything but the component that decides what its entry looks like: the processor among it, and the layout, so that a host
/// with another layout has entries of its own.
pub(crate) fn engine_tag(engine: &wasmtime::Engine) -> String {
    struct Hasher(Sha256);
    impl std::hash::Hasher for Hasher {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Hasher(Sha256::new_with_prefix(MAGIC));
    std::hash::Hash::hash(&engine.precompile_compatibility_hash(), &mut hasher);
    // Checks of shape are not repeated for a cached component, so the contract is part of its name.
    hasher.0.update(Sha256::digest(crate::bindings::COMPONENT_TYPE));
    hasher.0.update(env!("CARGO_PKG_VERSION"));
    hex(&hasher.0.finalize())[..16].to_owned()
}

/// What an entry says about itself, for a person who looks at the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct About {
    /// The name of the plugin that it was first compiled for.
    pub plugin: String,
    /// The size of the component.
    pub component_bytes: u64,
    /// The version of the host, the architecture, and for which processors of it.
    pub engine: String,
}

/// What stands before the code.
pub(super) fn head(key: &Key, about: &About, code: &[u8]) -> Vec<u8> {
    let mut described = serde_json::to_vec(about).unwrap_or_default();
    described.truncate(MAX_ABOUT_BYTES);
    let length = u32::try_from(described.len()).unwrap_or(0).to_le_bytes();
    let mut head = Vec::with_capacity(ABOUT_AT + described.len());
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&digest(key, &[&length, &described, code]));
    head.extend_from_slice(&length);
    head.extend_from_slice(&described);
    head
}

/// The code of an entry, if it is whole and stands where `key` says.
pub(super) fn code(key: &Key, mut entry: Vec<u8>) -> Option<Vec<u8>> {
    let described = described(&entry)?;
    let starts = ABOUT_AT + described.len();
    if entry.len() <= starts || entry[MAGIC.len()..HASH_END] != digest(key, &[&entry[HASH_END..]]) {
        return None;
    }
    entry.drain(..starts);
    Some(entry)
}

/// What the beginning of an entry says about it. It is not checked: somebody may have made it up.
pub(super) fn about(beginning: &[u8]) -> Option<About> {
    serde_json::from_slice(described(beginning)?).ok()
}

fn described(entry: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(entry.get(HASH_END..ABOUT_AT)?.try_into().ok()?) as usize;
    if !entry.starts_with(MAGIC) || length > MAX_ABOUT_BYTES {
        return None;
    }
    entry.get(ABOUT_AT..ABOUT_AT + length)
}

/// The integrity value of an entry: over its name too, so that one entry cannot stand in for another.
fn digest(key: &Key, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(key.0.as_bytes());
    hasher.update([0]);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}
