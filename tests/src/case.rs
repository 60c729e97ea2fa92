//! `case.toml`: what a data case does. The README of `tests/cases` describes it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// One data case.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Case {
    /// What it shows, in one sentence.
    pub about: String,
    /// The first invocation.
    #[serde(flatten)]
    pub first: Invocation,
    /// Further invocations in the same workspace, with the same sessions.
    #[serde(default)]
    pub then: Vec<Invocation>,
    /// Files to write before, by path; relative ones are below the workspace.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Symbolic links to make before: where, and to what.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Print descriptions and schemas of tools in `request/sent`.
    #[serde(default)]
    pub whole_frame: bool,
    /// Print the events agent by agent: which of several goes first is left to chance.
    #[serde(default)]
    pub by_agent: bool,
    /// Logs by file name that the case breaks on purpose, so that their shape is not checked.
    #[serde(default)]
    pub broken_logs: Vec<String>,
    /// Patterns (regular expressions) of texts that differ from run to run, and what to print instead.
    #[serde(default)]
    pub replace: Vec<(String, String)>,
}

/// One run of the program.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Invocation {
    /// The arguments, with placeholders.
    pub args: Vec<String>,
    /// What standard input holds; none: it is empty.
    pub stdin: Option<String>,
    /// The exit status it must have.
    pub exit: i32,
    /// Further variables of the environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files to print after the run.
    #[serde(default)]
    pub show_files: Vec<String>,
    /// A signal to send in mid-run.
    pub signal: Option<Signal>,
}

/// A signal, and the event of `--output jsonl` after which it is sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Signal {
    /// `INT`, `TERM`, `HUP` or `KILL`.
    pub name: String,
    /// The type of the event that must have been printed.
    pub after: String,
}

impl Case {
    /// Reads `case.toml` in `dir`.
    pub fn read(dir: &Path) -> Result<Case, String> {
        let path = dir.join("case.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Case, String> {
        // A flattened part and `deny_unknown_fields` exclude each other, so unknown keys are looked for here.
        let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let then =
            table.get("then").and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_table);
        let unknown =
            table.keys().filter(|key| !CASE_KEYS.contains(&key.as_str()) && !RUN_KEYS.contains(&key.as_str()));
        let unknown = unknown.chain(then.flat_map(toml::Table::keys).filter(|key| !RUN_KEYS.contains(&key.as_str())));
        match unknown.into_iter().next() {
            Some(key) => Err(format!("unknown key `{key}`")),
            None => toml::from_str(text).map_err(|error| error.to_string()),
        }
    }

    /// All invocations in order.
    pub fn invocations(&self) -> impl Iterator<Item = &Invocation> {
        std::iter::once(&self.first).chain(&self.then)
    }
}

/// Keys of a case that are not those of an invocation.
const CASE_KEYS: &[&str] = &["about", "then", "files", "links", "whole-frame", "by-agent", "broken-logs", "replace"];
/// Keys of an invocation.
const RUN_KEYS: &[&str] = &["args", "stdin", "exit", "env", "show-files", "signal"];

/// Commands of the program; any other first argument runs an agent.
const COMMANDS: &[&str] = &[
    "tool",
    "plugin",
    "session",
    "cache",
    "config",
    "doctor",
    "models",
    "completions",
    "help",
    "--help",
    "-h",
    "--version",
    "-V",
];

impl Invocation {
    /// Whether it runs an agent, rather than one of the other commands.
    pub fn runs_agent(&self) -> bool {
        self.args.first().is_none_or(|first| !COMMANDS.contains(&first.as_str()))
    }

    /// The value of an option, in either spelling.
    pub fn option(&self, name: &str) -> Option<&str> {
        let at = self
            .args
            .iter()
            .position(|arg| arg == name || arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))?;
        match self.args[at].split_once('=') {
            Some((_, value)) => Some(value),
            None => self.args.get(at + 1).map(String::as_str),
        }
    }

    /// Whether standard output holds events.
    pub fn prints_events(&self) -> bool {
        self.option("--output") == Some("jsonl")
    }

    /// Whether the process is killed without a chance to close anything.
    pub fn is_killed(&self) -> bool {
        self.signal.as_ref().is_some_and(|signal| signal.name == "KILL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_refused() {
        let check = |text: &str, expect: Result<usize, &str>| {
            let got = Case::parse(&format!("about = \"x\"\nargs = [\"hi\"]\nexit = 0\n{text}"));
            assert_eq!(got.map(|case| case.invocations().count()), expect.map_err(str::to_owned));
        };
        check("", Ok(1));
        check("[[then]]\nargs = []\nexit = 2\n", Ok(2));
        check("exits = 1", Err("unknown key `exits`"));
        check("[[then]]\nargs = []\nexit = 2\nfiles = {}\n", Err("unknown key `files`"));
    }

    #[test]
    fn options_are_found_in_both_spellings() {
        let run = |args: &[&str]| Invocation {
            args: args.iter().map(ToString::to_string).collect(),
            ..Invocation::default()
        };
        assert_eq!(run(&["--output", "jsonl", "hi"]).option("--output"), Some("jsonl"));
        assert_eq!(run(&["--output=jsonl", "hi"]).option("--output"), Some("jsonl"));
        assert_eq!(run(&["hi"]).option("--output"), None);
        assert!(run(&["hi"]).runs_agent());
        assert!(!run(&["session", "list"]).runs_agent());
    }
}
