//! What the arguments, the configuration and the environment mean together: one [`Plan`] that can be acted on.
//!
//! Every usage error is found here, before anything is made. Files are looked at (a configuration, a plugin's path), never written.

mod agents;
mod compiling;
mod limits;
mod locking;
mod plugins;
pub mod providers;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use dsh_loop::SessionChoice;
use dsh_seam::message::Sampling;
use dsh_seam::{AgentId, FailureMode, PluginName, Seam, SessionId};
use dsh_services::budget::BudgetLimits;
use dsh_services::llm::ProviderConfig;
use dsh_wasm::{Grant, Limits};

pub use compiling::Compiling;

use crate::args::{Approve, Conversation, Durability, Input, Mistaken, Options, Output, Run};
use crate::budget;
use crate::config::{self, Loaded};
use crate::env::Environment;
use crate::exit::Stop;
use crate::lock::LockPlan;
use crate::providers::ModelRef;

/// Everything about a run, decided.
#[derive(Debug)]
pub struct Plan {
    /// The root of grants, profiles and tools' paths, absolute.
    pub workspace: PathBuf,
    /// The agents, in the configuration's order.
    pub agents: Vec<AgentPlan>,
    /// Which of them gets the prompts.
    pub prompted: usize,
    /// The plugins, the first outermost.
    pub plugins: Vec<PluginPlan>,
    /// The lock file.
    pub lock: LockPlan,
    /// What compiling the plugins may use.
    pub compiling: Compiling,
    /// The providers, the built-in ones and those of the configuration, each at its address.
    pub providers: Vec<ProviderPlan>,
    /// Where sessions are kept.
    pub store: Store,
    /// Which session the prompted agent goes on with.
    pub session: SessionChoice,
    /// What `ask` becomes.
    pub approve: Approve,
    /// Whether any denial and any failure counts.
    pub strict: bool,
    /// When the log is made durable.
    pub durability: Durability,
    /// What goes to standard output.
    pub output: Output,
    /// Whether text is printed while it comes.
    pub stream: bool,
    /// Steps of a turn; 0 is no limit.
    pub max_steps: u32,
    /// Turns that only plugins started; 0 is no limit.
    pub max_turns: u32,
    /// Sub-agents that one turn may make; 0 is no limit.
    pub max_sub_agents: u32,
    /// What the run may use.
    pub budget: BudgetLimits,
    /// Whether plugins whose files change are taken into use.
    pub watch: bool,
    /// Where the model's answers go.
    pub record: Option<PathBuf>,
    /// Where every model request goes.
    pub log_requests: Option<PathBuf>,
    /// Where the receipts of plugin calls go.
    pub receipts: Option<PathBuf>,
    /// Where the timeline of plugin calls goes.
    pub trace_plugins: Option<PathBuf>,
    /// Whether totals by plugin are said at the end.
    pub totals: bool,
    /// Lines for standard error.
    pub notices: Vec<String>,
}

impl Plan {
    /// The agent that gets the prompts.
    pub fn prompted(&self) -> &AgentPlan {
        &self.agents[self.prompted]
    }
}

/// One agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentPlan {
    /// Its id.
    pub id: AgentId,
    /// Its model.
    pub model: String,
    /// How the model is to answer.
    pub sampling: Sampling,
    /// Its own suffix to the system prompt.
    pub system: String,
    /// Whether each message becomes a turn of its own.
    pub one_by_one: bool,
}

/// One plugin.
#[derive(Debug, Clone)]
pub struct PluginPlan {
    /// Its name.
    pub name: PluginName,
    /// Its source as it was written.
    pub source: String,
    /// Its component.
    pub path: PathBuf,
    /// Whether the host added it by itself: it then takes part in requests to a network only.
    pub added: bool,
    /// The SHA-256 that alone is trusted: a `dsh.toml` names it that was found, not named.
    pub pinned: Option<String>,
    /// Its configuration, JSON.
    pub config: String,
    /// What it may do.
    pub grants: Vec<Grant>,
    /// What its failure does.
    pub mode: FailureMode,
    /// The seams it takes part in; none: all that it exports.
    pub seams: Option<Vec<Seam>>,
    /// Its limits.
    pub limits: Limits,
}

/// One provider.
#[derive(Debug, Clone)]
pub struct ProviderPlan {
    /// All that is known of it, with its key where that is set.
    pub config: ProviderConfig,
    /// Whether the configuration has it.
    pub is_configured: bool,
}

/// An address that replaces a provider's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    /// Of which provider.
    pub provider: String,
    /// The address.
    pub url: String,
}

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Store {
    /// Nowhere.
    Memory,
    /// In this folder.
    Files(PathBuf),
    /// They are read from this folder; what is new stays in memory.
    Unsaved(PathBuf),
}

/// What a run is given: where its messages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// These; one may be standard input.
    Prompts(Vec<Prompt>),
    /// Standard input as one message.
    Stdin,
    /// Commands on standard input, after these.
    Commands(Vec<Prompt>),
    /// A person at a terminal.
    Terminal,
}

/// One message on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// This text.
    Text(String),
    /// The whole of standard input.
    Stdin,
}

/// What is being resolved, and against what.
struct Scope<'a> {
    options: &'a Options,
    config: Option<&'a Loaded>,
    environment: &'a Environment,
}

impl<'a> Scope<'a> {
    /// A path of an option, else of the configuration, each relative to its own place.
    fn path(&self, option: Option<&PathBuf>, key: impl Fn(&'a Loaded) -> Option<&'a PathBuf>) -> Option<PathBuf> {
        match option {
            Some(path) => Some(self.environment.path(path)),
            None => self.config.and_then(|config| key(config).map(|path| config.resolve(path))),
        }
    }

    /// A value of the configuration.
    fn key<T>(&self, key: impl Fn(&'a config::file::ConfigFile) -> Option<T>) -> Option<T> {
        self.config.and_then(|config| key(&config.file))
    }
}

/// Resolves a run.
pub fn run(run: &Run, environment: &Environment) -> Result<(Plan, Source), Stop> {
    let config = config::find(run.options.config.as_deref(), environment)?;
    let mut plan = resolve(&run.options, &run.conversation, config.as_ref(), environment)?;
    match &run.mistaken {
        None => {}
        Some(Mistaken::Misplaced(word)) => {
            plan.notices.push(format!("`{word}` is a prompt here; a command must be the first argument, and `--` before a prompt says that it is one"));
        }
        Some(Mistaken::Misspelt(word, name)) => {
            plan.notices.push(format!(
                "`{word}` is a prompt here; the command is `{name}`, and `--` before a prompt says that it is one"
            ));
        }
    }
    let input = run.conversation.input.or(config.as_ref().and_then(|config| config.file.input)).unwrap_or(Input::Text);
    let source = source(&run.prompts, input, environment)?;
    Ok((plan, source))
}

/// Resolves `tool list` and `tool call`: no conversation, and a session in memory unless a place for it is named.
pub fn tool(options: &Options, environment: &Environment) -> Result<Plan, Stop> {
    let config = config::find(options.config.as_deref(), environment)?;
    let mut options = options.clone();
    let named = options.session.is_some() || options.resume.is_some() || options.go_on || options.fork.is_some();
    options.no_save |= !named;
    resolve(&options, &Conversation::default(), config.as_ref(), environment)
}

/// Resolves a configuration for `config check`: with `options`, and without the keys of its providers.
pub fn configuration(options: &Options, config: &Loaded, environment: &Environment) -> Result<Plan, Stop> {
    looked_at(options, Some(config), environment)
}

/// Resolves what `plugin lock` writes down: the plugins of a run with these options.
pub fn lockable(options: &Options, environment: &Environment) -> Result<Plan, Stop> {
    let config = config::find(options.config.as_deref(), environment)?;
    looked_at(options, config.as_ref(), environment)
}

/// A plan that nothing is run by.
fn looked_at(options: &Options, config: Option<&Loaded>, environment: &Environment) -> Result<Plan, Stop> {
    let options = Options { no_save: true, ..options.clone() };
    let scope = Scope { options: &options, config, environment };
    let plugins = plugins::listed(&scope)?;
    let providers = providers::resolve(&scope)?;
    agents::check_models(&scope, &providers)?;
    assemble(&scope, &Conversation::default(), plugins, providers, agents::Keys::NotNeeded)
}

fn resolve(
    options: &Options,
    conversation: &Conversation,
    config: Option<&Loaded>,
    environment: &Environment,
) -> Result<Plan, Stop> {
    let scope = Scope { options, config, environment };
    let plugins = plugins::listed(&scope)?;
    let providers = providers::resolve(&scope)?;
    assemble(&scope, conversation, plugins, providers, agents::Keys::Needed)
}

fn assemble(
    scope: &Scope<'_>,
    conversation: &Conversation,
    mut plugins: Vec<PluginPlan>,
    mut providers: Vec<ProviderPlan>,
    keys: agents::Keys,
) -> Result<Plan, Stop> {
    let options = scope.options;
    let mut notices = Vec::new();
    let (agents, prompted) = agents::resolve(scope, conversation, &mut notices)?;
    let base_url = agents::base_url(scope, &agents[prompted], &providers);
    providers::lead(&mut providers, base_url.as_ref(), scope.environment)?;
    agents::check_providers(&agents, &providers, keys)?;
    agents::check_sampling(&agents, &providers)?;
    let added = plugins::add_defaults(scope, &agents, &mut plugins, &mut notices);
    plugins::apply_options(scope, &mut plugins)?;
    plugins::check_grants(scope, &plugins, &providers)?;
    Ok(Plan {
        workspace: workspace(scope)?,
        agents,
        prompted,
        plugins,
        lock: locking::resolve(scope, added),
        compiling: Compiling::new(&options.compiling, scope.config.map(|config| &config.file)),
        providers,
        store: store(scope)?,
        session: session_choice(scope)?,
        approve: options.approve.or(scope.key(|file| file.approve)).unwrap_or(Approve::Ask),
        strict: options.strict || scope.key(|file| file.strict).unwrap_or(false),
        durability: options.durability.or(scope.key(|file| file.durability)).unwrap_or(Durability::Turn),
        output: options.output.or(scope.key(|file| file.output)).unwrap_or(Output::Text),
        stream: !(conversation.no_stream || scope.key(|file| file.no_stream).unwrap_or(false)),
        max_steps: conversation.max_steps.or(scope.key(|file| file.max_steps)).unwrap_or(dsh_loop::DEFAULT_MAX_STEPS),
        max_turns: conversation.max_turns.or(scope.key(|file| file.max_turns)).unwrap_or(dsh_loop::DEFAULT_MAX_TURNS),
        max_sub_agents: conversation
            .max_sub_agents
            .or(scope.key(|file| file.max_sub_agents))
            .unwrap_or(dsh_loop::DEFAULT_MAX_SUB_AGENTS),
        budget: budget::limits(
            conversation.max_cost.or(scope.key(|file| file.max_cost)),
            conversation.max_total_tokens.or(scope.key(|file| file.max_total_tokens)),
            conversation.max_time.or(scope.key(|file| file.max_time)),
        ),
        watch: conversation.watch || scope.key(|file| file.watch).unwrap_or(false),
        record: scope.path(options.record.as_ref(), |config| config.file.record.as_ref()),
        log_requests: scope.path(options.log_requests.as_ref(), |config| config.file.log_requests.as_ref()),
        receipts: scope.path(options.receipts.as_ref(), |config| config.file.receipts.as_ref()),
        trace_plugins: scope.path(options.trace_plugins.as_ref(), |config| config.file.trace_plugins.as_ref()),
        totals: options.verbose > 0,
        notices,
    })
}

fn workspace(scope: &Scope<'_>) -> Result<PathBuf, Stop> {
    let path = scope.path(scope.options.workspace.as_ref(), |config| config.file.workspace.as_ref());
    let path = path.unwrap_or_else(|| scope.environment.working_directory.clone());
    let real = std::fs::canonicalize(&path)
        .map_err(|error| Stop::io(&path, &error).hint("`--workspace` must be a folder that is there"))?;
    if real.is_dir() {
        Ok(real)
    } else {
        Err(Stop::usage(format!("the workspace `{}` is not a folder", path.display())))
    }
}

/// Where sessions are, when something is to be looked up there.
pub fn session_folder(
    option: Option<&PathBuf>,
    config: Option<&Loaded>,
    environment: &Environment,
) -> Result<PathBuf, Stop> {
    let named = match option {
        Some(path) => Some(environment.path(path)),
        None => config.and_then(|config| config.file.session.as_ref().map(|path| config.resolve(path))),
    };
    named.or_else(|| environment.data_directory().map(|data| data.join("sessions"))).ok_or_else(|| {
        Stop::usage("there is no data directory to keep sessions in")
            .hint("set `DSH_HOME`, or use `--session DIR` or `--no-save`")
    })
}

fn store(scope: &Scope<'_>) -> Result<Store, Stop> {
    let options = scope.options;
    let no_save = options.no_save || scope.key(|file| file.no_save).unwrap_or(false);
    let goes_on = session_choice(scope)? != SessionChoice::New;
    if no_save && !goes_on {
        return Ok(Store::Memory);
    }
    let folder = session_folder(options.session.as_ref(), scope.config, scope.environment)?;
    Ok(if no_save { Store::Unsaved(folder) } else { Store::Files(folder) })
}

fn session_choice(scope: &Scope<'_>) -> Result<SessionChoice, Stop> {
    let options = scope.options;
    let chosen = options.resume.is_some() || options.go_on || options.fork.is_some();
    let (resume, go_on, fork) = if chosen {
        (options.resume.as_deref(), options.go_on, options.fork.as_deref())
    } else {
        let file = scope.config.map(|config| &config.file);
        (
            file.and_then(|file| file.resume.as_deref()),
            file.and_then(|file| file.go_on).unwrap_or(false),
            file.and_then(|file| file.fork.as_deref()),
        )
    };
    match (resume, go_on, fork) {
        (None, false, None) => Ok(SessionChoice::New),
        (Some(id), false, None) => Ok(SessionChoice::Resume(session_id(id)?)),
        (None, true, None) => Ok(SessionChoice::Continue),
        (None, false, Some(fork)) => parse_fork(fork),
        _ => Err(Stop::usage("only one of `resume`, `continue` and `fork` can be chosen")),
    }
}

fn parse_fork(text: &str) -> Result<SessionChoice, Stop> {
    let (id, at) = match text.split_once('@') {
        None => (text, None),
        Some((id, at)) => {
            let at = at.parse().map_err(|_| {
                Stop::usage(format!("`{at}` in `--fork {text}` is no sequence number"))
                    .hint("write `--fork ID@SEQ`, SEQ as in the log")
            })?;
            (id, Some(at))
        }
    };
    Ok(SessionChoice::Fork { id: session_id(id)?, at })
}

fn session_id(text: &str) -> Result<SessionId, Stop> {
    SessionId::new(text).map_err(|error| Stop::usage(error.to_string()).hint("see `dsh-host session list`"))
}

/// Where the messages of a run come from.
fn source(prompts: &[String], input: Input, environment: &Environment) -> Result<Source, Stop> {
    let mut list = Vec::new();
    for prompt in prompts {
        let is_stdin = prompt == "-";
        if is_stdin && list.contains(&Prompt::Stdin) {
            return Err(Stop::usage("`-` stands for the whole of standard input and can be given once"));
        }
        if is_stdin && input == Input::Jsonl {
            return Err(Stop::usage("standard input cannot be both a message (`-`) and commands (`--input jsonl`)"));
        }
        list.push(if is_stdin { Prompt::Stdin } else { Prompt::Text(prompt.clone()) });
    }
    Ok(match input {
        Input::Jsonl => Source::Commands(list),
        Input::Text if !list.is_empty() => Source::Prompts(list),
        Input::Text if environment.stdin_is_terminal => Source::Terminal,
        Input::Text => Source::Stdin,
    })
}

/// A text, or with `@` the text of a file.
fn text_or_file(text: &str, base: &Path) -> Result<String, Stop> {
    match text.strip_prefix('@') {
        None => Ok(text.to_owned()),
        Some(file) => {
            let path = base.join(file);
            std::fs::read_to_string(&path).map_err(|error| Stop::io(Path::new(file), &error))
        }
    }
}

/// A model that is a file by a path of the configuration, made independent of the working directory.
fn absolute_model(model: &str, config: &Loaded, environment: &Environment) -> String {
    match ModelRef::parse(model, &[]) {
        Ok(ModelRef::Script { file, line }) if config.folder() != environment.working_directory => {
            let line = line.map(|line| format!("#{line}")).unwrap_or_default();
            format!("script:{}{line}", config.resolve(file).display())
        }
        _ => model.to_owned(),
    }
}
