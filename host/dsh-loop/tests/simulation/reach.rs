//! What the seeds reach: a simulation that never gets anywhere would find nothing.

use std::collections::BTreeMap;

use crate::plan::Fault;
use crate::run::Life;

/// What some seed must have shown, as [`Reach::of`] names it.
const MUST: &[&str] = &[
    "turn disposed",
    "turn aborted",
    "turn error",
    "turn budget",
    "turn max-steps",
    "turn max-tokens",
    "turn completed",
    "turn interrupted",
    "result aborted",
    "result aborted-before-dispatch",
    "result approval-denied",
    "result denied",
    "result invalid-arguments",
    "result not-started",
    "result outcome-unknown",
    "result plugin-failed",
    "result skipped",
    "result tool-failed",
    "result unknown-tool",
    "error flush-failed",
    "error max-turns",
    "error plugin-failed",
    "error plugin-limit",
    "error session-write-failed",
    "error internal",
    "approval aborted",
    "approval allow-always",
    "approval deny",
    "tool/dispatched",
    "steering/message",
    "context/message",
    "request/failed",
    "interrupted message",
    "budget",
    "dropped at the end",
    "dropped by cancel",
    "turn without idle between",
    "run of tools",
];

/// How often something was reached.
#[derive(Default)]
pub struct Reach(pub BTreeMap<String, u32>);

impl Reach {
    fn count(&mut self, what: String) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Counts what a life reached.
    pub fn of(&mut self, life: &Life) {
        for struck in &life.struck {
            self.count(struck.split(' ').nth(2).unwrap_or_default().to_owned());
        }
        let mut last = "";
        for record in &life.records {
            match record.kind.as_str() {
                "turn/end" => {
                    self.count(format!("turn {}", record.data["reason"]["type"].as_str().unwrap_or_default()))
                }
                "tool/result" => self.count(format!("result {}", record.text("code"))),
                "agent/error" => self.count(format!("error {}", record.text("code"))),
                "approval/decided" => self.count(format!("approval {}", record.text("answer"))),
                "assistant/message" if record.data["interrupted"] == true => self.count("interrupted message".into()),
                "agent/disposed" if record.number("dropped") > 0 => self.count("dropped at the end".into()),
                "agent/dropped" => self.count("dropped by cancel".into()),
                "user/message" if last == "turn/end" => self.count("turn without idle between".into()),
                "tool/call" if last == "tool/call" => self.count("run of tools".into()),
                kind => self.count(kind.into()),
            }
            if record.is_logged() || record.is("agent/status") {
                last = &record.kind;
            }
        }
    }

    /// Adds up.
    pub fn add(&mut self, other: Reach) {
        for (what, times) in other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// What was never reached.
    pub fn missing(&self) -> Vec<String> {
        let faults = Fault::ODDS.iter().map(|(fault, _)| format!("{fault:?}"));
        faults.chain(MUST.iter().map(|what| (*what).to_owned())).filter(|what| !self.0.contains_key(what)).collect()
    }
}
