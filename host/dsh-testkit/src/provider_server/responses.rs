//! An answer in the events of OpenAI's Responses.

use serde_json::{Value, json};

use super::wire::{Answer, Block, Counts, Stage, Stopped, WireEvent, pieces};

pub(super) fn begin() -> Vec<WireEvent> {
    let response = json!({
        "id": "resp_1", "object": "response", "status": "in_progress", "error": null, "incomplete_details": null,
        "model": "m", "output": [], "usage": null,
    });
    ["response.created", "response.in_progress"]
        .map(|kind| WireEvent::typed(Stage::Begin, json!({ "type": kind, "response": response })))
        .into()
}

pub(super) fn block(index: usize, block: &Block, cut: Option<usize>) -> Vec<WireEvent> {
    let id = id(index, block);
    let event = |stage: Stage, kind: &str, more: Value| {
        let mut data = json!({ "type": format!("response.{kind}"), "output_index": index });
        if !kind.starts_with("output_item") {
            data["item_id"] = id.as_str().into();
        }
        merge(&mut data, more);
        WireEvent::typed(stage, data)
    };
    let mut events = vec![event(Stage::Piece, "output_item.added", json!({ "item": begun(index, block) }))];
    match block {
        Block::Text(text) => {
            let part = |text: &str| json!({ "content_index": 0, "part": { "type": "output_text", "text": text, "annotations": [] } });
            events.push(event(Stage::Piece, "content_part.added", part("")));
            events.extend(pieces(text, cut).iter().map(|piece| {
                event(Stage::Piece, "output_text.delta", json!({ "content_index": 0, "delta": piece, "logprobs": [] }))
            }));
            events.push(event(Stage::Close, "output_text.done", json!({ "content_index": 0, "text": text })));
            events.push(event(Stage::Close, "content_part.done", part(text)));
        }
        Block::Reasoning { text, .. } => {
            let part = |text: &str| json!({ "summary_index": 0, "part": { "type": "summary_text", "text": text } });
            events.push(event(Stage::Piece, "reasoning_summary_part.added", part("")));
            events.extend(pieces(text, cut).iter().map(|piece| {
                event(Stage::Piece, "reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": piece }))
            }));
            let done = json!({ "summary_index": 0, "text": text });
            events.push(event(Stage::Close, "reasoning_summary_text.done", done));
            events.push(event(Stage::Close, "reasoning_summary_part.done", part(text)));
        }
        Block::Call { arguments, .. } => {
            events.extend(
                pieces(arguments, cut)
                    .iter()
                    .map(|piece| event(Stage::Piece, "function_call_arguments.delta", json!({ "delta": piece }))),
            );
            let done = json!({ "arguments": arguments });
            events.push(event(Stage::Close, "function_call_arguments.done", done));
        }
    }
    events.push(event(Stage::Close, "output_item.done", json!({ "item": item(index, block) })));
    events
}

pub(super) fn end(answer: &Answer) -> Vec<WireEvent> {
    let response = whole(answer);
    let kind = format!("response.{}", response["status"].as_str().unwrap_or_default());
    vec![WireEvent::typed(Stage::Last, json!({ "type": kind, "response": response }))]
}

pub(super) fn whole(answer: &Answer) -> Value {
    let (status, details) = match answer.stopped {
        Stopped::End => ("completed", Value::Null),
        Stopped::Length => ("incomplete", json!({ "reason": "max_output_tokens" })),
        Stopped::Filter => ("incomplete", json!({ "reason": "content_filter" })),
    };
    let output: Vec<Value> = answer.blocks.iter().enumerate().map(|(index, block)| item(index, block)).collect();
    json!({
        "id": "resp_1", "object": "response", "status": status, "error": null, "incomplete_details": details,
        "model": "m", "output": output, "usage": answer.usage.as_ref().map(counted),
    })
}

/// Every event of Responses has its number.
pub(super) fn number(events: &mut [WireEvent]) {
    for (number, event) in events.iter_mut().enumerate() {
        *event = event.clone().map(|data| data["sequence_number"] = number.into());
    }
}

fn id(index: usize, block: &Block) -> String {
    match block {
        Block::Text(_) => format!("msg_{index}"),
        Block::Reasoning { .. } => format!("rs_{index}"),
        Block::Call { .. } => format!("fc_{index}"),
    }
}

fn begun(index: usize, block: &Block) -> Value {
    let mut item = item(index, block);
    item["status"] = "in_progress".into();
    match block {
        Block::Text(_) => item["content"] = json!([]),
        Block::Reasoning { .. } => item["summary"] = json!([]),
        Block::Call { .. } => item["arguments"] = "".into(),
    }
    item
}

fn item(index: usize, block: &Block) -> Value {
    let id = id(index, block);
    match block {
        Block::Text(text) => json!({
            "id": id, "type": "message", "status": "completed", "role": "assistant",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        }),
        Block::Reasoning { text, proof } => json!({
            "id": id, "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }],
            "encrypted_content": proof,
        }),
        Block::Call { id: call_id, name, arguments } => json!({
            "id": id, "type": "function_call", "status": "completed", "call_id": call_id, "name": name,
            "arguments": arguments,
        }),
    }
}

fn counted(counts: &Counts) -> Value {
    json!({
        "input_tokens": counts.input,
        "input_tokens_details": { "cached_tokens": counts.cache_read },
        "output_tokens": counts.output,
        "output_tokens_details": { "reasoning_tokens": counts.reasoning },
    })
}

fn merge(data: &mut Value, more: Value) {
    if let (Value::Object(data), Value::Object(more)) = (data, more) {
        data.extend(more);
    }
}
