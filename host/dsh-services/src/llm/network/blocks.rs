//! The blocks of an answer under way, and the chunks that they make.

use dsh_seam::message::{BlockType, Chunk, ContentBlock, FinishReason, ReasoningBlock, TextBlock, ToolCall, Usage};
use serde_json::{Value, json};

/// The blocks of one answer. Each gets an index of its own when it is opened, and stays open until the provider closes it.
#[derive(Default)]
pub(in super::super) struct Blocks {
    next_index: u32,
    open: Vec<(u32, ContentBlock)>,
    calls: usize,
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
        self.out.push(Chunk::Finish { reason });
    }

    /// Whether there was no block at all.
    pub fn is_empty(&self) -> bool {
        self.next_index == 0
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
