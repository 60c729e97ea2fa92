//! Canonical JSON (RFC 8785): the one writing of a value, over which it can be hashed.
//!
//! Nearly all messages are plain: texts, tool calls and results, whose members are known. They are written in canonical order at once,
//! many times quicker than any value can be put into that order. Strings are written by `serde_json`, which escapes what the standard
//! wants escaped, and nothing else.

use serde::Serialize;

use crate::message::{ContentBlock, Message, ResultBlock, Role};

/// `value` as canonical JSON.
pub fn canonical_json(value: &impl Serialize) -> String {
    serde_json_canonicalizer::to_string(value).expect("our own types have string keys and finite numbers")
}

/// A message as canonical JSON.
pub(crate) fn canonical_message(message: &Message) -> Vec<u8> {
    match Plain::of(message) {
        Some(plain) => serde_json::to_vec(&plain).expect("invariant: strings only"),
        None => canonical_json(message).into_bytes(),
    }
}

/// A message of plain blocks. In all of these types members are in alphabetical order.
#[derive(Serialize)]
struct Plain<'a> {
    content: Vec<Block<'a>>,
    role: Role,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Block<'a> {
    Text(Text<'a>),
    Call(Call<'a>),
    Result(ToolResult<'a>),
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
    r#type: &'static str,
}

#[derive(Serialize)]
struct Call<'a> {
    arguments: &'a str,
    id: &'a str,
    name: &'a str,
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    call_id: &'a str,
    content: Vec<Text<'a>>,
    is_error: bool,
    r#type: &'static str,
}

impl<'a> Plain<'a> {
    fn of(message: &'a Message) -> Option<Self> {
        let content = message.content.iter().map(Block::of).collect::<Option<_>>()?;
        Some(Self { content, role: message.role })
    }
}

impl<'a> Block<'a> {
    /// None for a block with anything in it that is not plain.
    fn of(block: &'a ContentBlock) -> Option<Self> {
        match block {
            ContentBlock::Text(block) if block.cache.is_none() && block.opaque.is_none() => {
                Some(Self::Text(Text { text: &block.text, r#type: "text" }))
            }
            ContentBlock::Reasoning(block) if block.opaque.is_none() => {
                Some(Self::Text(Text { text: &block.text, r#type: "reasoning" }))
            }
            ContentBlock::ToolCall(call) if call.opaque.is_none() => Some(Self::Call(Call {
                arguments: &call.arguments,
                id: &call.id,
                name: &call.name,
                r#type: "tool-call",
            })),
            ContentBlock::ToolResult(result) if result.cache.is_none() => {
                let text = |block: &'a ResultBlock| match block {
                    ResultBlock::Text(block) => Some(Text { text: &block.text, r#type: "text" }),
                    ResultBlock::Image(_) | ResultBlock::Other(_) => None,
                };
                Some(Self::Result(ToolResult {
                    call_id: &result.call_id,
                    content: result.content.iter().map(text).collect::<Option<_>>()?,
                    is_error: result.is_error,
                    r#type: "tool-result",
                }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(content: Value, plain: bool) {
        for role in ["user", "assistant", "system"] {
            let message: Message =
                serde_json::from_value(json!({ "role": role, "content": content })).expect("a message");
            assert_eq!(Plain::of(&message).is_some(), plain, "{content}");
            assert_eq!(String::from_utf8(canonical_message(&message)).expect("UTF-8"), canonical_json(&message));
        }
    }

    #[test]
    fn plain_messages_are_written_as_the_standard_writes_them() {
        let controls: String = (0..0x100).filter_map(char::from_u32).collect();
        for text in
            ["", "a", "\"\\/\u{8}\u{c}\n\r\t\u{b}", &controls, "\u{7f}\u{80}\u{2028}\u{feff}\u{fffd}\u{1f600}</script>"]
        {
            check(json!([{ "type": "text", "text": text }]), true);
            check(json!([{ "type": "reasoning", "text": text }, { "type": "text", "text": text }]), true);
            check(json!([{ "type": "tool-call", "id": text, "name": text, "arguments": text }]), true);
            let content = json!([{ "type": "text", "text": text }, { "type": "text", "text": text }]);
            for is_error in [true, false] {
                check(
                    json!([{ "type": "tool-result", "callId": text, "content": content, "isError": is_error }]),
                    true,
                );
            }
        }
        check(json!([]), true);
        check(json!([{ "type": "tool-result", "callId": "1", "content": [], "isError": false }]), true);
    }

    #[test]
    fn whatever_else_is_in_a_message_is_put_in_order() {
        let opaque = json!({ "b": 1.0, "a": [1e3, null, { "z": "\u{e4}", "y": 0.1 }] });
        check(json!([{ "type": "text", "text": "a", "opaque": opaque }]), false);
        check(json!([{ "type": "text", "text": "a", "cache": "ephemeral" }]), false);
        check(json!([{ "type": "reasoning", "text": "a", "opaque": opaque }]), false);
        check(json!([{ "type": "tool-call", "id": "1", "name": "n", "arguments": "", "opaque": opaque }]), false);
        check(json!([{ "type": "image", "data": "AA==", "mimeType": "image/png" }]), false);
        check(json!([{ "type": "video", "z": 1, "a": opaque }]), false);
        let result = |more: Value| {
            let mut result = json!({ "type": "tool-result", "callId": "1", "content": [], "isError": false });
            result.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            json!([result])
        };
        check(result(json!({ "cache": "ephemeral" })), false);
        check(result(json!({ "content": [{ "type": "image", "url": "u" }] })), false);
        check(result(json!({ "content": [{ "type": "video", "b": 1, "a": 2 }] })), false);
    }
}
