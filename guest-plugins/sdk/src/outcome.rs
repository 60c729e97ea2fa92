//! Making and reading an [`Outcome`].

use crate::{Answer, Outcome, ResultBlock};

/// The code of a call that a policy refused.
const DENIED: &str = "denied";
/// The code of a tool that could not do its work, when it has none of its own.
const TOOL_FAILED: &str = "tool-failed";

impl Outcome {
    /// One text block, not an error.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ResultBlock::Text(text.into())], is_error: false, code: None }
    }

    /// One text block that is an error. The host keeps a `code` that is `denied` or begins with the plugin's name and a `-`; any
    /// other becomes `tool-failed`.
    pub fn error(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self { content: vec![ResultBlock::Text(text.into())], is_error: true, code: Some(code.into()) }
    }

    /// An error with the code `tool-failed`.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::error(TOOL_FAILED, text)
    }

    /// An error with the code `denied`: a policy refused the call.
    pub fn denied(text: impl Into<String>) -> Self {
        Self::error(DENIED, text)
    }

    /// The text blocks, joined by a newline.
    pub fn to_text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|block| match block {
                ResultBlock::Text(text) => Some(text.as_str()),
                ResultBlock::Image(_) | ResultBlock::Other(_) => None,
            })
            .collect();
        texts.join("\n")
    }
}

impl From<Outcome> for Answer {
    fn from(outcome: Outcome) -> Self {
        Self::Replace(outcome)
    }
}
