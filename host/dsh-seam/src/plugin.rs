//! What a plugin is to the host, and what the host is to a plugin.
//!
//! A [`Plugin`] is attached to each agent on its own; what comes back is the set of seams it takes part in. [`PluginContext`] is all
//! that a plugin can do on an agent's behalf: it can append only entries of its own kinds.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::event::{ApprovalAnswer, Emitted, Entry};
use crate::failure::{Failure, FailureMode};
use crate::ids::{AgentInfo, PluginName, StepRef};
use crate::llm::{GenerateRequest, GenerateResponse};
use crate::message::ContentBlock;
use crate::session::{Flush, Observer, Sections};
use crate::subagents::{AgentReport, AgentTask};
use crate::tools::{Guard, Question, ToolContext, ToolDefinition, ToolInfo, ToolProvider};
use crate::waterfall::Listener;
use crate::waterfalls::{Request, RequestError, StepResult, ToolsExecute, TurnContinuation};

/// A plugin, loaded and configured, before it belongs to any agent.
pub trait Plugin: Send + Sync {
    /// Its name.
    fn name(&self) -> &PluginName;
    /// What the operator wants its failure to do.
    fn failure_mode(&self) -> FailureMode;
    /// The SHA-256 of the file that it is from, lower-case hex; none when it is from none. Tells one version from another.
    fn sha256(&self) -> Option<&str> {
        None
    }
    /// Makes it part of one agent's life. Quick: instances are made when they are first called.
    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached;
}

/// The seams that a plugin takes part in, for one agent. Dropping it detaches the plugin.
#[derive(Default)]
pub struct Attached {
    /// Listener of `agent/request`.
    pub request: Option<Arc<dyn Listener<Request>>>,
    /// Listener of `agent/request-error`.
    pub request_error: Option<Arc<dyn Listener<RequestError>>>,
    /// Listener of `agent/step-result`.
    pub step_result: Option<Arc<dyn Listener<StepResult>>>,
    /// Listener of `tools/execute`.
    pub execute: Option<Arc<dyn Listener<ToolsExecute>>>,
    /// Listener of `agent/turn-continuation`.
    pub turn_continuation: Option<Arc<dyn Listener<TurnContinuation>>>,
    /// Guard.
    pub guard: Option<Arc<dyn Guard>>,
    /// Tools.
    pub provider: Option<Arc<dyn ToolProvider>>,
    /// Observer.
    pub observer: Option<Arc<dyn Observer>>,
    /// Flush.
    pub flush: Option<Arc<dyn Flush>>,
    /// Sections of the system prompt.
    pub sections: Option<Arc<dyn Sections>>,
    /// Told when a turn is over.
    pub lifecycle: Option<Arc<dyn Lifecycle>>,
}

/// Hears of the ends of things, to let go of what was kept for them.
pub trait Lifecycle: Send + Sync {
    /// A turn is over; instances kept for it can go.
    fn turn_ended(&self);
    /// The agent is gone.
    fn detached(&self);
}

/// Everything a plugin can do on behalf of the agent it is attached to. Capabilities are checked before these are called.
#[async_trait]
pub trait PluginContext: Send + Sync {
    /// The plugin's name.
    fn plugin(&self) -> &PluginName;
    /// The agent.
    fn agent(&self) -> &AgentInfo;
    /// The open turn's cancellation; one that is never cancelled while no turn is open.
    fn cancellation(&self) -> CancellationToken;
    /// Where the agent is in its life.
    fn at(&self) -> StepRef;

    /// A message for the next turn.
    async fn send(&self, content: Vec<ContentBlock>) -> Result<(), Failure>;
    /// A message for the running turn; while none is open, the same as `send`.
    async fn steer(&self, content: Vec<ContentBlock>) -> Result<(), Failure>;
    /// Context for the next request; never starts a turn.
    async fn inject(&self, content: Vec<ContentBlock>) -> Result<(), Failure>;

    /// Entries of the log from `start` on, without other plugins' `state`: at most `limit`, and about `max_bytes` of text.
    async fn read_log(&self, start: u64, limit: u32, max_bytes: usize) -> Result<Vec<Entry>, Failure>;
    /// Appends `plugin/<name>/<kind>` and returns its sequence number. `depth` is that of the notification it is made in, plus one;
    /// 0 outside of one. From depth 8 on it is refused.
    async fn append_log(&self, kind: &str, data: Value, depth: u32) -> Result<u64, Failure>;

    /// A value that the plugin keeps in this session, as JSON text.
    fn state(&self, key: &str) -> Option<Arc<str>>;
    /// The keys that start with `prefix`, sorted.
    fn state_keys(&self, prefix: &str) -> Vec<String>;
    /// Bytes of all keys and values kept.
    fn state_bytes(&self) -> usize;
    /// Keeps (or, with none, removes) values; each becomes a `plugin/<name>/state` entry. Called when a call returned well.
    async fn commit_state(&self, changes: Vec<(String, Option<Value>)>, depth: u32) -> Result<(), Failure>;

    /// The agent's tools, in the order the model sees them.
    fn tools(&self) -> Vec<ToolInfo>;
    /// The definition of a tool.
    fn find_tool(&self, name: &str) -> Option<ToolDefinition>;

    /// Calls a model outside of the loop; runs no waterfall, is counted.
    async fn generate(&self, request: GenerateRequest) -> Result<GenerateResponse, Failure>;
    /// Asks the person something that is not about one call.
    async fn ask(&self, question: Question) -> Result<ApprovalAnswer, Failure>;
    /// Has a sub-agent do a piece of work on behalf of the tool call `call`, whose profile holds for it too, and waits until it is gone.
    /// However its work ended, that is a report; a failure says why there was none: `too-deep`, `limit`, `invalid-argument`,
    /// `not-available` (it could not be made, or the host is going down), or `aborted` when the call was.
    ///
    /// Dropping the future disposes the sub-agent.
    async fn run_agent(&self, task: AgentTask, call: &ToolContext) -> Result<AgentReport, Failure>;

    /// The plugin called what it was not granted; logs `plugin/refused` once per capability and agent. `grant` is the option to type.
    async fn refused(&self, capability: &str, grant: &str);
}

/// Sees everything an agent shows. The command line's streams and `after` commands hang on it.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Called in order, at once, before observers see it. Must not wait.
    fn emit(&self, emitted: &Emitted);
    /// Called when the event's observers are done, before the driver goes on.
    async fn settled(&self, emitted: &Emitted);
}
