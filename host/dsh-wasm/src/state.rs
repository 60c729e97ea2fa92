//! `dsh:plugin/state` as one call sees it: committed values, and over them what the call itself has set. What it set is committed when it
//! returns without a failure, all or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::limits::{MAX_STATE_KEY_BYTES, MAX_STATE_VALUE_BYTES};
use crate::words::{Failure, PluginContext};

/// Where committed values are. [`PluginContext`] is; so is a map in tests.
pub(crate) trait Committed {
    fn value(&self, key: &str) -> Option<Arc<str>>;
    fn keys(&self, prefix: &str) -> Vec<String>;
    fn bytes(&self) -> usize;
}

impl Committed for dyn PluginContext {
    fn value(&self, key: &str) -> Option<Arc<str>> {
        self.state(key)
    }
    fn keys(&self, prefix: &str) -> Vec<String> {
        self.state_keys(prefix)
    }
    fn bytes(&self) -> usize {
        self.state_bytes()
    }
}

/// A key with a value that may be set, parsed.
pub(crate) struct NewValue {
    key: String,
    text: Arc<str>,
    value: Value,
}

impl NewValue {
    pub(crate) fn of(key: String, text: String) -> Result<Self, Failure> {
        check_key(&key)?;
        if text.len() > MAX_STATE_VALUE_BYTES {
            return Err(Failure::new(
                "limit",
                format!("the value of `{key}` has {} bytes, a value may have {MAX_STATE_VALUE_BYTES}", text.len()),
            ));
        }
        let value = serde_json::from_str(&text)
            .map_err(|error| Failure::invalid_argument(format!("the value of `{key}` is not valid JSON: {error}")))?;
        Ok(Self { key, text: text.into(), value })
    }
}

/// What one call has set and removed so far.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    changes: BTreeMap<String, Option<(Arc<str>, Value)>>,
    /// How much all changes together add to what is committed.
    grown: i64,
    /// How much was committed when that was found out; a nested call of the plugin may commit meanwhile.
    seen: Option<usize>,
}

impl Pending {
    pub(crate) fn get<C: Committed + ?Sized>(&self, committed: &C, key: &str) -> Option<Arc<str>> {
        match self.changes.get(key) {
            Some(change) => change.as_ref().map(|(text, _)| text.clone()),
            None => committed.value(key),
        }
    }

    pub(crate) fn keys<C: Committed + ?Sized>(&self, committed: &C, prefix: &str) -> Vec<String> {
        let mut keys: std::collections::BTreeSet<String> = committed.keys(prefix).into_iter().collect();
        for (key, change) in self.changes.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix)) {
            match change {
                Some(_) => keys.insert(key.clone()),
                None => keys.remove(key),
            };
        }
        keys.into_iter().collect()
    }

    /// Sets a value. `limit` bounds all keys and values together, as they would be after a commit.
    pub(crate) fn set<C: Committed + ?Sized>(
        &mut self,
        committed: &C,
        new: NewValue,
        limit: usize,
    ) -> Result<(), Failure> {
        let NewValue { key, text, value } = new;
        let grown = self.grown_with(committed, &key, Some(&text));
        let total = i64::try_from(committed.bytes()).unwrap_or(i64::MAX).saturating_add(grown);
        if usize::try_from(total).is_ok_and(|total| total > limit) {
            return Err(Failure::new(
                "limit",
                format!(
                    "with `{key}` the plugin's state would pass its limit of {} MiB (`state-mib`)",
                    limit / crate::limits::MIB
                ),
            ));
        }
        self.grown = grown;
        self.changes.insert(key, Some((text, value)));
        Ok(())
    }

    pub(crate) fn remove<C: Committed + ?Sized>(&mut self, committed: &C, key: String) -> Result<(), Failure> {
        check_key(&key)?;
        self.grown = self.grown_with(committed, &key, None);
        self.changes.insert(key, None);
        Ok(())
    }

    /// How much all changes would add with one more. Only what this one changes is weighed, unless something was committed meanwhile.
    fn grown_with<C: Committed + ?Sized>(&mut self, committed: &C, key: &str, text: Option<&str>) -> i64 {
        let weight = |key: &str, text: Option<&str>| {
            let bytes = |value: Option<usize>| value.map_or(0, |value| (key.len() + value) as i64);
            bytes(text.map(str::len)) - bytes(committed.value(key).map(|old| old.len()))
        };
        let changed =
            |change: &Option<(Arc<str>, Value)>, key: &str| weight(key, change.as_ref().map(|(text, _)| &**text));
        let now = committed.bytes();
        if self.seen != Some(now) {
            self.seen = Some(now);
            self.grown = self.changes.iter().map(|(key, change)| changed(change, key)).sum();
        }
        let before = self.changes.get(key).map_or(0, |change| changed(change, key));
        self.grown - before + weight(key, text)
    }

    /// The changes that make a difference, by key; nothing is pending afterwards.
    pub(crate) fn take<C: Committed + ?Sized>(&mut self, committed: &C) -> Vec<(String, Option<Value>)> {
        let changes = std::mem::take(self).changes.into_iter().filter(|(key, change)| match change {
            Some((text, _)) => committed.value(key).as_deref() != Some(&**text),
            None => committed.value(key).is_some(),
        });
        changes.map(|(key, change)| (key, change.map(|(_, value)| value))).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

fn check_key(key: &str) -> Result<(), Failure> {
    if key.is_empty() || key.len() > MAX_STATE_KEY_BYTES {
        return Err(Failure::invalid_argument(format!(
            "a key has 1 to {MAX_STATE_KEY_BYTES} bytes, this one has {}",
            key.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    impl Committed for BTreeMap<String, Arc<str>> {
        fn value(&self, key: &str) -> Option<Arc<str>> {
            self.get(key).cloned()
        }
        fn keys(&self, prefix: &str) -> Vec<String> {
            BTreeMap::keys(self).filter(|key| key.starts_with(prefix)).cloned().collect()
        }
        fn bytes(&self) -> usize {
            self.iter().map(|(key, value)| key.len() + value.len()).sum()
        }
    }

    fn set(
        pending: &mut Pending,
        kept: &BTreeMap<String, Arc<str>>,
        key: impl Into<String>,
        text: impl Into<String>,
        limit: usize,
    ) -> Result<(), Failure> {
        pending.set(kept, NewValue::of(key.into(), text.into())?, limit)
    }

    fn committed() -> BTreeMap<String, Arc<str>> {
        [("a".to_owned(), "1".into()), ("ab".to_owned(), "2".into())].into()
    }

    #[test]
    fn a_call_sees_its_own_writes_over_what_is_committed() {
        let (kept, mut pending) = (committed(), Pending::default());
        set(&mut pending, &kept, "ac", "3", 1_000).expect("fits");
        pending.remove(&kept, "a".into()).expect("a key");
        assert_eq!(
            (pending.get(&kept, "a"), pending.get(&kept, "ab").as_deref(), pending.get(&kept, "ac").as_deref()),
            (None, Some("2"), Some("3"))
        );
        assert_eq!(pending.keys(&kept, "a"), ["ab", "ac"]);
        assert_eq!(pending.take(&kept), [("a".to_owned(), None), ("ac".to_owned(), Some(json!(3)))]);
        assert!(pending.is_empty());
    }

    #[test]
    fn what_changes_nothing_is_not_committed() {
        let (kept, mut pending) = (committed(), Pending::default());
        set(&mut pending, &kept, "a", "1", 1_000).expect("fits");
        pending.remove(&kept, "zz".into()).expect("a key");
        assert_eq!(pending.take(&kept), []);
    }

    #[test]
    fn sizes_are_bounded() {
        let (kept, mut pending) = (committed(), Pending::default());
        let code = |result: Result<(), Failure>| result.expect_err("too large").code;
        assert_eq!(code(set(&mut pending, &kept, "", "1", 1_000)), "invalid-argument");
        assert_eq!(code(set(&mut pending, &kept, "k".repeat(257), "1", 1_000)), "invalid-argument");
        assert_eq!(code(set(&mut pending, &kept, "k", "{", 1_000)), "invalid-argument");
        assert_eq!(
            code(set(&mut pending, &kept, "k", format!("\"{}\"", "x".repeat(MAX_STATE_VALUE_BYTES)), usize::MAX)),
            "limit"
        );
        // Five bytes are there; five more would be ten.
        assert_eq!(code(set(&mut pending, &kept, "k", "12345", 10)), "limit");
        set(&mut pending, &kept, "k", "1234", 10).expect("just fits");
        set(&mut pending, &kept, "k", "4321", 10).expect("in its own place");
    }
}
