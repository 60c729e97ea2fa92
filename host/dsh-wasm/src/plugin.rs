//! A loaded plugin: checked, compiled, configured, and not yet part of any agent.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::Dir;
use dsh_seam::printable::quoted;
use serde_json::Value;

use crate::attachment::{Attachment, guest};
use crate::authority::{Authority, Taken};
use crate::bindings::dsh::llm::llm_types;
use crate::carried::Carried;
use crate::convert;
use crate::engine::Engine;
use crate::fault::{Bound, Fault, NO_MEMORY};
use crate::grants::{Grant, Grants};
use crate::inspect::{Inspection, inspect};
use crate::instance::{Instance, Mold, Returned, Terms};
use crate::limits::{LimitError, Limits, MAX_MESSAGE_BYTES, MAX_TOOLS};
use crate::lists::Lists;
use crate::places::{Ready, Rooms};
use crate::receipt::Answer;
use crate::refusal::Refusal;
use crate::scene;
use crate::store::Call;
use crate::wasi::connect::Network;
use crate::wasi::fs::{GrantedDir, open_granted};
use crate::words::{
    Access, Attached, Failure, FailureMode, Plugin, PluginContext, PluginError, PluginName, Profile, Seam,
    ToolDefinition,
};

/// Different refusals of one plugin that the diagnostics name. A plugin that asks for what it was not given can ask for anything.
const MAX_REFUSALS: usize = 256;

/// How a plugin is to be loaded.
#[derive(Debug, Clone)]
pub struct PluginSpec {
    /// Its name.
    pub name: PluginName,
    /// Its configuration, an object; `{}` when none was given.
    pub config: Value,
    /// What it may do.
    pub grants: Grants,
    /// The values of the environment variables that were granted; one that is not set is left out.
    pub env: Vec<(String, String)>,
    /// The seams that it may take part in; none: all that it exports.
    pub seams: Option<Vec<Seam>>,
    /// What its failure does.
    pub failure_mode: FailureMode,
    /// What it may use.
    pub limits: Limits,
}

impl PluginSpec {
    /// A plugin without configuration and grants, with default limits.
    #[must_use]
    pub fn new(name: PluginName) -> Self {
        Self {
            name,
            config: Value::Object(serde_json::Map::new()),
            grants: Grants::default(),
            env: Vec::new(),
            seams: None,
            failure_mode: FailureMode::default(),
            limits: Limits::default(),
        }
    }
}

/// The code with which a plugin says that it cannot use its configuration.
const INVALID_CONFIG: &str = "invalid-config";

/// Why a plugin cannot be loaded. `Display` says what is wrong, [`LoadError::hint`] what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be a plugin of this host.
    Refused(Refusal),
    /// `seams` names one that the plugin does not export.
    NoSuchSeam {
        /// As configured.
        seam: Seam,
        /// What it exports.
        exports: Vec<Seam>,
    },
    /// A granted directory cannot be opened.
    Directory {
        /// The grant.
        grant: Grant,
        /// What the system said.
        why: String,
    },
    /// The plugin rejects its configuration.
    Config {
        /// What the plugin said.
        failure: Failure,
        /// Whether it can be asked for a schema.
        has_schema: bool,
    },
    /// The plugin failed while it was asked about itself.
    Failed(PluginError),
    /// A limit of it cannot be enforced.
    Limit(LimitError),
    /// What it says about itself makes no sense.
    Description {
        /// What is wrong.
        why: String,
    },
}

impl LoadError {
    /// What to do, in one sentence.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.hint(),
            Self::NoSuchSeam { .. } => "leave it out of `seams`, or use a plugin that exports it".into(),
            Self::Directory { grant: Grant::FsRead(_), .. } => {
                "make the directory, or grant one that is there; paths are relative to the workspace".into()
            }
            Self::Directory { .. } => "grant a directory inside the workspace that can be made and opened".into(),
            Self::Limit(error) => error.hint(),
            Self::Config { has_schema: true, .. } => {
                "see `dsh-host plugin inspect FILE` for the plugin's configuration schema".into()
            }
            Self::Config { .. } => {
                "it has no schema to show: see its documentation for what `--plugin-config`, or `config` in `dsh.toml`, may be"
                    .into()
            }
            Self::Failed(error) if error.kind == dsh_seam::FailureKind::Limit => {
                let named = |key: &&&str| error.message.contains(&format!("`{key}`"));
                let key = Limits::KEYS.iter().find(named).map_or("KEY", |key| key);
                format!("set a higher limit with `--limit {}={key}=…`, if it may have more", error.plugin)
            }
            Self::Failed(error) if error.message.starts_with(NO_MEMORY) => {
                "each memory of a plugin takes 4 GiB of address space, of which little is used: look at `ulimit -v`"
                    .into()
            }
            Self::Failed(_) | Self::Description { .. } => "this is a fault of the plugin: tell its author".into(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::NoSuchSeam { seam, exports } => {
                let exports = exports.iter().map(|seam| format!("`{seam}`")).collect::<Vec<_>>().join(", ");
                write!(f, "`seams` names `{seam}`, which the plugin does not export; it exports {exports}")
            }
            Self::Directory { grant, why } => write!(f, "the grant `{grant}` cannot be given: {why}"),
            Self::Config { failure, .. } => {
                write!(f, "the plugin rejects its configuration: {}", quoted(&failure.message, MAX_MESSAGE_BYTES))
            }
            Self::Failed(error) => write!(f, "{error}"),
            Self::Limit(error) => write!(f, "{error}"),
            Self::Description { why } => write!(f, "the plugin describes itself wrongly: {why}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<Refusal> for LoadError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The shortest value of a variable that is left out of what is said: `1` and `C` are no secrets, and would be everywhere.
const MIN_SECRET_BYTES: usize = 6;

/// What is the same for all instances of a plugin.
pub(crate) struct Core {
    pub name: PluginName,
    pub grants: Grants,
    /// The configuration as text.
    pub config: Arc<str>,
    pub limits: Limits,
    pub dirs: Vec<GrantedDir>,
    pub workspace: Option<Arc<Dir>>,
    pub network: Network,
    env: Vec<(String, String)>,
    refused: Mutex<BTreeSet<Grant>>,
    /// Its file, when somebody wants to know where in its source it failed.
    pub code: Option<Arc<[u8]>>,
    /// Whether a failure was told of, with how to see more.
    pub told: AtomicBool,
}

impl Core {
    /// A plugin as it is specified, without any directory.
    fn new(spec: PluginSpec, network: Network) -> Self {
        Self {
            name: spec.name,
            grants: spec.grants,
            config: spec.config.to_string().into(),
            limits: spec.limits,
            dirs: Vec::new(),
            workspace: None,
            network,
            env: spec.env,
            refused: Mutex::default(),
            code: None,
            told: AtomicBool::new(false),
        }
    }

    /// The granted environment variables that the profile lets through.
    pub(crate) fn visible_env<'a>(
        &'a self,
        profile: Option<&'a Profile>,
    ) -> impl Iterator<Item = &'a (String, String)> {
        self.env.iter().filter(move |(name, _)| profile.is_none_or(|profile| in_patterns(&profile.env, name)))
    }

    /// `text` with the values of granted environment variables left out: they are secrets more often than not.
    pub(crate) fn without_env(&self, text: &str) -> String {
        let secrets = self.env.iter().map(|(_, value)| value).filter(|value| value.len() >= MIN_SECRET_BYTES);
        secrets.fold(text.to_owned(), |text, secret| {
            // Arguments are JSON, where quotes and line ends in it look otherwise.
            let in_json = serde_json::Value::from(secret.as_str()).to_string();
            text.replace(secret.as_str(), "•••").replace(&in_json[1..in_json.len() - 1], "•••")
        })
    }

    /// The names of the granted environment variables.
    pub(crate) fn granted_env(&self) -> Vec<String> {
        let names = self.grants.iter().filter_map(|grant| match grant {
            Grant::Env(name) => Some(name.clone()),
            _ => None,
        });
        names.collect()
    }

    /// The plugin called what it was not granted: reports it and returns the failure, with the option to type.
    pub(crate) async fn refuse(&self, session: Option<&dyn PluginContext>, grant: &Grant) -> Failure {
        self.refuse_because(session, grant, None).await
    }

    /// [`Core::refuse`], and why this grant is the one that is missing.
    pub(crate) async fn refuse_because(
        &self,
        session: Option<&dyn PluginContext>,
        grant: &Grant,
        why: Option<&str>,
    ) -> Failure {
        let option = option_for(&self.name, grant);
        if self.is_news(grant) {
            let why = why.map(|why| format!("{why}: ")).unwrap_or_default();
            tracing::warn!(target: "dsh::plugin", plugin = %self.name, "{why}it was refused `{grant}`, which it was not granted; allow it with `{option}`");
        }
        if let Some(session) = session {
            session.refused(&grant.to_string(), &option).await;
        }
        Failure::new(
            "not-granted",
            format!("plugin `{}` was not granted `{grant}`; the operator can allow it with `{option}`", self.name),
        )
    }

    /// Whether the diagnostics have not heard of this refusal. They hear of so many that nobody would read more.
    fn is_news(&self, grant: &Grant) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.len() < MAX_REFUSALS && refused.insert(grant.clone())
    }
}

/// The option that grants it, as it is typed in a shell.
fn option_for(plugin: &PluginName, grant: &Grant) -> String {
    let text = format!("{plugin}={grant}");
    let plain = |c: char| c.is_alphanumeric() || "=:/._-[]*+@%,~".contains(c);
    if text.chars().all(plain) {
        format!("--grant {text}")
    } else {
        format!("--grant '{}'", text.replace('\'', r"'\''"))
    }
}

fn in_patterns(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    })
}

/// A plugin that is ready to be attached to agents.
pub struct WasmPlugin {
    mold: Arc<Mold>,
    inspection: Inspection,
    seams: Vec<Seam>,
    failure_mode: FailureMode,
    tools: Arc<[ToolDefinition]>,
    kinds: Arc<[String]>,
    ungranted: Vec<Taken>,
}

impl fmt::Debug for WasmPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WasmPlugin")
            .field("name", &self.mold.core.name)
            .field("seams", &self.seams)
            .finish_non_exhaustive()
    }
}

/// What a plugin says about itself when it is asked, beside what its file shows.
#[derive(Debug, Clone)]
pub struct Description {
    /// What its file shows.
    pub inspection: Inspection,
    /// Its tools; none when it provides none.
    pub tools: Option<Vec<ToolDefinition>>,
    /// The JSON Schema of its configuration; none when it has no `plugin/configure`.
    pub config_schema: Option<Value>,
}

impl Engine {
    /// Loads a plugin: checks the file, compiles it or takes it from the cache, opens what was granted, and asks the plugin once about its
    /// configuration, its tools and what it observes.
    ///
    /// Cancel safe: nothing is kept of a load that is dropped, except a compiled component in the cache.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub async fn load(&self, bytes: Vec<u8>, spec: PluginSpec) -> Result<Arc<WasmPlugin>, LoadError> {
        spec.limits.check().map_err(LoadError::Limit)?;
        let code = scene::keep(&bytes);
        let compiled = self.prepare(bytes, spec.name.clone(), spec.limits.stack_kib).await?;
        let Authority { grants, taken: ungranted, seams } =
            compiled.inspection.authority(spec.grants, spec.seams.as_deref())?;
        let dirs = open_dirs(self.inner.workspace.as_deref(), &grants)?;
        let failure_mode = spec.failure_mode;
        let workspace = self.inner.workspace.clone();
        let spec = PluginSpec { grants, ..spec };
        let core = Core { dirs, workspace, code, ..Core::new(spec, self.inner.network.clone()) };
        let rooms = Rooms::new(Ready::new(compiled.class, &compiled.component, &seams)?, &seams);
        let mold = Mold { engine: self.inner.clone(), core: Arc::new(core), rooms };
        let mut asking = Asking::new(&mold);
        asking.configure().await?;
        let (tools, kinds) = (asking.tools().await?, asking.kinds().await?);
        let plugin = WasmPlugin {
            mold: Arc::new(mold),
            inspection: compiled.inspection,
            failure_mode,
            tools: tools.unwrap_or_default().into(),
            kinds: kinds.into(),
            seams,
            ungranted,
        };
        plugin.warn();
        Ok(Arc::new(plugin))
    }

    /// Everything that can be known of a file, for `plugin inspect`: it is checked, compiled, and asked about its tools and its
    /// configuration, without grants and without a configuration.
    ///
    /// What it does not answer is left out, with a warning.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub async fn describe(&self, bytes: Vec<u8>, name: PluginName) -> Result<Description, LoadError> {
        let inspection = inspect(&bytes)?;
        let spec = PluginSpec::new(name);
        let compiled = self.prepare(bytes, spec.name.clone(), spec.limits.stack_kib).await?;
        let core = Core::new(spec, self.inner.network.clone());
        let rooms = Rooms::new(Ready::new(compiled.class, &compiled.component, &inspection.seams)?, &inspection.seams);
        let mold = Mold { engine: self.inner.clone(), core: Arc::new(core), rooms };
        let mut asking = Asking::new(&mold);
        let config_schema = asking.schema().await.unwrap_or_else(|error| unknown("configuration schema", &error));
        let tools = asking.tools().await.unwrap_or_else(|error| unknown("tools", &error));
        Ok(Description { inspection, tools, config_schema })
    }
}

/// What a plugin is can be shown although it does not answer: some need a configuration for that.
fn unknown<T>(what: &str, error: &LoadError) -> Option<T> {
    tracing::warn!(target: "dsh::plugin", "its {what} cannot be shown: {error}");
    None
}

fn open_dirs(workspace: Option<&Dir>, grants: &Grants) -> Result<Vec<GrantedDir>, LoadError> {
    let mut dirs = Vec::new();
    for grant in grants.iter() {
        let (path, access) = match grant {
            Grant::FsRead(path) => (path, Access::Read),
            Grant::FsWrite(path) => (path, Access::Write),
            _ => continue,
        };
        let error = |why: String| LoadError::Directory { grant: grant.clone(), why };
        let Some(workspace) = workspace else { return Err(error("there is no workspace".into())) };
        let dir = open_granted(workspace, path, access).map_err(|cause| error(directory_words(&cause)))?;
        // The same directory twice: writing includes reading.
        dirs.retain(|known: &GrantedDir| known.path.written != dir.path.written);
        dirs.push(dir);
    }
    Ok(dirs)
}

fn directory_words(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such directory".into(),
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => "it is not a directory".into(),
        std::io::ErrorKind::PermissionDenied => "it leads out of the workspace, or may not be opened".into(),
        _ => error.to_string(),
    }
}

/// The questions that a plugin is asked while it is loaded, all in one instance outside of any session.
struct Asking<'a> {
    mold: &'a Mold,
    instance: Option<Box<Instance>>,
}

impl<'a> Asking<'a> {
    fn new(mold: &'a Mold) -> Self {
        Self { mold, instance: None }
    }

    async fn ask<R, Fut>(
        &mut self,
        seam: Seam,
        function: &'static str,
        body: impl FnOnce(Box<Instance>) -> Fut,
    ) -> Result<R, LoadError>
    where
        R: Carried + Lists + Answer,
        Fut: Future<Output = (Box<Instance>, wasmtime::Result<R>)>,
    {
        let failed = |fault: Fault| LoadError::Failed(fault.into_error(&self.mold.core.name, seam));
        let terms = Terms::new(&self.mold.core, Call { function, ..Call::new(seam) }, false, None);
        let instance = match self.instance.take() {
            Some(instance) => instance,
            None => self.mold.instantiate(None, None, &terms).await.map_err(failed)?,
        };
        let armed = self.mold.arm(instance, terms);
        let Returned { value, instance, metered, .. } = self.mold.call(armed, body).await.map_err(failed)?;
        metered.answered(Ok(&value));
        self.instance = Some(instance);
        Bound::check_lists(&value, &self.mold.core.limits).map_err(|bound| failed(Fault::Limit(bound.to_string())))?;
        Ok(value)
    }

    /// Rejects a bad configuration.
    async fn configure(&mut self) -> Result<(), LoadError> {
        if !self.mold.rooms.has(Seam::Configure) {
            return Ok(());
        }
        let config = self.mold.core.config.to_string();
        let answer = self
            .ask(Seam::Configure, "validate", |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                store.data_mut().given(&config);
                let answer = guest(&guests.configure).call_validate(store, &config).await;
                (it, answer)
            })
            .await?;
        answer.map_err(|failure: llm_types::Failure| LoadError::Config {
            failure: convert::failure_in(failure),
            has_schema: true,
        })
    }

    /// The schema of its configuration.
    async fn schema(&mut self) -> Result<Option<Value>, LoadError> {
        if !self.mold.rooms.has(Seam::Configure) {
            return Ok(None);
        }
        let text = self
            .ask(Seam::Configure, "schema", |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                let answer = guest(&guests.configure).call_schema(store).await;
                (it, answer)
            })
            .await?;
        let schema = convert::json("schema", &text).map_err(|ill| LoadError::Description { why: ill.to_string() })?;
        Ok(Some(schema))
    }

    /// Its tools, checked.
    async fn tools(&mut self) -> Result<Option<Vec<ToolDefinition>>, LoadError> {
        if !self.mold.rooms.has(Seam::Provider) {
            return Ok(None);
        }
        let answer = self
            .ask(Seam::Provider, "list-tools", |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                let answer = guest(&guests.provider).call_list_tools(store).await;
                (it, answer)
            })
            .await?;
        let wrong = |why: String| LoadError::Description { why };
        let tools = answer.map_err(|failure| match convert::failure_in(failure) {
            // A plugin without `configure` reads its configuration when it is first called.
            failure if failure.code == INVALID_CONFIG => {
                LoadError::Config { failure, has_schema: self.mold.rooms.has(Seam::Configure) }
            }
            failure => LoadError::Failed(Fault::answered(&failure).into_error(&self.mold.core.name, Seam::Provider)),
        })?;
        if tools.len() > MAX_TOOLS {
            return Err(wrong(format!("it has {} tools, and a plugin may have {MAX_TOOLS}", tools.len())));
        }
        let mut names = BTreeSet::new();
        let mut checked = Vec::with_capacity(tools.len());
        for (n, tool) in tools.into_iter().enumerate() {
            let tool = convert::definition_in(n, tool).map_err(|ill| wrong(ill.to_string()))?;
            if !names.insert(tool.name.clone()) {
                return Err(wrong(format!("it has two tools named `{}`", quoted(&tool.name, MAX_MESSAGE_BYTES))));
            }
            checked.push(tool);
        }
        Ok(Some(checked))
    }

    /// What it observes.
    async fn kinds(&mut self) -> Result<Vec<String>, LoadError> {
        if !self.mold.rooms.has(Seam::Observer) {
            return Ok(Vec::new());
        }
        self.ask(Seam::Observer, "kinds", |mut it| async move {
            let Instance { store, guests, .. } = &mut *it;
            let answer = guest(&guests.observer).call_kinds(store).await;
            (it, answer)
        })
        .await
    }
}

impl WasmPlugin {
    /// What its file shows.
    #[must_use]
    pub fn inspection(&self) -> &Inspection {
        &self.inspection
    }

    /// The seams that it takes part in.
    #[must_use]
    pub fn seams(&self) -> &[Seam] {
        &self.seams
    }

    /// Its tools, none when it does not provide any.
    #[must_use]
    pub fn tools(&self) -> &[ToolDefinition] {
        &self.tools
    }

    /// The engine that it was loaded into.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine { inner: self.mold.engine.clone() }
    }

    /// Says at load what an operator should know.
    fn warn(&self) {
        let name = &self.mold.core.name;
        for Taken { grant, left } in &self.ungranted {
            let ceiling = in_backticks(self.inspection.ceiling.iter().flatten().map(|entry| &entry.capability));
            let ceiling = format!("its ceiling, the most that it says it will ever need, is {ceiling}");
            if left.is_empty() {
                tracing::warn!(target: "dsh::plugin", plugin = %name, "the grant `{grant}` is not given: {ceiling}");
            } else {
                let left = in_backticks(left.iter());
                tracing::warn!(target: "dsh::plugin", plugin = %name, "the grant `{grant}` is cut to {left}: {ceiling}");
            }
        }
        let sees = [Seam::Request, Seam::StepResult, Seam::Execute, Seam::Guard, Seam::Observer]
            .into_iter()
            .find(|seam| self.seams.contains(seam));
        if let (Some(seam), true) = (sees, self.mold.core.grants.has_net()) {
            tracing::warn!(target: "dsh::plugin", plugin = %name, "it can see what is said (`{seam}`) and may send it out (`net`)");
        }
    }
}

/// A list in backticks.
fn in_backticks<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<String> = items.map(|item| format!("`{item}`")).collect();
    if items.is_empty() { "nothing".into() } else { items.join(", ") }
}

impl Plugin for WasmPlugin {
    fn name(&self) -> &PluginName {
        &self.mold.core.name
    }

    fn failure_mode(&self) -> FailureMode {
        self.failure_mode
    }

    fn sha256(&self) -> Option<&str> {
        Some(&self.inspection.sha256)
    }

    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached {
        Attachment::new(self.mold.clone(), self.tools.clone(), self.kinds.clone(), context).attached(&self.seams)
    }
}
