//! The five services and what else an agent loop is made of.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::ids::AgentId;
use crate::llm::Llm;
use crate::plugin::EventSink;
use crate::session::{Sessions, SystemPrompt};
use crate::tools::{Approver, Processes, Tools};

/// Gives the time.
pub trait Clock: Send + Sync {
    /// Unix time in milliseconds.
    fn now_ms(&self) -> u64;
}

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The service `agents`: who is there. Whatever registers gets its undo.
pub trait Agents: Send + Sync {
    /// Takes an id; the id is free again when the registration is dropped. Fails when it is taken.
    fn register(&self, id: &AgentId) -> Result<Registration, DuplicateAgent>;
    /// The ids in use, sorted.
    fn list(&self) -> Vec<AgentId>;
}

/// The id is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is an agent `{0}` already")]
pub struct DuplicateAgent(pub AgentId);

/// Undoes what was registered when it is dropped.
pub struct Registration(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Registration {
    /// `undo` is called once, when the registration is dropped.
    pub fn new(undo: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(undo)))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registration")
    }
}

/// What a whole run may use: all its agents, their sub-agents and their plugins together.
pub trait Budget: Send + Sync {
    /// What is used up, if anything is: nothing more may be begun. Looked at before each model request, so it is quick and never waits.
    fn used_up(&self) -> Option<OutOfBudget>;
    /// What is more than used up, if anything is: what was done last was too much already.
    fn exceeded(&self) -> Option<OutOfBudget>;
    /// Is done when the time of the run is over; never, when it has no end. The first call begins it. Cancel safe.
    fn time_is_up(&self) -> BoxFuture<'_, OutOfBudget>;
}

/// A budget that ran out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfBudget {
    /// Which: `max-cost`, `max-total-tokens` or `max-time`.
    pub code: &'static str,
    /// One sentence for a person.
    pub message: String,
}

impl OutOfBudget {
    /// The codes of all budgets.
    pub const CODES: [&str; 3] = ["max-cost", "max-total-tokens", "max-time"];
}

/// Everything may be used.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBudget;

impl Budget for NoBudget {
    fn used_up(&self) -> Option<OutOfBudget> {
        None
    }
    fn exceeded(&self) -> Option<OutOfBudget> {
        None
    }
    fn time_is_up(&self) -> BoxFuture<'_, OutOfBudget> {
        std::future::pending().boxed()
    }
}

/// What an agent loop is given. Cloning shares everything.
#[derive(Clone)]
pub struct Services {
    /// Who is there.
    pub agents: Arc<dyn Agents>,
    /// Logs.
    pub sessions: Arc<dyn Sessions>,
    /// Models.
    pub llm: Arc<dyn Llm>,
    /// Registry and dispatch of tools.
    pub tools: Arc<dyn Tools>,
    /// The system prompt.
    pub system_prompt: Arc<dyn SystemPrompt>,
    /// Answers questions.
    pub approver: Arc<dyn Approver>,
    /// Makes an agent's approvals.
    pub approvals: Arc<dyn ApprovalsFactory>,
    /// Runs programs.
    pub processes: Arc<dyn Processes>,
    /// Sees everything.
    pub events: Arc<dyn EventSink>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What may be used.
    pub budget: Arc<dyn Budget>,
}

/// Makes the approvals of one agent.
pub trait ApprovalsFactory: Send + Sync {
    /// `log` is where questions and answers go.
    fn for_agent(
        &self,
        agent: crate::ids::AgentInfo,
        approver: Arc<dyn Approver>,
        log: Arc<dyn crate::tools::ToolLog>,
    ) -> Arc<dyn crate::tools::Approvals>;
}
