//! Write a `dsh-host` plugin in a few lines.
//!
//! A plugin is a type that implements [`Plugin`] and a trait per seam it attaches to. [`export!`] names the seams that the
//! component exports: no more and no fewer. What a plugin imports follows from what it calls.
//!
//! ```
//! use dsh_sdk::{Call, Failure, NoConfig, Outcome, Plugin, Tool, ToolProvider, tool};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! struct Echo;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Args {
//!     /// What to say.
//!     text: String,
//! }
//!
//! impl Plugin for Echo {
//!     type Config = NoConfig;
//!     fn new(_config: NoConfig) -> Result<Self, Failure> {
//!         Ok(Self)
//!     }
//! }
//!
//! impl ToolProvider for Echo {
//!     fn tools(&self) -> Vec<Tool<'_>> {
//!         vec![tool("echo", "Says the text louder.").read_only().typed(|args: Args, _call: &Call| Ok(Outcome::text(args.text.to_uppercase())))]
//!     }
//! }
//!
//! dsh_sdk::export!(Echo: tools, configure);
//! ```
//!
//! Guest memory is a cache: the host may make a new instance for any call. What has to last goes to [`state`].

pub mod bindings;
mod ceiling;
mod failure;
mod message;
mod outcome;
mod plugin;
mod schema;
mod seams;
pub mod state;
mod tool;

pub use bindings::base::dsh::agent::agent_types::{
    CallOutline, Decision, LlmRequest, MessageOutline, Origin, Recovery, RequestErrorNext, RequestFailure, RequestNext,
    ResultOutline, Step, StepResultNext, StepSummary, TurnContinuationNext,
};
pub use bindings::base::dsh::agent::{agents, inbox};
pub use bindings::base::dsh::llm::llm_types::{
    CacheHint, ContentBlock, Failure, FinishReason, ImageBlock, ImageSource, Message, ReasoningBlock, ResultBlock,
    Role, Sampling, TextBlock, ToolCall, ToolResult, ToolSchema, Usage,
};
pub use bindings::base::dsh::llm::model;
pub use bindings::base::dsh::plugin::runtime;
pub use bindings::base::dsh::session::log;
pub use bindings::base::dsh::session::session_types::Entry;
pub use bindings::base::dsh::tools::tool_types::{
    Access, Annotations, Answer, Definition, ExecuteNext, NetworkPolicy, Outcome, PathGrant, Profile, Question,
    ToolInfo, ToolOutcome,
};
pub use bindings::base::dsh::tools::{approval, process, registry, running};
pub use bindings::guard::exports::dsh::tools::guard::Verdict;
pub use bindings::sections::exports::dsh::system_prompt::section::Part;
pub use plugin::{NoConfig, Plugin};
pub use runtime::Level;
pub use schema::schema_of;
pub use seams::{
    Configure, Flush, Guard, Observer, RequestErrorListener, RequestListener, Sections, StepResultListener,
    ToolExecuteListener, ToolProvider, TurnContinuationListener,
};
pub use tool::{Call, Tool, ToolBuilder, tool};

/// Writes a line to the host's diagnostics: `log!(Warn, "no summary: {}", failure.message)`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($format:tt)+) => {
        $crate::runtime::log($crate::Level::$level, &::std::format!($($format)+))
    };
}

#[doc(hidden)]
pub mod __private {
    pub use crate::ceiling::{bytes, plain};
    pub use crate::plugin::{Instance, build};
}
