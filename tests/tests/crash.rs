//! A process that is killed at any write or flush, really, leaves a session that goes on as if its turn had been closed.
//!
//! Each conversation of `../conversations/` is acted once to count its calls to the disk, then once more for each of these calls, with
//! a fault there, and resumed. With `DSH_TESTS_LONG=1` nothing is left out; otherwise the rarer faults are tried at every few calls.

use std::fmt;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use dsh_tests::aftermath::Left;
use dsh_tests::conversation::{Act, Acted, Conversation, Stage, said, sends};
use dsh_tests::faults::{self, Call};
use dsh_tests::parallel;
use libtest_mimic::{Arguments, Failed, Trial};

/// What is said when a session is resumed, so that there always is something to answer.
const AND_NOW: &str = "and now?";
/// A conversation that makes fewer calls was not counted.
const FEWEST_CALLS: usize = 20;
/// The end of a killed process: 128 and SIGKILL.
const KILLED: i32 = 137;

/// A conversation with what is known of it from being acted without a fault.
struct Rehearsed {
    name: String,
    conversation: Conversation,
    input: Vec<String>,
    calls: Vec<Call>,
}

impl Rehearsed {
    fn new(name: &str, conversation: &Conversation) -> Result<Rehearsed, String> {
        let input = conversation.input(&Stage::new(conversation)?.act_apart()?);
        let stage = Stage::new(conversation)?;
        let acted = stage.act(&Act { input: input.clone(), env: counted(&stage), ..Act::default() })?;
        let calls = faults::calls(&record(&stage));
        let exit = conversation.turns.iter().find(|turn| turn.exit != 0).map_or(0, |turn| turn.exit);
        if acted.outcome.exit != exit || calls.len() < FEWEST_CALLS {
            return Err(format!("exit {} after {} calls\n{}", acted.outcome.exit, calls.len(), acted.outcome.stderr));
        }
        Ok(Rehearsed { name: name.to_owned(), conversation: conversation.clone(), input, calls })
    }
}

/// Where the calls of a run are written down.
fn record(stage: &Stage<'_>) -> std::path::PathBuf {
    stage.sandbox.root().join("calls")
}

fn counted(stage: &Stage<'_>) -> Vec<(String, String)> {
    faults::counted(&stage.sandbox.sessions(), &record(stage))
}

/// One fault at one call.
struct Place<'a> {
    rehearsed: &'a Rehearsed,
    fault: &'static str,
    at: usize,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call { name, bytes, .. } = &self.rehearsed.calls[self.at - 1];
        write!(f, "{}, `{}` at call {} ({name} of {bytes} bytes)", self.rehearsed.name, self.fault, self.at)
    }
}

/// How a session went on after a fault.
struct After<'a> {
    stage: Stage<'a>,
    /// Nothing when there was no log yet.
    left: Option<Left>,
    /// Lines of the model that were taken.
    taken: usize,
}

impl<'a> Place<'a> {
    /// Acts the conversation up to the fault.
    fn strike(&self) -> Result<(After<'a>, Acted), String> {
        let Rehearsed { conversation, input, .. } = self.rehearsed;
        let stage = Stage::new(conversation)?;
        let env = [counted(&stage), faults::at(self.fault, self.at)].concat();
        let acted = stage.act(&Act { input: input.clone(), env, ..Act::default() })?;
        let left = match stage.log()? {
            Some((id, text)) => Some(Left::parse(&id, &text)?),
            None => None,
        };
        if let Some(left) = &left {
            left.holds_what_was_printed(0, &acted.outcome.stdout)?;
        } else if acted.outcome.stdout.contains("\"seq\":") {
            return Err(format!("events were printed and there is no log:\n{}", acted.outcome.stdout));
        }
        Ok((After { stage, left, taken: acted.requests.len() }, acted))
    }

    fn kill(&self) -> Result<After<'a>, String> {
        let (after, acted) = self.strike()?;
        if acted.outcome.exit != KILLED {
            return Err(format!("it was not killed but ended with {}\n{}", acted.outcome.exit, acted.outcome.stderr));
        }
        Ok(after)
    }
}

impl After<'_> {
    /// How a process goes on: with all that was never logged, each in a turn of its own, and a last question.
    fn act(&self, left: &Left, conversation: &Conversation) -> Act {
        let logged = said(&left.log);
        let prompts = conversation.turns.iter().map(|turn| turn.prompt.as_str());
        let rest = prompts.filter(|prompt| !logged.iter().any(|logged| logged == prompt)).chain([AND_NOW]);
        let args = ["--resume", &left.log.id, "--approve", "allow"].map(str::to_owned).into();
        Act { args, input: sends(rest), taken: self.taken, env: Vec::new() }
    }

    /// Resumes the session and checks all that must hold then.
    fn resume(&self, conversation: &Conversation) -> Result<(), String> {
        let Some(left) = &self.left else { return self.nothing_was_left() };
        let acted = self.stage.act(&self.act(left, conversation))?;
        let Some((_, text)) = self.stage.log()? else { return Err("the log is gone".to_owned()) };
        let log = left.gone_on(&text, &acted).map_err(|error| format!("{error}\n{}", acted.outcome.stderr))?;
        let may_exit = |exit: i32| exit == 0 || conversation.turns.iter().any(|turn| turn.exit == exit);
        if !may_exit(acted.outcome.exit) {
            return Err(format!("resumed, it ended with {}\n{}", acted.outcome.exit, acted.outcome.stderr));
        }
        let prompts = conversation.turns.iter().map(|turn| turn.prompt.as_str()).chain([AND_NOW]);
        if said(&log).iter().ne(prompts) {
            return Err(format!("the user's messages are {:?}", said(&log)));
        }
        self.torn_is_kept(left)
    }

    fn torn_is_kept(&self, left: &Left) -> Result<(), String> {
        let aside = self.stage.sandbox.sessions().join(format!("{}.torn", left.log.id));
        let kept = std::fs::read_to_string(aside).unwrap_or_default();
        let expected = if left.torn.is_empty() { String::new() } else { format!("{}\n", left.torn) };
        if kept == expected { Ok(()) } else { Err(format!("set aside is `{kept}`, torn was `{}`", left.torn)) }
    }

    /// Before the log has its name there is nothing to go on with, and nothing that could be taken for a log.
    fn nothing_was_left(&self) -> Result<(), String> {
        let acted = self.stage.act(&Act { args: vec!["--continue".to_owned()], ..Act::default() })?;
        if acted.outcome.exit == 2 { Ok(()) } else { Err(format!("continued, it ended with {}", acted.outcome.exit)) }
    }
}

/// A test of one conversation.
type Test = fn(&Rehearsed) -> Result<(), String>;

/// Every test is made with every conversation.
const TESTS: &[(&str, Test)] = &[("killed at every write and flush it resumes", killed_anywhere)];

fn killed_anywhere(rehearsed: &Rehearsed) -> Result<(), String> {
    let mut places = Vec::new();
    for (at, call) in (1..).zip(&rehearsed.calls) {
        places.push(Place { rehearsed, fault: "kill", at });
        if call.bytes > 0 {
            places.push(Place { rehearsed, fault: "torn", at });
        }
    }
    places.push(Place { rehearsed, fault: "killed-after", at: rehearsed.calls.len() });
    parallel::each(&places, |place| place.kill()?.resume(&place.rehearsed.conversation))
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test keeps all processors busy by itself.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for (name, conversation) in Conversation::all() {
        let rehearsed = Arc::new(OnceLock::new());
        let conversation = Arc::new(conversation);
        for (what, test) in TESTS {
            let (name, conversation, rehearsed) = (name.clone(), conversation.clone(), rehearsed.clone());
            let title = format!("{name}: {what}");
            let run = move || {
                let rehearsed = rehearsed.get_or_init(|| Rehearsed::new(&name, &conversation));
                test(rehearsed.as_ref()?).map_err(Failed::from)
            };
            trials.push(Trial::test(title, run));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
