//! The lines of a log: from text to header and entries, and copied under another id.

use std::borrow::Cow;
use std::io;

use dsh_seam::event::{Entry, Event};
use dsh_seam::session::{SESSION_VERSION, SessionError, SessionHeader, SessionSummary};
use dsh_seam::{AgentId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::buffer::{LineBuffer, LineIndex};

/// The longest line of a log, in bytes: no event is larger, and a reader may rely on it.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// The line of `entry`, with its newline; `seq` is the number it must have. [`io::ErrorKind::InvalidInput`]: it is too long.
pub(super) fn line_of(entry: &Entry, seq: u64) -> io::Result<Vec<u8>> {
    if entry.seq != seq {
        return Err(io::Error::other(format!("entry {} cannot be appended where {seq} is next", entry.seq)));
    }
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    if line.len() > MAX_LINE_BYTES {
        let problem = format!("an event of {} bytes is over the limit of {MAX_LINE_BYTES}", line.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(line)
}

/// The line of a header, without its newline.
pub(super) fn header_line(header: &SessionHeader) -> Vec<u8> {
    serde_json::to_vec(header).expect("invariant: a header is plain data and serializes")
}

/// What a log holds.
pub(super) struct Log {
    pub(super) header: SessionHeader,
    pub(super) entries: Vec<Entry>,
    pub(super) index: LineIndex,
    /// Bytes after the last newline.
    pub(super) torn: usize,
    /// What was skipped, when bad lines are to be skipped.
    pub(super) notices: Vec<String>,
}

/// Whether a bad line ends the reading.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    Refuse,
    Skip,
}

/// The part of `bytes` that is whole lines.
pub(super) fn whole(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    &bytes[..end]
}

/// Reads the log of session `id`. Its last line without a newline is left out. A log without any whole line is refused.
pub(super) fn parse(id: &SessionId, bytes: &[u8], bad: Bad) -> Result<Log, SessionError> {
    let whole = whole(bytes);
    let mut lines = whole.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let mut notices = Vec::new();
    let damaged = |line: u64, problem: String| SessionError::Damaged { id: id.clone(), line, problem };
    let header = match parse_header(id, first) {
        Ok(header) => header,
        Err(problem) if bad == Bad::Refuse => return Err(damaged(1, problem)),
        Err(problem) => {
            notices.push(format!("line 1: {problem}"));
            found_header(id, whole).ok_or_else(|| damaged(1, problem))?
        }
    };
    let mut log = Log {
        header,
        entries: Vec::new(),
        index: LineIndex::new(first.len() as u64),
        torn: bytes.len() - whole.len(),
        notices,
    };
    let mut next = 0;
    // With a bad first line, that line may be an entry itself.
    let again = (!log.notices.is_empty()).then_some((1, first));
    for (number, line) in again.into_iter().chain((2..).zip(lines)) {
        let entry = match parse_entry(line) {
            Ok(entry) => entry,
            Err(problem) if bad == Bad::Refuse => return Err(damaged(number, problem)),
            Err(problem) => {
                if number > 1 {
                    log.notices.push(format!("line {number}: {problem}; skipped"));
                }
                continue;
            }
        };
        if entry.seq != next {
            let problem = hole(entry.seq, next);
            if bad == Bad::Refuse {
                return Err(damaged(number, problem));
            }
            log.notices.push(format!("line {number}: {problem}"));
        }
        next = entry.seq + 1;
        log.index.push(line.len() as u64);
        log.entries.push(entry);
    }
    Ok(log)
}

fn hole(found: u64, expected: u64) -> String {
    format!("`seq` is {found} where {expected} was expected")
}

fn parse_entry(line: &[u8]) -> Result<Entry, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    Entry::parse(text.trim_end_matches('\n')).map_err(|error| format!("no entry: {error}"))
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// Reads the first line of a log.
pub(super) fn parse_header(id: &SessionId, line: &[u8]) -> Result<SessionHeader, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("no header: not UTF-8: {error}"))?;
    let kind: Kind<'_> = serde_json::from_str(text).map_err(|error| format!("no header: {error}"))?;
    if kind.kind != "session/header" {
        return Err(format!("no header: its `type` is `{}`, not `session/header`", kind.kind));
    }
    let header: SessionHeader = serde_json::from_str(text).map_err(|error| format!("no header: {error}"))?;
    if header.version != SESSION_VERSION {
        return Err(format!("its format has version {}, this host reads version {SESSION_VERSION}", header.version));
    }
    if header.id != *id {
        return Err(format!("the header is that of session `{}`", header.id));
    }
    Ok(header)
}

/// A header for a log that has lost its own, from what the entries say.
fn found_header(id: &SessionId, whole: &[u8]) -> Option<SessionHeader> {
    let entry = whole.split(|byte| *byte == b'\n').find_map(|line| parse_entry(line).ok())?;
    Some(SessionHeader {
        version: SESSION_VERSION,
        id: id.clone(),
        agent: entry.agent,
        workspace: String::new(),
        model: None,
        host: String::new(),
        created: entry.time_ms,
        parent: None,
        forked_at: None,
        lineage: Vec::new(),
    })
}

/// What a summary needs of a line.
#[derive(Deserialize)]
pub(super) struct Outline<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    seq: u64,
    pub(super) time: u64,
}

/// Counts what a log holds, without reading the data of its entries.
pub(super) fn summarize(id: &SessionId, bytes: &[u8]) -> Result<SessionSummary, SessionError> {
    let damaged = |line: u64, problem: String| SessionError::Damaged { id: id.clone(), line, problem };
    let mut lines = whole(bytes).split_inclusive(|byte| *byte == b'\n');
    let header = parse_header(id, lines.next().unwrap_or_default()).map_err(|problem| damaged(1, problem))?;
    let mut summary = SessionSummary { last_time_ms: header.created, header, entries: 0, turns: 0 };
    for (number, line) in (2..).zip(lines) {
        let outline: Outline<'_> =
            serde_json::from_slice(line).map_err(|error| damaged(number, format!("no entry: {error}")))?;
        if outline.seq != summary.entries {
            return Err(damaged(number, hole(outline.seq, summary.entries)));
        }
        summary.entries += 1;
        summary.turns += u32::from(outline.kind == "turn/start");
        summary.last_time_ms = outline.time;
    }
    Ok(summary)
}

/// A copy of a log under another id.
pub(super) struct Copy {
    pub(super) header: SessionHeader,
    pub(super) entries: Vec<Entry>,
    pub(super) buffer: LineBuffer,
}

/// A line whose data stays as it is written.
#[derive(Deserialize, Serialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    seq: u64,
    time: u64,
    session: SessionId,
    agent: AgentId,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// Copies the log in `bytes` of session `id` up to and including `at` (none: the last `turn/end`) as session `new` of the agent `heir`,
/// given with its lineage: the log must be its own, or one of an ancestor.
pub(super) fn copy(
    id: &SessionId,
    bytes: &[u8],
    at: Option<u64>,
    (agent, lineage): (&AgentId, &[AgentId]),
    new: SessionId,
    now_ms: u64,
) -> Result<Copy, SessionError> {
    let log = parse(id, bytes, Bad::Refuse)?;
    if !lineage.contains(&log.header.agent) {
        owned(&log.header, agent)?;
    }
    let at = place(id, &log.entries, at)?;
    let header = SessionHeader {
        id: new.clone(),
        agent: agent.clone(),
        created: now_ms,
        parent: Some(id.clone()),
        forked_at: Some(at),
        lineage: lineage.to_vec(),
        host: super::this_host(),
        ..log.header
    };
    let mut buffer = LineBuffer::new(header_line(&header));
    for (number, line) in whole(bytes).split_inclusive(|byte| *byte == b'\n').skip(1).enumerate() {
        if number as u64 > at {
            break;
        }
        let damaged = |error: serde_json::Error| SessionError::Damaged {
            id: id.clone(),
            line: number as u64 + 2,
            problem: format!("no entry: {error}"),
        };
        let mut read: Line<'_> = serde_json::from_slice(line).map_err(damaged)?;
        read.session = new.clone();
        let mut copied = serde_json::to_vec(&read).map_err(damaged)?;
        copied.push(b'\n');
        buffer.append_line(&copied);
    }
    let mut entries = log.entries;
    entries.retain(|entry| entry.seq <= at);
    for entry in &mut entries {
        entry.session = new.clone();
    }
    Ok(Copy { header, entries, buffer })
}

fn place(id: &SessionId, entries: &[Entry], at: Option<u64>) -> Result<u64, SessionError> {
    let bad = |at: String, problem: String| SessionError::BadFork { id: id.clone(), at, problem };
    match at {
        Some(at) if entries.last().is_some_and(|last| at <= last.seq) => Ok(at),
        Some(at) => Err(bad(
            at.to_string(),
            match entries.last() {
                Some(last) => format!("its last entry is {}", last.seq),
                None => "it has no entry".into(),
            },
        )),
        None => {
            let end = entries.iter().rev().find(|entry| matches!(entry.event, Event::TurnEnd(_)));
            let missing =
                || bad("its last `turn/end`".into(), format!("it has none; name a place with `--fork {id}@SEQ`"));
            end.map(|entry| entry.seq).ok_or_else(missing)
        }
    }
}

/// Refuses another agent's session.
pub(super) fn owned(header: &SessionHeader, agent: &AgentId) -> Result<(), SessionError> {
    if header.agent == *agent {
        return Ok(());
    }
    Err(SessionError::OtherAgent { id: header.id.clone(), owner: header.agent.clone(), asked: agent.clone() })
}
