//! What a log that stopped in the middle still owes, so that the session goes on as if it had been closed.
//!
//! Nothing is truncated: what had been streamed becomes an interrupted message, every tool call gets a result that tells a started
//! call from one that never started, step and turn are closed.

use dsh_seam::event::{
    AssistantMessage, ErrorEvent, Event, ReasonKind, StepMark, ToolCallEvent, ToolResultEvent, TurnEnd, TurnReason,
};
use dsh_seam::tools::Outcome;

use crate::log_state::LogState;

/// Why a log stopped in the middle.
pub(crate) enum Cut {
    /// The process that wrote it ended.
    Process,
    /// The driver that wrote it was dropped, or panicked: the reason of its turn, and the error that is logged before.
    Driver { reason: TurnReason, error: Option<ErrorEvent> },
}

impl Cut {
    /// The result of a call that was running.
    fn started(&self) -> Outcome {
        let who = match self {
            Self::Process => "the process ended",
            Self::Driver { .. } => "the agent was ended",
        };
        Outcome::error(
            "outcome-unknown",
            format!(
                "Outcome unknown: {who} while this call was running. Look at its effects before you call it again."
            ),
        )
    }

    /// The result of a call that was not.
    fn not_started(&self) -> Outcome {
        match self {
            Self::Process => Outcome::error(
                "not-started",
                "Not started: the process ended before this call ran. It is safe to call it again.",
            ),
            Self::Driver { .. } => {
                Outcome::error("aborted-before-dispatch", "Not run: the agent was ended before this call was started.")
            }
        }
    }
}

/// The entries to append, in order.
pub(crate) fn owed(state: &LogState, cut: Cut) -> Vec<Event> {
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
            let outcome = if state.started { cut.started() } else { cut.not_started() };
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
    let reason = match (cut, &open.error) {
        (Cut::Process, _) => TurnReason::plain(ReasonKind::Interrupted),
        // An error that was logged before stays.
        (Cut::Driver { .. }, Some((code, message))) => of_error(code, message),
        (Cut::Driver { error: Some(error), .. }, None) => {
            let reason = of_error(&error.code, &error.message);
            events.push(Event::Error(error));
            reason
        }
        (Cut::Driver { reason, error: None }, None) => reason,
    };
    events.push(Event::TurnEnd(TurnEnd { turn, reason }));
    events
}

/// What a repair does, for a person.
pub(crate) fn told(owed: &[Event]) -> String {
    let turn = owed.iter().find_map(|event| match event {
        Event::TurnEnd(end) => Some(end.turn),
        _ => None,
    });
    let unknown = owed.iter().filter(
        |event| matches!(event, Event::ToolResult(result) if result.code.as_deref() == Some("outcome-unknown")),
    );
    let unknown = match unknown.count() {
        0 => String::new(),
        1 => ", and the outcome of a tool call is not known".into(),
        count => format!(", and the outcomes of {count} tool calls are not known"),
    };
    format!("turn {} was not over and is closed now{unknown}", turn.unwrap_or_default())
}

fn of_error(code: &str, message: &str) -> TurnReason {
    TurnReason { kind: ReasonKind::Error, reason: None, code: Some(code.into()), message: Some(message.into()) }
}
