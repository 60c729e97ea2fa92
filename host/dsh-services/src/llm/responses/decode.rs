//! From the events of Responses to chunks. A block is closed when its item is done or the response has ended, never because a body
//! ended.
//!
//! An answer is a list of items (messages, calls, reasoning, others), and an item has parts. Every event names its item by id, by place
//! or by both; servers differ in which of them they send, and in whether pieces come before the whole.

use dsh_seam::ModelFailure;
use dsh_seam::cost::Cost;
use dsh_seam::message::{Chunk, FinishReason, Usage};
use serde_json::{Map, Value};

use super::super::network::blocks::{Blocks, MAX_BLOCKS};
use super::super::network::error::{self, empty, malformed};
use super::super::network::piece::{document, piece};
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
    /// Its own id, or that of the call that it is where it has none. Two items may have one id, in two places.
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
        self.blocks.check()?;
        let data = event.data.trim();
        if self.over || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.ended();
        }
        let value = piece(event)?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(&event.kind);
        self.value(kind, &value)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelFailure> {
        let value = document(body)?;
        if !is_given(value.get("error")) && value.get("status").is_none() && value.get("output").is_none() {
            return Err(malformed("an answer without `output`"));
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
        if id.is_empty() && place.is_none() {
            return self.items.len().checked_sub(1);
        }
        let named = |item: &Item| !id.is_empty() && item.id == id;
        let placed = |item: &Item| place.is_some() && item.place == place;
        let last = |wanted: &dyn Fn(&Item) -> bool| self.items.iter().rposition(wanted);
        last(&|item| named(item) && placed(item)).or_else(|| last(&named)).or_else(|| last(&placed))
    }

    /// Whether an item is the one at `at`, said once more.
    fn is_again(&self, at: usize, id: &str, place: Option<u64>) -> bool {
        let known = &self.items[at];
        match (id, place) {
            ("", None) => false,
            ("", place) => known.place == place,
            (id, place) => known.id == id && (place.is_none() || known.place == place),
        }
    }

    fn add(&mut self, id: &str, place: Option<u64>) -> usize {
        if self.items.len() >= MAX_BLOCKS as usize {
            // The answer is refused as a whole; what is added to which of them does not count any more.
            self.blocks.overflow();
            return self.items.len() - 1;
        }
        self.items.push(Item { id: id.to_owned(), place, is_open: true, parts: Vec::new() });
        self.items.len() - 1
    }

    fn added(&mut self, place: Option<u64>, item: &Value) {
        let id = id_of(item);
        // Pieces of it may have come before it. A place alone is no name: some servers have but one.
        let known = self.find(id, place).filter(|at| !id.is_empty() && self.is_again(*at, id, place));
        let at = match known {
            Some(at) if self.items[at].is_open => at,
            Some(_) if !text_of(item, "id").is_empty() => return,
            _ => self.add(id, place),
        };
        if text_of(item, "type") == "function_call" {
            self.call(at, item);
        }
    }

    /// An item is whole: what has not come in pieces comes now.
    fn done(&mut self, place: Option<u64>, item: &Value) {
        let id = id_of(item);
        let at = match self.find(id, place) {
            Some(at) if self.items[at].is_open => at,
            Some(at) if self.is_again(at, id, place) => return,
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
            let id = id_of(item);
            let known = self.items.iter().find(|known| !id.is_empty() && known.id == id);
            if untold || known.is_some_and(|known| known.is_open) {
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

/// What an item is told by: llama.cpp gives a call no id but that of the call.
fn id_of(item: &Value) -> &str {
    match text_of(item, "id") {
        "" => text_of(item, "call_id"),
        id => id,
    }
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
        // OpenRouter's.
        cost: value.get("cost").and_then(Value::as_f64).and_then(Cost::from_units),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What comes of these events: chunks as JSON, and the failure, if any.
    fn decode(events: &[Value]) -> Vec<String> {
        let mut decoder = Decoder::new("p");
        let mut result = Ok(());
        for data in events {
            let data = data.as_str().map(str::to_owned).unwrap_or_else(|| data.to_string());
            result = result.and_then(|()| decoder.event(&Event { kind: String::new(), data }));
        }
        shown(decoder, result)
    }

    fn shown(mut decoder: Decoder, result: Result<(), ModelFailure>) -> Vec<String> {
        let result = result.and_then(|()| decoder.end());
        let mut out: Vec<String> =
            decoder.take().iter().map(|chunk| serde_json::to_string(chunk).expect("JSON")).collect();
        out.extend(result.err().map(|failure| format!("!{} {}", failure.code, failure.message)));
        out
    }

    /// The whole blocks, the finish and the failure.
    fn ends(events: &[Value]) -> Vec<String> {
        let is_end = |line: &String| {
            ["{\"type\":\"block-end\"", "{\"type\":\"finish\"", "!"].iter().any(|start| line.starts_with(start))
        };
        let short = |line: String| {
            let value: Value = serde_json::from_str(&line).unwrap_or_default();
            match value["type"].as_str() {
                Some("block-end") => value["block"].to_string(),
                Some("finish") => value["reason"].to_string(),
                _ => line,
            }
        };
        decode(events).into_iter().filter(is_end).map(short).collect()
    }

    fn added(place: u64, item: Value) -> Value {
        json!({"type": "response.output_item.added", "output_index": place, "item": item})
    }

    fn done(place: u64, item: Value) -> Value {
        json!({"type": "response.output_item.done", "output_index": place, "item": item})
    }

    fn delta(what: &str, id: &str, place: u64, text: &str) -> Value {
        json!({"type": format!("response.{what}.delta"), "item_id": id, "output_index": place, "content_index": 0, "summary_index": 0, "delta": text})
    }

    fn completed() -> Value {
        json!({"type": "response.completed", "response": {"status": "completed", "error": null, "incomplete_details": null}})
    }

    fn message(text: &str) -> Value {
        json!({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]})
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "t", "arguments": arguments, "status": "completed"})
    }

    const TEXT: &str = r#"{"type":"text","text":"hallo"}"#;

    #[test]
    fn an_answer_with_everything() {
        let reasoning = json!({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "so"}, {"type": "summary_text", "text": "la"}], "encrypted_content": "gAAA"});
        let part = |number: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "item_id": "r", "output_index": 0, "summary_index": number, "delta": text});
        let events = [
            json!({"type": "response.created", "sequence_number": 0, "response": {"status": "queued", "output": [], "usage": null}}),
            json!({"type": "response.queued", "response": {"status": "queued"}}),
            json!({"type": "response.in_progress", "response": {"status": "in_progress"}}),
            added(0, json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gA"})),
            json!({"type": "response.reasoning_summary_part.added", "item_id": "r", "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
            part(0, "s"),
            part(0, "o"),
            json!({"type": "response.reasoning_summary_text.done", "item_id": "r", "output_index": 0, "summary_index": 0, "text": "so"}),
            part(1, "la"),
            done(0, reasoning),
            added(1, json!({"type": "message", "id": "m", "role": "assistant", "content": [], "phase": "commentary"})),
            json!({"type": "response.content_part.added", "item_id": "m", "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": ""}}),
            delta("output_text", "m", 1, "Hal"),
            delta("output_text", "m", 1, "lo"),
            json!({"type": "response.output_text.annotation.added", "item_id": "m", "output_index": 1, "content_index": 0, "annotation_index": 0, "annotation": {}}),
            json!({"type": "response.output_text.done", "item_id": "m", "output_index": 1, "content_index": 0, "text": "Hallo"}),
            json!({"type": "response.content_part.done", "item_id": "m", "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": "Hallo"}}),
            done(
                1,
                json!({"type": "message", "id": "m", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "Hallo"}]}),
            ),
            added(
                2,
                json!({"type": "function_call", "id": "fc_a", "call_id": "a", "name": "t", "arguments": "", "status": "in_progress"}),
            ),
            delta("function_call_arguments", "fc_a", 2, "{"),
            delta("function_call_arguments", "fc_a", 2, "}"),
            json!({"type": "response.function_call_arguments.done", "item_id": "fc_a", "output_index": 2, "arguments": "{}"}),
            done(2, call("a", "{}")),
            json!({"type": "response.completed", "response": {"status": "completed", "output": [call("a", "{}")],
                "usage": {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 6}, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 27}}}),
        ];
        assert_eq!(
            decode(&events),
            [
                r#"{"type":"block-start","index":0,"blockType":"reasoning"}"#,
                r#"{"type":"reasoning-delta","index":0,"text":"s"}"#,
                r#"{"type":"reasoning-delta","index":0,"text":"o"}"#,
                r#"{"type":"reasoning-delta","index":0,"text":"\n\n"}"#,
                r#"{"type":"reasoning-delta","index":0,"text":"la"}"#,
                r#"{"type":"block-end","index":0,"block":{"type":"reasoning","text":"so\n\nla","opaque":{"provider":"p","item":{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"so"},{"type":"summary_text","text":"la"}],"encrypted_content":"gAAA"}}}}"#,
                r#"{"type":"block-start","index":1,"blockType":"text"}"#,
                r#"{"type":"text-delta","index":1,"text":"Hal"}"#,
                r#"{"type":"text-delta","index":1,"text":"lo"}"#,
                r#"{"type":"block-end","index":1,"block":{"type":"text","text":"Hallo","opaque":{"provider":"p","phase":"commentary"}}}"#,
                r#"{"type":"block-start","index":2,"blockType":"tool-call"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"a","name":"t","argumentsDelta":""}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"a","argumentsDelta":"{"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"a","argumentsDelta":"}"}"#,
                r#"{"type":"block-end","index":2,"block":{"type":"tool-call","id":"a","name":"t","arguments":"{}"}}"#,
                r#"{"type":"usage","usage":{"input":10,"output":5,"cacheRead":4,"cacheWrite":6,"reasoning":2}}"#,
                r#"{"type":"finish","reason":"tool-calls"}"#,
            ]
        );
    }

    #[test]
    fn pieces_may_be_missing() {
        let check = |events: &[Value], expect: &[&str]| assert_eq!(ends(events), expect, "{events:?}");
        let stop = "\"stop\"";
        // Only the item; only its end; only the response; nothing but the response, unstreamed.
        check(&[done(0, message("hallo")), completed()], &[TEXT, stop]);
        check(
            &[added(0, json!({"type": "message", "id": "m"})), done(0, message("hallo")), completed()],
            &[TEXT, stop],
        );
        let whole = json!({"object": "response", "status": "completed", "error": null, "output": [message("hallo")]});
        check(&[json!({"type": "response.completed", "response": whole})], &[TEXT, stop]);
        check(std::slice::from_ref(&whole), &[TEXT, stop]);
        // Half of the pieces, and the rest with the whole; the last of it never came.
        check(&[delta("output_text", "m", 0, "hal"), done(0, message("hallo")), completed()], &[TEXT, stop]);
        check(
            &[
                delta("output_text", "m", 0, "hal"),
                json!({"type": "response.output_text.done", "item_id": "m", "output_index": 0, "content_index": 0, "text": "hallo"}),
                completed(),
            ],
            &[TEXT, stop],
        );
        let known = json!({"type": "response.completed", "response": {"output": [message("hallo")]}});
        check(&[added(0, json!({"type": "message", "id": "m"})), known.clone()], &[TEXT, stop]);
        check(&[done(0, message("hallo")), known], &[TEXT, stop]);
        // No place, no id, `[DONE]` and no end of the response.
        let bare = |text: &str| json!({"type": "response.output_text.delta", "delta": text});
        check(&[bare("hal"), bare("lo"), json!("[DONE]")], &[TEXT, stop]);
        // Twice the same.
        check(&[done(0, message("hallo")), done(0, message("hallo")), completed()], &[TEXT, stop]);
        check(&[done(0, message("hallo")), completed(), delta("output_text", "x", 1, "more")], &[TEXT, stop]);
        // An empty answer is no block.
        check(&[done(0, message("")), completed()], &[stop]);
    }

    #[test]
    fn calls_are_told_apart_however_a_server_names_them() {
        let check = |events: &[Value], expect: &[&str]| {
            let mut found = ends(events);
            assert_eq!(found.pop().as_deref(), Some("\"tool-calls\""), "{events:?}");
            let short = |line: &String| {
                let block: Value = serde_json::from_str(line).expect("JSON");
                format!("{} {} {}", block["id"], block["name"], block["arguments"]).replace('"', "").replace('\\', "'")
            };
            assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expect, "{events:?}");
        };
        let begun = |id: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "t"});
        // Two at once.
        check(
            &[
                added(0, begun("a")),
                added(1, begun("b")),
                delta("function_call_arguments", "fc_b", 1, "2"),
                delta("function_call_arguments", "fc_a", 0, "1"),
                done(1, call("b", "24")),
                done(0, call("a", "13")),
                completed(),
            ],
            &["b t 24", "a t 13"],
        );
        // All at one place; ids that are new in every event.
        check(
            &[
                added(0, begun("a")),
                delta("function_call_arguments", "fc_a", 0, "1"),
                added(0, begun("b")),
                delta("function_call_arguments", "fc_b", 0, "2"),
                delta("function_call_arguments", "fc_a", 0, "3"),
                completed(),
            ],
            &["a t 13", "b t 2"],
        );
        check(
            &[
                added(0, begun("a")),
                delta("function_call_arguments", "x1", 0, "1"),
                delta("function_call_arguments", "x2", 0, "3"),
                done(0, json!({"type": "function_call", "id": "x3", "call_id": "a", "name": "t", "arguments": "13"})),
                completed(),
            ],
            &["a t 13"],
        );
        // A piece before the call that it belongs to, which is said twice.
        check(
            &[
                delta("function_call_arguments", "fc_a", 0, "1"),
                added(0, begun("a")),
                added(0, begun("a")),
                delta("function_call_arguments", "fc_a", 0, "3"),
                completed(),
            ],
            &["a t 13"],
        );
        // By the id of the call alone, without places.
        let named = |id: &str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": "", "status": "in_progress"});
        let bare = |id: &str| json!({"type": "response.output_item.added", "item": named(id)});
        let piece = |id: &str, text: &str| json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": text});
        let mut whole = named("b");
        whole["arguments"] = "24".into();
        check(
            &[
                bare("a"),
                piece("a", "1"),
                bare("b"),
                piece("b", "2"),
                piece("a", "3"),
                json!({"type": "response.output_item.done", "item": whole}),
                completed(),
            ],
            &["b t 24", "a t 13"],
        );
        // One id for two calls: of the items, of the calls, of both; at once, and one after the other.
        let twin = |id: &str, place: u64, arguments: &str| {
            let mut item = json!({"type": "function_call", "call_id": "a", "name": "t", "arguments": arguments});
            if !id.is_empty() {
                item["id"] = id.into();
            }
            let mut begun = item.clone();
            begun["arguments"] = "".into();
            let id = if id.is_empty() { "a" } else { id };
            let piece = delta("function_call_arguments", id, place, &arguments[..1]);
            [added(place, begun), piece, done(place, item)]
        };
        for ids in [["x", "x"], ["x", "y"], ["", ""]] {
            let [one, two] = [twin(ids[0], 0, "13"), twin(ids[1], 1, "24")];
            let [begun, piece, end] = [0, 1, 2].map(|at| [one[at].clone(), two[at].clone()]);
            check(&[&begun[..], &piece, &end, &[completed()]].concat(), &["a t 13", "a t 24"]);
            check(&[&one[..], &two, &[completed()]].concat(), &["a t 13", "a t 24"]);
            check(&[&end[..], &[completed()]].concat(), &["a t 13", "a t 24"]);
        }
        // Nothing to tell them by at all.
        let bare = |arguments: &str| {
            let item = json!({"type": "function_call", "name": "t", "arguments": arguments});
            json!({"type": "response.output_item.done", "item": item})
        };
        check(&[bare("1"), bare("2"), completed()], &[" t 1", " t 2"]);
        // Whole at once, without a `call_id`, with arguments that are no text.
        check(
            &[done(0, json!({"type": "function_call", "id": "a", "name": "t", "arguments": {"x": 1}})), completed()],
            &["a t {'x':1}"],
        );
        // All of it in the item that begins, and again in pieces.
        let mut eager = begun("a");
        eager["arguments"] = "13".into();
        check(
            &[
                added(0, eager.clone()),
                delta("function_call_arguments", "fc_a", 0, "13"),
                done(0, call("a", "13")),
                completed(),
            ],
            &["a t 13"],
        );
        check(&[added(0, eager), done(0, call("a", "13")), completed()], &["a t 13"]);
    }

    #[test]
    fn reasoning_is_kept_when_it_is_worth_something() {
        let check = |item: Value, before: &[Value], expect: &[&str]| {
            let mut events = before.to_vec();
            events.extend([done(0, item), done(1, message("hallo")), completed()]);
            let mut expect = expect.to_vec();
            expect.extend([TEXT, "\"stop\""]);
            assert_eq!(ends(&events), expect);
        };
        check(
            json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}),
            &[],
            &[
                r#"{"type":"reasoning","text":"","opaque":{"provider":"p","item":{"type":"reasoning","id":"r","summary":[],"encrypted_content":"x"}}}"#,
            ],
        );
        check(json!({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": null}), &[], &[]);
        let summary = json!([{"type": "summary_text", "text": "so"}]);
        check(
            json!({"type": "reasoning", "id": "r", "summary": summary}),
            &[],
            &[r#"{"type":"reasoning","text":"so"}"#],
        );
        // Open thoughts, of a server that hides nothing.
        let content = json!([{"type": "reasoning_text", "text": "so"}]);
        check(
            json!({"type": "reasoning", "id": "r", "summary": [], "content": content}),
            &[delta("reasoning_text", "r", 0, "s")],
            &[
                r#"{"type":"reasoning","text":"so","opaque":{"provider":"p","item":{"type":"reasoning","id":"r","summary":[],"content":[{"type":"reasoning_text","text":"so"}]}}}"#,
            ],
        );
    }

    #[test]
    fn what_nobody_knows_is_kept_or_passed_over() {
        assert_eq!(
            ends(&[
                json!({"type": "keepalive", "sequence_number": 3}),
                json!({"type": "response.web_search_call.searching", "item_id": "w", "output_index": 0}),
                json!({"type": "response.something.delta", "delta": {"x": 1}}),
                json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 1, "delta": null}),
                added(0, json!({"type": "web_search_call", "id": "w"})),
                done(0, json!({"type": "web_search_call", "id": "w", "status": "completed"})),
                done(1, message("hallo")),
                completed(),
            ]),
            [
                r#"{"type":"provider-item","opaque":{"provider":"p","item":{"type":"web_search_call","id":"w","status":"completed"}}}"#,
                TEXT,
                "\"stop\""
            ]
        );
    }

    #[test]
    fn counts_are_disjoint() {
        let check = |counts: Value, expect: &str| assert_eq!(json!(usage(&counts)).to_string(), expect, "{counts}");
        check(json!({}), r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"reasoning":0}"#);
        check(
            json!({"input_tokens": 5, "input_tokens_details": {"cached_tokens": 9}, "output_tokens": null, "output_tokens_details": null}),
            r#"{"input":0,"output":0,"cacheRead":9,"cacheWrite":0,"reasoning":0}"#,
        );
        check(
            json!({"input_tokens": 5000000000u64, "output_tokens": -1, "cost": 0.0125}),
            r#"{"input":4294967295,"output":0,"cacheRead":0,"cacheWrite":0,"reasoning":0,"cost":0.0125}"#,
        );
    }

    #[test]
    fn ends_are_mapped() {
        let check = |end: Value, expect: &str| {
            let found = ends(&[delta("output_text", "m", 0, "hallo"), end.clone()]);
            assert_eq!(found.last().map(String::as_str), Some(expect), "{end}");
        };
        let event = |word: &str, response: Value| json!({"type": format!("response.{word}"), "response": response});
        let incomplete = |reason: &str| json!({"status": "incomplete", "incomplete_details": {"reason": reason}});
        check(event("completed", json!({"status": "completed"})), "\"stop\"");
        check(event("completed", json!({})), "\"stop\"");
        check(event("incomplete", incomplete("max_output_tokens")), "\"max-tokens\"");
        check(event("incomplete", incomplete("content_filter")), "\"refused\"");
        check(event("incomplete", incomplete("max_messages")), r#"{"other":"max_messages"}"#);
        check(event("incomplete", json!({})), "\"max-tokens\"");
        // The event and the response do not agree.
        check(event("completed", incomplete("max_output_tokens")), "\"max-tokens\"");
        check(event("completed", json!({"status": "failed"})), "!server the provider failed and does not say why");
        check(event("cancelled", json!({"status": "cancelled"})), "\"aborted\"");
        check(
            event("completed", json!({"status": "queued"})),
            "!malformed-response the provider sent an answer that is `queued`",
        );
        let refusal = [delta("refusal", "m", 0, "I cannot"), completed()];
        assert_eq!(ends(&refusal), [r#"{"type":"text","text":"I cannot"}"#, "\"refused\""]);
    }

    #[test]
    fn failures_in_an_answer_have_codes() {
        let check = |event: Value, expect: &str| {
            let usage = json!({"input_tokens": 3, "output_tokens": 1});
            let mut event = event;
            if event["response"].is_object() {
                event["response"]["usage"] = usage;
            }
            let found = decode(&[delta("output_text", "m", 0, "hal"), event.clone()]);
            assert!(!found.iter().any(|line| line.contains("block-end")), "{found:?}");
            assert_eq!(found.last().map(String::as_str), Some(expect), "{event}");
            assert_eq!(found.iter().any(|line| line.contains("usage")), event["response"].is_object(), "{found:?}");
        };
        let failed = |code: &str, message: &str| json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": code, "message": message}}});
        check(failed("server_error", "oops"), "!server the provider failed: oops");
        check(failed("rate_limit_exceeded", "slow"), "!rate-limit the provider failed: slow");
        check(failed("insufficient_quota", "pay"), "!quota the provider failed: pay");
        check(failed("context_length_exceeded", "long"), "!context-window-exceeded the provider failed: long");
        check(failed("invalid_prompt", "bad"), "!invalid-request the provider failed: bad");
        check(failed("image_too_large", "big"), "!invalid-request the provider failed: big");
        check(failed("server_is_overloaded", "busy"), "!server the provider failed: busy");
        check(
            json!({"type": "error", "code": "server_error", "message": "oops", "param": null, "sequence_number": 5}),
            "!server the provider failed: oops",
        );
        check(
            json!({"type": "error", "error": {"type": "invalid_request_error", "code": "context_length_exceeded", "message": "long"}}),
            "!context-window-exceeded the provider failed: long",
        );
        check(json!({"error": {"code": 503, "message": "gone"}}), "!server the provider failed: gone");
        check(json!([1]), "!malformed-response the provider sent a piece that is not an object");
    }

    #[test]
    fn nothing_is_closed_by_the_end_of_a_body() {
        let text = delta("output_text", "m", 0, "hal");
        assert_eq!(
            decode(&[text]),
            [
                r#"{"type":"block-start","index":0,"blockType":"text"}"#,
                r#"{"type":"text-delta","index":0,"text":"hal"}"#
            ]
        );
        let nothing = ["!empty-response the provider answered with nothing"];
        assert_eq!(decode(&[]), nothing);
        assert_eq!(decode(&[json!("[DONE]")]), nothing);
        assert_eq!(decode(&[json!({"type": "response.created", "response": {}})]), nothing);
    }

    #[test]
    fn an_answer_may_come_as_a_whole() {
        let check = |body: Value, expect: &[&str]| {
            let mut decoder = Decoder::new("p");
            let result = decoder.whole(body.to_string().as_bytes());
            let found = shown(decoder, result);
            let found: Vec<&str> = found.iter().map(String::as_str).filter(|line| !line.contains("start")).collect();
            assert_eq!(found, expect, "{body}");
        };
        check(
            json!({"status": "completed", "error": null, "output": [call("a", "{}")], "usage": {"input_tokens": 3, "output_tokens": 1}}),
            &[
                r#"{"type":"tool-call-delta","index":0,"id":"a","name":"t","argumentsDelta":""}"#,
                r#"{"type":"tool-call-delta","index":0,"id":"a","argumentsDelta":"{}"}"#,
                r#"{"type":"block-end","index":0,"block":{"type":"tool-call","id":"a","name":"t","arguments":"{}"}}"#,
                r#"{"type":"usage","usage":{"input":3,"output":1,"cacheRead":0,"cacheWrite":0,"reasoning":0}}"#,
                r#"{"type":"finish","reason":"tool-calls"}"#,
            ],
        );
        check(json!({"error": {"message": "busy"}}), &["!server the provider failed: busy"]);
        check(
            json!({"status": "in_progress"}),
            &["!malformed-response the provider sent an answer that is `in_progress`"],
        );
        check(json!([]), &["!malformed-response the provider sent an answer that is not an object"]);
        check(json!({}), &["!malformed-response the provider sent an answer without `output`"]);
    }
}
