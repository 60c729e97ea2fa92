//! Counts requests in its state, appends the count to the log and says it in the system prompt: what outlives a call, a turn, a
//! process.

use dsh_sdk::{Failure, LlmRequest, Part, Plugin, RequestListener, RequestNext, Sections, Step, log, state};
use schemars::JsonSchema;
use serde::Deserialize;

/// What to do with the count.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Appends `plugin/<name>/count`; needs the grant `session`.
    log: bool,
    /// Also counts in the memory of the instance, to show that it is a cache only.
    memory: bool,
}

struct Counter {
    config: Config,
    in_memory: std::cell::Cell<u32>,
}

impl Plugin for Counter {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { config, in_memory: std::cell::Cell::new(0) })
    }
}

impl Sections for Counter {
    fn sections(&self, _at: Step) -> Result<Vec<Part>, Failure> {
        let count: u32 = state::get("count")?.unwrap_or(0);
        let mut text = format!("requests before this one: {count}");
        if self.config.memory {
            text += &format!(", in memory: {}", self.in_memory.get());
        }
        Ok(vec![Part { name: "counter".to_owned(), order: 0, text }])
    }
}

impl RequestListener for Counter {
    fn on_request(&self, _at: Step, _request: &LlmRequest, next: &RequestNext) -> Result<(), Failure> {
        let count: u32 = state::get("count")?.unwrap_or(0) + 1;
        state::set("count", &count)?;
        self.in_memory.set(self.in_memory.get() + 1);
        if self.config.log {
            log::append("count", &serde_json::json!({ "count": count }).to_string())?;
        }
        next.run()
    }
}

dsh_sdk::export!(Counter: request, sections, configure);
