//! What goes to standard output: text, one object, or one event a line. Nothing else ever does.

pub mod chat;
pub mod files;
pub mod pump;
pub mod receipts;
pub mod text;
mod timeline;
mod totals;

use dsh_seam::AgentId;
use dsh_seam::event::Emitted;

use crate::args::Output;
use crate::exit::RunResult;
use text::TextSink;

/// Turns events into bytes.
pub enum Sink {
    /// The assistant's text.
    Text(TextSink),
    /// One object at the end.
    Json,
    /// One event a line.
    Jsonl,
    /// A chat: text, and what a person wants to see beside it.
    Chat(chat::ChatSink),
}

impl Sink {
    /// The sink for an option; `text` shows the prompted agent only, tamed when it goes to a terminal.
    pub fn new(output: Output, prompted: AgentId, stream: bool, to_terminal: bool) -> Self {
        match output {
            Output::Text => Self::Text(TextSink::new(prompted, stream, to_terminal)),
            Output::Json => Self::Json,
            Output::Jsonl => Self::Jsonl,
        }
    }

    /// Adds what an event looks like.
    pub fn emit(&mut self, emitted: &Emitted, out: &mut Vec<u8>) {
        match self {
            Self::Text(sink) => sink.emit(emitted, out),
            Self::Json => {}
            Self::Jsonl => line(emitted, out),
            Self::Chat(sink) => sink.emit(emitted, out),
        }
    }

    /// Adds what stands at the end.
    pub fn finish(&mut self, result: &RunResult, out: &mut Vec<u8>) {
        match self {
            Self::Text(sink) => sink.end_line(out),
            Self::Chat(sink) => sink.end_line(out),
            Self::Json => line(result, out),
            Self::Jsonl => {}
        }
    }
}

/// One JSON value and a newline.
pub fn line(value: &impl serde::Serialize, out: &mut Vec<u8>) {
    let before = out.len();
    match serde_json::to_writer(&mut *out, value) {
        Ok(()) => out.push(b'\n'),
        Err(error) => {
            // A half line would be worse than none.
            out.truncate(before);
            tracing::error!("an event could not be printed: {error}");
        }
    }
}
