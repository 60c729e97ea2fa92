//! The one way into a session's log: append, show, let observers see.
//!
//! An append is a completed write before anybody goes on. Then, in this order: the durable event and its live twin are emitted, each
//! observer that asked for it is awaited in plugin order, and whoever waits for the event to settle is awaited. An observer can append
//! from inside a notification; how deep that goes is bounded.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::event::{Emitted, Entry, ErrorEvent, Event, LiveEvent, PluginFailed, ToolProgress};
use dsh_seam::failure::{Failure, FailureKind, PluginError, Seam};
use dsh_seam::ids::{AgentInfo, PluginName, StepRef};
use dsh_seam::plugin::EventSink;
use dsh_seam::services::Clock;
use dsh_seam::session::{Observer, SessionWriter, wants};
use dsh_seam::tools::{ToolEvent, ToolLog};
use dsh_seam::waterfall::{FailureReport, RunError};
use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};

use crate::log_state::LogState;
use crate::options::{Deadlines, Durability};
use crate::sync::{Mutex, MutexGuard, joined, spawn};

/// How deep observers may append from inside notifications: enough for a chain of plugins, an end for a loop of them.
pub(crate) const MAX_DEPTH: u32 = 8;
/// After so many failures in a row an observer is off for the run.
const MAX_OBSERVER_FAILURES: u32 = 3;
/// The code of the failure after which a session takes no more.
pub(crate) const WRITE_FAILED: &str = "session-write-failed";
/// The code of the failure with which an entry is refused that is too large.
pub(crate) const TOO_LARGE: &str = "limit";

/// The log of one agent.
pub(crate) struct Journal {
    pub(crate) info: AgentInfo,
    writer: tokio::sync::Mutex<Box<dyn SessionWriter>>,
    state: Mutex<LogState>,
    dead: AtomicBool,
    sealed: AtomicBool,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    observers: OnceLock<Vec<Watcher>>,
    /// Events that were emitted where nothing could be awaited.
    unsettled: Mutex<Vec<Emitted>>,
    /// Wakes the driver when an event waits to be settled.
    news: Notify,
    /// Work that goes on although whoever waited for it was dropped.
    under_way: watch::Sender<u32>,
    /// The next sequence number when the log was last made durable.
    durable: AtomicU64,
    on_dead: OnceLock<Box<dyn Fn() + Send + Sync>>,
    durability: Durability,
    deadlines: Deadlines,
}

/// One plugin's observer and how it fares.
struct Watcher {
    plugin: PluginName,
    observer: Arc<dyn Observer>,
    failures: AtomicU32,
    off: AtomicBool,
    /// Set while a notification is under way; what comes meanwhile waits in the backlog.
    busy: AtomicBool,
    backlog: Mutex<Vec<(Arc<Entry>, u32)>>,
}

impl Journal {
    pub(crate) fn new(
        info: AgentInfo,
        writer: Box<dyn SessionWriter>,
        state: LogState,
        clock: Arc<dyn Clock>,
        events: Arc<dyn EventSink>,
        durability: Durability,
        deadlines: Deadlines,
    ) -> Self {
        let durable = AtomicU64::new(state.next_seq);
        Self {
            info,
            writer: tokio::sync::Mutex::new(writer),
            state: Mutex::new(state),
            dead: AtomicBool::new(false),
            sealed: AtomicBool::new(false),
            clock,
            events,
            observers: OnceLock::new(),
            unsettled: Mutex::default(),
            news: Notify::new(),
            under_way: watch::Sender::new(0),
            durable,
            on_dead: OnceLock::new(),
            durability,
            deadlines,
        }
    }

    /// Names the observers, in plugin order; once.
    pub(crate) fn observe(&self, observers: Vec<(PluginName, Arc<dyn Observer>)>) {
        let watcher = |(plugin, observer)| Watcher {
            plugin,
            observer,
            failures: AtomicU32::new(0),
            off: AtomicBool::new(false),
            busy: AtomicBool::new(false),
            backlog: Mutex::default(),
        };
        let _ = self.observers.set(observers.into_iter().map(watcher).collect());
    }

    /// What to do when the log can no longer be written; once.
    pub(crate) fn when_dead(&self, then: impl Fn() + Send + Sync + 'static) {
        let _ = self.on_dead.set(Box::new(then));
    }

    /// What the log stands for. Never held over an await.
    pub(crate) fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an event of the driver.
    pub(crate) async fn append(&self, event: Event) -> Result<Arc<Entry>, RunError> {
        self.append_at(event, 0, true).await
    }

    /// Appends; `depth` is that of the notification it happens in, plus one. `twin` is false for a repair. An entry that is too large is
    /// refused with [`TOO_LARGE`]; any other failed write is final for the session.
    pub(crate) fn append_at(
        &self,
        event: Event,
        depth: u32,
        twin: bool,
    ) -> BoxFuture<'_, Result<Arc<Entry>, RunError>> {
        Box::pin(async move {
            let entry = self.write(event, depth, twin).await?;
            self.show(&entry, depth, twin).await;
            Ok(entry)
        })
    }

    /// The same; `written` is called once the event is in the log, before anybody sees it.
    pub(crate) async fn append_then(&self, event: Event, written: impl FnOnce()) -> Result<(), RunError> {
        let entry = self.write(event, 0, true).await?;
        written();
        self.show(&entry, 0, true).await;
        Ok(())
    }

    /// The same for whoever may be dropped while it waits: an abort drops a waterfall and with it a plugin in the middle of an append.
    /// What is in the log is shown on a task of its own, so that every observer has seen it and it has settled.
    pub(crate) async fn append_whole(self: &Arc<Self>, event: Event, depth: u32) -> Result<Arc<Entry>, RunError> {
        // From the write on, so that the end of the agent never comes between the two.
        let under_way = self.under_way();
        let entry = self.write(event, depth, true).await?;
        let (journal, shown) = (self.clone(), entry.clone());
        self.whole(async move { journal.show(&shown, depth, true).await }).await;
        drop(under_way);
        Ok(entry)
    }

    /// Puts an entry into the log and emits it. Cancel safe: nothing is awaited once it has begun.
    async fn write(&self, event: Event, depth: u32, twin: bool) -> Result<Arc<Entry>, RunError> {
        if depth >= MAX_DEPTH {
            let message = format!("observers append to what observers append, {MAX_DEPTH} deep");
            return Err(RunError::Host(Failure::new("too-deep", message)));
        }
        let mut writer = self.writer.lock().await;
        let entry = Arc::new(self.next_entry(event)?);
        match writer.append(&entry) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                let message = format!("`{}` was not logged: {error}", entry.event.kind());
                return Err(RunError::Host(Failure::new(TOO_LARGE, message)));
            }
            Err(error) => return Err(self.die(&error)),
        }
        let mut state = self.state();
        state.apply(&entry.event);
        state.last_time_ms = entry.time_ms;
        drop(state);
        self.events.emit(&Emitted::Durable(entry.clone()));
        if twin && entry.event.live_twin().is_some() {
            self.events.emit(&self.live_twin(&entry));
        }
        Ok(entry)
    }

    /// Lets observers see an entry, and whoever waits for it to settle.
    async fn show(&self, entry: &Arc<Entry>, depth: u32, twin: bool) {
        self.notify(entry, depth).await;
        self.events.settled(&Emitted::Durable(entry.clone())).await;
        if twin && entry.event.live_twin().is_some() {
            self.events.settled(&self.live_twin(entry)).await;
        }
        self.settle_pending().await;
    }

    fn next_entry(&self, event: Event) -> Result<Entry, RunError> {
        if self.dead.load(Ordering::Acquire) {
            return Err(RunError::Host(Failure::new(
                WRITE_FAILED,
                "the session takes no more entries since a write failed",
            )));
        }
        if self.sealed.load(Ordering::Acquire) {
            let message = "the agent is disposed and its session takes no more entries";
            return Err(RunError::Host(Failure::new("disposed", message)));
        }
        let state = self.state();
        let time_ms = self.clock.now_ms().max(state.last_time_ms);
        Ok(Entry {
            seq: state.next_seq,
            time_ms,
            session: self.info.session.clone(),
            agent: self.info.agent.clone(),
            event,
        })
    }

    /// A failed append is final for the session: report it once, then end the agent.
    fn die(&self, error: &std::io::Error) -> RunError {
        let failure =
            Failure::new(WRITE_FAILED, format!("the session `{}` could not be written: {error}", self.info.session));
        if !self.dead.swap(true, Ordering::AcqRel) {
            let at = self.state().at();
            self.live_later(LiveEvent::AgentError(ErrorEvent {
                turn: at.turn,
                step: at.step,
                message: failure.message.clone(),
                code: WRITE_FAILED.into(),
                plugin: None,
            }));
            if let Some(then) = self.on_dead.get() {
                then();
            }
        }
        RunError::Host(failure)
    }

    /// Whether the log can no longer be written.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    fn live_twin(&self, entry: &Arc<Entry>) -> Emitted {
        self.emitted(LiveEvent::Twin(entry.clone()))
    }

    fn emitted(&self, event: LiveEvent) -> Emitted {
        Emitted::Live { session: self.info.session.clone(), agent: self.info.agent.clone(), event: Arc::new(event) }
    }

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
        self.unsettled().push(emitted);
        self.news.notify_waiters();
    }

    fn unsettled(&self) -> MutexGuard<'_, Vec<Emitted>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Awaits `work`, and meanwhile settles what is emitted: a command that waits for such an event reaches the tool, the stream or the
    /// listener that the driver waits for.
    pub(crate) async fn settling<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let news = self.news.notified();
            self.settle_pending().await;
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = news => {}
            }
        }
    }

    /// Whether an event emitted by [`Journal::live_later`] has not settled yet.
    pub(crate) fn has_unsettled(&self) -> bool {
        !self.unsettled().is_empty()
    }

    /// Waits until every event emitted by [`Journal::live_later`] has settled.
    pub(crate) async fn settle_pending(&self) {
        loop {
            let pending = std::mem::take(&mut *self.unsettled());
            if pending.is_empty() {
                return;
            }
            for emitted in &pending {
                self.events.settled(emitted).await;
            }
        }
    }

    /// Runs `work` to its end, also when whoever waits for it is dropped; then the driver waits for it, see [`Journal::until_done`].
    pub(crate) async fn whole<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let under_way = self.under_way();
        let task = spawn(async move {
            let done = work.await;
            drop(under_way);
            done
        });
        match joined(task.await) {
            Some(done) => done,
            // The runtime shuts down; nothing is polled again.
            None => std::future::pending().await,
        }
    }

    fn under_way(self: &Arc<Self>) -> UnderWay {
        self.under_way.send_modify(|count| *count += 1);
        UnderWay(self.clone())
    }

    /// Waits for the work that nobody waits for any more: what was begun by a listener that an abort dropped.
    pub(crate) async fn until_done(&self) {
        // The sender is a field of `self`, so waiting cannot fail.
        let _ = self.under_way.subscribe().wait_for(|count| *count == 0).await;
    }

    async fn notify(&self, entry: &Arc<Entry>, depth: u32) {
        let Some(watchers) = self.observers.get() else { return };
        if watchers.is_empty() {
            return;
        }
        let kind = entry.event.kind();
        let author = entry.event.author();
        for watcher in watchers {
            if watcher.off.load(Ordering::Relaxed)
                || author == Some(watcher.plugin.as_str())
                || !wants(watcher.observer.kinds(), &kind)
            {
                continue;
            }
            watcher.backlog().push((entry.clone(), depth));
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
        tracing::warn!(plugin = %error.plugin, "{error}");
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
        let watchers = self.observers.get().map(Vec::as_slice).unwrap_or_default();
        watchers.iter().any(|watcher| watcher.plugin == *plugin && watcher.off.load(Ordering::Relaxed))
    }

    /// Makes the log durable, within the deadline for a flush; nothing when it is durable already.
    pub(crate) async fn flush(&self) -> Result<(), String> {
        let written = self.state().next_seq;
        if self.is_dead() || self.durable.load(Ordering::Acquire) == written {
            return Ok(());
        }
        let flush = async { self.writer.lock().await.flush().await };
        match tokio::time::timeout(self.deadlines.flush, flush).await {
            Ok(Ok(())) => {
                self.durable.store(written, Ordering::Release);
                Ok(())
            }
            Ok(Err(error)) => Err(format!("the session could not be flushed: {error}")),
            Err(_) => Err(format!("flushing the session took longer than {}", in_words(self.deadlines.flush))),
        }
    }

    /// Takes no more entries; what is in the log can still be shown and made durable.
    pub(crate) async fn seal(&self) {
        // A write that has begun is shown first.
        let _writing = self.writer.lock().await;
        self.sealed.store(true, Ordering::Release);
    }

    /// Lets go of the log: it can be opened by others, and takes no more entries. A write that hangs is waited for no longer than a
    /// flush; then the log is let go of when it returns.
    pub(crate) async fn close(&self) {
        self.dead.store(true, Ordering::Release);
        match tokio::time::timeout(self.deadlines.flush, self.writer.lock()).await {
            Ok(mut writer) => *writer = Box::new(Closed),
            Err(_) => tracing::error!(
                "a write to the session `{}` hangs; it stays locked until the write returns",
                self.info.session
            ),
        }
    }

    /// Reads entries back.
    pub(crate) async fn read(&self, start: u64, limit: u32, max_bytes: usize) -> std::io::Result<Vec<Entry>> {
        self.writer.lock().await.read(start, limit, max_bytes)
    }

    /// A log for what happens at one place of the agent's life.
    pub(crate) fn place(self: &Arc<Self>, at: StepRef, call_id: Option<String>) -> Arc<Place> {
        Arc::new(Place { journal: self.clone(), at, call_id })
    }
}

/// Work that goes on although whoever waited for it was dropped.
struct UnderWay(Arc<Journal>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

/// What is left of a log that was let go.
struct Closed;

#[async_trait]
impl SessionWriter for Closed {
    fn append(&mut self, _entry: &Entry) -> std::io::Result<()> {
        Err(std::io::Error::other("the session is closed"))
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    fn read(&mut self, _start: u64, _limit: u32, _max_bytes: usize) -> std::io::Result<Vec<Entry>> {
        Err(std::io::Error::other("the session is closed"))
    }
}

impl Watcher {
    fn backlog(&self) -> MutexGuard<'_, Vec<(Arc<Entry>, u32)>> {
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
        Some(backlog.remove(0))
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

/// A duration for a person.
pub(crate) fn in_words(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
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

fn failed_event(at: StepRef, call_id: Option<String>, error: &PluginError) -> Event {
    Event::PluginFailed(PluginFailed {
        turn: at.turn,
        step: at.step,
        call_id,
        plugin: error.plugin.clone(),
        seam: error.seam,
        kind: error.kind,
        message: error.message.clone(),
    })
}

/// The log as seen from one place: what is reported there carries its turn, step and call.
pub(crate) struct Place {
    journal: Arc<Journal>,
    at: StepRef,
    call_id: Option<String>,
}

#[async_trait]
impl FailureReport for Place {
    async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError> {
        self.journal.append_whole(failed_event(self.at, self.call_id.clone(), error), 0).await.map(drop)
    }
}

#[async_trait]
impl ToolLog for Place {
    async fn append(&self, event: ToolEvent) -> Result<(), RunError> {
        let event = match event {
            ToolEvent::Dispatched(data) => Event::ToolDispatched(data),
            ToolEvent::Asked(data) => Event::ApprovalAsked(data),
            ToolEvent::Decided(data) => Event::ApprovalDecided(data),
            ToolEvent::Changed(data) => Event::WaterfallChanged(data),
        };
        self.journal.append_whole(event, 0).await.map(drop)
    }

    fn remembers(&self, plugin: &PluginName, key: &str) -> bool {
        self.journal.state().remembers(plugin, key)
    }

    fn progress(&self, at: StepRef, call_id: &str, plugin: &PluginName, text: &str, fraction: Option<f32>) {
        let event = ToolProgress {
            turn: at.turn,
            step: at.step,
            call_id: call_id.to_owned(),
            plugin: plugin.clone(),
            text: text.to_owned(),
            fraction,
        };
        self.journal.live_later(LiveEvent::ToolProgress(event));
    }

    async fn before_tool(&self, read_only: bool) -> Result<(), RunError> {
        if read_only || self.journal.durability == Durability::Turn {
            return Ok(());
        }
        self.journal.flush().await.map_err(|message| RunError::Host(Failure::new("flush-failed", message)))
    }

    fn owe(&self, work: BoxFuture<'static, ()>) {
        let under_way = self.journal.under_way();
        spawn(async move {
            work.await;
            drop(under_way);
        });
    }

    fn for_call(&self, at: StepRef, call_id: &str) -> Arc<dyn ToolLog> {
        self.journal.place(at, Some(call_id.to_owned()))
    }
}
