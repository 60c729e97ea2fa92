//! The live side: twins, the status, the first and the last event.

use dsh_testkit::transcript::TWINS;

use super::{Verdict, at, ensure, made_at};
use crate::record::{From, Record};
use crate::run::Life;

/// An event of the log with a live twin is followed by it at once, with the same data, unless a repair wrote it; no twin stands alone.
pub fn twins(life: &Life) -> Verdict {
    let made = made_at(life);
    for (place, record) in life.records.iter().enumerate() {
        if let Some((_, twin)) = TWINS.iter().find(|(logged, _)| record.is(logged)) {
            let follows = life.records.get(place + 1).is_some_and(|next| next.is(twin) && next.data == record.data);
            ensure(follows == (place > made), || format!("its twin at {}", at(place, record)))?;
        }
        if let Some((logged, _)) = TWINS.iter().find(|(_, twin)| record.is(twin)) {
            let stands = place > 0 && life.records[place - 1].is(logged);
            ensure(stands, || format!("a twin alone at {}", at(place, record)))?;
        }
    }
    Ok(())
}

/// `agent/created` is the first that is shown, `agent/disposed` the last, each once.
pub fn first_and_last(life: &Life) -> Verdict {
    let shown: Vec<&Record> = life.records.iter().filter(|record| record.from != From::World).collect();
    let count = |kind: &str| shown.iter().filter(|record| record.is(kind)).count();
    ensure(shown.first().is_some_and(|first| first.is("agent/created")) && count("agent/created") == 1, || {
        "`agent/created` is not the first, or there twice".into()
    })?;
    ensure(shown.last().is_some_and(|last| last.is("agent/disposed")) && count("agent/disposed") == 1, || {
        format!("the last is {}", shown.last().map(ToString::to_string).unwrap_or_default())
    })
}

/// The status changes only to another one, from idle to running and back, and from anywhere to disposed, where it stays. When it
/// becomes running there is something to do; when it becomes idle there is nothing left.
pub fn statuses(life: &Life) -> Verdict {
    let mut status = "idle".to_owned();
    let unanswered = life.before.iter().rev().take_while(|record| !record.is("turn/start"));
    let (mut waiting, mut owed) = (0, unanswered.filter(|record| record.is("user/message")).count());
    for (place, record) in life.records.iter().enumerate() {
        match record.kind.as_str() {
            "agent/queued" => {
                ensure(status != "disposed", || format!("after the end: {}", at(place, record)))?;
                waiting += 1;
            }
            "turn/start" => owed = 0,
            "user/message" | "steering/message" if record.said() != "proceed" => waiting -= 1,
            "agent/dropped" => waiting -= record.number("count") as i64,
            "agent/status" => {
                let next = record.text("status");
                let legal = matches!(
                    (status.as_str(), next),
                    ("idle", "running") | ("running", "idle") | ("idle" | "running", "disposed")
                );
                ensure(legal, || format!("from {status} at {}", at(place, record)))?;
                ensure(next != "idle" || (waiting == 0 && owed == 0), || {
                    format!("{waiting} wait at {}", at(place, record))
                })?;
                ensure(next != "running" || waiting > 0 || owed > 0, || {
                    format!("nothing to do at {}", at(place, record))
                })?;
                status = next.to_owned();
            }
            _ => {}
        }
    }
    ensure(status == "disposed", || format!("it ends as {status}"))
}

/// The error of a turn is shown live once, with the same data, before the turn is over.
pub fn errors(life: &Life) -> Verdict {
    for (place, record) in life.records.iter().enumerate().filter(|(_, record)| record.is("error")) {
        let rest = life.records[place..].iter().take_while(|next| !next.is("turn/end"));
        let shown: Vec<_> = rest.filter(|next| next.is("agent/error") && next.number("turn") > 0).collect();
        let dead = shown.iter().any(|next| next.text("code") == "session-write-failed");
        ensure(dead || (shown.len() == 1 && shown[0].data == record.data), || at(place, record))?;
    }
    Ok(())
}
