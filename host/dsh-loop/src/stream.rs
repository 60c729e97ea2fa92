//! Puts a streamed answer together, block by block.

use std::collections::BTreeMap;

use dsh_seam::failure::ModelFailure;
use dsh_seam::message::{
    BlockType, Chunk, ContentBlock, FinishReason, Message, ReasoningBlock, TextBlock, ToolCall, Usage,
};
use serde_json::Value;

/// Bytes of one answer, its pieces and its whole blocks counted: no model says so much, an endless stream would.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// What a block takes, and what a count takes, however little they say: an endless stream may say nothing at all.
const BLOCK_BYTES: usize = 256;
const COUNT_BYTES: usize = 64;
/// Bytes of an interrupted answer that are kept as a message; the pieces are in the log in any case.
const MAX_INTERRUPTED_BYTES: usize = 4 * 1024 * 1024;

/// The answer so far.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    bytes: usize,
    blocks: BTreeMap<u32, Block>,
    usage: Option<Usage>,
    finish: Option<FinishReason>,
}

#[derive(Debug)]
struct Block {
    content: ContentBlock,
    closed: bool,
}

impl Block {
    fn open(kind: BlockType) -> Self {
        let content = match kind {
            BlockType::Reasoning => ContentBlock::Reasoning(ReasoningBlock::default()),
            BlockType::ToolCall => ContentBlock::ToolCall(ToolCall {
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
                opaque: None,
            }),
            BlockType::Text | BlockType::Image | BlockType::Other => ContentBlock::Text(TextBlock::default()),
        };
        Self { content, closed: false }
    }
}

impl Assembly {
    /// Takes the next chunk.
    pub(crate) fn push(&mut self, chunk: &Chunk) {
        self.bytes = self.bytes.saturating_add(bytes_of(chunk));
        match chunk {
            Chunk::BlockStart { index, block_type } => {
                self.blocks.entry(*index).or_insert_with(|| Block::open(*block_type));
            }
            Chunk::TextDelta { index, text } => {
                if let ContentBlock::Text(block) = &mut self.block(*index, BlockType::Text).content {
                    block.text.push_str(text);
                }
            }
            Chunk::ReasoningDelta { index, text } => {
                if let ContentBlock::Reasoning(block) = &mut self.block(*index, BlockType::Reasoning).content {
                    block.text.push_str(text);
                }
            }
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                if let ContentBlock::ToolCall(call) = &mut self.block(*index, BlockType::ToolCall).content {
                    if !id.is_empty() {
                        call.id.clone_from(id);
                    }
                    if let Some(name) = name {
                        call.name.clone_from(name);
                    }
                    call.arguments.push_str(arguments_delta);
                }
            }
            Chunk::BlockEnd { index, block } => {
                self.blocks.insert(*index, Block { content: block.clone(), closed: true });
            }
            Chunk::Usage { usage } => self.usage = Some(*usage),
            Chunk::Finish { reason } => self.finish = Some(reason.clone()),
        }
    }

    fn block(&mut self, index: u32, kind: BlockType) -> &mut Block {
        self.blocks.entry(index).or_insert_with(|| Block::open(kind))
    }

    /// Whether it is more than any answer may be.
    pub(crate) fn is_too_large(&self) -> bool {
        self.bytes > MAX_ANSWER_BYTES
    }

    /// The failure of an answer that is.
    pub(crate) fn too_large() -> ModelFailure {
        let problem = format!("the answer is longer than {MAX_ANSWER_BYTES} bytes and was cut off");
        ModelFailure::new("malformed-response", problem)
    }

    /// What the provider counted so far.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Whether anything has arrived that a reader may have seen: text, reasoning, an image. A call in pieces shows nothing and runs nothing.
    pub(crate) fn has_output(&self) -> bool {
        self.blocks.values().any(|block| match &block.content {
            ContentBlock::Text(block) => !block.text.is_empty(),
            ContentBlock::Reasoning(block) => !block.text.is_empty(),
            ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) => false,
            _ => true,
        })
    }

    /// The whole answer, once the stream is over. A stream without finish counts only when nothing in it is open or to be run.
    pub(crate) fn finish(&self) -> Result<(Message, FinishReason), ModelFailure> {
        let calls = self.blocks.values().any(|block| matches!(block.content, ContentBlock::ToolCall(_)));
        let open = self.blocks.values().any(|block| !block.closed);
        let finish = match &self.finish {
            Some(FinishReason::Error(failure)) => {
                return Err(ModelFailure::new(failure.code.clone(), failure.message.clone()));
            }
            Some(FinishReason::Aborted) => return Err(ModelFailure::new("aborted", "the provider aborted its answer")),
            Some(finish) => finish.clone(),
            None if open || calls => {
                return Err(ModelFailure::new("stream-closed", "the stream ended in the middle of the answer"));
            }
            None => FinishReason::Stop,
        };
        let cut = finish == FinishReason::MaxTokens;
        let content = self
            .blocks
            .values()
            .map(|block| &block.content)
            .filter(|block| !(cut && matches!(block, ContentBlock::ToolCall(_))))
            .cloned()
            .collect();
        Ok((Message::assistant(content), finish))
    }

    /// What stays of an answer that was cut by an abort: text and reasoning, no calls. None when nothing visible had arrived.
    pub(crate) fn interrupted(&self) -> Option<Vec<ContentBlock>> {
        let mut left = MAX_INTERRUPTED_BYTES;
        let mut kept = |text: &str| {
            let kept = &text[..text.floor_char_boundary(left)];
            left -= kept.len();
            (!kept.is_empty()).then(|| kept.to_owned())
        };
        let visible = |block: &Block| match &block.content {
            ContentBlock::Text(block) => {
                Some(ContentBlock::Text(TextBlock { text: kept(&block.text)?, ..block.clone() }))
            }
            ContentBlock::Reasoning(block) => {
                Some(ContentBlock::Reasoning(ReasoningBlock { text: kept(&block.text)?, ..block.clone() }))
            }
            _ => None,
        };
        let content: Vec<ContentBlock> = self.blocks.values().filter_map(visible).collect();
        (!content.is_empty()).then_some(content)
    }
}

fn bytes_of(chunk: &Chunk) -> usize {
    match chunk {
        Chunk::TextDelta { text, .. } | Chunk::ReasoningDelta { text, .. } => text.len(),
        Chunk::ToolCallDelta { id, name, arguments_delta, .. } => {
            id.len() + name.as_ref().map_or(0, String::len) + arguments_delta.len()
        }
        Chunk::BlockEnd { block, .. } => match block {
            ContentBlock::Text(block) => block.text.len() + opaque_bytes(block.opaque.as_ref()),
            ContentBlock::Reasoning(block) => block.text.len() + opaque_bytes(block.opaque.as_ref()),
            ContentBlock::ToolCall(call) => {
                call.id.len() + call.name.len() + call.arguments.len() + opaque_bytes(call.opaque.as_ref())
            }
            ContentBlock::Other(value) => opaque_bytes(Some(value)),
            ContentBlock::Image(_) | ContentBlock::ToolResult(_) => 0,
        },
        Chunk::BlockStart { .. } => BLOCK_BYTES,
        Chunk::Usage { .. } => COUNT_BYTES,
        Chunk::Finish { reason: FinishReason::Other(word) } => COUNT_BYTES + word.len(),
        Chunk::Finish { reason: FinishReason::Error(failure) } => COUNT_BYTES + failure.message.len(),
        Chunk::Finish { .. } => COUNT_BYTES,
    }
}

/// What a block carries for its provider.
fn opaque_bytes(value: Option<&Value>) -> usize {
    value.map_or(0, |value| value.to_string().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn assembled(chunks: serde_json::Value) -> Assembly {
        let chunks: Vec<Chunk> = serde_json::from_value(chunks).expect("chunks");
        let mut assembly = Assembly::default();
        chunks.iter().for_each(|chunk| assembly.push(chunk));
        assembly
    }

    fn check(chunks: serde_json::Value, expect: Result<(serde_json::Value, &str), &str>) {
        let got = assembled(chunks)
            .finish()
            .map(|(message, finish)| (json!(message.content), json!(finish).to_string()))
            .map_err(|failure| failure.code);
        assert_eq!(got, expect.map(|(content, finish)| (content, json!(finish).to_string())).map_err(str::to_owned));
    }

    #[test]
    fn a_whole_answer() {
        check(
            json!([{"type": "block-start", "index": 0, "blockType": "text"}, {"type": "text-delta", "index": 0, "text": "a"},
                {"type": "block-end", "index": 0, "block": {"type": "text", "text": "a"}}, {"type": "finish", "reason": "stop"}]),
            Ok((json!([{"type": "text", "text": "a"}]), "stop")),
        );
    }

    #[test]
    fn a_stream_without_finish_counts_only_when_nothing_is_open() {
        let text = json!({"type": "block-end", "index": 0, "block": {"type": "text", "text": "a"}});
        let call = json!({"type": "block-end", "index": 1, "block": {"type": "tool-call", "id": "1", "name": "t", "arguments": ""}});
        check(json!([text]), Ok((json!([{"type": "text", "text": "a"}]), "stop")));
        check(json!([text, call]), Err("stream-closed"));
        check(json!([{"type": "text-delta", "index": 0, "text": "a"}]), Err("stream-closed"));
    }

    #[test]
    fn a_cut_answer_loses_its_calls() {
        let call = json!({"type": "block-end", "index": 1, "block": {"type": "tool-call", "id": "1", "name": "t", "arguments": ""}});
        check(json!([call, {"type": "finish", "reason": "max-tokens"}]), Ok((json!([]), "max-tokens")));
    }

    #[test]
    fn errors_in_the_stream_are_failures() {
        check(json!([{"type": "finish", "reason": {"error": {"code": "server", "message": "m"}}}]), Err("server"));
        check(json!([{"type": "finish", "reason": "aborted"}]), Err("aborted"));
    }

    #[test]
    fn an_endless_answer_of_nothing_is_noticed() {
        let most = |chunk: &dyn Fn(u32) -> Chunk| {
            let mut assembly = Assembly::default();
            (0..)
                .take_while(|at| {
                    assembly.push(&chunk(*at));
                    !assembly.is_too_large()
                })
                .count()
        };
        assert_eq!(most(&|index| Chunk::BlockStart { index, block_type: BlockType::ToolCall }), 131_072);
        assert_eq!(most(&|input| Chunk::Usage { usage: Usage { input, ..Usage::default() } }), 524_288);
    }

    #[test]
    fn an_endless_answer_is_noticed_and_cut() {
        let mut assembly = Assembly::default();
        let piece = Chunk::TextDelta { index: 0, text: "\u{e4}".repeat(1024 * 1024) };
        (0..16).for_each(|_| assembly.push(&piece));
        assert!(!assembly.is_too_large());
        assembly.push(&piece);
        assert!(assembly.is_too_large());
        let kept = assembly.interrupted().expect("something arrived");
        assert_eq!(kept[0].as_text().map(str::len), Some(MAX_INTERRUPTED_BYTES));
    }

    #[test]
    fn output_is_what_a_reader_may_have_seen() {
        let check = |chunks, expect: bool| assert_eq!(assembled(chunks).has_output(), expect);
        check(json!([]), false);
        check(
            json!([{"type": "block-start", "index": 0, "blockType": "text"}, {"type": "text-delta", "index": 0, "text": ""}]),
            false,
        );
        check(json!([{"type": "text-delta", "index": 0, "text": " "}]), true);
        check(json!([{"type": "reasoning-delta", "index": 0, "text": "hm"}]), true);
        check(json!([{"type": "block-end", "index": 0, "block": {"type": "text", "text": "a"}}]), true);
        check(json!([{"type": "block-end", "index": 0, "block": {"type": "image", "url": "https://a"}}]), true);
        check(json!([{"type": "tool-call-delta", "index": 0, "id": "1", "name": "t", "argumentsDelta": "{"}]), false);
    }

    #[test]
    fn an_interrupted_answer_keeps_what_was_visible() {
        let assembly = assembled(
            json!([{"type": "reasoning-delta", "index": 0, "text": "hm"}, {"type": "text-delta", "index": 1, "text": "par"},
            {"type": "tool-call-delta", "index": 2, "id": "1", "name": "t", "argumentsDelta": "{"}]),
        );
        assert_eq!(
            json!(assembly.interrupted()),
            json!([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "par"}])
        );
        assert_eq!(assembled(json!([{"type": "block-start", "index": 0, "blockType": "text"}])).interrupted(), None);
    }
}
