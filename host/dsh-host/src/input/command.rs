//! A line of `--input jsonl`: exactly one command, and when it is to be applied.

use dsh_seam::event::ApprovalAnswer;
use dsh_seam::message::ContentBlock;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::names;

/// What a line asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// A message for the next turn.
    Send(Vec<ContentBlock>),
    /// A message for the running turn.
    Steer(Vec<ContentBlock>),
    /// Context for the next request.
    Inject(Vec<ContentBlock>),
    /// Ends the turn.
    Abort(String),
    /// Ends the turn and clears the inbox.
    Cancel {
        /// Unless this is set.
        keep_inbox: bool,
    },
    /// Ends the agent.
    Dispose,
    /// Answers a question.
    Approve {
        /// Whose; none: of any agent.
        agent: Option<String>,
        /// Which; none: the oldest that is open.
        id: Option<String>,
        /// How.
        answer: ApprovalAnswer,
    },
}

/// When a command is to be applied: once the `n`-th event of a type has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// The event's type, and behind an `@` whose it is unless it is the prompted agent's.
    pub kind: String,
    /// From 1.
    pub n: u64,
}

/// As it is typed.
impl std::fmt::Display for After {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.n {
            1 => f.write_str(&self.kind),
            n => write!(f, "{}#{n}", self.kind),
        }
    }
}

const VERBS: [&str; 7] = ["send", "steer", "inject", "abort", "cancel", "dispose", "approve"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Cancel {
    #[serde(default)]
    keep_inbox: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Approve {
    agent: Option<String>,
    id: Option<String>,
    answer: Answer,
}

/// What a program can answer; `aborted` is not among it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    AllowOnce,
    AllowAlways,
    Deny,
}

/// Reads a line.
///
/// # Errors
/// What is wrong with it, for a person.
pub fn parse(text: &str) -> Result<(Verb, Option<After>), String> {
    let value: Once = serde_json::from_str(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => "it is no JSON object; write `{\"send\": \"…\"}`".to_owned(),
        _ => format!("it is no JSON: {error}"),
    })?;
    let mut members = value.members;
    if let Some(twice) = value.twice {
        return Err(format!("`{twice}` stands in it twice"));
    }
    let after = members.remove("after").map(|after| parse_after(&after)).transpose()?;
    let verb = verb(members)?;
    Ok((verb, after))
}

/// The members of an object, and the first that is there twice: a map would keep the last without a word.
struct Once {
    members: Map<String, Value>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Once;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
                let mut once = Once { members: Map::new(), twice: None };
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if once.members.insert(key.clone(), value).is_some() {
                        once.twice.get_or_insert(key);
                    }
                }
                Ok(once)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

fn verb(members: Map<String, Value>) -> Result<Verb, String> {
    if let Some(unknown) = members.keys().find(|key| !VERBS.contains(&key.as_str())) {
        return Err(format!(
            "unknown command `{unknown}`; {}",
            names::hint(unknown, VERBS.into_iter().chain(["after"]))
        ));
    }
    let mut members = members.into_iter();
    let (Some((name, value)), None) = (members.next(), members.next()) else {
        return Err(format!("a line has exactly one command: {}", VERBS.map(|verb| format!("`{verb}`")).join(", ")));
    };
    match name.as_str() {
        "send" => Ok(Verb::Send(content(value)?)),
        "steer" => Ok(Verb::Steer(content(value)?)),
        "inject" => Ok(Verb::Inject(content(value)?)),
        "abort" => match value {
            Value::String(reason) => Ok(Verb::Abort(reason)),
            _ => Err("`abort` takes a reason, a string".into()),
        },
        "cancel" => {
            let Cancel { keep_inbox } = Cancel::deserialize(value)
                .map_err(|error| format!("`cancel` takes `{{\"keepInbox\": false}}`: {error}"))?;
            Ok(Verb::Cancel { keep_inbox })
        }
        "dispose" if value == Value::Bool(true) => Ok(Verb::Dispose),
        "dispose" => Err("`dispose` takes `true`".into()),
        _ => {
            let Approve { agent, id, answer } = Approve::deserialize(value)
                .map_err(|error| format!("`approve` takes `{{\"agent\", \"id\", \"answer\"}}`: {error}"))?;
            let answer = match answer {
                Answer::AllowOnce => ApprovalAnswer::AllowOnce,
                Answer::AllowAlways => ApprovalAnswer::AllowAlways,
                Answer::Deny => ApprovalAnswer::Deny,
            };
            Ok(Verb::Approve { agent, id, answer })
        }
    }
}

fn content(value: Value) -> Result<Vec<ContentBlock>, String> {
    match value {
        Value::String(text) => Ok(vec![ContentBlock::text(text)]),
        Value::Array(_) => Vec::deserialize(value).map_err(|error| format!("its blocks are wrong: {error}")),
        _ => Err("a message is a string or a list of blocks".into()),
    }
}

fn parse_after(value: &Value) -> Result<After, String> {
    let wrong = || "`after` takes an event's type, `TYPE[@AGENT]` or `TYPE[@AGENT]#N` with N from 1".to_owned();
    let text = value.as_str().ok_or_else(wrong)?;
    let (kind, n) = match text.split_once('#') {
        None => (text, 1),
        Some((kind, n)) => (kind, n.parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?),
    };
    if kind.split('@').any(str::is_empty) { Err(wrong()) } else { Ok(After { kind: kind.to_owned(), n }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_one_command() {
        let text = |text: &str| vec![ContentBlock::text(text)];
        let check = |line: &str, verb: Verb, after: Option<&str>| {
            let (found, when) = parse(line).expect(line);
            assert_eq!((found, when.map(|when| when.to_string()).as_deref()), (verb, after), "{line}");
        };
        check(r#"{"send": "hi"}"#, Verb::Send(text("hi")), None);
        check(
            r#"{"after": "tool/call#2", "steer": [{"type": "text", "text": "x"}]}"#,
            Verb::Steer(text("x")),
            Some("tool/call#2"),
        );
        check(r#"{"inject": "c", "after": "agent/status"}"#, Verb::Inject(text("c")), Some("agent/status"));
        check(r#"{"abort": "enough"}"#, Verb::Abort("enough".into()), None);
        check(r#"{"cancel": {"keepInbox": true}}"#, Verb::Cancel { keep_inbox: true }, None);
        check(r#"{"cancel": {}}"#, Verb::Cancel { keep_inbox: false }, None);
        check(r#"{"dispose": true}"#, Verb::Dispose, None);
        check(
            r#"{"approve": {"id": "approval-1", "answer": "allow-always"}}"#,
            Verb::Approve { agent: None, id: Some("approval-1".into()), answer: ApprovalAnswer::AllowAlways },
            None,
        );
        let deny = |agent: Option<&str>| Verb::Approve {
            agent: agent.map(str::to_owned),
            id: None,
            answer: ApprovalAnswer::Deny,
        };
        check(r#"{"approve": {"answer": "deny"}}"#, deny(None), None);
        check(
            r#"{"approve": {"agent": "main.1", "answer": "deny"}, "after": "approval/asked@main.1#2"}"#,
            deny(Some("main.1")),
            Some("approval/asked@main.1#2"),
        );
    }

    #[test]
    fn ill_formed_lines_say_what_is_wrong() {
        let check = |line: &str, expect: &str| {
            let message = parse(line).expect_err(line);
            assert!(message.contains(expect), "{line}: {message}");
        };
        check("{", "it is no JSON");
        check("[]", "it is no JSON object");
        check("{}", "exactly one command");
        check(r#"{"send": "a", "steer": "b"}"#, "exactly one command");
        check(r#"{"send": "a", "send": "b"}"#, "`send` stands in it twice");
        check(r#"{"send": "a", "after": "turn/end", "after": "turn/start"}"#, "`after` stands in it twice");
        check("3", "it is no JSON object");
        check(r#"{"send": "a"} x"#, "it is no JSON");
        check(r#"{"sned": "a"}"#, "did you mean `send`?");
        check(r#"{"send": 1}"#, "a string or a list of blocks");
        check(r#"{"send": [{"type": "text"}]}"#, "its blocks are wrong");
        check(r#"{"dispose": false}"#, "`dispose` takes `true`");
        check(r#"{"cancel": true}"#, "`cancel` takes");
        check(r#"{"cancel": {"keepinbox": true}}"#, "`cancel` takes");
        check(r#"{"approve": {"answer": "aborted"}}"#, "`approve` takes");
        check(r#"{"abort": "x", "after": "turn/start#0"}"#, "`TYPE[@AGENT]#N`");
        check(r#"{"abort": "x", "after": 3}"#, "`TYPE[@AGENT]#N`");
        check(r##"{"abort": "x", "after": "#2"}"##, "`TYPE[@AGENT]#N`");
        check(r#"{"abort": "x", "after": "turn/start@"}"#, "`TYPE[@AGENT]#N`");
        check(r#"{"abort": "x", "after": "@main"}"#, "`TYPE[@AGENT]#N`");
    }
}
