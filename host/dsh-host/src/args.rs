//! The arguments, as typed. Nothing here touches a file, the environment or a stream: what they mean is found in [`crate::resolve`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use dsh_seam::StepRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::{MaxCost, MaxTime};

/// What the command line asks for.
#[derive(Debug)]
pub enum Request {
    /// Run an agent.
    Run(Box<Run>),
    /// One of the other commands.
    Command(Command),
}

const COMMANDS_HELP: &str = "\
Commands (as the first argument):
  tool list, tool call NAME JSON    Call one tool under the whole policy, without a model
  plugin check FILE, inspect FILE   Whether a component fits; what it can do and ask for
  plugin lock                       Write down which plugins may run, and what each may do, for `--locked`
  plugin compile FILE...            Compile ahead of time, for a pipeline or an image
  cache, cache list, clean, dir     The machine code that is kept, and cleaning it away
  session list, show ID, export ID  The sessions that were kept, one as a conversation, as events
  session requests ID               What the model was sent, rebuilt from the log
  session usage ID                  The tokens and the money of a session, by step and turn
  session cache ID                  Where the prefix of a prompt cache broke, and who broke it
  config check, schema, trust       Validate, describe and trust a `dsh.toml`
  models [PROVIDER] [--ask]         Which providers are usable, their models, windows and prices
  doctor                            What this machine can enforce and which models are usable
  completions SHELL                 Shell completions

`dsh-host COMMAND --help` says more. A prompt that is a command's name stands behind `--`.";

/// Runs an agent: a fixed loop whose tools and policies are sandboxed WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(name = "dsh-host", version, after_help = COMMANDS_HELP)]
pub struct Run {
    /// What the run has in common with `tool call`.
    #[command(flatten)]
    pub options: Options,
    /// What only a conversation has.
    #[command(flatten)]
    pub conversation: Conversation,
    /// A message; `-` is the whole of standard input. Without one: the whole of standard input, or a chat in a terminal
    #[arg(value_name = "PROMPT")]
    pub prompts: Vec<String>,
    /// What a first prompt looks like that was perhaps meant as a command.
    #[arg(skip)]
    pub mistaken: Option<Mistaken>,
}

/// A prompt that was perhaps meant as a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistaken {
    /// A command's name, but not the first argument.
    Misplaced(String),
    /// Almost the name of this command.
    Misspelt(String, String),
}

/// A shorter word is near to anything.
const MIN_MISSPELT: usize = 5;
/// Letters that are wrong, missing, too many or swapped.
const MAX_SLIPS: usize = 2;

impl Mistaken {
    fn find(prompt: &str, is_first: bool) -> Option<Self> {
        if is_command(prompt) {
            return Some(Self::Misplaced(prompt.to_owned()));
        }
        if !is_first || prompt.len() < MIN_MISSPELT || !prompt.chars().all(|c| c.is_ascii_alphabetic()) {
            return None;
        }
        let near = |name: &&str| strsim::damerau_levenshtein(prompt, name) <= MAX_SLIPS;
        let name = WithCommand::command().get_subcommands().map(clap::Command::get_name).find(near)?.to_owned();
        Some(Self::Misspelt(prompt.to_owned(), name))
    }
}

/// The command line when its first argument is a command's name.
#[derive(Debug, Parser)]
#[command(name = "dsh-host", version)]
struct WithCommand {
    #[command(subcommand)]
    command: Command,
}

/// The other commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Call one tool under the whole policy, without a model
    #[command(subcommand)]
    Tool(ToolCommand),
    /// Look at a plugin
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Look at the machine code of plugins that is kept, and clean it away; without a command: where it is and how much
    Cache {
        #[command(subcommand)]
        command: Option<CacheCommand>,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Look at what was kept
    #[command(subcommand)]
    Session(SessionCommand),
    /// Look at a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List the providers of models: which are usable, what is missing, and what is known of their models
    Models(ModelsCommand),
    /// Say what this machine can enforce and which models are usable
    Doctor {
        /// A `dsh.toml`
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// `models`.
#[derive(Debug, Args)]
pub struct ModelsCommand {
    /// Only this provider; one that is unknown or not usable is exit 2
    pub provider: Option<String>,
    /// Ask the usable ones for their own lists of models, with the key; one that fails is exit 3
    #[arg(long)]
    pub ask: bool,
    /// The address of PROVIDER, else of `compatible` [default: the provider's own]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// A `dsh.toml`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Shape::Text)]
    pub output: Shape,
}

/// The commands about tools.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// List the tools that the model would be offered
    List {
        /// As for a run.
        #[command(flatten)]
        options: Box<Options>,
    },
    /// Make one call, through every policy that a run would have
    Call {
        /// As for a run.
        #[command(flatten)]
        options: Box<Options>,
        /// The tool's name
        name: String,
        /// Its arguments, a JSON object
        #[arg(value_name = "JSON", allow_hyphen_values = true)]
        arguments: String,
    },
}

/// The commands about plugins.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Say whether components fit this host, and else what to change, without compiling or running any of them
    Check {
        /// A component, or the name of a shipped plugin
        #[arg(value_name = "FILE", required = true)]
        files: Vec<String>,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Write `dsh.lock`: the plugins that a run with these options loads, each with its hash and what it may do
    Lock {
        /// As for a run.
        #[command(flatten)]
        options: Box<Options>,
    },
    /// Say what a component is: hooks, capabilities, tools, configuration, size and hash
    Inspect {
        /// A component, or the name of a shipped plugin
        file: String,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
        /// What compiling it may use.
        #[command(flatten)]
        compiling: CompileArgs,
    },
    /// Compile components ahead of time, into the cache or into a folder that will be one
    Compile(CompileCommand),
}

/// `plugin compile`.
#[derive(Debug, Args)]
pub struct CompileCommand {
    /// Components, or names of shipped plugins
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// A folder to be somebody's cache, readable by everybody [default: the user's own cache]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// For which processors
    #[arg(long, value_enum, default_value_t = CompileTarget::Native)]
    pub target: CompileTarget,
    /// How to print what was done
    #[arg(long, value_enum, default_value_t = Shape::Text)]
    pub output: Shape,
    /// What compiling may use.
    #[command(flatten)]
    pub compiling: CompileArgs,
    /// Only errors on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

/// For which processors code is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompileTarget {
    /// This machine's, with all that it can do
    Native,
    /// Any of this architecture; slower where the code computes with vectors
    Baseline,
}

/// What compiling plugins may use, and how much of it is kept.
#[derive(Debug, Clone, Default, Args)]
pub struct CompileArgs {
    /// Processor time for compiling one plugin, in milliseconds [default: 20000, and 6000 for each MiB of it]
    #[arg(long, value_name = "N", help_heading = "Plugins", value_parser = clap::value_parser!(u32).range(1..))]
    pub compile_ms: Option<u32>,
    /// Memory for compiling one plugin, in MiB [default: 2048]
    #[arg(long, value_name = "N", help_heading = "Plugins", value_parser = clap::value_parser!(u32).range(1..))]
    pub compile_memory_mib: Option<u32>,
    /// How large the cache of compiled plugins may become, in MiB; 0 is no limit [default: 1024]
    #[arg(long, value_name = "N", help_heading = "Plugins")]
    pub cache_max_mib: Option<u32>,
}

/// The commands about the cache of compiled plugins.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List what is kept, what was used last first
    List {
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Remove what is kept: all of it, or what all given conditions hold for
    Clean {
        /// Only what was not used for so many days
        #[arg(long, value_name = "DAYS")]
        older_than: Option<u32>,
        /// Only what this version of the host would not use on this machine
        #[arg(long)]
        unused_engine: bool,
        /// How to print what was done
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Print the directory
    Dir,
}

/// Where sessions are looked for.
#[derive(Debug, Args)]
pub struct SessionPlace {
    /// Where session logs live
    #[arg(long, value_name = "DIR")]
    pub session: Option<PathBuf>,
    /// A `dsh.toml`
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The commands about sessions.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the sessions, the newest first
    List {
        /// Where they are.
        #[command(flatten)]
        place: SessionPlace,
        /// How to print them
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Print a session as a conversation
    Show {
        /// Which session
        id: String,
        /// Where it is.
        #[command(flatten)]
        place: SessionPlace,
        /// Read on after bad lines, and report them
        #[arg(long)]
        salvage: bool,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Print a session's log: its header and its events, one JSON object a line
    Export {
        /// Which session
        id: String,
        /// Where it is.
        #[command(flatten)]
        place: SessionPlace,
        /// Read on after bad lines, and report them
        #[arg(long)]
        salvage: bool,
    },
    /// Print the tokens and the money of a session, by step and turn, those of plugins and sub-agents apart
    Usage {
        /// Which session
        id: String,
        /// Where it is.
        #[command(flatten)]
        place: SessionPlace,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Print of each request how much of it a prompt cache can have from the one before, where that ends and who ended it
    Cache {
        /// Which session
        id: String,
        /// Where it is.
        #[command(flatten)]
        place: SessionPlace,
        /// How to print it
        #[arg(long, value_enum, default_value_t = Shape::Text)]
        output: Shape,
    },
    /// Print the requests that the model was sent, rebuilt from the log: each is the line that `--log-requests` wrote
    Requests {
        /// Which session
        id: String,
        /// Where it is.
        #[command(flatten)]
        place: SessionPlace,
        /// Which of them.
        #[command(flatten)]
        which: WhichRequests,
    },
}

/// Which requests of a session; without any of these, all.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct WhichRequests {
    /// Only those of this turn
    #[arg(long, value_name = "N")]
    pub turn: Option<u32>,
    /// Only those of this step
    #[arg(long, value_name = "N")]
    pub step: Option<u32>,
    /// Only those of this attempt: 1, and more after a retry
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
}

impl WhichRequests {
    /// Whether a request at this place is one of them.
    pub fn takes(&self, at: StepRef, attempt: u32) -> bool {
        let is = |wanted: Option<u32>, number: u32| wanted.is_none_or(|wanted| wanted == number);
        is(self.turn, at.turn) && is(self.step, at.step) && is(self.attempt, attempt)
    }

    /// Whether all were asked for.
    pub fn is_all(&self) -> bool {
        (self.turn, self.step, self.attempt) == (None, None, None)
    }
}

/// The commands about configurations.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Validate a configuration
    Check {
        /// Which file [default: `dsh.toml` in the working directory]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// The same as FILE
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
        /// Fail when the lock file does not have what the plugins are and ask for
        #[arg(long)]
        locked: bool,
        /// The lock file [default: `dsh.lock` beside the configuration]
        #[arg(long, value_name = "FILE")]
        lock_file: Option<PathBuf>,
    },
    /// Print the JSON Schema of `dsh.toml`
    Schema,
    /// Trust a configuration as it is now, with the plugins that it names
    Trust {
        /// Which file [default: `dsh.toml` in the working directory]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// The same as FILE
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
    },
}

/// How a command that looks at something prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// For a person
    Text,
    /// One JSON value
    Json,
}

/// What an `ask` becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Approve {
    /// Ask whoever is there; headless, deny at once
    Ask,
    /// Allow
    Allow,
    /// Deny
    Deny,
}

/// What goes to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// The assistant's text
    Text,
    /// One object at the end
    Json,
    /// One event a line
    Jsonl,
}

/// What standard input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Input {
    /// One message
    Text,
    /// One command a line
    Jsonl,
}

/// When the log is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// At the end of a turn
    Turn,
    /// Also before each tool that is not read-only
    Tool,
}

/// The options that a run and `tool call` share.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Add a plugin: a path to a component, or the name of a shipped one; the first is the outermost
    #[arg(long = "plugin", value_name = "[NAME=]REF", help_heading = "Plugins")]
    pub plugins: Vec<String>,
    /// A plugin's configuration, whole; `NAME=@FILE` reads it
    #[arg(long = "plugin-config", value_name = "NAME=JSON", help_heading = "Plugins")]
    pub plugin_configs: Vec<String>,
    /// Grant a capability: llm, session, inbox, agents, approval, process, fs:read:PATH, fs:write:PATH, net:HOST[:PORT], env:NAME
    #[arg(long = "grant", value_name = "NAME=CAPABILITY", help_heading = "Plugins")]
    pub grants: Vec<String>,
    /// A limit of a plugin, by its key in `dsh.toml`: memory-mib, stack-kib, cpu-ms, wall-ms, tool-wall-ms, output-mib, requests, …
    #[arg(long = "limit", value_name = "NAME=KEY=VALUE", help_heading = "Plugins")]
    pub limits: Vec<String>,
    /// What a failing listener of that plugin does to the run: `closed` ends the turn, `open` goes on without it
    #[arg(long = "on-failure", value_name = "NAME=closed|open", help_heading = "Plugins")]
    pub on_failure: Vec<String>,
    /// Without the plugins that the host adds by itself: `retry`, for models behind a network
    #[arg(long, help_heading = "Plugins")]
    pub no_default_plugins: bool,
    /// What compiling plugins may use.
    #[command(flatten)]
    pub compiling: CompileArgs,

    /// Run nothing that the lock file does not have: exit 2 for a plugin that is not in it, has changed, or asks for more
    #[arg(long, help_heading = "Plugins")]
    pub locked: bool,
    /// The lock file [default: `dsh.lock` beside the `dsh.toml` in force, else in the working directory]
    #[arg(long, value_name = "FILE", help_heading = "Plugins")]
    pub lock_file: Option<PathBuf>,

    /// A `dsh.toml`; options win over it [default: `dsh.toml` in the working directory, if there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which agent gets the prompts [default: `main`, else the only one]
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// `echo`, `script:FILE[#LINE]`, `openai/…`, `anthropic/…`, `deepseek/…`, `compatible/…`, or a model of a configured provider [default: `echo`]
    #[arg(long, value_name = "PROVIDER/MODEL")]
    pub model: Option<String>,
    /// The address of the model's provider [default: the provider's own]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The folder that paths in grants, profiles and tools are relative to [default: the working directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// What `ask` becomes [default: ask]
    #[arg(long, value_enum)]
    pub approve: Option<Approve>,
    /// Any denial, and any failure of an observer or of an `open` plugin, decides the exit code
    #[arg(long)]
    pub strict: bool,
    /// What goes to standard output [default: text]
    #[arg(long, value_enum)]
    pub output: Option<Output>,

    /// Where session logs live [default: `sessions` in the data directory]
    #[arg(long, value_name = "DIR", help_heading = "Sessions")]
    pub session: Option<PathBuf>,
    /// Go on with a session; `dsh-host session list` has the ids
    #[arg(long, value_name = "ID", help_heading = "Sessions", conflicts_with_all = ["continue", "fork"])]
    pub resume: Option<String>,
    /// Go on with the newest session of this agent and workspace
    #[arg(long = "continue", id = "continue", help_heading = "Sessions", conflicts_with = "fork")]
    pub go_on: bool,
    /// Go on with a copy of a session, up to the event SEQ [default: up to the last `turn/end`]
    #[arg(long, value_name = "ID[@SEQ]", help_heading = "Sessions")]
    pub fork: Option<String>,
    /// Keep the session, or what is new of it, in memory
    #[arg(long, help_heading = "Sessions")]
    pub no_save: bool,
    /// When the log is made durable [default: turn]
    #[arg(long, value_enum, help_heading = "Sessions")]
    pub durability: Option<Durability>,

    /// Write the model's answers as a script file
    #[arg(long, value_name = "FILE", help_heading = "Diagnostics")]
    pub record: Option<PathBuf>,
    /// Write every model request, one JSON object a line
    #[arg(long, value_name = "FILE", help_heading = "Diagnostics")]
    pub log_requests: Option<PathBuf>,
    /// Write what each call of a plugin cost and came to, one JSON object a line
    #[arg(long, value_name = "FILE", help_heading = "Diagnostics")]
    pub receipts: Option<PathBuf>,
    /// Write a timeline of the run with every call of a plugin, for Perfetto or `chrome://tracing`
    #[arg(long, value_name = "FILE", help_heading = "Diagnostics")]
    pub trace_plugins: Option<PathBuf>,
    /// More diagnostics on standard error; `DSH_LOG` takes filters
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = "Diagnostics")]
    pub verbose: u8,
    /// Only errors on standard error
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Diagnostics")]
    pub quiet: bool,
}

/// The options that only a conversation has.
#[derive(Debug, Clone, Default, Args)]
pub struct Conversation {
    /// The agent's own suffix to the system prompt; `@FILE` reads it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// How the agent's model is to answer: temperature, maxTokens, stop, toolChoice, reasoningEffort, extra; `@FILE` reads it
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub sampling: Option<String>,
    /// Steps of a turn; 0 is no limit [default: 200]
    #[arg(long, value_name = "N")]
    pub max_steps: Option<u32>,
    /// Turns that only plugins started; 0 is no limit [default: 100]
    #[arg(long, value_name = "N")]
    pub max_turns: Option<u32>,
    /// Sub-agents that one turn may make, those of its sub-agents included; 0 is no limit [default: 16]
    #[arg(long, value_name = "N")]
    pub max_sub_agents: Option<u32>,
    /// What the run may cost, in the currency of the price table; 0 is no limit [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_cost: Option<MaxCost>,
    /// Tokens that the run may use, of every kind together; 0 is no limit [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_total_tokens: Option<u64>,
    /// How long the run may take from its first turn on, in seconds, or as in `5m`; 0 is no limit [default: 0]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub max_time: Option<MaxTime>,
    /// Take a plugin whose file changes into use at the next turn; one that cannot be loaded changes nothing
    #[arg(long)]
    pub watch: bool,
    /// With `--output text`: print each message as a whole, once it is logged
    #[arg(long)]
    pub no_stream: bool,
    /// What standard input is [default: text]
    #[arg(long, value_enum)]
    pub input: Option<Input>,
}

/// Reads the arguments, the program's name first.
///
/// # Errors
/// What clap says to the person, help and version included.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Request, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_first = arguments.get(1).and_then(|first| first.to_str()).is_some_and(is_command);
    if is_first {
        return parse_command(arguments).map(Request::Command);
    }
    let meant = arguments.iter().any(|argument| argument == "--");
    let first = arguments.get(1).cloned();
    let mut run = Run::try_parse_from(arguments)?;
    let prompt = run.prompts.first().filter(|_| !meant);
    run.mistaken = prompt.and_then(|prompt| Mistaken::find(prompt, first.as_deref() == Some(prompt.as_ref())));
    Ok(Request::Run(Box::new(run)))
}

/// Options may stand anywhere behind the first word, also before the second: `tool --plugin echo list`.
fn parse_command(arguments: Vec<OsString>) -> Result<Command, clap::Error> {
    let parsed = WithCommand::try_parse_from(&arguments).map(|parsed| parsed.command);
    let starts_with_option = arguments.get(2).is_some_and(|word| word.to_string_lossy().starts_with("--"));
    if parsed.is_ok() || !starts_with_option {
        return parsed;
    }
    let mut candidates = (3..arguments.len()).filter_map(|at| {
        let mut moved = arguments.clone();
        let word = moved.remove(at);
        moved.insert(2, word);
        WithCommand::try_parse_from(moved).ok()
    });
    candidates.next().map_or(parsed, |found| Ok(found.command))
}

/// Whether `word` is the name of a command.
pub fn is_command(word: &str) -> bool {
    WithCommand::command().get_subcommands().any(|command| command.get_name() == word)
}

/// The whole command line, for completions.
pub fn whole() -> clap::Command {
    let commands = WithCommand::command();
    Run::command().subcommands(commands.get_subcommands().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, clap::Error> {
        parse(["dsh-host"].into_iter().chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn the_definitions_are_sound() {
        WithCommand::command().debug_assert();
        Run::command().debug_assert();
        whole().debug_assert();
    }

    #[test]
    fn a_first_argument_that_is_a_command_is_that_command() {
        let check = |line: &str, prompts: Option<&[&str]>| match parsed(line).expect(line) {
            Request::Run(run) => assert_eq!(
                Some(run.prompts.iter().map(String::as_str).collect::<Vec<_>>()),
                prompts.map(<[_]>::to_vec),
                "{line}"
            ),
            Request::Command(_) => assert_eq!(prompts, None, "{line}"),
        };
        check("doctor", None);
        check("-- doctor", Some(&["doctor"]));
        check("--model echo -- doctor", Some(&["doctor"]));
        check("--model echo doctor", Some(&["doctor"]));
        check("hello doctor", Some(&["hello", "doctor"]));
        check("a --model echo b - --strict", Some(&["a", "b", "-"]));
        check("tool list --plugin echo", None);
        check("tool call --plugin echo echo {} --output json --grant echo=llm", None);
        check("tool --plugin call call echo {}", None);
        check("", Some(&[]));
    }

    #[test]
    fn a_prompt_that_was_perhaps_meant_as_a_command_is_noticed() {
        let check = |line: &str, expect: Option<Mistaken>| match parsed(line).expect(line) {
            Request::Run(run) => assert_eq!(run.mistaken, expect, "{line}"),
            Request::Command(_) => panic!("{line} is a command"),
        };
        let misspelt = |word: &str, name: &str| Some(Mistaken::Misspelt(word.into(), name.into()));
        check("doctr", misspelt("doctr", "doctor"));
        check("sesion list", misspelt("sesion", "session"));
        check("plguin --model echo", misspelt("plguin", "plugin"));
        check("--model echo doctor", Some(Mistaken::Misplaced("doctor".into())));
        check("--model echo doctr", None);
        check("-- doctr", None);
        check("toll", None);
        check("hello", None);
        check("conversation", None);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        let check = |line: &str| assert_eq!(parsed(line).expect_err(line).exit_code(), 2, "{line}");
        check("--modle x hi");
        check("--approve maybe hi");
        check("--max-steps -1 hi");
        check("--resume a --continue");
        check("tool call echo");
        check("tool frobnicate");
        check("session show");
    }
}
