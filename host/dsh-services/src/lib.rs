//! The native providers of dsh-host, each an implementation of a seam: [`session`] (logs), [`agents`], [`system_prompt`],
//! [`approvals`], [`processes`] (programs under a profile), `tools` (registry and dispatcher), `llm` (models).
//!
//! Nothing here knows arguments, a terminal, or a WebAssembly engine; only `llm` knows HTTP.

pub mod agents;
pub mod approvals;
pub mod llm;
pub mod processes;
pub mod session;
pub mod system_prompt;
pub mod tools;
