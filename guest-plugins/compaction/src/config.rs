//! The configuration, and the trigger it stands for.

use schemars::JsonSchema;
use serde::Deserialize;

/// Part of the context window that may be used before the history is compacted.
const DEFAULT_TRIGGER_RATIO: f64 = 0.8;
/// The trigger where the window is unknown, in tokens: below the smallest window of today's models for agents.
const TRIGGER_WITHOUT_WINDOW: u32 = 100_000;
/// What is kept of the end of the history, in tokens.
const DEFAULT_KEEP_TOKENS: u32 = 20_000;

/// When a history is compacted, and what is kept of it. Tokens are the host's estimate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Compact when the request has this many tokens; instead of `trigger-ratio`.
    #[schemars(range(min = 1))]
    pub trigger_tokens: Option<u32>,
    /// Compact at this part of the model's context window, above 0 and at most 1; 100,000 tokens where the window is unknown.
    /// Default 0.8.
    pub trigger_ratio: Option<f64>,
    /// How many tokens at the end of the history stay as they are.
    #[serde(default = "default_keep_tokens")]
    pub keep_tokens: u32,
    /// Put a summary, made by the agent's model, in the place of what is left out; needs the grant `llm`.
    #[serde(default)]
    pub summarize: bool,
}

fn default_keep_tokens() -> u32 {
    DEFAULT_KEEP_TOKENS
}

/// A checked configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    trigger: Trigger,
    keep_tokens: u32,
}

#[derive(Debug, Clone, PartialEq)]
enum Trigger {
    Tokens(u32),
    Ratio(f64),
}

impl Budget {
    /// Checks the ranges.
    pub fn new(config: &Config) -> Result<Self, String> {
        let trigger = match (config.trigger_tokens, config.trigger_ratio) {
            (Some(_), Some(_)) => {
                return Err("`trigger-tokens` and `trigger-ratio` exclude each other: leave one out".to_owned());
            }
            (Some(0), None) => return Err("`trigger-tokens` must be at least 1".to_owned()),
            (Some(tokens), None) => Trigger::Tokens(tokens),
            (None, ratio) => Trigger::Ratio(checked_ratio(ratio.unwrap_or(DEFAULT_TRIGGER_RATIO))?),
        };
        Ok(Self { trigger, keep_tokens: config.keep_tokens })
    }

    /// The trigger in tokens; the window is asked for only where it counts.
    pub fn trigger(&self, window: impl FnOnce() -> Option<u32>) -> u32 {
        match self.trigger {
            Trigger::Tokens(tokens) => tokens,
            // A window has far fewer tokens than 2^52, so nothing is lost.
            Trigger::Ratio(ratio) => {
                window().map_or(TRIGGER_WITHOUT_WINDOW, |window| ((f64::from(window) * ratio) as u32).max(1))
            }
        }
    }

    /// How many tokens at the end stay.
    pub fn keep_tokens(&self) -> u32 {
        self.keep_tokens
    }
}

fn checked_ratio(ratio: f64) -> Result<f64, String> {
    if ratio > 0.0 && ratio <= 1.0 {
        Ok(ratio)
    } else {
        Err(format!("`trigger-ratio` is {ratio}: it must be above 0 and at most 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, window: Option<u32>, expect: Result<u32, &str>) {
        let got = serde_json::from_str::<Config>(json)
            .map_err(|error| error.to_string())
            .and_then(|config| Budget::new(&config))
            .map(|budget| budget.trigger(|| window));
        assert_eq!(got, expect.map_err(str::to_owned), "{json}");
    }

    #[test]
    fn triggers() {
        check("{}", None, Ok(100_000));
        check("{}", Some(200_000), Ok(160_000));
        check(r#"{"trigger-ratio":0.5}"#, Some(1_000), Ok(500));
        check(r#"{"trigger-ratio":1}"#, Some(1_000), Ok(1_000));
        check(r#"{"trigger-tokens":7}"#, Some(1_000), Ok(7));
        check(r#"{"trigger-ratio":1.5}"#, None, Err("`trigger-ratio` is 1.5: it must be above 0 and at most 1"));
        check(r#"{"trigger-ratio":0}"#, None, Err("`trigger-ratio` is 0: it must be above 0 and at most 1"));
        check(r#"{"trigger-tokens":0}"#, None, Err("`trigger-tokens` must be at least 1"));
        check(
            r#"{"trigger-tokens":1,"trigger-ratio":0.8}"#,
            None,
            Err("`trigger-tokens` and `trigger-ratio` exclude each other: leave one out"),
        );
        check(
            r#"{"keep":1}"#,
            None,
            Err(
                "unknown field `keep`, expected one of `trigger-tokens`, `trigger-ratio`, `keep-tokens`, `summarize` at line 1 column 7",
            ),
        );
    }
}
