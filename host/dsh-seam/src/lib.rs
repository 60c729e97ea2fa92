//! The words and the seams of dsh-host.
//!
//! *Words*: [`ids`], [`message`], [`cost`], [`event`], [`failure`]. *The model's view*: [`view`], [`draft`]. *Seams*: [`waterfall`] and the
//! five [`waterfalls`], [`llm`], [`tools`], [`session`], [`subagents`], [`plugin`], [`services`]. *Shown*: [`printable`]. This crate imports nothing of ours and nothing that
//! knows a terminal, a network or an engine; a crate that offers something implements a trait of this one, and a crate that needs
//! something takes one.

pub mod canonical;
pub mod cost;
pub mod draft;
pub mod event;
pub mod failure;
pub mod ids;
pub mod line;
pub mod llm;
pub mod message;
pub mod plugin;
pub mod printable;
pub mod services;
pub mod session;
pub mod subagents;
pub mod tools;
pub mod view;
pub mod waterfall;
pub mod waterfalls;

pub use failure::{Failure, FailureKind, FailureMode, ModelFailure, PluginError, Seam};
pub use ids::{AgentId, AgentInfo, PluginName, SessionId, StepRef};
