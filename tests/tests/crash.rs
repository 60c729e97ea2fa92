//! Whatever happens to the disk or to the process, at whatever call, a session goes on as if its turn had been closed.
//!
//! Each conversation of `../conversations/` is acted once to count the calls by which it changes files, then again and again with a
//! fault at one of these calls: a real one, by a library that is preloaded into the built binary. With `DSH_TESTS_LONG=1` every fault
//! is tried at every call; otherwise the kills are, and the other faults at some calls each.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use dsh_tests::aftermath::{Left, none_of};
use dsh_tests::checks::shape;
use dsh_tests::conversation::{Act, Acted, Conversation, Stage, said, sends};
use dsh_tests::faults::{self, Call};
use dsh_tests::parallel;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// What is said when a session is resumed, so that there always is something to answer.
const AND_NOW: &str = "and now?";
/// The end of a killed process: 128 and SIGKILL.
const KILLED: i32 = 137;
/// The exit code for a session that could not be written or flushed.
const NOT_WRITTEN: i32 = 74;
/// A conversation that makes fewer calls was not counted.
const FEWEST_CALLS: usize = 20;
/// What can happen to a write beside the end of its process. Those with a `+` go on to happen.
const DISK_FAULTS: &[(&str, &str)] =
    &[("full", ""), ("broken", ""), ("ENOSPC", "+"), ("EDQUOT", "+"), ("EIO", "+"), ("EROFS", "+"), ("EIO", "")];
/// What happens to a repair.
const REPAIR_FAULTS: &[&str] = &["kill", "torn", "full", "EIO"];
/// The repair is killed at each of its calls, for sessions that were left at every so many calls.
const REPAIRED_EVERY: usize = 23;
/// How often the same session is killed.
const ROUNDS: usize = 12;
const LONG_ROUNDS: usize = 200;

/// A test of one conversation.
type Test = fn(&Rehearsed) -> Result<(), String>;

/// Every test is made with every conversation.
const TESTS: &[(&str, Test)] = &[
    ("killed at any write or flush, it goes on", killed_anywhere),
    ("killed and then struck while it is repaired, it goes on", struck_while_repaired),
    ("killed again and again, it goes on", killed_again_and_again),
    ("a write that fails is final and loses nothing", write_fails),
    ("a flush that fails is reported and loses nothing", flush_fails),
];

/// A conversation with what is known of it from being acted without a fault.
struct Rehearsed {
    name: String,
    conversation: Conversation,
    input: Vec<String>,
    calls: Vec<Call>,
}

impl Rehearsed {
    fn new(name: &str, conversation: &Conversation) -> Result<Rehearsed, String> {
        let apart = Stage::new(conversation)?.act_apart()?;
        let input = conversation.input(0..conversation.turns.len(), &apart);
        let stage = Stage::new(conversation)?;
        let acted = stage.act(&Act { input: input.clone(), env: counted(&stage), ..Act::default() })?;
        let calls = faults::calls(&record(&stage));
        let exit = conversation.turns.iter().find(|turn| turn.exit != 0).map_or(0, |turn| turn.exit);
        if acted.outcome.exit != exit || calls.len() < FEWEST_CALLS {
            return Err(format!("exit {} after {} calls\n{}", acted.outcome.exit, calls.len(), acted.outcome.stderr));
        }
        Ok(Rehearsed { name: name.to_owned(), conversation: conversation.clone(), input, calls })
    }

    /// Places for `fault` at the calls that `pick` picks.
    fn places(&self, fault: &'static str, pick: impl Fn(usize, &Call) -> bool) -> Vec<Place<'_>> {
        let picked = (1..).zip(&self.calls).filter(|(at, call)| pick(*at, call));
        picked.map(|(at, _)| Place { rehearsed: self, fault, at, later: "" }).collect()
    }
}

/// Where the calls of a run are written down.
fn record(stage: &Stage<'_>) -> PathBuf {
    stage.sandbox.root().join("calls")
}

fn counted(stage: &Stage<'_>) -> Vec<(String, String)> {
    faults::counted(&stage.sandbox.data, &record(stage))
}

/// A fault at a call.
struct Place<'a> {
    rehearsed: &'a Rehearsed,
    fault: &'static str,
    at: usize,
    /// `+` when all later calls fail too.
    later: &'static str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { rehearsed, fault, at, later } = self;
        let Call { name, bytes, .. } = &rehearsed.calls[at - 1];
        write!(f, "{}, `{fault}` at call {at}{later} ({name} of {bytes} bytes)", rehearsed.name)
    }
}

impl<'a> Place<'a> {
    /// Acts the conversation with the fault.
    fn act(&self) -> Result<(Session<'a>, Acted), String> {
        let Rehearsed { conversation, input, .. } = self.rehearsed;
        let stage = Stage::new(conversation)?;
        let fault = faults::at(self.fault, format!("{}{}", self.at, self.later));
        let acted =
            stage.act(&Act { input: input.clone(), env: [counted(&stage), fault].concat(), ..Act::default() })?;
        let left = stage.log()?.map(|(id, text)| Left::parse(&id, &text)).transpose()?;
        for (id, text) in stage.logs_of_others() {
            let left = Left::parse(&id, &text)?;
            left.holds_what_was_printed(left.log.copied(), &acted.outcome.stdout)?;
        }
        match &left {
            Some(left) => left.holds_what_was_printed(0, &acted.outcome.stdout)?,
            None if acted.outcome.stdout.contains("\"seq\":") => return Err("what was printed is not there".to_owned()),
            None => {}
        }
        let torn = left.iter().map(|left| left.torn.clone()).collect();
        Ok((Session { conversation, stage, left, taken: acted.taken(), torn }, acted))
    }

    /// Acts the conversation up to where it is killed.
    fn kill(&self) -> Result<Session<'a>, String> {
        let (session, acted) = self.act()?;
        if acted.outcome.exit == KILLED { Ok(session) } else { Err(ended("it was not killed", &acted)) }
    }
}

fn ended(what: &str, acted: &Acted) -> String {
    format!("{what}: exit {}\n{}", acted.outcome.exit, acted.outcome.stderr)
}

/// A session whose process has ended before its time.
struct Session<'a> {
    conversation: &'a Conversation,
    stage: Stage<'a>,
    /// Nothing when there was no log yet.
    left: Option<Left>,
    /// Lines of the model that were taken.
    taken: usize,
    /// Every torn end that the log had.
    torn: Vec<String>,
}

impl Session<'_> {
    /// The next process: with all that was never logged, each in a turn of its own, and a last question.
    fn next(&self, left: &Left, env: Vec<(String, String)>) -> Act {
        let logged = said(&left.log);
        let prompts = self.conversation.turns.iter().map(|turn| turn.prompt.as_str());
        let rest = prompts.filter(|prompt| !logged.iter().any(|logged| logged == prompt)).chain([AND_NOW]);
        let args = ["--resume", &left.log.id, "--approve", "allow"].map(str::to_owned).into();
        Act { args, input: sends(rest), taken: self.taken, env, same_model: false }
    }

    /// Resumes with a fault at a call; false when the process came to a good end all the same.
    fn go_on_until(&mut self, fault: &str, at: usize) -> Result<bool, String> {
        let Some(left) = &self.left else { return Err("there is no log".to_owned()) };
        let acted = self.stage.act(&self.next(left, [counted(&self.stage), faults::at(fault, at)].concat()))?;
        let Some((_, text)) = self.stage.log()? else { return Err("the log is gone".to_owned()) };
        let next = left.gone_on_for_a_while(&text, &acted)?;
        self.taken += acted.taken();
        self.torn.push(next.torn.clone());
        self.left = Some(next);
        match acted.outcome.exit {
            KILLED | NOT_WRITTEN => Ok(true),
            exit if self.may_exit(exit) => Ok(false),
            _ => Err(ended("it failed", &acted)),
        }
    }

    fn may_exit(&self, exit: i32) -> bool {
        exit == 0 || self.conversation.turns.iter().any(|turn| turn.exit == exit)
    }

    /// Resumes and checks all that must hold then.
    fn go_on(&self) -> Result<(), String> {
        let Some(left) = &self.left else { return self.nothing_was_left() };
        let acted = self.stage.act(&self.next(left, Vec::new()))?;
        let Some((_, text)) = self.stage.log()? else { return Err("the log is gone".to_owned()) };
        let log = left.gone_on(&text, &acted).map_err(|error| format!("{error}\n{}", acted.outcome.stderr))?;
        if !self.may_exit(acted.outcome.exit) {
            return Err(ended("resumed, it failed", &acted));
        }
        let said = said(&log);
        let (prompts, rest) = said.split_at(self.conversation.turns.len().min(said.len()));
        let wanted = self.conversation.turns.iter().map(|turn| &turn.prompt);
        if prompts.iter().ne(wanted) || rest.is_empty() || rest.iter().any(|text| text != AND_NOW) {
            return Err(format!("the user's messages are {said:?}"));
        }
        let aside = self.stage.sandbox.sessions().join(format!("{}.torn", left.log.id));
        let kept = std::fs::read_to_string(aside).unwrap_or_default();
        let lost = self.torn.iter().find(|torn| !torn.is_empty() && !kept.contains(&format!("{torn}\n")));
        lost.map_or(Ok(()), |torn| Err(format!("`{torn}` was torn and is not set aside: `{kept}`")))
    }

    /// Before the log has its name there is nothing to go on with, and nothing that could be taken for a log.
    fn nothing_was_left(&self) -> Result<(), String> {
        let acted = self.stage.act(&Act { args: vec!["--continue".to_owned()], ..Act::default() })?;
        if acted.outcome.exit == 2 { Ok(()) } else { Err(ended("there was something to continue", &acted)) }
    }
}

fn killed_anywhere(rehearsed: &Rehearsed) -> Result<(), String> {
    let mut places = rehearsed.places("kill", |_, _| true);
    // Once the torn line is set aside, this is the same as the kill before it.
    places.extend(rehearsed.places("torn", |at, call| call.bytes > 0 && (parallel::long() || at.is_multiple_of(3))));
    places.extend(rehearsed.places("killed-after", |at, _| at == rehearsed.calls.len()));
    parallel::each(&places, |place| place.kill()?.go_on())
}

fn struck_while_repaired(rehearsed: &Rehearsed) -> Result<(), String> {
    let some = |at: usize, call: &Call| parallel::long() || call.bytes > 0 && at.is_multiple_of(REPAIRED_EVERY);
    parallel::each(&rehearsed.places("torn", some), |place| {
        for at in 1.. {
            let mut session = place.kill()?;
            let Some(known) = session.left.as_ref().map(|left| left.log.entries.len()) else { return Ok(()) };
            // In turn, so that each is tried on every kind of call.
            let fault = REPAIR_FAULTS[(at + place.at) % REPAIR_FAULTS.len()];
            let failed = |error: String| format!("then `{fault}` at call {at}: {error}");
            let failed_again = session.go_on_until(fault, at).map_err(failed)?;
            session.go_on().map_err(failed)?;
            let is_repaired = |left: &Left| (known..left.log.entries.len()).any(|at| left.log.kind(at) == "turn/start");
            if !failed_again || session.left.as_ref().is_some_and(is_repaired) {
                break;
            }
        }
        Ok(())
    })
}

fn killed_again_and_again(rehearsed: &Rehearsed) -> Result<(), String> {
    let starts = rehearsed.places("kill", |at, _| at == FEWEST_CALLS / 2 || at == FEWEST_CALLS);
    parallel::each(&starts, |place| {
        let mut session = place.kill()?;
        for round in 0..if parallel::long() { LONG_ROUNDS } else { ROUNDS } {
            let fault = if round % 2 == 0 { "torn" } else { "kill" };
            // Steps that share no divisor, so that many different calls are hit.
            session
                .go_on_until(fault, 1 + (place.at + round * 17) % 53)
                .map_err(|error| format!("round {round}: {error}"))?;
        }
        session.go_on()
    })
}

fn write_fails(rehearsed: &Rehearsed) -> Result<(), String> {
    let mut places = Vec::new();
    for (number, (fault, later)) in DISK_FAULTS.iter().enumerate() {
        let some = |at: usize, call: &Call| {
            let needs_space = ["mkdir", "create", "write", "pwrite"].contains(&call.name.as_str());
            needs_space && (parallel::long() || at <= 4 || (at + number).is_multiple_of(DISK_FAULTS.len()))
        };
        places.extend(rehearsed.places(fault, some).into_iter().map(|place| Place { later, ..place }));
    }
    parallel::each(&places, |place| {
        let (session, acted) = place.act()?;
        let stdout = &acted.outcome.stdout;
        if acted.outcome.exit != NOT_WRITTEN || !acted.outcome.stderr.contains("could not be written") {
            return Err(ended("it is not reported", &acted));
        }
        let mut errors: Vec<Value> = stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        errors.retain(|event| event["type"] == "agent/error" && event["data"]["code"] == "session-write-failed");
        let mut sessions: Vec<String> = errors.iter().map(|error| error["session"].to_string()).collect();
        sessions.sort();
        sessions.dedup();
        let last = stdout.lines().last().unwrap_or_default();
        // One for each agent that could not write.
        if errors.is_empty() || errors.len() != sessions.len() || !last.starts_with("{\"type\":\"agent/disposed\"") {
            return Err(format!("{} errors were emitted, the last event is {last}", errors.len()));
        }
        if let Some(left) = &session.left {
            let printed = stdout.lines().filter(|line| left.is_own(line)).count();
            let logged = left.log.entries.len();
            // Only a disk on which nothing works any more can leave half a line.
            if printed != logged || (!left.torn.is_empty() && place.fault != "broken") {
                return Err(format!("{printed} entries were printed, {logged} logged, and then `{}`", left.torn));
            }
        }
        session.go_on()
    })
}

fn flush_fails(rehearsed: &Rehearsed) -> Result<(), String> {
    let flushes = |_: usize, call: &Call| call.name == "fdatasync" || call.name == "fsync";
    parallel::each(&rehearsed.places("EIO", flushes), |place| {
        let (session, acted) = place.act()?;
        let reported = acted.outcome.stdout.matches("\"code\":\"flush-failed\"").count();
        if acted.outcome.exit != NOT_WRITTEN || reported == 0 {
            return Err(ended("it is not reported", &acted));
        }
        none_of(session.left.iter().flat_map(|left| shape::check(&left.log, false)).collect())?;
        session.go_on()
    })
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test keeps all processors busy by itself.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for (name, conversation) in
        Conversation::all().into_iter().filter(|(_, conversation)| conversation.crash || parallel::long())
    {
        let shared = Arc::new((name, conversation, OnceLock::new()));
        for (what, test) in TESTS {
            let shared = shared.clone();
            let title = format!("{}: {what}", shared.0);
            let run = move || {
                let (name, conversation, rehearsed) = &*shared;
                test(rehearsed.get_or_init(|| Rehearsed::new(name, conversation)).as_ref()?).map_err(Failed::from)
            };
            trials.push(Trial::test(title, run));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
