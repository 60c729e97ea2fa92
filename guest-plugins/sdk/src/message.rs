//! Making and reading messages and blocks.

use crate::{ContentBlock, Message, ResultBlock, Role, Sampling, TextBlock};

impl ContentBlock {
    /// A plain text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), cache: None, opaque: None })
    }
}

impl Message {
    /// A message of the user with one text block.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, content: vec![ContentBlock::text(text)] }
    }

    /// A message of the assistant with one text block.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: vec![ContentBlock::text(text)] }
    }

    /// The text blocks, joined by a newline; tool results and reasoning are not text.
    pub fn to_text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|block| match block {
                ContentBlock::Text(block) => Some(block.text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }
}

impl ResultBlock {
    /// A plain text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

impl Default for Sampling {
    /// Everything as the provider likes it.
    fn default() -> Self {
        Self {
            temperature: None,
            max_tokens: None,
            stop: Vec::new(),
            tool_choice: None,
            reasoning_effort: None,
            extra: Vec::new(),
        }
    }
}
