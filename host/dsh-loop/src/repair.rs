//! What a log that stopped in the middle still owes, so that the session goes on as if it had been closed.
//!
//! Nothing is truncated: what had been streamed becomes an interrupted message, every tool call gets a result that tells a started
//! call from one that never started, step and turn are closed.

use dsh_seam::event::{
    AssistantMessage, Event, ReasonKind, StepMark, ToolCallEvent, ToolResultEvent, TurnEnd, TurnReason,
};
use dsh_seam::tools::Outcome;

use crate::log_state::LogState;

/// The entries to append, in order.
pub(crate) fn owed(state: &LogState) -> Vec<Event> {
    let Some(open) = &state.open else { return Vec::new() };
    let turn = open.turn;
    let mut events = Vec::new();
    if let Some(open_step) = &open.step {
        let step = open_step.step;
        if !open_step.message_logged
            && let Some(content) = open_step.stream.interrupted()
        {
            events.push(Event::AssistantMessage(AssistantMessage { turn, step, content, interrupted: Some(true) }));
        }
        for state in open_step.calls.iter().filter(|state| !state.answered) {
            let call = &state.call;
            if !state.started {
                events.push(Event::ToolCall(ToolCallEvent {
                    turn,
                    step,
                    call_id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                }));
            }
            let outcome = if state.started {
                Outcome::error(
                    "outcome-unknown",
                    "Outcome unknown: the process ended while this call was running. Look at its effects before you call it again.",
                )
            } else {
                Outcome::error(
                    "not-started",
                    "Not started: the process ended before this call ran. It is safe to call it again.",
                )
            };
            let Outcome { content, is_error, code, plugin } = outcome;
            events.push(Event::ToolResult(ToolResultEvent {
                turn,
                step,
                call_id: call.id.clone(),
                content,
                is_error,
                code,
                plugin,
            }));
        }
        events.push(Event::StepEnd(StepMark { turn, step }));
    }
    events.push(Event::TurnEnd(TurnEnd { turn, reason: TurnReason::plain(ReasonKind::Interrupted) }));
    events
}
