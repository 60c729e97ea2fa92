//! Agents from the outside: the loop that makes them, the handle to one, and its owner.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use dsh_seam::event::{AgentCreated, Event, LiveEvent, Source, Status};
use dsh_seam::failure::Failure;
use dsh_seam::ids::{AgentId, AgentInfo, SessionId};
use dsh_seam::message::{ContentBlock, ToolCall};
use dsh_seam::plugin::Plugin;
use dsh_seam::services::{Registration, Services};
use dsh_seam::session::{NewSession, OpenSession, SessionWriter, SharedReplay};
use dsh_seam::tools::{Dispatch, ToolDefinition};
use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::ending;
use crate::frames::Frames;
use crate::held::HeldContext;
use crate::inbox::Inbox;
use crate::journal::Journal;
use crate::log_state::LogState;
use crate::options::{AgentOptions, CreateError, SessionChoice};
use crate::queued::Queued;
use crate::repair::{self, Cut};
use crate::seams::{PluginList, PluginSet};
use crate::subagents::{Children, Inherited};
use crate::sync::{Mutex, spawn};

/// Makes agents out of services and plugins.
#[derive(Clone)]
pub struct AgentLoop {
    services: Services,
    plugins: PluginSet,
}

impl AgentLoop {
    /// `plugins` in waterfall order, the first outermost.
    pub fn new(services: Services, plugins: Vec<Arc<dyn Plugin>>) -> Self {
        Self::of(services, plugins.into())
    }

    /// The same with plugins that are shared already.
    pub(crate) fn of(services: Services, plugins: PluginList) -> Self {
        Self { services, plugins: PluginSet::new(plugins) }
    }

    /// Puts each of `versions` in the place of the plugin with its name, in every agent of this loop: in one that is made from now on at
    /// once, in others at their next turn, which logs `plugin/reloaded` first. A turn under way and its sub-agents keep what they began
    /// with. Their tools must go together with those of the other plugins; when they do not, nothing of it happens and it is said.
    pub fn exchange(&self, versions: &[Arc<dyn Plugin>]) {
        self.plugins.exchange(versions);
    }

    /// Opens or makes the session, attaches the plugins, registers the agent, repairs the session's open turn if it has one, and
    /// starts the driver. When it fails, nothing is left behind.
    ///
    /// Dropped on the way it leaves nothing behind either, but `agent/created` may have been shown without an `agent/disposed`.
    pub async fn create(&self, id: AgentId, options: AgentOptions) -> Result<AgentOwner, CreateError> {
        self.create_with(id, options, None).await
    }

    /// The same for a sub-agent, which has no more than its parent gives.
    pub(crate) async fn create_with(
        &self,
        id: AgentId,
        options: AgentOptions,
        inherited: Option<Inherited>,
    ) -> Result<AgentOwner, CreateError> {
        let registration = self.services.agents.register(&id)?;
        let state: Arc<std::sync::Mutex<LogState>> = Arc::default();
        let parent = inherited.as_ref().map(|inherited| inherited.session.clone());
        let session = self.open_session(&id, &options, parent, state.clone()).await?;
        let state = std::mem::take(&mut *state.lock().unwrap_or_else(PoisonError::into_inner));
        for notice in &session.notices {
            tracing::warn!("{notice}");
        }
        let info = AgentInfo { agent: id, session: session.header.id.clone(), lineage: options.lineage.clone() };
        let core = self.core(info, options, (session.writer, state), inherited);
        core.attach().map_err(CreateError::Tools)?;
        // Context that comes during the repair waits for the end of the step, as it does while a step runs.
        if core.journal.state().open.as_ref().is_some_and(|turn| turn.step.is_some()) {
            core.held.step_opens().await;
        }
        let created = AgentCreated {
            model: core.options.model.as_ref().map(ToString::to_string),
            lineage: core.info.lineage.clone(),
        };
        core.live(LiveEvent::AgentCreated(created)).await;
        let owed = repair::owed(&core.journal.state(), Cut::Process);
        if !owed.is_empty() && !matches!(core.options.session, SessionChoice::Fork { .. }) {
            tracing::warn!("session `{}` was interrupted: {}", core.info.session, repair::told(&owed));
        }
        for event in owed {
            if matches!(event, Event::StepEnd(_)) {
                // A failed append is reported by the next one.
                let _ = core.log_held().await;
            }
            if let Err(error) = core.journal.append_at(event, 0, false).await {
                ending::end(&core, registration).await;
                return Err(CreateError::Write(error.to_string()));
            }
        }
        Ok(start(core, registration))
    }

    /// What the session holds already is folded into `replay`.
    async fn open_session(
        &self,
        id: &AgentId,
        options: &AgentOptions,
        parent: Option<SessionId>,
        replay: SharedReplay,
    ) -> Result<OpenSession, CreateError> {
        let sessions = &self.services.sessions;
        let new = |id: Option<SessionId>, agent: &AgentId| NewSession {
            id,
            agent: agent.clone(),
            workspace: options.workspace.clone(),
            model: options.model.as_ref().map(ToString::to_string),
            lineage: options.lineage.clone(),
            parent: parent.clone(),
        };
        Ok(match &options.session {
            SessionChoice::New => sessions.create(new(None, id)).await?,
            SessionChoice::Named(session) => sessions.create(new(Some(session.clone()), id)).await?,
            SessionChoice::Resume(session) => sessions.open(session, id, replay).await?,
            SessionChoice::Continue => {
                sessions.open(&sessions.newest(id, &options.workspace).await?, id, replay).await?
            }
            SessionChoice::Fork { id: session, at } => {
                sessions.fork(session, *at, id, &options.lineage, replay).await?
            }
        })
    }

    fn core(
        &self,
        info: AgentInfo,
        options: AgentOptions,
        (writer, state): (Box<dyn SessionWriter>, LogState),
        inherited: Option<Inherited>,
    ) -> Arc<Core> {
        let (owed, next_seq) = (!state.unanswered.is_empty(), state.next_seq);
        let services = self.services.clone();
        let journal = Journal::new(
            info.clone(),
            writer,
            state,
            services.clock.clone(),
            services.events.clone(),
            options.durability,
            options.deadlines,
        );
        let journal = Arc::new(journal);
        let to_journal = journal.clone();
        let inbox = Inbox::new(
            options.queue_mode,
            options.max_turns,
            owed,
            options.held,
            Box::new(move |event| to_journal.live_later(event)),
        )
        .below(inherited.as_ref().map(|inherited| inherited.above.clone()))
        .within(services.budget.clone());
        let core = Arc::new(Core {
            info,
            system_suffix: options.system_prompt.as_str().into(),
            frames: Frames::new(options.sampling.clone()),
            options,
            services,
            plugins: self.plugins.clone(),
            inherited,
            children: Children::default(),
            journal,
            inbox,
            seams: std::sync::RwLock::default(),
            held: HeldContext::default(),
            schemas: Mutex::default(),
            flushed: AtomicU64::new(next_seq),
            life: CancellationToken::new(),
            outside: RwLock::default(),
        });
        let weak = Arc::downgrade(&core);
        core.journal.when_dead(move || {
            if let Some(core) = weak.upgrade() {
                core.dispose("session-write-failed");
            }
        });
        core
    }
}

/// Starts the driver and what waits for its end.
fn start(core: Arc<Core>, registration: Registration) -> AgentOwner {
    let done = watch::Sender::new(false);
    let agent = Arc::new(LoopAgent { core: core.clone(), done: done.clone(), outside_calls: AtomicU32::new(0) });
    spawn(ending::supervise(core, registration, done));
    AgentOwner { agent }
}

/// A handle to an agent. Whoever wants work done sends it a message; nobody calls the driver.
pub struct LoopAgent {
    core: Arc<Core>,
    done: watch::Sender<bool>,
    outside_calls: AtomicU32,
}

impl LoopAgent {
    /// Its id.
    pub fn id(&self) -> &AgentId {
        &self.core.info.agent
    }

    /// Its session.
    pub fn session(&self) -> &SessionId {
        &self.core.info.session
    }

    /// Its status.
    pub fn status(&self) -> Status {
        self.core.inbox.status()
    }

    /// Lets a held driver take its first message.
    pub fn release(&self) {
        self.core.inbox.release();
    }

    /// A message for the next turn. Fails when it says nothing, is too large, the inbox is full or the agent is disposed.
    pub fn send(&self, content: Vec<ContentBlock>, source: Source) -> Result<(), Failure> {
        self.enqueue(Queued::new(content, source)?)
    }

    /// The same with a message that was checked already.
    pub(crate) fn enqueue(&self, message: Queued) -> Result<(), Failure> {
        self.nudged(self.core.inbox.enqueue(message))
    }

    /// A message for the running turn, read at its next drain; while none is open, the same as [`LoopAgent::send`].
    pub fn steer(&self, content: Vec<ContentBlock>, source: Source) -> Result<(), Failure> {
        self.nudged(self.core.inbox.steer(Queued::new(content, source)?))
    }

    /// Context for the next request; never starts a turn. While a step is open it is held until the step ends; while no turn is open it
    /// is durable when this returns.
    ///
    /// Cancel safe: dropped, the context is in the log or held as a whole, or not at all; in the log it may not be durable yet.
    pub async fn inject(&self, content: Vec<ContentBlock>, source: Source) -> Result<(), Failure> {
        self.core.inject(Queued::new(content, source)?).await
    }

    /// Ends the open turn; while none is open, nothing.
    pub fn abort(&self, reason: &str) {
        self.core.inbox.abort(reason);
    }

    /// Ends the open turn and, unless `keep_inbox`, throws away what is queued.
    pub fn cancel(&self, keep_inbox: bool) {
        self.core.inbox.cancel(keep_inbox);
        self.core.inbox.nudge();
    }

    /// Ends the agent and waits until nothing of it is left. Idempotent; concurrent callers share one chain.
    ///
    /// Cancel safe: the chain goes on without its caller. Must not be awaited from inside an event of the same agent; use
    /// [`LoopAgent::start_dispose`] there.
    pub async fn dispose(&self, reason: &str) {
        self.start_dispose(reason);
        // The sender is a field of `self`, so waiting cannot fail.
        let _ = self.done.subscribe().wait_for(|done| *done).await;
    }

    /// Starts the same and returns at once.
    pub fn start_dispose(&self, reason: &str) {
        self.core.dispose(reason);
    }

    /// Returns when the agent is idle with nothing queued, or disposed. Cancel safe.
    pub async fn idle(&self) {
        self.core.inbox.quiet().await;
    }

    /// Whether messages wait: queued ones, or unanswered ones of a resumed session.
    pub fn has_pending(&self) -> bool {
        self.core.inbox.has_pending()
    }

    /// The agent's tools, in the order the model sees them.
    pub fn tools(&self) -> Arc<[ToolDefinition]> {
        self.core.seams().tools.definitions()
    }

    /// Which plugin provides a tool.
    pub fn tool_info(&self, name: &str) -> Option<dsh_seam::tools::ToolInfo> {
        self.core.seams().tools.find(name)
    }

    /// One tool call outside of any turn, through the whole waterfall and all guards: turn 0, step 0.
    ///
    /// Not cancel safe: a call whose `tool/call` is in the log gets no `tool/result` any more. Dispose the agent to stop one.
    pub async fn call_tool(&self, name: &str, arguments: &str) -> Result<Dispatch, Failure> {
        let n = self.outside_calls.fetch_add(1, Ordering::Relaxed) + 1;
        let call = ToolCall {
            id: format!("call_0_0_{n}"),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            opaque: None,
        };
        let outcome = self.core.call_outside(call, &self.core.life).await;
        self.core.seams().turn_ended();
        outcome.map_err(|error| error.to_failure())
    }

    /// The driver settles what was emitted where nothing could be awaited.
    fn nudged(&self, result: Result<(), Failure>) -> Result<(), Failure> {
        if result.is_ok() {
            self.core.inbox.nudge();
        }
        result
    }
}

/// Owns an agent: when it is dropped, the agent is disposed in the background.
pub struct AgentOwner {
    agent: Arc<LoopAgent>,
}

impl AgentOwner {
    /// A handle that does not keep the agent alive by itself.
    pub fn agent(&self) -> Arc<LoopAgent> {
        self.agent.clone()
    }
}

impl Deref for AgentOwner {
    type Target = LoopAgent;

    fn deref(&self) -> &LoopAgent {
        &self.agent
    }
}

impl Drop for AgentOwner {
    fn drop(&mut self) {
        self.agent.start_dispose("owner dropped");
    }
}
