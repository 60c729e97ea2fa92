//! The plugin `permission`: a guard that allows, asks or denies by rules. It judges the final call, after every rewrite.

mod arguments;
mod command;
mod rules;
mod words;

use dsh_sdk::{Failure, Guard, Plugin, Question, Step, ToolCall, ToolInfo, Verdict};
use rules::{Action, Config, Judgement, Rules};

struct Permission {
    rules: Rules,
}

impl Plugin for Permission {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { rules: Rules::new(config).map_err(Failure::invalid_config)? })
    }
}

impl Guard for Permission {
    fn check(&self, _at: Step, call: &ToolCall, tool: &ToolInfo) -> Result<Verdict, Failure> {
        let judgement = self.rules.judge(&tool.name, &call.arguments).map_err(Failure::invalid_argument)?;
        Ok(match judgement.action {
            // A guard cannot allow: it does not stand in the way.
            Action::Allow => Verdict::Abstain,
            Action::Ask => Verdict::Ask(question(&judgement, &tool.name)),
            Action::Deny => Verdict::Deny(denial(&judgement, &tool.name)),
        })
    }
}

fn question(judgement: &Judgement, tool: &str) -> Question {
    Question {
        title: format!("Allow `{tool}`?"),
        detail: format!("{} of `permission` asks{}", judgement.reason, judgement.about()),
        remember: Some(judgement.remember_key(tool)),
    }
}

fn denial(judgement: &Judgement, tool: &str) -> String {
    format!(
        "`permission` denies this call of `{tool}`: {} says deny{}{}. Do not look for a way around it; choose another way or ask the user",
        judgement.reason,
        judgement.about(),
        judgement.hint()
    )
}

dsh_sdk::export!(Permission: guard, configure);

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_sdk::Annotations;

    fn verdict(tool: &str, arguments: &str) -> String {
        let config = r#"{"default":"deny","rules":[
            {"tool":"read","action":"allow"},
            {"tool":"*","path":"secrets/**","action":"deny"},
            {"tool":"write","action":"ask"}]}"#;
        let plugin = Permission::new(serde_json::from_str(config).expect("a configuration")).expect("a plugin");
        let annotations = Annotations {
            read_only: false,
            destructive: false,
            idempotent: false,
            open_world: false,
            parallel_safe: false,
        };
        let info = ToolInfo { name: tool.to_owned(), plugin: "files".to_owned(), annotations };
        let call =
            ToolCall { id: "c".to_owned(), name: tool.to_owned(), arguments: arguments.to_owned(), opaque: None };
        match Guard::check(&plugin, Step { turn: 1, step: 1 }, &call, &info).expect("a verdict") {
            Verdict::Abstain => "abstain".to_owned(),
            Verdict::Deny(text) => format!("deny: {text}"),
            Verdict::Ask(question) => {
                format!("ask: {} | {} | {:?}", question.title, question.detail, question.remember)
            }
        }
    }

    #[test]
    fn verdicts() {
        assert_eq!(verdict("read", r#"{"path":"a"}"#), "abstain");
        assert_eq!(
            verdict("read", r#"{"path":"./secrets/../secrets/key"}"#),
            "deny: `permission` denies this call of `read`: rule 2 (tool `*`, path `secrets/**`) says deny, path `secrets/key`. Do not look \
             for a way around it; choose another way or ask the user"
        );
        assert_eq!(
            verdict("write", r#"{"path":"a"}"#),
            "ask: Allow `write`? | rule 3 (tool `write`) of `permission` asks, path `a` | Some(\"write path \\\"a\\\"\")"
        );
        assert_eq!(
            verdict("shell", r#"{"command":"ls"}"#),
            "deny: `permission` denies this call of `shell`: no rule matches and the default says deny, command `ls`. Do not look for a \
             way around it; choose another way or ask the user"
        );
    }
}
