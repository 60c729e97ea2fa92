//! Exit codes: the one place that maps everything that can happen to a number.
//!
//! A command stops with a [`Stop`]. A run earns codes from the events it sees, kept in a [`Ledger`]; the exit status is the first of
//! [`ORDER`] that was earned.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use dsh_loop::CreateError;
use dsh_seam::event::{
    ApprovalAnswer, Emitted, ErrorEvent, Event, LiveEvent, PluginFailed, ReasonKind, ToolResultEvent, TurnEnd,
    TurnReason,
};
use dsh_seam::message::{Usage, result_text};
use dsh_seam::services::OutOfBudget;
use dsh_seam::session::SessionError;
use dsh_seam::tools::{DENYING_CODES, Outcome};
use dsh_seam::waterfall::RunError;
use dsh_seam::{AgentId, FailureKind, FailureMode, PluginName, Seam, SessionId};
use serde::Serialize;

use crate::why;

/// What the process says to whoever started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// It ran, under the policy that was asked for.
    Success,
    /// `tool call`: the tool answered with an error result.
    ToolError,
    /// Usage or configuration.
    Usage,
    /// The model failed.
    Model,
    /// A plugin failed or exceeded a limit.
    Plugin,
    /// Denied.
    Denied,
    /// A budget ran out.
    Budget,
    /// The requested sandbox cannot be enforced on this machine.
    Sandbox,
    /// A bug of ours.
    Internal,
    /// The session could not be written.
    Session,
    /// A signal, or a turn aborted or disposed.
    Interrupted,
}

/// Which of the codes that a run earned decides.
const ORDER: [Code; 9] = [
    Code::Internal,
    Code::Session,
    Code::Interrupted,
    Code::Sandbox,
    Code::Plugin,
    Code::Model,
    Code::Denied,
    Code::Budget,
    Code::Usage,
];

impl Code {
    /// The number.
    pub fn number(self) -> u8 {
        match self {
            Code::Success => 0,
            Code::ToolError => 1,
            Code::Usage => 2,
            Code::Model => 3,
            Code::Plugin => 4,
            Code::Denied => 5,
            Code::Budget => 6,
            Code::Sandbox => 7,
            Code::Internal => 70,
            Code::Session => 74,
            Code::Interrupted => 130,
        }
    }
}

/// A command that cannot go on: a code, a sentence, and what to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The exit code.
    pub code: Code,
    /// What happened.
    pub message: String,
    /// What to try.
    pub hint: Option<String>,
}

impl Stop {
    /// A stop with `code`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    /// Something about the arguments, the configuration or a file is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// Adds what to try.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        self
    }

    /// Several stops as one, each with what to try, in order; the first decides the code.
    pub fn together(stops: impl IntoIterator<Item = Stop>) -> Option<Stop> {
        let mut stops = stops.into_iter();
        let mut all = stops.next()?;
        for next in stops {
            let hint = all.hint.take().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            all.message = format!("{}{hint}\nerror: {}", all.message, next.message);
            all.hint = next.hint;
        }
        Some(all)
    }

    /// A file or folder that the system refused.
    pub fn io(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::usage(format!("`{}`: {}", path.display(), lower(&error.to_string())))
    }
}

/// The message, and what to try on a line of its own: what is printed on standard error.
impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Stop {}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

impl From<SessionError> for Stop {
    fn from(error: SessionError) -> Self {
        match &error {
            SessionError::NotWritten { .. } => Self::new(Code::Session, error.to_string()).hint(KEEP_ELSEWHERE),
            _ => Self::usage(error.to_string()),
        }
    }
}

impl From<CreateError> for Stop {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Session(error) => error.into(),
            CreateError::Write(_) => Self::new(Code::Session, error.to_string()).hint(KEEP_ELSEWHERE),
            CreateError::Tools(failure) if failure.code == "duplicate-tool" => {
                Self::usage(failure.message).hint(LEAVE_ONE_OUT)
            }
            CreateError::Duplicate(_) | CreateError::Tools(_) => Self::usage(error.to_string()),
        }
    }
}

/// What to try when a log cannot be written.
pub const KEEP_ELSEWHERE: &str = "`--session DIR` keeps sessions in another folder, `--no-save` in memory";
/// What to try when two plugins have one tool.
const LEAVE_ONE_OUT: &str = "leave one of the plugins out, or take its tools away: `seams` in its `[[plugins]]` of `dsh.toml`, without `tools/provider`";
/// The code with which this machine says that a sandbox cannot be had.
pub const UNENFORCEABLE: &str = "unenforceable";
/// The code of a log that cannot be written.
pub const NOT_WRITTEN: &str = "session-write-failed";
/// The codes that mean that something is not in the log, or the log not on the disk.
const SESSION_CODES: [&str; 3] = [NOT_WRITTEN, "flush-failed", "entry-too-large"];
/// The codes that stand for a plugin's failure.
const PLUGIN_CODES: [&str; 3] = ["plugin-failed", "plugin-limit", "plugin-missing"];
/// The code when an agent has had all its turns.
const MAX_TURNS: &str = "max-turns";
/// The code when a plugin ran the rest of a waterfall too often.
const TOO_OFTEN: &str = "limit";

/// Whether it is the code of messages that start no turn: their agent has had all its turns, or a budget of the run is used up.
fn starts_no_turn(code: &str) -> bool {
    code == MAX_TURNS || OutOfBudget::CODES.contains(&code)
}

/// Set by the panic hook: a bug of ours decides over everything else.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Prints one line for a panic and remembers it. What panicked unwinds as usual.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        PANICKED.store(true, Ordering::SeqCst);
        let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let message = info.payload_as_str().unwrap_or("no message").lines().next().unwrap_or_default();
        eprintln!("error: internal error{place}: {message}");
        eprintln!(
            "hint: this is a bug of dsh-host; please report it with the command that led here, and the session is kept"
        );
    }));
}

/// Whether something of ours panicked.
pub fn panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// The code behind the machine-readable code of a failure that ended a turn or a call.
pub fn failure_code(code: &str) -> Code {
    match code {
        code if PLUGIN_CODES.contains(&code) || code == TOO_OFTEN => Code::Plugin,
        code if SESSION_CODES.contains(&code) => Code::Session,
        UNENFORCEABLE => Code::Sandbox,
        "internal" => Code::Internal,
        "disposed" => Code::Interrupted,
        _ => Code::Model,
    }
}

/// What the outcome of a `tool call` says by itself.
pub fn outcome_code(outcome: &Outcome, fatal: Option<&RunError>) -> Code {
    match (fatal, outcome.code.as_deref()) {
        (Some(RunError::Plugin(error)), _) if error.code.as_deref() == Some(UNENFORCEABLE) => Code::Sandbox,
        (Some(RunError::Plugin(_) | RunError::TooManyRuns), _) => Code::Plugin,
        (Some(RunError::Aborted), _) => Code::Interrupted,
        (Some(error), _) => match failure_code(&error.to_failure().code) {
            // No model takes part in a tool call.
            Code::Model => Code::Internal,
            code => code,
        },
        _ if !outcome.is_error => Code::Success,
        (None, Some(code)) if DENYING_CODES.contains(&code) => Code::Denied,
        (None, Some(code)) if PLUGIN_CODES.contains(&code) => Code::Plugin,
        (None, Some(UNENFORCEABLE)) => Code::Sandbox,
        (None, Some("unknown-tool")) => Code::Usage,
        (None, Some("aborted" | "aborted-before-dispatch")) => Code::Interrupted,
        _ => Code::ToolError,
    }
}

/// What a `tool call` with such an outcome came to.
pub fn tool_call_code(of_outcome: Code, ledger: &Ledger) -> Code {
    // A denial is the outcome's to tell: a single call is either denied or it is not.
    let decided = ledger.earned.iter().filter(|code| **code != Code::Denied).copied().chain([of_outcome]).collect();
    first(&decided).unwrap_or(of_outcome)
}

fn first(earned: &BTreeSet<Code>) -> Option<Code> {
    ORDER.into_iter().find(|code| earned.contains(code))
}

/// One object at the end of a run: `--output json`.
#[derive(Debug, Serialize)]
pub struct RunResult {
    /// The text of the last assistant message that has text.
    pub result: Option<String>,
    /// How the turn that decided the exit code ended, else the last.
    pub reason: Option<TurnReason>,
    /// The sum of this run.
    pub usage: Usage,
    /// The session.
    pub session: Option<SessionId>,
    /// Turns of this run.
    pub turns: u32,
    /// Steps of this run.
    pub steps: u32,
    /// Results with a denying code.
    pub denied: u32,
    /// The exit code.
    pub exit: u8,
}

/// Whose turn, and its number.
type Turn = (AgentId, u32);

/// What a run has come to so far, from the events it has shown.
#[derive(Debug, Default)]
pub struct Ledger {
    strict: bool,
    tool_call: bool,
    open_plugins: HashSet<PluginName>,
    prompted: Option<AgentId>,
    session: Option<SessionId>,
    earned: BTreeSet<Code>,
    own_turns: HashMap<AgentId, BTreeSet<u32>>,
    /// The agents that other agents made.
    sub_agents: HashSet<AgentId>,
    /// How each own turn ended, in order.
    reasons: Vec<(Turn, TurnReason)>,
    /// The first turn that earned a code.
    deciding: HashMap<Code, Turn>,
    /// What earned a code first.
    why: HashMap<Code, String>,
    /// The codes of which an error on standard error has told.
    told: BTreeSet<Code>,
    result: Option<String>,
    usage: Usage,
    turns: u32,
    steps: u32,
    denied: u32,
    succeeded: u32,
}

impl Ledger {
    /// A ledger for a run whose prompts go to `prompted`; `modes` are the plugins' failure modes.
    pub fn new(prompted: AgentId, strict: bool, modes: impl IntoIterator<Item = (PluginName, FailureMode)>) -> Self {
        let open = modes.into_iter().filter(|(_, mode)| *mode == FailureMode::Open).map(|(name, _)| name);
        Self { strict, prompted: Some(prompted), open_plugins: open.collect(), ..Self::default() }
    }

    /// The same for the command `tool call`, in which a failure inside the tool counts.
    #[must_use]
    pub fn for_tool_call(mut self) -> Self {
        self.tool_call = true;
        self
    }

    /// Something outside of the events earned `code`.
    pub fn earn(&mut self, code: Code) {
        self.earned.insert(code);
    }

    /// `code` was earned by this, unless something else was there first.
    fn because(&mut self, code: Code, why: String) {
        self.why.entry(code).or_insert(why);
    }

    /// Standard error has this error.
    pub fn told(&mut self, error: &ErrorEvent) {
        let code = if starts_no_turn(&error.code) { Code::Budget } else { failure_code(&error.code) };
        self.told.insert(code);
    }

    /// What earned `code`, when no error on standard error has told.
    pub fn untold(&self, code: Code) -> Option<&str> {
        self.why.get(&code).filter(|_| !self.told.contains(&code)).map(String::as_str)
    }

    /// A turn earned `code`.
    fn earn_in(&mut self, code: Code, agent: &AgentId, turn: u32) {
        self.earned.insert(code);
        self.deciding.entry(code).or_insert_with(|| (agent.clone(), turn));
    }

    /// Takes an event into account, in the order of emission.
    pub fn observe(&mut self, emitted: &Emitted) {
        match emitted {
            Emitted::Durable(entry) => self.observe_entry(&entry.agent, &entry.event),
            Emitted::Live { agent, session, event } => {
                if self.prompted.as_ref() == Some(agent) {
                    self.session.get_or_insert_with(|| session.clone());
                }
                match event.as_ref() {
                    LiveEvent::AgentCreated(created) if !created.lineage.is_empty() => {
                        self.sub_agents.insert(agent.clone());
                    }
                    LiveEvent::AgentError(error) => self.observe_live_error(agent, error),
                    _ => {}
                }
            }
        }
    }

    /// An error that has no place in the log: with turn 0, or because the log takes no more.
    fn observe_live_error(&mut self, agent: &AgentId, error: &ErrorEvent) {
        let code = match error.code.as_str() {
            code if SESSION_CODES.contains(&code) => Code::Session,
            code if starts_no_turn(code) && self.sub_agents.contains(agent) => return,
            code if starts_no_turn(code) => Code::Budget,
            "internal" => Code::Internal,
            // A plugin's flush failed.
            code if error.turn == 0 && self.strict && PLUGIN_CODES.contains(&code) => Code::Plugin,
            _ => return,
        };
        self.earn(code);
        self.because(code, error.message.clone());
    }

    fn observe_entry(&mut self, agent: &AgentId, event: &Event) {
        let is_prompted = self.prompted.as_ref() == Some(agent);
        match event {
            Event::TurnStart(start) => {
                self.own_turns.entry(agent.clone()).or_default().insert(start.turn);
                self.turns += u32::from(is_prompted);
            }
            Event::StepStart(_) => self.steps += u32::from(is_prompted),
            Event::Usage(usage) => self.usage = self.usage.plus(usage.usage),
            Event::TurnEnd(end) if self.is_own(agent, end.turn) => self.observe_end(agent, end),
            Event::AssistantMessage(message) if is_prompted && self.is_own(agent, message.turn) => {
                let texts: Vec<&str> = message.content.iter().filter_map(|block| block.as_text()).collect();
                let text = texts.concat();
                if !text.is_empty() {
                    self.result = Some(text);
                }
            }
            Event::ToolResult(result) if self.is_own(agent, result.turn) => self.observe_result(agent, result),
            // A plugin may fail while no turn is open, too.
            Event::PluginFailed(failed) if failed.turn == 0 || self.is_own(agent, failed.turn) => {
                self.observe_failure(agent, failed)
            }
            Event::ApprovalDecided(decided)
                if self.strict && decided.call_id.is_none() && decided.answer == ApprovalAnswer::Deny =>
            {
                self.earn(Code::Denied);
                self.because(Code::Denied, "a plugin's question was denied; with `--strict` this counts".into());
            }
            _ => {}
        }
    }

    fn is_own(&self, agent: &AgentId, turn: u32) -> bool {
        self.own_turns.get(agent).is_some_and(|turns| turns.contains(&turn))
    }

    fn observe_end(&mut self, agent: &AgentId, end: &TurnEnd) {
        let TurnEnd { turn, reason, .. } = end;
        let turn = *turn;
        let code = match reason.kind {
            ReasonKind::Completed | ReasonKind::Interrupted => None,
            ReasonKind::Disposed | ReasonKind::Aborted => Some(Code::Interrupted),
            ReasonKind::Budget | ReasonKind::MaxSteps | ReasonKind::MaxTokens => Some(Code::Budget),
            ReasonKind::Error => Some(failure_code(reason.code.as_deref().unwrap_or_default())),
        };
        if let Some(code) = code.filter(|code| !self.is_its_parents_to_judge(agent, *code)) {
            self.earn_in(code, agent, turn);
            if let Some(why) = why::limit(end).or_else(|| why::stopped(end)) {
                self.because(code, why);
            }
        }
        self.reasons.push(((agent.clone(), turn), reason.clone()));
    }

    /// A sub-agent's turn that failed, was cut or stopped is a tool result for its parent, which may go on from there. What is wrong with
    /// the host, a plugin or the sandbox is wrong wherever it shows.
    fn is_its_parents_to_judge(&self, agent: &AgentId, code: Code) -> bool {
        self.sub_agents.contains(agent) && matches!(code, Code::Model | Code::Budget | Code::Interrupted)
    }

    fn observe_result(&mut self, agent: &AgentId, result: &ToolResultEvent) {
        if !result.is_error {
            self.succeeded += 1;
            return;
        }
        match result.code.as_deref() {
            Some(code) if DENYING_CODES.contains(&code) => {
                self.denied += 1;
                self.deciding.entry(Code::Denied).or_insert_with(|| (agent.clone(), result.turn));
                if let Some(why) = why::denial(result) {
                    self.because(Code::Denied, why);
                }
                if self.strict {
                    self.earn(Code::Denied);
                }
            }
            Some(UNENFORCEABLE) => {
                self.earn_in(Code::Sandbox, agent, result.turn);
                self.because(Code::Sandbox, result_text(&result.content));
            }
            _ => {}
        }
    }

    fn observe_failure(&mut self, agent: &AgentId, failed: &PluginFailed) {
        let is_open = self.open_plugins.contains(&failed.plugin);
        let strictly = is_open
            || match failed.seam {
                Seam::Observer | Seam::Flush => true,
                Seam::Provider => !self.tool_call,
                _ => false,
            };
        // An error that a tool answers is for the model.
        let is_answer = failed.seam == Seam::Provider && failed.kind == FailureKind::Error && !is_open;
        let counts = !is_answer && (self.strict || !strictly);
        // A plugin's own code stands in the message.
        let is_sandbox = failed.kind == FailureKind::Error && failed.message.contains(&format!("`{UNENFORCEABLE}`"));
        if counts {
            let code = if is_sandbox { Code::Sandbox } else { Code::Plugin };
            self.earn_in(code, agent, failed.turn);
            self.because(code, why::failure(failed, strictly));
        }
    }

    /// The exit code of a run, as of now.
    pub fn code(&self) -> Code {
        let mut earned = self.earned.clone();
        if self.denied > 0 && self.succeeded == 0 {
            earned.insert(Code::Denied);
        }
        if panicked() {
            earned.insert(Code::Internal);
        }
        first(&earned).unwrap_or(Code::Success)
    }

    /// What `--output json` prints.
    pub fn result(&self) -> RunResult {
        let code = self.code();
        let deciding = self.deciding.get(&code).and_then(|turn| self.reasons.iter().find(|(known, _)| known == turn));
        let last = self.reasons.iter().rev().find(|((agent, _), _)| self.prompted.as_ref() == Some(agent));
        RunResult {
            result: self.result.clone(),
            reason: deciding.or(last).map(|(_, reason)| reason.clone()),
            usage: self.usage,
            session: self.session.clone(),
            turns: self.turns,
            steps: self.steps,
            denied: self.denied,
            exit: code.number(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_seam::event::Entry;
    use std::sync::Arc;

    fn ledger(strict: bool) -> Ledger {
        let open = PluginName::new("easy").expect("valid");
        Ledger::new(AgentId::new("main").expect("valid"), strict, [(open, FailureMode::Open)])
    }

    /// Feeds a log's `type data` lines and compares the code.
    fn check(strict: bool, lines: &[&str], expect: Code) {
        let mut ledger = ledger(strict);
        for line in lines {
            let (kind, data) = line.split_once(' ').expect("a type and its data");
            let line = format!(r#"{{"type":"{kind}","seq":0,"time":0,"session":"s","agent":"main","data":{data}}}"#);
            ledger.observe(&Emitted::Durable(Arc::new(Entry::parse(&line).expect("an entry"))));
        }
        assert_eq!(ledger.code(), expect, "{lines:?}");
    }

    const START: &str = r#"turn/start {"turn":1,"trigger":{"type":"message","source":{"type":"user"}}}"#;
    const GOOD: &str = r#"tool/result {"turn":1,"step":1,"callId":"a","content":[],"isError":false}"#;
    const DENIED: &str =
        r#"tool/result {"turn":1,"step":1,"callId":"a","content":[],"isError":true,"code":"approval-denied"}"#;

    fn end(reason: &str) -> String {
        format!(r#"turn/end {{"turn":1,"reason":{reason}}}"#)
    }

    fn failed(plugin: &str, seam: &str, kind: &str) -> String {
        format!(
            r#"plugin/failed {{"turn":1,"step":1,"plugin":"{plugin}","seam":"{seam}","kind":"{kind}","message":"m"}}"#
        )
    }

    #[test]
    fn a_turns_reason_earns_its_code() {
        check(false, &[START, &end(r#"{"type":"completed"}"#)], Code::Success);
        check(false, &[START, &end(r#"{"type":"aborted"}"#)], Code::Interrupted);
        check(false, &[START, &end(r#"{"type":"disposed"}"#)], Code::Interrupted);
        check(false, &[START, &end(r#"{"type":"max-steps"}"#)], Code::Budget);
        check(false, &[START, &end(r#"{"type":"max-tokens"}"#)], Code::Budget);
        check(false, &[START, &end(r#"{"type":"error","code":"script-exhausted"}"#)], Code::Model);
        check(false, &[START, &end(r#"{"type":"error","code":"plugin-limit"}"#)], Code::Plugin);
        check(false, &[START, &end(r#"{"type":"error","code":"limit"}"#)], Code::Plugin);
        check(false, &[START, &end(r#"{"type":"error","code":"entry-too-large"}"#)], Code::Session);
        check(false, &[START, &end(r#"{"type":"error","code":"unenforceable"}"#)], Code::Sandbox);
        // The repair of a resumed session closes a turn that this process did not start.
        check(false, &[&end(r#"{"type":"error","code":"plugin-limit"}"#)], Code::Success);
    }

    /// The same for a run in which `main` made `main.1`: the lines are those of `main.1`, and `main` completes.
    fn check_child(strict: bool, lines: &[&str], expect: Code) {
        let mut ledger = ledger(strict);
        let id = |text: &str| AgentId::new(text).expect("valid");
        let created = dsh_seam::event::AgentCreated { model: None, lineage: vec![id("main")] };
        ledger.observe(&Emitted::Live {
            session: SessionId::new("c").expect("valid"),
            agent: id("main.1"),
            event: Arc::new(LiveEvent::AgentCreated(created)),
        });
        let of = |agent: &str, line: &str| {
            let (kind, data) = line.split_once(' ').expect("a type and its data");
            let line = format!(r#"{{"type":"{kind}","seq":0,"time":0,"session":"s","agent":"{agent}","data":{data}}}"#);
            Emitted::Durable(Arc::new(Entry::parse(&line).expect("an entry")))
        };
        let completed = end(r#"{"type":"completed"}"#);
        ledger.observe(&of("main", START));
        lines.iter().for_each(|line| ledger.observe(&of("main.1", line)));
        ledger.observe(&of("main", &completed));
        assert_eq!(ledger.code(), expect, "{lines:?}");
    }

    #[test]
    fn a_sub_agents_turn_is_its_parents_to_judge_and_a_broken_plugin_is_not() {
        check_child(false, &[START, &end(r#"{"type":"error","code":"script-exhausted"}"#)], Code::Success);
        check_child(false, &[START, &end(r#"{"type":"max-steps"}"#)], Code::Success);
        check_child(false, &[START, &end(r#"{"type":"budget"}"#)], Code::Success);
        check_child(false, &[START, &end(r#"{"type":"aborted"}"#)], Code::Success);
        check_child(false, &[START, &end(r#"{"type":"disposed"}"#)], Code::Success);
        check_child(false, &[START, &end(r#"{"type":"error","code":"plugin-failed"}"#)], Code::Plugin);
        check_child(false, &[START, &failed("p", "tools/guard", "trap")], Code::Plugin);
        check_child(false, &[START, &failed("easy", "tools/guard", "trap")], Code::Success);
        check_child(false, &[START, &end(r#"{"type":"error","code":"unenforceable"}"#)], Code::Sandbox);
        check_child(false, &[START, &end(r#"{"type":"error","code":"internal"}"#)], Code::Internal);
        check_child(false, &[START, DENIED], Code::Denied);
        check_child(false, &[START, DENIED, GOOD], Code::Success);
        check_child(true, &[START, DENIED, GOOD], Code::Denied);
    }

    #[test]
    fn a_live_error_earns_its_code_in_a_turn_and_outside() {
        let live = |code: &str, turn| {
            let mut ledger = ledger(false);
            ledger.observe(&Emitted::Live {
                session: SessionId::new("s").expect("valid"),
                agent: AgentId::new("main").expect("valid"),
                event: Arc::new(LiveEvent::AgentError(ErrorEvent {
                    turn,
                    step: 0,
                    message: "m".into(),
                    code: code.into(),
                    plugin: None,
                })),
            });
            ledger.code()
        };
        for turn in [0, 1] {
            for code in SESSION_CODES {
                assert_eq!(live(code, turn), Code::Session, "{code}");
            }
            for code in ["max-turns", "max-cost", "max-total-tokens", "max-time"] {
                assert_eq!(live(code, turn), Code::Budget, "{code}");
            }
            assert_eq!(live("internal", turn), Code::Internal);
            assert_eq!(live("plugin-failed", turn), Code::Success);
        }
    }

    #[test]
    fn denials_count_when_nothing_else_was_done_or_strictly() {
        check(false, &[START, DENIED], Code::Denied);
        check(false, &[START, DENIED, GOOD], Code::Success);
        check(true, &[START, DENIED, GOOD], Code::Denied);
        check(false, &[DENIED], Code::Success);
    }

    #[test]
    fn a_plugins_failure_counts_by_seam_and_mode() {
        check(false, &[START, &failed("p", "tools/guard", "trap")], Code::Plugin);
        check(false, &[START, &failed("easy", "tools/guard", "trap")], Code::Success);
        check(true, &[START, &failed("easy", "tools/guard", "trap")], Code::Plugin);
        check(false, &[START, &failed("p", "session/observer", "error")], Code::Success);
        check(true, &[START, &failed("p", "session/observer", "error")], Code::Plugin);
        check(false, &[START, &failed("p", "tools/provider", "trap")], Code::Success);
        check(true, &[START, &failed("p", "tools/provider", "limit")], Code::Plugin);
        check(true, &[START, &failed("p", "tools/provider", "error")], Code::Success);
        let sandbox = failed("p", "tools/execute", "error").replace("\"m\"", "\"no Landlock (`unenforceable`)\"");
        check(false, &[START, &sandbox, &end(r#"{"type":"error","code":"plugin-failed"}"#)], Code::Sandbox);
    }

    #[test]
    fn the_first_of_the_order_decides() {
        check(true, &[START, DENIED, &end(r#"{"type":"error","code":"server"}"#)], Code::Model);
        check(false, &[START, DENIED, &end(r#"{"type":"aborted"}"#)], Code::Interrupted);
        check(false, &[START, DENIED, &end(r#"{"type":"budget"}"#)], Code::Denied);
    }

    #[test]
    fn the_result_names_the_turn_that_decided() {
        let mut ledger = ledger(false);
        let mut feed = |kind: &str, data: String| {
            let line = format!(r#"{{"type":"{kind}","seq":0,"time":0,"session":"s","agent":"main","data":{data}}}"#);
            ledger.observe(&Emitted::Durable(Arc::new(Entry::parse(&line).expect("an entry"))));
        };
        for (turn, reason) in [(1, "max-steps"), (2, "completed")] {
            feed(
                "turn/start",
                format!(r#"{{"turn":{turn},"trigger":{{"type":"message","source":{{"type":"user"}}}}}}"#),
            );
            feed("step/start", format!(r#"{{"turn":{turn},"step":1}}"#));
            feed("usage", format!(r#"{{"turn":{turn},"step":1,"usage":{{"input":2}}}}"#));
            feed(
                "assistant/message",
                format!(r#"{{"turn":{turn},"step":1,"content":[{{"type":"text","text":"t{turn}"}}]}}"#),
            );
            feed("turn/end", format!(r#"{{"turn":{turn},"reason":{{"type":"{reason}"}}}}"#));
        }
        let expect = concat!(
            r#"{"result":"t2","reason":{"type":"max-steps"},"usage":{"input":4,"output":0,"cacheRead":0,"cacheWrite":0,"reasoning":0},"#,
            r#""session":null,"turns":2,"steps":2,"denied":0,"exit":6}"#
        );
        assert_eq!(serde_json::to_string(&ledger.result()).expect("serializes"), expect);
    }

    #[test]
    fn a_stop_is_two_lines_at_most() {
        assert_eq!(Stop::usage("no `x`").hint("try `y`").to_string(), "error: no `x`\nhint: try `y`");
        assert_eq!(Stop::usage("no `x`").to_string(), "error: no `x`");
    }
}
