//! How long the lists are that a guest hands over, for `list-items`. What the engine copies is bounded by bytes already (`output-mib`);
//! a list of many small things costs the host far more than its bytes, so its length is looked at before anything is made of it. A
//! list of bytes is data and has no items.

use crate::bindings::dsh::agent::{agent_types as agent, agents};
use crate::bindings::dsh::llm::{llm_types as llm, model};
use crate::bindings::dsh::tools::{process, tool_types as tools};
use crate::bindings::exports::dsh::system_prompt::section;
use crate::bindings::exports::dsh::tools::guard;

/// A value of a guest that may have lists in it.
pub(crate) trait Lists {
    /// The length of the longest of them.
    fn longest(&self) -> usize;
}

impl<T: Lists> Lists for Vec<T> {
    fn longest(&self) -> usize {
        self.iter().map(Lists::longest).fold(self.len(), usize::max)
    }
}

impl<T: Lists> Lists for Option<T> {
    fn longest(&self) -> usize {
        self.as_ref().map_or(0, Lists::longest)
    }
}

impl<T: Lists, E> Lists for Result<T, E> {
    fn longest(&self) -> usize {
        self.as_ref().map_or(0, Lists::longest)
    }
}

/// A value of the host.
impl<T> Lists for std::sync::Arc<T> {
    fn longest(&self) -> usize {
        0
    }
}

impl<A: Lists, B: Lists> Lists for (A, B) {
    fn longest(&self) -> usize {
        self.0.longest().max(self.1.longest())
    }
}

macro_rules! without_lists {
    ($($ty:ty),* $(,)?) => {$(
        impl Lists for $ty {
            fn longest(&self) -> usize {
                0
            }
        }
    )*};
}

without_lists! {
    (), String, llm::ResultBlock, llm::ToolSchema, agent::Recovery, agent::Decision, guard::Verdict, section::Part, tools::Definition,
    tools::PathGrant,
}

impl Lists for llm::ContentBlock {
    fn longest(&self) -> usize {
        match self {
            Self::ToolResult(result) => result.content.longest(),
            _ => 0,
        }
    }
}

macro_rules! lists {
    ($($ty:ty: $($field:ident),+;)*) => {$(
        impl Lists for $ty {
            fn longest(&self) -> usize {
                0 $(.max(self.$field.longest()))+
            }
        }
    )*};
}

lists! {
    llm::Message: content;
    llm::Sampling: stop, extra;
    tools::Outcome: content;
    tools::Profile: paths, denied, network, env;
    process::Command: args, env;
    model::GenerateRequest: messages, tools, sampling;
    agents::Task: prompt, tools;
}

impl Lists for tools::NetworkPolicy {
    fn longest(&self) -> usize {
        match self {
            Self::Hosts(hosts) => hosts.len(),
            Self::Closed | Self::Open => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_list_counts_wherever_it_is() {
        let result = |items: usize| {
            llm::ContentBlock::ToolResult(llm::ToolResult {
                call_id: String::new(),
                content: vec![llm::ResultBlock::Text(String::new()); items],
                is_error: false,
                cache: None,
            })
        };
        let messages = vec![
            llm::Message { role: llm::Role::User, content: vec![result(1), result(7)] },
            llm::Message { role: llm::Role::User, content: vec![] },
        ];
        assert_eq!(messages.longest(), 7);
        assert_eq!(vec![messages; 9].longest(), 9);
        assert_eq!(().longest(), 0);
    }
}
