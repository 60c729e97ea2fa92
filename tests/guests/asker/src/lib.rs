//! A guard with a fixed verdict, and a tool that asks a person by the capability `approval`.

use dsh_sdk::approval::{Reply, ask};
use dsh_sdk::{
    Call, Failure, Guard, Outcome, Plugin, Question, Step, Tool, ToolCall, ToolInfo, ToolProvider, Verdict, tool,
};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    #[default]
    Abstain,
    Ask,
    Deny,
}

/// The verdict.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    verdict: Answer,
    /// Only for calls of this tool.
    tool: Option<String>,
    /// Only for calls whose arguments hold this text.
    arguments: Option<String>,
    /// The question's key for `allow-always`.
    remember: Option<String>,
    /// The question's detail, or the reason of the denial.
    text: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Args {
    /// The question.
    title: String,
    /// What an answer "always" is kept for.
    remember: Option<String>,
}

struct Asker {
    config: Config,
}

impl Plugin for Asker {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { config })
    }
}

impl Guard for Asker {
    fn check(&self, _at: Step, call: &ToolCall, _tool: &ToolInfo) -> Result<Verdict, Failure> {
        let config = &self.config;
        let due = config.tool.as_ref().is_none_or(|tool| *tool == call.name)
            && config.arguments.as_ref().is_none_or(|text| call.arguments.contains(text));
        if !due {
            return Ok(Verdict::Abstain);
        }
        let text = config.text.clone().unwrap_or_else(|| format!("{} {}", call.name, call.arguments));
        Ok(match config.verdict {
            Answer::Abstain => Verdict::Abstain,
            Answer::Ask => Verdict::Ask(Question {
                title: format!("May `{}` run?", call.name),
                detail: text,
                remember: config.remember.clone(),
            }),
            Answer::Deny => Verdict::Deny(text),
        })
    }
}

impl ToolProvider for Asker {
    fn tools(&self) -> Vec<Tool<'_>> {
        vec![tool("ask", "Asks a person.").typed(|args: Args, _call: &Call| {
            let reply =
                ask(&Question { title: args.title, detail: "asked by the tool".to_owned(), remember: args.remember })?;
            Ok(Outcome::text(match reply {
                Reply::AllowOnce => "allow-once",
                Reply::AllowAlways => "allow-always",
                Reply::Deny => "deny",
            }))
        })]
    }
}

dsh_sdk::export!(Asker: guard, tools, configure);
