//! Server-sent events (HTML living standard, 9.2) from bytes in any pieces.
//!
//! Written here because a server is not to be trusted: an event has a bound, a byte order mark or half a character is no accident,
//! a `\r` at the end of a piece may belong to a `\n` in the next, and what stands behind the end of an answer is not even looked at.

use dsh_seam::ModelFailure;

use super::error::malformed;

/// The longest event. One event of the session log may not be longer either.
pub(super) const MAX_EVENT_BYTES: usize = 32 << 20;

/// One event.
#[derive(Debug, PartialEq)]
pub(in super::super) struct Event {
    /// Empty for a `message`.
    pub kind: String,
    pub data: String,
}

/// Cuts bytes into events.
#[derive(Default)]
pub(super) struct Events {
    bytes: Vec<u8>,
    /// Where the line begins that is read next.
    begin: usize,
    /// Up to where there is no line end.
    searched: usize,
    kind: String,
    data: Option<String>,
    after_cr: bool,
    first_line_seen: bool,
    /// Whether any line was one of a stream.
    known: bool,
    /// The first line that was not.
    foreign: Option<String>,
}

impl Events {
    /// More bytes have come. They are not looked at before the events are taken.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.begin);
        self.searched -= self.begin;
        self.begin = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole event; none when more bytes are needed.
    pub fn take(&mut self) -> Result<Option<Event>, ModelFailure> {
        while let Some(end) = memchr::memchr2(b'\n', b'\r', &self.bytes[self.searched..]) {
            let line = self.begin..self.searched + end;
            let after_cr = std::mem::replace(&mut self.after_cr, self.bytes[line.end] == b'\r');
            self.begin = line.end + 1;
            self.searched = self.begin;
            if after_cr && line.is_empty() && !self.after_cr {
                // The other half of a `\r\n`.
                continue;
            }
            if let Some(event) = self.line(line)? {
                return Ok(Some(event));
            }
        }
        self.searched = self.bytes.len();
        if self.searched - self.begin + self.data.as_ref().map_or(0, String::len) > MAX_EVENT_BYTES {
            return Err(malformed("an event that is too long"));
        }
        Ok(None)
    }

    /// The body ended: an event without its empty line counts when it is whole by its own form.
    pub fn last(&mut self) -> Result<Option<Event>, ModelFailure> {
        let rest = self.begin..self.bytes.len();
        // A character that was cut with the body is no nonsense of the provider's.
        let cut = std::str::from_utf8(&self.bytes[rest.clone()]).is_err_and(|error| error.error_len().is_none());
        if cut {
            return Ok(None);
        }
        if !rest.is_empty() {
            self.line(rest)?;
        }
        let whole = |data: &str| data == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok();
        let data = self.data.take().filter(|data| whole(data));
        Ok(data.map(|data| Event { kind: std::mem::take(&mut self.kind), data }))
    }

    /// What came instead of a stream: its first line, when nothing of it was a line of one.
    pub fn foreign(&self) -> Option<&str> {
        self.foreign.as_deref().filter(|_| !self.known)
    }

    fn line(&mut self, line: std::ops::Range<usize>) -> Result<Option<Event>, ModelFailure> {
        let line = std::str::from_utf8(&self.bytes[line]).map_err(|_| malformed("text that is not UTF-8"))?;
        let line = if self.first_line_seen { line } else { line.trim_start_matches('\u{feff}') };
        self.first_line_seen = true;
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            return Ok(self.data.take().map(|data| Event { kind, data }));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        let mut known = true;
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => self.kind = value.to_owned(),
            // Comments, ids, times to reconnect: nothing for us.
            "" | "id" | "retry" => {}
            _ => known = false,
        }
        if known {
            self.known = true;
        } else if self.foreign.is_none() {
            self.foreign = Some(line.to_owned());
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8], size: usize) -> Result<Vec<(String, String)>, String> {
        let mut events = Events::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(size) {
            events.push(piece);
            while let Some(event) = events.take().map_err(|failure| failure.message)? {
                out.push((event.kind, event.data));
            }
        }
        let last = events.last().map_err(|failure| failure.message)?;
        out.extend(last.map(|event| (event.kind, event.data)));
        Ok(out)
    }

    #[test]
    fn events_come_out_the_same_however_the_bytes_are_cut() {
        let check = |text: &[u8], expect: &[(&str, &str)]| {
            let expect: Vec<_> = expect.iter().map(|(kind, data)| ((*kind).to_owned(), (*data).to_owned())).collect();
            for size in 1..=text.len() {
                assert_eq!(events(text, size), Ok(expect.clone()), "{text:?} in pieces of {size}");
            }
        };
        check(b"data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check(b"data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check(b"data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check(b"data: a\r\n\rdata: b\n\r\n", &[("", "a"), ("", "b")]);
        check(b": comment\n\nevent: error\ndata: a\ndata: b\nid: 7\n\n", &[("error", "a\nb")]);
        check("\u{feff}data:ä👍\n\n".as_bytes(), &[("", "ä👍")]);
        check(b"data\n\n", &[("", "")]);
        check(b"data: [DONE]", &[("", "[DONE]")]);
        check(b"data: {\"a\":1}\n", &[("", "{\"a\":1}")]);
        check(b"data: {\"a\":", &[]);
        check(b"data: {\"a\":1}\n\ndata: \"\xf0\x9f", &[("", "{\"a\":1}")]);
        check(b"\0\0\ndata: a\n\n", &[("", "a")]);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let expect = Err("the provider sent text that is not UTF-8".to_owned());
        assert_eq!(events(b"data: \xff\n\n", 3), expect);
        assert_eq!(events(b"data: \xff\xfe", 3), expect);
    }

    #[test]
    fn what_is_no_stream_is_told_apart() {
        let check = |text: &[u8], expect: Option<&str>| {
            let mut events = Events::default();
            events.push(text);
            while let Ok(Some(_)) = events.take() {}
            assert!(events.last().is_ok());
            assert_eq!(events.foreign(), expect);
        };
        check(b"upstream connect error\n", Some("upstream connect error"));
        check(b"no healthy upstream", Some("no healthy upstream"));
        check(b"future: x\n: comment\n", None);
        check(b"", None);
    }

    #[test]
    fn an_event_has_a_bound() {
        let mut events = Events::default();
        events.push(b"data: ");
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..32 {
            assert_eq!(events.take(), Ok(None));
            events.push(&piece);
        }
        assert_eq!(
            events.take().map_err(|failure| failure.message),
            Err("the provider sent an event that is too long".into())
        );
    }
}
