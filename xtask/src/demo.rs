//! `cargo xtask demo`: sets up, builds, and runs the echo agent and the coding agent of `examples/`.
//!
//! Each example runs in a fresh copy below the build directory, so that the checkout stays as it is, and with a data directory of
//! its own. The command lines are shown as they can be typed from the root of the checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

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
}

const SCENES: &[Scene] = &[
    Scene {
        title: "the echo agent: the model `echo`, the plugin `echo`, text as it streams",
        example: "echo-agent",
        arguments: &["echo hello from a component"],
    },
    Scene {
        title: "the same session goes on, and every event is shown",
        example: "echo-agent",
        arguments: &["--continue", "--output", "jsonl", "and once more"],
    },
    Scene {
        title: "the coding agent: a scripted model and the plugins files, permission, sandbox, compaction and plan-mode",
        example: "coding-agent",
        arguments: &["--output", "jsonl", "Fix the greeting"],
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
        let status = command.status().with_context(|| format!("cannot start `{}`", repo.host_binary().display()))?;
        if !status.success() {
            bail!("the agent ended with {status}; docs/command-line.md says what the codes mean");
        }
        Ok(())
    }
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
