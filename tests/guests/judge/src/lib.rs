//! A policy over the request, for comparing engines: the last tool call may only read below `src/`, and nothing that is looked at may
//! hold a private key. It reads the last two messages, or with `{"all":true}` every one.

use dsh_sdk::{ContentBlock, Failure, LlmRequest, Message, Plugin, RequestListener, RequestNext, ResultBlock, Step};
use schemars::JsonSchema;
use serde::Deserialize;

/// What may not be in a text.
const SECRET: &str = "BEGIN PRIVATE KEY";
/// How many messages are read by one call to the host.
const MESSAGES_AT_ONCE: u32 = 256;

/// How much to look at.
#[derive(Debug, Default, Deserialize, JsonSchema)]
struct Config {
    /// Whether to read every message, and not only the last two.
    #[serde(default)]
    all: bool,
}

struct Judge(Config);

#[derive(Deserialize)]
struct Arguments {
    path: String,
}

impl Plugin for Judge {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self(config))
    }
}

impl RequestListener for Judge {
    fn on_request(&self, _at: Step, request: &LlmRequest, next: &RequestNext) -> Result<(), Failure> {
        let count = request.message_count();
        let last = count.saturating_sub(2);
        if self.0.all {
            for start in (0..last).step_by(MESSAGES_AT_ONCE as usize) {
                check(&request.messages(start, MESSAGES_AT_ONCE.min(last - start))?)?;
            }
        }
        let messages = request.messages(last, count - last)?;
        check(&messages)?;
        check_call(&messages)?;
        next.run()
    }
}

fn refused(why: &str) -> Failure {
    Failure { code: "refused".to_owned(), message: why.to_owned() }
}

fn check(messages: &[Message]) -> Result<(), Failure> {
    let clean = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => !block.text.contains(SECRET),
        ContentBlock::ToolResult(result) => result.content.iter().all(|block| match block {
            ResultBlock::Text(text) => !text.contains(SECRET),
            _ => true,
        }),
        _ => true,
    };
    if messages.iter().flat_map(|message| &message.content).all(clean) {
        Ok(())
    } else {
        Err(refused("a private key would go out"))
    }
}

fn check_call(messages: &[Message]) -> Result<(), Failure> {
    for block in messages.iter().flat_map(|message| &message.content) {
        if let ContentBlock::ToolCall(call) = block {
            let arguments: Arguments = serde_json::from_str(&call.arguments)
                .map_err(|error| refused(&format!("the arguments are no JSON of the expected form: {error}")))?;
            let allowed = call.name == "read" && normalised(&arguments.path).starts_with("src/");
            return if allowed { Ok(()) } else { Err(refused("only `src/` may be read")) };
        }
    }
    Err(refused("there is no tool call"))
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

dsh_sdk::export!(Judge: request, configure);
