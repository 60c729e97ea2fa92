//! Waits for whoever waits for an event: a command for an event comes before the driver does anything else.

use std::pin::pin;
use std::sync::{Arc, PoisonError};

use dsh_seam::event::{Emitted, LiveEvent};
use tokio::sync::Notify;

use super::Journal;
use crate::sync::{Mutex, MutexGuard, joined, spawn};
use crate::under_way::in_time;

/// Events that were emitted where nothing could be awaited.
#[derive(Default)]
pub(super) struct Unsettled {
    events: Mutex<Vec<Emitted>>,
    /// Wakes whoever settles them.
    news: Notify,
}

impl Unsettled {
    fn events(&self) -> MutexGuard<'_, Vec<Emitted>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal {
    /// Emits a live event and waits until it has settled.
    pub(crate) async fn live(&self, event: LiveEvent) {
        let emitted = self.emitted(event);
        self.events.emit(&emitted);
        self.events.settled(&emitted).await;
    }

    /// Emits a live event from where nothing can be awaited; it settles before the driver does anything else.
    pub(crate) fn live_later(&self, event: LiveEvent) {
        let emitted = self.emitted(event);
        self.events.emit(&emitted);
        self.unsettled.events().push(emitted);
        self.unsettled.news.notify_waiters();
    }

    /// Awaits `work`, and meanwhile settles what is emitted: a command that waits for such an event reaches the tool, the stream or the
    /// listener that the driver waits for.
    pub(crate) async fn settling<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let news = self.unsettled.news.notified();
            let mut done = None;
            if self.has_unsettled() {
                let mut settled = pin!(self.settle_pending());
                loop {
                    tokio::select! {
                        biased;
                        () = &mut settled => break,
                        // A command that is applied may wait for what the work holds.
                        ended = &mut work, if done.is_none() => done = Some(ended),
                    }
                }
            }
            if let Some(done) = done {
                return done;
            }
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = news => {}
            }
        }
    }

    fn has_unsettled(&self) -> bool {
        !self.unsettled.events().is_empty()
    }

    /// Whether an event has not settled yet.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.has_unsettled() || !self.shows.is_over()
    }

    /// Settles what was emitted by [`Journal::live_later`] and nobody settles yet.
    pub(crate) async fn settle_pending(&self) {
        loop {
            let pending = std::mem::take(&mut *self.unsettled.events());
            if pending.is_empty() {
                return;
            }
            for emitted in &pending {
                self.events.settled(emitted).await;
            }
        }
    }

    /// Waits until everything has settled, whoever settles it. For the driver only: an event settles in what this waits for.
    pub(crate) async fn settle_all(&self) {
        loop {
            self.settle_pending().await;
            if self.shows.is_over() {
                return;
            }
            if !self.in_time(self.shows.over()).await {
                return;
            }
        }
    }

    /// Runs `work` to its end, also when whoever waits for it is dropped; then the driver waits for it, see [`Journal::until_done`].
    pub(crate) async fn whole<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let show = self.shows.begin();
        let task = spawn(async move {
            let done = work.await;
            drop(show);
            done
        });
        match joined(task.await) {
            Some(done) => done,
            // The runtime shuts down; nothing is polled again.
            None => std::future::pending().await,
        }
    }

    /// Waits for the work that nobody waits for any more: what was begun by a listener that an abort dropped.
    pub(crate) async fn until_done(&self) {
        if self.owed.is_over() && self.shows.is_over() {
            return;
        }
        self.in_time(async {
            self.owed.over().await;
            self.shows.over().await;
        })
        .await;
    }

    /// Waits for observers and commands, no longer than a dispose may take; whether they ended.
    async fn in_time(&self, work: impl Future<Output = ()>) -> bool {
        in_time(self.deadlines.dispose, "an observer or a command", work).await
    }
}
