//! What decided an exit code, in a sentence: as a warning while a run goes on, as an error where warnings are not shown.

use dsh_seam::event::{PluginFailed, ReasonKind, ToolResultEvent, TurnEnd};
use dsh_seam::message::result_text;
use dsh_seam::printable::quoted;
use dsh_seam::tools::DENYING_CODES;

/// Of a plugin's sentence on a line of standard error; the whole is in the log.
const MESSAGE_CHARS: usize = 500;

/// The code of a question that nobody was there to answer.
pub const UNANSWERED: &str = "approval-unavailable";
/// What to try then.
pub const ANSWER_FOR_ME: &str = "nobody can be asked here, and `--approve allow` answers for you";

/// A turn that a limit ended.
pub fn limit(end: &TurnEnd) -> Option<String> {
    let turn = end.turn;
    match end.reason.kind {
        ReasonKind::MaxSteps => Some(format!("turn {turn} ended at its limit of steps; `--max-steps` allows more")),
        ReasonKind::MaxTokens => {
            Some(format!("turn {turn} ended because the answer was cut at the model's limit of tokens"))
        }
        ReasonKind::Budget => {
            let message = end.reason.message.as_deref().unwrap_or("a budget ran out");
            Some(format!("turn {turn} ended: {}", quoted(message, MESSAGE_CHARS)))
        }
        _ => None,
    }
}

/// A turn that was ended from outside.
pub fn stopped(end: &TurnEnd) -> Option<String> {
    let how = match end.reason.kind {
        ReasonKind::Aborted => "was aborted",
        ReasonKind::Disposed => "ended with its agent",
        _ => return None,
    };
    let reason = end.reason.reason.as_deref().map(|reason| format!(": {}", quoted(reason, MESSAGE_CHARS)));
    Some(format!("turn {} {how}{}", end.turn, reason.unwrap_or_default()))
}

/// A denied call: a run in which nobody reads the events still says why nothing was done.
pub fn denial(result: &ToolResultEvent) -> Option<String> {
    let code = result.code.as_deref().filter(|code| DENYING_CODES.contains(code))?;
    let text = result_text(&result.content);
    let why = text.lines().next().unwrap_or_default();
    let hint = if code == UNANSWERED { format!("; {ANSWER_FOR_ME}") } else { String::new() };
    Some(format!("a tool call was denied: {why}{hint}"))
}

/// A plugin's failure; `strictly` when it counts with `--strict` only.
pub fn failure(failed: &PluginFailed, strictly: bool) -> String {
    let PluginFailed { plugin, seam, message, .. } = failed;
    let strict = if strictly { "; with `--strict` this counts" } else { "" };
    format!("plugin `{plugin}` failed in `{seam}`: {}{strict}", quoted(message, MESSAGE_CHARS))
}
