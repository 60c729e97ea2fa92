//! Many processes on many sessions in one folder, killed at random moments while the machine is busy: every session goes on, whenever
//! it was hit.
//!
//! `DSH_TESTS_RESTARTS=2000` sets how many processes are killed; `DSH_TESTS_SEED` other moments.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dsh_testkit::Chance;
use dsh_tests::aftermath::Left;
use dsh_tests::checks::shape;
use dsh_tests::conversation::Acted;
use dsh_tests::host::{self, Run};
use dsh_tests::log;
use dsh_tests::sandbox::Sandbox;

/// Processes that are killed, unless a variable says otherwise.
const RESTARTS: usize = 60;
/// How often a session is killed before it may come to its end.
const KILLS: usize = 6;
/// Sessions at a time, each with a process of its own: more than there are processors, so that writes are interrupted anywhere.
const AT_ONCE: usize = 6;
/// A run is killed within this time after its first event. A whole one takes longer on any machine: its tools alone wait 400 ms.
const WITHIN_MS: u32 = 350;
/// The end of the killed process: 128 and SIGKILL.
const KILLED: i32 = 137;

/// Eighty steps that stream text in small pieces and call tools, some of them slow.
fn long_script() -> String {
    let text = "Something to say, in small pieces. ".repeat(4);
    let calls = r#"[{"name":"say","arguments":{"text":"a"}},{"name":"wait","arguments":{"ms":5}},{"name":"change","arguments":{"text":"b"}}]"#;
    format!("{{\"text\":\"{text}\",\"chunkSize\":3,\"toolCalls\":{calls},\"repeat\":80}}\n{{\"text\":\"done\"}}\n")
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Pseudo-random, the same in every run: which moments are hit still differs, since the machine's speed does.
fn moment(seed: usize) -> Duration {
    Duration::from_millis(Chance::new(seed as u64).below(WITHIN_MS).into())
}

/// One session in a workspace of its own, in the folder of logs that all share.
struct Session<'a> {
    sandbox: &'a Sandbox,
    number: usize,
    runs: usize,
    left: Option<Left>,
}

impl Session<'_> {
    fn run(&mut self, script: &str, kill_after: Option<Duration>, prompt: &str) -> Result<Acted, String> {
        self.runs += 1;
        let workspace = self.sandbox.workspace.join(self.number.to_string());
        fs::create_dir_all(&workspace).map_err(|error| error.to_string())?;
        let requests = workspace.join(format!("requests-{}.jsonl", self.runs));
        let path = requests.to_string_lossy().into_owned();
        let model = self.sandbox.expand(&format!("script:{{case}}/{script}.jsonl"));
        let toolbox = self.sandbox.expand("{guests}/toolbox.wasm");
        let mut args = vec!["--output", "jsonl", "--log-requests", &path];
        args.extend(["--plugin", &toolbox, "--model", &model]);
        // Each has a workspace of its own, so the newest session there is its own.
        args.extend(self.left.iter().map(|_| "--continue"));
        args.push(prompt);
        let args = args.into_iter().map(str::to_owned).collect();
        let env = self.sandbox.environment();
        let outcome = host::run(&Run { args, env, dir: workspace, kill_after, ..Run::default() })?;
        let text = fs::read_to_string(&requests).unwrap_or_default();
        // A killed process may leave half a line.
        Ok(Acted { outcome, requests: text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect() })
    }

    /// The log of this session, among those of all.
    fn text(&self) -> Option<(String, String)> {
        let workspace = format!("\"workspace\":\"{}\"", self.sandbox.workspace.join(self.number.to_string()).display());
        let logs = log::texts_in(&self.sandbox.sessions());
        logs.into_iter().find(|(_, text)| text.lines().next().is_some_and(|header| header.contains(&workspace)))
    }

    /// Kills a run of it; true when that left an open turn.
    fn kill(&mut self, after: Duration) -> Result<bool, String> {
        let acted = self.run("long", Some(after), "go on")?;
        if acted.outcome.exit != KILLED {
            return Err(format!("exit {}\n{}", acted.outcome.exit, acted.outcome.stderr));
        }
        let Some((id, text)) = self.text() else { return Ok(false) };
        let next = match &self.left {
            Some(left) => left.gone_on_for_a_while(&text, &acted)?,
            None => {
                let left = Left::parse(&id, &text)?;
                left.holds_what_was_printed(0, &acted.outcome.stdout)?;
                left
            }
        };
        let open = !shape::check(&next.log, false).is_empty();
        self.left = Some(next);
        Ok(open)
    }

    /// Lets it come to its end.
    fn end(&mut self) -> Result<(), String> {
        let acted = self.run("short", None, "and now?")?;
        let Some((id, text)) = self.text() else { return Err("there is no log".to_owned()) };
        if acted.outcome.exit != 0 {
            return Err(format!("exit {}\n{}", acted.outcome.exit, acted.outcome.stderr));
        }
        match &self.left {
            Some(left) if left.log.id != id => Err(format!("it went on with `{id}`")),
            Some(left) => left.gone_on(&text, &acted).map(drop),
            None => Ok(()),
        }
    }
}

#[test]
fn killed_under_load_every_session_goes_on() {
    let sandbox = Sandbox::new().expect("a folder");
    fs::write(sandbox.case.join("long.jsonl"), long_script()).expect("written");
    fs::write(sandbox.case.join("short.jsonl"), "{\"text\":\"all is well\"}\n").expect("written");
    let restarts = number("DSH_TESTS_RESTARTS", RESTARTS);
    let seed = number("DSH_TESTS_SEED", 1);
    let (next, open) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let one = |number: usize| {
        let mut session = Session { sandbox: &sandbox, number, runs: 0, left: None };
        for kill in 0..KILLS {
            let was_open = session.kill(moment(seed + number * KILLS + kill));
            let was_open = was_open.unwrap_or_else(|error| panic!("session {number}, kill {kill}: {error}"));
            open.fetch_add(usize::from(was_open), Ordering::Relaxed);
        }
        session.end().unwrap_or_else(|error| panic!("session {number}: {error}"));
        // A folder with thousands of logs would only make `--continue` slow.
        if let Some((id, _)) = session.text() {
            let _ = fs::remove_file(sandbox.sessions().join(format!("{id}.jsonl")));
        }
    };
    let sessions = restarts.div_ceil(KILLS);
    let work = || {
        while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < sessions) {
            one(number);
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let (open, kills) = (open.into_inner(), sessions * KILLS);
    eprintln!("{kills} processes were killed, {open} of them in an open turn");
    assert!(open >= kills / 3, "only {open} of {kills} kills hit an open turn: this test shows nothing");
}
