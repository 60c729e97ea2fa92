//! The configuration: how often, how long, and after which failures.

use schemars::JsonSchema;
use serde::Deserialize;

/// Further attempts at one request.
const DEFAULT_RETRIES: u32 = 3;
/// The first wait, in milliseconds: a hiccup is over by then.
const DEFAULT_FIRST_WAIT_MS: u32 = 500;
/// The longest wait, in milliseconds: what takes longer is better told to somebody.
const DEFAULT_MAX_WAIT_MS: u32 = 10_000;
/// What all waits of a turn may come to, in milliseconds: long turns of a throttled account get through, an outage does not hold one up
/// for hours.
const DEFAULT_BUDGET_MS: u32 = 600_000;

/// When a failed model request is tried again, and after what wait.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// How many failures of one step are answered with another attempt; the host makes at most 10 attempts.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// The wait after the first failure, in milliseconds. It doubles with each further one, and up to half of it is added by chance.
    #[serde(default = "default_first_wait_ms")]
    pub first_wait_ms: u32,
    /// The longest wait, in milliseconds. When the provider asks for more (`Retry-After`), the request is given up.
    #[serde(default = "default_max_wait_ms")]
    pub max_wait_ms: u32,
    /// What the waits of one turn may come to, in milliseconds; a wait that does not fit any more is not begun.
    #[serde(default = "default_budget_ms")]
    pub budget_ms: u32,
    /// After which failures.
    #[serde(default = "default_codes")]
    pub codes: Vec<Code>,
    /// What happens when a part of the answer had been shown already.
    #[serde(default)]
    pub after_output: AfterOutput,
}

/// A code of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The key was refused.
    Auth,
    /// Too many requests or tokens at a time.
    RateLimit,
    /// What was paid for is used up.
    Quota,
    /// The provider failed.
    Server,
    /// It took too long.
    Timeout,
    /// The connection failed.
    Transport,
    /// The provider refused the request.
    InvalidRequest,
    /// The request is larger than the model's context window.
    ContextWindowExceeded,
    /// The answer was empty.
    EmptyResponse,
    /// The answer ended in the middle.
    StreamClosed,
    /// The answer made no sense.
    MalformedResponse,
}

impl Code {
    /// As it stands in a failure.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Auth => "auth",
            Code::RateLimit => "rate-limit",
            Code::Quota => "quota",
            Code::Server => "server",
            Code::Timeout => "timeout",
            Code::Transport => "transport",
            Code::InvalidRequest => "invalid-request",
            Code::ContextWindowExceeded => "context-window-exceeded",
            Code::EmptyResponse => "empty-response",
            Code::StreamClosed => "stream-closed",
            Code::MalformedResponse => "malformed-response",
        }
    }
}

/// What happens when text or reasoning of the failed attempt had been streamed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfterOutput {
    /// The request is given up.
    #[default]
    GiveUp,
    /// The answer begins again, on a new line, and a warning says so; what was shown stays on the screen and is no part of the message.
    StartAgain,
}

fn default_retries() -> u32 {
    DEFAULT_RETRIES
}

fn default_first_wait_ms() -> u32 {
    DEFAULT_FIRST_WAIT_MS
}

fn default_max_wait_ms() -> u32 {
    DEFAULT_MAX_WAIT_MS
}

fn default_budget_ms() -> u32 {
    DEFAULT_BUDGET_MS
}

/// What another attempt may well not meet: load, a hiccup of the network, a server that was restarted.
fn default_codes() -> Vec<Code> {
    vec![Code::RateLimit, Code::Server, Code::Timeout, Code::Transport, Code::EmptyResponse, Code::StreamClosed]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_as_it_is_written() {
        let check = |code: Code| {
            let json = format!("\"{}\"", code.as_str());
            assert_eq!(serde_json::from_str::<Code>(&json).expect(&json), code);
        };
        let rest =
            [Code::Auth, Code::Quota, Code::InvalidRequest, Code::ContextWindowExceeded, Code::MalformedResponse];
        default_codes().into_iter().chain(rest).for_each(check);
    }

    #[test]
    fn the_defaults_are_those_that_are_promised() {
        let config: Config = serde_json::from_str("{}").expect("no key is required");
        assert_eq!((config.retries, config.first_wait_ms, config.max_wait_ms), (3, 500, 10_000));
        let codes: Vec<&str> = config.codes.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes, ["rate-limit", "server", "timeout", "transport", "empty-response", "stream-closed"]);
        assert_eq!((config.after_output, config.budget_ms), (AfterOutput::GiveUp, 600_000));
    }
}
