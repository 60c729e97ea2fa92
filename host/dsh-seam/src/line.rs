//! The lines of a log. This host writes an entry's members in one order and without blanks, so its lines are taken apart at known
//! places; any other writing of the same JSON is read all the same, only slower.

use crate::event::{Entry, Event, RawEntry};
use crate::ids::{AgentId, SessionId};

/// Reads the lines of one session's log. What nearly all of them share, session and agent, is kept once.
#[derive(Debug, Clone)]
pub struct LogLines {
    session: SessionId,
    agent: AgentId,
}

impl LogLines {
    /// For the log of `session`, written by `agent`; entries of others are read as well.
    pub fn new(session: SessionId, agent: AgentId) -> Self {
        Self { session, agent }
    }

    /// Reads one line, with or without its newline. The same as [`Entry::parse`], which has the last word on what is no entry.
    pub fn entry(&self, line: &str) -> serde_json::Result<Entry> {
        let line = line.strip_suffix('\n').unwrap_or(line);
        self.quickly(line).map_or_else(|| Entry::parse(line), Ok)
    }

    fn quickly(&self, line: &str) -> Option<Entry> {
        let Parts { kind, seq, time_ms, session, agent, data } = Parts::of(line)?;
        let is_ours = session == self.session.as_str();
        let session = if is_ours { self.session.clone() } else { SessionId::new(session).ok()? };
        let is_ours = agent == self.agent.as_str();
        let agent = if is_ours { self.agent.clone() } else { AgentId::new(agent).ok()? };
        Some(Entry { seq, time_ms, session, agent, event: Event::parse(kind, data).ok()? })
    }
}

/// The line of an entry, with or without its newline, as one of `session`; nothing else of it changes.
pub fn with_session(line: &str, session: &SessionId) -> serde_json::Result<String> {
    if let Some(Parts { session: old, .. }) = Parts::of(line.strip_suffix('\n').unwrap_or(line)) {
        // Both are parts of one text.
        let start = old.as_ptr() as usize - line.as_ptr() as usize;
        return Ok([&line[..start], session.as_str(), &line[start + old.len()..]].concat());
    }
    let mut read: RawEntry<'_> = serde_json::from_str(line)?;
    read.session = session.clone();
    let end = if line.ends_with('\n') { "\n" } else { "" };
    Ok(serde_json::to_string(&read)? + end)
}

/// The members of a line in this host's writing. That `data` is one JSON value is for the caller to find out.
struct Parts<'a> {
    kind: &'a str,
    seq: u64,
    time_ms: u64,
    session: &'a str,
    agent: &'a str,
    data: &'a str,
}

impl<'a> Parts<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let (kind, rest) = text(line, r#"{"type":""#)?;
        let (seq, rest) = number(rest, r#","seq":"#)?;
        let (time_ms, rest) = number(rest, r#","time":"#)?;
        let (session, rest) = text(rest, r#","session":""#)?;
        let (agent, rest) = text(rest, r#","agent":""#)?;
        let data = rest.strip_prefix(r#","data":"#)?.strip_suffix('}')?;
        Some(Self { kind, seq, time_ms, session, agent, data })
    }
}

/// The string that begins after `key`, and what follows its closing quote; none when anything in it is escaped or would have to be.
fn text<'a>(line: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
    let rest = line.strip_prefix(key)?;
    let end = rest.bytes().position(|byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
    let (text, rest) = rest.split_at(end);
    Some((text, rest.strip_prefix('"')?))
}

/// The whole number that begins after `key`, and what follows it. JSON has no leading zeros.
fn number<'a>(line: &'a str, key: &str) -> Option<(u64, &'a str)> {
    let rest = line.strip_prefix(key)?;
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = rest.split_at(end);
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 7] = [
        r#"{"type":"assistant/chunk","seq":5,"time":1700000000000,"session":"s","agent":"main","data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"a \"word\" \u00e4"}}}"#,
        r#"{"type":"assistant/chunk","seq":0,"time":0,"session":"s","agent":"main","data":{"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"tool-call","id":"1","name":"n","arguments":"{}"}}}}"#,
        r#"{"type":"assistant/message","seq":6,"time":1,"session":"s","agent":"main","data":{"turn":1,"step":1,"content":[{"type":"text","text":"a"},{"x":1,"type":"video"}]}}"#,
        r#"{"type":"tool/result","seq":7,"time":1,"session":"t","agent":"other","data":{"turn":1,"step":1,"callId":"1","content":[{"text":"late type","type":"text"}],"isError":false}}"#,
        r#"{"type":"plugin/p/state","seq":8,"time":1,"session":"s","agent":"main","data":{"key":"k","value":null}}"#,
        r#"{"type":"future/thing","seq":9,"time":1,"session":"s","agent":"main","data":[1,{"b":2,"a":[]},null]}"#,
        r#" {"seq" : 10, "type":"step/start", "time":1,"session":"s","agent":"main","more":{},"data":{"turn":1,"step":1}} "#,
    ];

    fn lines() -> LogLines {
        LogLines::new(SessionId::new("s").expect("valid"), AgentId::new("main").expect("valid"))
    }

    fn check(line: &str) {
        let (quick, plain) = (lines().entry(line), Entry::parse(line.strip_suffix('\n').unwrap_or(line)));
        assert_eq!(quick.as_ref().ok(), plain.as_ref().ok(), "{line}");
        assert_eq!(quick.err().map(|error| error.to_string()), plain.err().map(|error| error.to_string()), "{line}");
    }

    #[test]
    fn both_ways_of_reading_agree() {
        for line in LINES {
            assert!(Entry::parse(line).is_ok(), "{line}");
            check(line);
            check(&format!("{line}\n"));
        }
        assert_eq!(LINES.iter().filter(|line| lines().quickly(line).is_some()).count(), 6, "the quick way is taken");
    }

    /// Every line with every piece of it left out, doubled or changed: what is refused is refused both ways, in the same words.
    #[test]
    fn both_ways_of_reading_agree_on_what_is_no_entry() {
        for line in LINES {
            for at in (0..line.len()).filter(|at| line.is_char_boundary(*at)) {
                let (before, after) = line.split_at(at);
                check(before);
                let mut rest = after.chars();
                let Some(letter) = rest.next() else { continue };
                check(&format!("{before}{}", rest.as_str()));
                check(&format!("{before}{letter}{after}"));
                for other in ['0', '9', '"', '\\', '{', '}', ',', ' ', 'x', '\u{1}', '\u{e4}', '-', '.'] {
                    check(&format!("{before}{other}{}", rest.as_str()));
                    check(&format!("{before}{other}{after}"));
                }
            }
        }
    }

    #[test]
    fn a_line_gets_another_session_and_keeps_the_rest() {
        let new = SessionId::new("new-one").expect("valid");
        for line in LINES {
            for end in ["", "\n"] {
                let changed = with_session(&format!("{line}{end}"), &new).expect("an entry");
                assert_eq!(changed.ends_with('\n'), end == "\n");
                let expect = Entry { session: new.clone(), ..Entry::parse(line).expect("an entry") };
                assert_eq!(Entry::parse(changed.trim_end()).expect("an entry"), expect);
            }
        }
        assert_eq!(with_session(LINES[0], &new).expect("an entry"), LINES[0].replace(r#""s""#, r#""new-one""#));
        assert!(with_session("{}", &new).is_err());
    }
}
