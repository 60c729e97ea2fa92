//! What a person sees in a chat: the text, and in one dim line each what else happens.

use dsh_seam::AgentId;
use dsh_seam::event::{AskedQuestion, Emitted, Event, LiveEvent, ReasonKind};
use dsh_seam::message::result_text;
use dsh_seam::printable::is_hidden;

use super::text::TextSink;

/// Longest piece of a call or a result that is shown, in characters.
const SHOWN: usize = 100;

/// Prints a chat.
pub struct ChatSink {
    agent: AgentId,
    text: TextSink,
    colour: bool,
}

impl ChatSink {
    /// For `agent`, with colours when a terminal shows them.
    pub fn new(agent: AgentId, stream: bool, colour: bool) -> Self {
        Self { text: TextSink::new(agent.clone(), stream, true), agent, colour }
    }

    /// Adds what an event looks like.
    pub fn emit(&mut self, emitted: &Emitted, out: &mut Vec<u8>) {
        self.text.emit(emitted, out);
        if *emitted.agent() != self.agent {
            return;
        }
        if let Some((line, style)) = beside(emitted) {
            self.text.end_line(out);
            let (on, off) = if self.colour { (style, "\x1b[0m") } else { ("", "") };
            out.extend(format!("{on}{}{off}\n", tame(&line)).into_bytes());
        }
    }

    /// Ends the line if one is open.
    pub fn end_line(&mut self, out: &mut Vec<u8>) {
        self.text.end_line(out);
    }
}

const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";

/// What is shown of an event that is no text.
fn beside(emitted: &Emitted) -> Option<(String, &'static str)> {
    match emitted {
        Emitted::Durable(entry) => match &entry.event {
            Event::ToolCall(call) => Some((format!("→ {} {}", call.name, first_line(&call.arguments)), DIM)),
            Event::ToolResult(result) => {
                let text = first_line(&result_text(&result.content));
                let code = result
                    .code
                    .as_ref()
                    .filter(|_| result.is_error)
                    .map(|code| format!("{code}: "))
                    .unwrap_or_default();
                Some((format!("← {code}{text}"), if result.is_error { RED } else { DIM }))
            }
            Event::RequestFailed(failed) => Some((format!("the model failed: {}", failed.message), DIM)),
            Event::CompactionApplied(applied) => {
                Some((format!("({} shortened the history by {} messages)", applied.plugin, applied.count), DIM))
            }
            Event::TurnEnd(end) => match end.reason.kind {
                ReasonKind::Aborted => Some(("(aborted)".into(), DIM)),
                ReasonKind::MaxSteps => Some(("(stopped: the limit of steps is reached)".into(), DIM)),
                ReasonKind::MaxTokens => Some(("(the answer was cut at its token limit)".into(), DIM)),
                ReasonKind::Budget => {
                    Some((format!("(stopped: {})", end.reason.message.as_deref().unwrap_or("a budget ran out")), DIM))
                }
                _ => None,
            },
            _ => None,
        },
        Emitted::Live { event, .. } => match event.as_ref() {
            LiveEvent::AgentError(error) => Some((format!("error: {}", error.message), RED)),
            LiveEvent::ToolProgress(progress) => Some((format!("  {}", first_line(&progress.text)), DIM)),
            _ => None,
        },
    }
}

/// A question to the person: who asks, about which call, and what can be answered.
pub fn question(asked: &dsh_seam::event::ApprovalAsked) -> String {
    let mut lines = Vec::new();
    if let Some(call) = &asked.call {
        lines.push(format!("{} {}", call.name, tame(&call.arguments)));
    }
    lines.extend(asked.questions.iter().map(|AskedQuestion { plugin, title, detail, .. }| {
        let detail = if detail.trim().is_empty() {
            String::new()
        } else {
            format!("\n  {}", detail.trim().replace('\n', "\n  "))
        };
        tame(&format!("`{plugin}` asks: {title}{detail}"))
    }));
    let answers = if offers_always(&asked.questions) { "[y]es, [a]lways, [n]o" } else { "[y]es, [n]o" };
    format!("{}\n{answers}? ", lines.join("\n"))
}

/// "Always" is on offer only if every asker named what to remember.
pub fn offers_always(questions: &[AskedQuestion]) -> bool {
    !questions.is_empty() && questions.iter().all(|question| question.remember.is_some())
}

/// The first line, cut.
pub fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let more = text.trim().lines().nth(1).is_some();
    match line.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None if more => format!("{line} …"),
        None => line.to_owned(),
    }
}

/// Without what acts on a line: no escape sequence of a model, a tool or a plugin reaches the terminal.
pub fn tame(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_seam::event::ApprovalAsked;

    #[test]
    fn a_question_names_who_asks_and_shows_the_call() {
        let json = r#"{"turn":1,"step":1,"id":"approval-1","call":{"name":"shell","arguments":"{\"command\":\"ls\"}"},
            "questions":[{"plugin":"permission","title":"run a command","detail":"ls","remember":"ls"}]}"#;
        let asked: ApprovalAsked = serde_json::from_str(json).expect("a question");
        let expect = "shell {\"command\":\"ls\"}\n`permission` asks: run a command\n  ls\n[y]es, [a]lways, [n]o? ";
        assert_eq!(question(&asked), expect);
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(tame("a\x1b[2Jb\tc\n\u{202e}d"), "a\u{fffd}[2Jb\tc\n\u{fffd}d");
        assert_eq!(first_line("one\ntwo"), "one …");
        assert_eq!(first_line(&"x".repeat(200)), format!("{}…", "x".repeat(100)));
    }
}
