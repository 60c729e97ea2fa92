//! Each invariant can be broken: a good life with one thing changed, which must be refused by the invariant that it breaks.

use serde_json::json;

use crate::check::violations;
use crate::record::{From, Record};
use crate::run::{self, Life};

/// The first life of the seeds that is good and has lines of all these types.
fn life_with(kinds: &[&str]) -> Life {
    let has = |life: &Life| kinds.iter().all(|kind| life.records.iter().any(|record| record.is(kind)));
    let dead = |life: &Life| life.records.iter().any(|record| record.text("code") == "session-write-failed");
    let found = (0..300).flat_map(run::run).find(|life| has(life) && life.before.is_empty() && !dead(life));
    let life = found.expect("some seed has them all");
    assert_eq!(violations(&life), Vec::<String>::new(), "it is good before it is doctored");
    life
}

/// The place of the first line of that type.
fn first(records: &[Record], kind: &str) -> usize {
    records.iter().position(|record| record.is(kind)).expect("there is one")
}

/// Doctors the transcript and the log of a life, and checks that the invariant whose name begins with `broken` is among those that refuse it.
fn check(kinds: &[&str], broken: &str, doctor: impl Fn(&mut Life)) {
    let mut life = life_with(kinds);
    doctor(&mut life);
    let found = violations(&life);
    assert!(found.iter().any(|violation| violation.starts_with(broken)), "{broken}: {found:?}\n{}", life.story());
}

/// The same for what is in the log: `doctor` changes the log, and the transcript is made to agree.
fn check_log(kinds: &[&str], broken: &str, doctor: impl Fn(&mut Vec<Record>)) {
    check(kinds, broken, |life| {
        doctor(&mut life.log);
        for (seq, record) in life.log.iter_mut().enumerate() {
            if let From::Log { time, .. } = record.from {
                record.from = From::Log { seq: seq as u64, time };
            }
        }
    });
}

#[test]
fn the_end() {
    check(&[], "it comes to its end", |life| life.stuck = Some("it hangs".into()));
    check(&[], "nothing is left", |life| life.left.push("1 tasks".into()));
    check(&["listener begins"], "no waterfall begins", |life| {
        let begins = Record::world("listener begins", json!({"outermost": true}));
        life.records.push(begins);
    });
    check(&["detached"], "plugins hear of the end once", |life| {
        let at = first(&life.records, "detached");
        life.records.remove(at);
    });
    check(&["turn/end"], "a turn is flushed", |life| life.records.retain(|record| !record.is("flush")));
}

#[test]
fn the_log_as_a_sequence() {
    check(&[], "the log is contiguous", |life| drop(life.log.remove(1)));
    check(&[], "the log is contiguous", |life| life.log[0].from = From::Log { seq: 0, time: u64::MAX });
    check(&[], "what is shown is what is logged", |life| drop(life.log.pop()));
    check(&[], "what is shown is what is logged", |life| life.before = vec![life.log[1].clone()]);
}

#[test]
fn turns_and_steps() {
    let name = "turns and steps";
    for kind in ["turn/start", "turn/end", "step/start", "step/end"] {
        check_log(&[kind], name, |log| drop(log.remove(first(log, kind))));
        check_log(&[kind], name, |log| log.insert(first(log, kind), log[first(log, kind)].clone()));
    }
    check_log(&["turn/start"], name, |log| {
        let at = first(log, "turn/start");
        log[at].data["turn"] = json!(7);
    });
    check_log(&["step/start"], name, |log| {
        let at = first(log, "step/start");
        log[at].data["step"] = json!(2);
    });
    check_log(&["user/message"], name, |log| {
        let at = first(log, "turn/start");
        log.swap(at, at - 1);
    });
    check_log(&["usage"], name, |log| {
        let at = first(log, "usage");
        let usage = log.remove(at);
        log.insert(first(log, "request/sent"), usage);
    });
    check_log(&["error"], name, |log| log.retain(|record| !record.is("error")));
}

#[test]
fn calls_and_results() {
    let name = "every call has one result";
    check_log(&["tool/result"], name, |log| drop(log.remove(first(log, "tool/result"))));
    check_log(&["tool/result"], name, |log| {
        log.insert(first(log, "tool/result"), log[first(log, "tool/result")].clone())
    });
    check_log(&["tool/call"], name, |log| drop(log.remove(first(log, "tool/call"))));
    check_log(&["tool/result"], name, |log| {
        let at = first(log, "tool/result");
        log.insert(at, Record { kind: "context/message".into(), ..log[0].clone() });
    });
    check(&["tool begins"], "what was not started did not run", |life| {
        let at = first(&life.records, "tool/result");
        let id = life.records[first(&life.records, "tool begins")].data["callId"].clone();
        let at = life
            .records
            .iter()
            .position(|record| record.is("tool/result") && record.data["callId"] == id)
            .unwrap_or(at);
        life.records[at].data["code"] = json!("skipped");
    });
    check(&["tool begins"], "what was not started did not run", |life| {
        let at = first(&life.records, "tool begins");
        life.records.insert(at, life.records[at].clone());
    });
    check_log(&["approval/decided"], "every question is decided", |log| {
        drop(log.remove(first(log, "approval/decided")))
    });
}

#[test]
fn messages() {
    let name = "no message is lost or doubled";
    check(&["user/message"], name, |life| drop(life.records.remove(first(&life.records, "user/message"))));
    check(&["user/message"], name, |life| {
        let at = first(&life.records, "user/message");
        life.records.insert(at, life.records[at].clone());
    });
    check(&["agent/dropped"], name, |life| drop(life.records.remove(first(&life.records, "agent/dropped"))));
    check(&["agent/queued"], name, |life| drop(life.records.remove(first(&life.records, "agent/queued"))));
    check(&["context/message"], name, |life| drop(life.records.remove(first(&life.records, "context/message"))));
    check(&["user/message"], name, |life| {
        let at = first(&life.records, "send");
        life.records[at].data["refused"] = json!("disposed");
    });
    check(&["step/end", "turn/end"], "steering is read in its turn", |life| {
        let step = first(&life.records, "step/end");
        let at = step + first(&life.records[step..], "turn/end");
        life.records[at].data["reason"] = json!({"type": "completed"});
        life.plan.max_steps = 100;
        let step = life.records[..at].iter().rposition(|record| record.is("step/end")).expect("there is one");
        let queued = Record {
            from: From::Live,
            kind: "agent/queued".into(),
            data: json!({"steering": true, "content": [{"text": "late"}]}),
        };
        life.records.insert(step, queued);
    });
}

#[test]
fn steering_in_the_last_step() {
    check(&["step/end"], "steering waits when no step can follow", |life| {
        let at = first(&life.records, "step/end");
        let steering = Record { kind: "steering/message".into(), ..life.records[at].clone() };
        life.records.insert(at, steering);
        life.plan.max_steps = 1;
    });
}

#[test]
fn the_live_side() {
    for twin in [
        "agent/turn-start",
        "agent/turn-end",
        "agent/step-start",
        "agent/step-end",
        "agent/steering",
        "agent/stream-chunk",
    ] {
        check(&[twin], "a live twin follows", |life| drop(life.records.remove(first(&life.records, twin))));
        check(&[twin], "a live twin follows", |life| {
            let at = first(&life.records, twin);
            life.records[at].data["turn"] = json!(99);
        });
    }
    let name = "the life begins with";
    check(&[], name, |life| drop(life.records.remove(first(&life.records, "agent/created"))));
    check(&[], name, |life| life.records.push(life.records[first(&life.records, "agent/created")].clone()));
    let name = "the status changes as it may";
    check(&[], name, |life| {
        let at = first(&life.records, "agent/status");
        life.records.insert(at, life.records[at].clone());
    });
    check(&["turn/end"], name, |life| {
        let idle = Record { from: From::Live, kind: "agent/status".into(), data: json!({"status": "idle"}) };
        life.records.insert(first(&life.records, "user/message"), idle);
    });
    check(&["error"], "an error is shown once", |life| {
        let at = first(&life.records, "error");
        life.records[at].data["code"] = json!("another");
    });
}

#[test]
fn budgets() {
    let name = "the reason of a turn is the strongest";
    check(&["turn/end", "step/end"], name, |life| {
        let at = first(&life.records, "turn/end");
        life.records[at].data["reason"] = json!({"type": "completed"});
        life.records.insert(first(&life.records, "step/start"), Record::world("budget", json!("Exceeded")));
    });
    check(&["turn/end"], name, |life| {
        let at = first(&life.records, "turn/end");
        life.records[at].data["reason"] = json!({"type": "budget", "code": "max-cost"});
    });
    let name = "nothing is sent without a budget";
    check(&["request/sent"], name, |life| {
        let sent = life.records[first(&life.records, "request/sent")].clone();
        life.records.extend([Record::world("budget", json!("UsedUp")), sent.clone(), sent]);
    });
    check(&["turn/start", "step/start"], name, |life| {
        life.records.insert(first(&life.records, "turn/start"), Record::world("budget", json!("UsedUp")));
    });
}

#[test]
fn reasons() {
    let name = "the reason of a turn is the strongest";
    check(&["turn/end"], name, |life| {
        let at = first(&life.records, "turn/end");
        life.records[at].data["reason"] = json!({"type": "aborted", "reason": "nobody said so"});
    });
    check(&["turn/end", "step/end"], name, |life| {
        let at = first(&life.records, "turn/end");
        life.records[at].data["reason"] = json!({"type": "completed"});
        life.records.insert(first(&life.records, "step/start"), Record::world("abort", json!("now")));
    });
    check(&["error"], name, |life| {
        let error = first(&life.records, "error");
        let at = error + first(&life.records[error..], "turn/end");
        life.records[at].data["reason"] = json!({"type": "completed"});
    });
    check(&["steering/message"], "nothing is read after an abort", |life| {
        let at = first(&life.records, "steering/message");
        let step = Record { kind: "step/start".into(), ..life.records[at].clone() };
        life.records.insert(at, Record::world("abort", json!("now")));
        life.records.insert(at, step);
    });
}

#[test]
fn requests() {
    let name = "the model is sent what the log says";
    check(&["model asked"], name, |life| {
        let at = first(&life.records, "model asked");
        life.records[at].data["messages"] = json!("user says:something else");
    });
    check(&["model asked"], name, |life| drop(life.records.remove(first(&life.records, "user/message"))));
}
