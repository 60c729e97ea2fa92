//! The native providers of dsh-host, each an implementation of a seam: [`session`] (logs), [`agents`], [`system_prompt`],
//! [`approvals`], [`processes`] (programs under a profile), [`budget`] (what a run may use), `tools` (registry and dispatcher), `llm` (models).
//!
//! Nothing here knows arguments, a terminal, or a WebAssembly engine; only `llm` knows HTTP.

pub mod agents;
pub mod approvals;
pub mod budget;
pub mod llm;
pub mod processes;
pub mod session;
pub mod system_prompt;
pub mod tools;
