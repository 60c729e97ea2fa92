//! `session list`, `show`, `export` and `requests`: what was kept.

mod cache;
mod usage;

use dsh_seam::event::{Entry, Event, ReasonKind, Source, TurnReason};
use dsh_seam::message::{ContentBlock, ResultBlock, result_text};
use dsh_seam::session::{SessionHeader, SessionSummary, Sessions};
use dsh_seam::{AgentId, SessionId};
use dsh_services::session::Requests;
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

use crate::args::{SessionPlace, Shape, WhichRequests};
use crate::commands::replay::{EntryPrinter, printed};
use crate::commands::{columns, print, print_json};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::output::chat::tame;
use crate::resolve::{self, Store};
use crate::{compose, config, diagnostics};
pub use cache::cache;
pub use usage::usage;

/// How many changed requests are named; one change is in all that came later, and a message is for a person.
const MAX_NAMED: usize = 10;

fn sessions(place: &SessionPlace, environment: &Environment) -> Result<std::sync::Arc<dyn Sessions>, Stop> {
    let config = match (&place.session, &place.config) {
        // A place that is named needs no configuration.
        (Some(_), None) => None,
        (_, Some(named)) => config::find(Some(named), environment)?,
        // A file that does not count must not keep anybody from looking at what was kept.
        (None, None) => config::find(None, environment).unwrap_or_else(|stop| {
            diagnostics::note(format_args!("ignored: {}", stop.message));
            None
        }),
    };
    let folder = resolve::session_folder(place.session.as_ref(), config.as_ref(), environment)?;
    Ok(compose::sessions(&Store::Files(folder), &environment.working_directory))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed<'a> {
    id: &'a SessionId,
    agent: &'a str,
    workspace: &'a str,
    model: Option<&'a str>,
    created: u64,
    last_time: u64,
    entries: u64,
    turns: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a SessionId>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    lineage: &'a [AgentId],
}

/// The sessions, the newest first.
pub async fn list(place: &SessionPlace, shape: Shape, environment: &Environment) -> Result<Code, Stop> {
    let list = sessions(place, environment)?.list().await?;
    if shape == Shape::Json {
        let listed: Vec<Listed<'_>> = list.iter().map(listed).collect();
        return print_json(&listed).map(|()| Code::Success);
    }
    let head = ["SESSION", "LAST ENTRY (UTC)", "TURNS", "AGENT", "MODEL", "WORKSPACE"].map(str::to_owned).to_vec();
    let row = |summary: &SessionSummary| {
        let header = &summary.header;
        let model = header.model.clone().unwrap_or_default();
        vec![
            header.id.to_string(),
            moment(summary.last_time_ms),
            summary.turns.to_string(),
            header.agent.to_string(),
            model,
            header.workspace.clone(),
        ]
    };
    if list.is_empty() {
        diagnostics::note("there is no session");
    } else {
        let rows: Vec<Vec<String>> = [head].into_iter().chain(list.iter().map(row)).collect();
        print(&columns(&rows))?;
    }
    Ok(Code::Success)
}

fn listed(summary: &SessionSummary) -> Listed<'_> {
    let header = &summary.header;
    Listed {
        id: &header.id,
        agent: header.agent.as_str(),
        workspace: &header.workspace,
        model: header.model.as_deref(),
        created: header.created,
        last_time: summary.last_time_ms,
        entries: summary.entries,
        turns: summary.turns,
        parent: header.parent.as_ref(),
        lineage: &header.lineage,
    }
}

/// A session as a conversation.
pub async fn show(
    id: &str,
    place: &SessionPlace,
    salvage: bool,
    shape: Shape,
    environment: &Environment,
) -> Result<Code, Stop> {
    let sessions = sessions(place, environment)?;
    if shape == Shape::Json {
        let (_, printed) = printed(sessions.as_ref(), id, salvage, JsonPrinter::begin).await?;
        print(printed.end())?;
    } else {
        let (header, ConversationPrinter { open }) =
            printed(sessions.as_ref(), id, salvage, ConversationPrinter::begin).await?;
        if let Some(turn) = open {
            let id = header.id;
            print(&format!(
                "\nturn {turn} is not over\n    its process runs, or was ended in the middle; `--resume {id}` goes on\n"
            ))?;
        }
    }
    Ok(Code::Success)
}

#[derive(Default)]
struct ConversationPrinter {
    /// The turn that is not over.
    open: Option<u32>,
}

impl ConversationPrinter {
    fn begin(header: &SessionHeader, out: &mut Vec<u8>) -> Self {
        let model = header.model.as_deref().unwrap_or("no model");
        let mut text =
            format!("session {} of agent {}, {model}, begun {} UTC\n", header.id, header.agent, moment(header.created));
        if !header.lineage.is_empty() {
            let ancestors: Vec<&str> = header.lineage.iter().map(AgentId::as_str).collect();
            text.push_str(&format!("made by agent {}\n", ancestors.join(", made by ")));
        }
        match (&header.parent, header.forked_at) {
            (Some(parent), Some(at)) => text.push_str(&format!("a copy of {parent} up to {at}\n")),
            (Some(parent), None) => text.push_str(&format!("in session {parent}\n")),
            (None, _) => {}
        }
        out.extend_from_slice(tame(&text).as_bytes());
        Self::default()
    }
}

impl EntryPrinter for ConversationPrinter {
    fn print(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        match &entry.event {
            Event::TurnStart(start) => self.open = Some(start.turn),
            Event::TurnEnd(_) => self.open = None,
            _ => {}
        }
        let mut text = String::new();
        transcribe(&entry.event, &mut text);
        out.extend_from_slice(tame(&text).as_bytes());
    }
}

/// The whole session as one JSON object, `header` and `entries`, set as [`print_json`] sets everything.
#[derive(Default)]
struct JsonPrinter {
    entries: u64,
}

impl JsonPrinter {
    fn begin(header: &SessionHeader, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(b"{\n  \"header\": ");
        Self::set(header, "\n  ", out);
        out.extend_from_slice(b",\n  \"entries\": [");
        Self::default()
    }

    /// A value, its lines set further in. No line ends inside of a JSON text.
    fn set(value: &impl Serialize, further_in: &str, out: &mut Vec<u8>) {
        let text =
            serde_json::to_string_pretty(value).expect("invariant: what was read from JSON can be written as JSON");
        out.extend_from_slice(text.replace('\n', further_in).as_bytes());
    }

    fn end(&self) -> &'static str {
        if self.entries == 0 { "]\n}\n" } else { "\n  ]\n}\n" }
    }
}

impl EntryPrinter for JsonPrinter {
    fn print(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.entries == 0 { b"\n    " } else { b",\n    " });
        Self::set(entry, "\n    ", out);
        self.entries += 1;
    }
}

/// A session's log as it was written.
pub async fn export(id: &str, place: &SessionPlace, salvage: bool, environment: &Environment) -> Result<Code, Stop> {
    let begin = |header: &SessionHeader, out: &mut Vec<u8>| {
        crate::output::line(header, out);
        LinePrinter
    };
    printed(sessions(place, environment)?.as_ref(), id, salvage, begin).await?;
    Ok(Code::Success)
}

#[derive(Default)]
struct LinePrinter;

impl EntryPrinter for LinePrinter {
    fn print(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        crate::output::line(entry, out);
    }
}

/// The requests that the model was sent, a line each.
pub async fn requests(
    id: &str,
    place: &SessionPlace,
    which: &WhichRequests,
    environment: &Environment,
) -> Result<Code, Stop> {
    let begin = |_: &SessionHeader, _: &mut Vec<u8>| RequestPrinter { which: *which, ..RequestPrinter::default() };
    let (header, RequestPrinter { found, changed, changed_count, .. }) =
        printed(sessions(place, environment)?.as_ref(), id, false, begin).await?;
    if !changed.is_empty() {
        let more = match changed_count - changed.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "session `{}` was changed after it was written: rebuilt from it, these requests do not have the hash they were sent with: {}{more}",
            header.id,
            changed.join(", ")
        );
        return Err(Stop::usage(message));
    }
    if !found && !which.is_all() {
        return Err(Stop::usage(format!("session `{}` has no such request", header.id))
            .hint(format!("`dsh-host session requests {}` prints all it has", header.id)));
    }
    Ok(Code::Success)
}

#[derive(Default)]
struct RequestPrinter {
    which: WhichRequests,
    requests: Requests,
    found: bool,
    /// The first of those that are not as they were sent.
    changed: Vec<String>,
    changed_count: usize,
}

impl EntryPrinter for RequestPrinter {
    fn print(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        let Some(rebuilt) = self.requests.apply(entry) else { return };
        let (at, attempt) = (rebuilt.request.at, rebuilt.request.attempt);
        if !self.which.takes(at, attempt) {
            return;
        }
        self.found = true;
        if !rebuilt.is_as_sent {
            self.changed_count += 1;
            if self.changed.len() < MAX_NAMED {
                self.changed.push(format!("{} (turn {}, step {}, attempt {attempt})", entry.seq, at.turn, at.step));
            }
        }
        crate::output::line(&rebuilt.request, out);
    }
}

/// Adds one entry to a transcript, if a reader wants to know of it.
fn transcribe(event: &Event, out: &mut String) {
    let mut say = |who: &str, text: &str| {
        let text = text.trim_end().replace('\n', "\n    ");
        out.push_str(&format!("\n{who}\n    {text}\n"));
    };
    match event {
        Event::UserMessage(message) => say(&whose(&message.source, "user"), &texts(&message.content)),
        Event::ContextMessage(message) => say(&whose(&message.source, "context"), &texts(&message.content)),
        Event::SteeringMessage(message) => say(&whose(&message.source, "steering"), &texts(&message.content)),
        Event::AssistantMessage(message) => {
            let who = if message.interrupted == Some(true) { "assistant (interrupted)" } else { "assistant" };
            say(who, &texts(&message.content));
        }
        Event::ToolResult(result) => {
            let code = result.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
            say(&format!("result of {}{code}", result.call_id), &result_texts(&result.content));
        }
        Event::ApprovalDecided(decided) => {
            let word = |value: serde_json::Result<serde_json::Value>| {
                value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
            };
            let (answer, by) = (word(serde_json::to_value(decided.answer)), word(serde_json::to_value(decided.by)));
            say("approval", &format!("{answer} by {by}"));
        }
        Event::CompactionApplied(applied) => {
            say("compaction", &format!("{} replaced {} messages", applied.plugin, applied.count))
        }
        Event::PluginFailed(failed) => {
            say("plugin failed", &format!("{} in {}: {}", failed.plugin, failed.seam, failed.message))
        }
        Event::Error(error) => say("error", &format!("{} ({})", error.message, error.code)),
        Event::TurnEnd(end) if end.reason.kind != ReasonKind::Completed => {
            say(&format!("turn {} ended", end.turn), &ending(&end.reason));
        }
        _ => {}
    }
}

/// Why a turn ended; what an error was about stands above it already.
fn ending(reason: &TurnReason) -> String {
    let kind = serde_json::to_value(reason.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    let kind = kind.unwrap_or_default();
    let why = reason.reason.as_ref().or(reason.message.as_ref()).filter(|_| reason.kind != ReasonKind::Error);
    match (why, &reason.code) {
        (Some(why), Some(code)) => format!("{kind}: {why} ({code})"),
        (Some(why), None) => format!("{kind}: {why}"),
        (None, _) => kind,
    }
}

fn whose(source: &Source, what: &str) -> String {
    match source {
        Source::User => what.to_owned(),
        Source::Plugin { plugin } => format!("{what} (from plugin {plugin})"),
        Source::Agent { agent } => format!("{what} (from agent {agent})"),
    }
}

fn texts(content: &[ContentBlock]) -> String {
    let text = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => block.text.clone(),
        ContentBlock::Reasoning(block) => format!("(thinks) {}", block.text),
        ContentBlock::ToolCall(call) => format!("(calls {} as {}) {}", call.name, call.id, call.arguments),
        ContentBlock::ToolResult(result) => result_texts(&result.content),
        ContentBlock::Image(_) => "(an image)".into(),
        ContentBlock::Other(value) => value.to_string(),
    };
    content.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn result_texts(content: &[ResultBlock]) -> String {
    let images = content.iter().filter(|block| matches!(block, ResultBlock::Image(_))).count();
    let text = result_text(content);
    if images == 0 { text } else { format!("{text}\n({images} images)") }
}

/// Unix milliseconds as a date and a time.
fn moment(time_ms: u64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    let seconds = i64::try_from(time_ms / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds)
        .ok()
        .and_then(|time| time.format(format).ok())
        .unwrap_or_else(|| time_ms.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_reads_like_a_conversation() {
        let mut out = String::new();
        for line in [
            r#"{"type":"user/message","seq":0,"time":0,"session":"s","agent":"main","data":{"content":[{"type":"text","text":"hi\nyou"}],"source":{"type":"user"}}}"#,
            r#"{"type":"assistant/message","seq":1,"time":0,"session":"s","agent":"main","data":{"turn":1,"step":1,"content":[{"type":"tool-call","id":"c","name":"echo","arguments":"{}"}]}}"#,
            r#"{"type":"tool/result","seq":2,"time":0,"session":"s","agent":"main","data":{"turn":1,"step":1,"callId":"c","content":[{"type":"text","text":"no"}],"isError":true,"code":"denied"}}"#,
            r#"{"type":"turn/end","seq":3,"time":0,"session":"s","agent":"main","data":{"turn":1,"reason":{"type":"max-steps"}}}"#,
            r#"{"type":"turn/end","seq":4,"time":0,"session":"s","agent":"main","data":{"turn":2,"reason":{"type":"budget","code":"max-cost","message":"all is spent"}}}"#,
            r#"{"type":"turn/end","seq":5,"time":0,"session":"s","agent":"main","data":{"turn":3,"reason":{"type":"aborted","reason":"enough"}}}"#,
            r#"{"type":"turn/end","seq":6,"time":0,"session":"s","agent":"main","data":{"turn":4,"reason":{"type":"error","code":"c","message":"m"}}}"#,
        ] {
            transcribe(&Entry::parse(line).expect("an entry").event, &mut out);
        }
        let expect = "\nuser\n    hi\n    you\n\nassistant\n    (calls echo as c) {}\n\nresult of c (denied)\n    no\n\nturn 1 ended\n    max-steps\n\nturn 2 ended\n    budget: all is spent (max-cost)\n\nturn 3 ended\n    aborted: enough\n\nturn 4 ended\n    error\n";
        assert_eq!(out, expect);
    }

    #[test]
    fn moments_are_in_utc() {
        assert_eq!(moment(1_700_000_000_123), "2023-11-14 22:13:20");
    }
}
