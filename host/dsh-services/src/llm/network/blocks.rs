//! The blocks of an answer under way, and the chunks that they make.

use dsh_seam::message::{BlockType, Chunk, ContentBlock, FinishReason, ReasoningBlock, TextBlock, ToolCall, Usage};
use dsh_seam::{Failure, ModelFailure};
use serde_json::{Value, json};

use super::error::malformed;

/// The most blocks of one answer: far more calls than any batch runs, few enough to look for one of them.
pub(in super::super) const MAX_BLOCKS: u32 = 4_096;

/// As much as is kept of a reason to stop that nobody knows.
const MAX_WORD_CHARS: usize = 200;

/// The blocks of one answer. Each gets an index of its own when it is opened, and stays open until the provider closes it.
#[derive(Default)]
pub(in super::super) struct Blocks {
    next_index: u32,
    open: Vec<(u32, ContentBlock)>,
    calls: usize,
    too_many: bool,
    out: Vec<Chunk>,
}

impl Blocks {
    /// Opens a text.
    pub fn open_text(&mut self) -> u32 {
        self.open(BlockType::Text, ContentBlock::Text(TextBlock { text: String::new(), cache: None, opaque: None }))
    }

    /// Opens a reasoning.
    pub fn open_reasoning(&mut self) -> u32 {
        let block = ReasoningBlock { text: String::new(), opaque: None };
        self.open(BlockType::Reasoning, ContentBlock::Reasoning(block))
    }

    /// Opens a tool call; what is known of it comes with [`Blocks::call`].
    pub fn open_call(&mut self) -> u32 {
        self.calls += 1;
        let call = ToolCall { id: String::new(), name: String::new(), arguments: String::new(), opaque: None };
        self.open(BlockType::ToolCall, ContentBlock::ToolCall(call))
    }

    fn open(&mut self, block_type: BlockType, block: ContentBlock) -> u32 {
        let index = self.next_index;
        if self.is_full() {
            // No block has this number, so that nothing comes of what follows.
            self.overflow();
            return index;
        }
        self.next_index += 1;
        self.open.push((index, block));
        self.out.push(Chunk::BlockStart { index, block_type });
        index
    }

    /// An open block.
    pub fn block(&mut self, index: u32) -> Option<&mut ContentBlock> {
        self.open.iter_mut().find(|(open, _)| *open == index).map(|(_, block)| block)
    }

    /// More of a text or a reasoning.
    pub fn add(&mut self, index: u32, added: &str) {
        if added.is_empty() {
            return;
        }
        let chunk = match self.block(index) {
            Some(ContentBlock::Text(block)) => {
                block.text.push_str(added);
                Chunk::TextDelta { index, text: added.to_owned() }
            }
            Some(ContentBlock::Reasoning(block)) => {
                block.text.push_str(added);
                Chunk::ReasoningDelta { index, text: added.to_owned() }
            }
            _ => return,
        };
        self.out.push(chunk);
    }

    /// More of a tool call. Of several ids and names the first holds.
    pub fn call(&mut self, index: u32, id: &str, name: &str, arguments: &str) {
        let Some(ContentBlock::ToolCall(call)) = self.block(index) else { return };
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        let named = call.name.is_empty() && !name.is_empty();
        if named {
            call.name = name.to_owned();
        }
        call.arguments.push_str(arguments);
        if named || !arguments.is_empty() {
            let id = call.id.clone();
            let name = named.then(|| name.to_owned());
            self.out.push(Chunk::ToolCallDelta { index, id, name, arguments_delta: arguments.to_owned() });
        }
    }

    /// Keeps what must travel back with a block.
    pub fn keep(&mut self, index: u32, opaque: Value) {
        match self.block(index) {
            Some(ContentBlock::Text(block)) => block.opaque = Some(opaque),
            Some(ContentBlock::Reasoning(block)) => block.opaque = Some(opaque),
            Some(ContentBlock::ToolCall(call)) => call.opaque = Some(opaque),
            _ => {}
        }
    }

    /// What only the provider understands, as a whole: it travels back as it was kept.
    pub fn other(&mut self, opaque: Value) {
        let block = ContentBlock::Other(json!({ "type": "provider-item", "opaque": opaque }));
        let index = self.open(BlockType::Other, block);
        self.close(index);
    }

    /// The provider says that a block is whole.
    pub fn close(&mut self, index: u32) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == index) {
            let (index, block) = self.open.remove(at);
            self.out.push(Chunk::BlockEnd { index, block });
        }
    }

    /// The provider says that the answer is whole, and with it every block.
    pub fn close_all(&mut self) {
        let ends = self.open.drain(..).map(|(index, block)| Chunk::BlockEnd { index, block });
        self.out.extend(ends);
    }

    /// What was counted.
    pub fn usage(&mut self, usage: Usage) {
        self.out.push(Chunk::Usage { usage });
    }

    /// The last chunk.
    pub fn finish(&mut self, reason: FinishReason) {
        let reason = match (self.check(), reason) {
            (Err(ModelFailure { code, message, .. }), _) => FinishReason::Error(Failure { code, message }),
            (Ok(()), FinishReason::Other(word)) => FinishReason::Other(word.chars().take(MAX_WORD_CHARS).collect()),
            (Ok(()), reason) => reason,
        };
        self.out.push(Chunk::Finish { reason });
    }

    /// Whether there was no block at all.
    pub fn is_empty(&self) -> bool {
        self.next_index == 0
    }

    /// Whether there is room for no other block.
    pub fn is_full(&self) -> bool {
        self.next_index == MAX_BLOCKS
    }

    /// There was no room for something.
    pub fn overflow(&mut self) {
        self.too_many = true;
    }

    /// Whether there was room for everything.
    pub fn check(&self) -> Result<(), ModelFailure> {
        if self.too_many { Err(malformed(&format!("more than {MAX_BLOCKS} blocks"))) } else { Ok(()) }
    }

    /// Whether a tool is called.
    pub fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// The chunks that are ready.
    pub fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_without_end_are_a_failure() {
        let mut blocks = Blocks::default();
        for _ in 0..=MAX_BLOCKS {
            let index = blocks.open_call();
            blocks.call(index, "c", "t", "{}");
            blocks.close(index);
        }
        blocks.finish(FinishReason::ToolCalls);
        let out = blocks.take();
        let ends = out.iter().filter(|chunk| matches!(chunk, Chunk::BlockEnd { .. })).count();
        assert_eq!(ends, MAX_BLOCKS as usize);
        let message = "the provider sent more than 4096 blocks".to_owned();
        let failure = Failure { code: "malformed-response".into(), message };
        assert_eq!(out.last(), Some(&Chunk::Finish { reason: FinishReason::Error(failure) }));
    }

    #[test]
    fn a_reason_that_nobody_knows_is_short() {
        let mut blocks = Blocks::default();
        blocks.finish(FinishReason::Other("ä".repeat(MAX_WORD_CHARS + 1)));
        let reason = FinishReason::Other("ä".repeat(MAX_WORD_CHARS));
        assert_eq!(blocks.take(), [Chunk::Finish { reason }]);
    }
}
