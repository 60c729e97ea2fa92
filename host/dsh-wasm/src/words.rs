//! The words of `dsh-seam` that this crate speaks, under one roof.

pub(crate) use dsh_seam::draft::{RequestDraft, RequestFailure};
pub(crate) use dsh_seam::event::{ApprovalAnswer, Entry, ReasonKind};
pub(crate) use dsh_seam::llm::{GenerateRequest, GenerateResponse};
pub(crate) use dsh_seam::message::{
    CacheHint, ContentBlock, FinishReason, ImageBlock, ImageSource, Message, ReasoningBlock, ResultBlock, Role,
    Sampling, TextBlock, ToolCall, ToolResult, ToolSchema, Usage,
};
pub(crate) use dsh_seam::plugin::{Attached, Lifecycle, Plugin, PluginContext};
pub(crate) use dsh_seam::session::{Flush, FlushError, Observer, Section, Sections};
pub(crate) use dsh_seam::subagents::{AgentReport, AgentTask, StartFrom};
pub(crate) use dsh_seam::tools::{
    Access, Annotations, Guard, NetworkPolicy, Outcome, PathGrant, ProcessCommand, ProcessExit, Profile, Question,
    ToolContext, ToolDefinition, ToolInfo, ToolProvider, Verdict,
};
pub(crate) use dsh_seam::view::{ModelMessage, Origin};
pub(crate) use dsh_seam::waterfall::{Listener, Next, RunContext, RunError};
pub(crate) use dsh_seam::waterfalls::{
    Decision, Execution, FailedRequest, Recovery, Request, RequestError, StepResult, StepSummary, ToolsExecute,
    TurnContinuation,
};
pub(crate) use dsh_seam::{Failure, FailureMode, PluginError, PluginName, Seam, StepRef};
