//! The dispatcher: one call through the waterfall `tools/execute` and, innermost, to the tool.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::event::{ApprovalAnswer, ApprovalBy, ChangeKind, ToolDispatched, WaterfallChanged};
use dsh_seam::message::ToolCall;
use dsh_seam::tools::{
    AgentTools, ApprovalRequest, Approvals, Dispatch, Outcome, Processes, Profile, RegisteredGuard, ToolContext,
    ToolDefinition, ToolEvent, ToolInfo, ToolLog, ToolSetup,
};
use dsh_seam::waterfall::{Chain, Change, FailureReport, Innermost, Registered, RunContext, RunError};
use dsh_seam::waterfalls::{ExecuteContext, Execution, ToolsExecute};
use dsh_seam::{AgentInfo, Failure, PluginError, PluginName, Seam, StepRef};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::guards::{self, Judgement};
use super::question_order::{QuestionOrder, QuestionTurn, UnderWay};
use super::registry::{Entry, Registry};
use super::run::{self, Ran, Shown};
use super::{arguments, texts};

/// How long listeners may still work on an outcome after an abort. A little less than the second after which the engine stops a
/// guest, so that what is told is the abort, not a failure of the plugin.
const LISTENER_GRACE: Duration = Duration::from_millis(900);

/// One agent's tools.
pub(super) struct Dispatcher {
    agent: Arc<AgentDispatch>,
}

/// What is the same for all calls of one agent.
struct AgentDispatch {
    info: AgentInfo,
    registry: RwLock<Registry>,
    listeners: Arc<[Registered<ToolsExecute>]>,
    guards: Arc<[RegisteredGuard]>,
    approvals: Arc<dyn Approvals>,
    log: Arc<dyn ToolLog>,
    processes: Arc<dyn Processes>,
    profile: Arc<Profile>,
    questions: Arc<QuestionOrder>,
}

impl Dispatcher {
    /// Makes the registry; see [`dsh_seam::tools::Tools::for_agent`] for what fails.
    pub fn new(setup: ToolSetup, processes: Arc<dyn Processes>) -> Result<Self, Failure> {
        let registry = Registry::new(&setup.providers, setup.only.as_ref())?;
        let agent = AgentDispatch {
            info: setup.agent,
            registry: RwLock::new(registry),
            listeners: setup.listeners,
            guards: setup.guards,
            approvals: setup.approvals,
            log: setup.log,
            processes,
            profile: setup.profile,
            questions: QuestionOrder::new(),
        };
        Ok(Self { agent: Arc::new(agent) })
    }
}

impl AgentDispatch {
    fn registry<T>(&self, read: impl FnOnce(&Registry) -> T) -> T {
        read(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl AgentTools for Dispatcher {
    fn definitions(&self) -> Arc<[ToolDefinition]> {
        self.agent.registry(Registry::definitions)
    }

    fn find(&self, name: &str) -> Option<ToolInfo> {
        self.agent.registry(|registry| registry.find(name)).map(|entry| entry.info())
    }

    fn remove(&self, plugin: &PluginName) {
        self.agent.registry.write().unwrap_or_else(PoisonError::into_inner).remove(plugin);
    }

    async fn dispatch(&self, at: StepRef, call: ToolCall, cancel: &CancellationToken) -> Dispatch {
        let dispatching = Arc::new(CallDispatch {
            agent: self.agent.clone(),
            log: self.agent.log.for_call(at, &call.id),
            // Nothing is awaited before: calls of a run are in line in the order in which they are polled first.
            question_turn: self.agent.questions.enter(),
            at,
            cancel: cancel.clone(),
            original: call.clone(),
            runs: AtomicU32::new(0),
            last: Mutex::new(None),
            busy: watch::Sender::new(0),
        });
        let _under_way = UnderWay(&dispatching.question_turn);
        let agent = self.agent.clone();
        let about = ExecuteContext {
            find: Arc::new(move |name| agent.registry(|registry| registry.find(name)).map(|entry| entry.info())),
            processes: self.agent.processes.clone(),
        };
        let cx = RunContext { at, cancel: cancel.clone(), about };
        let value = Execution { call, profile: self.agent.profile.clone(), changed_by: None };
        let inner = dispatching.clone();
        let innermost: Innermost<ToolsExecute> = Arc::new(move |execution| {
            let dispatching = inner.clone();
            Box::pin(async move { dispatching.innermost(execution).await })
        });
        let report = Arc::new(Report(dispatching.clone()));
        let chain = Chain::run(cx, self.agent.listeners.clone(), report, value, innermost);
        match dispatching.until_done_or_aborted(chain).await {
            None => Dispatch { outcome: dispatching.aborted(), fatal: None },
            Some((Ok(outcome), changes)) => dispatching.arrive(&outcome, changes).await,
            Some((Err(error), _)) => dispatching.strand(error),
        }
    }
}

/// One call on its way.
struct CallDispatch {
    agent: Arc<AgentDispatch>,
    log: Arc<dyn ToolLog>,
    question_turn: QuestionTurn,
    at: StepRef,
    cancel: CancellationToken,
    /// As the model made it; its id is the one that counts.
    original: ToolCall,
    /// How often a tool was run.
    runs: AtomicU32,
    /// What the innermost part answered last.
    last: Mutex<Option<Arc<Outcome>>>,
    /// How many things are under way that an abort waits for: a question, an entry of the log, a tool.
    busy: watch::Sender<u32>,
}

impl CallDispatch {
    /// Drives the waterfall. Once the token is cancelled: what must be awaited is awaited; then, when no tool ran, the waterfall is
    /// dropped, and otherwise its listeners have a short while to finish with the outcome.
    async fn until_done_or_aborted<T>(&self, chain: impl Future<Output = T>) -> Option<T> {
        let mut chain = pin!(chain);
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => {}
            done = &mut chain => return Some(done),
        }
        let mut busy = self.busy.subscribe();
        if *busy.borrow_and_update() > 0 {
            tokio::select! {
                biased;
                done = &mut chain => return Some(done),
                _ = busy.wait_for(|count| *count == 0) => {}
            }
        }
        if self.runs.load(Ordering::Relaxed) == 0 {
            return None;
        }
        tokio::time::timeout(LISTENER_GRACE, chain).await.ok()
    }

    fn hold(&self) -> Busy<'_> {
        self.busy.send_modify(|count| *count += 1);
        Busy(&self.busy)
    }

    fn last(&self) -> Option<Arc<Outcome>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ran(&self) -> bool {
        self.runs.load(Ordering::Relaxed) > 0
    }

    /// The innermost part of the waterfall.
    async fn innermost(&self, execution: Execution) -> Result<Arc<Outcome>, RunError> {
        let _busy = self.hold();
        let outcome = match self.serve(execution).await {
            Err(RunError::Aborted) => texts::aborted(),
            other => other?,
        };
        self.question_turn.leave();
        let outcome = Arc::new(outcome);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome.clone());
        Ok(outcome)
    }

    async fn serve(&self, execution: Execution) -> Result<Outcome, RunError> {
        if self.cancel.is_cancelled() {
            return Ok(texts::aborted());
        }
        let name = &execution.call.name;
        let Some(entry) = self.agent.registry(|registry| registry.find(name)) else {
            return Ok(self.agent.registry(|registry| texts::unknown_tool(name, registry.names())));
        };
        let checked = match arguments::check(&execution.call.arguments, &entry.validator) {
            Ok(checked) => checked,
            Err(text) => return Ok(Outcome::error("invalid-arguments", text)),
        };
        let changed = *name != self.original.name || execution.call.arguments != self.original.arguments;
        let again = self.ran();
        let passed_by = execution.changed_by.filter(|_| changed || again);
        let call = ToolCall { id: self.original.id.clone(), arguments: checked, ..execution.call };
        if let Some(stopped) = self.ask_permission(&call, &entry).await? {
            return Ok(stopped);
        }
        self.question_turn.leave();
        self.run(call, changed, passed_by, execution.profile, &entry).await
    }

    /// Guards, then the one question that they ask together. Some outcome: the tool does not run.
    async fn ask_permission(&self, call: &ToolCall, entry: &Entry) -> Result<Option<Outcome>, RunError> {
        let info = entry.info();
        let judged = guards::judge(&self.agent.guards, &*self.log, self.at, call, &info, &self.cancel).await?;
        let questions = match judged {
            Judgement::Pass => return Ok(None),
            Judgement::Stop(outcome) => return Ok(Some(outcome)),
            Judgement::Ask(questions) => questions,
        };
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(RunError::Aborted),
            () = self.question_turn.come() => {}
        }
        let request = ApprovalRequest { at: self.at, call: Some(call.clone()), questions: questions.clone() };
        let decided = self.agent.approvals.ask(request, &self.cancel).await?;
        Ok(match (decided.answer, decided.by) {
            (ApprovalAnswer::AllowOnce | ApprovalAnswer::AllowAlways, _) => None,
            (ApprovalAnswer::Deny, ApprovalBy::Headless) => Some(texts::approval_unavailable(&questions)),
            (ApprovalAnswer::Deny, _) => Some(texts::approval_denied(&questions)),
            (ApprovalAnswer::Aborted, _) => Some(texts::aborted()),
        })
    }

    async fn run(
        &self,
        call: ToolCall,
        changed: bool,
        passed_by: Option<PluginName>,
        profile: Arc<Profile>,
        entry: &Entry,
    ) -> Result<Outcome, RunError> {
        let n = self.runs.load(Ordering::Relaxed) + 1;
        if n > 1 || changed {
            let dispatched = ToolDispatched {
                turn: self.at.turn,
                step: self.at.step,
                call_id: call.id.clone(),
                n,
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                plugin: passed_by,
            };
            self.log.append(ToolEvent::Dispatched(dispatched)).await?;
        }
        self.log.before_tool(entry.definition.annotations.read_only).await?;
        if self.cancel.is_cancelled() {
            return Ok(texts::aborted());
        }
        self.runs.store(n, Ordering::Relaxed);
        let progress =
            Shown { log: self.log.clone(), at: self.at, call_id: call.id.clone(), plugin: entry.plugin.clone() };
        let cx = ToolContext {
            agent: self.agent.info.clone(),
            at: self.at,
            call_id: call.id.clone(),
            profile,
            cancel: self.cancel.clone(),
            progress: Arc::new(progress),
            processes: self.agent.processes.clone(),
        };
        let name = call.name.clone();
        let ran = run::run(&*entry.provider, &cx, call).await;
        if let Ran::Failed(error) = &ran {
            self.log.plugin_failed(error).await?;
        }
        Ok(with_code(run::outcome(ran, &cx, &name)))
    }

    /// The waterfall returned well: who answered is written down, and so is who changed what.
    async fn arrive(&self, outcome: &Outcome, changes: Vec<Change>) -> Dispatch {
        let outcome = run::bounded(with_code(self.attributed(outcome.clone(), &changes)));
        for Change { plugin, what } in changes {
            let changed = WaterfallChanged {
                turn: self.at.turn,
                step: self.at.step,
                waterfall: Seam::Execute,
                plugin,
                call_id: Some(self.original.id.clone()),
                what,
            };
            if let Err(error) = self.log.append(ToolEvent::Changed(changed)).await {
                return Dispatch { outcome, fatal: Some(error) };
            }
        }
        Dispatch { outcome, fatal: None }
    }

    /// A listener that changed the outcome answers for it, unless it only rewrote what the rest had answered.
    fn attributed(&self, mut outcome: Outcome, changes: &[Change]) -> Outcome {
        let Some(by) = changes.iter().find(|change| change.what.contains(&ChangeKind::Outcome)) else {
            return outcome;
        };
        outcome.plugin = match self.last() {
            Some(inner) if (inner.is_error, &inner.code) == (outcome.is_error, &outcome.code) => inner.plugin.clone(),
            _ => Some(by.plugin.clone()),
        };
        outcome
    }

    /// The waterfall failed: the result tells the truth about the tool.
    fn strand(&self, error: RunError) -> Dispatch {
        let outcome = match &error {
            RunError::Aborted => return Dispatch { outcome: self.aborted(), fatal: None },
            RunError::Plugin(error) if self.ran() => texts::withheld(error),
            RunError::Plugin(error) => texts::not_run(error),
            other if self.ran() => Outcome::error("outcome-unknown", format!("it ran, its outcome is lost: {other}")),
            other => Outcome::error("skipped", format!("not run: {other}")),
        };
        Dispatch { outcome, fatal: Some(error) }
    }

    fn aborted(&self) -> Outcome {
        if self.ran() { texts::aborted_withheld() } else { texts::aborted() }
    }
}

/// A failed outcome has a code, a good one has none.
fn with_code(mut outcome: Outcome) -> Outcome {
    if !outcome.is_error {
        outcome.code = None;
    } else if outcome.code.is_none() {
        outcome.code = Some("tool-failed".into());
    }
    outcome
}

/// Something an abort waits for.
struct Busy<'a>(&'a watch::Sender<u32>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Reports failing listeners; an abort does not tear the entry.
struct Report(Arc<CallDispatch>);

#[async_trait]
impl FailureReport for Report {
    async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError> {
        let _busy = self.0.hold();
        self.0.log.plugin_failed(error).await
    }
}
