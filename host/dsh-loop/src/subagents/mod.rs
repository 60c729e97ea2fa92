//! Sub-agents: an agent that a plugin makes to do a piece of work, with what its parent has and never more.
//!
//! A child is an agent like any other, made with its parent's services and plugins; the driver knows nothing of kinship. Here it is
//! decided whether there may be one and what it may have. A task of its own (`task.rs`) then sees it from its making to its end, and
//! what it says is collected for whoever asked for it (`report.rs`):
//!
//! ```text
//! run_child ─▶ may there be one? ─▶ make ─▶ prompt ─▶ idle | the call or the parent ends ─▶ dispose ─▶ report
//! ```
//!
//! What ends the call ends the child's turn, and those of all generations below, in the same step: the token of each of its turns is a
//! child of the call's (`turn_token.rs`). A dispose goes down by itself, so that each is disposed in the order of its own chain.

mod report;
mod task;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, PoisonError, Weak};

use dsh_seam::event::Source;
use dsh_seam::failure::Failure;
use dsh_seam::ids::SessionId;
use dsh_seam::subagents::{AgentReport, AgentTask, StartFrom};
use dsh_seam::tools::{Profile, ToolContext};
use tokio_util::sync::CancellationToken;

use self::task::{ChildSpec, ChildTask};
use crate::agent::{AgentOwner, LoopAgent};
use crate::core::Core;
use crate::options::{AgentOptions, QueueMode, SessionChoice};
use crate::queued::Queued;
use crate::sync::{Mutex, joined, spawn};
use crate::turn_token::Above;
use crate::under_way::{UnderWay, in_time};

/// How many ancestors an agent may have: whoever divides work more often has lost sight of it.
pub const MAX_SUB_AGENT_DEPTH: usize = 3;

/// What a sub-agent has from its parent.
pub(crate) struct Inherited {
    /// The agent at the head of the family, by whose turns sub-agents are counted.
    root: Weak<Core>,
    /// The parent's session.
    pub(crate) session: SessionId,
    /// The tools there are for it.
    pub(crate) tools: BTreeSet<String>,
    /// What each of its calls may touch: what the call that made it may.
    pub(crate) profile: Arc<Profile>,
    /// The call that made it, which its turns end with.
    pub(crate) above: Arc<Above>,
}

/// What an agent knows of its sub-agents.
#[derive(Default)]
pub(crate) struct Children {
    /// The number of the last one that was made.
    last: AtomicU32,
    /// How many the whole family made in the turn with this number; counted at its head.
    in_turn: Mutex<(u32, u32)>,
    /// Their tasks.
    tasks: UnderWay,
    /// Those that are there, and maybe some that are gone.
    there: Mutex<Vec<Weak<LoopAgent>>>,
    /// Held while one is made: they are made one after the other, in the order in which they are asked for.
    making: Arc<tokio::sync::Mutex<()>>,
}

impl Children {
    fn add(&self, child: &AgentOwner) {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        there.retain(|known| known.strong_count() > 0);
        there.push(Arc::downgrade(&child.agent()));
    }

    /// Starts the dispose of each that is there.
    pub(crate) fn dispose(&self, reason: &str) {
        let there = self.there.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for child in there.iter().filter_map(Weak::upgrade) {
            child.start_dispose(reason);
        }
    }

    /// A call outside of any turn counts as a turn does.
    pub(crate) fn count_anew(&self) {
        let mut in_turn = self.in_turn.lock().unwrap_or_else(PoisonError::into_inner);
        if in_turn.0 == 0 {
            in_turn.1 = 0;
        }
    }
}

impl Core {
    /// Has a child do `task` for `call`, and waits until it is gone. Cancel safe: when this is dropped, the child is disposed.
    pub(crate) async fn run_child(
        self: &Arc<Self>,
        task: AgentTask,
        call: &ToolContext,
    ) -> Result<AgentReport, Failure> {
        let prompt = Queued::new(task.prompt.clone(), Source::Agent { agent: self.info.agent.clone() })?;
        let making = tokio::select! {
            biased;
            () = call.cancel.cancelled() => return Err(Failure::aborted()),
            making = self.children.making.clone().lock_owned() => making,
        };
        let root = self.root()?;
        let spec = self.child_spec(&root, &task, call)?;
        root.count_child()?;
        let turn = if call.at.turn == 0 { None } else { self.token() };
        let call_ended = CancellationToken::new();
        let _ended_when_dropped = call_ended.clone().drop_guard();
        let child = ChildTask {
            _begun: self.children.tasks.begin(),
            parent: self.clone(),
            root,
            above: Arc::new(Above::new(call.cancel.clone(), turn)),
            call_ended,
        };
        let ended = joined(spawn(child.run(spec, prompt, making)).await);
        ended.unwrap_or_else(|| Err(Failure::new("not-available", "the host is shutting down")))
    }

    /// The agent at the head of the family.
    fn root(self: &Arc<Self>) -> Result<Arc<Core>, Failure> {
        match &self.inherited {
            None => Ok(self.clone()),
            Some(inherited) => {
                inherited.root.upgrade().ok_or_else(|| Failure::new("not-available", "the first agent is gone"))
            }
        }
    }

    /// What a child for `task` is made with, or why there may be none.
    fn child_spec(&self, root: &Arc<Core>, task: &AgentTask, call: &ToolContext) -> Result<ChildSpec, Failure> {
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
        Ok(ChildSpec { options, root: Arc::downgrade(root), tools, profile: call.profile.clone() })
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
                "agent `{}` may have at most {max} sub-agents in one turn (`--max-sub-agents`) and has had them: do the rest without",
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

    /// Waits until no sub-agent is left of the calls that are over: an aborted turn of one may take as long as a dispose may, and then
    /// its dispose as long again.
    pub(crate) async fn children_gone(&self) {
        in_time(2 * self.options.deadlines.dispose, "a sub-agent", self.children.tasks.over()).await;
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
