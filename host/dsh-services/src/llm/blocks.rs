//! Whole blocks as the chunks of a stream, for the models that live in this process.

use dsh_seam::message::{BlockType, Chunk, ContentBlock, ToolCall};

/// `block-start`, deltas of at most `size` characters, `block-end`; none: all in one delta.
pub(super) fn text(index: u32, text: &str, size: Option<usize>) -> Vec<Chunk> {
    let delta = |text: String| Chunk::TextDelta { index, text };
    block(index, BlockType::Text, pieces(text, size).into_iter().map(delta), ContentBlock::text(text))
}

/// The same for reasoning.
pub(super) fn reasoning(index: u32, text: &str, size: Option<usize>) -> Vec<Chunk> {
    let delta = |text: String| Chunk::ReasoningDelta { index, text };
    block(index, BlockType::Reasoning, pieces(text, size).into_iter().map(delta), ContentBlock::reasoning(text))
}

/// The same for a call; its first delta has the name, and is there even when there are no arguments.
pub(super) fn tool_call(index: u32, call: ToolCall, size: Option<usize>) -> Vec<Chunk> {
    let mut parts = pieces(&call.arguments, size);
    if parts.is_empty() {
        parts.push(String::new());
    }
    let (id, name) = (call.id.clone(), call.name.clone());
    let deltas = parts.into_iter().enumerate().map(|(at, arguments_delta)| Chunk::ToolCallDelta {
        index,
        id: id.clone(),
        name: (at == 0).then(|| name.clone()),
        arguments_delta,
    });
    block(index, BlockType::ToolCall, deltas, ContentBlock::ToolCall(call.clone()))
}

fn block(index: u32, block_type: BlockType, deltas: impl Iterator<Item = Chunk>, block: ContentBlock) -> Vec<Chunk> {
    let mut chunks = vec![Chunk::BlockStart { index, block_type }];
    chunks.extend(deltas);
    chunks.push(Chunk::BlockEnd { index, block });
    chunks
}

fn pieces(text: &str, size: Option<usize>) -> Vec<String> {
    let Some(size) = size else {
        return if text.is_empty() { vec![] } else { vec![text.to_owned()] };
    };
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(size.max(1)).map(|piece| piece.iter().collect()).collect()
}
