//! The plugin `shell`: one tool that runs a command line in the workspace.

mod report;

use dsh_sdk::{Failure, Outcome, Plugin, Tool, ToolProvider, process, tool};
use report::report;
use schemars::JsonSchema;
use serde::Deserialize;

/// How long a command may run when nobody says otherwise, in milliseconds: builds and tests of a usual project fit.
const DEFAULT_TIMEOUT_MS: u32 = 120_000;
/// The longest that may be asked for, in milliseconds: the host lets no program run longer. Whatever does belongs elsewhere.
const MAX_TIMEOUT_MS: u32 = 600_000;

/// How commands are run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    /// The shell: it is called with `-c` and the command.
    #[serde(default = "bash")]
    program: String,
    /// How long a command may run unless the call says otherwise, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    timeout_ms: u32,
}

fn bash() -> String {
    "bash".to_owned()
}

fn default_timeout_ms() -> u32 {
    DEFAULT_TIMEOUT_MS
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Args {
    /// The command line.
    command: String,
    /// How long it may run, in milliseconds.
    #[schemars(range(min = 1, max = 600_000))]
    timeout_ms: Option<u32>,
}

struct Shell {
    program: String,
    timeout_ms: u32,
}

impl Plugin for Shell {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        if config.program.trim().is_empty() {
            return Err(Failure::invalid_config("`program` is empty: name a shell, such as `bash`"));
        }
        if config.timeout_ms == 0 || config.timeout_ms > MAX_TIMEOUT_MS {
            return Err(Failure::invalid_config(format!("`timeout-ms` must be from 1 to {MAX_TIMEOUT_MS}")));
        }
        Ok(Self { program: config.program, timeout_ms: config.timeout_ms })
    }
}

impl ToolProvider for Shell {
    fn tools(&self) -> Vec<Tool<'_>> {
        let description = format!(
            "Runs a command line with `{} -c` in the workspace, and answers with its output and, when it failed, its exit code. Each call \
             is a new shell without input; after {} ms it is stopped.",
            self.program, self.timeout_ms
        );
        vec![tool("shell", description).destructive().open_world().typed(|args: Args, _call| self.run(args))]
    }
}

impl Shell {
    fn run(&self, args: Args) -> Result<Outcome, Failure> {
        if args.command.trim().is_empty() {
            return Ok(Outcome::failed("`command` is empty"));
        }
        let timeout_ms = args.timeout_ms.unwrap_or(self.timeout_ms).min(MAX_TIMEOUT_MS);
        let exit = process::run(&process::Command {
            program: self.program.clone(),
            args: vec!["-c".to_owned(), args.command],
            cwd: None,
            env: Vec::new(),
            stdin: None,
            timeout_ms: Some(timeout_ms),
        })?;
        Ok(report(&exit, timeout_ms))
    }
}

dsh_sdk::ceiling!("process": "to run the shell", "env": "to hand variables on to the command");
dsh_sdk::export!(Shell: tools, configure);
