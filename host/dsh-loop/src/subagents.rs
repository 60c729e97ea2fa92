//! Sub-agents: an agent that a plugin makes to do a piece of work, with what its parent has and never more.
//!
//! A child is an agent like any other, made with its parent's services and plugins; the driver knows nothing of kinship. Here it is
//! decided whether there may be one and what it may have. A task of its own then tends it from its making to its end, so that nothing of
//! it is left whatever becomes of whoever asked for it:
//!
//! ```text
//! run_child ─▶ may there be one? ─▶ make ─▶ prompt ─▶ idle | the call or the parent ends ─▶ dispose ─▶ report
//! ```

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use dsh_seam::event::{Emitted, Event, LiveEvent, ReasonKind, Source, TurnReason};
use dsh_seam::failure::Failure;
use dsh_seam::ids::{AgentId, SessionId};
use dsh_seam::message::{ContentBlock, Usage};
use dsh_seam::plugin::EventSink;
use dsh_seam::services::Services;
use dsh_seam::subagents::{AgentReport, AgentTask, StartFrom};
use dsh_seam::tools::{Profile, ToolContext};
use tokio::sync::{Notify, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentLoop, AgentOwner};
use crate::core::Core;
use crate::inbox::{Cause, MAX_MESSAGE_BYTES, Queued};
use crate::journal::WRITE_FAILED;
use crate::options::{AgentOptions, CreateError, QueueMode, SessionChoice};
use crate::sync::{Mutex, joined, sleep, spawn};

/// How many ancestors an agent may have: whoever divides work more often has lost sight of it.
pub const MAX_SUB_AGENT_DEPTH: usize = 3;

/// The reason of a dispose when the work is done.
const DONE: &str = "done";
/// The same when whoever waited for the work is gone: its plugin failed, or its call took too long.
const CALL_ENDED: &str = "its call ended";
/// The same when the parent was disposed outside of a turn, which would give a reason.
const PARENT_DISPOSED: &str = "its parent was disposed";

/// What a sub-agent has from its parent.
pub(crate) struct Heritage {
    /// The agent at the head of the family, by whose turns sub-agents are counted.
    root: Weak<Core>,
    /// The parent's session.
    pub(crate) session: SessionId,
    /// The tools there are for it.
    pub(crate) tools: BTreeSet<String>,
    /// What each of its calls may touch: what the call that made it may.
    pub(crate) profile: Arc<Profile>,
}

/// What an agent knows of its sub-agents.
#[derive(Default)]
pub(crate) struct Children {
    /// The number of the last one that was made.
    last: AtomicU32,
    /// How many the whole family made in the turn with this number; counted at its head.
    in_turn: Mutex<(u32, u32)>,
    /// How many are there.
    there: AtomicU32,
    left: Notify,
    /// Held while one is made: they are made one after the other, in the order in which they are asked for.
    making: OnceLock<Arc<tokio::sync::Mutex<()>>>,
}

impl Core {
    /// Has a child do `task` for `call`, and waits until it is gone. Cancel safe: when this is dropped, the child is disposed.
    pub(crate) async fn run_child(
        self: &Arc<Self>,
        task: AgentTask,
        call: &ToolContext,
    ) -> Result<AgentReport, Failure> {
        let prompt = Queued::new(task.prompt.clone(), Source::Agent { agent: self.info.agent.clone() })?;
        let making = self.children.making.get_or_init(Arc::default).clone();
        let making = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(Failure::aborted()),
            making = making.lock_owned() => making,
        };
        let root = self.root()?;
        let birth = self.birth(&root, &task, call)?;
        root.count_child()?;
        let call_ended = CancellationToken::new();
        let _ended_when_dropped = call_ended.clone().drop_guard();
        let tending = Tending {
            _there: There::new(self.clone()),
            parent: self.clone(),
            root,
            cancelled: call.cancel.clone(),
            call_ended,
        };
        let ended = joined(spawn(tending.tend(birth, prompt, making)).await);
        ended.unwrap_or_else(|| Err(Failure::new("not-available", "the host is shutting down")))
    }

    /// The agent at the head of the family.
    fn root(self: &Arc<Self>) -> Result<Arc<Core>, Failure> {
        match &self.heritage {
            None => Ok(self.clone()),
            Some(heritage) => {
                heritage.root.upgrade().ok_or_else(|| Failure::new("not-available", "the first agent is gone"))
            }
        }
    }

    /// What a child for `task` is made with, or why there may be none.
    fn birth(&self, root: &Arc<Core>, task: &AgentTask, call: &ToolContext) -> Result<Birth, Failure> {
        if self.info.lineage.len() >= MAX_SUB_AGENT_DEPTH {
            let message = format!(
                "agent `{}` cannot have sub-agents: they may be {MAX_SUB_AGENT_DEPTH} deep, and it is at that depth",
                self.info.agent
            );
            return Err(Failure::new("too-deep", message));
        }
        let own = self.options.model.clone();
        if let Some(model) = &task.model {
            self.services.llm.check_for_child(own.as_deref(), model)?;
        }
        let asked = |name: &String| task.tools.as_ref().is_none_or(|tools| tools.contains(name));
        let tools = self.seams().tools.definitions().iter().map(|tool| tool.name.clone()).filter(asked).collect();
        let session = match task.start_from {
            StartFrom::Fresh => SessionChoice::New,
            StartFrom::Fork => {
                SessionChoice::Fork { id: self.info.session.clone(), at: self.journal.state().before_step() }
            }
        };
        let options = AgentOptions {
            model: task.model.as_deref().map(Into::into).or(own),
            system_prompt: task.system.clone().unwrap_or_else(|| self.options.system_prompt.clone()),
            queue_mode: QueueMode::All,
            max_steps: fewer_steps(self.options.max_steps, task.max_steps),
            session,
            lineage: std::iter::once(&self.info.agent).chain(&self.info.lineage).cloned().collect(),
            held: false,
            ..self.options.clone()
        };
        Ok(Birth { options, root: Arc::downgrade(root), tools, profile: call.profile.clone() })
    }

    /// Counts one more sub-agent in the open turn, unless there were too many already.
    fn count_child(&self) -> Result<(), Failure> {
        let (turn, max) = (self.journal.state().at().turn, self.options.max_sub_agents);
        let mut in_turn = self.children.in_turn.lock().unwrap_or_else(PoisonError::into_inner);
        if in_turn.0 != turn {
            *in_turn = (turn, 0);
        }
        if max != 0 && in_turn.1 >= max {
            let message = format!(
                "there were {max} sub-agents in this turn of agent `{}` already, and there may be no more (`--max-sub-agents`)",
                self.info.agent
            );
            return Err(Failure::new("limit", message));
        }
        in_turn.1 += 1;
        Ok(())
    }

    /// A sub-agent that could not be made does not count.
    fn uncount_child(&self) {
        let turn = self.journal.state().at().turn;
        let mut in_turn = self.children.in_turn.lock().unwrap_or_else(PoisonError::into_inner);
        if in_turn.0 == turn {
            in_turn.1 = in_turn.1.saturating_sub(1);
        }
    }

    /// Waits until no sub-agent is left of the calls that are over, no longer than a dispose may take.
    pub(crate) async fn children_gone(&self) {
        if self.children.there.load(Ordering::Acquire) == 0 {
            return;
        }
        let gone = async {
            loop {
                let left = self.children.left.notified();
                if self.children.there.load(Ordering::Acquire) == 0 {
                    return;
                }
                left.await;
            }
        };
        let deadline = self.options.deadlines.dispose;
        tokio::select! {
            biased;
            () = gone => {}
            () = sleep(deadline) => {
                tracing::error!("a sub-agent did not end within {} ms and is left alone", deadline.as_millis());
            }
        }
    }
}

/// The parent's limit and what was asked for, of which 0 is none.
fn fewer_steps(own: u32, asked: Option<u32>) -> u32 {
    match asked {
        None | Some(0) => own,
        Some(asked) if own == 0 => asked,
        Some(asked) => own.min(asked),
    }
}

/// What a child is made with.
struct Birth {
    options: AgentOptions,
    root: Weak<Core>,
    tools: BTreeSet<String>,
    profile: Arc<Profile>,
}

/// Counts a child as there, from before its task starts until it is gone.
struct There(Arc<Core>);

impl There {
    fn new(parent: Arc<Core>) -> Self {
        parent.children.there.fetch_add(1, Ordering::AcqRel);
        Self(parent)
    }
}

impl Drop for There {
    fn drop(&mut self) {
        self.0.children.there.fetch_sub(1, Ordering::AcqRel);
        self.0.children.left.notify_waiters();
    }
}

/// One child from its making to its end, on a task of its own.
struct Tending {
    parent: Arc<Core>,
    root: Arc<Core>,
    /// The token of the call.
    cancelled: CancellationToken,
    /// Nobody waits for the work any more.
    call_ended: CancellationToken,
    /// The last field: dropped when all else is.
    _there: There,
}

impl Tending {
    async fn tend(self, birth: Birth, prompt: Queued, making: OwnedMutexGuard<()>) -> Result<AgentReport, Failure> {
        let made = self.make(birth).await;
        drop(making);
        let (child, heard) = match made {
            Ok(made) => made,
            Err(failure) => {
                self.root.uncount_child();
                return Err(failure);
            }
        };
        if let Err(failure) = child.send(prompt.content, prompt.source) {
            child.dispose(DONE).await;
            return Err(failure);
        }
        let over = tokio::select! {
            biased;
            () = self.over() => true,
            () = child.idle() => false,
        };
        let reason = if over { self.end_early(&child).await } else { DONE.to_owned() };
        child.dispose(&reason).await;
        if over {
            let message = format!("the sub-agent `{}` was stopped because the turn was aborted", child.id());
            return Err(Failure::new("aborted", message));
        }
        Ok(heard.report(&child))
    }

    /// Makes the child under the parent's next number whose id is free.
    async fn make(&self, birth: Birth) -> Result<(AgentOwner, Arc<Heard>), Failure> {
        let parent = &self.parent;
        let Birth { options, root, tools, profile } = birth;
        loop {
            let number = parent.children.last.fetch_add(1, Ordering::Relaxed) + 1;
            let id = AgentId::new(format!("{}.{number}", parent.info.agent));
            let id = id.map_err(|error| Failure::new("limit", error.to_string()))?;
            let heard = Arc::new(Heard::new(parent.services.events.clone(), id.clone()));
            let services = Services { events: heard.clone(), ..parent.services.clone() };
            let session = parent.info.session.clone();
            let heritage = Heritage { root: root.clone(), session, tools: tools.clone(), profile: profile.clone() };
            let agents = AgentLoop::of(services, parent.plugins.clone());
            match agents.create_with(id, options.clone(), Some(heritage)).await {
                Ok(child) => return Ok((child, heard)),
                Err(CreateError::Duplicate(_)) => {}
                Err(error) => {
                    let message = format!("the sub-agent could not be made: {error}");
                    return Err(Failure::new("not-available", message));
                }
            }
        }
    }

    /// Returns when the work is not wanted any more.
    async fn over(&self) {
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => {}
            () = self.gone() => {}
        }
    }

    /// Returns when nobody is there any more whom the work is for.
    async fn gone(&self) {
        tokio::select! {
            biased;
            () = self.parent.life.cancelled() => {}
            () = self.call_ended.cancelled() => {}
        }
    }

    /// Ends the child's turn as its parent's ends. Returns the reason with which the child is then disposed.
    async fn end_early(&self, child: &AgentOwner) -> String {
        if let Some(Cause::Aborted(reason)) = self.cause() {
            child.abort(&reason);
            child.cancel(false);
            tokio::select! {
                biased;
                () = child.idle() => return DONE.to_owned(),
                () = self.gone() => {}
                () = sleep(self.parent.options.deadlines.dispose) => {}
            }
        }
        match self.cause() {
            Some(Cause::Disposed(reason)) => reason,
            _ if self.parent.life.is_cancelled() => PARENT_DISPOSED.to_owned(),
            _ => CALL_ENDED.to_owned(),
        }
    }

    /// What ended the parent's turn.
    fn cause(&self) -> Option<Cause> {
        self.parent.token().and_then(|token| token.cause())
    }
}

/// Keeps of a child's events what its parent is told, and hands all of them on.
struct Heard {
    events: Arc<dyn EventSink>,
    child: AgentId,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    text: String,
    reason: Option<TurnReason>,
    usage: Usage,
    turns: u32,
    steps: u32,
}

impl Heard {
    fn new(events: Arc<dyn EventSink>, child: AgentId) -> Self {
        Self { events, child, said: Mutex::default() }
    }

    fn report(&self, child: &AgentOwner) -> AgentReport {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let Said { mut text, reason, usage, turns, steps } = std::mem::take(&mut *said);
        if text.len() > MAX_MESSAGE_BYTES {
            text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        }
        let reason = reason.unwrap_or_else(|| TurnReason::plain(ReasonKind::Disposed));
        AgentReport { agent: child.id().clone(), session: child.session().clone(), text, reason, usage, turns, steps }
    }
}

impl Said {
    /// Takes an event of the child into account. The end of a turn that a fork's repair closes is followed by that of the child's own.
    fn hear(&mut self, event: &Event) {
        match event {
            Event::TurnStart(_) => self.turns += 1,
            Event::StepStart(_) => self.steps += 1,
            Event::Usage(data) => self.usage = self.usage.plus(data.usage),
            Event::AssistantMessage(data) => {
                let text: String = data.content.iter().filter_map(ContentBlock::as_text).collect();
                if !text.trim().is_empty() {
                    self.text = text;
                }
            }
            Event::TurnEnd(data) => self.reason = Some(data.reason.clone()),
            _ => {}
        }
    }
}

#[async_trait]
impl EventSink for Heard {
    fn emit(&self, emitted: &Emitted) {
        self.events.emit(emitted);
        if *emitted.agent() != self.child {
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match emitted {
            Emitted::Durable(entry) => said.hear(&entry.event),
            // A log that cannot be written does not say how its turn ended.
            Emitted::Live { event, .. } => {
                if let LiveEvent::AgentError(error) = &**event
                    && error.code == WRITE_FAILED
                {
                    let (code, message) = (Some(error.code.clone()), Some(error.message.clone()));
                    said.reason = Some(TurnReason { kind: ReasonKind::Error, reason: None, code, message });
                }
            }
        }
    }

    async fn settled(&self, emitted: &Emitted) {
        self.events.settled(emitted).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_takes_at_most_its_parents_steps() {
        let check = |own, asked, expect| assert_eq!(fewer_steps(own, asked), expect, "{own} {asked:?}");
        check(200, None, 200);
        check(200, Some(3), 3);
        check(3, Some(200), 3);
        check(3, Some(0), 3);
        check(0, Some(5), 5);
        check(0, None, 0);
    }
}
