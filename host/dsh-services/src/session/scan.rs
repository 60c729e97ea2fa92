//! A log read from its beginning to its end, once and in pieces: every line is looked at, nothing is kept.

use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
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
    /// How many bytes stand after the last newline.
    pub(super) torn: u64,
    /// What was skipped, when bad lines are to be skipped.
    pub(super) notices: Vec<String>,
}

/// What stands next in a log.
enum Next {
    /// A whole line.
    Line,
    /// A whole line that is longer than any may be.
    Overlong,
    /// No whole line any more, only so many bytes.
    End { torn: u64 },
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

    /// Goes to the next line.
    fn next(&mut self) -> Result<Next, SessionError> {
        self.number += 1;
        self.read().map_err(|error| SessionError::Io { path: self.path.display().to_string(), error })
    }

    fn read(&mut self) -> io::Result<Next> {
        self.line.clear();
        self.source.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut self.line)?;
        let mut bytes = self.line.len() as u64;
        if self.line.ends_with(b"\n") {
            return Ok(Next::Line);
        }
        // Nothing is kept of what is longer. Whether it is a line at all is known where it ends.
        while bytes >= MAX_LINE_BYTES as u64 {
            let piece = self.source.fill_buf()?;
            if piece.is_empty() {
                break;
            }
            let newline = piece.iter().position(|byte| *byte == b'\n');
            let length = newline.map_or(piece.len(), |at| at + 1);
            self.source.consume(length);
            bytes += length as u64;
            if newline.is_some() {
                return Ok(Next::Overlong);
            }
        }
        Ok(Next::End { torn: bytes })
    }

    fn damaged(&self, problem: String) -> SessionError {
        SessionError::Damaged { id: self.id.clone(), line: self.number, problem }
    }

    /// Reads the header, lets `known` refuse it, and shows every entry to `see`. A log without any whole line is refused.
    pub(super) fn run(
        self,
        known: impl Fn(&SessionHeader) -> Result<(), SessionError>,
        mut see: impl FnMut(Entry),
    ) -> Result<Scanned, SessionError> {
        self.run_while(known, |entry| {
            see(entry);
            ControlFlow::Continue(())
        })
    }

    /// The same until `see` wants no more, as if the log ended there.
    pub(super) fn run_while(
        mut self,
        known: impl Fn(&SessionHeader) -> Result<(), SessionError>,
        mut see: impl FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<Scanned, SessionError> {
        let mut notices = Vec::new();
        let mut at = self.next()?;
        let mut header = match self.header(&at) {
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
        // A bad first line may be an entry itself.
        if header.is_some() {
            at = self.next()?;
        }
        let mut next = 0;
        let torn = loop {
            let parsed = match at {
                Next::Line => parse(&self.line, reader.as_ref()),
                Next::Overlong => Err(overlong()),
                Next::End { torn } => break torn,
            };
            match parsed {
                Ok(entry) => {
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
                    if see(entry).is_break() {
                        break 0;
                    }
                }
                Err(problem) if self.bad == Bad::Refuse => return Err(self.damaged(problem)),
                // What is wrong with the first line was said already.
                Err(_) if self.number == 1 => {}
                Err(problem) => notices.push(format!("line {}: {problem}; skipped", self.number)),
            }
            at = self.next()?;
        };
        self.number = 1;
        let header = header.ok_or_else(|| self.damaged("no header, and no entry to make one from".into()))?;
        Ok(Scanned { header, index, torn, notices })
    }

    fn header(&self, first: &Next) -> Result<SessionHeader, String> {
        match first {
            Next::Line => lines::parse_header(self.id, &self.line),
            Next::Overlong => Err(overlong()),
            Next::End { .. } => lines::parse_header(self.id, b""),
        }
    }
}

fn overlong() -> String {
    format!("it is longer than {MAX_LINE_BYTES} bytes")
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
