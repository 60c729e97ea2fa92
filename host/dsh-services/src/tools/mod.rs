//! The service `tools`: the registry of an agent's tools and the one road that every call of a tool takes.
//!
//! ```text
//! dispatch ─▶ listeners of tools/execute ─▶ look-up ─▶ arguments ─▶ guards ─▶ question ─▶ tool
//! ```
//!
//! Whatever stops a call on that road is an outcome that says who stopped it and why. Only a failing listener, and a log that cannot
//! be written, end the turn.

mod arguments;
mod dispatch;
mod guards;
mod question_order;
mod registry;
mod run;
#[cfg(test)]
mod tests;
mod texts;

use std::sync::Arc;

use dsh_seam::Failure;
use dsh_seam::tools::{AgentTools, Processes, ToolSetup, Tools};

use dispatch::Dispatcher;
pub use registry::check_tools;

/// Makes registries and dispatchers.
pub struct ToolServices {
    processes: Arc<dyn Processes>,
}

impl ToolServices {
    /// Tools run programs through `processes`.
    pub fn new(processes: Arc<dyn Processes>) -> Self {
        Self { processes }
    }
}

impl Tools for ToolServices {
    fn for_agent(&self, setup: ToolSetup) -> Result<Arc<dyn AgentTools>, Failure> {
        Ok(Arc::new(Dispatcher::new(setup, self.processes.clone())?))
    }
}
