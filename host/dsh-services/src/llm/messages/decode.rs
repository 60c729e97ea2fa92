//! From the events of Messages to chunks. A block is closed by `content_block_stop` or by a reason to stop, never because a body ended.

use dsh_seam::message::{Chunk, FinishReason, Usage};
use dsh_seam::{Failure, ModelFailure};
use serde_json::{Value, json};

use super::super::network::Decode;
use super::super::network::blocks::{Blocks, MAX_BLOCKS};
use super::super::network::error::{self, empty};
use super::super::network::piece::{document, piece};
use super::super::network::sse::Event;
use super::blocks::{keep_block, keep_citations, keep_redacted, keep_signature};

/// What a stream has said so far.
pub(super) struct Decoder {
    provider: String,
    blocks: Blocks,
    open: Vec<Open>,
    counts: Counts,
    usage: Option<Usage>,
    /// Set by a reason to stop; sent as the last chunk.
    finish: Option<FinishReason>,
    over: bool,
}

/// A block under way.
struct Open {
    /// The provider's number for it.
    place: u64,
    kind: Kind,
}

enum Kind {
    Text {
        index: u32,
        citations: Vec<Value>,
    },
    Thinking {
        index: u32,
        signature: String,
    },
    Redacted {
        index: u32,
        data: Value,
    },
    /// `whole` is the input of a server that sends it at once.
    Call {
        index: u32,
        whole: Value,
        pieces: bool,
    },
    /// Nothing to us: it is kept as it comes.
    Other {
        block: Value,
        input: String,
    },
}

impl Kind {
    /// The provider's word for it.
    fn word(&self) -> &str {
        match self {
            Kind::Text { .. } => "text",
            Kind::Thinking { .. } => "thinking",
            Kind::Redacted { .. } => "redacted_thinking",
            Kind::Call { .. } => "tool_use",
            Kind::Other { block, .. } => block.get("type").and_then(Value::as_str).unwrap_or_default(),
        }
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
        self.finish.is_some()
    }

    fn event(&mut self, event: &Event) -> Result<(), ModelFailure> {
        self.blocks.check()?;
        let data = event.data.trim();
        // `[DONE]` belongs to another protocol; some gateways send it all the same.
        if self.over || data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let value = piece(event)?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(&event.kind);
        match kind {
            "message_start" => self.count(value.pointer("/message/usage")),
            "content_block_start" => self.start(place(&value), value.get("content_block").unwrap_or(&Value::Null)),
            "content_block_delta" => self.delta(place(&value), value.get("delta").unwrap_or(&Value::Null)),
            "content_block_stop" => self.stop(place(&value)),
            "message_delta" => {
                self.count(value.get("usage"));
                self.stopped(value.pointer("/delta/stop_reason"));
            }
            "message_stop" => return self.done(),
            // A server that sends the whole answer as one event.
            "message" => return self.message(&value),
            _ if kind == "error" || value.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(error::in_answer(&value));
            }
            // `ping`, and what will be invented.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8]) -> Result<(), ModelFailure> {
        let value = document(body)?;
        if value["type"] == "error" || value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(error::in_answer(&value));
        }
        self.message(&value)
    }

    fn end(&mut self) -> Result<(), ModelFailure> {
        if self.over {
            return Ok(());
        }
        match self.finish.take() {
            Some(reason) => self.last(reason),
            None if self.blocks.is_empty() && self.open.is_empty() => return Err(empty()),
            None => {}
        }
        Ok(())
    }
}

impl Decoder {
    pub fn new(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            blocks: Blocks::default(),
            open: Vec::new(),
            counts: Counts::default(),
            usage: None,
            finish: None,
            over: false,
        }
    }

    /// An answer that was not streamed.
    fn message(&mut self, message: &Value) -> Result<(), ModelFailure> {
        let content = message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (place, block) in (0..).zip(content) {
            self.start(place, block);
            self.stop(place);
        }
        self.count(message.get("usage"));
        self.stopped(message.get("stop_reason"));
        self.done()
    }

    fn done(&mut self) -> Result<(), ModelFailure> {
        let reason = match self.finish.take() {
            Some(reason) => reason,
            None if self.blocks.is_empty() && self.open.is_empty() => return Err(empty()),
            None => {
                self.close_all();
                self.reason("end_turn")
            }
        };
        self.last(reason);
        Ok(())
    }

    fn last(&mut self, reason: FinishReason) {
        self.blocks.finish(reason);
        self.over = true;
    }

    fn start(&mut self, place: u64, block: &Value) {
        let word = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        if let Some(at) = self.at(place)
            && self.open[at].kind.word() == word("type")
        {
            // It was begun by a piece that came too early, or is begun twice.
            if let Kind::Call { index, .. } = self.open[at].kind {
                self.blocks.call(index, word("id"), word("name"), "");
            }
            return;
        }
        if self.blocks.is_full() || self.open.len() >= MAX_BLOCKS as usize {
            return self.blocks.overflow();
        }
        let kind = match word("type") {
            "text" => {
                let index = self.blocks.open_text();
                self.blocks.add(index, word("text"));
                let citations = block.get("citations").and_then(Value::as_array).cloned().unwrap_or_default();
                Kind::Text { index, citations }
            }
            "thinking" => {
                let index = self.blocks.open_reasoning();
                self.blocks.add(index, word("thinking"));
                Kind::Thinking { index, signature: word("signature").to_owned() }
            }
            "redacted_thinking" => Kind::Redacted {
                index: self.blocks.open_reasoning(),
                data: block.get("data").cloned().unwrap_or_default(),
            },
            "tool_use" => {
                let index = self.blocks.open_call();
                self.blocks.call(index, word("id"), word("name"), "");
                Kind::Call { index, whole: block.get("input").cloned().unwrap_or_default(), pieces: false }
            }
            _ => Kind::Other { block: block.clone(), input: String::new() },
        };
        self.open.push(Open { place, kind });
    }

    fn delta(&mut self, place: u64, delta: &Value) {
        let word = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        let delta_type = word("type");
        if self.at(place).is_none() {
            // A server that forgot to begin the block, or begins it later.
            let begun = match delta_type {
                "text_delta" => "text",
                "thinking_delta" => "thinking",
                "input_json_delta" => "tool_use",
                _ => return,
            };
            self.start(place, &json!({ "type": begun }));
        }
        let Some(at) = self.at(place) else { return };
        match (&mut self.open[at].kind, delta_type) {
            (Kind::Text { index, .. }, "text_delta") => self.blocks.add(*index, word("text")),
            (Kind::Text { citations, .. }, "citations_delta") => citations.extend(delta.get("citation").cloned()),
            (Kind::Thinking { index, .. }, "thinking_delta") => self.blocks.add(*index, word("thinking")),
            (Kind::Thinking { signature, .. }, "signature_delta") => word("signature").clone_into(signature),
            (Kind::Call { index, pieces, .. }, "input_json_delta") => {
                let piece = word("partial_json");
                *pieces |= !piece.is_empty();
                self.blocks.call(*index, "", "", piece);
            }
            (Kind::Other { input, .. }, "input_json_delta") => input.push_str(word("partial_json")),
            _ => {}
        }
    }

    fn at(&self, place: u64) -> Option<usize> {
        self.open.iter().rposition(|open| open.place == place)
    }

    fn stop(&mut self, place: u64) {
        if let Some(at) = self.at(place) {
            let open = self.open.remove(at);
            self.close(open.kind);
        }
    }

    fn close(&mut self, kind: Kind) {
        let provider = &*self.provider;
        let index = match kind {
            Kind::Text { index, citations } => {
                if !citations.is_empty() {
                    self.blocks.keep(index, keep_citations(provider, citations));
                }
                index
            }
            Kind::Thinking { index, signature } => {
                self.blocks.keep(index, keep_signature(provider, signature));
                index
            }
            Kind::Redacted { index, data } => {
                self.blocks.keep(index, keep_redacted(provider, data));
                index
            }
            Kind::Call { index, whole, pieces } => {
                if !pieces {
                    let input = if whole.is_null() { "{}".to_owned() } else { whole.to_string() };
                    self.blocks.call(index, "", "", &input);
                }
                index
            }
            Kind::Other { mut block, input } => {
                if let Ok(input) = serde_json::from_str::<Value>(&input) {
                    block["input"] = input;
                }
                // What has no type is no block: the provider would not take it back.
                if block.get("type").is_some_and(Value::is_string) {
                    self.blocks.other(keep_block(provider, block));
                }
                return;
            }
        };
        self.blocks.close(index);
    }

    fn close_all(&mut self) {
        for open in std::mem::take(&mut self.open) {
            self.close(open.kind);
        }
    }

    /// The provider has a reason to stop, or has none yet.
    fn stopped(&mut self, word: Option<&Value>) {
        if let Some(word) = word.and_then(Value::as_str) {
            self.close_all();
            self.finish = Some(self.reason(word));
        }
    }

    fn reason(&self, word: &str) -> FinishReason {
        match word {
            // Some servers say `end_turn` although they call tools.
            "end_turn" | "stop_sequence" if self.blocks.has_calls() => FinishReason::ToolCalls,
            "end_turn" | "stop_sequence" => FinishReason::Stop,
            "tool_use" => FinishReason::ToolCalls,
            "max_tokens" => FinishReason::MaxTokens,
            "refusal" => FinishReason::Refused,
            "model_context_window_exceeded" => FinishReason::Error(Failure::new(
                "context-window-exceeded",
                "the answer was cut: the model's context window is full",
            )),
            other => FinishReason::Other(other.to_owned()),
        }
    }

    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        self.counts.add(usage);
        let usage = self.counts.usage();
        // A server that counts nothing says 0 of everything: that is no count.
        if usage != Usage::default() && self.usage.replace(usage) != Some(usage) {
            self.blocks.usage(usage);
        }
    }
}

fn place(event: &Value) -> u64 {
    event.get("index").and_then(Value::as_u64).unwrap_or(0)
}

/// What was counted so far. Each count is that of the whole answer until now, and the last one holds; servers that do not know one yet
/// say 0.
#[derive(Default)]
struct Counts {
    input: u32,
    cache_read: u32,
    cache_write: u32,
    output: u32,
    thinking: u32,
}

impl Counts {
    fn add(&mut self, usage: &Value) {
        let update = |count: &mut u32, path: &str| {
            let known = usage.pointer(path).and_then(Value::as_u64).filter(|known| *known > 0);
            if let Some(known) = known {
                *count = u32::try_from(known).unwrap_or(u32::MAX);
            }
        };
        update(&mut self.input, "/input_tokens");
        update(&mut self.cache_read, "/cache_read_input_tokens");
        update(&mut self.cache_write, "/cache_creation_input_tokens");
        update(&mut self.output, "/output_tokens");
        update(&mut self.thinking, "/output_tokens_details/thinking_tokens");
    }

    /// Messages counts the input disjointly and the output inclusively; ours are all disjoint.
    fn usage(&self) -> Usage {
        Usage {
            input: self.input,
            output: self.output.saturating_sub(self.thinking),
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            reasoning: self.thinking,
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chunks that these events make, as JSON; a failure is `!code message`. A string is sent as it is.
    fn decode(events: &[Value]) -> Vec<String> {
        let mut decoder = Decoder::new("p");
        let mut result = Ok(());
        for event in events {
            let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            let data = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
            result = result.and_then(|()| decoder.event(&Event { kind, data }));
        }
        shown(&mut decoder, result)
    }

    fn shown(decoder: &mut Decoder, result: Result<(), ModelFailure>) -> Vec<String> {
        let result = result.and_then(|()| decoder.end());
        let mut out: Vec<String> =
            decoder.take().iter().map(|chunk| serde_json::to_string(chunk).expect("JSON")).collect();
        out.extend(result.err().map(|failure| format!("!{} {}", failure.code, failure.message)));
        out
    }

    fn start(index: u64, block: Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    fn delta(index: u64, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn text(index: u64, text: &str) -> Value {
        delta(index, json!({"type": "text_delta", "text": text}))
    }

    fn input(index: u64, json: &str) -> Value {
        delta(index, json!({"type": "input_json_delta", "partial_json": json}))
    }

    fn stop(index: u64) -> Value {
        json!({"type": "content_block_stop", "index": index})
    }

    fn stopped(reason: &str) -> Value {
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}})
    }

    fn over() -> Value {
        json!({"type": "message_stop"})
    }

    /// The blocks that are whole, and the finish.
    fn ends(events: &[Value]) -> Vec<Value> {
        let whole = |line: String| {
            let chunk: Value = serde_json::from_str(&line).expect("JSON");
            match chunk["type"].as_str() {
                Some("block-end") => Some(chunk["block"].clone()),
                Some("finish") => Some(chunk["reason"].clone()),
                _ => None,
            }
        };
        decode(events).into_iter().filter_map(whole).collect()
    }

    #[test]
    fn an_answer_with_everything() {
        let events = [
            json!({"type": "message_start", "message": {"id": "msg", "type": "message", "role": "assistant", "content": [], "stop_reason": null, "usage": {"input_tokens": 6, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1, "service_tier": "standard"}}}),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            json!({"type": "ping"}),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "EqQB"})),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            text(1, "Hal"),
            text(1, "lo"),
            stop(1),
            start(2, json!({"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}})),
            input(2, ""),
            input(2, "{\"a\""),
            input(2, ":1}"),
            stop(2),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"input_tokens": 6, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}}}),
            over(),
        ];
        assert_eq!(
            decode(&events),
            [
                r#"{"type":"usage","usage":{"input":6,"output":1,"cacheRead":4,"cacheWrite":3,"reasoning":0}}"#,
                r#"{"type":"block-start","index":0,"blockType":"reasoning"}"#,
                r#"{"type":"reasoning-delta","index":0,"text":"hm"}"#,
                r#"{"type":"block-end","index":0,"block":{"type":"reasoning","text":"hm","opaque":{"provider":"p","signature":"EqQB"}}}"#,
                r#"{"type":"block-start","index":1,"blockType":"text"}"#,
                r#"{"type":"text-delta","index":1,"text":"Hal"}"#,
                r#"{"type":"text-delta","index":1,"text":"lo"}"#,
                r#"{"type":"block-end","index":1,"block":{"type":"text","text":"Hallo"}}"#,
                r#"{"type":"block-start","index":2,"blockType":"tool-call"}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"toolu_1","name":"t","argumentsDelta":""}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"toolu_1","argumentsDelta":"{\"a\""}"#,
                r#"{"type":"tool-call-delta","index":2,"id":"toolu_1","argumentsDelta":":1}"}"#,
                r#"{"type":"block-end","index":2,"block":{"type":"tool-call","id":"toolu_1","name":"t","arguments":"{\"a\":1}"}}"#,
                r#"{"type":"usage","usage":{"input":6,"output":15,"cacheRead":4,"cacheWrite":3,"reasoning":5}}"#,
                r#"{"type":"finish","reason":"tool-calls"}"#,
            ]
        );
    }

    #[test]
    fn what_only_the_provider_reads_is_kept_for_it() {
        let citation = json!({"type": "char_location", "cited_text": "x"});
        let result =
            json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "E"}]});
        let events = [
            start(0, json!({"type": "redacted_thinking", "data": "EmwK"})),
            stop(0),
            start(1, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
            input(1, "{\"query\":"),
            input(1, "\"q\"}"),
            stop(1),
            start(2, result.clone()),
            stop(2),
            start(3, json!({"type": "text", "text": "", "citations": []})),
            text(3, "found"),
            delta(3, json!({"type": "citations_delta", "citation": citation})),
            stop(3),
            start(4, json!({"no": "type"})),
            stop(4),
            start(5, json!({"type": "image", "what": "no such block of ours"})),
            stop(5),
            stopped("end_turn"),
            over(),
        ];
        let kept = |block: Value| json!({"type": "provider-item", "opaque": {"provider": "p", "block": block}});
        assert_eq!(
            ends(&events),
            [
                json!({"type": "reasoning", "text": "", "opaque": {"provider": "p", "redacted": "EmwK"}}),
                kept(json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}})),
                kept(result),
                json!({"type": "text", "text": "found", "opaque": {"provider": "p", "citations": [citation]}}),
                kept(json!({"type": "image", "what": "no such block of ours"})),
                json!("stop"),
            ]
        );
    }

    #[test]
    fn reasons_are_mapped() {
        let check = |word: &str, expect: Value| {
            let events = [start(0, json!({"type": "text", "text": "x"})), stop(0), stopped(word), over()];
            assert_eq!(ends(&events).pop(), Some(expect), "{word}");
        };
        check("end_turn", json!("stop"));
        check("stop_sequence", json!("stop"));
        check("max_tokens", json!("max-tokens"));
        check("tool_use", json!("tool-calls"));
        check("refusal", json!("refused"));
        check("pause_turn", json!({"other": "pause_turn"}));
        check("something_new", json!({"other": "something_new"}));
        check(
            "model_context_window_exceeded",
            json!({"error": {"code": "context-window-exceeded", "message": "the answer was cut: the model's context window is full"}}),
        );
    }

    #[test]
    fn calls_are_whole_however_a_server_sends_them() {
        let call =
            |id: &str, arguments: &str| json!({"type": "tool-call", "id": id, "name": "t", "arguments": arguments});
        let begin = |index: u64, id: &str, input: Value| {
            start(index, json!({"type": "tool_use", "id": id, "name": "t", "input": input}))
        };
        let check = |events: &[Value], expect: &[Value]| {
            let mut all = events.to_vec();
            all.push(stopped("end_turn"));
            let mut expect = expect.to_vec();
            expect.push(json!("tool-calls"));
            assert_eq!(ends(&all), expect);
        };
        // No input, the input at once, no end of the block.
        check(&[begin(0, "a", json!({})), stop(0)], &[call("a", "{}")]);
        check(&[begin(0, "a", json!({"x": 1})), stop(0)], &[call("a", r#"{"x":1}"#)]);
        check(&[start(0, json!({"type": "tool_use", "id": "a", "name": "t"})), stop(0)], &[call("a", "{}")]);
        check(&[begin(0, "a", json!({})), input(0, "{}")], &[call("a", "{}")]);
        // Several at once.
        let two = [
            begin(0, "a", json!({})),
            begin(1, "b", json!({})),
            input(1, "[2"),
            input(0, "[1"),
            input(1, "]"),
            input(0, "]"),
        ];
        check(&[&two[..], &[stop(1), stop(0)]].concat(), &[call("b", "[2]"), call("a", "[1]")]);
        // A piece before the block, a block that begins twice, a number that is used twice.
        check(&[input(0, "{\"x\""), begin(0, "a", json!({})), input(0, ":1}"), stop(0)], &[call("a", r#"{"x":1}"#)]);
        check(&[begin(0, "a", json!({})), begin(0, "a", json!({})), input(0, "{}"), stop(0)], &[call("a", "{}")]);
        check(
            &[begin(0, "a", json!({})), stop(0), begin(0, "b", json!({})), stop(0)],
            &[call("a", "{}"), call("b", "{}")],
        );
        // What is no call any more.
        check(
            &[begin(0, "a", json!({})), stop(0), stop(0), input(7, ""), stop(9)],
            &[call("a", "{}"), json!({"type": "tool-call", "id": "", "name": "", "arguments": "{}"})],
        );
    }

    #[test]
    fn a_body_that_ends_closes_nothing() {
        let begun = r#"{"type":"block-start","index":0,"blockType":"text"}"#;
        let piece = r#"{"type":"text-delta","index":0,"text":"x"}"#;
        let whole = r#"{"type":"block-end","index":0,"block":{"type":"text","text":"x"}}"#;
        let finish = r#"{"type":"finish","reason":"stop"}"#;
        let empty = "!empty-response the provider answered with nothing";
        let check = |events: &[Value], expect: &[&str]| assert_eq!(decode(events), expect);
        // Without its beginning a text is one all the same.
        check(&[text(0, "x")], &[begun, piece]);
        check(&[text(0, "x"), stop(0)], &[begun, piece, whole]);
        check(&[text(0, "x"), stop(0), stopped("end_turn")], &[begun, piece, whole, finish]);
        check(&[text(0, "x"), stopped("end_turn")], &[begun, piece, whole, finish]);
        check(&[text(0, "x"), over()], &[begun, piece, whole, finish]);
        check(&[text(0, "x"), over(), text(0, "y"), over()], &[begun, piece, whole, finish]);
        check(&[stopped("end_turn"), over()], &[finish]);
        check(&[], &[empty]);
        check(&[over()], &[empty]);
        check(&[json!({"type": "message_start", "message": {}}), json!({"type": "ping"})], &[empty]);
        check(&[json!("[DONE]"), json!(" ")], &[empty]);
        // A block that only the provider reads is something, too.
        check(&[start(0, json!({"type": "server_tool_use", "id": "s"}))], &[]);
    }

    #[test]
    fn counts_are_those_of_the_whole_answer() {
        let usage = |value: Value| json!({"type": "message_delta", "delta": {}, "usage": value});
        let check = |events: &[Value], expect: [u32; 5]| {
            let lines = decode(&[events, &[text(0, "x"), over()]].concat());
            let counted: Vec<Value> = lines
                .iter()
                .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["usage"].clone())
                .filter(|usage| !usage.is_null())
                .collect();
            let [input, output, read, write, reasoning] = expect;
            let expect = json!({"input": input, "output": output, "cacheRead": read, "cacheWrite": write, "reasoning": reasoning});
            assert_eq!(counted.last(), Some(&expect), "{lines:?}");
        };
        check(&[usage(json!({"output_tokens": 3}))], [0, 3, 0, 0, 0]);
        check(
            &[usage(json!({"input_tokens": 5, "output_tokens": 3})), usage(json!({"output_tokens": 9}))],
            [5, 9, 0, 0, 0],
        );
        // A server that knows the input at the end only, and one that forgets it.
        check(
            &[usage(json!({"input_tokens": 0})), usage(json!({"input_tokens": 5, "cache_read_input_tokens": 7}))],
            [5, 0, 7, 0, 0],
        );
        check(
            &[usage(json!({"input_tokens": 5})), usage(json!({"input_tokens": null, "output_tokens": 0}))],
            [5, 0, 0, 0, 0],
        );
        check(
            &[usage(
                json!({"input_tokens": 5_000_000_000_u64, "output_tokens": 1, "output_tokens_details": {"thinking_tokens": 2}}),
            )],
            [u32::MAX, 0, 0, 0, 2],
        );
        assert_eq!(decode(&[usage(json!(7)), text(0, "x")]).len(), 2);
        assert_eq!(decode(&[usage(json!({"input_tokens": 0, "output_tokens": 0})), text(0, "x")]).len(), 2);
    }

    #[test]
    fn nonsense_and_failures_are_named() {
        let last = |events: &[Value]| decode(events).pop().expect("a failure");
        assert_eq!(
            last(&[json!("{\"type\":")]),
            "!malformed-response the provider sent a piece that is not valid JSON: EOF while parsing a value at line 1 column 8"
        );
        assert_eq!(last(&[json!([1])]), "!malformed-response the provider sent a piece that is not an object");
        let failed = |kind: &str, message: &str| {
            last(&[text(0, "x"), json!({"type": "error", "error": {"type": kind, "message": message}})])
        };
        assert_eq!(failed("overloaded_error", "Overloaded"), "!server the provider failed: Overloaded");
        assert_eq!(failed("api_error", "Internal"), "!server the provider failed: Internal");
        assert_eq!(failed("rate_limit_error", "slow"), "!rate-limit the provider failed: slow");
        assert_eq!(failed("authentication_error", "no"), "!auth the provider failed: no");
        assert_eq!(failed("permission_error", "no"), "!auth the provider failed: no");
        assert_eq!(failed("invalid_request_error", "no"), "!invalid-request the provider failed: no");
        assert_eq!(failed("not_found_error", "no"), "!invalid-request the provider failed: no");
        assert_eq!(failed("timeout_error", "late"), "!timeout the provider failed: late");
        assert_eq!(failed("billing_error", "pay"), "!quota the provider failed: pay");
        assert_eq!(failed("request_too_large", "big"), "!context-window-exceeded the provider failed: big");
        assert_eq!(
            failed("invalid_request_error", "prompt is too long: 205000 tokens > 200000 maximum"),
            "!context-window-exceeded the provider failed: prompt is too long: 205000 tokens > 200000 maximum"
        );
    }

    #[test]
    fn an_answer_may_come_whole() {
        let whole = |body: Value| {
            let mut decoder = Decoder::new("p");
            let result = decoder.whole(body.to_string().as_bytes());
            shown(&mut decoder, result)
        };
        let message = json!({
            "type": "message", "role": "assistant",
            "content": [{"type": "thinking", "thinking": "hm", "signature": "S"}, {"type": "text", "text": "x"}, {"type": "tool_use", "id": "a", "name": "t", "input": {"y": 1}}],
            "stop_reason": "tool_use", "usage": {"input_tokens": 2, "output_tokens": 3},
        });
        let lines = whole(message.clone());
        assert_eq!(lines.last().map(String::as_str), Some(r#"{"type":"finish","reason":"tool-calls"}"#));
        assert_eq!(
            lines.iter().filter(|line| line.contains("block-end")).collect::<Vec<_>>(),
            [
                r#"{"type":"block-end","index":0,"block":{"type":"reasoning","text":"hm","opaque":{"provider":"p","signature":"S"}}}"#,
                r#"{"type":"block-end","index":1,"block":{"type":"text","text":"x"}}"#,
                r#"{"type":"block-end","index":2,"block":{"type":"tool-call","id":"a","name":"t","arguments":"{\"y\":1}"}}"#,
            ]
        );
        assert_eq!(decode(&[message]), lines);
        assert_eq!(
            whole(json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})),
            ["!server the provider failed: busy"]
        );
        assert_eq!(whole(json!({"content": []})), ["!empty-response the provider answered with nothing"]);
        assert_eq!(whole(json!("hello")), ["!malformed-response the provider sent an answer that is not an object"]);
    }
}
