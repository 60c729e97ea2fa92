//! A tool that counts words, and a guard that stops texts that are too long.

use dsh_sdk::{Failure, Guard, Outcome, Plugin, Step, Tool, ToolCall, ToolInfo, ToolProvider, Verdict, tool};
use schemars::JsonSchema;
use serde::Deserialize;

struct WordCount {
    max_bytes: usize,
}

/// The configuration. Its JSON Schema and its check both come from this type.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    /// The longest arguments of a call that may run, in bytes.
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
}

fn default_max_bytes() -> usize {
    10_000
}

#[derive(Deserialize, JsonSchema)]
struct Args {
    /// The text whose words are counted.
    text: String,
}

impl Plugin for WordCount {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { max_bytes: config.max_bytes })
    }
}

impl ToolProvider for WordCount {
    fn tools(&self) -> Vec<Tool<'_>> {
        let count = tool("count-words", "Counts the words of a text.").read_only().idempotent();
        vec![count.typed(|args: Args, _call| Ok(Outcome::text(args.text.split_whitespace().count().to_string())))]
    }
}

impl Guard for WordCount {
    fn check(&self, _at: Step, call: &ToolCall, _tool: &ToolInfo) -> Result<Verdict, Failure> {
        if call.arguments.len() > self.max_bytes {
            return Ok(Verdict::Deny(format!("a call may have {} bytes of arguments at most", self.max_bytes)));
        }
        Ok(Verdict::Abstain)
    }
}

dsh_sdk::export!(WordCount: tools, guard, configure);
