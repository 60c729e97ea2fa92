//! From a [`Plan`] to what an agent loop is made of: models, sessions, tools, the engine and its plugins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use dsh_loop::{AgentOptions, QueueMode, SessionChoice};
use dsh_seam::plugin::{EventSink, Plugin};
use dsh_seam::services::{Services, SystemClock};
use dsh_seam::session::Sessions;
use dsh_seam::tools::Approver;
use dsh_services::agents::AgentRegistry;
use dsh_services::approvals::ApprovalDesks;
use dsh_services::budget::RunBudget;
use dsh_services::llm::{Models, ModelsConfig, Sink};
use dsh_services::processes::HostProcesses;
use dsh_services::session::{FileSessions, MemorySessions, Unsaved};
use dsh_services::system_prompt::SystemPromptSections;
use dsh_services::tools::ToolServices;
use dsh_wasm::{
    Allocation, Compiler, Engine, EngineOptions, Grant, Grants, LoadError, PluginSpec, Readers, Refusal, WasmPlugin,
};
use futures::future::join_all;

use crate::added::ForNetworks;
use crate::args::Durability;
use crate::config::sources;
use crate::env::Environment;
use crate::exit::{Code, Stop, UNENFORCEABLE};
use crate::lock;
use crate::output::files::replaced;
use crate::output::receipts::{Recorder, Target, Wanted};
use crate::progress;
use crate::providers::ModelRef;
use crate::reach;
use crate::resolve::{AgentPlan, Compiling, Plan, PluginPlan, Store};

/// The models of a plan, each agent's checked.
pub fn models(plan: &Plan) -> Result<Arc<Models>, Stop> {
    let providers = plan.providers.iter().map(|plan| plan.config.clone()).collect();
    keep_scripts(plan)?;
    let models = Models::new(ModelsConfig {
        providers,
        log_requests: plan.log_requests.as_deref().map(replace).transpose()?,
        record: plan.record.as_deref().map(replace).transpose()?,
        budget: Arc::new(RunBudget::new(plan.budget)),
    });
    for agent in &plan.agents {
        models.check(&agent.model).map_err(|failure| Stop::usage(failure.message))?;
    }
    Ok(Arc::new(models))
}

/// Refuses to replace the file that a scripted model is about to read.
fn keep_scripts(plan: &Plan) -> Result<(), Stop> {
    let written = [
        ("--record", &plan.record),
        ("--log-requests", &plan.log_requests),
        ("--receipts", &plan.receipts),
        ("--trace-plugins", &plan.trace_plugins),
    ];
    for agent in &plan.agents {
        let Ok(ModelRef::Script { file, .. }) = ModelRef::parse(&agent.model, &[]) else { continue };
        let Ok(script) = std::fs::canonicalize(file) else { continue };
        let same = |path: &&Option<PathBuf>| {
            path.as_deref().and_then(|path| path.canonicalize().ok()).as_ref() == Some(&script)
        };
        if let Some((option, _)) = written.iter().find(|(_, path)| same(path)) {
            return Err(Stop::usage(format!("`{option}` would replace `{file}`, which the model reads"))
                .hint("name another file"));
        }
    }
    Ok(())
}

fn replace(path: &Path) -> Result<Sink, Stop> {
    Ok(Box::new(replaced(path)?))
}

fn target(path: &Path) -> Result<Target, Stop> {
    Ok(Target { path: path.to_owned(), file: replaced(path)? })
}

/// Who takes the receipts of plugin calls, if anybody wants them.
pub fn recorder(plan: &Plan) -> Result<Option<Recorder>, Stop> {
    keep_scripts(plan)?;
    Ok(Recorder::start(Wanted {
        receipts: plan.receipts.as_deref().map(target).transpose()?,
        timeline: plan.trace_plugins.as_deref().map(target).transpose()?,
        totals: plan.totals,
    }))
}

/// The sessions of a plan.
pub fn sessions(store: &Store, workspace: &Path) -> Arc<dyn Sessions> {
    let clock = Arc::new(SystemClock);
    let files = |folder: &Path| FileSessions::new(folder, clock.clone()).with_workspace(workspace.to_string_lossy());
    match store {
        Store::Memory => Arc::new(MemorySessions::new(clock)),
        Store::Files(folder) => Arc::new(files(folder)),
        Store::Unsaved(folder) => Arc::new(Unsaved::new(files(folder))),
    }
}

/// Everything that a loop is given.
pub fn services(plan: &Plan, models: Arc<Models>, approver: Arc<dyn Approver>, events: Arc<dyn EventSink>) -> Services {
    let processes = Arc::new(HostProcesses::new(plan.workspace.clone()));
    let budget = models.budget();
    Services {
        agents: Arc::new(AgentRegistry::new()),
        sessions: sessions(&plan.store, &plan.workspace),
        llm: models,
        tools: Arc::new(ToolServices::new(processes.clone())),
        system_prompt: Arc::new(SystemPromptSections),
        approver,
        approvals: Arc::new(ApprovalDesks),
        processes,
        events,
        clock: Arc::new(SystemClock),
        budget,
    }
}

/// The engine; with a workspace, paths below it can be granted.
pub fn engine(
    workspace: Option<&Path>,
    environment: &Environment,
    recorder: Option<&Recorder>,
    compiling: &Compiling,
) -> Result<Engine, Stop> {
    engine_keeping(Kept::by_user(environment), workspace, environment, recorder, compiling)
}

fn engine_keeping(
    kept: Kept,
    workspace: Option<&Path>,
    environment: &Environment,
    recorder: Option<&Recorder>,
    compiling: &Compiling,
) -> Result<Engine, Stop> {
    let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority()).map_err(|error| Stop::io(path, &error));
    let options = EngineOptions {
        workspace: workspace.map(open).transpose()?,
        receipts: recorder.map(Recorder::sink),
        ..compiling_options(compiling, kept, environment)
    };
    Engine::new(options).map_err(|error| Stop::new(Code::Sandbox, error.to_string()))
}

/// Where machine code is kept, and who may read it.
pub struct Kept {
    /// None: nowhere.
    pub directory: Option<PathBuf>,
    /// Who may read what is written.
    pub readers: Readers,
}

impl Kept {
    fn by_user(environment: &Environment) -> Self {
        Self { directory: environment.cache_directory(), readers: Readers::User }
    }

    /// Machine code that a plugin could have written is not run, so where one may write there is no cache.
    fn out_of_reach(plan: &Plan, environment: &Environment) -> Self {
        let mut kept = Self::by_user(environment);
        let writer = |cache: &PathBuf| reach::writer(&plan.plugins, &plan.workspace, cache);
        if let Some((plugin, grant)) = kept.directory.as_ref().and_then(writer) {
            tracing::warn!(
                "plugin `{plugin}` may write in the cache of compiled plugins (`{grant}`), so it is not used and plugins are compiled in each run; move it out of the workspace with `DSH_HOME`"
            );
            kept.directory = None;
        }
        kept
    }
}

/// An engine that compiles and runs nothing.
pub fn compiler(compiling: &Compiling, kept: Kept, environment: &Environment) -> Result<Engine, Stop> {
    let options = EngineOptions { allocation: Allocation::OnDemand, ..compiling_options(compiling, kept, environment) };
    Engine::new(options).map_err(|error| Stop::new(Code::Sandbox, error.to_string()))
}

fn compiling_options(compiling: &Compiling, kept: Kept, environment: &Environment) -> EngineOptions {
    EngineOptions {
        cache_dir: kept.directory,
        cache_readers: kept.readers,
        cache_max_mib: compiling.cache_max_mib,
        compile_limits: compiling.limits,
        on_compile: Some(progress::notice(environment.redraws_lines())),
        ..EngineOptions::new(Compiler::Child { program: environment.own_program() })
    }
}

/// Reads all plugins, compares them with the lock file, and then loads those very bytes, side by side. The first that fails, in plugin
/// order, is reported.
pub async fn plugins(
    plan: &Plan,
    environment: &Environment,
    recorder: Option<&Recorder>,
) -> Result<Vec<Arc<WasmPlugin>>, Stop> {
    let files = read(&plan.plugins).await?;
    let pairs: Vec<_> = plan.plugins.iter().zip(files.iter().map(Vec::as_slice)).collect();
    pairs.iter().try_for_each(|(plugin, bytes)| still_trusted(plugin, bytes))?;
    lock::check(&plan.lock, &pairs)?;
    if plan.plugins.is_empty() {
        return Ok(Vec::new());
    }
    let engine = engine_keeping(
        Kept::out_of_reach(plan, environment),
        Some(&plan.workspace),
        environment,
        recorder,
        &plan.compiling,
    )?;
    let load = |(plugin, bytes): (&PluginPlan, Vec<u8>)| {
        let (engine, path, spec) = (engine.clone(), plugin.path.clone(), spec(plugin, environment));
        tokio::spawn(async move { load(&engine, spec?, &path, bytes).await })
    };
    let loaded = join_all(plan.plugins.iter().zip(files).map(load)).await;
    loaded.into_iter().map(|loaded| loaded.map_err(internal)?).collect()
}

/// A plugin of a `dsh.toml` that was found was read when trust in it was looked up; what is read now must be the same.
fn still_trusted(plugin: &PluginPlan, bytes: &[u8]) -> Result<(), Stop> {
    match &plugin.pinned {
        Some(pinned) if *pinned != dsh_wasm::sha256(bytes) => {
            let (name, path) = (&plugin.name, plugin.path.display());
            Err(Stop::usage(format!(
                "plugin `{name}` (`{path}`) changed while it was loaded; its `dsh.toml` is trusted with what it was"
            ))
            .hint("look at what writes to this file, then try again"))
        }
        _ => Ok(()),
    }
}

/// The bytes of each plugin's file.
async fn read(plugins: &[PluginPlan]) -> Result<Vec<Vec<u8>>, Stop> {
    let read = |plugin: &PluginPlan| {
        let plugin = plugin.clone();
        tokio::task::spawn_blocking(move || component(&plugin))
    };
    let read = join_all(plugins.iter().map(read)).await;
    read.into_iter().map(|bytes| bytes.map_err(internal)?).collect()
}

/// The bytes of a plugin's file.
pub fn component(plugin: &PluginPlan) -> Result<Vec<u8>, Stop> {
    let what = || format!("plugin `{}` (`{}`)", plugin.name, plugin.path.display());
    sources::read(&plugin.path).map_err(|unread| unread.stop(&what(), &plugin.path))
}

fn internal(error: tokio::task::JoinError) -> Stop {
    Stop::new(Code::Internal, error.to_string())
}

/// Loads what was read of a plugin's file.
async fn load(engine: &Engine, spec: PluginSpec, path: &Path, bytes: Vec<u8>) -> Result<Arc<WasmPlugin>, Stop> {
    let name = spec.name.clone();
    let loaded = engine.load(bytes, spec).await;
    loaded.map_err(|error| not_loaded(&format!("plugin `{name}` (`{}`)", path.display()), path, &error))
}

/// A plugin whose file cannot be loaded, as a stop.
pub fn not_loaded(what: &str, path: &Path, error: &LoadError) -> Stop {
    let stop = refused(what, error);
    match error {
        LoadError::Config { has_schema: true, .. } => stop.hint(format!(
            "see `dsh-host plugin inspect {}` for the plugin's configuration schema",
            lock::shell_word(&path.display().to_string())
        )),
        _ => stop,
    }
}

/// A plugin that cannot be loaded, as a stop.
pub fn refused(what: &str, error: &LoadError) -> Stop {
    let code = match error {
        LoadError::Config { failure, .. } if failure.code == UNENFORCEABLE => Code::Sandbox,
        _ => Code::Usage,
    };
    if let LoadError::Refused(refusal) = error {
        let stop = |one: &Refusal| Stop::new(code, format!("{what}: {one}")).hint(one.hint());
        return Stop::together(refusal.each().iter().map(stop)).expect("invariant: a refusal is at least one");
    }
    Stop::new(code, format!("{what}: {error}")).hint(error.hint())
}

/// How a plugin is loaded.
pub fn spec(plugin: &PluginPlan, environment: &Environment) -> Result<PluginSpec, Stop> {
    let granted = plugin.grants.iter().filter_map(|grant| match grant {
        Grant::Env(name) => {
            let value = environment.for_a_plugin(name)?.to_str().map(|value| (name.clone(), value.to_owned()));
            if value.is_none() {
                tracing::warn!(target: "dsh::plugin", plugin = %plugin.name, "it does not see the variable `{name}`: its value is not UTF-8");
            }
            value
        }
        _ => None,
    });
    let config = serde_json::from_str(&plugin.config).map_err(|error| Stop::new(Code::Internal, error.to_string()))?;
    Ok(PluginSpec {
        config,
        grants: Grants::new(plugin.grants.iter().cloned()),
        env: granted.collect(),
        seams: plugin.seams.clone(),
        failure_mode: plugin.mode,
        limits: plugin.limits,
        ..PluginSpec::new(plugin.name.clone())
    })
}

/// The plugins of a plan as the loop takes them.
pub fn as_listeners(plan: &Plan, plugins: &[Arc<WasmPlugin>]) -> Vec<Arc<dyn Plugin>> {
    plan.plugins.iter().zip(plugins).map(|(plan, plugin)| as_listener(plan, plugin.clone())).collect()
}

/// One plugin, or a newer version of it, as the loop takes it.
pub fn as_listener(plan: &PluginPlan, plugin: Arc<WasmPlugin>) -> Arc<dyn Plugin> {
    if plan.added { Arc::new(ForNetworks(plugin)) } else { plugin }
}

/// The options of one agent.
pub fn agent_options(plan: &Plan, agent: &AgentPlan, session: SessionChoice, held: bool) -> AgentOptions {
    AgentOptions {
        model: Some(agent.model.as_str().into()),
        sampling: agent.sampling.clone(),
        system_prompt: agent.system.clone(),
        queue_mode: if agent.one_by_one { QueueMode::One } else { QueueMode::All },
        max_steps: plan.max_steps,
        max_turns: plan.max_turns,
        max_sub_agents: plan.max_sub_agents,
        durability: match plan.durability {
            Durability::Turn => dsh_loop::Durability::Turn,
            Durability::Tool => dsh_loop::Durability::Tool,
        },
        workspace: plan.workspace.to_string_lossy().into_owned(),
        session,
        held,
        ..AgentOptions::default()
    }
}
