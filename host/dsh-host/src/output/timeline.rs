//! A timeline of a run in Chrome's trace event format, JSON array form: what `chrome://tracing` and Perfetto open.
//!
//! An agent is a process. Its first thread is its loop: turns, steps, requests, tool calls, and in them the calls of plugins. Tool calls
//! that run beside one another, and whatever else would not nest, have threads of their own. Loading plugins is a process too, a thread
//! for each plugin. Every event is complete (`ph` is `X`) and written when it is over, so a file without its last `]` is a process that
//! was killed, and holds all that was over by then.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use dsh_seam::AgentId;
use dsh_seam::event::{Emitted, Event};
use dsh_seam::message::Chunk;
use dsh_wasm::{Receipt, as_micros};
use serde_json::{Map, Value, json};

/// The process under which plugins are loaded.
const LOADING: u32 = 1;
/// The thread of an agent's loop.
const LOOP: u32 = 0;

/// What a timeline wants to know of an event.
pub struct Happening {
    at: Duration,
    agent: AgentId,
    what: What,
}

enum What {
    TurnStart(u32),
    TurnEnd(Value),
    StepStart(u32),
    StepEnd,
    Sent { model: String, attempt: u32, messages: u32 },
    Answered(Value),
    ToolCall { id: String, name: String, bytes: usize },
    ToolResult { id: String, code: Option<String> },
}

impl Happening {
    /// What is to be known of `emitted`, which happened `at` after the run began.
    pub fn of(emitted: &Emitted, at: Duration) -> Option<Self> {
        let Emitted::Durable(entry) = emitted else { return None };
        let what = match &entry.event {
            Event::TurnStart(start) => What::TurnStart(start.turn),
            Event::TurnEnd(end) => What::TurnEnd(serde_json::to_value(&end.reason).unwrap_or_default()),
            Event::StepStart(mark) => What::StepStart(mark.step),
            Event::StepEnd(_) => What::StepEnd,
            Event::RequestSent(sent) => {
                What::Sent { model: sent.model.clone(), attempt: sent.attempt, messages: sent.messages }
            }
            Event::AssistantChunk(chunk) => match &chunk.chunk {
                Chunk::Finish { .. } => What::Answered(json!({})),
                _ => return None,
            },
            Event::RequestFailed(failed) => What::Answered(json!({ "code": failed.code })),
            // A stream that was given up has no last piece.
            Event::AssistantMessage(message) => {
                What::Answered(json!({ "interrupted": message.interrupted == Some(true) }))
            }
            Event::ToolCall(call) => {
                What::ToolCall { id: call.call_id.clone(), name: call.name.clone(), bytes: call.arguments.len() }
            }
            Event::ToolResult(result) => What::ToolResult { id: result.call_id.clone(), code: result.code.clone() },
            _ => return None,
        };
        Some(Self { at, agent: entry.agent.clone(), what })
    }
}

/// The events of a trace.
#[derive(Default)]
pub struct Timeline {
    out: Vec<u8>,
    /// Whether an event has been written, after which another needs a comma.
    begun: bool,
    agents: HashMap<AgentId, Agent>,
    loading: Option<Process>,
    plugins: BTreeMap<String, u32>,
    processes: u32,
}

struct Agent {
    process: Process,
    turn: Option<Open>,
    step: Option<Open>,
    request: Option<Open>,
    /// Tool calls under way, with their threads.
    calls: Vec<(String, u32, Open)>,
}

/// Something that has begun.
struct Open {
    name: String,
    begin: Duration,
    args: Map<String, Value>,
}

/// A process of the trace, with what is on its threads.
struct Process {
    pid: u32,
    /// What no later one holds yet, in the order of its ends.
    threads: BTreeMap<u32, Vec<Span>>,
}

/// From when to when something was, in nanoseconds.
#[derive(Clone, Copy)]
struct Span {
    begin: u64,
    end: u64,
}

impl Span {
    fn new(begin: Duration, end: Duration) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { begin: nanos(begin), end: nanos(end.max(begin)) }
    }

    /// Whether one begins inside of the other and ends outside.
    fn crosses(self, other: Self) -> bool {
        let reaches = |first: Self, second: Self| {
            first.begin < second.begin && second.begin < first.end && first.end < second.end
        };
        reaches(self, other) || reaches(other, self)
    }

    fn holds(self, other: Self) -> bool {
        self.begin <= other.begin && other.end <= self.end
    }
}

impl Timeline {
    /// What a file begins with.
    pub const FIRST: &'static [u8] = b"[\n";
    /// What a whole file ends with.
    pub const LAST: &'static [u8] = b"\n]\n";

    /// What is to be written next.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// A call of a plugin is over.
    pub fn receipt(&mut self, receipt: &Receipt) {
        let span = Span::new(receipt.begin, receipt.begin + receipt.wall);
        let name = format!("{} {}", receipt.plugin, receipt.seam);
        let args = match serde_json::to_value(receipt) {
            Ok(Value::Object(args)) => args,
            _ => Map::new(),
        };
        let Some(agent) = &receipt.agent else { return self.load(receipt, &name, span, args) };
        let agent = self.agent(agent);
        let known = receipt.call_id.as_deref().and_then(|id| agent.calls.iter().find(|(call, ..)| *call == *id));
        let thread = known.map_or(LOOP, |(_, thread, _)| *thread);
        let (pid, tid, fresh) = agent.process.place(thread, span);
        self.write(pid, tid, fresh, "plugin", &name, span, args);
    }

    fn load(&mut self, receipt: &Receipt, name: &str, span: Span, args: Map<String, Value>) {
        if self.loading.is_none() {
            self.processes = self.processes.max(LOADING);
            self.loading = Some(Process { pid: LOADING, threads: BTreeMap::new() });
            self.name_process(LOADING, "loading plugins");
        }
        let next = u32::try_from(self.plugins.len()).unwrap_or(u32::MAX);
        let tid = *self.plugins.entry(receipt.plugin.to_string()).or_insert(next);
        let process = self.loading.as_mut().expect("invariant: made above");
        let fresh = process.threads.insert(tid, Vec::new()).is_none();
        if fresh {
            self.name_thread(LOADING, tid, receipt.plugin.as_str());
        }
        self.write(LOADING, tid, None, "plugin", name, span, args);
    }

    /// Something happened to an agent.
    pub fn happened(&mut self, happening: Happening) {
        let Happening { at, agent: id, what } = happening;
        let agent = self.agent(&id);
        let open = |name: String, args: Value| Some(Open::new(name, at, args));
        match what {
            What::TurnStart(turn) => agent.turn = open(format!("turn {turn}"), json!({ "turn": turn })),
            What::StepStart(step) => agent.step = open(format!("step {step}"), json!({ "step": step })),
            What::Sent { model, attempt, messages } => {
                let args = json!({ "model": model, "attempt": attempt, "messages": messages });
                agent.request = open(format!("request {model}"), args);
            }
            What::Answered(args) => {
                let open = agent.request.take();
                self.close(&id, LOOP, "request", open, at, args);
            }
            What::ToolCall { id: call, name, bytes } => {
                let thread = agent.free_thread();
                let args = json!({ "callId": call, "tool": name, "argumentBytes": bytes });
                agent.calls.push((call, thread, Open::new(format!("tool {name}"), at, args)));
            }
            What::ToolResult { id: call, code } => {
                let Some(index) = agent.calls.iter().position(|(known, ..)| *known == call) else { return };
                let (_, thread, open) = agent.calls.remove(index);
                let args = code.map_or_else(|| json!({}), |code| json!({ "code": code }));
                self.close(&id, thread, "tool", Some(open), at, args);
            }
            What::StepEnd => self.end_step(&id, at, &json!({})),
            What::TurnEnd(reason) => {
                self.end_step(&id, at, &json!({}));
                let open = self.agent(&id).turn.take();
                self.close(&id, LOOP, "turn", open, at, json!({ "reason": reason }));
            }
        }
    }

    /// The run is over; what is still open ends here.
    pub fn end(&mut self, at: Duration) {
        let mut ids: Vec<AgentId> = self.agents.keys().cloned().collect();
        ids.sort();
        for id in ids {
            let unfinished = json!({ "unfinished": true });
            self.end_step(&id, at, &unfinished);
            let open = self.agent(&id).turn.take();
            self.close(&id, LOOP, "turn", open, at, unfinished);
        }
    }

    /// Ends a step with all that is in it.
    fn end_step(&mut self, id: &AgentId, at: Duration, args: &Value) {
        let agent = self.agent(id);
        let (calls, request, step) = (std::mem::take(&mut agent.calls), agent.request.take(), agent.step.take());
        for (_, thread, open) in calls {
            self.close(id, thread, "tool", Some(open), at, args.clone());
        }
        self.close(id, LOOP, "request", request, at, args.clone());
        self.close(id, LOOP, "step", step, at, args.clone());
    }

    fn close(&mut self, id: &AgentId, thread: u32, kind: &str, open: Option<Open>, at: Duration, more: Value) {
        let Some(Open { name, begin, mut args }) = open else { return };
        if let Value::Object(more) = more {
            args.extend(more);
        }
        let span = Span::new(begin, at);
        let (pid, tid, fresh) = self.agent(id).process.place(thread, span);
        self.write(pid, tid, fresh, kind, &name, span, args);
    }

    fn agent(&mut self, id: &AgentId) -> &mut Agent {
        if !self.agents.contains_key(id) {
            self.processes = self.processes.max(LOADING) + 1;
            let pid = self.processes;
            self.name_process(pid, &format!("agent {id}"));
            self.agents.insert(id.clone(), Agent::new(pid));
        }
        self.agents.get_mut(id).expect("invariant: made above")
    }

    #[expect(clippy::too_many_arguments, reason = "each is a field of the event")]
    fn write(
        &mut self,
        pid: u32,
        tid: u32,
        fresh: Option<&'static str>,
        kind: &str,
        name: &str,
        span: Span,
        args: Map<String, Value>,
    ) {
        if let Some(thread) = fresh {
            let name = if tid == LOOP { thread.to_owned() } else { format!("{thread} {tid}") };
            self.name_thread(pid, tid, &name);
        }
        let event = json!({
            "name": name, "cat": kind, "ph": "X", "ts": micros(span.begin), "dur": micros(span.end - span.begin), "pid": pid, "tid": tid, "args": args,
        });
        self.put(&event);
    }

    fn name_process(&mut self, pid: u32, name: &str) {
        self.put(&json!({ "name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": { "name": name } }));
    }

    fn name_thread(&mut self, pid: u32, tid: u32, name: &str) {
        self.put(&json!({ "name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } }));
    }

    fn put(&mut self, event: &Value) {
        if std::mem::replace(&mut self.begun, true) {
            self.out.extend(b",\n");
        }
        self.out.extend(event.to_string().into_bytes());
    }
}

/// What the format counts in.
fn micros(nanos: u64) -> f64 {
    as_micros(Duration::from_nanos(nanos))
}

impl Open {
    fn new(name: String, begin: Duration, args: Value) -> Self {
        let args = match args {
            Value::Object(args) => args,
            _ => Map::new(),
        };
        Self { name, begin, args }
    }
}

impl Agent {
    fn new(pid: u32) -> Self {
        let process = Process { pid, threads: BTreeMap::new() };
        Self { process, turn: None, step: None, request: None, calls: Vec::new() }
    }

    /// The thread for a tool call: the loop's own, unless another runs on it.
    fn free_thread(&self) -> u32 {
        (LOOP..).find(|thread| self.calls.iter().all(|(_, taken, _)| taken != thread)).unwrap_or(LOOP)
    }
}

impl Process {
    /// The thread on which `span` nests with all that is there: `wanted`, or else the first beside it. Also what to name the thread
    /// when it is new.
    fn place(&mut self, wanted: u32, span: Span) -> (u32, u32, Option<&'static str>) {
        let nests = |spans: &Vec<Span>| {
            spans.iter().rev().take_while(|known| known.end > span.begin).all(|known| !span.crosses(*known))
        };
        let tid = (wanted..)
            .find(|tid| self.threads.get(tid).is_none_or(nests))
            .expect("invariant: a thread that nobody used takes anything");
        let fresh = !self.threads.contains_key(&tid);
        let spans = self.threads.entry(tid).or_default();
        // What it holds cannot cross what comes later unless `span` does too.
        while spans.last().is_some_and(|last| span.holds(*last)) {
            spans.pop();
        }
        spans.insert(spans.partition_point(|known| known.end <= span.end), span);
        (self.pid, tid, fresh.then_some(if tid == LOOP { "loop" } else { "beside" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(begin: u64, end: u64) -> Span {
        Span { begin, end }
    }

    #[test]
    fn spans_cross_when_neither_holds_the_other_and_they_meet() {
        let check = |left: (u64, u64), right: (u64, u64), expect: bool| {
            let (left, right) = (span(left.0, left.1), span(right.0, right.1));
            assert_eq!((left.crosses(right), right.crosses(left)), (expect, expect));
        };
        check((0, 10), (5, 15), true);
        check((0, 10), (2, 8), false);
        check((0, 10), (0, 5), false);
        check((0, 10), (0, 10), false);
        check((0, 10), (5, 10), false);
        check((0, 10), (10, 20), false);
        check((0, 10), (11, 20), false);
    }

    #[test]
    fn what_does_not_nest_has_a_thread_of_its_own() {
        let mut process = Process { pid: 2, threads: BTreeMap::new() };
        assert_eq!(process.place(LOOP, span(0, 10)), (2, 0, Some("loop")));
        assert_eq!(process.place(LOOP, span(5, 15)), (2, 1, Some("beside")));
        assert_eq!(process.place(LOOP, span(11, 12)), (2, 0, None));
        assert_eq!(process.place(LOOP, span(0, 20)), (2, 0, None));
        assert_eq!(process.place(1, span(16, 18)), (2, 1, None));
        // Held spans are not kept.
        assert_eq!(process.threads[&0].len(), 1);
    }
}
