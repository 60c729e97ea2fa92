//! The policy: the last tool call may only read below `src/`, and nothing that is looked at may hold a private key. The history comes as
//! JSON, since that is how it is handed to a process, to an Extism plugin and to a script.

#![no_std]

extern crate alloc;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;

/// What may not be in a text.
pub const SECRET: &str = "BEGIN PRIVATE KEY";

/// How much of the history the policy looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// The last two messages: the call and its result.
    Last,
    /// Every text.
    All,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Vec<Block<'a>>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Block<'a> {
    Text {
        #[serde(borrow)]
        text: Cow<'a, str>,
    },
    ToolCall {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        arguments: Cow<'a, str>,
    },
    ToolResult {
        #[serde(borrow)]
        content: Vec<Block<'a>>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
}

impl Block<'_> {
    fn is_clean(&self) -> bool {
        match self {
            Block::Text { text } => !text.contains(SECRET),
            Block::ToolResult { content } => content.iter().all(Block::is_clean),
            Block::ToolCall { .. } | Block::Other => true,
        }
    }
}

/// Whether the request may go out.
///
/// # Errors
/// When the history or the arguments are no JSON of the expected form.
pub fn allows(history: &[u8], reads: Reads) -> Result<bool, serde_json::Error> {
    let messages: Vec<Message> = serde_json::from_slice(history)?;
    let looked_at = match reads {
        Reads::Last => &messages[messages.len().saturating_sub(2)..],
        Reads::All => &messages[..],
    };
    if !looked_at.iter().flat_map(|message| &message.content).all(Block::is_clean) {
        return Ok(false);
    }
    let last = messages[messages.len().saturating_sub(2)..].iter().flat_map(|message| &message.content);
    for block in last {
        if let Block::ToolCall { name, arguments } = block {
            let arguments: Arguments = serde_json::from_str(arguments)?;
            return Ok(name == "read" && normalised(&arguments.path).starts_with("src/"));
        }
    }
    Ok(false)
}

/// A relative path without `.` and `..`.
fn normalised(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
