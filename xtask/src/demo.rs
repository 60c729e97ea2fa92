//! `cargo xtask demo`: sets up, builds, and runs the echo agent and the coding agent of `examples/`.
//!
//! Each example runs in a fresh copy below the build directory, so that the checkout stays as it is, and with a data directory of
//! its own. The command lines are shown as they can be typed from the root of the checkout.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::progress::{Steps, say};
use crate::repo::{Repo, call, quoted};
use crate::{guests, setup};

/// What `demo` is told.
#[derive(clap::Args)]
pub struct Options {
    /// Ask this model instead of the examples' own, such as `openai/gpt-4.1-mini`; its key comes from the environment
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Option<String>,
}

/// One command line that is shown.
struct Scene {
    title: &'static str,
    /// The folder below `examples/`; its `dsh.toml` is the configuration.
    example: &'static str,
    /// Options and prompts after `--config`.
    arguments: &'static [&'static str],
    /// Whether the output is events, which are shown a short line each.
    events: bool,
}

/// The most characters of an event that are shown: about a line of a wide terminal.
const EVENT_CHARACTERS: usize = 150;

const SCENES: &[Scene] = &[
    Scene {
        title: "the echo agent: the model `echo` and the plugin `echo`, its text as it streams",
        example: "echo-agent",
        arguments: &["echo hello from a component"],
        events: false,
    },
    Scene {
        title: "the same session goes on, seen as its events",
        example: "echo-agent",
        arguments: &["--continue", "--output", "jsonl", "and once more"],
        events: true,
    },
    Scene {
        title: "the coding agent: tools for files under permission, sandbox, plan-mode and compaction, seen as its events",
        example: "coding-agent",
        arguments: &["--output", "jsonl", "Fix the greeting"],
        events: true,
    },
];

/// Sets up, builds and runs the scenes.
pub fn run(repo: &Repo, options: &Options) -> Result<()> {
    let mut steps = Steps::new(3 + SCENES.len());
    steps.step("set up", || setup::run(repo))?;
    steps.step("build the host (the first build compiles wasmtime, which takes many minutes)", || {
        call(repo.cargo().args(["build", "--release", "--package", "dsh-host"]))
    })?;
    steps.step("build the plugins", || guests::run(repo))?;
    let stage = Stage::new(repo)?;
    for scene in SCENES {
        steps.step(scene.title, || stage.play(repo, scene, options.model.as_deref()))?;
    }
    say("that was the whole of it; README.md says how to go on");
    Ok(())
}

/// Where the examples are copied to, below the build directory.
struct Stage {
    folder: PathBuf,
}

impl Stage {
    /// Clears the place and copies every example that has a scene.
    fn new(repo: &Repo) -> Result<Self> {
        let folder = repo.target.join("demo");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot clear `{}`", folder.display()))?;
        }
        for scene in SCENES {
            let from = repo.root.join("examples").join(scene.example);
            copy_folder(&from, &folder.join(scene.example))
                .with_context(|| format!("cannot copy `{}`", from.display()))?;
        }
        Ok(Self { folder })
    }

    fn play(&self, repo: &Repo, scene: &Scene, model: Option<&str>) -> Result<()> {
        let home = self.folder.join("home");
        let config = self.folder.join(scene.example).join("dsh.toml");
        let mut arguments = vec!["--config".to_owned(), repo.shown(&config)];
        if let Some(model) = model {
            arguments.extend(["--model".to_owned(), model.to_owned()]);
        }
        arguments.extend(scene.arguments.iter().map(|argument| (*argument).to_owned()));
        let typed: Vec<_> = arguments.iter().map(|argument| quoted(argument)).collect();
        say(&format!("$ DSH_HOME={} {} {}", repo.shown(&home), repo.shown(&repo.host_binary()), typed.join(" ")));
        let mut command = Command::new(repo.host_binary());
        command.args(&arguments).current_dir(&repo.root).env("DSH_HOME", &home).stdin(Stdio::null());
        let status = if scene.events { show_events(&mut command) } else { command.status().map_err(Into::into) }
            .with_context(|| format!("cannot run `{}`", repo.host_binary().display()))?;
        if !status.success() {
            bail!("the agent ended with {status}; docs/command-line.md says what the codes mean");
        }
        Ok(())
    }
}

/// Runs a command whose output is events and shows each as it comes, shortened.
fn show_events(command: &mut Command) -> Result<ExitStatus> {
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().expect("invariant: standard output was piped above");
    for line in BufReader::new(output).lines() {
        if let Some(short) = short_event(&line?) {
            say(&short);
        }
    }
    Ok(child.wait()?)
}

/// An event in one short line: its number, its type and the beginning of its data. A live event that repeats a durable one is
/// left out, and so is what frames the pieces of a stream.
fn short_event(line: &str) -> Option<String> {
    let Ok(event) = serde_json::from_str::<Value>(line) else { return Some(line.to_owned()) };
    let kind = event["type"].as_str().unwrap_or_default();
    let twins = ["agent/turn-", "agent/step-", "agent/steering", "agent/stream-chunk"];
    let is_frame = matches!(event["data"]["chunk"]["type"].as_str(), Some("block-start" | "block-end"));
    if is_frame || twins.iter().any(|twin| kind.starts_with(twin)) {
        return None;
    }
    let number = event["seq"].as_u64().map_or("live".to_owned(), |seq| seq.to_string());
    let data = event["data"].to_string();
    let mut short: String = data.chars().take(EVENT_CHARACTERS).collect();
    if short.len() < data.len() {
        short.push('…');
    }
    Some(format!("{number:>4}  {kind:<18} {short}"))
}

/// Copies a folder with all that is in it, links left out.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let to = to.join(entry.file_name());
        if kind.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_shown_short() {
        let check = |line: &str, expect: Option<&str>| assert_eq!(short_event(line).as_deref(), expect);
        check(
            r#"{"type":"turn/start","seq":7,"time":1,"session":"s","agent":"main","data":{"turn":1}}"#,
            Some(r#"   7  turn/start         {"turn":1}"#),
        );
        check(
            r#"{"type":"agent/status","session":"s","agent":"main","data":{"status":"idle"}}"#,
            Some(r#"live  agent/status       {"status":"idle"}"#),
        );
        check(r#"{"type":"agent/turn-start","data":{"turn":1}}"#, None);
        check(r#"{"type":"assistant/chunk","seq":1,"data":{"chunk":{"type":"block-start"}}}"#, None);
        check("not JSON", Some("not JSON"));
        let long = format!(r#"{{"type":"usage","seq":1,"data":"{}"}}"#, "x".repeat(200));
        assert_eq!(short_event(&long).map(|line| line.chars().count()), Some(4 + 2 + 18 + 1 + EVENT_CHARACTERS + 1));
    }
}
