//! Lines of a log in memory, and the index by which entries of any log are found.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use dsh_seam::SessionId;
use dsh_seam::event::Entry;
use dsh_seam::line::with_session;

use super::{lines, tail};

/// One place is kept for so many bytes of a log: the index is two thousandths of the log at most, and no more than this is read to
/// find an entry.
const BYTES_PER_MARK: u64 = 32 * 1024;

/// Where the lines of a log begin.
#[derive(Debug, Clone, Default)]
pub(super) struct LineIndex {
    /// Some entries and where their lines begin, in order; the first entry is among them.
    marks: Vec<(u64, u64)>,
    entries: u64,
    end: u64,
}

impl LineIndex {
    /// One for lines that begin after `header_bytes`, with the entry `first`.
    pub(super) fn new(header_bytes: u64, first: u64) -> Self {
        Self { marks: Vec::new(), entries: first, end: header_bytes }
    }

    /// The next line has `bytes`, with its newline.
    pub(super) fn push(&mut self, bytes: u64) {
        if self.marks.last().is_none_or(|(_, offset)| self.end - offset >= BYTES_PER_MARK) {
            self.marks.push((self.entries, self.end));
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

    /// Keeps the first `count` entries, which end at `end`.
    fn cut(&mut self, count: u64, end: u64) {
        self.marks.retain(|(first, _)| *first < count);
        (self.entries, self.end) = (count, end);
    }

    /// Where to begin to find entry `seq`, and how many lines to skip there.
    pub(super) fn find(&self, seq: u64) -> Option<(u64, u64)> {
        let after = self.marks.partition_point(|(first, _)| *first <= seq);
        let (first, offset) = self.marks.get(after.checked_sub(1)?)?;
        (seq < self.entries).then_some((*offset, seq - first))
    }
}

/// What is read from a log in one go, and how much more may be.
pub(super) struct Reading {
    pub(super) entries: Vec<Entry>,
    limit: usize,
    bytes: usize,
}

impl Reading {
    /// At most `limit` entries, no more than make `max_bytes` of text, but at least one.
    pub(super) fn new(limit: u32, max_bytes: usize) -> Self {
        Self { entries: Vec::new(), limit: limit as usize, bytes: max_bytes }
    }

    /// Takes entries from `lines`, after `skip` of them; false when no more fit.
    pub(super) fn take(&mut self, mut lines: impl BufRead, skip: u64) -> io::Result<bool> {
        for _ in 0..skip {
            lines.skip_until(b'\n')?;
        }
        let mut line = Vec::new();
        while self.entries.len() < self.limit {
            line.clear();
            if lines.read_until(b'\n', &mut line)? == 0 {
                return Ok(true);
            }
            if line.len() > self.bytes && !self.entries.is_empty() {
                return Ok(false);
            }
            self.bytes = self.bytes.saturating_sub(line.len());
            let text = std::str::from_utf8(&line).map_err(invalid)?;
            self.entries.push(Entry::parse(text.trim_end_matches('\n')).map_err(invalid)?);
        }
        Ok(false)
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Reads a part of a file, without moving anybody's position.
pub(super) struct Part<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl<'a> Part<'a> {
    /// The bytes from `at` to before `end`.
    pub(super) fn new(file: &'a File, at: u64, end: u64) -> Self {
        Self { file, at, end }
    }
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..left], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The first entries of a log that stay in the file where they are: that of another session, or the log itself when nothing is written.
#[derive(Debug, Clone)]
pub(super) struct Base {
    pub(super) file: Arc<File>,
    /// Of the file, up to the last entry that counts.
    pub(super) index: LineIndex,
}

impl Base {
    fn read(&self, reading: &mut Reading, start: u64) -> io::Result<bool> {
        let Some((offset, skip)) = self.index.find(start) else { return Ok(true) };
        reading.take(BufReader::new(Part::new(&self.file, offset, self.index.end())), skip)
    }

    fn start(&self) -> u64 {
        self.index.find(0).map_or(self.index.end(), |(offset, _)| offset)
    }

    fn lines(&self) -> Part<'_> {
        Part::new(&self.file, self.start(), self.index.end())
    }

    fn last<T>(&self, pick: impl FnMut(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
        tail::last(&*self.file, self.start(), self.index.end(), pick)
    }

    /// Its first `count` entries.
    pub(super) fn cut(&self, count: u64) -> io::Result<Self> {
        let mut cut = self.clone();
        if let Some((offset, skip)) = self.index.find(count) {
            let mut lines = BufReader::new(Part::new(&self.file, offset, self.index.end()));
            let mut end = offset;
            for _ in 0..skip {
                end += lines.skip_until(b'\n')? as u64;
            }
            cut.index.cut(count, end);
        }
        Ok(cut)
    }
}

/// A log of which at least the new part is in memory.
#[derive(Debug, Clone)]
pub(super) struct LineBuffer {
    session: SessionId,
    base: Option<Base>,
    /// The header line and the lines that are not in the base.
    bytes: Vec<u8>,
    index: LineIndex,
}

impl LineBuffer {
    /// The log of `session`, which begins with `header_line` and goes on with the entries of `base`.
    pub(super) fn new(session: SessionId, mut header_line: Vec<u8>, base: Option<Base>) -> Self {
        header_line.push(b'\n');
        let first = base.as_ref().map_or(0, |base| base.index.entries());
        let index = LineIndex::new(header_line.len() as u64, first);
        Self { session, base, bytes: header_line, index }
    }

    /// How many entries there are.
    pub(super) fn entries(&self) -> u64 {
        self.index.entries()
    }

    /// The header line, with its newline.
    pub(super) fn header_line(&self) -> &[u8] {
        &self.bytes[..self.header_bytes()]
    }

    /// Takes one entry.
    pub(super) fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let line = lines::line_of(entry, self.entries())?;
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
        let mut reading = Reading::new(limit, max_bytes);
        let more = match &self.base {
            Some(base) => base.read(&mut reading, start)?,
            None => true,
        };
        let start = start + reading.entries.len() as u64;
        if more && let Some((offset, skip)) = self.index.find(start) {
            reading.take(&self.bytes[usize::try_from(offset).map_err(invalid)?..], skip)?;
        }
        for entry in &mut reading.entries {
            entry.session = self.session.clone();
        }
        Ok(reading.entries)
    }

    /// The whole log. The lines of the base still have the session's id that they were written with.
    pub(super) fn reader(&self) -> impl Read {
        let (header, own) = self.bytes.split_at(self.header_bytes());
        let base = self.base.as_ref().map(Base::lines);
        header.chain(Optional(base)).chain(own)
    }

    fn header_bytes(&self) -> usize {
        self.bytes.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
    }

    /// The entries after the header, as lines of this session, written to `out`; the index of what was written.
    pub(super) fn write_to(&self, out: &mut impl Write) -> io::Result<LineIndex> {
        let (header, own) = self.bytes.split_at(self.header_bytes());
        out.write_all(header)?;
        let mut index = LineIndex::new(header.len() as u64, 0);
        let mut lines = BufReader::new(Optional(self.base.as_ref().map(Base::lines)).chain(own));
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            let ours = with_session(&line, &self.session).map_err(invalid)?;
            out.write_all(ours.as_bytes())?;
            index.push(ours.len() as u64);
            line.clear();
        }
        Ok(index)
    }

    /// The first `count` entries as the log of `session`; what is in a file stays there.
    pub(super) fn copy(&self, session: SessionId, header_line: Vec<u8>, count: u64) -> io::Result<Self> {
        let base = self.base.as_ref().map(|base| base.cut(count)).transpose()?;
        let mut copy = Self::new(session, header_line, base);
        for line in self.bytes[self.header_bytes()..].split_inclusive(|byte| *byte == b'\n') {
            if copy.entries() >= count {
                break;
            }
            let line = std::str::from_utf8(line).map_err(invalid)?;
            copy.append_line(with_session(line, &copy.session).map_err(invalid)?.as_bytes());
        }
        Ok(copy)
    }

    /// What `pick` finds first when it is shown the entries' lines from the last one back.
    pub(super) fn last<T>(&self, mut pick: impl FnMut(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
        let own = &self.bytes[self.header_bytes()..];
        let own = tail::last(own, 0, own.len() as u64, &mut pick)?;
        match &self.base {
            Some(base) if own.is_none() => base.last(pick),
            _ => Ok(own),
        }
    }
}

/// Nothing, when there is nothing to read.
struct Optional<R>(Option<R>);

impl<R: Read> Read for Optional<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.as_mut().map_or(Ok(0), |inner| inner.read(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_keeps_one_place_for_many_bytes() {
        let mut index = LineIndex::new(100, 0);
        (0..1_000_000).for_each(|_| index.push(200));
        assert_eq!((index.entries(), index.end()), (1_000_000, 200_000_100));
        assert_eq!(index.marks.len() as u64, 200_000_000_u64.div_ceil(BYTES_PER_MARK.next_multiple_of(200)));
        for seq in [0, 1, 327, 328, 329, 500_000, 999_999] {
            let (offset, skip) = index.find(seq).unwrap();
            assert_eq!(offset + 200 * skip, 100 + 200 * seq);
            assert!(skip * 200 <= BYTES_PER_MARK, "{skip} lines");
        }
        assert_eq!(index.find(1_000_000), None);
        index.cut(400, 100 + 200 * 400);
        assert_eq!((index.find(399).map(|(offset, skip)| offset + 200 * skip), index.find(400)), (Some(79_900), None));
    }

    #[test]
    fn a_line_longer_than_a_mark_has_one_of_its_own() {
        let mut index = LineIndex::new(0, 7);
        [3 * BYTES_PER_MARK, 10, BYTES_PER_MARK, 10].into_iter().for_each(|bytes| index.push(bytes));
        let found: Vec<_> = (6..12).map(|seq| index.find(seq)).collect();
        let (first, next) = (3 * BYTES_PER_MARK, 4 * BYTES_PER_MARK + 10);
        assert_eq!(found, [None, Some((0, 0)), Some((first, 0)), Some((first, 1)), Some((next, 0)), None]);
    }
}
