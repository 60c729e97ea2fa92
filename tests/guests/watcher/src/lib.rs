//! An observer that acts on what it sees, and reports in `flush` what it saw.

use dsh_sdk::{ContentBlock, Entry, Failure, Flush, Level, Observer, Plugin, inbox, log, runtime};
use schemars::JsonSchema;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Do {
    Steer,
    Send,
    Inject,
    /// Appends `plugin/<name>/saw`.
    Append,
    Trap,
    Loop,
    Sleep,
}

/// What to do when an entry of some kind is seen.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Rule {
    kind: String,
    r#do: Do,
    #[serde(default)]
    text: String,
    /// At most so often; 0 is always.
    #[serde(default)]
    times: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum AtFlush {
    #[default]
    Nothing,
    /// Writes the counts by kind into the diagnostics, as one line of JSON.
    Report,
    /// Appends `plugin/<name>/flush` with the counts; needs the grant `session`.
    Append,
    Fail,
    Sleep,
    Trap,
}

/// What to watch for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Which kinds; empty: all but chunks.
    kinds: Vec<String>,
    rules: Vec<Rule>,
    flush: AtFlush,
}

struct Watcher {
    config: Config,
    seen: RefCell<BTreeMap<String, u32>>,
    done: RefCell<Vec<u32>>,
}

impl Plugin for Watcher {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        let done = RefCell::new(vec![0; config.rules.len()]);
        Ok(Self { config, seen: RefCell::default(), done })
    }
}

impl Observer for Watcher {
    fn kinds(&self) -> Vec<String> {
        self.config.kinds.clone()
    }

    fn on_entries(&self, entries: Vec<Entry>) {
        for entry in entries {
            *self.seen.borrow_mut().entry(entry.kind.clone()).or_insert(0) += 1;
            for (at, rule) in self.config.rules.iter().enumerate().filter(|(_, rule)| rule.kind == entry.kind) {
                let done = self.done.borrow()[at];
                if rule.times == 0 || done < rule.times {
                    self.done.borrow_mut()[at] = done + 1;
                    act(rule, &entry);
                }
            }
        }
    }
}

fn act(rule: &Rule, entry: &Entry) {
    let content = [ContentBlock::text(&rule.text)];
    let outcome = match rule.r#do {
        Do::Steer => inbox::steer(&content),
        Do::Send => inbox::send(&content),
        Do::Inject => inbox::inject(&content),
        Do::Append => {
            log::append("saw", &serde_json::json!({"kind": entry.kind, "seq": entry.seq}).to_string()).map(|_seq| ())
        }
        Do::Trap => panic!("watcher traps, as it was told to"),
        Do::Loop => loop {
            std::hint::black_box(0);
        },
        Do::Sleep => {
            std::thread::sleep(Duration::from_secs(3_600));
            Ok(())
        }
    };
    if let Err(failure) = outcome {
        runtime::log(Level::Warn, &format!("{:?} at {}: {}: {}", rule.r#do, entry.kind, failure.code, failure.message));
    }
}

impl Flush for Watcher {
    fn flush(&self) -> Result<(), Failure> {
        let seen = serde_json::json!(*self.seen.borrow()).to_string();
        match self.config.flush {
            AtFlush::Nothing => Ok(()),
            AtFlush::Report => {
                runtime::log(Level::Warn, &format!("seen {seen}"));
                Ok(())
            }
            AtFlush::Append => log::append("flush", &seen).map(|_seq| ()),
            AtFlush::Fail => Err(Failure::new("watcher", "watcher does not flush, as it was told to")),
            AtFlush::Sleep => {
                std::thread::sleep(Duration::from_secs(3_600));
                Ok(())
            }
            AtFlush::Trap => panic!("watcher traps in flush, as it was told to"),
        }
    }
}

dsh_sdk::export!(Watcher: observer, flush, configure);
