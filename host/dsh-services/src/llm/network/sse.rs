//! Server-sent events (HTML living standard, 9.2) from bytes in any pieces.
//!
//! Written here because a server is not to be trusted: an event has a bound, a byte order mark or half a character is no accident,
//! and a `\r` at the end of a piece may belong to a `\n` in the next.

use std::collections::VecDeque;

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
    line: Vec<u8>,
    kind: String,
    data: Option<String>,
    after_cr: bool,
    first_line_seen: bool,
    ready: VecDeque<Event>,
}

impl Events {
    /// More bytes have come.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), ModelFailure> {
        for byte in bytes {
            let after_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if after_cr => {}
                b'\n' => self.end_line()?,
                b'\r' => {
                    self.end_line()?;
                    self.after_cr = true;
                }
                other => self.line.push(*other),
            }
        }
        if self.line.len() + self.data.as_ref().map_or(0, String::len) > MAX_EVENT_BYTES {
            return Err(malformed("an event that is too long"));
        }
        Ok(())
    }

    /// The next whole event.
    pub fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// The body ended: an event without its empty line counts when it is whole by its own form.
    pub fn last(&mut self) -> Option<Event> {
        if !self.line.is_empty() && self.end_line().is_err() {
            return None;
        }
        let whole = |data: &str| data == "[DONE]" || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok();
        let data = self.data.take().filter(|data| whole(data))?;
        Some(Event { kind: std::mem::take(&mut self.kind), data })
    }

    fn end_line(&mut self) -> Result<(), ModelFailure> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(|_| malformed("text that is not UTF-8"))?;
        let line = if self.first_line_seen { line } else { line.trim_start_matches('\u{feff}') };
        self.first_line_seen = true;
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            if let Some(data) = self.data.take() {
                self.ready.push_back(Event { kind, data });
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
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
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8], size: usize) -> Result<Vec<(String, String)>, String> {
        let mut events = Events::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(size) {
            events.push(piece).map_err(|failure| failure.message)?;
            while let Some(event) = events.pop() {
                out.push((event.kind, event.data));
            }
        }
        out.extend(events.last().map(|event| (event.kind, event.data)));
        Ok(out)
    }

    #[test]
    fn events_come_out_the_same_however_the_bytes_are_cut() {
        let check = |text: &str, expect: &[(&str, &str)]| {
            let expect: Vec<_> = expect.iter().map(|(kind, data)| ((*kind).to_owned(), (*data).to_owned())).collect();
            for size in 1..=text.len() {
                assert_eq!(events(text.as_bytes(), size), Ok(expect.clone()), "{text:?} in pieces of {size}");
            }
        };
        check("data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &[("", "a"), ("", "b")]);
        check("data: a\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check(": comment\n\nevent: error\ndata: a\ndata: b\nid: 7\n\n", &[("error", "a\nb")]);
        check("\u{feff}data:ä👍\n\n", &[("", "ä👍")]);
        check("data\n\n", &[("", "")]);
        check("data: [DONE]", &[("", "[DONE]")]);
        check("data: {\"a\":1}\n", &[("", "{\"a\":1}")]);
        check("data: {\"a\":", &[]);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(events(b"data: \xff\n\n", 3), Err("the provider sent text that is not UTF-8".into()));
    }
}
