//! `dsh.toml`: its keys, and where in the text a mistake is.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::limits::LimitsEntry;
use super::providers::ProviderEntry;
use super::sampling::SamplingEntry;
use crate::args::{Approve, Durability, Input, Output};
use crate::budget::{MaxCost, MaxTime};
use crate::exit::Stop;
use crate::names;

/// The keys of `dsh.toml`. Options of the command line win over them; paths are relative to the file's folder.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "dsh.toml")]
pub struct ConfigFile {
    /// The root of grants, profiles and tools' paths. Default: the working directory.
    pub workspace: Option<PathBuf>,
    /// Which agent gets the prompts. Default: `main`, else the only one.
    #[schemars(with = "Option<String>")]
    pub agent: Option<Spanned<String>>,
    /// The model of agents that name none: `echo`, `script:FILE[#LINE]` or `PROVIDER/MODEL`.
    #[schemars(with = "Option<String>")]
    pub model: Option<Spanned<String>>,
    /// Where the model's provider is.
    pub base_url: Option<String>,
    /// How models are to answer.
    #[schemars(with = "Option<SamplingEntry>")]
    pub sampling: Option<Spanned<SamplingEntry>>,
    /// The agent's own suffix to the system prompt; `@FILE` reads it.
    pub system: Option<String>,
    /// Steps of a turn; 0 is no limit. Default: 200.
    pub max_steps: Option<u32>,
    /// Turns that only plugins started; 0 is no limit. Default: 100.
    pub max_turns: Option<u32>,
    /// Sub-agents that one turn may make, those of its sub-agents included; 0 is no limit. Default: 16.
    pub max_sub_agents: Option<u32>,
    /// What a run may cost, in the currency of the price table; 0 is no limit. Default: 0.
    pub max_cost: Option<MaxCost>,
    /// Tokens that a run may use, of every kind together; 0 is no limit. Default: 0.
    pub max_total_tokens: Option<u64>,
    /// How long a run may take from its first turn on: seconds, or a text like `5m`; 0 is no limit. Default: 0.
    pub max_time: Option<MaxTime>,
    /// Take a plugin whose file changes into use at the next turn.
    pub watch: Option<bool>,
    /// What `ask` becomes. Default: `ask`.
    pub approve: Option<Approve>,
    /// Any denial, and any failure of an observer or of an `open` plugin, decides the exit code.
    pub strict: Option<bool>,
    /// Where session logs live. Default: `sessions` in the data directory.
    pub session: Option<PathBuf>,
    /// Go on with a session.
    pub resume: Option<String>,
    /// Go on with the newest session of this agent and workspace.
    #[serde(rename = "continue")]
    pub go_on: Option<bool>,
    /// Go on with a copy of a session: `ID` or `ID@SEQ`.
    pub fork: Option<String>,
    /// Keep the session in memory.
    pub no_save: Option<bool>,
    /// When the log is made durable. Default: `turn`.
    pub durability: Option<Durability>,
    /// What goes to standard output. Default: `text`.
    pub output: Option<Output>,
    /// `text` prints each message once it is logged.
    pub no_stream: Option<bool>,
    /// What standard input is. Default: `text`.
    pub input: Option<Input>,
    /// Write the model's answers as a script file.
    pub record: Option<PathBuf>,
    /// Write every model request, one JSON object a line.
    pub log_requests: Option<PathBuf>,
    /// Write what each call of a plugin cost and came to, one JSON object a line.
    pub receipts: Option<PathBuf>,
    /// Write a timeline of the run with every call of a plugin, in Chrome's trace event format.
    pub trace_plugins: Option<PathBuf>,
    /// Without the plugins that the host adds by itself.
    pub no_default_plugins: Option<bool>,
    /// Processor time for compiling one plugin, in milliseconds. Default: 20,000, and 6,000 for each MiB of it.
    pub compile_ms: Option<NonZero<u32>>,
    /// Memory for compiling one plugin, in MiB. Default: 2,048.
    pub compile_memory_mib: Option<NonZero<u32>>,
    /// How large the cache of compiled plugins may become, in MiB; 0 is no limit. Default: 1,024.
    pub cache_max_mib: Option<u32>,
    /// Run nothing that the lock file does not have.
    pub locked: Option<bool>,
    /// The lock file. Default: `dsh.lock` beside this file.
    pub lock_file: Option<PathBuf>,
    /// The agents; every one is created at startup. Default: one, `main`.
    #[serde(default)]
    pub agents: Vec<AgentEntry>,
    /// The plugins, the first outermost.
    #[serde(default)]
    pub plugins: Vec<PluginEntry>,
    /// Providers of models, by the name that stands before the `/` of a model.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, ProviderEntry>")]
    pub providers: BTreeMap<Spanned<String>, ProviderEntry>,
}

/// An agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AgentEntry {
    /// Its id.
    #[schemars(with = "String")]
    pub id: Spanned<String>,
    /// Its model.
    #[schemars(with = "Option<String>")]
    pub model: Option<Spanned<String>>,
    /// How its model is to answer; what it says wins over `sampling` of the whole file.
    #[schemars(with = "Option<SamplingEntry>")]
    pub sampling: Option<Spanned<SamplingEntry>>,
    /// Its own suffix to the system prompt.
    pub system_prompt: Option<String>,
    /// Whether all queued messages become one turn, or each one of its own. Default: `all`.
    pub queue_mode: Option<QueueMode>,
}

/// How an agent's queue is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QueueMode {
    /// All that is there.
    All,
    /// One message.
    One,
}

/// A plugin.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PluginEntry {
    /// Its name. Default: the file's stem.
    #[schemars(with = "Option<String>")]
    pub name: Option<Spanned<String>>,
    /// A path to a component, or the name of a shipped plugin.
    #[schemars(with = "String")]
    pub source: Spanned<String>,
    /// Its configuration.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub config: Option<Spanned<toml::Value>>,
    /// The capabilities that it is granted.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub grants: Vec<Spanned<String>>,
    /// The seams that it takes part in. Default: all that it exports.
    #[schemars(with = "Option<Vec<String>>")]
    pub seams: Option<Vec<Spanned<String>>>,
    /// What a failing listener of it does to the run. Default: `closed`.
    pub on_failure: Option<OnFailure>,
    /// Its limits: each for one call, except where it says something else.
    #[serde(default)]
    pub limits: LimitsEntry,
}

/// What a failing listener of a plugin does to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnFailure {
    /// It ends the turn.
    Closed,
    /// The run goes on without it.
    Open,
}

/// A configuration with its text, so that every message can say where.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Where the file is, absolute.
    pub path: PathBuf,
    /// As a person calls it.
    pub shown: String,
    /// Its text.
    pub text: String,
    /// What it says.
    pub file: ConfigFile,
    /// The SHA-256 that each of its plugins is trusted with; none of a file that was named.
    pub pinned: Vec<String>,
}

impl Loaded {
    /// Reads and parses a file. `shown` is how messages call it.
    pub fn read(path: &Path, shown: String) -> Result<Self, Stop> {
        let text = std::fs::read_to_string(path).map_err(|error| Stop::io(Path::new(&shown), &error))?;
        Self::parse(path, shown, text)
    }

    fn parse(path: &Path, shown: String, text: String) -> Result<Self, Stop> {
        match toml::from_str(&text) {
            Ok(file) => Ok(Self { path: path.to_owned(), shown, text, file, pinned: Vec::new() }),
            Err(error) => Err(describe(&shown, &text, &error)),
        }
    }

    /// The folder that its paths are relative to.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// A path as it stands in the file.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        self.folder().join(path).components().collect()
    }

    /// A usage error at a place of the file.
    pub fn stop_at(&self, span: Range<usize>, message: impl std::fmt::Display) -> Stop {
        Stop::usage(format!("{}: {message}", place(&self.shown, &self.text, span.start)))
    }
}

/// `FILE:LINE:COLUMN`, both from 1, the column in characters.
pub fn place(shown: &str, text: &str, offset: usize) -> String {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{shown}:{line}:{column}")
}

/// Puts what the parser found into a person's words, with the nearest right name.
pub fn describe(shown: &str, text: &str, error: &toml::de::Error) -> Stop {
    let message = error.message().trim_end();
    let at = error.span().map_or_else(|| shown.to_owned(), |span| place(shown, text, span.start));
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    if message.starts_with("unknown field") {
        return Stop::usage(format!("{at}: unknown key `{wrong}`")).hint(names::hint(wrong, known));
    }
    if message.starts_with("unknown variant") {
        return Stop::usage(format!("{at}: unknown value `{wrong}`")).hint(names::hint(wrong, known));
    }
    if let Some(missing) = message.strip_prefix("missing field ") {
        return Stop::usage(format!("{at}: the key {missing} is missing"));
    }
    Stop::usage(format!("{at}: {}", message.replace('\n', ", ")))
}

/// The JSON Schema of `dsh.toml`.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(ConfigFile).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        match Loaded::parse(Path::new("/w/dsh.toml"), "dsh.toml".into(), text.to_owned()) {
            Ok(_) => assert_eq!("", expect, "{text}"),
            Err(stop) => assert_eq!(stop.to_string(), expect, "{text}"),
        }
    }

    #[test]
    fn mistakes_have_a_place_and_the_nearest_right_name() {
        check("max-steps = 3", "");
        check("max-step = 3", "error: dsh.toml:1:1: unknown key `max-step`\nhint: did you mean `max-steps`?");
        check(
            "\n[[agents]]\nid = \"a\"\nmodle = \"echo\"",
            "error: dsh.toml:4:1: unknown key `modle`\nhint: did you mean `model`?",
        );
        check(
            "[[plugins]]\nsource = \"a.wasm\"\nlimits = { memroy-mib = 1 }",
            "error: dsh.toml:3:12: unknown key `memroy-mib`\nhint: did you mean `memory-mib`?",
        );
        check("[[agents]]\nmodel = \"echo\"", "error: dsh.toml:1:1: the key `id` is missing");
        check("approve = \"alow\"", "error: dsh.toml:1:11: unknown value `alow`\nhint: did you mean `allow`?");
        check("max-steps = -1", "error: dsh.toml:1:13: invalid value: integer `-1`, expected u32");
    }

    #[test]
    fn the_documented_example_parses() {
        check(
            r#"
            workspace = "."
            [[agents]]
            id = "main"
            model = "deepseek/deepseek-chat"
            system-prompt = "…"
            queue-mode = "all"
            [[plugins]]
            name = "permission"
            source = "plugins/permission.wasm"
            config = { rules = [] }
            grants = ["llm", "fs:read:.", "fs:write:target", "net:api.example.com", "env:TERM", "process", "approval"]
            seams = ["tools/execute", "tools/guard"]
            on-failure = "closed"
            limits = { memory-mib = 64, cpu-ms = 500, wall-ms = 30000, tool-cpu-ms = 60000, tool-wall-ms = 600000, output-mib = 16, state-mib = 16 }
            [providers.local]
            kind = "compatible"
            base-url = "http://127.0.0.1:8080/v1"
            api-key-env = "LOCAL_KEY"
            connect-timeout-ms = 10000
            first-byte-timeout-ms = 120000
            idle-timeout-ms = 60000
            total-timeout-ms = 3600000
            "#,
            "",
        );
    }

    #[test]
    fn the_schema_names_every_key() {
        let schema = schema();
        let keys = schema["properties"].as_object().expect("properties");
        for key in ["max-steps", "continue", "agents", "plugins", "providers", "no-default-plugins"] {
            assert!(keys.contains_key(key), "{key}");
        }
        assert_eq!(schema["additionalProperties"], false);
    }
}
