//! From the events of Chat Completions to chunks. A block is closed by a `finish_reason` or `[DONE]`, never because a body ended.

use std::collections::BTreeMap;

use dsh_seam::message::{Chunk, ContentBlock, FinishReason, Usage};
use dsh_seam::{Failure, ModelFailure};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::super::network::blocks::Blocks;
use super::super::network::error::{self, empty};
use super::super::network::piece::{document, piece};
use super::super::network::sse::Event;
use super::super::network::{Decode, keep};
use super::request::{KEPT_OF_CALLS, KEPT_OF_MESSAGES};
use super::usage::{counted, timed};

/// Members of an entry of `reasoning_details` or `thinking_blocks` that come in pieces.
const PIECEMEAL: [&str; 4] = ["text", "summary", "data", "thinking"];

/// What a stream has said so far.
pub(super) struct Decoder {
    provider: String,
    blocks: Blocks,
    text: Option<u32>,
    reasoning: Option<u32>,
    /// What must travel back with the reasoning.
    kept: Map<String, Value>,
    calls: Vec<Call>,
    /// Pieces of calls that came before the call in front of theirs has begun, by the provider's number.
    early: BTreeMap<u64, Vec<Value>>,
    refused: bool,
    /// Set by a `finish_reason`; sent as the last chunk, as the usage may still come.
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    over: bool,
}

/// What a call is recognised by.
struct Call {
    /// The provider's number for it.
    place: Option<u64>,
    index: u32,
    id: String,
    named: bool,
    /// How many pieces had something of its arguments.
    pieces: usize,
    /// What must travel back with it.
    kept: Map<String, Value>,
}

impl Decode for Decoder {
    fn take(&mut self) -> Vec<Chunk> {
        self.blocks.take()
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    fn event(&mut self, event: &Event) -> Result<(), ModelFailure> {
        self.blocks.check()?;
        let data = event.data.trim();
        if self.over || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.done();
        }
        let value = piece(event)?;
        if event.kind == "error" {
            return Err(error::in_answer(&value));
        }
        self.value(&value)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelFailure> {
        let value = document(body)?;
        self.value(&value)?;
        // A document that is whole says so by its form.
        self.done()
    }

    fn end(&mut self) -> Result<(), ModelFailure> {
        if self.over {
            return Ok(());
        }
        self.add_early();
        match self.finish.clone() {
            Some(reason) => self.last(reason),
            None if self.blocks.is_empty() => return Err(empty()),
            None => {}
        }
        Ok(())
    }
}

impl Decoder {
    /// For an answer of this provider.
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            blocks: Blocks::default(),
            text: None,
            reasoning: None,
            kept: Map::new(),
            calls: Vec::new(),
            early: BTreeMap::new(),
            refused: false,
            finish: None,
            usage: None,
            over: false,
        }
    }

    fn done(&mut self) -> Result<(), ModelFailure> {
        self.add_early();
        let reason = match self.finish.clone() {
            Some(reason) => reason,
            None if self.blocks.is_empty() => return Err(empty()),
            None => {
                self.close();
                self.reason("stop")
            }
        };
        self.last(reason);
        Ok(())
    }

    fn last(&mut self, reason: FinishReason) {
        self.blocks.finish(reason);
        self.over = true;
    }

    /// The provider says that the answer is whole.
    fn close(&mut self) {
        self.add_early();
        if let Some(index) = self.reasoning.filter(|_| !self.kept.is_empty()) {
            self.blocks.keep(index, keep(&self.provider, std::mem::take(&mut self.kept)));
        }
        for call in self.calls.iter_mut().filter(|call| !call.kept.is_empty()) {
            self.blocks.keep(call.index, keep(&self.provider, std::mem::take(&mut call.kept)));
        }
        self.blocks.close_all();
    }

    fn value(&mut self, value: &Value) -> Result<(), ModelFailure> {
        let is_error = |of: &Value| of.get("error").is_some_and(|error| !error.is_null());
        if is_error(value) || value.get("object").is_some_and(|kind| kind == "error") {
            return Err(error::in_answer(value));
        }
        let choices = value.get("choices").and_then(Value::as_array);
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        let choice = choices.and_then(|choices| choices.iter().find(first));
        if let Some(choice) = choice {
            if is_error(choice) {
                return Err(error::in_answer(choice));
            }
            self.choice(choice);
        }
        self.count(value, choice);
        Ok(())
    }

    /// Sends on what was counted, when that is something new.
    fn count(&mut self, value: &Value, choice: Option<&Value>) {
        // Beside the choices as a rule; Moonshot; Groq.
        let places = [Some(value), choice, value.get("x_groq")];
        let usage = places.into_iter().flatten().filter_map(|place| place.get("usage")).find(|usage| usage.is_object());
        let timings = value.get("timings").filter(|timings| timings.is_object());
        let usage = match (usage, timings) {
            (Some(usage), timings) => counted(usage, timings),
            // With each piece there may be those of the piece.
            (None, Some(timings)) if self.finish.is_some() && self.usage.is_none() => timed(timings),
            _ => return,
        };
        if self.usage.replace(usage) != Some(usage) {
            self.blocks.usage(usage);
        }
    }

    fn choice(&mut self, choice: &Value) {
        if self.finish.is_some() {
            return;
        }
        let object = |name: &str| choice.get(name).filter(|delta| delta.is_object());
        if let Some(delta) = object("delta").or_else(|| object("message")) {
            self.delta(delta);
        }
        // Some servers send an empty one with every piece.
        if let Some(word) = choice.get("finish_reason").and_then(Value::as_str).filter(|word| !word.is_empty()) {
            self.close();
            self.finish = Some(self.reason(word));
        }
    }

    fn delta(&mut self, delta: &Value) {
        let text = |name: &str| delta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let thought = text("reasoning_content").or_else(|| text("reasoning"));
        self.add_reasoning(thought.unwrap_or_default());
        for name in KEPT_OF_MESSAGES {
            let entries = delta.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            self.keep_entries(name, entries, thought.is_none());
        }
        match delta.get("content") {
            Some(Value::String(text)) => self.add_text(text),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.add_part(part)),
            _ => {}
        }
        if let Some(refusal) = text("refusal") {
            self.refused = true;
            self.add_text(refusal);
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.add_call(call);
        }
        // What calls were before there could be several.
        if let Some(function) = delta.get("function_call").filter(|function| function.is_object()) {
            self.add_call(&Value::Object(Map::from_iter([("function".to_owned(), function.clone())])));
        }
    }

    /// Content in parts: text, or what Mistral calls `thinking`; others are passed over.
    fn add_part(&mut self, part: &Value) {
        let text = part.get("text").and_then(Value::as_str).unwrap_or_default();
        match part.get("thinking") {
            Some(Value::String(thought)) => self.add_reasoning(thought),
            Some(Value::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
                texts.for_each(|text| self.add_reasoning(text));
            }
            _ => self.add_text(text),
        }
    }

    fn add_text(&mut self, added: &str) {
        if !added.is_empty() {
            let index = *self.text.get_or_insert_with(|| self.blocks.open_text());
            self.blocks.add(index, added);
        }
    }

    fn add_reasoning(&mut self, added: &str) {
        if !added.is_empty() {
            let index = self.reasoning();
            self.blocks.add(index, added);
        }
    }

    fn reasoning(&mut self) -> u32 {
        *self.reasoning.get_or_insert_with(|| self.blocks.open_reasoning())
    }

    /// Keeps entries that must travel back. Their pieces are put together: of one entry where they follow each other with the same
    /// `type` and `index`, and no signature has ended it.
    fn keep_entries(&mut self, name: &str, entries: &[Value], shown: bool) {
        for entry in entries.iter().filter_map(Value::as_object) {
            self.reasoning();
            if shown {
                let text = |name: &&str| entry.get(*name).and_then(Value::as_str);
                // `data` is for the provider alone.
                let text = ["text", "summary", "thinking"].iter().find_map(text).unwrap_or_default();
                self.add_reasoning(text);
            }
            let list = self.kept.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            let Some(list) = list.as_array_mut() else { continue };
            match list.last_mut().and_then(Value::as_object_mut).filter(|last| continues(last, entry)) {
                Some(last) => join(last, entry),
                None => list.push(Value::Object(entry.clone())),
            }
        }
    }

    /// A piece of a call. Calls begin in the order of their numbers, in whatever order their pieces come.
    fn add_call(&mut self, piece: &Value) {
        let place = piece.get("index").and_then(Value::as_u64);
        let known = |place: u64| self.calls.iter().rev().any(|call| call.place == Some(place));
        if let Some(place) = place.filter(|place| *place > 0 && !known(*place) && !known(place - 1)) {
            self.early.entry(place).or_default().push(piece.clone());
            return;
        }
        self.put_call(piece, place);
        let mut next = place.and_then(|place| place.checked_add(1));
        while let Some((at, pieces)) = next.and_then(|at| self.early.remove_entry(&at)) {
            pieces.iter().for_each(|piece| self.put_call(piece, Some(at)));
            next = at.checked_add(1);
        }
    }

    /// Nothing more comes: not every server begins to count at 0.
    fn add_early(&mut self) {
        for (place, pieces) in std::mem::take(&mut self.early) {
            pieces.iter().for_each(|piece| self.put_call(piece, Some(place)));
        }
    }

    fn put_call(&mut self, piece: &Value, place: Option<u64>) {
        let id = piece.get("id").and_then(Value::as_str).unwrap_or_default();
        let function = piece.get("function").unwrap_or(&Value::Null);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Object(object)) => Value::Object(object.clone()).to_string(),
            _ => String::new(),
        };
        let found = self.find_call(place, id, name, !arguments.is_empty());
        if found.is_none() && self.blocks.is_full() {
            return self.blocks.overflow();
        }
        let at = found.unwrap_or_else(|| {
            let index = self.blocks.open_call();
            self.calls.push(Call { place, index, id: String::new(), named: false, pieces: 0, kept: Map::new() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        call.named |= !name.is_empty();
        call.pieces += usize::from(!arguments.is_empty());
        for name in KEPT_OF_CALLS {
            if let Some(value) = piece.get(name).filter(|value| !value.is_null()) {
                call.kept.insert(name.to_owned(), value.clone());
            }
        }
        self.blocks.call(call.index, id, name, &arguments);
    }

    /// The call that a piece goes on with; none: it begins a new one. Servers differ: some number their calls, some give each piece a
    /// new id, some number every call 0 and tell them apart by id, some do neither and send each call whole.
    fn find_call(&mut self, place: Option<u64>, id: &str, name: &str, more: bool) -> Option<usize> {
        let by_place = |call: &Call| place.is_some() && call.place == place;
        let by_id = |call: &Call| place.is_none() && !id.is_empty() && call.id == id;
        if let Some(at) = self.calls.iter().rposition(|call| by_place(call) || by_id(call)) {
            let call = &self.calls[at];
            let other = !id.is_empty() && !call.id.is_empty() && call.id != id;
            let again = more && call.named && call.pieces == 1 && is_whole(self.blocks.block(call.index));
            return (name.is_empty() || !(other || again)).then_some(at);
        }
        if place.is_some() {
            return None;
        }
        let last = self.calls.last()?;
        let begins = !name.is_empty() && last.named;
        (!begins).then(|| self.calls.len() - 1)
    }

    fn reason(&self, word: &str) -> FinishReason {
        match word.to_ascii_lowercase().as_str() {
            "stop" | "end_turn" | "eos_token" | "stop_sequence" if self.refused => FinishReason::Refused,
            // Some servers say `stop` although they call tools.
            "stop" | "end_turn" | "eos_token" | "stop_sequence" if self.blocks.has_calls() => FinishReason::ToolCalls,
            "stop" | "end_turn" | "eos_token" | "stop_sequence" => FinishReason::Stop,
            "tool_calls" | "tool_use" | "function_call" => FinishReason::ToolCalls,
            "length" | "max_tokens" | "model_length" => FinishReason::MaxTokens,
            "content_filter" | "safety" | "refusal" => FinishReason::Refused,
            "abort" => FinishReason::Aborted,
            "error" => FinishReason::Error(Failure::new("server", "the provider broke off and did not say why")),
            "insufficient_system_resource" => {
                FinishReason::Error(Failure::new("server", "the provider broke off: it has not enough resources"))
            }
            _ => FinishReason::Other(word.to_owned()),
        }
    }
}

/// Whether nothing can be added to a call's arguments.
fn is_whole(call: Option<&mut ContentBlock>) -> bool {
    let Some(ContentBlock::ToolCall(call)) = call else { return false };
    call.arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok()
}

/// Whether an entry is more of the last one.
fn continues(last: &Map<String, Value>, entry: &Map<String, Value>) -> bool {
    let is = |name: &str, of: &Map<String, Value>| of.get(name).filter(|value| !value.is_null()).cloned();
    let ended = is("signature", last).is_some_and(|signature| signature != "");
    !ended && is("type", last) == is("type", entry) && is("index", last) == is("index", entry)
}

/// Adds a piece to an entry: what comes in pieces is put together, of everything else the last that says something holds.
fn join(last: &mut Map<String, Value>, entry: &Map<String, Value>) {
    for (name, value) in entry {
        match (last.get_mut(name), value) {
            (Some(Value::String(text)), Value::String(added)) if PIECEMEAL.contains(&name.as_str()) => {
                text.push_str(added)
            }
            (Some(known), Value::Null) if !known.is_null() => {}
            (Some(Value::String(known)), Value::String(added)) if added.is_empty() && !known.is_empty() => {}
            _ => drop(last.insert(name.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decode(events: &[Value]) -> Vec<String> {
        let mut decoder = Decoder::new("p");
        let mut result = Ok(());
        for data in events {
            let data = data.as_str().map(str::to_owned).unwrap_or_else(|| data.to_string());
            result = result.and_then(|()| decoder.event(&Event { kind: String::new(), data }));
        }
        result = result.and_then(|()| decoder.end());
        let mut out: Vec<String> =
            decoder.take().iter().map(|chunk| serde_json::to_string(chunk).expect("JSON")).collect();
        out.extend(result.err().map(|failure| format!("!{} {}", failure.code, failure.message)));
        out
    }

    fn delta(delta: Value) -> Value {
        json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    fn finish(word: &str) -> Value {
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]})
    }

    fn calls(pieces: &[Value], finish_word: &str) -> Vec<String> {
        let mut events: Vec<Value> = pieces.iter().map(|piece| delta(json!({"tool_calls": [piece]}))).collect();
        events.push(finish(finish_word));
        let ends = decode(&events).into_iter().filter_map(|line| {
            let value: Value = serde_json::from_str(&line).expect("JSON");
            let block = &value["block"];
            match value["type"].as_str() {
                Some("block-end") => Some(
                    format!("{} {} {}", block["id"], block["name"], block["arguments"])
                        .replace('"', "")
                        .replace('\\', "'"),
                ),
                Some("finish") => Some(value["reason"].to_string()),
                _ => None,
            }
        });
        ends.collect()
    }

    #[test]
    fn an_answer_with_everything() {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}});
        let events = [
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({"reasoning_content": "hm"})),
            delta(json!({"content": "Hal"})),
            delta(json!({"content": "lo"})),
            delta(
                json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "t", "arguments": ""}}]}),
            ),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})),
            finish("tool_calls"),
            usage,
            json!("[DONE]"),
        ];
        assert_eq!(
            decode(&events),
            [
                r#"{"type":"block-start","index":0,"blockType":"reasoning"}"#,
                r#"{"type":"reasoning-delta","index":0,"text":"hm"}"#,
                r#"{"type":"block-start","index":1,"blockType":"text"}"#,
                r#"{"type":"text-delta","index":1,"text":"Hal"}"#,
                r#"{"type":"text-delta","index":1,"text":"lo"}"#,
                r#"{"type":"block-start","index":2,"blockType":"tool-call"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"a","name":"t","argumentsDelta":""}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"a","argumentsDelta":"{}"}"#,
                r#"{"type":"block-end","index":0,"block":{"type":"reasoning","text":"hm"}}"#,
                r#"{"type":"block-end","index":1,"block":{"type":"text","text":"Hallo"}}"#,
                r#"{"type":"block-end","index":2,"block":{"type":"tool-call","id":"a","name":"t","arguments":"{}"}}"#,
                r#"{"type":"usage","usage":{"input":6,"output":5,"cacheRead":4,"cacheWrite":0,"reasoning":2}}"#,
                r#"{"type":"finish","reason":"tool-calls"}"#,
            ]
        );
    }

    #[test]
    fn calls_are_told_apart_however_a_server_names_them() {
        let piece = |index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &str| {
            let mut piece = json!({"function": {"arguments": arguments}});
            if let Some(index) = index {
                piece["index"] = index.into();
            }
            if let Some(id) = id {
                piece["id"] = id.into();
            }
            if let Some(name) = name {
                piece["function"]["name"] = name.into();
            }
            piece
        };
        let check = |pieces: &[Value], expect: &[&str]| assert_eq!(calls(pieces, "stop"), expect);
        let done = "\"tool-calls\"";
        check(
            &[
                piece(Some(0), Some("a"), Some("t"), "1"),
                piece(Some(1), Some("b"), Some("u"), "2"),
                piece(Some(0), None, None, "3"),
                piece(Some(1), None, None, "4"),
            ],
            &["a t 13", "b u 24", done],
        );
        // No id at all; a name in every piece; a new id in every piece.
        check(&[piece(Some(0), None, Some("t"), "1"), piece(Some(0), None, Some("t"), "2")], &[" t 12", done]);
        check(&[piece(Some(0), Some("a"), Some("t"), "1"), piece(Some(0), Some("z"), None, "2")], &["a t 12", done]);
        // Every call is number 0.
        check(
            &[piece(Some(0), Some("a"), Some("t"), "1"), piece(Some(0), Some("b"), Some("t"), "2")],
            &["a t 1", "b t 2", done],
        );
        // No number.
        check(
            &[piece(None, Some("a"), Some("t"), "1"), piece(None, Some("b"), Some("t"), "2")],
            &["a t 1", "b t 2", done],
        );
        check(
            &[piece(None, Some("a"), Some("t"), "1"), piece(None, None, None, "2"), piece(None, Some("a"), None, "3")],
            &["a t 123", done],
        );
        check(&[piece(None, None, Some("t"), "1"), piece(None, None, Some("u"), "2")], &[" t 1", " u 2", done]);
        // The name last, the second call first.
        check(&[piece(Some(0), None, None, "1"), piece(Some(0), Some("a"), Some("t"), "2")], &["a t 12", done]);
        check(
            &[
                piece(Some(1), Some("b"), Some("u"), "2"),
                piece(Some(0), Some("a"), Some("t"), "1"),
                piece(Some(1), None, None, "3"),
            ],
            &["a t 1", "b u 23", done],
        );
        check(
            &[
                piece(Some(2), Some("c"), Some("v"), "3"),
                piece(Some(1), None, None, "2"),
                piece(Some(0), Some("a"), Some("t"), "1"),
                piece(Some(1), Some("b"), Some("u"), "2"),
            ],
            &["a t 1", "b u 22", "c v 3", done],
        );
        // Counted from 1.
        check(
            &[piece(Some(1), Some("a"), Some("t"), "1"), piece(Some(2), Some("b"), Some("u"), "2")],
            &["a t 1", "b u 2", done],
        );
        // Two calls with one id: the loop gives the second another one.
        check(
            &[piece(Some(0), Some("a"), Some("t"), "1"), piece(Some(1), Some("a"), Some("t"), "2")],
            &["a t 1", "a t 2", done],
        );
        // Whole calls with one id, numbered alike or not at all; the name once more behind them is nothing new.
        for number in [Some(0), None] {
            check(
                &[
                    piece(number, Some("a"), Some("t"), "{}"),
                    piece(number, Some("a"), Some("t"), "{}"),
                    piece(number, Some("a"), Some("t"), ""),
                ],
                &["a t {}", "a t {}", done],
            );
        }
        // Arguments as an object.
        check(
            &[json!({"index": 0, "id": "a", "function": {"name": "t", "arguments": {"x": 1}}})],
            &["a t {'x':1}", done],
        );
    }

    /// Whole blocks, counts and the end of an answer.
    fn ends(events: &[Value]) -> Vec<Value> {
        let read = |line: String| serde_json::from_str(&line).unwrap_or(Value::String(line));
        let told = |value: &Value| {
            !["block-start", "delta"].iter().any(|part| value["type"].as_str().is_some_and(|kind| kind.ends_with(part)))
        };
        decode(events)
            .into_iter()
            .map(read)
            .filter(told)
            .map(|value: Value| {
                value.get("block").or(value.get("usage")).or(value.get("reason")).unwrap_or(&value).clone()
            })
            .collect()
    }

    #[test]
    fn what_is_null_empty_or_unknown_is_passed_over() {
        let nothing = json!({
            "id": null, "object": null, "created": null, "choices": null, "usage": null, "error": null, "new": {"a": [1]},
        });
        let nulls = json!({
            "role": null, "content": null, "refusal": null, "reasoning_content": null, "reasoning": "", "tool_calls": null,
            "function_call": null, "reasoning_details": null, "audio": {"data": "x"}, "images": [1],
        });
        let call = json!({"index": null, "id": null, "type": null, "function": null, "extra_content": null});
        let more = json!({"index": null, "id": "a", "function": {"name": "t", "arguments": null, "new": 1}});
        let parts =
            json!([{"type": "text", "text": "b"}, {"type": "video", "url": "u"}, null, {"type": "text", "text": null}]);
        let events = [
            nothing,
            json!({"choices": [{"index": null, "delta": null, "finish_reason": null, "logprobs": null}]}),
            json!({"choices": [{"delta": null, "message": {"content": "a"}, "finish_reason": ""}]}),
            delta(nulls),
            delta(json!({"content": parts})),
            delta(json!({"tool_calls": [null, call]})),
            delta(json!({"tool_calls": [more]})),
            json!({"choices": [{"index": 1, "delta": {"content": "another choice"}, "finish_reason": "length"}]}),
            json!({"choices": [{"index": 1, "delta": {"content": "another choice"}}, {"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            delta(json!({"content": "after the end"})),
            json!({"choices": []}),
        ];
        assert_eq!(
            ends(&events),
            [
                json!({"type": "text", "text": "ab"}),
                json!({"type": "tool-call", "id": "a", "name": "t", "arguments": ""}),
                json!("tool-calls"),
            ]
        );
    }

    #[test]
    fn what_must_travel_back_is_kept() {
        let details = |entry: Value| delta(json!({"reasoning_details": [entry]}));
        let signature = json!({"google": {"thought_signature": "s"}});
        let events = [
            details(json!({"type": "reasoning.text", "text": "a", "signature": null, "format": "f", "index": 0})),
            details(json!({"type": "reasoning.text", "text": "b", "format": "f", "index": 0})),
            details(json!({"type": "reasoning.text", "text": "", "signature": "s", "index": 0})),
            details(json!({"type": "reasoning.text", "text": "c", "index": 0})),
            details(json!({"type": "reasoning.encrypted", "data": "e", "id": "i", "index": 1})),
            delta(
                json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t"}, "extra_content": signature}]}),
            ),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})),
            finish("tool_calls"),
        ];
        let kept = json!([
            {"type": "reasoning.text", "text": "ab", "signature": "s", "format": "f", "index": 0},
            {"type": "reasoning.text", "text": "c", "index": 0},
            {"type": "reasoning.encrypted", "data": "e", "id": "i", "index": 1},
        ]);
        assert_eq!(
            ends(&events),
            [
                json!({"type": "reasoning", "text": "abc", "opaque": {"provider": "p", "reasoning_details": kept}}),
                json!({"type": "tool-call", "id": "a", "name": "t", "arguments": "{}", "opaque": {"provider": "p", "extra_content": signature}}),
                json!("tool-calls"),
            ]
        );
        // Said twice, shown once.
        let twice = json!({"reasoning": "a", "reasoning_details": [{"type": "reasoning.summary", "summary": "a"}]});
        let opaque = json!({"provider": "p", "reasoning_details": [{"type": "reasoning.summary", "summary": "a"}]});
        assert_eq!(
            ends(&[delta(twice), finish("stop")]),
            [json!({"type": "reasoning", "text": "a", "opaque": opaque}), json!("stop")]
        );
    }

    #[test]
    fn reasoning_has_many_names() {
        let check = |events: Value| {
            assert_eq!(
                ends(&[delta(events.clone()), finish("stop")]),
                [json!({"type": "reasoning", "text": "ab"}), json!({"type": "text", "text": "x"}), json!("stop")],
                "{events}"
            );
        };
        check(json!({"reasoning_content": "ab", "content": "x"}));
        check(json!({"reasoning": "ab", "content": "x"}));
        check(json!({"reasoning": "ab", "reasoning_content": "ab", "content": "x"}));
        check(
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, {"type": "text", "text": "x"}]}),
        );
        check(json!({"content": [{"type": "thinking", "thinking": "ab"}, {"type": "text", "text": "x"}]}));
    }

    #[test]
    fn a_refusal_is_text_and_a_reason() {
        let events = [delta(json!({"refusal": "I "})), delta(json!({"refusal": "won't"})), finish("stop")];
        assert_eq!(ends(&events), [json!({"type": "text", "text": "I won't"}), json!("refused")]);
    }

    #[test]
    fn counts_come_with_the_last_choice_or_behind_it_or_never() {
        let counts = json!({"prompt_tokens": 3, "completion_tokens": 2});
        let usage = json!({"input": 3, "output": 2, "cacheRead": 0, "cacheWrite": 0, "reasoning": 0});
        let text = delta(json!({"content": "x"}));
        let choice = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
        let check = |events: &[Value], counted: bool| {
            let mut all = vec![text.clone()];
            all.extend(events.iter().cloned());
            let found = ends(&all);
            let usages = found.iter().filter(|value| **value == usage).count();
            assert_eq!((usages, found.last()), (usize::from(counted), Some(&json!("stop"))), "{events:?}");
        };
        check(&[json!({"choices": [choice], "usage": counts})], true);
        check(&[finish("stop"), json!({"choices": [], "usage": counts}), json!("[DONE]")], true);
        check(
            &[json!({"choices": [choice], "usage": counts}), json!({"choices": [], "usage": counts}), json!("[DONE]")],
            true,
        );
        check(&[finish("stop"), json!({"usage": counts})], true);
        check(&[json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": counts}]})], true);
        check(&[json!({"choices": [choice], "x_groq": {"id": "r", "usage": counts}})], true);
        check(
            &[
                json!({"choices": [choice], "timings": {"prompt_n": 3, "predicted_n": 2}}),
                json!({"choices": [], "usage": counts}),
            ],
            true,
        );
        check(&[json!({"choices": [choice], "usage": null}), json!("[DONE]")], false);
        check(&[finish("stop")], false);
    }

    /// Where in a value something stands.
    fn places(value: &Value, at: String, out: &mut Vec<String>) {
        match value {
            Value::Array(list) => list.iter().enumerate().for_each(|(n, item)| places(item, format!("{at}/{n}"), out)),
            Value::Object(map) => map.iter().for_each(|(name, item)| places(item, format!("{at}/{name}"), out)),
            _ => {}
        }
        out.push(at);
    }

    #[test]
    fn whatever_stands_anywhere_an_answer_is_read_to_its_end() {
        let details = json!([{"type": "reasoning.text", "text": "a", "signature": "s", "index": 0}]);
        let call = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}, "extra_content": {"a": 1}});
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}, "cost": 1});
        let events = json!([
            {"choices": [{"index": 0, "delta": {"reasoning": "a", "reasoning_details": details, "thinking_blocks": details}}]},
            {"choices": [{"index": 0, "delta": {"content": [{"type": "thinking", "thinking": [{"text": "a"}]}], "refusal": "b"}}]},
            {"choices": [{"index": 0, "delta": {"tool_calls": [call], "function_call": {"name": "u", "arguments": "{}"}}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}], "x_groq": {"usage": usage}},
            {"choices": [], "usage": usage, "timings": {"cache_n": 1, "prompt_n": 1, "predicted_n": 1}},
            "[DONE]",
        ]);
        let mut all = Vec::new();
        places(&events, String::new(), &mut all);
        let others = [
            json!(null),
            json!(true),
            json!(-1),
            json!(1e300),
            json!("x"),
            json!([]),
            json!([[]]),
            json!({}),
            json!({"a": {}}),
        ];
        for (place, other) in all
            .iter()
            .filter(|place| !place.is_empty())
            .flat_map(|place| others.iter().map(move |other| (place, other)))
        {
            let mut events = events.clone();
            *events.pointer_mut(place).expect("it stands there") = other.clone();
            let lines = decode(events.as_array().expect("a list"));
            let last = lines.last().expect("something comes of it");
            assert!(last.starts_with("{\"type\":\"finish\"") || last.starts_with('!'), "{other} at {place}: {lines:?}");
            let opened = lines.iter().filter(|line| line.contains("block-start")).count();
            let closed = lines.iter().filter(|line| line.contains("block-end")).count();
            assert!(last.starts_with('!') || opened == closed, "{other} at {place}: {lines:?}");
        }
    }

    #[test]
    fn a_document_is_whole_by_its_form() {
        let whole = |body: Value| {
            let mut decoder = Decoder::new("p");
            let result = decoder.whole(body.to_string().as_bytes()).and_then(|()| decoder.end());
            (decoder.take().len(), result.map_err(|failure| failure.code))
        };
        let message = json!({"role": "assistant", "content": "x"});
        assert_eq!(whole(json!({"choices": [{"message": message, "finish_reason": "stop"}]})), (4, Ok(())));
        assert_eq!(whole(json!({"choices": [{"message": message, "finish_reason": null}]})), (4, Ok(())));
        assert_eq!(whole(json!({"choices": []})), (0, Err("empty-response".into())));
        assert_eq!(
            whole(json!({"choices": [{"error": {"message": "x", "code": 429}}]})),
            (0, Err("rate-limit".into()))
        );
    }

    #[test]
    fn finishes_are_mapped() {
        let check = |word: &str, expect: Value| {
            let lines = decode(&[delta(json!({"content": "x"})), finish(word)]);
            assert_eq!(lines.last(), Some(&json!({"type": "finish", "reason": expect}).to_string()));
        };
        check("stop", json!("stop"));
        check("length", json!("max-tokens"));
        check("content_filter", json!("refused"));
        check("tool_calls", json!("tool-calls"));
        check("STOP", json!("stop"));
        check("end_turn", json!("stop"));
        check("max_tokens", json!("max-tokens"));
        check("abort", json!("aborted"));
        check("error", json!({"error": {"code": "server", "message": "the provider broke off and did not say why"}}));
        check("Eos", json!({"other": "Eos"}));
    }

    #[test]
    fn a_body_that_ends_closes_nothing() {
        let start = r#"{"type":"block-start","index":0,"blockType":"text"}"#;
        let text = r#"{"type":"text-delta","index":0,"text":"x"}"#;
        let end = r#"{"type":"block-end","index":0,"block":{"type":"text","text":"x"}}"#;
        let stop = r#"{"type":"finish","reason":"stop"}"#;
        let piece = delta(json!({"content": "x"}));
        assert_eq!(decode(std::slice::from_ref(&piece)), [start, text]);
        assert_eq!(decode(&[piece.clone(), json!("[DONE]")]), [start, text, end, stop]);
        assert_eq!(decode(&[piece, finish("stop")]), [start, text, end, stop]);
        assert_eq!(decode(&[finish("stop")]), [stop]);
        let empty = "!empty-response the provider answered with nothing";
        assert_eq!(decode(&[]), [empty]);
        assert_eq!(decode(&[delta(json!({"role": "assistant"}))]), [empty]);
        assert_eq!(decode(&[json!("[DONE]")]), [empty]);
    }

    #[test]
    fn nonsense_is_named() {
        let last = |events: &[Value]| decode(events).pop().expect("a failure");
        assert_eq!(
            last(&[json!("{\"choices\":")]),
            "!malformed-response the provider sent a piece that is not valid JSON: EOF while parsing a value at line 1 column 11"
        );
        assert_eq!(
            last(&[json!({"object": "error", "message": "too long", "type": "BadRequestError", "code": 400})]),
            "!invalid-request the provider failed: too long"
        );
        assert_eq!(
            last(&[
                json!({"choices": [{"delta": {"content": ""}, "finish_reason": "error", "error": {"code": 502, "message": "gone"}}]})
            ]),
            "!server the provider failed: gone"
        );
        assert_eq!(last(&[json!([1])]), "!malformed-response the provider sent a piece that is not an object");
        assert_eq!(last(&[json!({"error": {"message": "busy", "code": 503}})]), "!server the provider failed: busy");
    }
}
