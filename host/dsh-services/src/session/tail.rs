//! The end of a log, read backwards: what a list of sessions needs does not depend on how long they are.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use dsh_seam::session::{SessionHeader, SessionSummary};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::MAX_LINE_BYTES;

/// How much of a log's end is read at first; most lines are far shorter.
const FIRST_BYTES: u64 = 64 * 1024;
/// What is read at once grows up to this, so that few reads go far back; a single line that is longer is read all the same.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
/// How much more is read when not even one line was whole.
const GROWTH: u64 = 8;
/// What is longer, with the newline before it, is no line.
const MOST_OF_A_LINE: u64 = MAX_LINE_BYTES as u64 + 1;

/// Bytes that can be read from any place.
pub(super) trait ReadAt {
    /// Fills `buffer` with the bytes from `offset` on.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = self.get(from..from + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

/// Where the last line ends, with its newline, of what stands between `start` and `end`; `start` when there is none.
pub(super) fn last_end(source: &(impl ReadAt + ?Sized), start: u64, mut end: u64) -> io::Result<u64> {
    let (mut bytes, mut window) = (Vec::new(), FIRST_BYTES);
    while end > start {
        let from = end.saturating_sub(window).max(start);
        bytes.resize(usize::try_from(end - from).map_err(io::Error::other)?, 0);
        source.read_exact_at(&mut bytes, from)?;
        if let Some(newline) = bytes.iter().rposition(|byte| *byte == b'\n') {
            return Ok(from + newline as u64 + 1);
        }
        (end, window) = (from, MOST_BYTES);
    }
    Ok(start)
}

/// Shows `pick` the whole lines between `start` and `end`, the last one first and without their newlines, until it finds something.
/// What stands after the last newline is no line, nor is what is longer than one may be.
pub(super) fn last<T>(
    source: &(impl ReadAt + ?Sized),
    start: u64,
    end: u64,
    mut pick: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    // From here on a line ends at `end`.
    let (mut end, mut window) = (last_end(source, start, end)?, FIRST_BYTES);
    let mut bytes = Vec::new();
    while end > start {
        let from = end.saturating_sub(window).max(start);
        bytes.resize(usize::try_from(end - from).map_err(io::Error::other)?, 0);
        source.read_exact_at(&mut bytes, from)?;
        let newline = |byte: &u8| *byte == b'\n';
        // Of the first line only the end may have been read.
        let first = if from == start { Some(0) } else { bytes.iter().position(newline).map(|at| at + 1) };
        let first = first.filter(|first| *first < bytes.len());
        if let Some(first) = first {
            let lines = bytes[first..bytes.len() - 1].rsplit(newline);
            if let Some(found) = lines.filter_map(&mut pick).next() {
                return Ok(Some(found));
            }
        }
        match first {
            _ if from == start => break,
            Some(first) => (end, window) = (from + first as u64, (window * 2).min(MOST_BYTES)),
            None if window == MOST_OF_A_LINE => (end, window) = (last_end(source, start, end - 1)?, FIRST_BYTES),
            None => window = (window * GROWTH).min(MOST_OF_A_LINE),
        }
    }
    Ok(None)
}

/// What a summary needs of a line.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    seq: u64,
    time: u64,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
struct OfTurn {
    turn: u32,
}

/// The last `turn/end`, when it is shown lines from the last one back.
pub(super) fn turn_end(line: &[u8]) -> Option<u64> {
    let outline: Outline<'_> = serde_json::from_slice(line).ok()?;
    (outline.kind == "turn/end").then_some(outline.seq)
}

/// Takes a summary together from lines that it is shown from the last one back. A turn's number is how many there were.
pub(super) struct Summing(SessionSummary);

impl Summing {
    /// Of the log with this header.
    pub(super) fn new(header: SessionHeader) -> Self {
        Self(SessionSummary { last_time_ms: header.created, header, entries: 0, turns: 0 })
    }

    /// Looks at a line; something as soon as nothing more is needed.
    pub(super) fn look(&mut self, line: &[u8]) -> Option<()> {
        let outline: Outline<'_> = serde_json::from_slice(line).ok()?;
        if self.0.entries == 0 {
            self.0.entries = outline.seq + 1;
            self.0.last_time_ms = outline.time;
        }
        let OfTurn { turn } = serde_json::from_str(outline.data.get()).ok()?;
        self.0.turns = turn;
        (turn > 0).then_some(())
    }

    pub(super) fn done(self) -> SessionSummary {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, stop: &str) -> (Vec<String>, bool) {
        let mut seen = Vec::new();
        let found = last(text.as_bytes(), 0, text.len() as u64, |line| {
            seen.push(String::from_utf8_lossy(line).into_owned());
            (line == stop.as_bytes()).then_some(())
        });
        (seen, found.unwrap().is_some())
    }

    #[test]
    fn lines_come_from_the_last_one_back() {
        let check = |text: &str, expect: &[&str]| {
            assert_eq!(lines(text, "-"), (expect.iter().map(|line| (*line).to_owned()).collect(), false), "{text:?}");
        };
        check("", &[]);
        check("torn", &[]);
        check("a\n", &["a"]);
        check("a\nb\n\ntorn", &["", "b", "a"]);
        assert_eq!(lines("a\nb\nc\n", "b"), (vec!["c".to_owned(), "b".to_owned()], true));
    }

    #[test]
    fn lines_longer_than_what_is_read_at_once_are_whole() {
        let long = |letter: char, bytes: usize| letter.to_string().repeat(bytes);
        let first = usize::try_from(FIRST_BYTES).unwrap();
        let text: Vec<String> = [3, first - 1, first, first + 1, 9 * first, 1, 20 * first, 0, 5]
            .into_iter()
            .zip('a'..)
            .map(|(bytes, letter)| long(letter, bytes))
            .collect();
        let (mut seen, found) = lines(&(text.join("\n") + "\ntorn"), "-");
        seen.reverse();
        assert!(!found);
        assert!(seen == text, "{:?}", seen.iter().map(String::len).collect::<Vec<_>>());
    }
}
