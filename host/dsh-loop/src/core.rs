//! What the driver, the handle and the plugins' contexts share, and the small moves that more than one of them makes.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError};

use dsh_seam::draft::Compaction;
use dsh_seam::event::{ChangeKind, CompactionApplied, ErrorEvent, Event, LiveEvent, WaterfallChanged};
use dsh_seam::failure::{Failure, Seam};
use dsh_seam::ids::{AgentInfo, PluginName, StepRef};
use dsh_seam::message::ToolSchema;
use dsh_seam::services::Services;
use dsh_seam::tools::ToolDefinition;
use dsh_seam::waterfall::{Change, RunError};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use crate::frames::Frames;
use crate::held::HeldContext;
use crate::inbox::Inbox;
use crate::journal::{Journal, TOO_LARGE};
use crate::options::{AgentOptions, Text};
use crate::seams::{PluginSet, Seams};
use crate::stop::{Stop, guarded};
use crate::subagents::{Children, Inherited};
use crate::sync::Mutex;
use crate::turn_token::TurnToken;

/// One agent, as its driver and all handles share it.
pub(crate) struct Core {
    pub(crate) info: AgentInfo,
    pub(crate) options: AgentOptions,
    pub(crate) system_suffix: Text,
    pub(crate) services: Services,
    /// What the plugins are to be from the next turn on.
    pub(crate) plugins: PluginSet,
    /// What it has from its parent, when an agent made it.
    pub(crate) inherited: Option<Inherited>,
    pub(crate) children: Children,
    pub(crate) journal: Arc<Journal>,
    pub(crate) inbox: Inbox,
    /// Not a lock of `sync.rs`: written when the agent is made and between two turns, by whoever is alone then.
    pub(crate) seams: std::sync::RwLock<Option<Arc<Seams>>>,
    pub(crate) held: HeldContext,
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

impl Core {
    /// The plugins' parts as they are now; there from the moment the agent is visible to anyone. Within a turn they stay the same.
    pub(crate) fn seams(&self) -> Arc<Seams> {
        let seams = self.seams.read().unwrap_or_else(PoisonError::into_inner).clone();
        seams.expect("invariant: set by `AgentLoop::create` before the driver starts and before the agent is returned")
    }

    pub(crate) fn set_seams(&self, seams: Seams) {
        *self.seams.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(seams));
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
    pub(crate) async fn log_compactions(&self, at: StepRef, compactions: Vec<Compaction>) -> Result<(), RunError> {
        for compaction in compactions {
            let Compaction { plugin, start, count, replacement } = compaction;
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
    pub(crate) fn in_plugin_order(&self, changes: Vec<(PluginName, ChangeKind)>) -> Vec<Change> {
        let mut ordered: Vec<Change> = Vec::new();
        let seams = self.seams();
        for plugin in &seams.order {
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

    /// Whether the turn may begin anything more: it is not cancelled, and no budget of the run is used up.
    pub(crate) fn may_go_on(&self, token: &TurnToken) -> Result<(), Stop> {
        if token.token().is_cancelled() {
            return Err(Stop::Cancelled);
        }
        self.services.budget.used_up().map_or(Ok(()), |over| Err(Stop::out_of_budget(token, over)))
    }

    /// Whether what the turn did last was within the budgets of the run. What it did may have used up all of one, and nothing follows.
    pub(crate) fn within_budget(&self, token: &TurnToken) -> Result<(), Stop> {
        self.services.budget.exceeded().map_or(Ok(()), |over| Err(Stop::out_of_budget(token, over)))
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
