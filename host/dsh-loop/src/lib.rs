//! The loop: call the model, run the tools, repeat. It is small and stays small.
//!
//! An agent is an id, options, a session, a status, an [inbox](Inbox) and one driver task. A *turn* runs from draining the queue to
//! `turn/end`; a *step* is one model request, with its retries, and the tool calls it asked for. Everything beyond that attaches to a
//! seam (see `dsh_seam`): nothing here knows of compaction, permission, plan mode, providers, components or terminals.
//!
//! | file | subject |
//! |---|---|
//! | `agent.rs`, `ending.rs` | make, hold and end an agent |
//! | `inbox.rs`, `queued.rs`, `turn_token.rs` | two queues, the status and the turn's token under one lock; a message; what ends a turn from outside |
//! | `seams.rs` | the plugins' parts in an agent's life, and their exchange for other versions |
//! | `held.rs` | context that waits for a step's end |
//! | `driver.rs` | turns |
//! | `step.rs`, `frames.rs`, `batch.rs`, `stream.rs`, `call_ids.rs` | one step: request, answer, tools |
//! | `journal/`, `log_state.rs`, `repair.rs` | the log: the one way in, what it stands for, what it still owes |
//! | `context.rs`, `subagents/` | what a plugin can do; agents that it has do a piece of work |
//! | `sync.rs`, `under_way.rs` | locks and the start of tasks, which the model checker takes over; a count of what is under way |

mod agent;
mod batch;
mod call_ids;
mod context;
mod core;
mod driver;
mod ending;
mod frames;
mod held;
mod inbox;
mod journal;
mod log_state;
mod options;
mod queued;
mod repair;
mod seams;
mod spans;
mod step;
mod stop;
mod stream;
mod subagents;
mod sync;
mod turn_token;
mod under_way;

pub use agent::{AgentLoop, AgentOwner, LoopAgent};
pub use inbox::{Drained, Due, Emit, Inbox, MAX_BYTES, MAX_MESSAGES};
pub use options::{
    AgentOptions, CreateError, DEFAULT_MAX_STEPS, DEFAULT_MAX_SUB_AGENTS, DEFAULT_MAX_TURNS, Deadlines, Durability,
    QueueMode, SessionChoice,
};
pub use queued::{MAX_MESSAGE_BYTES, Queued};
pub use subagents::MAX_SUB_AGENT_DEPTH;
pub use turn_token::{Above, Cause, TurnToken};
