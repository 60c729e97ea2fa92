//! The five waterfalls: what travels through each, and what counts as a change.

use std::sync::Arc;
use std::time::Duration;

use crate::draft::{DraftCheckpoint, RequestDraft, RequestFailure};
use crate::event::ChangeKind;
use crate::failure::{Failure, Seam};
use crate::ids::PluginName;
use crate::message::{ContentBlock, FinishReason, Message, ModelName, ToolCall, Usage};
use crate::tools::{Outcome, Processes, Profile, ToolInfo};
use crate::waterfall::Waterfall;

/// `agent/request`: shape the request before it goes to the model.
pub struct Request;

impl Waterfall for Request {
    const SEAM: Seam = Seam::Request;
    type Context = ();
    type Value = Arc<RequestDraft>;
    type Outcome = ();
    type Checkpoint = DraftCheckpoint;

    fn checkpoint(draft: &Arc<RequestDraft>) -> DraftCheckpoint {
        draft.checkpoint()
    }

    fn is_at(draft: &Arc<RequestDraft>, checkpoint: &DraftCheckpoint) -> bool {
        draft.is_at(checkpoint)
    }

    fn restore(draft: Arc<RequestDraft>, checkpoint: &DraftCheckpoint) -> Arc<RequestDraft> {
        draft.restore(checkpoint);
        draft
    }
}

/// Whether to try a failed request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// No.
    GiveUp,
    /// Yes, after so many milliseconds.
    RetryAfterMs(u32),
}

/// A model call that failed, and what another attempt has to be weighed against.
#[derive(Debug, Clone)]
pub struct FailedRequest {
    /// What happened, and to which attempt.
    pub failed: RequestFailure,
    /// `PROVIDER/MODEL` that was asked.
    pub model: ModelName,
    /// Whether text, reasoning or an image of this attempt had reached the log, and with it a reader.
    pub streamed: bool,
    /// The codes of the step's failed attempts so far, in order; the last is this one's.
    pub codes: Vec<String>,
    /// How long the turn has waited for further attempts so far.
    pub waited: Duration,
}

/// `agent/request-error`: the model call failed and its step is still open.
pub struct RequestError;

impl Waterfall for RequestError {
    const SEAM: Seam = Seam::RequestError;
    type Context = FailedRequest;
    type Value = ();
    type Outcome = Recovery;
    type Checkpoint = ();

    fn checkpoint(_value: &()) {}
}

/// `agent/step-result`: shape the assistant's message before it is logged and acted on.
pub struct StepResult;

impl Waterfall for StepResult {
    const SEAM: Seam = Seam::StepResult;
    type Context = ();
    type Value = Arc<Message>;
    type Outcome = Arc<Message>;
    type Checkpoint = ();

    fn checkpoint(_message: &Arc<Message>) {}

    fn changed_inward(given: &Arc<Message>, passed: &Arc<Message>) -> Vec<ChangeKind> {
        message_changes(given, passed)
    }

    fn changed_outward(given: &Arc<Message>, inner: Option<&Arc<Message>>, answered: &Arc<Message>) -> Vec<ChangeKind> {
        message_changes(inner.unwrap_or(given), answered)
    }
}

fn message_changes(before: &Arc<Message>, after: &Arc<Message>) -> Vec<ChangeKind> {
    if Arc::ptr_eq(before, after) {
        return Vec::new();
    }
    let texts = |message: &Message| {
        message.content.iter().filter(|block| !matches!(block, ContentBlock::ToolCall(_))).cloned().collect::<Vec<_>>()
    };
    let mut changes = Vec::new();
    if texts(before) != texts(after) {
        changes.push(ChangeKind::Content);
    }
    if !before.tool_calls().eq(after.tool_calls()) {
        changes.push(ChangeKind::ToolCalls);
    }
    changes
}

/// Looks a tool up by its name.
pub type FindTool = dyn Fn(&str) -> Option<ToolInfo> + Send + Sync;

/// What every listener of `tools/execute` may ask.
pub struct ExecuteContext {
    /// Finds the tool of that name; none when there is no such tool.
    pub find: Arc<FindTool>,
    /// Tells whether a profile can be enforced.
    pub processes: Arc<dyn Processes>,
}

impl ExecuteContext {
    /// Whether this machine can hold a tool to `profile`.
    pub fn enforceable(&self, profile: &Profile) -> Result<(), Failure> {
        self.processes.enforceable(profile)
    }
}

/// A call on its way inward.
#[derive(Debug, Clone)]
pub struct Execution {
    /// The call.
    pub call: ToolCall,
    /// What the tool may touch; listeners hand on an intersection of it.
    pub profile: Arc<Profile>,
    /// The last plugin that changed the call or runs it again, if one does.
    pub changed_by: Option<PluginName>,
}

/// `tools/execute`: permission, sandbox, plan mode, redaction, caching, ….
///
/// A listener narrows with `next.run(Execution { profile: …intersect(…), ..})`; the profile only ever gets smaller on the way in.
pub struct ToolsExecute;

impl Waterfall for ToolsExecute {
    const SEAM: Seam = Seam::Execute;
    type Context = ExecuteContext;
    type Value = Execution;
    type Outcome = Arc<Outcome>;
    type Checkpoint = ();

    fn checkpoint(_execution: &Execution) {}

    fn changed_inward(given: &Execution, passed: &Execution) -> Vec<ChangeKind> {
        let same = given.call.name == passed.call.name && given.call.arguments == passed.call.arguments;
        if same { Vec::new() } else { vec![ChangeKind::Call] }
    }

    fn changed_outward(_given: &Execution, inner: Option<&Arc<Outcome>>, answered: &Arc<Outcome>) -> Vec<ChangeKind> {
        match inner {
            Some(inner) if Arc::ptr_eq(inner, answered) || inner == answered => Vec::new(),
            _ => vec![ChangeKind::Outcome],
        }
    }

    fn attribute(mut execution: Execution, plugin: &PluginName) -> Execution {
        execution.changed_by = Some(plugin.clone());
        execution
    }
}

/// Whether the turn takes another step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// No.
    Stop,
    /// No, a budget ran out; with a sentence for a person.
    OutOfBudget(String),
    /// Yes; the text, if any, is put at the head of its steering.
    Proceed(Option<String>),
}

/// What the step that just closed did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSummary {
    /// Why the model stopped.
    pub finish: FinishReason,
    /// How many tool calls it made.
    pub tool_calls: u32,
    /// Whether steering was read after the tools.
    pub steered: bool,
    /// What the step's model call cost.
    pub usage: Option<Usage>,
    /// What the session has used, calls by plugins included.
    pub session_usage: Usage,
}

/// `agent/turn-continuation`: decide whether the turn takes another step.
pub struct TurnContinuation;

impl Waterfall for TurnContinuation {
    const SEAM: Seam = Seam::TurnContinuation;
    type Context = StepSummary;
    type Value = Decision;
    type Outcome = Decision;
    type Checkpoint = ();

    fn checkpoint(_decision: &Decision) {}

    /// Not logged; it tells whose text a `proceed` carries.
    fn changed_inward(given: &Decision, passed: &Decision) -> Vec<ChangeKind> {
        if given == passed { Vec::new() } else { vec![ChangeKind::Call] }
    }

    fn changed_outward(_given: &Decision, inner: Option<&Decision>, answered: &Decision) -> Vec<ChangeKind> {
        if inner == Some(answered) { Vec::new() } else { vec![ChangeKind::Outcome] }
    }
}
