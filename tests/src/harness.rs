//! Runs a data case, checks what holds always, and compares the whole outcome with `expect.txt`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dsh_testkit::transcript::{Frame, transcript};
use similar::TextDiff;

use crate::case::{Case, Invocation};
use crate::checks;
use crate::host::{self, Outcome, Run};
use crate::log::{self, Log};
use crate::normal::Normal;
use crate::sandbox::Sandbox;

/// How the notes begin that are printed only by the first run of all that loads a component.
const COMPILING: [&str; 2] = ["note: compiling plugin ", "note: compiled plugin "];

/// The folders below `dir` that hold a `case.toml`, sorted.
pub fn find(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.join("case.toml").is_file() {
            found.push(path);
        } else if path.is_dir() {
            found.extend(find(&path));
        }
    }
    found.sort();
    found
}

/// Runs the case in `dir`. With `update`, a difference is written instead of reported; what failed otherwise is an error all the same.
pub fn run_case(dir: &Path, update: bool) -> Result<(), String> {
    run(&Case::read(dir)?, dir, &dir.join("expect.txt"), update)
}

/// Runs `case` with a copy of `folder`, and compares the outcome with `expect_file`.
pub fn run(case: &Case, folder: &Path, expect_file: &Path, update: bool) -> Result<(), String> {
    let sandbox = Sandbox::new().map_err(|error| error.to_string())?;
    sandbox.fill(folder, case).map_err(|error| format!("the files of the case: {error}"))?;
    let mut session =
        Running { normal: Normal::new(&sandbox, &case.replace)?, case, sandbox: &sandbox, problems: Vec::new() };
    let mut report = String::new();
    for (at, invocation) in case.invocations().enumerate() {
        report.push_str(&session.invoke(at, invocation)?);
    }
    let mut problems = session.problems;
    problems.extend(compare(expect_file, &report, update)?);
    if problems.is_empty() { Ok(()) } else { Err(format!("{}\n\n{}", case.about, problems.join("\n"))) }
}

/// Whether expectations are to be written anew instead of compared.
pub fn update() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value != "0")
}

/// The difference of `report` and the file's text; none when there is none, or when it was written.
pub fn compare(expect_file: &Path, report: &str, update: bool) -> Result<Option<String>, String> {
    let expect = std::fs::read_to_string(expect_file).unwrap_or_default();
    if report == expect {
        return Ok(None);
    }
    if update {
        std::fs::write(expect_file, report).map_err(|error| error.to_string())?;
        return Ok(None);
    }
    Ok(Some(format!("{} differs (- expected, + found):\n{}", expect_file.display(), diff(&expect, report))))
}

fn diff(expect: &str, found: &str) -> String {
    TextDiff::from_lines(expect, found).unified_diff().context_radius(2).to_string()
}

/// A case while it runs.
struct Running<'a> {
    case: &'a Case,
    sandbox: &'a Sandbox,
    normal: Normal,
    problems: Vec<String>,
}

impl Running<'_> {
    /// One invocation with its checks, as text for `expect.txt`.
    fn invoke(&mut self, at: usize, invocation: &Invocation) -> Result<String, String> {
        let before = self.logs(invocation);
        let requests = self.sandbox.root().join(format!("requests-{}.jsonl", at + 1));
        let args: Vec<String> = invocation.args.iter().map(|arg| self.expand(arg)).collect();
        let mut all_args = args.clone();
        if invocation.runs_agent() && invocation.option("--log-requests").is_none() {
            all_args.splice(0..0, ["--log-requests".to_owned(), requests.to_string_lossy().into_owned()]);
        }
        let mut env = self.sandbox.environment();
        env.extend(invocation.env.iter().map(|(name, value)| (name.clone(), self.expand(value))));
        let signal = invocation.signal.as_ref().map(|signal| (signal.name.clone(), signal.after.clone()));
        let stdin = self.expand(invocation.stdin.as_deref().unwrap_or(""));
        let outcome = host::run(&Run {
            args: all_args,
            env,
            dir: self.sandbox.workspace.clone(),
            stdin,
            signal,
            kill_after: None,
        })?;
        if outcome.exit != invocation.exit {
            self.problem(
                at,
                format!(
                    "exit status {}, `case.toml` says {}\nstandard error:\n{}",
                    outcome.exit, invocation.exit, outcome.stderr
                ),
            );
        }
        let after = self.logs(invocation);
        after.keys().filter(|id| !before.contains_key(*id)).for_each(|id| self.normal.session(id));
        self.check_logs(at, invocation, &outcome, &before, &after, &requests);
        if invocation.runs_agent() && invocation.prints_events() && !invocation.is_killed() {
            checks::family::check(&outcome.stdout).into_iter().for_each(|problem| self.problem(at, problem));
        }
        let given: Vec<PathBuf> = self.case.files.keys().map(|name| self.sandbox.place(name)).collect();
        let env = invocation.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let texts = [("standard output", outcome.stdout.as_str()), ("standard error", outcome.stderr.as_str())];
        let mut leaks = Vec::new();
        for dir in [&self.sandbox.workspace, &self.sandbox.root().join("xdg")] {
            leaks.extend(checks::secrets::check(env.clone(), &texts, dir, &given));
        }
        leaks.into_iter().for_each(|leak| self.problem(at, leak));
        Ok(self.print(invocation, &args, &outcome))
    }

    fn expand(&self, text: &str) -> String {
        let mut text =
            self.sandbox.expand(text).replace("{session}", self.normal.last_session().unwrap_or("{session}"));
        for (at, id) in self.normal.sessions().iter().enumerate() {
            text = text.replace(&format!("{{session-{}}}", at + 1), id);
        }
        text
    }

    fn problem(&mut self, at: usize, problem: String) {
        self.problems.push(format!("invocation {}: {problem}", at + 1));
    }

    /// All session logs that the invocation could see.
    fn logs(&self, invocation: &Invocation) -> BTreeMap<String, String> {
        let mut logs = log::texts_in(&self.sandbox.sessions());
        if let Some(dir) = invocation.option("--session") {
            logs.extend(log::texts_in(&self.sandbox.place(dir)));
        }
        logs.retain(|id, _| !self.case.broken_logs.contains(&format!("{id}.jsonl")));
        logs
    }

    fn check_logs(
        &mut self,
        at: usize,
        invocation: &Invocation,
        outcome: &Outcome,
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
        requests: &Path,
    ) {
        let sent = std::fs::read_to_string(requests).unwrap_or_default();
        let requests = match log::json_lines(requests) {
            Ok(requests) => requests,
            Err(problem) => return self.problem(at, problem),
        };
        let killed = invocation.is_killed();
        for id in after.keys().filter(|id| before.get(*id) != after.get(*id)) {
            let log = match Log::parse(id, &after[id]) {
                Ok(log) => log,
                Err(_) if killed => continue,
                Err(problem) => {
                    self.problem(at, format!("session `{id}`: {problem}"));
                    continue;
                }
            };
            if let Some(text) = before.get(id)
                && !after[id].starts_with(&text[..text.rfind('\n').map_or(0, |end| end + 1)])
            {
                self.problem(at, format!("session `{id}`: what was in the log has changed"));
            }
            let known = before.get(id).map(|text| text.matches('\n').count().saturating_sub(1));
            let mut found = checks::shape::check(&log, killed);
            if invocation.runs_agent() && !killed {
                if invocation.option("--log-requests").is_none() {
                    found.extend(checks::requests::check(&log, known.unwrap_or(log.copied()), &requests));
                    found.extend(self.rebuilt(invocation, id, &sent));
                }
                if invocation.prints_events() {
                    let before = Some(known.unwrap_or(log.copied()));
                    found.extend(checks::stream::check(&log, before, &outcome.stdout));
                }
            }
            found.into_iter().for_each(|problem| self.problem(at, format!("session `{id}`: {problem}")));
        }
    }

    /// What `session requests` prints must hold every line that `--log-requests` wrote for the session, in that order.
    fn rebuilt(&self, invocation: &Invocation, id: &str, sent: &str) -> Option<String> {
        let dir = invocation.option("--session").map_or_else(|| self.sandbox.sessions(), |dir| self.sandbox.place(dir));
        let args = ["session", "requests", id, "--session", &dir.to_string_lossy()].map(str::to_owned).to_vec();
        let (env, dir) = (self.sandbox.environment(), self.sandbox.workspace.clone());
        let outcome = match host::run(&Run { args, env, dir, ..Run::default() }) {
            Ok(outcome) => outcome,
            Err(problem) => return Some(problem),
        };
        if outcome.exit != 0 {
            return Some(format!("`session requests` fails: {}", outcome.stderr));
        }
        let (by_loop, of_session) = (r#"{"by":"loop","#, format!(r#","session":"{id}","#));
        let mut rebuilt = outcome.stdout.lines();
        let mut of_loop = sent.lines().filter(|line| line.starts_with(by_loop) && line.contains(&of_session));
        let missing = of_loop.find(|line| !rebuilt.any(|rebuilt| rebuilt == *line))?;
        Some(format!("`session requests` lacks a line of `--log-requests`, or has it late: {missing}"))
    }

    fn print(&self, invocation: &Invocation, args: &[String], outcome: &Outcome) -> String {
        let words: Vec<String> =
            std::iter::once("dsh-host").chain(args.iter().map(String::as_str)).map(quoted).collect();
        let mut out = format!("$ {}\n", self.normal.apply(&words.join(" ")));
        if invocation.prints_events() {
            let frame = if self.case.whole_frame { Frame::Whole } else { Frame::Names };
            let mut lines: Vec<&str> = outcome.stdout.lines().collect();
            if self.case.by_agent {
                lines.sort_by_key(|line| agent_of(line));
            }
            out.push_str(&self.normal.apply(&transcript(lines, frame)));
        } else {
            out.push_str(&self.text(&outcome.stdout));
        }
        let stderr: String = outcome
            .stderr
            .split_inclusive('\n')
            .filter(|line| !COMPILING.iter().any(|note| line.starts_with(note)))
            .collect();
        if !stderr.is_empty() {
            out.push_str(&format!("[standard error]\n{}", self.text(&stderr)));
        }
        out.push_str(&format!("[exit {}]\n", outcome.exit));
        for name in &invocation.show_files {
            let shown = match std::fs::read_to_string(self.sandbox.place(&self.expand(name))) {
                Ok(text) => self.text(&text),
                Err(error) => format!("({})\n", error.kind()),
            };
            out.push_str(&format!("[file {}]\n{shown}", self.normal.apply(&self.expand(name))));
        }
        out.push('\n');
        out
    }

    fn text(&self, text: &str) -> String {
        let text = self.normal.apply(text);
        if text.is_empty() || text.ends_with('\n') { text } else { format!("{text}\n[no newline at the end]\n") }
    }
}

/// Whose event a line of standard output is.
fn agent_of(line: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    event["agent"].as_str().map(str::to_owned)
}

/// A word as one would type it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=#@,{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
