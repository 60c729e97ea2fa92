//! The transcript of a run: what the agent showed, as a program outside would read it, and between it what was done to the agent.

use std::fmt;
use std::sync::Mutex;

use dsh_seam::event::Emitted;
use serde_json::Value;

/// Where a line of a transcript comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The log.
    Log {
        /// Its sequence number.
        seq: u64,
        /// Its time.
        time: u64,
    },
    /// The live side.
    Live,
    /// The world around the agent: a call, a listener that begins, a tool that runs.
    World,
}

/// One line of a transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where it comes from.
    pub from: From,
    /// Its type.
    pub kind: String,
    /// Its data.
    pub data: Value,
}

impl Record {
    /// What was shown, by way of its JSON.
    pub fn shown(emitted: &Emitted) -> Self {
        Self::read(serde_json::to_value(emitted).expect("events are JSON"))
    }

    /// A line of a log or of `--output jsonl`.
    pub fn read(mut line: Value) -> Self {
        let kind = line["type"].as_str().expect("every event has a type").to_owned();
        let from = match (line["seq"].as_u64(), line["time"].as_u64()) {
            (Some(seq), Some(time)) => From::Log { seq, time },
            _ => From::Live,
        };
        Self { from, kind, data: line["data"].take() }
    }

    /// What the world did or noticed.
    pub fn world(kind: &str, data: Value) -> Self {
        Self { from: From::World, kind: kind.into(), data }
    }

    /// Whether it is in the log.
    pub fn is_logged(&self) -> bool {
        matches!(self.from, From::Log { .. })
    }

    /// A live event or a note of that type.
    pub fn is(&self, kind: &str) -> bool {
        self.kind == kind
    }

    /// A member of its data, as text.
    pub fn text(&self, member: &str) -> &str {
        self.data[member].as_str().unwrap_or_default()
    }

    /// A member of its data, as a number.
    pub fn number(&self, member: &str) -> u64 {
        self.data[member].as_u64().unwrap_or_default()
    }

    /// The text of its content's first block.
    pub fn said(&self) -> &str {
        self.data["content"][0]["text"].as_str().unwrap_or_default()
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.from {
            From::Log { seq, time } => write!(f, "{seq:>4} {time} {}", self.kind)?,
            From::Live => write!(f, "             {}", self.kind)?,
            From::World => write!(f, "           · {}", self.kind)?,
        }
        let data = self.data.to_string();
        if self.data.is_null() { Ok(()) } else { write!(f, " {}", &data[..data.floor_char_boundary(200)]) }
    }
}

/// A transcript that grows.
#[derive(Default)]
pub struct Transcript(Mutex<Vec<Record>>);

impl Transcript {
    /// Adds a line.
    pub fn add(&self, record: Record) {
        self.0.lock().expect("not poisoned").push(record);
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.0.lock().expect("not poisoned").len()
    }

    /// All lines so far.
    pub fn records(&self) -> Vec<Record> {
        self.0.lock().expect("not poisoned").clone()
    }
}

/// A transcript as text.
pub fn printed(records: &[Record]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}
