//! From the events of Responses to chunks. A block is closed when its item is done or the response has ended, never because a body
//! ended.
//!
//! An answer is a list of items (messages, calls, reasoning, others), and an item has parts. Every event names its item by id, by place
//! or by both; servers differ in which of them they send, and in whether pieces come before the whole.

use dsh_seam::ModelFailure;
use dsh_seam::message::{Chunk, FinishReason, Usage};
use serde_json::{Map, Value};

use super::super::network::blocks::Blocks;
use super::super::network::error::{self, empty, malformed};
use super::super::network::sse::Event;
use super::super::network::{Decode, keep};
use super::request::{ITEM, PHASE};

/// What stands between the parts of one reasoning.
const BETWEEN: &str = "\n\n";

/// What a stream has said so far.
pub(super) struct Decoder {
    provider: String,
    blocks: Blocks,
    items: Vec<Item>,
    refused: bool,
    over: bool,
}

/// One item of the answer.
struct Item {
    id: String,
    place: Option<u64>,
    is_open: bool,
    parts: Vec<Part>,
}

/// One part of an item.
struct Part {
    kind: PartKind,
    number: u64,
    block: u32,
    /// Bytes of it that have come.
    written: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Text,
    Refusal,
    Summary,
    Reasoning,
    Arguments,
}

impl PartKind {
    /// The part that an event is about, and whether it has all of it.
    fn of(event: &str) -> Option<(Self, bool)> {
        let (part, is_whole) = match event.strip_prefix("response.")?.rsplit_once('.')? {
            (part, "delta") => (part, false),
            (part, "done") => (part, true),
            _ => return None,
        };
        let kind = match part {
            "output_text" => Self::Text,
            "refusal" => Self::Refusal,
            "function_call_arguments" => Self::Arguments,
            "reasoning_summary_text" | "reasoning_summary" => Self::Summary,
            "reasoning_text" | "reasoning" => Self::Reasoning,
            _ => return None,
        };
        Some((kind, is_whole))
    }

    /// The member that holds all of it.
    fn member(self) -> &'static str {
        match self {
            Self::Text | Self::Summary | Self::Reasoning => "text",
            Self::Refusal => "refusal",
            Self::Arguments => "arguments",
        }
    }

    /// Where an event says which of several it is.
    fn number(self, event: &Value) -> u64 {
        let member = if self == Self::Summary { "summary_index" } else { "content_index" };
        event.get(member).and_then(Value::as_u64).unwrap_or(0)
    }
}

impl Decode for Decoder {
    fn take(&mut self) -> Vec<Chunk> {
        self.blocks.take()
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn is_finished(&self) -> bool {
        self.over
    }

    fn event(&mut self, event: &Event) -> Result<(), ModelFailure> {
        let data = event.data.trim();
        if self.over || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.ended();
        }
        let value: Value = match serde_json::from_str(data) {
            Ok(value) => value,
            Err(_) if event.kind == "error" => return Err(error::in_answer(&Value::String(data.to_owned()))),
            Err(error) => return Err(malformed(&format!("a piece that is not valid JSON: {error}"))),
        };
        if !value.is_object() {
            return Err(malformed("a piece that is not an object"));
        }
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(&event.kind);
        self.value(kind, &value)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelFailure> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|error| malformed(&format!("an answer that is not valid JSON: {error}")))?;
        if !value.is_object() {
            return Err(malformed("an answer that is not an object"));
        }
        self.response("completed", &value)
    }

    fn end(&mut self) -> Result<(), ModelFailure> {
        if !self.over && self.blocks.is_empty() { Err(empty()) } else { Ok(()) }
    }
}

impl Decoder {
    pub fn new(provider: &str) -> Self {
        let provider = provider.to_owned();
        Self { provider, blocks: Blocks::default(), items: Vec::new(), refused: false, over: false }
    }

    /// The server ends its stream. Some do that without the event that ends a response.
    fn ended(&mut self) -> Result<(), ModelFailure> {
        if self.blocks.is_empty() {
            return Err(empty());
        }
        self.finish(self.reason());
        Ok(())
    }

    fn finish(&mut self, reason: FinishReason) {
        self.blocks.close_all();
        self.blocks.finish(reason);
        self.over = true;
    }

    fn reason(&self) -> FinishReason {
        if self.blocks.has_calls() {
            FinishReason::ToolCalls
        } else if self.refused {
            FinishReason::Refused
        } else {
            FinishReason::Stop
        }
    }

    fn value(&mut self, kind: &str, value: &Value) -> Result<(), ModelFailure> {
        let place = value.get("output_index").and_then(Value::as_u64);
        match kind {
            "response.output_item.added" => self.added(place, value.get("item").unwrap_or(&Value::Null)),
            "response.output_item.done" => self.done(place, value.get("item").unwrap_or(&Value::Null)),
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let word = kind.trim_start_matches("response.");
                return self.response(word, value.get("response").unwrap_or(&Value::Null));
            }
            "error" => return Err(error::in_answer(value)),
            // No event at all: a server that forwards an error or a response as it is.
            _ if !kind.starts_with("response.") && is_given(value.get("error")) => return Err(error::in_answer(value)),
            _ if value.get("output").is_some_and(Value::is_array) => return self.response("completed", value),
            other => {
                if let Some((part, is_whole)) = PartKind::of(other) {
                    self.piece(part, is_whole, place, value);
                }
            }
        }
        Ok(())
    }

    /// More of a part, or all of it.
    fn piece(&mut self, kind: PartKind, is_whole: bool, place: Option<u64>, event: &Value) {
        let text = match is_whole {
            true => written(event.get(kind.member())),
            false => written(event.get("delta")),
        };
        let id = text_of(event, "item_id");
        let at = self.find(id, place).unwrap_or_else(|| self.add(id, place));
        if !self.items[at].is_open {
            return;
        }
        let number = kind.number(event);
        match is_whole {
            true => self.complete(at, kind, number, &text),
            false => self.more(at, kind, number, &text),
        }
    }

    /// The item that is meant; the last one when nothing says which.
    fn find(&self, id: &str, place: Option<u64>) -> Option<usize> {
        let by_id = || self.items.iter().rposition(|item| item.id == id).filter(|_| !id.is_empty());
        let by_place = || self.items.iter().rposition(|item| place.is_some() && item.place == place);
        match (id, place) {
            ("", None) => self.items.len().checked_sub(1),
            _ => by_id().or_else(by_place),
        }
    }

    fn add(&mut self, id: &str, place: Option<u64>) -> usize {
        self.items.push(Item { id: id.to_owned(), place, is_open: true, parts: Vec::new() });
        self.items.len() - 1
    }

    fn added(&mut self, place: Option<u64>, item: &Value) {
        let id = text_of(item, "id");
        if !id.is_empty() && self.items.iter().any(|known| known.id == id) {
            return;
        }
        let at = self.add(id, place);
        if text_of(item, "type") == "function_call" {
            self.call(at, item);
        }
    }

    /// An item is whole: what has not come in pieces comes now.
    fn done(&mut self, place: Option<u64>, item: &Value) {
        let id = text_of(item, "id");
        let at = match self.find(id, place) {
            Some(at) if self.items[at].is_open => at,
            Some(at) if id.is_empty() || self.items[at].id == id => return,
            _ => self.add(id, place),
        };
        self.items[at].is_open = false;
        match text_of(item, "type") {
            "message" => self.message(at, item),
            "reasoning" => self.reasoning(at, item),
            "function_call" => {
                self.call(at, item);
                self.complete(at, PartKind::Arguments, 0, &written(item.get("arguments")));
            }
            "" => {}
            _ => self.blocks.other(keep(&self.provider, kept_item(item))),
        }
        let mut blocks: Vec<u32> = self.items[at].parts.iter().map(|part| part.block).collect();
        blocks.dedup();
        for block in blocks {
            self.blocks.close(block);
        }
    }

    fn message(&mut self, at: usize, item: &Value) {
        for (number, content) in (0..).zip(list(item, "content")) {
            let kind = if content.get("refusal").is_some() { PartKind::Refusal } else { PartKind::Text };
            self.complete(at, kind, number, text_of(content, kind.member()));
        }
        if let Some(phase) = item.get(PHASE).filter(|phase| phase.is_string()) {
            for part in &self.items[at].parts {
                let opaque = keep(&self.provider, Map::from_iter([(PHASE.to_owned(), phase.clone())]));
                self.blocks.keep(part.block, opaque);
            }
        }
    }

    /// A reasoning that can be read by nobody but its provider is a block all the same: it travels back.
    fn reasoning(&mut self, at: usize, item: &Value) {
        let (summary, content) = (list(item, "summary"), list(item, "content"));
        let kind = match self.items[at].parts.first() {
            Some(part) => part.kind,
            None if summary.is_empty() => PartKind::Reasoning,
            None => PartKind::Summary,
        };
        let parts = if kind == PartKind::Summary { summary } else { content };
        for (number, part) in (0..).zip(parts) {
            self.complete(at, kind, number, text_of(part, "text"));
        }
        // Without either of them the provider would look for what it has not stored.
        if text_of(item, "encrypted_content").is_empty() && content.is_empty() {
            return;
        }
        let block = match self.items[at].parts.first() {
            Some(part) => part.block,
            None => self.open(at, kind, 0).block,
        };
        self.blocks.keep(block, keep(&self.provider, kept_item(item)));
    }

    /// What a call is recognised by. Its arguments come in pieces, or when it is done.
    fn call(&mut self, at: usize, item: &Value) {
        let block = match self.items[at].parts.first() {
            Some(part) => part.block,
            None => self.open(at, PartKind::Arguments, 0).block,
        };
        let id = match text_of(item, "call_id") {
            "" => text_of(item, "id"),
            id => id,
        };
        self.blocks.call(block, id, text_of(item, "name"), "");
    }

    fn open(&mut self, at: usize, kind: PartKind, number: u64) -> &mut Part {
        let parts = &mut self.items[at].parts;
        let block = match (kind, parts.first()) {
            (PartKind::Summary | PartKind::Reasoning, Some(first)) => {
                self.blocks.add(first.block, BETWEEN);
                first.block
            }
            (PartKind::Summary | PartKind::Reasoning, None) => self.blocks.open_reasoning(),
            (PartKind::Arguments, _) => self.blocks.open_call(),
            (PartKind::Text | PartKind::Refusal, _) => self.blocks.open_text(),
        };
        self.refused |= kind == PartKind::Refusal;
        parts.push(Part { kind, number, block, written: 0 });
        parts.last_mut().expect("invariant: it was pushed")
    }

    fn more(&mut self, at: usize, kind: PartKind, number: u64, added: &str) {
        if added.is_empty() {
            return;
        }
        let known = self.items[at].parts.iter().position(|part| part.kind == kind && part.number == number);
        let part = match known {
            Some(known) => &mut self.items[at].parts[known],
            None => self.open(at, kind, number),
        };
        part.written += added.len();
        let block = part.block;
        match kind {
            PartKind::Arguments => self.blocks.call(block, "", "", added),
            _ => self.blocks.add(block, added),
        }
    }

    /// A part is whole: what has not come in pieces is added.
    fn complete(&mut self, at: usize, kind: PartKind, number: u64, whole: &str) {
        let part = self.items[at].parts.iter().find(|part| part.kind == kind && part.number == number);
        let written = part.map_or(0, |part| part.written);
        if let Some(rest) = whole.get(written..) {
            self.more(at, kind, number, rest);
        }
    }

    /// The response has ended, or came as a whole.
    fn response(&mut self, word: &str, response: &Value) -> Result<(), ModelFailure> {
        let untold = self.items.is_empty();
        for (place, item) in (0..).zip(list(response, "output")) {
            let known = self.find(text_of(item, "id"), None).filter(|_| !text_of(item, "id").is_empty());
            if untold || known.is_some_and(|at| self.items[at].is_open) {
                self.done(Some(place), item);
            }
        }
        if let Some(counts) = response.get("usage").filter(|usage| usage.is_object()) {
            self.blocks.usage(usage(counts));
        }
        let status = match (word, text_of(response, "status")) {
            ("completed" | "done", "") => "completed",
            ("completed" | "done", status) => status,
            (word, _) => word,
        };
        let reason = match status {
            "completed" if is_given(response.get("error")) => return Err(error::in_answer(response)),
            "completed" => self.reason(),
            "failed" if is_given(response.get("error")) => return Err(error::in_answer(response)),
            "failed" => return Err(ModelFailure::new("server", "the provider failed and does not say why")),
            "incomplete" => incomplete(response),
            "cancelled" => FinishReason::Aborted,
            other => return Err(malformed(&format!("an answer that is `{other}`"))),
        };
        self.finish(reason);
        Ok(())
    }
}

fn incomplete(response: &Value) -> FinishReason {
    match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
        Some("max_output_tokens") | None => FinishReason::MaxTokens,
        Some("content_filter") => FinishReason::Refused,
        Some(other) => FinishReason::Other(other.to_owned()),
    }
}

fn is_given(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}

fn text_of<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// A text; what is none as JSON, since some servers send arguments as an object.
fn written(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value @ Value::Object(_)) => value.to_string(),
        _ => String::new(),
    }
}

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value.get(member).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn kept_item(item: &Value) -> Map<String, Value> {
    Map::from_iter([(ITEM.to_owned(), item.clone())])
}

/// Responses counts inclusively; ours are disjoint.
fn usage(value: &Value) -> Usage {
    let count = |value: Option<&Value>| u32::try_from(value.and_then(Value::as_u64).unwrap_or(0)).unwrap_or(u32::MAX);
    let detail = |of: &str, name: &str| count(value.get(of).and_then(|details| details.get(name)));
    let cache_read = detail("input_tokens_details", "cached_tokens");
    let cache_write = detail("input_tokens_details", "cache_write_tokens");
    let reasoning = detail("output_tokens_details", "reasoning_tokens");
    Usage {
        input: count(value.get("input_tokens")).saturating_sub(cache_read).saturating_sub(cache_write),
        output: count(value.get("output_tokens")).saturating_sub(reasoning),
        cache_read,
        cache_write,
        reasoning,
        ..Usage::default()
    }
}
