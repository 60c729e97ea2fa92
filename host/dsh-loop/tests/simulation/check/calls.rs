//! Tool calls and their results.

use std::collections::HashSet;

use serde_json::Value;

use super::{Verdict, at, died, ensure};
use crate::plugins::SAFE_TOOLS;
use crate::record::Record;
use crate::run::Life;

/// Calls of one run that may be started together.
const TOGETHER: usize = 8;

/// The calls of one message.
#[derive(Default)]
struct Batch {
    calls: Vec<Value>,
    /// For each call the run it belongs to.
    runs: Vec<usize>,
    /// How many have their `tool/call`, and how many their `tool/result`.
    begun: usize,
    answered: usize,
    /// A result of those begun has been logged.
    answering: bool,
    /// A run was given up half way.
    given_up: Option<usize>,
}

impl Batch {
    fn new(calls: Vec<Value>) -> Self {
        let safe = |call: &Value| SAFE_TOOLS.contains(&call["name"].as_str().unwrap_or_default());
        let mut runs = Vec::new();
        let (mut run, mut length) = (0, 0);
        for (place, call) in calls.iter().enumerate() {
            let joins = place > 0 && safe(call) && safe(&calls[place - 1]) && length < TOGETHER;
            (run, length) = if joins { (run, length + 1) } else { (run + usize::from(place > 0), 1) };
            runs.push(run);
        }
        Self { calls, runs, ..Self::default() }
    }

    fn is_done(&self) -> bool {
        self.answered == self.calls.len()
    }

    fn call(&mut self, record: &Record) -> Verdict {
        let due = self.calls.get(self.begun).ok_or("the message has no such call")?;
        let same = record.data["callId"] == due["id"]
            && record.data["name"] == due["name"]
            && record.data["arguments"] == due["arguments"];
        ensure(same, || format!("{due} is due"))?;
        let open = self.begun - self.answered;
        if open > 0 {
            ensure(self.runs[self.begun] == self.runs[self.begun - 1], || {
                "it may not run beside its neighbour".into()
            })?;
            ensure(!self.answering, || "its neighbours are answered already".into())?;
        } else if self.begun > 0 && self.runs[self.begun] == self.runs[self.begun - 1] {
            self.given_up = Some(self.runs[self.begun]);
        }
        self.begun += 1;
        Ok(())
    }

    fn result(&mut self, record: &Record) -> Verdict {
        ensure(self.answered < self.begun, || "no call is under way".into())?;
        let due = &self.calls[self.answered]["id"];
        ensure(record.data["callId"] == *due, || format!("the result of {due} is due"))?;
        let code = record.text("code");
        // A process that was killed between the two lines cannot know.
        let not_started = ["aborted-before-dispatch", "skipped", "not-started", "outcome-unknown"].contains(&code);
        if self.given_up == Some(self.runs[self.answered]) {
            ensure(not_started, || "the rest of a run that was given up is not started".into())?;
        }
        ensure(record.data["isError"] == !code.is_empty(), || "an error has a code, and nothing else has".into())?;
        self.answered += 1;
        self.answering = self.answered < self.begun;
        Ok(())
    }
}

/// All calls of a message, in order, each with one result, and nothing between that the model would see.
pub fn answered_in_order(life: &Life) -> Verdict {
    let mut batch = Batch::default();
    let mut used = HashSet::new();
    for (place, record) in life.log.iter().enumerate() {
        let verdict = match record.kind.as_str() {
            "tool/call" => batch.call(record),
            "tool/result" => batch.result(record),
            "user/message" | "steering/message" | "context/message" | "assistant/message" | "step/end" => {
                ensure(batch.is_done(), || format!("{} calls have no result yet", batch.calls.len() - batch.answered))
            }
            _ => Ok(()),
        };
        verdict.map_err(|problem| format!("{problem} at {}", at(place, record)))?;
        if record.is("assistant/message") {
            let blocks = record.data["content"].as_array().cloned().unwrap_or_default();
            let calls: Vec<Value> = blocks.into_iter().filter(|block| block["type"] == "tool-call").collect();
            ensure(calls.is_empty() || record.data["interrupted"] != true, || at(place, record))?;
            for call in &calls {
                let id = call["id"].as_str().unwrap_or_default().to_owned();
                ensure(!id.is_empty() && used.insert(id), || format!("an id is used twice at {}", at(place, record)))?;
            }
            batch = Batch::new(calls);
        }
    }
    ensure(batch.is_done() || died(life), || "the log ends before the last results".into())
}

/// A tool runs between its call and its result, once unless it is said, and not at all when the result says so.
pub fn not_started(life: &Life) -> Verdict {
    for (place, record) in life.records.iter().enumerate().filter(|(_, record)| record.is("tool/result")) {
        let id = &record.data["callId"];
        let about = |kind: &str| {
            let of_call = move |(_, record): &(usize, &Record)| record.data["callId"] == *id;
            life.records
                .iter()
                .enumerate()
                .filter(|(_, record)| record.is(kind))
                .filter(of_call)
                .map(|(at, _)| at)
                .collect::<Vec<_>>()
        };
        let (begun, runs) = (about("tool/call"), about("tool begins"));
        let again = life
            .records
            .iter()
            .filter(|other| other.is("tool/dispatched") && other.data["callId"] == *id && other.number("n") >= 2);
        let code = record.text("code");
        let never = ["aborted-before-dispatch", "skipped", "not-started"].contains(&code);
        ensure(!never || runs.is_empty(), || format!("it ran all the same: {}", at(place, record)))?;
        ensure(runs.len() <= 1 + again.count(), || format!("it ran more often than is said: {}", at(place, record)))?;
        let between = runs.iter().all(|run| begun.first().is_some_and(|begun| begun < run) && *run < place);
        ensure(between, || format!("it ran outside of its call: {}", at(place, record)))?;
    }
    Ok(())
}
