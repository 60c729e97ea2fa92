//! An answer in the events of Anthropic's Messages.

use serde_json::{Value, json};

use super::wire::{Answer, Block, Counts, Stage, Stopped, WireEvent, pieces};

pub(super) fn begin(usage: &Option<Counts>) -> Vec<WireEvent> {
    let mut message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null,
    });
    if let Some(counts) = usage {
        message["usage"] = input(counts);
        message["usage"]["output_tokens"] = 1.into();
    }
    vec![
        WireEvent::typed(Stage::Begin, json!({ "type": "message_start", "message": message })),
        WireEvent::typed(Stage::Begin, json!({ "type": "ping" })),
    ]
}

pub(super) fn block(index: usize, block: &Block, cut: Option<usize>) -> Vec<WireEvent> {
    let delta = |delta: Value| {
        WireEvent::typed(Stage::Piece, json!({ "type": "content_block_delta", "index": index, "delta": delta }))
    };
    let (start, deltas): (Value, Vec<Value>) = match block {
        Block::Text(text) => {
            let deltas = pieces(text, cut).into_iter().map(|text| json!({ "type": "text_delta", "text": text }));
            (json!({ "type": "text", "text": "" }), deltas.collect())
        }
        Block::Reasoning { text, proof } => {
            let mut deltas: Vec<Value> = pieces(text, cut)
                .into_iter()
                .map(|text| json!({ "type": "thinking_delta", "thinking": text }))
                .collect();
            deltas.extend(proof.as_ref().map(|proof| json!({ "type": "signature_delta", "signature": proof })));
            (json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas)
        }
        Block::Call { id, name, arguments } => {
            let deltas = pieces(arguments, cut)
                .into_iter()
                .map(|arguments| json!({ "type": "input_json_delta", "partial_json": arguments }));
            (json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), deltas.collect())
        }
    };
    let start = json!({ "type": "content_block_start", "index": index, "content_block": start });
    let mut events = vec![WireEvent::typed(Stage::Piece, start)];
    events.extend(deltas.into_iter().map(delta));
    events.push(WireEvent::typed(Stage::Close, json!({ "type": "content_block_stop", "index": index })));
    events
}

pub(super) fn end(answer: &Answer) -> Vec<WireEvent> {
    let mut delta = json!({
        "type": "message_delta", "delta": { "stop_reason": reason(answer), "stop_sequence": null },
    });
    if let Some(counts) = &answer.usage {
        delta["usage"] = json!({ "output_tokens": counts.output });
    }
    vec![WireEvent::typed(Stage::Finish, delta), WireEvent::typed(Stage::Last, json!({ "type": "message_stop" }))]
}

pub(super) fn whole(answer: &Answer) -> Value {
    let content = answer.blocks.iter().map(|block| match block {
        Block::Text(text) => json!({ "type": "text", "text": text }),
        Block::Reasoning { text, proof } => json!({ "type": "thinking", "thinking": text, "signature": proof }),
        Block::Call { id, name, arguments } => {
            let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            json!({ "type": "tool_use", "id": id, "name": name, "input": input })
        }
    });
    let mut message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content.collect::<Vec<_>>(),
        "stop_reason": reason(answer), "stop_sequence": null,
    });
    if let Some(counts) = &answer.usage {
        message["usage"] = input(counts);
        message["usage"]["output_tokens"] = counts.output.clone();
    }
    message
}

fn reason(answer: &Answer) -> &'static str {
    match answer.stopped {
        Stopped::End if answer.has_calls() => "tool_use",
        Stopped::End => "end_turn",
        Stopped::Length => "max_tokens",
        Stopped::Filter => "refusal",
    }
}

/// Messages counts what was read from the cache apart.
fn input(counts: &Counts) -> Value {
    let fresh = match (counts.input.as_u64(), counts.cache_read.as_u64()) {
        (Some(all), Some(cached)) => all.saturating_sub(cached).into(),
        _ => counts.input.clone(),
    };
    json!({ "input_tokens": fresh, "cache_creation_input_tokens": 0, "cache_read_input_tokens": counts.cache_read })
}
