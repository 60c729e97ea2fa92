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

/// What one call has set and removed so far.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    changes: BTreeMap<String, Option<(Arc<str>, Value)>>,
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
        key: String,
        text: String,
        limit: usize,
    ) -> Result<(), Failure> {
        check_key(&key)?;
        if text.len() > MAX_STATE_VALUE_BYTES {
            return Err(Failure::new(
                "limit",
                format!("the value of `{key}` has {} bytes, a value may have {MAX_STATE_VALUE_BYTES}", text.len()),
            ));
        }
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Failure::invalid_argument(format!("the value of `{key}` is not valid JSON: {error}")))?;
        let before = self.changes.insert(key.clone(), Some((text.into(), value)));
        if self.total(committed) > limit {
            match before {
                Some(before) => self.changes.insert(key.clone(), before),
                None => self.changes.remove(&key),
            };
            return Err(Failure::new(
                "limit",
                format!(
                    "with `{key}` the plugin's state would pass its limit of {} MiB (`state-mib`)",
                    limit / crate::limits::MIB
                ),
            ));
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: String) -> Result<(), Failure> {
        check_key(&key)?;
        self.changes.insert(key, None);
        Ok(())
    }

    fn total<C: Committed + ?Sized>(&self, committed: &C) -> usize {
        let mut total = committed.bytes();
        for (key, change) in &self.changes {
            if let Some(old) = committed.value(key) {
                total = total.saturating_sub(key.len() + old.len());
            }
            if let Some((text, _)) = change {
                total = total.saturating_add(key.len() + text.len());
            }
        }
        total
    }

    /// The changes that make a difference, by key; nothing is pending afterwards.
    pub(crate) fn take<C: Committed + ?Sized>(&mut self, committed: &C) -> Vec<(String, Option<Value>)> {
        let changes = std::mem::take(&mut self.changes).into_iter().filter(|(key, change)| match change {
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

    fn committed() -> BTreeMap<String, Arc<str>> {
        [("a".to_owned(), "1".into()), ("ab".to_owned(), "2".into())].into()
    }

    #[test]
    fn a_call_sees_its_own_writes_over_what_is_committed() {
        let (kept, mut pending) = (committed(), Pending::default());
        pending.set(&kept, "ac".into(), "3".into(), 1_000).expect("fits");
        pending.remove("a".into()).expect("a key");
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
        pending.set(&kept, "a".into(), "1".into(), 1_000).expect("fits");
        pending.remove("zz".into()).expect("a key");
        assert_eq!(pending.take(&kept), []);
    }

    #[test]
    fn sizes_are_bounded() {
        let (kept, mut pending) = (committed(), Pending::default());
        let code = |result: Result<(), Failure>| result.expect_err("too large").code;
        assert_eq!(code(pending.set(&kept, String::new(), "1".into(), 1_000)), "invalid-argument");
        assert_eq!(code(pending.set(&kept, "k".repeat(257), "1".into(), 1_000)), "invalid-argument");
        assert_eq!(code(pending.set(&kept, "k".into(), "{".into(), 1_000)), "invalid-argument");
        assert_eq!(
            code(pending.set(&kept, "k".into(), format!("\"{}\"", "x".repeat(MAX_STATE_VALUE_BYTES)), usize::MAX)),
            "limit"
        );
        // Five bytes are there; five more would be ten.
        assert_eq!(code(pending.set(&kept, "k".into(), "12345".into(), 10)), "limit");
        pending.set(&kept, "k".into(), "1234".into(), 10).expect("just fits");
        pending.set(&kept, "k".into(), "4321".into(), 10).expect("in its own place");
    }
}
