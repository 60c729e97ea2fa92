//! Lines of a log in memory, and the index by which entries of any log are found.

use std::io::{self, BufRead};

use dsh_seam::event::Entry;

use super::lines;

/// One offset is kept for so many entries: 8 bytes each, and at most so many lines are skipped to find one.
const ENTRIES_PER_MARK: u64 = 64;

/// Where the lines of a log begin.
#[derive(Debug, Clone, Default)]
pub(super) struct LineIndex {
    marks: Vec<u64>,
    entries: u64,
    end: u64,
}

impl LineIndex {
    /// One for a log whose header has `header_bytes`, with its newline.
    pub(super) fn new(header_bytes: u64) -> Self {
        Self { marks: Vec::new(), entries: 0, end: header_bytes }
    }

    /// The next line has `bytes`, with its newline.
    pub(super) fn push(&mut self, bytes: u64) {
        if self.entries.is_multiple_of(ENTRIES_PER_MARK) {
            self.marks.push(self.end);
        }
        self.entries += 1;
        self.end += bytes;
    }

    /// How many entries there are; the next one has this `seq`.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Where the last line ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Where to begin to find entry `seq`, and how many lines to skip there.
    pub(super) fn find(&self, seq: u64) -> Option<(u64, u64)> {
        if seq >= self.entries {
            return None;
        }
        let mark = usize::try_from(seq / ENTRIES_PER_MARK).ok()?;
        Some((*self.marks.get(mark)?, seq % ENTRIES_PER_MARK))
    }
}

/// Reads entries from `lines`, after `skip` of them: at most `limit`, no more than make `max_bytes`, but at least one.
pub(super) fn read_entries(mut lines: impl BufRead, skip: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
    for _ in 0..skip {
        lines.skip_until(b'\n')?;
    }
    let (mut entries, mut bytes, mut line) = (Vec::new(), 0_usize, Vec::new());
    while entries.len() < limit as usize {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        bytes = bytes.saturating_add(line.len());
        if bytes > max_bytes && !entries.is_empty() {
            break;
        }
        let text = std::str::from_utf8(&line).map_err(invalid)?;
        entries.push(Entry::parse(text.trim_end_matches('\n')).map_err(invalid)?);
    }
    Ok(entries)
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A log in memory, header line first.
#[derive(Debug, Clone)]
pub(super) struct LineBuffer {
    pub(super) bytes: Vec<u8>,
    pub(super) index: LineIndex,
}

impl LineBuffer {
    /// One that begins with `header_line`, without its newline.
    pub(super) fn new(mut header_line: Vec<u8>) -> Self {
        header_line.push(b'\n');
        let index = LineIndex::new(header_line.len() as u64);
        Self { bytes: header_line, index }
    }

    /// Takes one entry.
    pub(super) fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let line = lines::line_of(entry, self.index.entries())?;
        self.append_line(&line);
        Ok(())
    }

    /// Takes one line, with its newline.
    pub(super) fn append_line(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.index.push(line.len() as u64);
    }

    /// As [`dsh_seam::session::SessionWriter::read`].
    pub(super) fn read(&self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
        let Some((offset, skip)) = self.index.find(start) else { return Ok(Vec::new()) };
        let offset = usize::try_from(offset).map_err(invalid)?;
        read_entries(&self.bytes[offset..], skip, limit, max_bytes)
    }
}
