//! The seam to sub-agents: what a plugin has another agent do, and what came of it.
//!
//! A plugin asks with [`crate::plugin::PluginContext::run_agent`]; whoever makes agents decides whether there may be one, and gives it
//! what its parent has and never more.

use crate::event::TurnReason;
use crate::ids::{AgentId, SessionId};
use crate::message::{ContentBlock, Usage};

/// What a sub-agent knows when it begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartFrom {
    /// Nothing but its prompt: a new session.
    #[default]
    Fresh,
    /// All that its parent knew before the step that makes it: a copy of the parent's session.
    Fork,
}

/// A piece of work for a sub-agent. What is left out is as the parent has it.
#[derive(Debug, Clone, Default)]
pub struct AgentTask {
    /// What it is to do: its first message.
    pub prompt: Vec<ContentBlock>,
    /// What it knows when it begins.
    pub start_from: StartFrom,
    /// `PROVIDER/MODEL`.
    pub model: Option<String>,
    /// The names of its tools; those that the parent does not have are left out.
    pub tools: Option<Vec<String>>,
    /// Its own suffix to the system prompt.
    pub system: Option<String>,
    /// Steps of a turn, at most the parent's; 0 is as the parent has it.
    pub max_steps: Option<u32>,
}

/// What came of a piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentReport {
    /// The sub-agent, which is gone.
    pub agent: AgentId,
    /// Its session, which stays.
    pub session: SessionId,
    /// The text of its last message that has text, at most as much as a message may hold; empty when it said nothing.
    pub text: String,
    /// How its last turn ended.
    pub reason: TurnReason,
    /// What its model calls cost, those of plugins on its behalf among them, without its own sub-agents'.
    pub usage: Usage,
    /// Turns that it took.
    pub turns: u32,
    /// Steps that it took.
    pub steps: u32,
}
