//! Lets observers see what is in the log, one entry at a time, and contains those that fail.
//!
//! An observer can append from inside a notification; how deep that goes is bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use dsh_seam::event::{Entry, ErrorEvent, LiveEvent};
use dsh_seam::failure::{FailureKind, PluginError, Seam};
use dsh_seam::ids::PluginName;
use dsh_seam::session::{Observer, wants};

use super::place::failed_event;
use super::{Journal, in_words};
use crate::sync::{Mutex, MutexGuard};

/// After so many failures in a row an observer is off for the run.
const MAX_OBSERVER_FAILURES: u32 = 3;

/// One plugin's observer and how it fares.
pub(super) struct Watcher {
    plugin: PluginName,
    observer: Arc<dyn Observer>,
    failures: AtomicU32,
    off: AtomicBool,
    /// Set while a notification is under way; what comes meanwhile waits in the backlog.
    busy: AtomicBool,
    backlog: Mutex<VecDeque<(Arc<Entry>, u32)>>,
}

impl Journal {
    /// Names the observers, in plugin order. One that was there before fares as it did; whoever is no longer named is told nothing more.
    pub(crate) fn observe(&self, observers: Vec<(PluginName, Arc<dyn Observer>)>) {
        let before = self.watchers();
        let watcher = |(plugin, observer): (PluginName, Arc<dyn Observer>)| {
            let same = |known: &Watcher| std::ptr::addr_eq(Arc::as_ptr(&known.observer), Arc::as_ptr(&observer));
            let is_it = |known: &&Arc<Watcher>| known.plugin == plugin && same(known);
            before.iter().find(is_it).cloned().unwrap_or_else(|| Arc::new(Watcher::new(plugin, observer)))
        };
        let watchers = observers.into_iter().map(watcher).collect();
        *self.observers.write().unwrap_or_else(PoisonError::into_inner) = watchers;
    }

    fn watchers(&self) -> Arc<[Arc<Watcher>]> {
        self.observers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets every observer that asked for it see an entry, in plugin order.
    pub(super) async fn notify(&self, entry: &Arc<Entry>, depth: u32) {
        let watchers = self.watchers();
        if watchers.is_empty() {
            return;
        }
        let kind = entry.event.kind();
        let author = entry.event.author();
        for watcher in watchers.iter() {
            if watcher.off.load(Ordering::Relaxed)
                || author == Some(watcher.plugin.as_str())
                || !wants(watcher.observer.kinds(), &kind)
            {
                continue;
            }
            watcher.backlog().push_back((entry.clone(), depth));
            if !watcher.busy.swap(true, Ordering::AcqRel) {
                self.work_off(watcher).await;
            }
        }
    }

    /// Notifies one observer of all that waits for it, one entry at a time.
    async fn work_off(&self, watcher: &Watcher) {
        let mut busy = Busy { watcher, armed: true };
        loop {
            let Some((entry, depth)) = watcher.next() else {
                busy.armed = false;
                return;
            };
            let call = watcher.observer.on_entries(std::slice::from_ref(&entry), depth);
            let result = match tokio::time::timeout(self.deadlines.observer, call).await {
                Ok(result) => result,
                Err(_) => Err(PluginError {
                    plugin: watcher.plugin.clone(),
                    seam: Seam::Observer,
                    kind: FailureKind::Limit,
                    message: format!("it took longer than {}", in_words(self.deadlines.observer)),
                    code: None,
                }),
            };
            match result {
                Ok(()) => watcher.failures.store(0, Ordering::Relaxed),
                Err(error) => self.observer_failed(watcher, &error, depth).await,
            }
        }
    }

    async fn observer_failed(&self, watcher: &Watcher, error: &PluginError, depth: u32) {
        let failures = watcher.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let mut error = error.clone();
        if failures >= MAX_OBSERVER_FAILURES {
            watcher.off.store(true, Ordering::Relaxed);
            error.message.push_str(&format!("; it failed {failures} times in a row and is off for this run"));
        }
        tracing::warn!("{error}");
        let (at, after_the_turn) = {
            let state = self.state();
            (state.at(), state.open.is_none() && state.unanswered.is_empty() && state.last_turn > 0)
        };
        if after_the_turn {
            // What fails between two turns has no place in the log.
            return self.live(live_error(&error)).await;
        }
        // A failing report is a failing append, which has reported itself.
        let _ = self.append_at(failed_event(at, None, &error), depth + 1, true).await;
    }

    /// Whether the plugin's observer failed so often that it is off for this run; then it has nothing to flush either.
    pub(crate) fn is_off(&self, plugin: &PluginName) -> bool {
        self.watchers().iter().any(|watcher| watcher.plugin == *plugin && watcher.off.load(Ordering::Relaxed))
    }
}

impl Watcher {
    fn new(plugin: PluginName, observer: Arc<dyn Observer>) -> Self {
        Self {
            plugin,
            observer,
            failures: AtomicU32::new(0),
            off: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            backlog: Mutex::default(),
        }
    }

    fn backlog(&self) -> MutexGuard<'_, VecDeque<(Arc<Entry>, u32)>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next entry; when there is none, the observer is free again.
    fn next(&self) -> Option<(Arc<Entry>, u32)> {
        let mut backlog = self.backlog();
        if backlog.is_empty() || self.off.load(Ordering::Relaxed) {
            backlog.clear();
            self.busy.store(false, Ordering::Release);
            return None;
        }
        backlog.pop_front()
    }
}

/// Frees an observer whose notification was dropped half way (an abort).
struct Busy<'a> {
    watcher: &'a Watcher,
    armed: bool,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.watcher.busy.store(false, Ordering::Release);
        }
    }
}

fn live_error(error: &PluginError) -> LiveEvent {
    LiveEvent::AgentError(ErrorEvent {
        turn: 0,
        step: 0,
        message: error.to_string(),
        code: error.host_code().into(),
        plugin: Some(error.plugin.clone()),
    })
}
