//! A log read from its beginning to its end, once and in pieces: every line is looked at, nothing is kept.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use dsh_seam::SessionId;
use dsh_seam::event::Entry;
use dsh_seam::line::LogLines;
use dsh_seam::session::{SESSION_VERSION, SessionError, SessionHeader};

use super::buffer::LineIndex;
use super::lines::{self, MAX_LINE_BYTES};

/// How much of a log is read at once.
const READ_BYTES: usize = 256 * 1024;

/// Whether a bad line ends the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    Refuse,
    Skip,
}

/// What is known of a log that was read.
pub(super) struct Scanned {
    pub(super) header: SessionHeader,
    pub(super) index: LineIndex,
    /// What stands after the last newline.
    pub(super) torn: Vec<u8>,
    /// What was skipped, when bad lines are to be skipped.
    pub(super) notices: Vec<String>,
}

/// The log of a session that is about to be read.
pub(super) struct Scan<'a, R> {
    id: &'a SessionId,
    /// For messages.
    path: &'a Path,
    bad: Bad,
    source: BufReader<R>,
    line: Vec<u8>,
    number: u64,
}

impl<'a, R: Read> Scan<'a, R> {
    /// Of `source`, which is the log of `id` and is called `path` in messages.
    pub(super) fn new(id: &'a SessionId, path: &'a Path, source: R, bad: Bad) -> Self {
        Self { id, path, bad, source: BufReader::with_capacity(READ_BYTES, source), line: Vec::new(), number: 0 }
    }

    /// The next whole line; false at the end, where what is left over is no line.
    fn next(&mut self) -> Result<bool, SessionError> {
        self.line.clear();
        self.number += 1;
        // One byte more than is allowed, so that a line of exactly the limit is told from a longer one.
        let mut most = self.source.by_ref().take(MAX_LINE_BYTES as u64 + 1);
        most.read_until(b'\n', &mut self.line)
            .map_err(|error| SessionError::Io { path: self.path.display().to_string(), error })?;
        if self.line.len() > MAX_LINE_BYTES {
            return Err(self.damaged(format!("it is longer than {MAX_LINE_BYTES} bytes")));
        }
        Ok(self.line.ends_with(b"\n"))
    }

    fn damaged(&self, problem: String) -> SessionError {
        SessionError::Damaged { id: self.id.clone(), line: self.number, problem }
    }

    /// Reads the header, lets `known` refuse it, and shows every entry to `see`. A log without any whole line is refused.
    pub(super) fn run(
        mut self,
        known: impl Fn(&SessionHeader) -> Result<(), SessionError>,
        mut see: impl FnMut(Entry),
    ) -> Result<Scanned, SessionError> {
        let is_whole = self.next()?;
        let mut notices = Vec::new();
        let mut header = match lines::parse_header(self.id, if is_whole { &self.line } else { b"" }) {
            Ok(header) => Some(header),
            Err(problem) if self.bad == Bad::Refuse => return Err(self.damaged(problem)),
            Err(problem) => {
                notices.push(format!("line 1: {problem}"));
                None
            }
        };
        header.iter().try_for_each(&known)?;
        let mut index = LineIndex::new(self.line.len() as u64, 0);
        let reader = header.as_ref().map(|header| LogLines::new(header.id.clone(), header.agent.clone()));
        // With a bad first line, that line may be an entry itself.
        let mut again = header.is_none() && is_whole;
        let mut next = 0;
        while again || self.next()? {
            let first = std::mem::take(&mut again);
            let entry = match parse(&self.line, reader.as_ref()) {
                Ok(entry) => entry,
                Err(problem) if self.bad == Bad::Refuse => return Err(self.damaged(problem)),
                Err(problem) => {
                    if !first {
                        notices.push(format!("line {}: {problem}; skipped", self.number));
                    }
                    continue;
                }
            };
            if entry.seq != next {
                let problem = format!("`seq` is {} where {next} was expected", entry.seq);
                if self.bad == Bad::Refuse {
                    return Err(self.damaged(problem));
                }
                notices.push(format!("line {}: {problem}", self.number));
            }
            next = entry.seq.saturating_add(1);
            index.push(self.line.len() as u64);
            header.get_or_insert_with(|| found_header(self.id, &entry));
            see(entry);
        }
        self.number = 1;
        let header = header.ok_or_else(|| self.damaged("no header, and no entry to make one from".into()))?;
        Ok(Scanned { header, index, torn: self.line, notices })
    }
}

fn parse(line: &[u8], reader: Option<&LogLines>) -> Result<Entry, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let text = text.trim_end_matches('\n');
    let entry = reader.map_or_else(|| Entry::parse(text), |reader| reader.entry(text));
    entry.map_err(|error| format!("no entry: {error}"))
}

/// A header for a log that has lost its own, from what its first entry says.
fn found_header(id: &SessionId, entry: &Entry) -> SessionHeader {
    SessionHeader {
        version: SESSION_VERSION,
        id: id.clone(),
        agent: entry.agent.clone(),
        lineage: Vec::new(),
        workspace: String::new(),
        model: None,
        host: String::new(),
        created: entry.time_ms,
        parent: None,
        forked_at: None,
    }
}
