//! How much a value carries between host and guest: the bytes of its texts and byte lists, which are what is copied. Numbers, flags,
//! names of cases and handles do not count.

use std::sync::Arc;

use crate::bindings::dsh::agent::{agent_types, agents};
use crate::bindings::dsh::llm::{llm_types, model};
use crate::bindings::dsh::plugin::runtime;
use crate::bindings::dsh::session::session_types;
use crate::bindings::dsh::tools::{approval, process, tool_types};
use crate::bindings::exports::dsh::system_prompt::section;
use crate::bindings::exports::dsh::tools::guard;

/// A value that crosses between host and guest.
pub(crate) trait Carried {
    /// Bytes of its texts and byte lists.
    fn bytes(&self) -> usize;
}

impl Carried for str {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Carried for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Carried for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl<T: Carried + ?Sized> Carried for &T {
    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

impl<T: Carried> Carried for Option<T> {
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, Carried::bytes)
    }
}

impl<T: Carried, E: Carried> Carried for Result<T, E> {
    fn bytes(&self) -> usize {
        match self {
            Ok(value) => value.bytes(),
            Err(error) => error.bytes(),
        }
    }
}

impl<A: Carried, B: Carried> Carried for (A, B) {
    fn bytes(&self) -> usize {
        self.0.bytes() + self.1.bytes()
    }
}

impl<A: Carried, B: Carried, C: Carried> Carried for (A, B, C) {
    fn bytes(&self) -> usize {
        self.0.bytes() + self.1.bytes() + self.2.bytes()
    }
}

/// What the host holds behind a handle is not copied.
impl<T> Carried for Arc<T> {
    fn bytes(&self) -> usize {
        0
    }
}

macro_rules! nothing {
    ($($ty:ty),* $(,)?) => {$(
        impl Carried for $ty {
            fn bytes(&self) -> usize {
                0
            }
        }
    )*};
}

nothing!((), u32, u64, agent_types::Recovery, approval::Reply, llm_types::Usage);

macro_rules! records {
    ($($ty:ty { $($field:ident),* $(,)? })*) => {$(
        impl Carried for $ty {
            fn bytes(&self) -> usize {
                0 $(+ self.$field.bytes())*
            }
        }
        lists!($ty);
    )*};
}

macro_rules! lists {
    ($($ty:ty),* $(,)?) => {$(
        impl Carried for Vec<$ty> {
            fn bytes(&self) -> usize {
                self.iter().map(Carried::bytes).sum()
            }
        }
    )*};
}

// Not for any `T`: a list of bytes counts by its length.
lists!(String, (String, String), llm_types::ContentBlock, llm_types::ResultBlock);

records! {
    llm_types::Failure { code, message }
    llm_types::TextBlock { text, opaque }
    llm_types::ReasoningBlock { text, opaque }
    llm_types::ToolCall { id, name, arguments, opaque }
    llm_types::ImageBlock { source, mime_type, opaque }
    llm_types::ToolResult { call_id, content }
    llm_types::Message { content }
    llm_types::ToolSchema { name, description, parameters }
    llm_types::Sampling { stop, tool_choice, reasoning_effort, extra }
    model::GenerateRequest { model, system, messages, tools, sampling }
    model::GenerateResponse { message, finish }
    agent_types::CallOutline { id, name }
    agent_types::ResultOutline { call_id }
    agent_types::MessageOutline { tool_calls, tool_results }
    agent_types::RequestFailure { failure }
    agent_types::StepSummary { finish }
    agents::Task { prompt, model, tools, system }
    agents::Report { agent, session, text, code, message }
    tool_types::Definition { name, description, parameters }
    tool_types::ToolInfo { name, plugin }
    tool_types::Outcome { content, code }
    tool_types::Question { title, detail, remember }
    tool_types::PathGrant { path }
    tool_types::Profile { paths, denied, network, env }
    process::Command { program, args, cwd, env, stdin }
    process::Exit { stdout, stderr }
    session_types::Entry { kind, data }
    runtime::AgentInfo { agent, session, lineage }
    section::Part { name, text }
}

impl Carried for llm_types::ImageSource {
    fn bytes(&self) -> usize {
        match self {
            Self::Url(url) => url.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl Carried for llm_types::ResultBlock {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Other(text) => text.len(),
            Self::Image(image) => image.bytes(),
        }
    }
}

impl Carried for llm_types::ContentBlock {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(block) => block.bytes(),
            Self::Reasoning(block) => block.bytes(),
            Self::ToolCall(call) => call.bytes(),
            Self::ToolResult(result) => result.bytes(),
            Self::Image(image) => image.bytes(),
            Self::Other(json) => json.len(),
        }
    }
}

impl Carried for llm_types::FinishReason {
    fn bytes(&self) -> usize {
        match self {
            Self::Error(failure) => failure.bytes(),
            Self::Other(text) => text.len(),
            Self::Stop | Self::ToolCalls | Self::MaxTokens | Self::Aborted | Self::Refused => 0,
        }
    }
}

impl Carried for agent_types::Decision {
    fn bytes(&self) -> usize {
        match self {
            Self::Stop => 0,
            Self::OutOfBudget(text) => text.len(),
            Self::Proceed(text) => text.bytes(),
        }
    }
}

impl Carried for tool_types::NetworkPolicy {
    fn bytes(&self) -> usize {
        match self {
            Self::Hosts(hosts) => hosts.bytes(),
            Self::Closed | Self::Open => 0,
        }
    }
}

impl Carried for guard::Verdict {
    fn bytes(&self) -> usize {
        match self {
            Self::Abstain => 0,
            Self::Ask(question) => question.bytes(),
            Self::Deny(why) => why.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_byte_lists_count_and_nothing_else_does() {
        let call = llm_types::ToolCall {
            id: "a".into(),
            name: "echo".into(),
            arguments: "{}".into(),
            opaque: Some("null".into()),
        };
        assert_eq!(call.bytes(), 11);
        let image = llm_types::ImageBlock {
            source: llm_types::ImageSource::Bytes(vec![0; 100]),
            mime_type: Some("image/png".into()),
            cache: None,
            opaque: None,
        };
        let message = llm_types::Message {
            role: llm_types::Role::User,
            content: vec![llm_types::ContentBlock::Image(image), llm_types::ContentBlock::ToolCall(call)],
        };
        assert_eq!(message.bytes(), 100 + 9 + 11);
        let answer: Result<Vec<llm_types::Message>, llm_types::Failure> = Ok(vec![message]);
        assert_eq!(answer.bytes(), 120);
        assert_eq!((7_u32, (), Arc::new(String::from("behind a handle"))).bytes(), 0);
    }
}
