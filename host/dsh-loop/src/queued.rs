//! One message on its way to an agent: what it may hold, and its size, which is measured once.

use dsh_seam::event::Source;
use dsh_seam::failure::Failure;
use dsh_seam::message::{CacheHint, ContentBlock, ImageBlock, ImageSource, TextBlock};
use serde_json::Value;

/// Bytes of one message: no model takes more.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// What each block after the first, and each cache hint, counts: about what its JSON has around it, so that many small blocks are no way
/// around the bound, and a message of one text is as large as the text.
const BLOCK_BYTES: usize = 32;

/// A message on its way to the agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Queued {
    content: Vec<ContentBlock>,
    source: Source,
    bytes: usize,
}

impl Queued {
    /// Checks a message: it needs a block that says something, of a kind that a person may send, and is not too large.
    pub fn new(content: Vec<ContentBlock>, source: Source) -> Result<Self, Failure> {
        let says_something = |block: &ContentBlock| match block {
            ContentBlock::Text(block) => !block.text.trim().is_empty(),
            _ => true,
        };
        if !content.iter().any(says_something) {
            return Err(Failure::invalid_argument("a message needs a block with more than white space"));
        }
        if content.iter().any(|block| {
            matches!(block, ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) | ContentBlock::Reasoning(_))
        }) {
            return Err(Failure::invalid_argument(
                "a message to an agent holds text, images and foreign blocks, not tool calls, tool results or reasoning",
            ));
        }
        let bytes = content.iter().map(block_bytes).sum::<usize>() + (content.len() - 1) * BLOCK_BYTES;
        if bytes > MAX_MESSAGE_BYTES {
            return Err(Failure::invalid_argument(format!(
                "the message has {bytes} bytes; at most {MAX_MESSAGE_BYTES} are taken"
            )));
        }
        Ok(Self { content, source, bytes })
    }

    /// Its blocks.
    pub fn content(&self) -> &[ContentBlock] {
        &self.content
    }

    /// Where it came from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Its size, by which it counts in a queue.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its blocks and where it came from.
    pub fn into_parts(self) -> (Vec<ContentBlock>, Source) {
        (self.content, self.source)
    }

    pub(crate) fn is_from_plugin(&self) -> bool {
        matches!(self.source, Source::Plugin { .. })
    }
}

/// Bytes of all that a block holds. Texts count as they are, foreign values as their JSON.
fn block_bytes(block: &ContentBlock) -> usize {
    let foreign = |value: &Option<Value>| value.as_ref().map_or(0, |value| value.to_string().len());
    let hint = |cache: &Option<CacheHint>| cache.map_or(0, |CacheHint::Ephemeral| BLOCK_BYTES);
    match block {
        ContentBlock::Text(TextBlock { text, cache, opaque }) => text.len() + hint(cache) + foreign(opaque),
        ContentBlock::Image(ImageBlock { mime_type, source, cache, opaque }) => {
            let (ImageSource::Url(source) | ImageSource::Data(source)) = source;
            mime_type.as_ref().map_or(0, String::len) + source.len() + hint(cache) + foreign(opaque)
        }
        ContentBlock::Other(value) => value.to_string().len(),
        // No message holds these.
        ContentBlock::Reasoning(_) | ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_seam::event::{Event, UserMessage};
    use serde_json::json;

    /// The size of a message of these blocks, or none when it is refused.
    fn bytes(blocks: serde_json::Value) -> Option<usize> {
        let content = serde_json::from_value(blocks).expect("blocks");
        match Queued::new(content, Source::User) {
            Ok(message) => Some(message.bytes()),
            Err(failure) => {
                assert_eq!(failure.code, "invalid-argument");
                None
            }
        }
    }

    #[test]
    fn a_message_that_says_nothing_or_what_only_a_model_says_is_refused() {
        let text = json!({"type": "text", "text": "a"});
        for blocks in [
            json!([]),
            json!([{"type": "text", "text": " \n\t"}]),
            json!([text, {"type": "reasoning", "text": "b"}]),
            json!([text, {"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"}]),
            json!([text, {"type": "tool-result", "callId": "c", "content": [], "isError": false}]),
        ] {
            assert_eq!(bytes(blocks.clone()), None, "{blocks}");
        }
    }

    #[test]
    fn every_part_of_every_block_counts() {
        for (blocks, expect) in [
            (json!([{"type": "text", "text": "four"}]), 4),
            (json!([{"type": "text", "text": "\n\u{e4}"}, {"type": "text", "text": "b"}]), 4 + BLOCK_BYTES),
            (json!([{"type": "text", "text": "a", "opaque": {"k": [1]}}]), 1 + r#"{"k":[1]}"#.len()),
            (json!([{"type": "text", "text": "a", "cache": "ephemeral"}]), 1 + BLOCK_BYTES),
            (json!([{"type": "image", "url": "u:v", "mimeType": "i/p"}]), 3 + 3),
            (json!([{"type": "image", "data": "abcd", "cache": "ephemeral", "opaque": 12}]), 4 + BLOCK_BYTES + 2),
            (json!([{"type": "new", "x": "y"}]), r#"{"type":"new","x":"y"}"#.len()),
            (json!([{"type": "text", "text": "a"}, {"type": "text", "text": ""}]), 1 + BLOCK_BYTES),
        ] {
            assert_eq!(bytes(blocks.clone()), Some(expect), "{blocks}");
        }
    }

    #[test]
    fn no_kind_of_block_is_a_way_around_the_bound() {
        let long = |less: usize| "x".repeat(MAX_MESSAGE_BYTES + 1 - less);
        let text = |said: &str| json!({"type": "text", "text": said});
        for (less, blocks) in [
            (0, Box::new(|it: String| json!([text(&it)])) as Box<dyn Fn(String) -> serde_json::Value>),
            (0, Box::new(|it| json!([{"type": "image", "data": it}]))),
            (0, Box::new(|it| json!([{"type": "image", "url": it}]))),
            (2, Box::new(|it| json!([{"type": "image", "url": "u:", "mimeType": it}]))),
            (3, Box::new(|it| json!([{"type": "text", "text": "a", "opaque": it}]))),
            (r#"{"type":"new","it":""}"#.len(), Box::new(|it| json!([{"type": "new", "it": it}]))),
        ] {
            assert_eq!(bytes(blocks(long(less))), None, "{}", blocks("…".into()));
            assert_eq!(bytes(blocks(long(less + 1))), Some(MAX_MESSAGE_BYTES), "{}", blocks("…".into()));
        }
        let many = |count| std::iter::repeat_n(text("a"), count).collect::<Vec<_>>();
        let most = (MAX_MESSAGE_BYTES + BLOCK_BYTES) / (BLOCK_BYTES + 1);
        assert!(bytes(many(most).into()).is_some());
        assert_eq!(bytes(many(most + 1).into()), None);
    }

    #[test]
    fn the_worst_message_fits_a_line_of_the_log() {
        // Nothing in JSON is longer than the escape of a control character.
        let content = vec![ContentBlock::text("\u{1}".repeat(MAX_MESSAGE_BYTES - 1)), ContentBlock::text("a")];
        assert!(Queued::new(content.clone(), Source::User).is_err(), "the second block counts");
        let worst = "\u{1}".repeat(MAX_MESSAGE_BYTES - 1) + "a";
        let (content, source) =
            Queued::new(vec![ContentBlock::text(worst)], Source::User).expect("is taken").into_parts();
        let line = serde_json::to_vec(&Event::UserMessage(UserMessage { content, source })).expect("JSON");
        assert!(line.len() + 1024 < dsh_services::session::MAX_LINE_BYTES, "{}", line.len());
    }
}
