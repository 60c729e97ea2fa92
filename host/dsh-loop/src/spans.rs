//! Spans of `tracing` around what a driver does: a turn, its steps, their requests and tool calls. Those of plugins' calls, made where
//! plugins are called, are inside of them. A span that no subscriber wants is one look at a flag.

use dsh_seam::ids::{AgentInfo, StepRef};
use dsh_seam::llm::ModelRequest;
use dsh_seam::message::ToolCall;
use tracing::{Span, debug_span, info_span};

/// A turn, until its flush is done.
pub(crate) fn turn(info: &AgentInfo, turn: u32) -> Span {
    info_span!(target: "dsh::turn", "turn", agent = %info.agent, session = %info.session, turn)
}

/// A step.
pub(crate) fn step(at: StepRef) -> Span {
    debug_span!(target: "dsh::step", "step", turn = at.turn, step = at.step)
}

/// One attempt at calling the model.
pub(crate) fn request(request: &ModelRequest) -> Span {
    let StepRef { turn, step } = request.at;
    debug_span!(target: "dsh::request", "request", turn, step, attempt = request.attempt, model = %request.model)
}

/// A tool call on its way through listeners and guards. Its names are the model's, so they are quoted.
pub(crate) fn tool_call(at: StepRef, call: &ToolCall) -> Span {
    let StepRef { turn, step } = at;
    debug_span!(target: "dsh::tool", "tool-call", turn, step, call_id = call.id.as_str(), tool = call.name.as_str())
}
