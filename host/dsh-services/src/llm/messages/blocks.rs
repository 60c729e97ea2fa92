//! The pieces of a message as Messages wants them.
//!
//! What the server refuses is not sent: texts of nothing but white space, white space at the end of what the assistant says, thoughts
//! without their proof or at the end of a message, ids of other alphabets.

use std::borrow::Cow;

use dsh_seam::llm::ModelRequest;
use dsh_seam::message::{
    ContentBlock, ImageBlock, ImageSource, Message, ResultBlock, Role, TextBlock, ToolCall, ToolResult,
};
use serde_json::{Map, Value, json};

use super::super::network::body::image_type;
use super::super::network::{keep, kept};
use super::frame::cache_control;

/// The members of `opaque`: the proof of a thought, a thought that only the provider can read, what a text quotes, a block that is
/// nothing to us.
const SIGNATURE: &str = "signature";
const REDACTED: &str = "redacted";
const CITATIONS: &str = "citations";
const BLOCK: &str = "block";

/// Said for a tool that failed without a word: an error must have one.
const FAILED: &str = "the tool failed and said nothing";

/// What is kept of a thought. Servers that give no proof want the thought back all the same.
pub(super) fn keep_signature(provider: &str, signature: String) -> Value {
    keep(provider, Map::from_iter([(SIGNATURE.to_owned(), signature.into())]))
}

/// What is kept of a thought that only the provider can read.
pub(super) fn keep_redacted(provider: &str, data: Value) -> Value {
    keep(provider, Map::from_iter([(REDACTED.to_owned(), data)]))
}

/// What is kept of a text that quotes.
pub(super) fn keep_citations(provider: &str, citations: Vec<Value>) -> Value {
    keep(provider, Map::from_iter([(CITATIONS.to_owned(), citations.into())]))
}

/// What is kept of a block that is nothing to us.
pub(super) fn keep_block(provider: &str, block: Value) -> Value {
    keep(provider, Map::from_iter([(BLOCK.to_owned(), block)]))
}

/// The blocks that answer calls; they stand first in what the user says. The last `hints` of the cache hints are sent.
pub(super) fn results(message: &Message, hints: usize) -> Vec<Value> {
    let mut left = Hints::of(message, hints);
    message
        .content
        .iter()
        .filter_map(|block| {
            let marked = left.next(block);
            match block {
                ContentBlock::ToolResult(result) => Some(mark(tool_result(result), marked)),
                _ => None,
            }
        })
        .collect()
}

/// All other blocks of a message. The last `hints` of the cache hints are sent.
pub(super) fn rest(message: &Message, provider: &str, hints: usize) -> Vec<Value> {
    let mut left = Hints::of(message, hints);
    let assistant = message.role == Role::Assistant;
    let mut out: Vec<Value> = message
        .content
        .iter()
        .filter_map(|block| {
            let marked = left.next(block);
            let written = match block {
                ContentBlock::Text(block) => text(block, provider),
                ContentBlock::Image(block) if !assistant => Some(image(block)),
                ContentBlock::Reasoning(block) if assistant => thought(&block.text, block.opaque.as_ref(), provider),
                ContentBlock::ToolCall(call) if assistant => Some(tool_use(call)),
                ContentBlock::Other(value) => other(value, provider),
                _ => None,
            };
            written.map(|written| mark(written, marked))
        })
        .collect();
    if assistant {
        end_well(&mut out);
    }
    out
}

/// How many cache hints there are in a message.
pub(super) fn hints(message: &Message) -> usize {
    message.content.iter().filter(|block| is_hinted(block)).count()
}

fn is_hinted(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Text(block) => block.cache.is_some() && !is_blank(&block.text),
        ContentBlock::Image(block) => block.cache.is_some(),
        // What is inside a result cannot be marked.
        ContentBlock::ToolResult(result) => {
            let inside = |block: &ResultBlock| matches!(block, ResultBlock::Image(image) if image.cache.is_some());
            result.cache.is_some() || result.content.iter().any(inside)
        }
        ContentBlock::Reasoning(_) | ContentBlock::ToolCall(_) | ContentBlock::Other(_) => false,
    }
}

/// Passes over the hints that are too many: the first ones.
struct Hints {
    skip: usize,
}

impl Hints {
    fn of(message: &Message, sent: usize) -> Self {
        Self { skip: hints(message).saturating_sub(sent) }
    }

    /// Whether this block is marked.
    fn next(&mut self, block: &ContentBlock) -> bool {
        if !is_hinted(block) {
            return false;
        }
        let marked = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        marked
    }
}

fn mark(mut block: Value, marked: bool) -> Value {
    if marked {
        block["cache_control"] = cache_control();
    }
    block
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn text(block: &TextBlock, provider: &str) -> Option<Value> {
    if is_blank(&block.text) {
        return None;
    }
    let mut out = json!({ "type": "text", "text": block.text });
    if let Some(citations) = kept(block.opaque.as_ref(), provider).and_then(|kept| kept.get(CITATIONS)) {
        out[CITATIONS] = citations.clone();
    }
    Some(out)
}

fn thought(text: &str, opaque: Option<&Value>, provider: &str) -> Option<Value> {
    let kept = kept(opaque, provider)?;
    if let Some(data) = kept.get(REDACTED) {
        return Some(json!({ "type": "redacted_thinking", "data": data }));
    }
    let signature = kept.get(SIGNATURE)?;
    Some(json!({ "type": "thinking", "thinking": text, "signature": signature }))
}

fn other(value: &Value, provider: &str) -> Option<Value> {
    match value.get("opaque") {
        Some(opaque) => kept(Some(opaque), provider)?.get(BLOCK).cloned(),
        None => Some(value.clone()),
    }
}

fn image(block: &ImageBlock) -> Value {
    let source = match &block.source {
        ImageSource::Data(data) => {
            json!({ "type": "base64", "media_type": image_type(block), "data": data })
        }
        ImageSource::Url(url) => match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((kind, data)) => json!({ "type": "base64", "media_type": kind, "data": data }),
            None => json!({ "type": "url", "url": url }),
        },
    };
    json!({ "type": "image", "source": source })
}

fn tool_use(call: &ToolCall) -> Value {
    json!({ "type": "tool_use", "id": id(&call.id), "name": call.name, "input": input(&call.arguments) })
}

/// The arguments as the object that they must be. What is none is shown to the model as it was said.
fn input(arguments: &str) -> Value {
    if is_blank(arguments) {
        return json!({});
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(members)) => members.into(),
        _ => json!({ "invalid": arguments }),
    }
}

fn tool_result(result: &ToolResult) -> Value {
    let mut content: Vec<Value> = result
        .content
        .iter()
        .filter_map(|block| match block {
            ResultBlock::Text(block) => (!is_blank(&block.text)).then(|| json!({ "type": "text", "text": block.text })),
            ResultBlock::Image(block) => Some(image(block)),
            ResultBlock::Other(value) => Some(value.clone()),
        })
        .collect();
    let mut out = json!({ "type": "tool_result", "tool_use_id": id(&result.call_id) });
    if result.is_error && content.is_empty() {
        content.push(json!({ "type": "text", "text": FAILED }));
    }
    // An error may hold text only.
    let is_error = result.is_error && content.iter().all(|block| block["type"] == "text");
    if !content.is_empty() {
        out["content"] = content.into();
    }
    if is_error {
        out["is_error"] = true.into();
    }
    out
}

/// An id in the alphabet of the protocol: letters, digits, `_` and `-`. What is outside of it becomes its number, so that two ids stay
/// two.
fn id(id: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(fits) {
        return id.into();
    }
    let mut out = String::new();
    for c in id.chars() {
        if fits(c) {
            out.push(c);
        } else {
            out.push_str(&format!("_{:x}_", u32::from(c)));
        }
    }
    if out.is_empty() { "_".into() } else { out.into() }
}

/// What the assistant says cannot end with a thought, nor with white space.
fn end_well(blocks: &mut Vec<Value>) {
    while blocks.last().is_some_and(is_thought) {
        blocks.pop();
    }
    if let Some(Value::String(text)) = blocks.last_mut().and_then(|block| block.get_mut("text")) {
        text.truncate(text.trim_end().len());
    }
}

fn is_thought(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// Whether every answer in the round of tools under way, if there is one, begins with a thought of this provider's.
pub(super) fn round_begins_with_thinking(request: &ModelRequest, provider: &str) -> bool {
    let messages: Vec<&Message> = request.messages.iter().map(|message| &message.message).collect();
    let spoken = |message: &&Message| {
        message.role != Role::Assistant
            && message.content.iter().any(|block| !matches!(block, ContentBlock::ToolResult(_)))
    };
    let round = messages.iter().rposition(spoken).map_or(0, |at| at + 1);
    let calls = messages[round..].iter().filter(|message| message.tool_calls().next().is_some());
    calls.into_iter().all(|message| rest(message, provider, 0).first().is_some_and(is_thought))
}

/// The names of the tools that were called.
pub(super) fn called_tools(request: &ModelRequest) -> impl Iterator<Item = &str> {
    request.messages.iter().flat_map(|message| message.message.tool_calls()).map(|call| &*call.name)
}
