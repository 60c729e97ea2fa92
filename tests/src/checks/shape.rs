//! The shape of a session log: header, `seq` and `time`, every turn and step opened once and closed once in order, every tool call
//! with exactly one result directly after its message.

use serde_json::Value;

use crate::log::Log;

/// What is wrong with `log`; empty when nothing is. `killed`: its writer was killed, so that its end may be open.
pub fn check(log: &Log, killed: bool) -> Vec<String> {
    let mut problems = lines(log);
    let mut shape = Shape::default();
    for (at, entry) in log.entries.iter().enumerate() {
        if let Err(problem) = shape.next(log.kind(at), &entry["data"]) {
            problems.push(format!("seq {at} (`{}`): {problem}", log.kind(at)));
            return problems;
        }
    }
    if !killed && let Err(problem) = shape.end() {
        problems.push(problem);
    }
    problems
}

/// The header, and what stands beside `data` in each line.
fn lines(log: &Log) -> Vec<String> {
    let mut problems = Vec::new();
    let header = &log.header;
    if header["type"] != "session/header"
        || header["version"] != 1
        || header["id"] != log.id.as_str()
        || !header["agent"].is_string()
        || !header["workspace"].is_string()
        || header.get("model").is_none()
        || !header["host"].is_string()
        || header.get("created").is_none()
    {
        problems.push(format!("not the promised header: {header}"));
    }
    let mut last_time = 0;
    for (at, entry) in log.entries.iter().enumerate() {
        let keys: Vec<&str> = entry.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        if keys != ["type", "seq", "time", "session", "agent", "data"] {
            problems.push(format!("seq {at}: its members are {keys:?}"));
        }
        if entry["seq"] != at {
            problems.push(format!("line {} has seq {}, not {at}", at + 2, entry["seq"]));
        }
        let time = entry["time"].as_u64().unwrap_or(0);
        if time < last_time {
            problems.push(format!("seq {at}: its time {time} is before {last_time}"));
        }
        last_time = time;
        let is_ancestors = || header["lineage"].as_array().is_some_and(|lineage| lineage.contains(&entry["agent"]));
        let is_its = entry["agent"] == header["agent"] || (at < log.copied() && is_ancestors());
        if entry["session"] != log.id.as_str() || !is_its {
            problems.push(format!("seq {at}: it is of session {} and agent {}", entry["session"], entry["agent"]));
        }
    }
    problems
}

/// A tool call of the open step's message.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    arguments: String,
    called: bool,
    answered: bool,
}

#[derive(Debug, Default)]
struct Shape {
    turn: Option<u64>,
    last_turn: u64,
    step: Option<u64>,
    last_step: u64,
    /// Number of the attempt in the open step, and whether it is under way.
    attempt: u64,
    sent: bool,
    message: bool,
    calls: Vec<Call>,
    error: bool,
    /// Sources of the user messages no turn has started for.
    unanswered: Vec<Value>,
    questions: Vec<String>,
    /// Calls outside of any turn (`tool call`) without result.
    outside: Vec<String>,
}

type Check = Result<(), String>;

fn must(holds: bool, otherwise: &str) -> Check {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

impl Shape {
    fn next(&mut self, kind: &str, data: &Value) -> Check {
        match kind {
            "user/message" => {
                must(self.turn.is_none(), "a user message inside of a turn")?;
                self.unanswered.push(data["source"].clone());
                Ok(())
            }
            "context/message" => self.no_open_calls(),
            "turn/start" => self.turn_start(data),
            "turn/end" => self.turn_end(data),
            "steering/message" => {
                self.at_turn(data)?;
                self.no_open_calls()
            }
            "step/start" => self.step_start(data),
            "step/end" => {
                self.at_step(data)?;
                self.no_open_calls()?;
                self.step = None;
                Ok(())
            }
            "plugin/failed" => {
                must(data["turn"] == 0 || data["turn"].as_u64() <= Some(self.last_turn), "a turn that has not begun")
            }
            "plugin/reloaded" => {
                must(self.turn.is_none(), "a turn is open")?;
                must(data["turn"] == self.last_turn + 1, "it serves another turn than the next")
            }
            "error" => {
                self.at_turn(data)?;
                must(self.step.is_none(), "the step is still open")?;
                must(data["step"] == self.last_step, "the step is another")?;
                must(!self.error, "the turn's second error")?;
                self.error = true;
                Ok(())
            }
            _ => self.in_step(kind, data),
        }
    }

    fn in_step(&mut self, kind: &str, data: &Value) -> Check {
        match kind {
            "request/sent" => self.request_sent(data),
            "request/failed" => {
                self.at_step(data)?;
                must(self.sent && data["attempt"] == self.attempt, "no such attempt is under way")?;
                self.sent = false;
                Ok(())
            }
            "assistant/chunk" => {
                self.at_step(data)?;
                must(self.sent && !self.message, "no request is under way")
            }
            "assistant/message" => self.message(data),
            "tool/call" if data["turn"] == 0 => {
                self.outside.push(data["callId"].to_string());
                Ok(())
            }
            "tool/result" if data["turn"] == 0 => {
                let id = data["callId"].to_string();
                let at = self.outside.iter().position(|open| *open == id).ok_or("a result without a call")?;
                self.outside.remove(at);
                Ok(())
            }
            "tool/call" => self.call(data),
            "tool/result" => self.result(data),
            "tool/dispatched" => self.about_a_call(data),
            "approval/asked" => {
                self.about_a_call(data)?;
                self.questions.push(data["id"].to_string());
                must(self.questions.len() == 1, "a second open question")
            }
            "approval/decided" => {
                self.about_a_call(data)?;
                must(self.questions.pop() == Some(data["id"].to_string()), "an answer to no open question")
            }
            "usage" if data.get("plugin").is_some() => Ok(()),
            "usage" | "compaction/applied" => self.at_step(data),
            "waterfall/changed" if data["turn"] != 0 => self.at_turn(data),
            _ => Ok(()),
        }
    }

    fn at_turn(&self, data: &Value) -> Check {
        must(self.turn.is_some() && data["turn"].as_u64() == self.turn, "it is not in the open turn")
    }

    fn at_step(&self, data: &Value) -> Check {
        self.at_turn(data)?;
        must(self.step.is_some() && data["step"].as_u64() == self.step, "it is not in the open step")
    }

    fn no_open_calls(&self) -> Check {
        must(self.calls.iter().all(|call| call.answered), "a tool call has no result yet")
    }

    fn turn_start(&mut self, data: &Value) -> Check {
        must(self.turn.is_none(), "a turn is open")?;
        must(data["turn"] == self.last_turn + 1, "not the next turn's number")?;
        must(
            self.unanswered.first() == Some(&data["trigger"]["source"]),
            "its source is not that of its first message",
        )?;
        self.unanswered.clear();
        self.last_turn += 1;
        self.turn = Some(self.last_turn);
        self.last_step = 0;
        self.error = false;
        Ok(())
    }

    fn turn_end(&mut self, data: &Value) -> Check {
        self.at_turn(data)?;
        must(self.step.is_none(), "a step is open")?;
        // Between the two the process may have ended.
        let interrupted = data["reason"]["type"] == "interrupted";
        must(
            interrupted || self.error == (data["reason"]["type"] == "error"),
            "reason `error` and the event `error` go together",
        )?;
        if interrupted {
            // Whoever asked is gone, and the call that it was about has its result.
            self.questions.clear();
        }
        self.turn = None;
        Ok(())
    }

    fn step_start(&mut self, data: &Value) -> Check {
        self.at_turn(data)?;
        must(self.step.is_none(), "a step is open")?;
        must(data["step"] == self.last_step + 1, "not the next step's number")?;
        self.last_step += 1;
        *self = Shape {
            step: Some(self.last_step),
            attempt: 0,
            sent: false,
            message: false,
            calls: Vec::new(),
            ..std::mem::take(self)
        };
        Ok(())
    }

    fn request_sent(&mut self, data: &Value) -> Check {
        self.at_step(data)?;
        must(!self.sent && !self.message, "a request is under way or answered")?;
        must(data["attempt"] == self.attempt + 1, "not the next attempt's number")?;
        self.attempt += 1;
        self.sent = true;
        Ok(())
    }

    fn message(&mut self, data: &Value) -> Check {
        self.at_step(data)?;
        must(self.sent && !self.message, "no request is under way")?;
        self.message = true;
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let calls = data["content"].as_array().into_iter().flatten().filter(|block| block["type"] == "tool-call");
        let call = |block: &Value| Call {
            id: text(&block["id"]),
            name: text(&block["name"]),
            arguments: text(&block["arguments"]),
            called: false,
            answered: false,
        };
        self.calls = calls.map(call).collect();
        must(data.get("interrupted").is_none() || self.calls.is_empty(), "an interrupted message with calls")?;
        let mut ids: Vec<&str> = self.calls.iter().map(|call| call.id.as_str()).collect();
        ids.sort_unstable();
        must(!ids.contains(&""), "a call without id")?;
        must(ids.windows(2).all(|pair| pair[0] != pair[1]), "two calls with one id")
    }

    fn call(&mut self, data: &Value) -> Check {
        self.at_step(data)?;
        let next = self.calls.iter_mut().find(|call| !call.called).ok_or("the message has no further call")?;
        must(
            data["callId"] == next.id.as_str()
                && data["name"] == next.name.as_str()
                && data["arguments"] == next.arguments.as_str(),
            "not the message's next call",
        )?;
        next.called = true;
        Ok(())
    }

    fn result(&mut self, data: &Value) -> Check {
        self.at_step(data)?;
        let next = self.calls.iter_mut().find(|call| !call.answered).ok_or("the message has no further call")?;
        must(next.called && data["callId"] == next.id.as_str(), "not the result of the next call")?;
        next.answered = true;
        Ok(())
    }

    fn about_a_call(&self, data: &Value) -> Check {
        let Some(id) = data["callId"].as_str().filter(|_| data["turn"] != 0) else { return Ok(()) };
        self.at_step(data)?;
        must(self.calls.iter().any(|call| call.id == id && call.called && !call.answered), "no such call is running")
    }

    fn end(&self) -> Check {
        must(self.step.is_none(), "the last step is not closed")?;
        must(self.turn.is_none(), "the last turn is not closed")?;
        must(self.questions.is_empty(), "a question was never decided")?;
        must(self.outside.is_empty(), "a call has no result")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::checks::fixture::{events, log};

    type Events = Vec<(&'static str, Value)>;

    fn check_events(doctor: impl Fn(&mut Events), expect: &[&str]) {
        let mut events = events();
        doctor(&mut events);
        assert_eq!(check(&log(events), false), expect);
    }

    fn at(events: &Events, kind: &str) -> usize {
        events.iter().position(|(found, _)| *found == kind).expect("the fixture has one")
    }

    fn without(kind: &'static str) -> impl Fn(&mut Events) {
        move |events| drop(events.remove(at(events, kind)))
    }

    fn twice(kind: &'static str) -> impl Fn(&mut Events) {
        move |events| events.insert(at(events, kind), events[at(events, kind)].clone())
    }

    #[test]
    fn a_good_log_is_good() {
        check_events(|_| (), &[]);
    }

    #[test]
    fn only_what_was_copied_may_be_an_ancestors() {
        let check_agents = |forked_at: Value, lineage: Value, expect: &[&str]| {
            let mut log = log(events());
            log.header["agent"] = json!("main.1");
            log.header["lineage"] = lineage;
            log.header["forkedAt"] = forked_at;
            let last = log.entries.len() - 1;
            log.entries[last]["agent"] = json!("main.1");
            assert_eq!(check(&log, false), expect);
        };
        check_agents(json!(14), json!(["main"]), &[]);
        check_agents(json!(13), json!(["main"]), &["seq 14: it is of session \"s\" and agent \"main\""]);
        let foreign: Vec<String> =
            (0..15).map(|at| format!("seq {at}: it is of session \"s\" and agent \"main\"")).collect();
        check_agents(json!(14), json!(["other"]), &foreign.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn missing_entries_are_found() {
        check_events(without("user/message"), &["seq 0 (`turn/start`): its source is not that of its first message"]);
        check_events(without("turn/start"), &["seq 1 (`step/start`): it is not in the open turn"]);
        check_events(without("step/start"), &["seq 2 (`request/sent`): it is not in the open step"]);
        check_events(without("request/sent"), &["seq 3 (`assistant/chunk`): no request is under way"]);
        check_events(without("assistant/message"), &["seq 6 (`tool/call`): the message has no further call"]);
        check_events(without("tool/call"), &["seq 7 (`tool/result`): not the result of the next call"]);
        check_events(without("tool/result"), &["seq 8 (`steering/message`): a tool call has no result yet"]);
        check_events(without("step/end"), &["seq 10 (`step/start`): a step is open"]);
        check_events(without("turn/end"), &["the last turn is not closed"]);
    }

    #[test]
    fn entries_that_are_there_twice_are_found() {
        check_events(twice("turn/start"), &["seq 2 (`turn/start`): a turn is open"]);
        check_events(twice("step/start"), &["seq 3 (`step/start`): a step is open"]);
        check_events(twice("step/end"), &["seq 11 (`step/end`): it is not in the open step"]);
        check_events(twice("turn/end"), &["seq 16 (`turn/end`): it is not in the open turn"]);
        check_events(twice("assistant/message"), &["seq 6 (`assistant/message`): no request is under way"]);
        check_events(twice("tool/call"), &["seq 8 (`tool/call`): the message has no further call"]);
        check_events(twice("tool/result"), &["seq 9 (`tool/result`): the message has no further call"]);
        check_events(twice("request/sent"), &["seq 4 (`request/sent`): a request is under way or answered"]);
    }

    #[test]
    fn wrong_order_is_found() {
        check_events(|events| events.swap(8, 9), &["seq 8 (`steering/message`): a tool call has no result yet"]);
        check_events(|events| events.swap(14, 15), &["seq 14 (`turn/end`): a step is open"]);
        check_events(|events| events[11].1["step"] = json!(3), &["seq 11 (`step/start`): not the next step's number"]);
        check_events(
            |events| events[7].1["arguments"] = json!("{ }"),
            &["seq 7 (`tool/call`): not the message's next call"],
        );
        check_events(
            |events| events[5].1["content"][0]["id"] = json!(""),
            &["seq 5 (`assistant/message`): a call without id"],
        );
        let asked = |events: &mut Events| {
            events.insert(8, ("approval/asked", json!({"turn": 1, "step": 1, "callId": "c1", "id": "approval-1"})))
        };
        check_events(asked, &["a question was never decided"]);
    }

    #[test]
    fn an_error_and_its_reason_go_together() {
        let error = ("error", json!({"turn": 1, "step": 2, "message": "m", "code": "c"}));
        check_events(
            |events| events.insert(15, error.clone()),
            &["seq 16 (`turn/end`): reason `error` and the event `error` go together"],
        );
        check_events(
            |events| events[15].1["reason"]["type"] = json!("error"),
            &["seq 15 (`turn/end`): reason `error` and the event `error` go together"],
        );
        check_events(|events| events.insert(14, error.clone()), &["seq 14 (`error`): the step is still open"]);
    }

    #[test]
    fn an_open_end_is_good_when_the_writer_was_killed() {
        let mut events = events();
        events.truncate(8);
        let log = log(events);
        assert_eq!(check(&log, true), Vec::<String>::new());
        assert_eq!(check(&log, false), ["the last step is not closed"]);
    }

    #[test]
    fn lines_are_checked() {
        let check_log = |doctor: &dyn Fn(&mut Log), expect: &str| {
            let mut log = log(events());
            doctor(&mut log);
            assert_eq!(check(&log, false), [expect]);
        };
        check_log(&|log| log.entries[3]["seq"] = json!(4), "line 5 has seq 4, not 3");
        check_log(&|log| log.entries[15]["time"] = json!(3), "seq 15: its time 3 is before 24");
        check_log(&|log| log.entries[2]["session"] = json!("t"), "seq 2: it is of session \"t\" and agent \"main\"");
        check_log(
            &|log| log.entries[2]["more"] = json!(1),
            "seq 2: its members are [\"type\", \"seq\", \"time\", \"session\", \"agent\", \"data\", \"more\"]",
        );
        check_log(
            &|log| log.header = json!({"type": "session/header", "version": 1, "agent": "main"}),
            "not the promised header: {\"type\":\"session/header\",\"version\":1,\"agent\":\"main\"}",
        );
    }
}
