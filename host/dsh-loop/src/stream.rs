//! Puts a streamed answer together, block by block.

use std::collections::BTreeMap;

use dsh_seam::failure::ModelFailure;
use dsh_seam::message::{
    BlockType, Chunk, ContentBlock, FinishReason, Message, ReasoningBlock, TextBlock, ToolCall, Usage,
};

/// The answer so far.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
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

    /// What the provider counted so far.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.usage
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
        let visible = |block: &ContentBlock| match block {
            ContentBlock::Text(block) => !block.text.is_empty(),
            ContentBlock::Reasoning(block) => !block.text.is_empty(),
            _ => false,
        };
        let content: Vec<ContentBlock> =
            self.blocks.values().map(|block| &block.content).filter(|block| visible(block)).cloned().collect();
        (!content.is_empty()).then_some(content)
    }
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
