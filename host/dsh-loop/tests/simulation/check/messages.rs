//! What was said to the agent: every message taken in is read once or counted as dropped.

use std::collections::HashMap;

use super::{Verdict, ensure};
use crate::plugins::is_from_continuation;
use crate::record::Record;
use crate::run::Life;

/// Messages of that kind in a log or transcript.
fn read<'a>(records: &'a [Record], kinds: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let counts = |record: &&Record| record.is_logged() && kinds.contains(&record.kind.as_str());
    records.iter().filter(counts).map(Record::said).filter(|text| !is_from_continuation(text))
}

/// Every message that was taken in is in the log once, or counted in `agent/dropped` or `agent/disposed`; one that was refused is
/// nowhere; each has one `agent/queued`.
pub fn accounted(life: &Life) -> Verdict {
    let mut in_log: HashMap<&str, u64> = HashMap::new();
    for text in read(&life.records, &["user/message", "steering/message", "context/message"]) {
        *in_log.entry(text).or_default() += 1;
    }
    ensure(in_log.values().all(|times| *times == 1), || format!("doubled: {in_log:?}"))?;
    let mut lost = 0;
    for call in life.records.iter().filter(|record| ["send", "steer", "inject"].contains(&record.kind.as_str())) {
        let (text, refused) = (call.text("text"), !call.data["refused"].is_null());
        let queued = life.records.iter().filter(|record| record.is("agent/queued") && record.said() == text).count();
        let read = in_log.contains_key(text);
        if call.is("inject") {
            // Context that could not be made durable is in the log, and the caller is told.
            ensure(!refused || !read || call.text("refused") == "flush-failed", || {
                format!("refused, but read: {call}")
            })?;
        } else {
            ensure(queued == usize::from(!refused), || format!("{queued} times `agent/queued`: {call}"))?;
            ensure(!refused || !read, || format!("refused, but read: {call}"))?;
        }
        lost += u64::from(!refused && !read);
    }
    let counted: u64 = life
        .records
        .iter()
        .map(|record| match record.kind.as_str() {
            "agent/dropped" => record.number("count"),
            "agent/disposed" => record.number("dropped"),
            _ => 0,
        })
        .sum();
    // A plugin that an abort dropped while it injected was told nothing.
    let told = |text: &str| life.records.iter().any(|record| record.is("inject") && record.text("text") == text);
    let begun = life.records.iter().filter(|record| record.is("inject begins")).map(|record| record.text("text"));
    let unknown = begun.filter(|text| !told(text) && !in_log.contains_key(text)).count() as u64;
    ensure((lost..=lost + unknown).contains(&counted), || {
        format!("{lost} are nowhere, {counted} are counted as dropped")
    })
}

/// Steering taken in before the last `step/end` of a turn that ended by itself with another step possible was read in that turn.
pub fn steering_in_its_turn(life: &Life) -> Verdict {
    let mut waiting: Vec<&str> = Vec::new();
    let mut at_step_end: Vec<&str> = Vec::new();
    let mut last = 0;
    for record in &life.records {
        match record.kind.as_str() {
            "agent/queued" if record.data["steering"] == true => waiting.push(record.said()),
            "steering/message" => waiting.retain(|text| *text != record.said()),
            "agent/dropped" | "turn/start" => waiting.clear(),
            "step/end" => {
                last = record.number("step");
                at_step_end.clone_from(&waiting);
            }
            "turn/end" => {
                let completed = record.data["reason"]["type"] == "completed";
                let possible = last < u64::from(life.plan.max_steps);
                let missed: Vec<_> = at_step_end.iter().filter(|text| waiting.contains(text)).collect();
                ensure(!completed || !possible || missed.is_empty(), || format!("{missed:?} not read in {record}"))?;
                at_step_end.clear();
            }
            _ => {}
        }
    }
    Ok(())
}

/// A step after which there can be no other reads no steering behind its tools: it stays for the next turn.
pub fn no_steering_in_the_last_step(life: &Life) -> Verdict {
    let (mut open, mut cut) = (0, false);
    for record in &life.records {
        match record.kind.as_str() {
            "step/start" => (open, cut) = (record.number("step"), false),
            "step/end" => open = 0,
            "assistant/chunk" => cut |= record.data["chunk"]["reason"] == "max-tokens",
            "request/sent" => cut = false,
            "steering/message" => {
                let possible = open < u64::from(life.plan.max_steps) && !cut;
                ensure(open == 0 || possible, || format!("read where nobody answers: {record}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
