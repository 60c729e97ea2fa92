//! A session that was resumed, continued or forked behaves as one that never stopped.
//!
//! Each conversation of `../conversations/` is acted by one process, then cut: at the end of each turn, in the middle of one at every
//! event, and by forks at every event. With `DSH_TESTS_LONG=1` no event is left out.

use std::fmt;
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dsh_tests::aftermath::{Left, none_of};
use dsh_tests::checks::{shape, stream};
use dsh_tests::conversation::{Act, Acted, Conversation, Stage, send};
use dsh_tests::log::{self, Log};
use dsh_tests::parallel;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// Every so many events are tried; a number that shares no divisor with the repetitions of a log.
const EVERY: usize = 5;

/// A test of one conversation.
type Test = fn(&Whole) -> Result<(), String>;

/// Every test is made with every conversation.
const TESTS: &[(&str, Test)] = &[
    ("cut at the end of a turn, it is the same", cut_at_turns),
    ("cut in the middle of a turn, the next turns are the same", cut_in_turns),
    ("forked anywhere, the copy goes on and the original stays", forked_anywhere),
];

/// A conversation as one process acts it.
struct Whole {
    conversation: Conversation,
    apart: Vec<Acted>,
    id: String,
    text: String,
    log: Log,
    requests: Vec<Value>,
}

impl Whole {
    fn new(conversation: &Conversation) -> Result<Whole, String> {
        let apart = Stage::new(conversation)?.act_apart()?;
        let stage = Stage::new(conversation)?;
        let input = conversation.input(0..conversation.turns.len(), &apart);
        let acted = stage.act(&Act { input, same_model: true, ..Act::default() })?;
        let (id, text) = stage.log()?.ok_or("there is no log")?;
        let log = Log::parse(&id, &text)?;
        none_of([shape::check(&log, false), stream::check(&log, Some(0), &acted.outcome.stdout)].concat())?;
        let exit = conversation.turns.iter().find(|turn| turn.exit != 0).map_or(0, |turn| turn.exit);
        if acted.outcome.exit != exit {
            return Err(format!("exit {}\n{}", acted.outcome.exit, acted.outcome.stderr));
        }
        Ok(Whole { conversation: conversation.clone(), apart, id, text, log, requests: acted.requests })
    }

    /// How many turns have ended, and whether one is open, after so many entries.
    fn turns(&self, entries: usize) -> (usize, bool) {
        let count = |kind: &str| (0..entries).filter(|at| self.log.kind(*at) == kind).count();
        (count("turn/end"), count("turn/start") > count("turn/end"))
    }

    /// The first lines of the log: its header and so many entries.
    fn beginning(&self, entries: usize) -> String {
        self.text.split_inclusive('\n').take(entries + 1).collect()
    }

    /// A stage on which the log stops after so many entries.
    fn stage(&self, entries: usize) -> Result<Stage<'_>, String> {
        let stage = Stage::new(&self.conversation)?;
        let dir = stage.sandbox.sessions();
        fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        let path = dir.join(format!("{}.jsonl", self.id));
        fs::write(path, self.beginning(entries)).map_err(|error| error.to_string())?;
        Ok(stage)
    }
}

/// An entry or a request without what differs by nature: ids of the session, times, and what counts per process, which is ids of
/// questions and numbers of sub-agents.
fn plain(value: &Value) -> Value {
    let mut value = value.clone();
    if value["agent"].as_str().is_some_and(|agent| agent.starts_with("main.")) {
        value["agent"] = "main.N".into();
    }
    let question = value["type"].as_str().is_some_and(|kind| kind.starts_with("approval/"));
    if let Some(members) = value.as_object_mut() {
        for name in ["session", "time"] {
            members.shift_remove(name);
        }
        if question && let Some(data) = members["data"].as_object_mut() {
            data.shift_remove("id");
        }
    }
    value
}

/// The same without what a turn that was cut makes different: numbers of lines, and what the model is shown.
fn outline(value: &Value) -> Value {
    let mut value = plain(value);
    let request = value["type"] == "request/sent";
    if let Some(members) = value.as_object_mut() {
        members.shift_remove("seq");
        if request && let Some(data) = members["data"].as_object_mut() {
            for name in ["system", "tools", "edits", "messages", "hash"] {
                data.shift_remove(name);
            }
        }
    }
    value
}

/// The first difference, if there is one.
fn same(what: &str, found: Vec<Value>, expected: Vec<Value>) -> Result<(), String> {
    let nothing = Value::from("nothing");
    let longest = found.len().max(expected.len());
    let get = |list: &[Value], at: usize| list.get(at).unwrap_or(&nothing).clone();
    match (0..longest).find(|at| get(&found, *at) != get(&expected, *at)) {
        None => Ok(()),
        Some(at) => Err(format!("{what} {at} is {}\nand without the cut {}", get(&found, at), get(&expected, at))),
    }
}

/// How a session goes on.
#[derive(Clone, Copy)]
struct Cut {
    /// After so many turns, or entries.
    after: usize,
    how: &'static str,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut after {}, `{}`", self.after, self.how)
    }
}

fn cut_at_turns(whole: &Whole) -> Result<(), String> {
    let turns = 1..whole.conversation.turns.len();
    let cuts = turns.flat_map(|after| ["--resume", "--continue", "--fork"].map(|how| Cut { after, how }));
    parallel::each(&cuts.collect::<Vec<_>>(), |cut| {
        let Whole { conversation, apart, .. } = whole;
        let stage = Stage::new(conversation)?;
        let input = conversation.input(0..cut.after, apart);
        let first = stage.act(&Act { input, same_model: true, ..Act::default() })?;
        let (id, before) = stage.log()?.ok_or("there is no log")?;
        let mut args = vec![cut.how.to_owned()];
        match cut.how {
            "--resume" => args.push(id.clone()),
            // Without a number the copy would end with the turn, and leave out what came after it.
            "--fork" => args.push(format!("{id}@{}", Log::parse(&id, &before)?.entries.len() - 1)),
            _ => {}
        }
        let input = conversation.input(cut.after..conversation.turns.len(), apart);
        let taken = conversation.lines_before(cut.after);
        let second = stage.act(&Act { args, input, taken, same_model: true, env: Vec::new() })?;
        let mut logs = log::texts_in(&stage.sandbox.sessions());
        stage.logs_of_others().keys().for_each(|id| drop(logs.remove(id)));
        let original = logs.remove(&id).ok_or("the log is gone")?;
        let (id, text) = logs.into_iter().next().unwrap_or_else(|| (id.clone(), original.clone()));
        if cut.how == "--fork" && original != before {
            return Err("the original has changed".to_owned());
        }
        let log = Log::parse(&id, &text)?;
        none_of(shape::check(&log, false))?;
        let plains = |list: &[Value]| list.iter().map(plain).collect::<Vec<_>>();
        let failed = |error: String| format!("{error}\n{}", second.outcome.stderr);
        same("entry", plains(&log.entries), plains(&whole.log.entries)).map_err(failed)?;
        let requests = [first.requests, second.requests].concat();
        same("request", plains(&requests), plains(&whole.requests)).map_err(failed)
    })
}

/// Every event, or some of them.
fn events(whole: &Whole, how: &'static str) -> Vec<Cut> {
    let all = (1..=whole.log.entries.len()).filter(|after| parallel::long() || after.is_multiple_of(EVERY));
    all.map(|after| Cut { after, how }).collect()
}

fn cut_in_turns(whole: &Whole) -> Result<(), String> {
    let (cuts, compared) = (events(whole, "--resume"), AtomicUsize::new(0));
    parallel::each(&cuts, |cut| {
        let Whole { conversation, apart, .. } = whole;
        let (ended, open) = whole.turns(cut.after);
        let stage = whole.stage(cut.after)?;
        let left = Left::parse(&whole.id, &whole.beginning(cut.after))?;
        // What is logged and not answered drives a turn of its own, which is the whole turn.
        let unanswered = !open && dsh_tests::conversation::said(&left.log).len() > ended;
        let next = ended + usize::from(open);
        let mut input = conversation.input(next..conversation.turns.len(), apart);
        if unanswered {
            // What is logged is not said again.
            input.remove(0);
        } else if input.is_empty() {
            input.push(send("and now?", None));
        }
        let taken = conversation.lines_before(next);
        let args = ["--resume", &whole.id].map(str::to_owned).into();
        let acted = stage.act(&Act { args, input, taken, same_model: true, env: Vec::new() })?;
        let (_, text) = stage.log()?.ok_or("the log is gone")?;
        let log = left.gone_on(&text, &acted).map_err(|error| format!("{error}\n{}", acted.outcome.stderr))?;
        // Later turns differ by what the cut one did not do; that the session goes on was checked above.
        if open && conversation.turns[ended].matters {
            return Ok(());
        }
        let from = |log: &Log, turn: usize| {
            let ends = (0..log.entries.len()).filter(|at| log.kind(*at) == "turn/end");
            let start = ends.skip(turn.max(1) - 1).map(|end| end + 1).next();
            let start = if turn == 0 { 0 } else { start.unwrap_or(log.entries.len()) };
            log.entries[start..]
                .iter()
                // Context that came after the turn is lost with the cut.
                .skip_while(|entry| entry["type"] == "context/message")
                .map(outline)
                .take_while(|entry| entry["data"]["content"][0]["text"] != "and now?")
                .collect::<Vec<_>>()
        };
        let expected = from(&whole.log, next);
        // Behind a cut in the last turn nothing is left to compare.
        compared.fetch_add(usize::from(!expected.is_empty()), Ordering::Relaxed);
        same("entry", from(&log, next), expected)
    })?;
    let (cuts, compared) = (cuts.len(), compared.into_inner());
    eprintln!("what comes after {compared} of {cuts} cuts was compared");
    // When every turn matters to later ones, a cut only has to leave a session that goes on.
    let turns = &whole.conversation.turns;
    let comparable = turns[..turns.len() - 1].iter().any(|turn| !turn.matters);
    if comparable && compared == 0 { Err("nothing was compared: this test shows nothing".to_owned()) } else { Ok(()) }
}

fn forked_anywhere(whole: &Whole) -> Result<(), String> {
    parallel::each(&events(whole, "--fork"), |cut| {
        let stage = whole.stage(whole.log.entries.len())?;
        let at = cut.after - 1;
        let args = ["--fork".to_owned(), format!("{}@{at}", whole.id)].into();
        let acted = stage.act(&Act {
            args,
            input: vec![send("and now?", None)],
            taken: 1000,
            same_model: true,
            env: Vec::new(),
        })?;
        let mut logs = log::texts_in(&stage.sandbox.sessions());
        if logs.remove(&whole.id).as_ref() != Some(&whole.text) {
            return Err("the original has changed".to_owned());
        }
        let (id, text) =
            logs.into_iter().next().ok_or_else(|| format!("there is no copy\n{}", acted.outcome.stderr))?;
        let header = text.lines().next().unwrap_or_default();
        let lineage: Value = serde_json::from_str(header).map_err(|error| error.to_string())?;
        if lineage["parent"] != whole.id.as_str() || lineage["forkedAt"] != at || lineage["id"] != id.as_str() {
            return Err(format!("its header is {header}"));
        }
        let copied = whole.beginning(cut.after).replace(&whole.id, &id);
        let copied = format!("{header}\n{}", copied.split_once('\n').map_or("", |(_, entries)| entries));
        let left = Left::parse(&id, &copied)?;
        left.gone_on(&text, &acted).map(drop).map_err(|error| format!("{error}\n{}", acted.outcome.stderr))
    })
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test keeps all processors busy by itself.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for (name, conversation) in Conversation::all() {
        let shared = Arc::new((conversation, OnceLock::new()));
        for (what, test) in TESTS {
            let shared = shared.clone();
            let run = move || {
                let (conversation, whole) = &*shared;
                test(whole.get_or_init(|| Whole::new(conversation)).as_ref()?).map_err(Failed::from)
            };
            trials.push(Trial::test(format!("{name}: {what}"), run));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
