//! What the driver, the handle and the plugins' contexts share, and the small moves that more than one of them makes.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, PoisonError};

use dsh_seam::event::{CompactionApplied, ErrorEvent, Event, LiveEvent, Status, UserMessage, WaterfallChanged};
use dsh_seam::failure::{Failure, Seam};
use dsh_seam::ids::{AgentInfo, PluginName, StepRef};
use dsh_seam::message::ToolSchema;
use dsh_seam::plugin::{Attached, Lifecycle, Plugin};
use dsh_seam::services::Services;
use dsh_seam::session::{Flush, RegisteredSections};
use dsh_seam::tools::{AgentTools, Approvals, ToolDefinition};
use dsh_seam::waterfall::{Change, Registered, RunError};
use dsh_seam::waterfalls::{Request, RequestError, StepResult, TurnContinuation};
use tokio::sync::{Notify, RwLock};
use tokio_util::sync::CancellationToken;

use crate::frames::Frames;
use crate::inbox::{Inbox, MAX_BYTES, MAX_MESSAGES};
use crate::journal::{Journal, TOO_LARGE};
use crate::options::{AgentOptions, Text};
use crate::queued::Queued;
use crate::stop::{Stop, guarded};
use crate::subagents::{Children, Inherited};
use crate::sync::{Mutex, MutexGuard};
use crate::turn_token::TurnToken;

/// One agent, as its driver and all handles share it.
pub(crate) struct Core {
    pub(crate) info: AgentInfo,
    pub(crate) options: AgentOptions,
    pub(crate) system_suffix: Text,
    pub(crate) services: Services,
    pub(crate) plugins: Arc<[Arc<dyn Plugin>]>,
    /// What it has from its parent, when an agent made it.
    pub(crate) inherited: Option<Inherited>,
    pub(crate) children: Children,
    pub(crate) journal: Arc<Journal>,
    pub(crate) inbox: Inbox,
    pub(crate) seams: OnceLock<Seams>,
    pub(crate) contexts: Contexts,
    pub(crate) frames: Frames,
    pub(crate) schemas: Mutex<Option<Schemas>>,
    /// The next sequence number when the plugins were last asked to flush.
    pub(crate) flushed: AtomicU64,
    /// Cancelled when the agent is disposed.
    pub(crate) life: CancellationToken,
    /// Read by each call outside of any turn while it runs; written by whoever waits for their end.
    pub(crate) outside: RwLock<()>,
}

/// The tools as the model is told of them, with the definitions that they were made of.
pub(crate) struct Schemas {
    of: Arc<[ToolDefinition]>,
    schemas: Arc<[ToolSchema]>,
}

/// The plugins' parts in one agent's life, in plugin order.
pub(crate) struct Seams {
    pub(crate) request: Arc<[Registered<Request>]>,
    pub(crate) request_error: Arc<[Registered<RequestError>]>,
    pub(crate) step_result: Arc<[Registered<StepResult>]>,
    pub(crate) turn_continuation: Arc<[Registered<TurnContinuation>]>,
    pub(crate) sections: Vec<RegisteredSections>,
    pub(crate) flushes: Vec<(PluginName, Arc<dyn Flush>)>,
    pub(crate) lifecycles: Vec<Arc<dyn Lifecycle>>,
    pub(crate) order: Vec<PluginName>,
    pub(crate) tools: Arc<dyn AgentTools>,
    pub(crate) approvals: Arc<dyn Approvals>,
    /// Dropped at the end: what the plugins keep for this agent.
    pub(crate) _attached: Vec<Attached>,
}

impl Core {
    /// The plugins' parts; there from the moment the agent is visible to anyone.
    pub(crate) fn seams(&self) -> &Seams {
        self.seams
            .get()
            .expect("invariant: set by `AgentLoop::create` before the driver starts and before the agent is returned")
    }

    /// Takes context in: held while a step is open, logged at once otherwise, and made durable while no turn is open.
    pub(crate) async fn inject(&self, message: Queued) -> Result<(), Failure> {
        if self.inbox.status() == Status::Disposed {
            return Err(Failure::new("disposed", "the agent is disposed and takes no more messages"));
        }
        let Some(entered) = self.contexts.enter(&message)? else { return Ok(()) };
        let (content, source) = message.into_parts();
        let event = Event::ContextMessage(UserMessage { content, source });
        self.journal.append_whole(event, 0).await.map_err(|error| error.to_failure())?;
        drop(entered);
        if self.inbox.status() == Status::Idle {
            self.journal.flush().await.map_err(|message| Failure::new("flush-failed", message))?;
        }
        Ok(())
    }

    /// Logs the context that is held for the end of the open step, which closes here.
    pub(crate) async fn log_held(&self) -> Result<(), RunError> {
        while let Some(message) = self.contexts.next_or_close() {
            let (content, source) = message.into_parts();
            let event = Event::ContextMessage(UserMessage { content, source });
            self.log_message(event, || self.contexts.taken()).await?;
        }
        Ok(())
    }

    /// Logs a message that was taken in; `taken` takes it off where it waits. One that the log refuses as too large is lost: it is
    /// counted and said, and what comes after it goes on. Returns whether it is in the log.
    pub(crate) async fn log_message(&self, event: Event, mut taken: impl FnMut()) -> Result<bool, RunError> {
        match self.journal.append_then(event, &mut taken).await {
            Err(RunError::Host(failure)) if failure.code == TOO_LARGE => {
                taken();
                self.inbox.lose();
                let StepRef { turn, step } = self.journal.state().at();
                let Failure { code, message, .. } = failure;
                self.live(LiveEvent::AgentError(ErrorEvent { turn, step, message, code, plugin: None })).await;
                Ok(false)
            }
            logged => logged.map(|()| true),
        }
    }

    /// Logs who changed what in a waterfall.
    pub(crate) async fn log_changes(&self, at: StepRef, waterfall: Seam, changes: Vec<Change>) -> Result<(), RunError> {
        for Change { plugin, what } in changes {
            self.journal
                .append(Event::WaterfallChanged(WaterfallChanged {
                    turn: at.turn,
                    step: at.step,
                    waterfall,
                    plugin,
                    call_id: None,
                    what,
                }))
                .await?;
        }
        Ok(())
    }

    /// Logs the compactions of a waterfall, in the order made.
    pub(crate) async fn log_compactions(
        &self,
        at: StepRef,
        compactions: Vec<dsh_seam::draft::Compaction>,
    ) -> Result<(), RunError> {
        for compaction in compactions {
            let dsh_seam::draft::Compaction { plugin, start, count, replacement } = compaction;
            self.journal
                .append(Event::CompactionApplied(CompactionApplied {
                    turn: at.turn,
                    step: at.step,
                    start,
                    count,
                    replacement,
                    plugin,
                }))
                .await?;
        }
        Ok(())
    }

    /// Changes of a draft as one line per plugin, in configuration order.
    pub(crate) fn in_plugin_order(&self, changes: Vec<(PluginName, dsh_seam::event::ChangeKind)>) -> Vec<Change> {
        let mut ordered: Vec<Change> = Vec::new();
        for plugin in &self.seams().order {
            let what: Vec<_> = changes.iter().filter(|(by, _)| by == plugin).map(|(_, kind)| *kind).collect();
            if !what.is_empty() {
                ordered.push(Change { plugin: plugin.clone(), what });
            }
        }
        ordered
    }

    /// The open turn's token, if one is open.
    pub(crate) fn token(&self) -> Option<Arc<TurnToken>> {
        self.inbox.token()
    }

    /// The cancellation of the open turn, or of the agent's whole life while none is open.
    pub(crate) fn cancellation(&self) -> CancellationToken {
        self.token().map_or_else(|| self.life.clone(), |token| token.token().clone())
    }

    /// The tools as the model is told of them; made anew only when they changed.
    pub(crate) fn tool_schemas(&self) -> Arc<[ToolSchema]> {
        let definitions = self.seams().tools.definitions();
        let mut known = self.schemas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Schemas { of, schemas }) = &*known
            && Arc::ptr_eq(of, &definitions)
        {
            return schemas.clone();
        }
        let schema = |tool: &ToolDefinition| ToolSchema {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            strict: None,
        };
        let schemas: Arc<[ToolSchema]> = definitions.iter().map(schema).collect();
        *known = Some(Schemas { of: definitions, schemas: schemas.clone() });
        schemas
    }

    /// Awaits `work` for the open turn, unless its token is cancelled first; what is emitted meanwhile settles. After a cancellation,
    /// what the dropped work had begun in the log is done when this returns.
    pub(crate) async fn guarded<T>(&self, token: &TurnToken, work: impl Future<Output = T>) -> Result<T, Stop> {
        let done = self.journal.settling(guarded(token.token(), work)).await;
        if done.is_err() {
            self.journal.until_done().await;
        }
        done
    }

    /// Emits a live event and waits until it has settled.
    pub(crate) async fn live(&self, event: LiveEvent) {
        self.journal.live(event).await;
    }
}

/// Context that waits for the end of the open step, and the gate that keeps it out of one.
#[derive(Default)]
pub(crate) struct Contexts {
    inner: Mutex<Gate>,
    left: Notify,
}

#[derive(Default)]
struct Gate {
    step_open: bool,
    held: VecDeque<Queued>,
    /// Messages and bytes taken in since the last step closed.
    taken: usize,
    bytes: usize,
    /// Context being logged right now, outside of a step.
    in_flight: u32,
}

impl Contexts {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `message` for the open step's end; otherwise the caller logs it while it holds what this returns. Refused beyond the
    /// bounds of the inbox: observers that answer context with context would never end.
    fn enter(&self, message: &Queued) -> Result<Option<Entered<'_>>, Failure> {
        let mut gate = self.gate();
        let bytes = gate.bytes + message.bytes();
        if gate.taken >= MAX_MESSAGES || bytes > MAX_BYTES {
            return Err(Failure::new(
                "limit",
                format!(
                    "too much context: at most {MAX_MESSAGES} messages and {MAX_BYTES} bytes are taken until a step ends"
                ),
            ));
        }
        gate.taken += 1;
        gate.bytes = bytes;
        if gate.step_open {
            gate.held.push_back(message.clone());
            return Ok(None);
        }
        gate.in_flight += 1;
        Ok(Some(Entered(self)))
    }

    /// A step opens: from here on context is held. Waits for what is being logged, so that nothing lands between a call and its result.
    pub(crate) async fn step_opens(&self) {
        self.gate().step_open = true;
        loop {
            let left = self.left.notified();
            if self.gate().in_flight == 0 {
                return;
            }
            left.await;
        }
    }

    /// The next one held, or the step's end when there is none.
    fn next_or_close(&self) -> Option<Queued> {
        let mut gate = self.gate();
        let next = gate.held.front().cloned();
        if next.is_none() {
            (gate.step_open, gate.taken, gate.bytes) = (false, 0, 0);
        }
        next
    }

    /// The next one is in the log, or known to be lost.
    fn taken(&self) {
        self.gate().held.pop_front();
    }

    /// How many are held for a step that will not end any more: the log takes no more.
    pub(crate) fn left(&self) -> usize {
        self.gate().held.len()
    }
}

/// Context that is being logged outside of a step; a step that opens waits until this is dropped.
struct Entered<'a>(&'a Contexts);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.gate().in_flight -= 1;
        self.0.left.notify_waiters();
    }
}
