//! `session cache`: how much of each request the one before began with, where that ended, and who ended it.

use std::fmt::Write as _;

use dsh_seam::event::Entry;
use dsh_seam::message::Role;
use dsh_seam::printable::quoted;
use dsh_seam::session::SessionHeader;
use dsh_services::session::{
    Break, Change, Culprit, Kind, Place, Prefixes, RequestPrefix, SamplingChange, Size, Summary,
};
use serde::Serialize;

use super::sessions;
use crate::args::{SessionPlace, Shape};
use crate::commands::print;
use crate::commands::replay::{EntryPrinter, printed};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::output::chat::tame;

const HEAD: [&str; 8] = ["TURN", "STEP", "TRY", "BYTES", "COMMON", "SHARE", "READ", "WRITTEN"];
const MS_PER_MINUTE: u64 = 60_000;
/// How much of a name is shown: a model's may be a path.
const MAX_NAME_CHARS: usize = 256;

/// The requests of a session, a line each, and a line about all of them.
pub async fn cache(id: &str, place: &SessionPlace, shape: Shape, environment: &Environment) -> Result<Code, Stop> {
    let sessions = sessions(place, environment)?;
    let begin = |_: &SessionHeader, out: &mut Vec<u8>| CachePrinter::begin(shape, out);
    let (_, mut printer) = printed(sessions.as_ref(), id, false, begin).await?;
    let mut rest = Vec::new();
    printer.end(&mut rest);
    print(&String::from_utf8_lossy(&rest))?;
    Ok(Code::Success)
}

#[derive(Default)]
struct CachePrinter {
    json: bool,
    prefixes: Prefixes,
    summary: Summary,
}

impl CachePrinter {
    fn begin(shape: Shape, out: &mut Vec<u8>) -> Self {
        let json = shape == Shape::Json;
        if !json {
            out.extend_from_slice(row(HEAD.map(str::to_owned), "").as_bytes());
        }
        Self { json, ..Self::default() }
    }

    fn tell(&mut self, request: &RequestPrefix, out: &mut Vec<u8>) {
        self.summary.add(request);
        if self.json {
            let share = request.common.map(|common| share(common.bytes, request.size.bytes));
            crate::output::line(&Line { request, share }, out);
        } else {
            out.extend_from_slice(tame(&line(request)).as_bytes());
        }
    }

    /// The last request, and all together.
    fn end(&mut self, out: &mut Vec<u8>) {
        if let Some(last) = self.prefixes.end() {
            self.tell(&last, out);
        }
        if self.json {
            let share = share(self.summary.common.tokens, self.summary.size.tokens);
            crate::output::line(&LastLine { summary: Whole { summary: &self.summary, share } }, out);
        } else {
            out.extend_from_slice(tame(&format!("\n{}\n", whole(&self.summary))).as_bytes());
        }
    }
}

impl EntryPrinter for CachePrinter {
    fn print(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        if let Some(request) = self.prefixes.apply(entry) {
            self.tell(&request, out);
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    request: &'a RequestPrefix,
    /// Of its bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
}

#[derive(Serialize)]
struct LastLine<'a> {
    summary: Whole<'a>,
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    /// Of all tokens.
    share: f64,
}

/// A part of a whole, from 0 to 1, to four places, rounded down: only all is 1.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    let places = u128::from(part) * 10_000 / u128::from(whole);
    u32::try_from(places).map_or(1.0, |places| f64::from(places) / 10_000.0)
}

fn percent(part: u64, whole: u64) -> String {
    let percent = share(part, whole) * 100.0;
    // Only all is 100 %.
    format!("{:.1} %", if part < whole { percent.min(99.9) } else { percent })
}

fn row(cells: [String; 8], remarks: &str) -> String {
    let [turn, step, attempt, bytes, common, share, read, written] = cells;
    let row = format!(
        "{turn:>5} {step:>5} {attempt:>3} {bytes:>10} {common:>10} {share:>7} {read:>9} {written:>9}  {remarks}"
    );
    format!("{}\n", row.trim_end())
}

fn line(request: &RequestPrefix) -> String {
    let RequestPrefix { turn, step, attempt, size, common, usage, .. } = request;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let cells = [
        turn.to_string(),
        step.to_string(),
        attempt.to_string(),
        size.bytes.to_string(),
        or_dash(common.map(|common: Size| common.bytes.to_string())),
        or_dash(common.map(|common| percent(common.bytes, size.bytes))),
        or_dash(usage.map(|usage| usage.cache_read.to_string())),
        or_dash(usage.map(|usage| usage.cache_write.to_string())),
    ];
    row(cells, &remarks(request).join("; "))
}

fn remarks(request: &RequestPrefix) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(Break { place, by }) = &request.broken {
        remarks.push(format!("broken at {}, {}", at(place), culprits(by)));
    }
    if let Some(SamplingChange { changed, by }) = &request.sampling {
        remarks.push(format!("{} changed, {}", changed.join(", "), culprits(by)));
    }
    if let Some(pause) = request.pause_ms {
        remarks.push(format!("{} minutes after the one before", pause / MS_PER_MINUTE));
    }
    if let Some(code) = &request.failed {
        remarks.push(format!("failed: {}", quoted(code, MAX_NAME_CHARS)));
    }
    remarks
}

fn at(place: &Place) -> String {
    match place {
        Place::Model { before, after } => format!("the model: {} became {}", name(before), name(after)),
        Place::Tools { index, before, after } => {
            let what = match (before, after) {
                (Some(before), Some(after)) if before == after => {
                    format!("{} is described in another way", name(after))
                }
                (Some(before), Some(after)) => format!("{} became {}", name(before), name(after)),
                (Some(before), None) => format!("{} is gone", name(before)),
                (None, Some(after)) => format!("{} is new", name(after)),
                (None, None) => "it is another".into(),
            };
            format!("tool {index}: {what}")
        }
        Place::System { byte, section: None } => format!("byte {byte} of the system prompt"),
        Place::System { byte, section: Some(section) } => {
            let what = match section.change {
                Change::New => "is new",
                Change::Gone => "is gone",
                Change::Changed => "changed",
            };
            format!("byte {byte} of the system prompt: section {} of {} {what}", name(&section.name), section.plugin)
        }
        Place::Messages { index, before, after } => {
            format!("message {index}: {} became {}", kind(before), kind(after))
        }
    }
}

/// A name that somebody else chose, as it may stand in a line.
fn name(text: &str) -> String {
    format!("`{}`", quoted(text, MAX_NAME_CHARS))
}

fn kind(kind: &Kind) -> String {
    let role = match kind.role {
        Role::Assistant => "assistant",
        Role::User => "user",
        Role::System => "system",
    };
    if role == kind.origin { role.to_owned() } else { format!("{role} ({})", kind.origin) }
}

fn culprits(by: &[Culprit]) -> String {
    let names: Vec<String> = by.iter().map(culprit).collect();
    format!("by {}", names.join(" and "))
}

fn culprit(by: &Culprit) -> String {
    match by {
        Culprit::Plugin { plugin } => format!("plugin {plugin}"),
        Culprit::Configuration => "the configuration".into(),
        Culprit::Unknown => "nobody that the log knows".into(),
    }
}

/// All requests in one line.
fn whole(summary: &Summary) -> String {
    let Summary { requests, size, common, breaks, by, pauses, usage } = summary;
    if *requests == 0 {
        return "no model was asked".into();
    }
    let mut out = format!("requests {requests}, breaks {breaks}");
    if !by.is_empty() {
        let by: Vec<String> = by.iter().map(|by| format!("{} by {}", by.breaks, culprit(&by.by))).collect();
        let _ = write!(out, " ({})", by.join(", "));
    }
    if *pauses > 0 {
        let _ = write!(out, ", long pauses {pauses}");
    }
    let _ = write!(out, ", in the prefix {} of about {} tokens", percent(common.tokens, size.tokens), size.tokens);
    let [input, read, written] = [usage.input, usage.cache_read, usage.cache_write].map(u64::from);
    let prompt = input + read + written;
    if prompt > 0 {
        let _ = write!(out, ", read from the provider's cache {} of {prompt} tokens", percent(read, prompt));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_seam::PluginName;
    use dsh_services::session::SectionChange;

    #[test]
    fn only_all_is_all() {
        let check = |part, whole, expect: &str| assert_eq!(percent(part, whole), expect);
        check(0, 0, "0.0 %");
        check(1, 3, "33.3 %");
        check(999_999, 1_000_000, "99.9 %");
        check(7, 7, "100.0 %");
    }

    #[test]
    fn places_are_told_in_a_line() {
        let check = |place: Place, expect: &str| assert_eq!(at(&place), expect);
        let tools = |before: Option<&str>, after: Option<&str>| Place::Tools {
            index: 2,
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        check(tools(Some("a"), Some("b")), "tool 2: `a` became `b`");
        check(tools(Some("a"), Some("a")), "tool 2: `a` is described in another way");
        check(tools(None, Some("a")), "tool 2: `a` is new");
        check(tools(Some("a"), None), "tool 2: `a` is gone");
        let section = SectionChange {
            plugin: PluginName::new("p").expect("valid"),
            name: "two\nlines\u{1b}".into(),
            change: Change::Changed,
        };
        let expect = r"byte 3 of the system prompt: section `two\nlines\u{1b}` of p changed";
        check(Place::System { byte: 3, section: Some(section) }, expect);
        check(Place::System { byte: 3, section: None }, "byte 3 of the system prompt");
        let (before, after) =
            (Kind { role: Role::User, origin: "user" }, Kind { role: Role::Assistant, origin: "edit" });
        check(Place::Messages { index: 4, before, after }, "message 4: user became assistant (edit)");
    }
}
