//! The one way into a session's log: append, show, let observers see.
//!
//! An append is a completed write before anybody goes on. Then, in this order: the durable event and its live twin are emitted, each
//! observer that asked for it is awaited in plugin order, and whoever waits for the event to settle is awaited.
//!
//! `observers` lets observers see, `settling` waits for whoever waits for an event, `place` is the log as tools and listeners see it.

mod observers;
mod place;
mod settling;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::event::{Emitted, Entry, ErrorEvent, Event, LiveEvent};
use dsh_seam::failure::Failure;
use dsh_seam::ids::AgentInfo;
use dsh_seam::plugin::EventSink;
use dsh_seam::services::Clock;
use dsh_seam::session::SessionWriter;
use dsh_seam::waterfall::RunError;
use futures::future::BoxFuture;

use crate::log_state::LogState;
use crate::options::{Deadlines, Durability};
use crate::sync::{Mutex, MutexGuard};
use crate::under_way::UnderWay;
use observers::Watcher;
use settling::Unsettled;

/// How deep observers may append from inside notifications: enough for a chain of plugins, an end for a loop of them.
pub(crate) const MAX_DEPTH: u32 = 8;
/// The code of the failure after which a session takes no more.
pub(crate) const WRITE_FAILED: &str = "session-write-failed";
/// The code of the failure with which an entry is refused that is too large.
pub(crate) const TOO_LARGE: &str = "entry-too-large";

/// The log of one agent.
pub(crate) struct Journal {
    pub(crate) info: AgentInfo,
    writer: tokio::sync::Mutex<Box<dyn SessionWriter>>,
    state: Mutex<LogState>,
    dead: AtomicBool,
    sealed: AtomicBool,
    clock: Arc<dyn Clock>,
    events: Arc<dyn EventSink>,
    /// Not a lock of `sync.rs`: written when the agent is made and between two turns.
    observers: RwLock<Arc<[Arc<Watcher>]>>,
    unsettled: Unsettled,
    /// Entries that are shown on tasks of their own.
    shows: UnderWay,
    /// What somebody who is gone has begun in the log, while it is ended.
    owed: UnderWay,
    /// The next sequence number when the log was last made durable.
    durable: AtomicU64,
    on_dead: OnceLock<Box<dyn Fn() + Send + Sync>>,
    durability: Durability,
    deadlines: Deadlines,
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
            observers: RwLock::default(),
            unsettled: Unsettled::default(),
            shows: UnderWay::default(),
            owed: UnderWay::default(),
            durable,
            on_dead: OnceLock::new(),
            durability,
            deadlines,
        }
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
        let show = self.shows.begin();
        let entry = self.write(event, depth, true).await?;
        let (journal, shown) = (self.clone(), entry.clone());
        self.whole(async move { journal.show(&shown, depth, true).await }).await;
        drop(show);
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

/// A duration for a person.
pub(crate) fn in_words(duration: Duration) -> String {
    format!("{} ms", duration.as_millis())
}
