//! A conversation of several turns, from a file, and the stage on which processes act it: whole, cut in two, or killed on the way.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::host::{self, Outcome, Run};
use crate::log::{self, Log};
use crate::sandbox::Sandbox;

/// What the model says when the lines of the conversation are used up, as often as it is asked.
const AFTERWARDS: &str = r#"{"text":"all is well","repeat":1000}"#;

/// Who is spoken to.
const AGENT: &str = "main";

/// A conversation.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// What it is for.
    pub about: String,
    /// The options of every process.
    pub args: Vec<String>,
    /// Whether every call of it is struck by faults, which takes long.
    #[serde(default)]
    pub crash: bool,
    /// Its turns, in order.
    pub turns: Vec<Turn>,
    /// Files, by path from the workspace or with a placeholder.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// A turn.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The message that starts it; unique in its conversation.
    pub prompt: String,
    /// What the model says in it, a line of `script:` for each request.
    pub script: String,
    /// Lines of `--input jsonl` for while it runs; `after` counts from the turn's beginning.
    #[serde(default)]
    pub input: String,
    /// What the process is to exit with that runs it alone.
    #[serde(default)]
    pub exit: i32,
    /// Later turns depend on what happens in it, beyond what the model is shown.
    #[serde(default)]
    pub matters: bool,
}

impl Conversation {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Conversation, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// All conversations below `tests/conversations`, by name.
    pub fn all() -> Vec<(String, Conversation)> {
        let dir = crate::root().join("tests/conversations");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&dir).expect("the folder is there").flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                found.push((name, Conversation::read(&path).unwrap_or_else(|error| panic!("{error}"))));
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert!(!found.is_empty(), "there is no conversation in {}", dir.display());
        found
    }

    /// The lines of the model.
    pub fn script(&self) -> Vec<&str> {
        self.turns.iter().flat_map(|turn| turn.script.lines()).filter(|line| !line.is_empty()).collect()
    }

    /// The whole standard input of one process for these turns; `apart`: what came of a process for each of all turns.
    pub fn input(&self, turns: Range<usize>, apart: &[Acted]) -> Vec<String> {
        let mut earlier = BTreeMap::new();
        let mut lines = sends(self.turns[turns.clone()].iter().map(|turn| turn.prompt.as_str()));
        for (turn, acted) in self.turns[turns.clone()].iter().zip(&apart[turns]) {
            lines.extend(turn.lines(&earlier));
            for (kind, count) in count_events(&acted.outcome.stdout) {
                *earlier.entry(kind).or_insert(0) += count;
            }
        }
        lines
    }

    /// How many lines of the model the turns before `turn` take.
    pub fn lines_before(&self, turn: usize) -> usize {
        let lines = |turn: &Turn| turn.script.lines().filter(|line| !line.is_empty()).count();
        self.turns[..turn].iter().map(lines).sum()
    }
}

/// How often each type of event was printed.
pub fn count_events(stdout: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for event in stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        *counts.entry(event["type"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
    }
    counts
}

impl Turn {
    /// The turn's lines of standard input without its prompt, for a process that has printed `earlier` events before it.
    pub fn lines(&self, earlier: &BTreeMap<String, u64>) -> Vec<String> {
        let shifted = |line: &str| {
            let mut line: Value = serde_json::from_str(line).expect("a line of the conversation's input is JSON");
            let after = line["after"].as_str().expect("a line of the conversation's input says after what");
            let (kind, n) = after.split_once('#').unwrap_or((after, "1"));
            let n: u64 = n.parse().expect("a count");
            line["after"] = format!("{kind}#{}", n + earlier.get(kind).unwrap_or(&0)).into();
            line.to_string()
        };
        self.input.lines().filter(|line| !line.is_empty()).map(shifted).collect()
    }
}

/// Folders in which a conversation is acted.
pub struct Stage<'a> {
    /// The folders.
    pub sandbox: Sandbox,
    conversation: &'a Conversation,
}

/// A process to start.
#[derive(Debug, Clone, Default)]
pub struct Act {
    /// Arguments beside those of the conversation.
    pub args: Vec<String>,
    /// Standard input, as JSON lines.
    pub input: Vec<String>,
    /// How many lines of the model were taken before.
    pub taken: usize,
    /// The lines that are left get a file of their own, so that the model has the same name in every process.
    pub same_model: bool,
    /// Variables beside those of every run.
    pub env: Vec<(String, String)>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Acted {
    /// Output and exit code.
    pub outcome: Outcome,
    /// The lines of `--log-requests`.
    pub requests: Vec<Value>,
}

impl Acted {
    /// How many lines of the conversation the model took; sub-agents have scripts of their own.
    pub fn taken(&self) -> usize {
        self.requests.iter().filter(|request| request["agent"] == AGENT).count()
    }
}

impl<'a> Stage<'a> {
    /// A new stage with the files of the conversation.
    pub fn new(conversation: &'a Conversation) -> Result<Stage<'a>, String> {
        let failed = |error: std::io::Error| error.to_string();
        let sandbox = Sandbox::new().map_err(failed)?;
        for (name, text) in &conversation.files {
            let path = sandbox.place(name);
            std::fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(failed)?;
            std::fs::write(path, sandbox.expand(text)).map_err(failed)?;
        }
        let mut script = conversation.script();
        script.push(AFTERWARDS);
        std::fs::write(sandbox.case.join("script.jsonl"), script.join("\n")).map_err(failed)?;
        Ok(Stage { sandbox, conversation })
    }

    /// Runs a process to its end, whatever that is.
    pub fn act(&self, act: &Act) -> Result<Acted, String> {
        let requests = self.sandbox.root().join("requests.jsonl");
        let _ = std::fs::remove_file(&requests);
        let model = match act.same_model {
            false => format!("script:{{case}}/script.jsonl#{}", act.taken + 1),
            true => self.rest_of_script(act.taken)?,
        };
        let fixed = ["--output", "jsonl", "--input", "jsonl", "--log-requests", "{outside}/requests.jsonl", "--model"];
        let args = fixed.iter().copied().chain([model.as_str()]);
        let args = args.chain(self.conversation.args.iter().map(String::as_str));
        let mut args: Vec<String> = args.map(|arg| self.sandbox.expand(arg)).collect();
        args.extend(act.args.iter().cloned());
        let mut env = self.sandbox.environment();
        env.extend(act.env.iter().cloned());
        let stdin = act.input.iter().map(|line| format!("{line}\n")).collect();
        let dir = self.sandbox.workspace.clone();
        let outcome = host::run(&Run { args, env, dir, stdin, signal: None, kill_after: None })?;
        // A process that was killed may have left half a line.
        let text = std::fs::read_to_string(&requests).unwrap_or_default();
        let requests = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Acted { outcome, requests })
    }

    /// A model that says what is left; the file is named from the working directory, so that its name is the same on every stage.
    fn rest_of_script(&self, taken: usize) -> Result<String, String> {
        let mut rest = self.conversation.script();
        rest.drain(..taken.min(rest.len()));
        rest.push(AFTERWARDS);
        std::fs::write(self.sandbox.case.join("rest.jsonl"), rest.join("\n")).map_err(|error| error.to_string())?;
        Ok("script:../case/rest.jsonl".to_owned())
    }

    /// Acts the conversation with a process of its own for each turn, and returns what came of each.
    pub fn act_apart(&self) -> Result<Vec<Acted>, String> {
        let mut acted: Vec<Acted> = Vec::new();
        for (at, turn) in self.conversation.turns.iter().enumerate() {
            let resume = self.log()?.map(|(id, _)| ["--resume".to_owned(), id]);
            let input = std::iter::once(send(&turn.prompt, None)).chain(turn.lines(&BTreeMap::new())).collect();
            let taken = self.conversation.lines_before(at);
            let args = resume.into_iter().flatten().collect();
            let done = self.act(&Act { args, input, taken, ..Act::default() })?;
            if done.outcome.exit != turn.exit || done.taken() != self.conversation.lines_before(at + 1) - taken {
                return Err(format!(
                    "turn {}: exit {} after {} requests\n{}",
                    at + 1,
                    done.outcome.exit,
                    done.taken(),
                    done.outcome.stderr
                ));
            }
            acted.push(done);
        }
        Ok(acted)
    }

    /// The id and text of the agent's only log; none when there is no log.
    pub fn log(&self) -> Result<Option<(String, String)>, String> {
        let mut logs = log::texts_in(&self.sandbox.sessions());
        logs.retain(|_, text| is_of(text, AGENT));
        match logs.len() {
            0 | 1 => Ok(logs.pop_first()),
            several => Err(format!("there are {several} sessions of the agent")),
        }
    }

    /// The logs of its sub-agents, by id.
    pub fn logs_of_others(&self) -> BTreeMap<String, String> {
        let mut logs = log::texts_in(&self.sandbox.sessions());
        logs.retain(|_, text| !is_of(text, AGENT));
        logs
    }
}

/// Whether a log is that of an agent; one without a header is the first agent's.
fn is_of(text: &str, agent: &str) -> bool {
    let header = text.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok());
    header.is_none_or(|header| header["agent"] == agent)
}

/// The line of standard input that sends `text`, perhaps after some event.
pub fn send(text: &str, after: Option<&str>) -> String {
    match after {
        None => json!({"send": text}).to_string(),
        Some(after) => json!({"send": text, "after": after}).to_string(),
    }
}

/// Lines that send one message a turn: each is queued when the turn before has ended.
pub fn sends<'t>(texts: impl IntoIterator<Item = &'t str>) -> Vec<String> {
    let line = |(at, text)| match at {
        0 => send(text, None),
        at => send(text, Some(&format!("turn/end#{at}"))),
    };
    texts.into_iter().enumerate().map(line).collect()
}

/// The texts of the user's messages in a log, in order.
pub fn said(log: &Log) -> Vec<String> {
    let of = log.entries.iter().filter(|entry| entry["type"] == "user/message");
    let of = of.filter(|entry| entry["data"]["source"]["type"] == "user");
    of.map(|entry| entry["data"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()).collect()
}
