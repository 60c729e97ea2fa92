//! What changes from one lock to the next, for whoever is about to commit it.

use std::fmt;

use dsh_wasm::Grants;
use serde::Serialize;

use super::file::{Entry, Lock};
use crate::hash::short;

/// What is different.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// Plugins that the old one does not have.
    added: Vec<Shown>,
    /// Plugins that the new one does not have.
    removed: Vec<String>,
    /// Plugins that are in both and not the same.
    changed: Vec<Change>,
    /// How many are the same.
    unchanged: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Shown {
    name: String,
    sha256: String,
    grants: Vec<String>,
    seams: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Change {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Pair>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<Pair>,
    grants: Moved,
    seams: Moved,
    ceiling: Moved,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Pair {
    old: String,
    new: String,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Moved {
    more: Vec<String>,
    less: Vec<String>,
}

impl Moved {
    fn of(old: &[String], new: &[String]) -> Self {
        let without = |all: &[String], some: &[String]| all.iter().filter(|one| !some.contains(one)).cloned().collect();
        Self { more: without(new, old), less: without(old, new) }
    }

    fn lines(&self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.more.iter().try_for_each(|one| writeln!(f, "  + {what} {one}"))?;
        self.less.iter().try_for_each(|one| writeln!(f, "  - {what} {one}"))
    }
}

impl Changes {
    /// From `old` to `new`.
    pub fn between(old: &Lock, new: &Lock) -> Self {
        let gone = old.entries().filter(|entry| new.get(&entry.name).is_none());
        let removed = gone.map(|entry| entry.name.to_string()).collect();
        let mut changes = Self { removed, ..Self::default() };
        for entry in new.entries() {
            match old.get(&entry.name) {
                None => changes.added.push(Shown {
                    name: entry.name.to_string(),
                    sha256: entry.sha256.clone(),
                    grants: texts(&entry.grants),
                    seams: seams(entry),
                }),
                Some(old) if old == entry => changes.unchanged += 1,
                Some(old) => changes.changed.push(change(old, entry)),
            }
        }
        changes
    }
}

fn change(old: &Entry, new: &Entry) -> Change {
    let pair = |old: &str, new: &str| (old != new).then(|| Pair { old: old.to_owned(), new: new.to_owned() });
    let ceiling = |entry: &Entry| entry.ceiling.clone().unwrap_or_else(|| vec!["everything".into()]);
    Change {
        name: new.name.to_string(),
        source: pair(&old.source, &new.source),
        sha256: pair(&old.sha256, &new.sha256),
        grants: Moved::of(&texts(&old.grants), &texts(&new.grants)),
        seams: Moved::of(&seams(old), &seams(new)),
        ceiling: Moved::of(&ceiling(old), &ceiling(new)),
    }
}

fn texts(grants: &Grants) -> Vec<String> {
    grants.iter().map(ToString::to_string).collect()
}

fn seams(entry: &Entry) -> Vec<String> {
    entry.seams.iter().map(ToString::to_string).collect()
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for plugin in &self.added {
            writeln!(f, "added `{}`: SHA-256 {}", plugin.name, short(&plugin.sha256))?;
            Moved { more: plugin.grants.clone(), less: Vec::new() }.lines("grant", f)?;
            Moved { more: plugin.seams.clone(), less: Vec::new() }.lines("seam", f)?;
        }
        for plugin in &self.changed {
            match &plugin.sha256 {
                Some(Pair { old, new }) => {
                    writeln!(f, "changed `{}`: SHA-256 {} is now {}", plugin.name, short(old), short(new))?;
                }
                None => writeln!(f, "changed `{}`: the same file", plugin.name)?,
            }
            if let Some(Pair { old, new }) = &plugin.source {
                writeln!(f, "  source {old} is now {new}")?;
            }
            plugin.grants.lines("grant", f)?;
            plugin.seams.lines("seam", f)?;
            plugin.ceiling.lines("ceiling", f)?;
        }
        self.removed.iter().try_for_each(|name| writeln!(f, "removed `{name}`"))
    }
}
