//! The agent of the reference: the states, the order of a turn, the inbox, abort and dispose of the page, as one thread of control.

use std::collections::BTreeMap;

use super::{Answer, Call, Command, Do};

/// Calls of a run that are started together.
const PARALLEL: usize = 8;

/// Why a step or a turn does not come to its end.
enum Stop {
    Cancelled,
    Failed(&'static str),
}

/// What ends a turn from outside.
#[derive(Clone)]
enum Cause {
    Aborted(String),
    Disposed,
}

/// What a step did.
struct Done {
    cut: bool,
    calls: bool,
    steered: bool,
}

/// A command, and whether it was read from the input and applied.
struct Line {
    command: Command,
    read: bool,
    applied: bool,
}

/// One agent in one process; what is logged lasts over several.
pub struct Agent {
    /// Steps of a turn; 0 is no limit.
    pub max_steps: u32,
    /// `queue-mode = "one"`.
    pub one_at_a_time: bool,
    /// Messages in the model's view.
    pub view: usize,
    /// The number of the last turn.
    pub turn: u32,
    script: std::vec::IntoIter<Answer>,
    lines: Vec<Line>,
    shown: Vec<String>,
    counts: BTreeMap<&'static str, u32>,
    unsettled: Vec<(&'static str, u32)>,
    queued: Vec<String>,
    steering: Vec<String>,
    status: &'static str,
    turn_is_open: bool,
    token: Option<Option<Cause>>,
    disposed: bool,
    step_is_open: bool,
    held: Vec<String>,
    /// What has arrived since the last request, without a message.
    partial: String,
    usage: Option<u32>,
    message_logged: bool,
    refused: bool,
    codes: Vec<i32>,
}

impl Agent {
    /// An agent with a new session.
    pub fn new(max_steps: u32, one_at_a_time: bool) -> Self {
        Self {
            max_steps,
            one_at_a_time,
            view: 0,
            turn: 0,
            script: Vec::new().into_iter(),
            lines: Vec::new(),
            shown: Vec::new(),
            counts: BTreeMap::new(),
            unsettled: Vec::new(),
            queued: Vec::new(),
            steering: Vec::new(),
            status: "idle",
            turn_is_open: false,
            token: None,
            disposed: false,
            step_is_open: false,
            held: Vec::new(),
            partial: String::new(),
            usage: None,
            message_logged: false,
            refused: false,
            codes: Vec::new(),
        }
    }

    /// Runs a process of it to its end: what it shows, and its exit status.
    pub fn run(&mut self, script: Vec<Answer>, commands: Vec<Command>) -> (Vec<String>, i32) {
        let (view, turn) = (self.view, self.turn);
        *self = Self { view, turn, ..Self::new(self.max_steps, self.one_at_a_time) };
        self.script = script.into_iter();
        self.lines = commands.into_iter().map(|command| Line { command, read: false, applied: false }).collect();
        self.emit("agent/created", "");
        self.read_all();
        self.settle();
        let mut due = self.drain_queued();
        while let Some(messages) = due {
            self.settle();
            self.take_turn(messages);
            due = self.hand_over();
            self.settle();
            // A command that waited for the idle status may have brought another message.
            due = due.or_else(|| if self.disposed { None } else { self.drain_queued() });
        }
        self.settle();
        self.set_status("disposed");
        self.settle();
        let dropped = self.queued.len() + self.steering.len();
        self.emit("agent/disposed", dropped);
        (std::mem::take(&mut self.shown), self.exit())
    }

    fn exit(&self) -> i32 {
        let pending = self.lines.iter().any(|line| !line.applied);
        let usage = if self.refused || pending { Some(2) } else { None };
        let earned = |code: &i32| self.codes.contains(code) || usage == Some(*code);
        [130, 3, 6, 2].into_iter().find(earned).unwrap_or(0)
    }

    // Events and commands.

    fn emit(&mut self, kind: &'static str, detail: impl ToString) -> (&'static str, u32) {
        self.shown.push(format!("{kind} {}", detail.to_string()).trim_end().to_owned());
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        (kind, *count)
    }

    /// An append, its live twin, and whatever waits for either.
    fn append(&mut self, kind: &'static str, detail: impl ToString, twin: Option<&'static str>) {
        let event = self.emit(kind, detail);
        // A command after a chunk is applied when it is emitted.
        if kind == "assistant/chunk" {
            self.settled(event);
        }
        let twin = twin.map(|twin| self.emit(twin, ""));
        if kind != "assistant/chunk" {
            self.settled(event);
        }
        if let Some(twin) = twin {
            self.settled(twin);
        }
        self.settle();
    }

    /// A live event from where nothing waits: it settles before the driver goes on.
    fn show(&mut self, kind: &'static str, detail: impl ToString) {
        let event = self.emit(kind, detail);
        self.unsettled.push(event);
    }

    fn settle(&mut self) {
        while !self.unsettled.is_empty() {
            for event in std::mem::take(&mut self.unsettled) {
                self.settled(event);
            }
        }
    }

    fn settled(&mut self, event: (&'static str, u32)) {
        for at in 0..self.lines.len() {
            let line = &mut self.lines[at];
            if line.read && !line.applied && line.command.after == Some(event) {
                line.applied = true;
                let what = line.command.what.clone();
                self.apply(what);
            }
        }
    }

    /// Lines are applied in the order read, those whose event has been there at once.
    fn read_all(&mut self) {
        for at in 0..self.lines.len() {
            let line = &mut self.lines[at];
            line.read = true;
            let there = |(kind, count)| self.counts.get(kind).is_some_and(|emitted| *emitted >= count);
            if line.command.after.is_none_or(there) {
                line.applied = true;
                let what = line.command.what.clone();
                self.apply(what);
            }
        }
    }

    fn apply(&mut self, what: Do) {
        match what {
            Do::Send(_) | Do::Steer(_) | Do::Inject(_) if self.disposed => self.refused = true,
            Do::Send(text) => self.enqueue(text, false),
            Do::Steer(text) => self.enqueue(text, self.turn_is_open),
            Do::Inject(text) if self.step_is_open => self.held.push(text),
            Do::Inject(text) => self.log_context(text),
            Do::Abort(reason) => self.cancel(Cause::Aborted(reason)),
            Do::Cancel(keep) => {
                self.cancel(Cause::Aborted("cancelled".into()));
                let dropped = self.queued.len() + self.steering.len();
                if !keep && dropped > 0 {
                    self.queued.clear();
                    self.steering.clear();
                    self.show("agent/dropped", dropped);
                }
            }
            Do::Dispose => {
                self.set_status("disposed");
                self.cancel(Cause::Disposed);
            }
        }
    }

    fn enqueue(&mut self, text: String, steering: bool) {
        self.show("agent/queued", if steering { format!("{text} steering") } else { text.clone() });
        if steering { self.steering.push(text) } else { self.queued.push(text) }
    }

    /// The first reason wins, and a dispose replaces it.
    fn cancel(&mut self, cause: Cause) {
        let Some(known) = &mut self.token else { return };
        if known.is_none() || matches!(cause, Cause::Disposed) {
            *known = Some(cause);
        }
    }

    fn is_cancelled(&self) -> bool {
        matches!(self.token, Some(Some(_)))
    }

    fn unless_cancelled(&self) -> Result<(), Stop> {
        if self.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) }
    }

    fn set_status(&mut self, status: &'static str) {
        if self.status != status && !self.disposed {
            self.status = status;
            self.disposed = status == "disposed";
            self.show("agent/status", status);
        }
    }

    // Turns.

    fn drain_queued(&mut self) -> Option<Vec<String>> {
        if self.disposed {
            return None;
        }
        if self.queued.is_empty() {
            self.set_status("idle");
            return None;
        }
        let count = if self.one_at_a_time { 1 } else { self.queued.len() };
        let messages = self.queued.drain(..count).collect();
        self.turn_is_open = true;
        self.token = Some(None);
        self.set_status("running");
        Some(messages)
    }

    fn hand_over(&mut self) -> Option<Vec<String>> {
        self.token = None;
        self.turn_is_open = false;
        let left = std::mem::take(&mut self.steering);
        self.queued.extend(left);
        self.drain_queued()
    }

    fn take_turn(&mut self, messages: Vec<String>) {
        for message in messages {
            self.view += 1;
            self.append("user/message", message, None);
        }
        self.turn += 1;
        self.append("turn/start", self.turn, Some("agent/turn-start"));
        let end = self.steps();
        if let Err(Stop::Failed(code)) = end
            && !self.is_cancelled()
        {
            // Shown together, as an event and its twin are.
            let error = self.emit("error", code);
            self.show("agent/error", code);
            self.settled(error);
            self.settle();
            self.token = None;
            return self.end_turn("error", code, 3);
        }
        match (self.token.take().flatten(), end) {
            (_, _) if self.disposed => self.end_turn("disposed", "disposed by a command", 130),
            (Some(Cause::Aborted(reason)), _) => self.end_turn("aborted", &reason, 130),
            (_, Ok(reason)) => self.end_turn(reason, "-", if reason == "completed" { 0 } else { 6 }),
            (_, Err(_)) => unreachable!("a turn stops when it was cancelled or has failed"),
        }
    }

    fn end_turn(&mut self, reason: &str, detail: &str, code: i32) {
        self.codes.push(code);
        self.append("turn/end", format!("{} {reason} {detail}", self.turn), Some("agent/turn-end"));
    }

    fn steps(&mut self) -> Result<&'static str, Stop> {
        for step in 1.. {
            let last = step == self.max_steps;
            let done = self.step(step, last)?;
            self.unless_cancelled()?;
            let goes_on = !done.cut && (done.calls || done.steered);
            match goes_on {
                true if last => return Ok("max-steps"),
                true => {}
                false if !last && !done.cut && !self.steering.is_empty() => {}
                false => return Ok(if done.cut { "max-tokens" } else { "completed" }),
            }
        }
        unreachable!("the range of steps has no end")
    }

    fn log_steering(&mut self) -> bool {
        let drained = std::mem::take(&mut self.steering);
        let any = !drained.is_empty();
        for text in drained {
            self.view += 1;
            self.append("steering/message", text, Some("agent/steering"));
        }
        any
    }

    fn log_context(&mut self, text: String) {
        self.view += 1;
        self.append("context/message", text, None);
    }

    // Steps.

    fn step(&mut self, step: u32, last: bool) -> Result<Done, Stop> {
        self.unless_cancelled()?;
        self.log_steering();
        self.unless_cancelled()?;
        self.step_is_open = true;
        (self.message_logged, self.usage) = (false, None);
        self.partial.clear();
        let place = format!("{} {step}", self.turn);
        self.append("step/start", &place, Some("agent/step-start"));
        let mut done = self.ask_and_act();
        match &mut done {
            Err(stop) if !self.message_logged => {
                if matches!(stop, Stop::Cancelled) && !self.partial.is_empty() {
                    self.view += 1;
                    self.append("assistant/message", format!("{} interrupted", self.partial), None);
                }
                self.log_usage();
            }
            Ok(done) if !last && !done.cut => done.steered = self.log_steering(),
            _ => {}
        }
        while !self.held.is_empty() {
            for text in std::mem::take(&mut self.held) {
                self.log_context(text);
            }
        }
        self.step_is_open = false;
        self.append("step/end", &place, Some("agent/step-end"));
        done
    }

    fn log_usage(&mut self) {
        if let Some(output) = self.usage {
            self.append("usage", output, None);
        }
    }

    fn ask_and_act(&mut self) -> Result<Done, Stop> {
        self.unless_cancelled()?;
        self.append("request/sent", self.view, None);
        self.unless_cancelled()?;
        let Some(answer) = self.script.next() else { return Err(self.request_fails("script-exhausted")) };
        let whole = self.stream(&answer)?;
        self.unless_cancelled()?;
        if !whole {
            return Err(self.request_fails("server"));
        }
        let Answer { text, calls, cut, .. } = answer;
        let calls = if cut { Vec::new() } else { calls };
        let says = Some(text).filter(|text| !text.is_empty());
        let content: Vec<String> = says.into_iter().chain(calls.iter().map(|call| call.id.clone())).collect();
        self.view += usize::from(!content.is_empty());
        self.message_logged = true;
        self.append("assistant/message", content.join(","), None);
        self.log_usage();
        self.batch(&calls)?;
        Ok(Done { cut, calls: !calls.is_empty(), steered: false })
    }

    fn request_fails(&mut self, code: &'static str) -> Stop {
        if self.is_cancelled() {
            return Stop::Cancelled;
        }
        self.partial.clear();
        self.append("request/failed", code, None);
        Stop::Failed(code)
    }

    /// Streams an answer, chunk by chunk; the token is looked at before each. False when it fails before its last chunk.
    fn stream(&mut self, answer: &Answer) -> Result<bool, Stop> {
        let pieces = |text: &str| -> Vec<String> {
            let letters: Vec<char> = text.chars().collect();
            letters.chunks(answer.piece.unwrap_or(letters.len()).max(1)).map(String::from_iter).collect()
        };
        let mut chunks: Vec<Option<String>> = Vec::new();
        if !answer.text.is_empty() {
            chunks.push(None);
            chunks.extend(pieces(&answer.text).into_iter().map(Some));
            chunks.push(None);
        }
        for call in &answer.calls {
            chunks.extend(std::iter::repeat_n(None, 2 + pieces(call.tool.arguments()).len()));
        }
        let usage_at = answer.usage.map(|_| chunks.len());
        chunks.extend(usage_at.map(|_| None));
        // The finish.
        chunks.push(None);
        let whole = chunks.len();
        chunks.truncate(answer.fails_after.unwrap_or(whole));
        let is_whole = chunks.len() == whole;
        for (at, piece) in chunks.into_iter().enumerate() {
            self.unless_cancelled()?;
            self.partial.push_str(&piece.unwrap_or_default());
            if usage_at == Some(at) {
                self.usage = answer.usage;
            }
            self.append("assistant/chunk", "", Some("agent/stream-chunk"));
        }
        Ok(is_whole)
    }

    /// Runs of neighbouring parallel-safe calls, and single others.
    fn batch(&mut self, calls: &[Call]) -> Result<(), Stop> {
        let together = |left: &Call, right: &Call| left.tool.is_parallel_safe() && right.tool.is_parallel_safe();
        for run in calls.chunk_by(together).flat_map(|run| run.chunks(PARALLEL)) {
            let mut started = 0;
            while started < run.len() && !self.is_cancelled() {
                self.append("tool/call", &run[started].id, None);
                started += 1;
            }
            let aborted = self.is_cancelled().then_some("aborted");
            for call in &run[..started] {
                self.log_result(call, aborted.or(call.tool.code()));
            }
            for call in &run[started..] {
                self.append("tool/call", &call.id, None);
                self.log_result(call, Some("aborted-before-dispatch"));
            }
        }
        self.unless_cancelled()
    }

    fn log_result(&mut self, call: &Call, code: Option<&str>) {
        self.view += 1;
        self.append("tool/result", format!("{} {}", call.id, code.unwrap_or("-")), None);
    }
}
