//! `session/observer` and `session/flush`: one instance of their own per agent, one call at a time, until the session is detached.
//!
//! A notification that comes while the instance is busy (the plugin's own append made another plugin append, or it is flushing) waits its
//! turn and is delivered before the call under way returns. When the instance failed, the next one first gets all entries since the last flush that
//! went well, so that what an observer keeps in memory is there in `flush`.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::attachment::{Attachment, guest};
use crate::convert;
use crate::fault::Fault;
use crate::imports::entry;
use crate::instance::{Instance, Returned, Terms};
use crate::store::Call;
use crate::words::{Entry, Flush, FlushError, Observer, PluginError, Seam};

/// Entries that are kept to be told again; the oldest are dropped beyond. An agent that never flushes well has other worries by then.
const MAX_KEPT_ENTRIES: usize = 100_000;
/// Notifications that may wait for a busy instance: appends from inside notifications stop at depth 8.
const MAX_WAITING: usize = 1_024;

/// What is known of an attachment's observing instance.
#[derive(Default)]
pub(crate) struct Observing {
    instance: Option<Box<Instance>>,
    busy: bool,
    closed: bool,
    /// An instance was lost: the next one is told everything since the last good flush.
    lost: bool,
    /// Entries since the last good flush, oldest first; only kept when the plugin has a flush.
    since_flush: VecDeque<Arc<Entry>>,
    /// What came while the instance was busy, with its depth.
    waiting: VecDeque<(Vec<Arc<Entry>>, u32)>,
}

impl Observing {
    /// The session is detached.
    pub(crate) fn close(&mut self) {
        *self = Self { closed: true, busy: self.busy, ..Self::default() };
    }

    /// What a new instance must be told before anything else: all since the last good flush, when the one before it was lost.
    fn take_missed(&mut self) -> Vec<Arc<Entry>> {
        if std::mem::take(&mut self.lost) { self.since_flush.iter().cloned().collect() } else { Vec::new() }
    }

    fn keep(&mut self, entries: &[Arc<Entry>]) {
        self.since_flush.extend(entries.iter().cloned());
        let over = self.since_flush.len().saturating_sub(MAX_KEPT_ENTRIES);
        self.since_flush.drain(..over);
    }
}

/// The observing instance is in use; it counts as lost unless it is put back. What waits stays, and is told to the next one.
struct Busy<'a> {
    attachment: &'a Attachment,
    put_back: bool,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if !self.put_back {
            let mut observing = self.attachment.observing();
            observing.busy = false;
            observing.lost = true;
        }
    }
}

impl Attachment {
    pub(crate) fn observing(&self) -> MutexGuard<'_, Observing> {
        self.observing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the instance, or makes one.
    async fn observing_instance(&self, terms: &Terms<'_>) -> Result<Box<Instance>, Fault> {
        let there = self.observing().instance.take();
        match there {
            Some(instance) => Ok(instance),
            None => self.mold.instantiate(Some(self.context.clone()), None, terms).await,
        }
    }

    /// Tells `instance` of entries, and commits the state that it set.
    async fn tell(&self, instance: Box<Instance>, entries: &[Arc<Entry>], depth: u32) -> Result<Box<Instance>, Fault> {
        // What the plugin appends from inside is one deeper than what it is told.
        let call = Call { depth: depth + 1, ..Call::new(Seam::Observer) };
        let terms = Terms::new(&self.mold.core, call, false, None);
        let entries: Vec<_> = entries.iter().map(|told| entry(told)).collect();
        let told = self.mold.call(self.mold.arm(instance, terms), |mut it| async move {
            let Instance { store, guests, .. } = &mut *it;
            store.data_mut().given(&entries);
            let answer = guest(&guests.observer).call_on_entries(store, &entries).await;
            (it, answer)
        });
        let Returned { mut instance, metered, .. } = told.await?;
        let (changes, depth) = self.changes(&mut instance, true);
        if let Err(fault) = self.commit(changes, depth).await {
            metered.failed(&fault);
            return Err(fault);
        }
        metered.answered(Ok(&()));
        Ok(instance)
    }

    /// Tells the entries, and whatever waits or comes meanwhile, in order.
    async fn observe(&self, entries: &[Arc<Entry>], depth: u32) -> Result<(), Fault> {
        let again = {
            let mut observing = self.observing();
            if observing.closed {
                return Ok(());
            }
            if observing.waiting.len() < MAX_WAITING {
                observing.waiting.push_back((entries.to_vec(), depth));
            }
            if observing.busy {
                return Ok(());
            }
            observing.busy = true;
            observing.take_missed()
        };
        let busy = Busy { attachment: self, put_back: false };
        let terms = Terms::new(&self.mold.core, Call::new(Seam::Observer), false, None);
        let mut instance = self.observing_instance(&terms).await?;
        if !again.is_empty() {
            instance = self.tell(instance, &again, depth).await?;
        }
        self.work_off(instance, busy).await
    }

    /// Tells what waits; the instance is put back in the moment when nothing does.
    async fn work_off(&self, mut instance: Box<Instance>, mut busy: Busy<'_>) -> Result<(), Fault> {
        loop {
            let (entries, depth) = {
                let mut observing = self.observing();
                let Some((entries, depth)) = observing.waiting.pop_front() else {
                    busy.put_back = true;
                    observing.busy = false;
                    if !observing.closed {
                        observing.instance = Some(instance);
                    }
                    return Ok(());
                };
                if self.mold.rooms.has(Seam::Flush) {
                    observing.keep(&entries);
                }
                (entries, depth)
            };
            instance = self.tell(instance, &entries, depth).await?;
        }
    }

    async fn flush_now(&self) -> Result<Result<(), crate::bindings::dsh::llm::llm_types::Failure>, Fault> {
        let (again, kept) = {
            let mut observing = self.observing();
            if observing.closed || observing.busy {
                // Busy: somebody flushes from inside a notification. Its entries are told and flushed at the next turn's end.
                return Ok(Ok(()));
            }
            observing.busy = true;
            (observing.take_missed(), observing.since_flush.len())
        };
        let busy = Busy { attachment: self, put_back: false };
        let terms = Terms::new(&self.mold.core, Call::new(Seam::Flush), false, None);
        let mut instance = self.observing_instance(&terms).await?;
        if !again.is_empty() && self.mold.rooms.has(Seam::Observer) {
            instance = self.tell(instance, &again, 0).await?;
        }
        let flushed = self.mold.call(self.mold.arm(instance, terms), |mut it| async move {
            let Instance { store, guests, .. } = &mut *it;
            let answer = guest(&guests.flush).call_flush(store).await;
            (it, answer)
        });
        let Returned { value, mut instance, metered, .. } = flushed.await?;
        metered.answered(value.as_ref());
        let (changes, depth) = self.changes(&mut instance, value.is_ok());
        if value.is_ok() {
            let mut observing = self.observing();
            let told = kept.min(observing.since_flush.len());
            observing.since_flush.drain(..told);
        }
        self.commit(changes, depth).await?;
        self.work_off(instance, busy).await?;
        Ok(value)
    }
}

#[async_trait]
impl Observer for Attachment {
    fn kinds(&self) -> &[String] {
        &self.kinds
    }

    async fn on_entries(&self, entries: &[Arc<Entry>], depth: u32) -> Result<(), PluginError> {
        self.observe(entries, depth).await.map_err(|fault| self.error(Seam::Observer, fault))
    }
}

#[async_trait]
impl Flush for Attachment {
    async fn flush(&self) -> Result<(), FlushError> {
        match self.flush_now().await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failure)) => {
                let failure = convert::failure_in(failure);
                Err(FlushError::Refused { plugin: self.mold.core.name.clone(), failure })
            }
            Err(fault) => Err(FlushError::Plugin(self.error(Seam::Flush, fault))),
        }
    }
}
