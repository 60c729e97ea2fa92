//! The assistant's text as it streams, each message ended by a newline, nothing else.

use std::collections::HashSet;

use dsh_seam::AgentId;
use dsh_seam::event::{Emitted, Event};
use dsh_seam::message::{Chunk, ContentBlock};

use super::chat::tame;

/// Prints one agent's text.
pub struct TextSink {
    agent: AgentId,
    stream: bool,
    tamed: bool,
    in_line: bool,
    /// Text of the open step that was printed already.
    printed: bool,
    /// Blocks of the open request that came in pieces.
    in_pieces: HashSet<u32>,
}

impl TextSink {
    /// For `agent`; without `stream` a message is printed once it is logged. `tamed` is for a terminal, which what a model writes must
    /// not steer.
    pub fn new(agent: AgentId, stream: bool, tamed: bool) -> Self {
        Self { agent, stream, tamed, in_line: false, printed: false, in_pieces: HashSet::new() }
    }

    /// Adds what an event adds to the text.
    pub fn emit(&mut self, emitted: &Emitted, out: &mut Vec<u8>) {
        let Emitted::Durable(entry) = emitted else { return };
        if entry.agent != self.agent {
            return;
        }
        match &entry.event {
            Event::RequestSent(_) => {
                self.end_line(out);
                (self.printed, self.in_pieces) = (false, HashSet::new());
            }
            Event::AssistantChunk(chunk) if self.stream => self.chunk(&chunk.chunk, out),
            Event::AssistantMessage(message) => {
                if !self.printed {
                    message.content.iter().filter_map(ContentBlock::as_text).for_each(|text| self.print(text, out));
                }
                self.end_line(out);
                self.printed = false;
            }
            Event::StepEnd(_) | Event::TurnEnd(_) | Event::RequestFailed(_) => self.end_line(out),
            _ => {}
        }
    }

    fn chunk(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        match chunk {
            Chunk::TextDelta { index, text } => {
                self.in_pieces.insert(*index);
                self.print(text, out);
            }
            Chunk::BlockEnd { index, block } if !self.in_pieces.contains(index) => {
                if let Some(text) = block.as_text() {
                    self.print(text, out);
                }
            }
            _ => {}
        }
    }

    fn print(&mut self, text: &str, out: &mut Vec<u8>) {
        if let Some(last) = text.as_bytes().last() {
            match self.tamed {
                true => out.extend_from_slice(tame(text).as_bytes()),
                false => out.extend_from_slice(text.as_bytes()),
            }
            self.in_line = *last != b'\n';
            self.printed = true;
        }
    }

    /// Ends the line if one is open.
    pub fn end_line(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.in_line) {
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_seam::event::Entry;
    use std::sync::Arc;

    fn check(stream: bool, events: &[(&str, &str)], expect: &str) {
        let mut sink = TextSink::new(AgentId::new("main").expect("valid"), stream, false);
        let mut out = Vec::new();
        for (kind, data) in events {
            let line = format!(
                r#"{{"type":"{kind}","seq":0,"time":0,"session":"s","agent":"main","data":{{"turn":1,"step":1,{data}}}}}"#
            );
            sink.emit(&Emitted::Durable(Arc::new(Entry::parse(&line).expect(&line))), &mut out);
        }
        assert_eq!(String::from_utf8(out).expect("UTF-8"), expect, "{events:?}");
    }

    const DELTA: (&str, &str) = ("assistant/chunk", r#""chunk":{"type":"text-delta","index":0,"text":"hel"}"#);
    const MORE: (&str, &str) = ("assistant/chunk", r#""chunk":{"type":"text-delta","index":0,"text":"lo"}"#);
    const WHOLE: (&str, &str) =
        ("assistant/chunk", r#""chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"hello"}}"#);
    const MESSAGE: (&str, &str) = ("assistant/message", r#""content":[{"type":"text","text":"hello"}]"#);
    const CALLS: (&str, &str) =
        ("assistant/message", r#""content":[{"type":"tool-call","id":"a","name":"t","arguments":"{}"}]"#);
    const FAILED: (&str, &str) = ("request/failed", r#""attempt":1,"code":"server","message":"m""#);

    #[test]
    fn text_is_printed_once_and_ends_with_a_newline() {
        check(true, &[DELTA, MORE, WHOLE, MESSAGE], "hello\n");
        check(true, &[WHOLE, MESSAGE], "hello\n");
        check(true, &[MESSAGE], "hello\n");
        check(false, &[DELTA, MORE, WHOLE, MESSAGE], "hello\n");
        check(true, &[CALLS, DELTA, MORE, WHOLE, MESSAGE], "hello\n");
        check(true, &[DELTA, FAILED], "hel\n");
        check(false, &[DELTA, FAILED], "");
        check(true, &[("assistant/message", r#""content":[{"type":"text","text":"x\n"}]"#)], "x\n");
        check(true, &[CALLS], "");
    }
}
