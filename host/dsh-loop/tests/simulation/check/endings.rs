//! Ends: of the life, of turns, of questions.

use super::{Verdict, at, died, ensure};
use crate::run::Life;

/// The agent becomes idle and its dispose returns.
pub fn comes_to_its_end(life: &Life) -> Verdict {
    life.stuck.clone().map_or(Ok(()), Err)
}

/// No id, task, part of a plugin or core is left.
pub fn nothing_is_left(life: &Life) -> Verdict {
    ensure(life.left.is_empty(), || life.left.join("; "))
}

/// Each question has one answer after it; while nobody aborts, the one before is answered first.
pub fn questions_are_decided(life: &Life) -> Verdict {
    let mut open: Vec<&str> = Vec::new();
    let mut aborted = false;
    for (place, record) in life.log.iter().enumerate() {
        match record.kind.as_str() {
            "approval/asked" => {
                let known = open.is_empty() || life.log[place..].iter().any(|later| later.text("answer") == "aborted");
                ensure(known, || format!("{open:?} is open at {}", at(place, record)))?;
                open.push(record.text("id"));
            }
            "approval/decided" => {
                let found = open.iter().position(|id| *id == record.text("id"));
                let found = found.ok_or_else(|| format!("nobody asked at {}", at(place, record)))?;
                open.remove(found);
            }
            // A process that was killed leaves its questions open.
            "turn/end" => aborted |= record.data["reason"]["type"] == "interrupted",
            _ => {}
        }
    }
    ensure(open.is_empty() || died(life) || aborted, || format!("{open:?} is never decided"))
}

/// Once the agent is disposed no waterfall is dispatched.
pub fn no_waterfall_after_the_end(life: &Life) -> Verdict {
    let end = life.records.iter().position(|record| record.is("agent/status") && record.text("status") == "disposed");
    let after = life.records.iter().enumerate().skip(end.unwrap_or(life.records.len()));
    let mut begins = after.filter(|(_, record)| record.is("listener begins") && record.data["outermost"] == true);
    begins.next().map_or(Ok(()), |(place, record)| Err(at(place, record)))
}

/// After each turn, the log is flushed before anything else is read or the agent becomes idle; and once more at the end.
pub fn flushed(life: &Life) -> Verdict {
    let mut owed = false;
    for (place, record) in life.records.iter().enumerate() {
        match record.kind.as_str() {
            "turn/end" if place > super::made_at(life) => owed = true,
            "flush" => owed = false,
            "user/message" | "turn/start" | "agent/disposed" => ensure(!owed || died(life), || at(place, record))?,
            "agent/status" if record.text("status") == "idle" => ensure(!owed || died(life), || at(place, record))?,
            _ => {}
        }
    }
    Ok(())
}

/// Each plugin with a part in the agent's life is told once that it is over, before `agent/disposed`.
pub fn detached(life: &Life) -> Verdict {
    let end = life.records.iter().position(|record| record.is("agent/disposed")).unwrap_or(life.records.len());
    for plugin in &life.plan.plugins {
        let told = |record: &crate::record::Record| record.is("detached") && record.data == plugin.name.as_str();
        let times = (
            life.records[..end].iter().filter(|record| told(record)).count(),
            life.records.iter().filter(|record| told(record)).count(),
        );
        ensure(times == (1, 1), || format!("`{}` was told {times:?} times", plugin.name))?;
    }
    Ok(())
}
