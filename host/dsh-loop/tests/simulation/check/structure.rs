//! The order of a transcript: turns, steps and what stands where inside of them.

use super::{Verdict, at, died, ensure};
use crate::record::Record;
use crate::run::Life;

#[derive(Default)]
struct Walk {
    last_turn: u64,
    turn: Option<Turn>,
    /// `user/message`s that no turn has begun with.
    unanswered: u32,
}

struct Turn {
    number: u64,
    last_step: u64,
    step: Option<Step>,
    failed: bool,
}

#[derive(Default)]
struct Step {
    number: u64,
    attempts: u64,
    /// A request is out and has not failed.
    asking: bool,
    message: bool,
    /// How far behind the message: 0 nothing, 1 usage, 2 a tool, 3 steering, 4 context.
    phase: u32,
}

/// Every turn and step that is opened is closed once and in order, numbers count up, and everything stands where it belongs.
pub fn turns_and_steps(life: &Life) -> Verdict {
    let mut walk = Walk::default();
    for (place, record) in life.log.iter().enumerate() {
        walk.next(record).map_err(|problem| format!("{problem} at {}", at(place, record)))?;
    }
    ensure(walk.turn.is_none() || died(life), || "the log ends inside of a turn".into())
}

impl Walk {
    fn next(&mut self, record: &Record) -> Verdict {
        match record.kind.as_str() {
            "user/message" => {
                self.unanswered += 1;
                ensure(self.turn.is_none(), || "a message inside of a turn".into())
            }
            "turn/start" => self.turn_start(record),
            "turn/end" => self.turn_end(record),
            "step/start" | "step/end" | "error" | "steering/message" => self.in_turn(record),
            kind if kind.starts_with("plugin/") || kind.starts_with("approval/") => Ok(()),
            "usage" if !record.data["plugin"].is_null() => Ok(()),
            "context/message" => match self.turn.as_mut().and_then(|turn| turn.step.as_mut()) {
                Some(step) => step.reach(4),
                None => Ok(()),
            },
            _ => self.in_step(record),
        }
    }

    fn turn_start(&mut self, record: &Record) -> Verdict {
        ensure(self.turn.is_none(), || "a turn inside of a turn".into())?;
        ensure(record.number("turn") == self.last_turn + 1, || format!("turn {} before", self.last_turn))?;
        ensure(self.unanswered > 0, || "a turn without a message".into())?;
        self.unanswered = 0;
        self.last_turn += 1;
        self.turn = Some(Turn { number: self.last_turn, last_step: 0, step: None, failed: false });
        Ok(())
    }

    fn turn_end(&mut self, record: &Record) -> Verdict {
        let turn = self.turn.take().ok_or("no turn is open")?;
        ensure(turn.number == record.number("turn"), || "the number of another turn".into())?;
        ensure(turn.step.is_none(), || "a step is open".into())?;
        let reason = record.data["reason"]["type"].as_str();
        ensure(turn.failed == (reason == Some("error")) || reason == Some("interrupted"), || {
            "`error` is in the log if and only if it is the reason".into()
        })
    }

    fn in_turn(&mut self, record: &Record) -> Verdict {
        let turn = self.turn.as_mut().ok_or("no turn is open")?;
        ensure(turn.number == record.number("turn"), || "the number of another turn".into())?;
        ensure(!turn.failed, || "after the turn's error".into())?;
        match (record.kind.as_str(), &mut turn.step) {
            ("step/start", None) => {
                turn.last_step += 1;
                turn.step = Some(Step { number: turn.last_step, ..Step::default() });
                ensure(record.number("step") == turn.last_step, || format!("step {} is due", turn.last_step))
            }
            ("step/start", Some(_)) => Err("a step inside of a step".into()),
            ("step/end", Some(step)) => {
                let right = step.number == record.number("step");
                turn.step = None;
                ensure(right, || "the number of another step".into())
            }
            ("step/end", None) => Err("no step is open".into()),
            ("error", step) => {
                turn.failed = true;
                ensure(step.is_none(), || "an error while a step is open".into())
            }
            ("steering/message", Some(step)) => {
                ensure(step.message, || "steering before the answer".into())?;
                step.reach(3)
            }
            _ => Ok(()),
        }
    }

    fn in_step(&mut self, record: &Record) -> Verdict {
        let turn = self.turn.as_mut().ok_or("no turn is open")?;
        let step = turn.step.as_mut().ok_or("no step is open")?;
        let numbers = (turn.number, step.number) == (record.number("turn"), record.number("step"));
        ensure(numbers, || format!("turn {}, step {} is open", turn.number, step.number))?;
        match record.kind.as_str() {
            "request/sent" => {
                ensure(!step.asking && !step.message, || "a request is out already".into())?;
                step.asking = true;
                step.attempts += 1;
                ensure(record.number("attempt") == step.attempts, || format!("attempt {} is due", step.attempts))
            }
            "request/failed" => {
                ensure(step.asking && !step.message, || "no request is out".into())?;
                step.asking = false;
                ensure(record.number("attempt") == step.attempts, || format!("attempt {} is out", step.attempts))
            }
            "assistant/chunk" => ensure(step.asking && !step.message, || "no request is out".into()),
            "assistant/message" => {
                ensure(step.asking && !step.message, || "no answer is due".into())?;
                step.message = true;
                Ok(())
            }
            "usage" => {
                ensure(step.phase == 0, || "usage is late, or there twice".into())?;
                step.reach(1)
            }
            "tool/call" | "tool/result" | "tool/dispatched" => {
                ensure(step.message, || "no message asked for it".into())?;
                step.reach(2)
            }
            "waterfall/changed" => match record.text("waterfall") {
                "agent/request" => ensure(!step.asking && !step.message, || "the request is out".into()),
                "agent/step-result" => ensure(step.asking && !step.message, || "no answer is shaped".into()),
                _ => step.reach(2),
            },
            other => Err(format!("`{other}` is not known")),
        }
    }
}

impl Step {
    fn reach(&mut self, phase: u32) -> Verdict {
        ensure(self.phase <= phase, || "it is late".into())?;
        self.phase = phase;
        Ok(())
    }
}
