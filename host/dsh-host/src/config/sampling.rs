//! `sampling = { … }` of a `dsh.toml`, and the same as JSON behind `--sampling`: how a model is to answer.

use dsh_seam::message::Sampling;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::exit::Stop;
use crate::names;

/// Its keys. In JSON they are those of events: `maxTokens` is `max-tokens` here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SamplingEntry {
    /// Randomness; 0 is the least.
    #[schemars(range(min = 0))]
    pub temperature: Option<f64>,
    /// The most tokens that an answer may have.
    #[serde(alias = "maxTokens")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// Texts at which to stop.
    pub stop: Option<Vec<String>>,
    /// `auto`, `none`, `required` or a tool's name.
    #[serde(alias = "toolChoice")]
    pub tool_choice: Option<String>,
    /// How much to think, in the provider's word, for example `low`.
    #[serde(alias = "reasoningEffort")]
    pub reasoning_effort: Option<String>,
    /// Members of the request's body that only some providers know.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub extra: Option<Map<String, Value>>,
}

/// All keys, for the nearest right name.
const KEYS: [&str; 9] = [
    "temperature",
    "maxTokens",
    "max-tokens",
    "stop",
    "toolChoice",
    "tool-choice",
    "reasoningEffort",
    "reasoning-effort",
    "extra",
];

impl SamplingEntry {
    /// Reads the JSON of `--sampling`.
    pub fn parse(json: &str) -> Result<Self, Stop> {
        let wrong = |what: String| Stop::usage(format!("`--sampling`: {what}"));
        let value: Value = serde_json::from_str(json).map_err(|error| {
            wrong(format!("this is no JSON: {error}"))
                .hint("for example `--sampling '{\"temperature\": 0}'`, or `@FILE`")
        })?;
        let Value::Object(members) = &value else { return Err(wrong("it must be a JSON object".into())) };
        if let Some(key) = members.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let camel = ["temperature", "maxTokens", "stop", "toolChoice", "reasoningEffort", "extra"];
            return Err(wrong(format!("unknown key `{key}`")).hint(format!(
                "{}; what only some providers know stands in `extra`",
                names::hint(key, camel).trim_end_matches('?')
            )));
        }
        let entry: Self = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        entry.check().map_err(wrong)?;
        Ok(entry)
    }

    /// What is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), String> {
        let empty = |text: &Option<String>| text.as_ref().is_some_and(String::is_empty);
        let what = if self.temperature.is_some_and(|temperature| !temperature.is_finite() || temperature < 0.0) {
            "`temperature` must be a number that is not less than 0"
        } else if self.max_tokens == Some(0) {
            "`max-tokens` must be at least 1"
        } else if self.stop.iter().flatten().any(String::is_empty) {
            "a text of `stop` is empty: every answer would end at once"
        } else if empty(&self.tool_choice) {
            "`tool-choice` is empty: it is `auto`, `none`, `required` or a tool's name"
        } else if empty(&self.reasoning_effort) {
            "`reasoning-effort` is empty: it is a word of the provider, such as `low`"
        } else {
            return Ok(());
        };
        Err(what.to_owned())
    }

    /// What it says, and where it says nothing what `sampling` says; `extra` member by member.
    pub fn over(&self, sampling: Sampling) -> Sampling {
        let mut extra = sampling.extra;
        extra.extend(self.extra.clone().unwrap_or_default());
        Sampling {
            temperature: self.temperature.or(sampling.temperature),
            max_tokens: self.max_tokens.or(sampling.max_tokens),
            stop: self.stop.clone().unwrap_or(sampling.stop),
            tool_choice: self.tool_choice.clone().or(sampling.tool_choice),
            reasoning_effort: self.reasoning_effort.clone().or(sampling.reasoning_effort),
            extra,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_checked() {
        let check = |json: &str, expect: &str| {
            let found = match SamplingEntry::parse(json) {
                Ok(entry) => serde_json::to_string(&entry.over(Sampling::default())).expect("JSON"),
                Err(stop) => stop.to_string(),
            };
            assert_eq!(found, expect, "{json}");
        };
        check("{}", "{}");
        check(
            r#"{"temperature":0,"maxTokens":5,"stop":["a"],"toolChoice":"none","reasoningEffort":"low","extra":{"seed":1}}"#,
            r#"{"temperature":0.0,"maxTokens":5,"stop":["a"],"toolChoice":"none","reasoningEffort":"low","extra":{"seed":1}}"#,
        );
        check(r#"{"max-tokens":5}"#, r#"{"maxTokens":5}"#);
        check(
            r#"{"temprature":1}"#,
            "error: `--sampling`: unknown key `temprature`\nhint: did you mean `temperature`; what only some providers know stands in `extra`",
        );
        check(r#"{"temperature":-1}"#, "error: `--sampling`: `temperature` must be a number that is not less than 0");
        check(r#"{"maxTokens":0}"#, "error: `--sampling`: `max-tokens` must be at least 1");
        check(r#"{"stop":[""]}"#, "error: `--sampling`: a text of `stop` is empty: every answer would end at once");
        check("[]", "error: `--sampling`: it must be a JSON object");
        check(r#"{"stop":"a"}"#, "error: `--sampling`: invalid type: string \"a\", expected a sequence");
    }

    #[test]
    fn the_nearer_one_wins_member_by_member() {
        let far = SamplingEntry::parse(r#"{"temperature":1,"maxTokens":9,"extra":{"a":1,"b":1}}"#).expect("good");
        let near = SamplingEntry::parse(r#"{"temperature":0,"extra":{"b":2}}"#).expect("good");
        let both = near.over(far.over(Sampling::default()));
        let expect = r#"{"temperature":0.0,"maxTokens":9,"extra":{"a":1,"b":2}}"#;
        assert_eq!(serde_json::to_string(&both).expect("JSON"), expect);
    }
}
