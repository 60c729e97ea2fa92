//! An answer in the events of Chat Completions.

use serde_json::{Value, json};

use super::wire::{Answer, Block, Counts, Stage, Stopped, WireEvent, pieces};

/// A piece with a delta.
pub fn delta(delta: Value) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

/// A piece with a finish reason.
pub fn finish(reason: &str) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

/// A piece with nothing but counts.
pub fn usage(prompt: u32, completion: u32) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "choices": [], "usage": { "prompt_tokens": prompt, "completion_tokens": completion } })
}

pub(super) fn begin() -> Vec<WireEvent> {
    vec![WireEvent::plain(Stage::Begin, &delta(json!({ "role": "assistant", "content": "" })))]
}

/// `number` counts the calls only.
pub(super) fn block(number: usize, block: &Block, cut: Option<usize>) -> Vec<WireEvent> {
    let piece = |value: Value| WireEvent::plain(Stage::Piece, &delta(value));
    match block {
        Block::Text(text) => pieces(text, cut).into_iter().map(|text| piece(json!({ "content": text }))).collect(),
        Block::Reasoning { text, .. } => {
            pieces(text, cut).into_iter().map(|text| piece(json!({ "reasoning_content": text }))).collect()
        }
        Block::Call { id, name, arguments } => {
            let function = json!({ "name": name, "arguments": "" });
            let first = json!({ "index": number, "id": id, "type": "function", "function": function });
            let more = pieces(arguments, cut)
                .into_iter()
                .map(|arguments| json!({ "index": number, "function": { "arguments": arguments } }));
            std::iter::once(first).chain(more).map(|call| piece(json!({ "tool_calls": [call] }))).collect()
        }
    }
}

pub(super) fn end(answer: &Answer) -> Vec<WireEvent> {
    let mut events = vec![WireEvent::plain(Stage::Close, &finish(reason(answer)))];
    if let Some(counts) = &answer.usage {
        let piece = json!({ "id": "c", "object": "chat.completion.chunk", "choices": [], "usage": counted(counts) });
        events.push(WireEvent::plain(Stage::Finish, &piece));
    }
    events.push(WireEvent { stage: Stage::Last, kind: None, data: "[DONE]".into() });
    events
}

pub(super) fn whole(answer: &Answer) -> Value {
    let mut message = json!({ "role": "assistant", "content": null });
    let mut calls = Vec::new();
    for block in &answer.blocks {
        match block {
            Block::Text(text) => message["content"] = text.as_str().into(),
            Block::Reasoning { text, .. } => message["reasoning_content"] = text.as_str().into(),
            Block::Call { id, name, arguments } => calls
                .push(json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })),
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": reason(answer) });
    json!({ "id": "c", "object": "chat.completion", "choices": [choice], "usage": answer.usage.as_ref().map(counted) })
}

fn reason(answer: &Answer) -> &'static str {
    match answer.stopped {
        Stopped::End if answer.has_calls() => "tool_calls",
        Stopped::End => "stop",
        Stopped::Length => "length",
        Stopped::Filter => "content_filter",
    }
}

fn counted(counts: &Counts) -> Value {
    json!({
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "prompt_tokens_details": { "cached_tokens": counts.cache_read },
        "completion_tokens_details": { "reasoning_tokens": counts.reasoning },
    })
}
