//! Values that outlive a call, as JSON: kept per session and plugin, restored on resume.
//!
//! What a call sets takes effect when it returns without a failure. Several instances may run at once, so keep one fact to a key.

use crate::Failure;
use crate::bindings::base::dsh::plugin::state as raw;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The value under `key`; none when there is none, and outside of a session. Fails with `invalid-state` when what is there is of
/// another shape.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>, Failure> {
    match raw::get(key) {
        None => Ok(None),
        Some(text) => serde_json::from_str(&text).map(Some).map_err(|error| {
            Failure::new("invalid-state", format!("the value kept under `{key}` cannot be read: {error}"))
        }),
    }
}

/// The keys that start with `prefix`, sorted.
pub fn keys(prefix: &str) -> Vec<String> {
    raw::keys(prefix)
}

/// Keeps a value. Fails with `no-session` outside of a session and with `limit` when it is too large.
pub fn set<T: Serialize>(key: &str, value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::invalid_argument(format!("the value for `{key}` is not JSON: {error}")))?;
    raw::set(key, &text)
}

/// Forgets a value. Fails with `no-session` outside of a session.
pub fn remove(key: &str) -> Result<(), Failure> {
    raw::remove(key)
}
