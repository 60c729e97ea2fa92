//! An answer as data, and the events in which each protocol sends it.

use serde_json::{Value, json};

use super::{chat, messages, responses};

/// A protocol over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OpenAI's Chat Completions, and what is compatible with it.
    Chat,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's Messages.
    Messages,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Chat, Protocol::Responses, Protocol::Messages];

    /// The word for a provider of it in `kind = "…"`.
    pub fn kind(self) -> &'static str {
        match self {
            Protocol::Chat => "compatible",
            Protocol::Responses => "openai-responses",
            Protocol::Messages => "anthropic",
        }
    }

    /// Its name for a person.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Chat => "Chat Completions",
            Protocol::Responses => "Responses",
            Protocol::Messages => "Messages",
        }
    }

    /// The events of an answer.
    pub fn events(self, answer: &Answer) -> Vec<WireEvent> {
        let mut events = match self {
            Protocol::Chat => chat::begin(),
            Protocol::Responses => responses::begin(),
            Protocol::Messages => messages::begin(&answer.usage),
        };
        let blocks = answer.blocks.iter().enumerate().map(|(index, block)| match self {
            Protocol::Chat => chat::block(answer.calls_before(index), block, answer.cut),
            Protocol::Responses => responses::block(index, block, answer.cut),
            Protocol::Messages => messages::block(index, block, answer.cut),
        });
        events.extend(if answer.interleaved { in_turns(blocks.collect()) } else { blocks.flatten().collect() });
        events.extend(match self {
            Protocol::Chat => chat::end(answer),
            Protocol::Responses => responses::end(answer),
            Protocol::Messages => messages::end(answer),
        });
        if self == Protocol::Responses {
            responses::number(&mut events);
        }
        events
    }

    /// The answer as a server sends it that does not stream: one JSON document.
    pub fn whole(self, answer: &Answer) -> Value {
        match self {
            Protocol::Chat => chat::whole(answer),
            Protocol::Responses => responses::whole(answer),
            Protocol::Messages => messages::whole(answer),
        }
    }

    /// The event by which the provider fails in the middle of an answer.
    pub fn error_event(self, kind: &str, message: &str) -> WireEvent {
        match self {
            Protocol::Chat => {
                WireEvent::plain(Stage::Piece, &json!({ "error": { "message": message, "type": kind, "code": null } }))
            }
            Protocol::Responses => WireEvent::typed(
                Stage::Piece,
                json!({ "type": "error", "code": kind, "message": message, "param": null, "sequence_number": 9 }),
            ),
            Protocol::Messages => WireEvent::typed(
                Stage::Piece,
                json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" }),
            ),
        }
    }

    /// The body with which the provider refuses a request.
    pub fn error_body(self, kind: &str, message: &str) -> String {
        let error = json!({ "type": kind, "message": message });
        match self {
            Protocol::Messages => json!({ "type": "error", "error": error, "request_id": "req_1" }).to_string(),
            _ => json!({ "error": error }).to_string(),
        }
    }
}

/// One event of each block, then the next one of each, as long as there are any.
fn in_turns(blocks: Vec<Vec<WireEvent>>) -> Vec<WireEvent> {
    let mut blocks: Vec<_> = blocks.into_iter().map(Vec::into_iter).collect();
    let mut events = Vec::new();
    loop {
        let before = events.len();
        events.extend(blocks.iter_mut().filter_map(Iterator::next));
        if events.len() == before {
            return events;
        }
    }
}

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing of its content has been said.
    Begin,
    /// A block begins or goes on.
    Piece,
    /// A block is said to be whole.
    Close,
    /// The answer is said to be whole.
    Finish,
    /// Nothing comes behind this.
    Last,
}

/// One server-sent event.
#[derive(Debug, Clone)]
pub struct WireEvent {
    /// Where it belongs.
    pub stage: Stage,
    /// The line `event:`; none: there is no such line.
    pub kind: Option<String>,
    /// The line `data:`.
    pub data: String,
}

impl WireEvent {
    /// An event without a name.
    pub fn plain(stage: Stage, data: &Value) -> Self {
        Self { stage, kind: None, data: data.to_string() }
    }

    /// An event that has the name of its member `type`.
    pub fn typed(stage: Stage, data: Value) -> Self {
        Self { stage, kind: data["type"].as_str().map(str::to_owned), data: data.to_string() }
    }

    /// The event as it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let kind = self.kind.as_ref().map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        format!("{kind}data: {}\n\n", self.data).into_bytes()
    }

    /// The same event with other JSON; what is no JSON stays.
    #[must_use]
    pub fn map(mut self, change: impl FnOnce(&mut Value)) -> Self {
        if let Ok(mut value) = serde_json::from_str(&self.data) {
            change(&mut value);
            self.data = value.to_string();
        }
        self
    }
}

/// A part of an answer.
#[derive(Debug, Clone)]
pub enum Block {
    /// What the model thought, and what proves it.
    Reasoning {
        /// The thought.
        text: String,
        /// A signature, or encrypted content.
        proof: Option<String>,
    },
    /// What it said.
    Text(String),
    /// A tool call.
    Call {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// The raw arguments.
        arguments: String,
    },
}

/// What is said to have been used; any JSON, because servers send any.
#[derive(Debug, Clone)]
pub struct Counts {
    /// All tokens of the request, those of the cache among them.
    pub input: Value,
    /// All tokens of the answer, those of the reasoning among them.
    pub output: Value,
    /// Those read from a cache.
    pub cache_read: Value,
    /// Those of the reasoning.
    pub reasoning: Value,
}

/// Why an answer stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It is complete.
    End,
    /// It was cut at the most tokens.
    Length,
    /// The provider refused.
    Filter,
}

/// An answer, given once and sent in any protocol.
#[derive(Debug, Clone)]
pub struct Answer {
    pub(super) blocks: Vec<Block>,
    pub(super) usage: Option<Counts>,
    pub(super) stopped: Stopped,
    cut: Option<usize>,
    interleaved: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self::new()
    }
}

impl Answer {
    /// An answer of nothing, 10 tokens in and 5 out.
    pub fn new() -> Self {
        let usage = Counts { input: json!(10), output: json!(5), cache_read: json!(0), reasoning: json!(0) };
        Self { blocks: vec![], usage: Some(usage), stopped: Stopped::End, cut: None, interleaved: false }
    }

    /// More text.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.blocks.push(Block::Text(text.to_owned()));
        self
    }

    /// More reasoning.
    #[must_use]
    pub fn reasoning(mut self, text: &str, proof: Option<&str>) -> Self {
        self.blocks.push(Block::Reasoning { text: text.to_owned(), proof: proof.map(str::to_owned) });
        self
    }

    /// One more tool call.
    #[must_use]
    pub fn call(mut self, id: &str, name: &str, arguments: &str) -> Self {
        self.blocks.push(Block::Call { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() });
        self
    }

    /// What is counted; none: nothing is said.
    #[must_use]
    pub fn usage(mut self, usage: Option<Counts>) -> Self {
        self.usage = usage;
        self
    }

    /// Why it stops.
    #[must_use]
    pub fn stopped(mut self, stopped: Stopped) -> Self {
        self.stopped = stopped;
        self
    }

    /// Everything in pieces of so many characters.
    #[must_use]
    pub fn cut(mut self, characters: usize) -> Self {
        self.cut = Some(characters);
        self
    }

    /// The pieces of all blocks in turns.
    #[must_use]
    pub fn interleaved(mut self) -> Self {
        self.interleaved = true;
        self
    }

    pub(super) fn has_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::Call { .. }))
    }

    fn calls_before(&self, index: usize) -> usize {
        self.blocks[..index].iter().filter(|block| matches!(block, Block::Call { .. })).count()
    }
}

/// `text` in pieces of at most `cut` characters; at least one.
pub(super) fn pieces(text: &str, cut: Option<usize>) -> Vec<String> {
    let Some(cut) = cut else { return vec![text.to_owned()] };
    let characters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = characters.chunks(cut.max(1)).map(|piece| piece.iter().collect()).collect();
    if pieces.is_empty() { vec![String::new()] } else { pieces }
}
