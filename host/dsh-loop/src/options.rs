//! What an agent is made with.

use std::sync::Arc;
use std::time::Duration;

use dsh_seam::AgentId;
use dsh_seam::failure::Failure;
use dsh_seam::ids::SessionId;
use dsh_seam::message::{ModelName, Sampling};
use dsh_seam::services::DuplicateAgent;
use dsh_seam::session::SessionError;

/// How the queue is drained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueMode {
    /// All that is there becomes one turn.
    #[default]
    All,
    /// Each message becomes a turn of its own.
    One,
}

/// When the log is made durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// At the end of a turn.
    #[default]
    Turn,
    /// Also before each tool that is not read-only.
    Tool,
}

/// Which session an agent goes on with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SessionChoice {
    /// A new one with an id of its own.
    #[default]
    New,
    /// A new one with this id.
    Named(SessionId),
    /// This one.
    Resume(SessionId),
    /// The newest of this agent and workspace.
    Continue,
    /// A copy.
    Fork {
        /// Of this one.
        id: SessionId,
        /// Up to and including this sequence number; none: the last `turn/end`.
        at: Option<u64>,
    },
}

/// Steps of one turn: far beyond what a task needs, far below what a loop would burn.
pub const DEFAULT_MAX_STEPS: u32 = 200;
/// Turns in a row that only plugins' messages started.
pub const DEFAULT_MAX_TURNS: u32 = 100;
/// Sub-agents that one turn may make, those of its sub-agents included: enough to divide a large task, few enough to pay for.
pub const DEFAULT_MAX_SUB_AGENTS: u32 = 16;

/// What an agent is made with.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// `PROVIDER/MODEL`; a listener may set one when there is none.
    pub model: Option<ModelName>,
    /// How the model is to answer.
    pub sampling: Sampling,
    /// The agent's own suffix to the system prompt.
    pub system_prompt: String,
    /// How the queue is drained.
    pub queue_mode: QueueMode,
    /// Steps of a turn; 0 is no limit.
    pub max_steps: u32,
    /// Turns in a row that only plugins started; 0 is no limit.
    pub max_turns: u32,
    /// Sub-agents that are made within one turn of an agent that none made, those of its descendants included; 0 is no limit.
    pub max_sub_agents: u32,
    /// When the log is made durable.
    pub durability: Durability,
    /// The workspace, an absolute path.
    pub workspace: String,
    /// Which session it goes on with.
    pub session: SessionChoice,
    /// Its ancestors, nearest first.
    pub lineage: Vec<AgentId>,
    /// Whether its driver waits for `LoopAgent::release` before it takes its first message.
    pub held: bool,
    /// How long things may take.
    pub deadlines: Deadlines,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            model: None,
            sampling: Sampling::default(),
            system_prompt: String::new(),
            queue_mode: QueueMode::All,
            max_steps: DEFAULT_MAX_STEPS,
            max_turns: DEFAULT_MAX_TURNS,
            max_sub_agents: DEFAULT_MAX_SUB_AGENTS,
            durability: Durability::Turn,
            workspace: String::new(),
            session: SessionChoice::New,
            lineage: Vec::new(),
            held: false,
            deadlines: Deadlines::default(),
        }
    }
}

/// How long the driver waits for others.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For a flush: a disk that needs longer is broken, and a chat must go on.
    pub flush: Duration,
    /// For the whole of a dispose: above the sum of what a well-behaved tool may take to stop.
    pub dispose: Duration,
    /// For one call of an observer: it stands in the driver's way.
    pub observer: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { flush: Duration::from_secs(10), dispose: Duration::from_secs(30), observer: Duration::from_secs(1) }
    }
}

/// Why an agent could not be made. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The id is taken.
    #[error(transparent)]
    Duplicate(#[from] DuplicateAgent),
    /// The session cannot be used.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Two tools have one name, or one has a bad schema.
    #[error(transparent)]
    Tools(Failure),
    /// The session could not be written while it was repaired.
    #[error("{0}")]
    Write(String),
}

/// A shared text, made once.
pub(crate) type Text = Arc<str>;
