//! The smallest plugin: one tool that answers in upper case.

use dsh_sdk::{Failure, NoConfig, Outcome, Plugin, Tool, ToolProvider, tool};
use schemars::JsonSchema;
use serde::Deserialize;

struct Echo;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// The text to repeat.
    text: String,
}

impl Plugin for Echo {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl ToolProvider for Echo {
    fn tools(&self) -> Vec<Tool<'_>> {
        let echo = tool("echo", "Repeats a text in upper case.").read_only().idempotent();
        vec![echo.typed(|args: Args, _call| Ok(Outcome::text(args.text.to_uppercase())))]
    }
}

dsh_sdk::export!(Echo: tools, configure);

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_sdk::{Call, Step, ToolCall};

    fn check(text: &str, expect: &str) {
        let arguments = format!("{{\"text\":\"{text}\"}}");
        let call = ToolCall { id: "call_1".to_owned(), name: "echo".to_owned(), arguments, opaque: None };
        let outcome =
            Echo.tools()[0].run(&Call { at: Step { turn: 1, step: 1 }, call }).map(|outcome| outcome.to_text());
        assert_eq!(outcome, Ok(expect.to_owned()));
    }

    #[test]
    fn upper_case() {
        check("hello", "HELLO");
        check("", "");
        check("straße 1", "STRASSE 1");
    }
}
