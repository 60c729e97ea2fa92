//! The lifecycle as a program: which events a run must show, in which order, for a script of the model, commands, and a few tools.
//!
//! It is written from `docs/lifecycle.md`, not from the loop: plain, slow, without tasks and without I/O. What it does not know (plugins,
//! approvals, retries, waits) is in the data cases.

mod agent;
mod shown;

pub use agent::Agent;
pub use shown::shown;

use serde_json::{Value, json};

/// What the model answers to one request.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// What it says; nothing when empty.
    pub text: String,
    /// The tools it calls.
    pub calls: Vec<Call>,
    /// Whether it was cut by `max-tokens`.
    pub cut: bool,
    /// Output tokens, when it says how many.
    pub usage: Option<u32>,
    /// Characters of one delta; all at once when none.
    pub piece: Option<usize>,
    /// After how many chunks it fails.
    pub fails_after: Option<usize>,
}

/// A tool call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its id, used once in a session.
    pub id: String,
    /// What is called.
    pub tool: Tool,
}

/// Tools of the guest `toolbox`, and calls that no tool takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Answers; parallel-safe.
    Say,
    /// Answers; not parallel-safe.
    Change,
    /// Answers an error.
    Fail,
    /// There is none of that name.
    Unknown,
    /// `say`, with arguments that are not JSON.
    BadArguments,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Say | Self::BadArguments => "say",
            Self::Change => "change",
            Self::Fail => "fail",
            Self::Unknown => "nope",
        }
    }

    fn arguments(self) -> &'static str {
        if self == Self::BadArguments { "{bad" } else { r#"{"text":"x"}"# }
    }

    /// The code of its result; none when it is no error.
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Say | Self::Change => None,
            Self::Fail => Some("tool-failed"),
            Self::Unknown => Some("unknown-tool"),
            Self::BadArguments => Some("invalid-arguments"),
        }
    }

    fn is_parallel_safe(self) -> bool {
        self.name() == "say"
    }
}

impl Answer {
    /// The line of a script file.
    pub fn line(&self) -> Value {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .map(|call| json!({"id": call.id, "name": call.tool.name(), "arguments": call.tool.arguments()}))
            .collect();
        let mut line = json!({"toolCalls": calls});
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                line[key] = value;
            }
        };
        put("text", (!self.text.is_empty()).then(|| json!(self.text)));
        put("finish", self.cut.then(|| json!("max-tokens")));
        put("usage", self.usage.map(|output| json!({"output": output})));
        put("chunkSize", self.piece.map(|size| json!(size)));
        put("error", self.fails_after.map(|_| json!({"code": "server", "message": "no"})));
        put("afterChunks", self.fails_after.map(|chunks| json!(chunks)));
        line
    }
}

/// A line of standard input.
#[derive(Debug, Clone)]
pub struct Command {
    /// What it does.
    pub what: Do,
    /// After which event, and which of that type; none is at once.
    pub after: Option<(&'static str, u32)>,
}

/// What a command does.
#[derive(Debug, Clone)]
pub enum Do {
    /// `send`.
    Send(String),
    /// `steer`.
    Steer(String),
    /// `inject`.
    Inject(String),
    /// `abort`.
    Abort(String),
    /// `cancel`, which keeps the inbox or not.
    Cancel(bool),
    /// `dispose`.
    Dispose,
}

impl Command {
    /// The line.
    pub fn line(&self) -> Value {
        let mut line = match &self.what {
            Do::Send(text) => json!({"send": text}),
            Do::Steer(text) => json!({"steer": text}),
            Do::Inject(text) => json!({"inject": text}),
            Do::Abort(reason) => json!({"abort": reason}),
            Do::Cancel(keep) => json!({"cancel": {"keepInbox": keep}}),
            Do::Dispose => json!({"dispose": true}),
        };
        if let Some((event, count)) = self.after {
            line["after"] = json!(format!("{event}#{count}"));
        }
        line
    }
}
