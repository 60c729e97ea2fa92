//! From the events of Chat Completions to chunks. A block is closed by a `finish_reason` or `[DONE]`, never because a body ended.

use dsh_seam::message::{Chunk, FinishReason, Usage};
use dsh_seam::{Failure, ModelFailure};
use serde_json::Value;

use super::super::network::Decode;
use super::super::network::blocks::Blocks;
use super::super::network::error::{self, empty, malformed};
use super::super::network::sse::Event;

/// What a stream has said so far.
#[derive(Default)]
pub(super) struct Decoder {
    blocks: Blocks,
    text: Option<u32>,
    reasoning: Option<u32>,
    calls: Vec<Call>,
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
        let data = event.data.trim();
        if self.over || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.done();
        }
        let value: Value = match serde_json::from_str(data) {
            Ok(value) => value,
            Err(_) if event.kind == "error" => return Err(error::in_answer(&Value::String(data.to_owned()))),
            Err(error) => return Err(malformed(&format!("a piece that is not valid JSON: {error}"))),
        };
        if event.kind == "error" {
            return Err(error::in_answer(&value));
        }
        self.value(&value)
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelFailure> {
        let value = serde_json::from_slice(body)
            .map_err(|error| malformed(&format!("an answer that is not valid JSON: {error}")))?;
        self.value(&value)
    }

    fn end(&mut self) -> Result<(), ModelFailure> {
        if self.over {
            return Ok(());
        }
        match self.finish.clone() {
            Some(reason) => self.last(reason),
            None if self.blocks.is_empty() => return Err(empty()),
            None => {}
        }
        Ok(())
    }
}

impl Decoder {
    fn done(&mut self) -> Result<(), ModelFailure> {
        let reason = match self.finish.clone() {
            Some(reason) => reason,
            None if self.blocks.is_empty() => return Err(empty()),
            None => {
                self.blocks.close_all();
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

    fn value(&mut self, value: &Value) -> Result<(), ModelFailure> {
        if !value.is_object() {
            return Err(malformed("a piece that is not an object"));
        }
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(error::in_answer(value));
        }
        let choices = value.get("choices").and_then(Value::as_array);
        let first = |choice: &&Value| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0;
        if let Some(choice) = choices.and_then(|choices| choices.iter().find(first)) {
            self.choice(choice);
        }
        let usage = value.get("usage").filter(|usage| usage.is_object()).map(usage);
        if let Some(usage) = usage
            && self.usage.replace(usage) != Some(usage)
        {
            self.blocks.usage(usage);
        }
        Ok(())
    }

    fn choice(&mut self, choice: &Value) {
        if self.finish.is_some() {
            return;
        }
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")).filter(|delta| delta.is_object()) {
            self.delta(delta);
        }
        if let Some(word) = choice.get("finish_reason").and_then(Value::as_str) {
            self.blocks.close_all();
            self.finish = Some(self.reason(word));
        }
    }

    fn delta(&mut self, delta: &Value) {
        let thought =
            ["reasoning_content", "reasoning"].iter().find_map(|name| delta.get(*name).and_then(Value::as_str));
        self.add_reasoning(thought.unwrap_or_default());
        match delta.get("content") {
            Some(Value::String(text)) => self.add_text(text),
            Some(Value::Array(parts)) => parts
                .iter()
                .for_each(|part| self.add_text(part.get("text").and_then(Value::as_str).unwrap_or_default())),
            _ => {}
        }
        self.add_text(delta.get("refusal").and_then(Value::as_str).unwrap_or_default());
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.add_call(call);
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
            let index = *self.reasoning.get_or_insert_with(|| self.blocks.open_reasoning());
            self.blocks.add(index, added);
        }
    }

    fn add_call(&mut self, piece: &Value) {
        let place = piece.get("index").and_then(Value::as_u64);
        let id = piece.get("id").and_then(Value::as_str).unwrap_or_default();
        let function = piece.get("function").unwrap_or(&Value::Null);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Object(object)) => Value::Object(object.clone()).to_string(),
            _ => String::new(),
        };
        let at = self.find_call(place, id, name).unwrap_or_else(|| {
            let index = self.blocks.open_call();
            self.calls.push(Call { place, index, id: String::new(), named: false });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        call.named |= !name.is_empty();
        self.blocks.call(call.index, id, name, &arguments);
    }

    /// The call that a piece goes on with; none: it begins a new one. Servers differ: some number their calls, some give each piece a
    /// new id, some number every call 0 and tell them apart by id, some do neither and send each call whole.
    fn find_call(&self, place: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let other = |call: &Call| !id.is_empty() && !call.id.is_empty() && call.id != id && !name.is_empty();
        if place.is_some() {
            let at = self.calls.iter().rposition(|call| call.place == place)?;
            return (!other(&self.calls[at])).then_some(at);
        }
        if !id.is_empty()
            && let Some(at) = self.calls.iter().rposition(|call| call.id == id)
        {
            return Some(at);
        }
        let last = self.calls.last()?;
        let begins = !name.is_empty() && last.named;
        (!begins).then(|| self.calls.len() - 1)
    }

    fn reason(&self, word: &str) -> FinishReason {
        match word {
            // Some servers say `stop` although they call tools.
            "stop" if self.blocks.has_calls() => FinishReason::ToolCalls,
            "stop" => FinishReason::Stop,
            "tool_calls" | "function_call" => FinishReason::ToolCalls,
            "length" => FinishReason::MaxTokens,
            "content_filter" => FinishReason::Refused,
            "insufficient_system_resource" => {
                FinishReason::Error(Failure::new("server", "the provider broke off: it has not enough resources"))
            }
            other => FinishReason::Other(other.to_owned()),
        }
    }
}

/// Chat Completions counts inclusively; ours are disjoint.
fn usage(value: &Value) -> Usage {
    let count = |value: Option<&Value>| u32::try_from(value.and_then(Value::as_u64).unwrap_or(0)).unwrap_or(u32::MAX);
    let detail = |of: &str, name: &str| count(value.get(of).and_then(|details| details.get(name)));
    let cache_read = detail("prompt_tokens_details", "cached_tokens").max(count(value.get("prompt_cache_hit_tokens")));
    let reasoning = detail("completion_tokens_details", "reasoning_tokens");
    Usage {
        input: count(value.get("prompt_tokens")).saturating_sub(cache_read),
        output: count(value.get("completion_tokens")).saturating_sub(reasoning),
        cache_read,
        cache_write: 0,
        reasoning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn decode(events: &[Value]) -> Vec<String> {
        let mut decoder = Decoder::default();
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
        // Arguments as an object.
        check(
            &[json!({"index": 0, "id": "a", "function": {"name": "t", "arguments": {"x": 1}}})],
            &["a t {'x':1}", done],
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
        check("eos", json!({"other": "eos"}));
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
        assert_eq!(last(&[json!([1])]), "!malformed-response the provider sent a piece that is not an object");
        assert_eq!(last(&[json!({"error": {"message": "busy", "code": 503}})]), "!server the provider failed: busy");
    }

    #[test]
    fn usage_is_disjoint() {
        let check = |value: Value, expect: [u32; 4]| {
            let usage = usage(&value);
            assert_eq!([usage.input, usage.output, usage.cache_read, usage.reasoning], expect, "{value}");
        };
        check(json!({"prompt_tokens": 5, "completion_tokens": 3}), [5, 3, 0, 0]);
        check(
            json!({"prompt_tokens": 5, "completion_tokens": 3, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 1}),
            [1, 3, 4, 0],
        );
        check(
            json!({"prompt_tokens": 5_000_000_000_u64, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 9}}),
            [u32::MAX, 0, 0, 9],
        );
    }
}
