//! Why turns ended: disposed before aborted before error before budget, and the first abort of all.

use super::{Verdict, at, ensure, made_at};
use crate::record::Record;
use crate::run::Life;

/// What is known of a turn from outside.
#[derive(Default)]
struct Turn<'a> {
    /// Aborts between the end of the turn before and this one's first message: they may have met this turn or none.
    maybe: Vec<&'a str>,
    /// Aborts since.
    surely: Vec<&'a str>,
    /// Aborts before the last step of it was closed: the turn cannot have ended otherwise.
    before_step_end: bool,
    begun: bool,
    opened: bool,
    steps: u32,
    failed: bool,
    disposed_first: bool,
    /// More than a budget had was used, before the last step of it was closed or before it began: it cannot have ended by itself.
    over_budget: bool,
}

/// The reason of each turn is the strongest of what happened to it.
pub fn strongest(life: &Life) -> Verdict {
    let mut turn = Turn::default();
    let mut disposals: Vec<&str> = Vec::new();
    let mut disposed = false;
    // It may have ended while the agent was made.
    let early = life.records[..made_at(life)].iter().rev().find(|record| record.is("budget"));
    let mut spent = early.and_then(|record| record.data.as_str()).unwrap_or_default();
    for (place, record) in life.records.iter().enumerate().skip(made_at(life)) {
        match record.kind.as_str() {
            "budget" => spent = record.data.as_str().unwrap_or_default(),
            "abort" => {
                let reason = record.data.as_str().unwrap_or_default();
                if turn.begun { turn.surely.push(reason) } else { turn.maybe.push(reason) }
            }
            "dispose" => disposals.push(record.data.as_str().unwrap_or_default()),
            "agent/status" if record.text("status") == "disposed" => {
                disposed = true;
                turn.disposed_first = !turn.failed;
            }
            "agent/status" if record.text("status") == "running" => turn.begun = true,
            "user/message" => turn.begun = true,
            "turn/start" => {
                (turn.begun, turn.opened) = (true, true);
                turn.over_budget = !spent.is_empty();
            }
            "step/end" => {
                turn.over_budget = matches!(spent, "Exceeded" | "Time");
                turn.before_step_end = !turn.surely.is_empty();
                turn.steps += 1;
            }
            "error" => turn.failed = true,
            "turn/end" => {
                judge(&turn, disposed, !spent.is_empty(), &disposals, record)
                    .map_err(|problem| format!("{problem} at {}", at(place, record)))?;
                turn = Turn::default();
            }
            _ => {}
        }
    }
    Ok(())
}

fn judge(turn: &Turn<'_>, disposed: bool, spent: bool, disposals: &[&str], record: &Record) -> Verdict {
    let reason = &record.data["reason"];
    let (kind, said) = (reason["type"].as_str().unwrap_or_default(), reason["reason"].as_str().unwrap_or_default());
    let due = if turn.failed {
        Some("error")
    } else if disposed {
        Some("disposed")
    } else if turn.before_step_end || (turn.steps == 0 && !turn.surely.is_empty()) {
        Some("aborted")
    } else if turn.over_budget && kind != "aborted" {
        Some("budget")
    } else {
        None
    };
    ensure(due.is_none_or(|due| due == kind), || format!("{due:?} is stronger"))?;
    match kind {
        // One without a code is a plugin's.
        "budget" => ensure(spent || reason["code"].is_null(), || "there is enough left".into()),
        "aborted" => {
            let legal = turn.maybe.contains(&said) || turn.surely.first() == Some(&said);
            ensure(legal, || format!("aborts: {:?}, then {:?}", turn.maybe, turn.surely))
        }
        "disposed" => {
            // Losing the owner is a dispose too, and so is a failed write.
            let legal = disposals.contains(&said) || said == "owner dropped";
            ensure(disposed && legal, || format!("disposals: {disposals:?}"))
        }
        "error" => ensure(turn.failed, || "no error was logged".into()),
        "interrupted" => Err("only a repair says so".into()),
        _ => Ok(()),
    }
}

/// Once a budget is used up, at most the request that was on its way is sent, and turns that are opened have no step.
pub fn budget_holds(life: &Life) -> Verdict {
    let Some(end) = life.records.iter().position(|record| record.is("budget")) else { return Ok(()) };
    let (mut sent, mut opened) = (0, false);
    for (place, record) in life.records.iter().enumerate().skip(end) {
        match record.kind.as_str() {
            "request/sent" => sent += 1,
            "turn/start" => opened = true,
            "step/start" => ensure(!opened, || format!("a step at {}", at(place, record)))?,
            _ => {}
        }
        ensure(sent <= 1, || format!("another request at {}", at(place, record)))?;
    }
    Ok(())
}

/// A step that is aborted before its answer or its tools are done reads no steering, nor does its turn any more.
pub fn abort_reads_nothing(life: &Life) -> Verdict {
    let (mut unfinished, mut aborted, mut begun) = (false, false, false);
    let (mut calls, mut results) = (0, 0);
    for (place, record) in life.records.iter().enumerate().skip(made_at(life)) {
        match record.kind.as_str() {
            "step/start" => (unfinished, begun, calls, results) = (true, true, 0, 0),
            "assistant/message" => {
                let blocks = record.data["content"].as_array().map(Vec::as_slice).unwrap_or_default();
                calls = blocks.iter().filter(|block| block["type"] == "tool-call").count();
                unfinished = calls > 0;
            }
            "tool/result" => {
                results += 1;
                unfinished = results < calls;
            }
            "abort" => aborted |= begun && unfinished,
            "agent/status" if record.text("status") == "disposed" => aborted |= begun && unfinished,
            "turn/end" => (unfinished, aborted, begun) = (false, false, false),
            "steering/message" => ensure(!aborted, || at(place, record))?,
            _ => {}
        }
    }
    Ok(())
}
