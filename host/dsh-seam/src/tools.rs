//! The seam to tools: definitions, calls, outcomes, profiles, guards, providers, and the one dispatcher.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::event::{ApprovalAsked, ApprovalDecided, AskedQuestion, ToolDispatched, WaterfallChanged};
use crate::failure::{Failure, FailureMode, PluginError};
use crate::ids::{AgentInfo, PluginName, StepRef};
use crate::message::{ResultBlock, ToolCall};
use crate::waterfall::{FailureReport, Registered, RunError};
use crate::waterfalls::ToolsExecute;

/// Hints, as MCP defines them; a policy may read them, never trust them alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// Changes nothing.
    pub read_only: bool,
    /// May destroy something.
    pub destructive: bool,
    /// Running it twice is the same as once.
    pub idempotent: bool,
    /// Touches the outside world.
    pub open_world: bool,
    /// May run beside its neighbours.
    pub parallel_safe: bool,
}

/// A tool as its provider describes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolDefinition {
    /// Its name, unique among an agent's tools: `[A-Za-z0-9_-]{1,64}`, the rule of the strictest provider.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// A JSON Schema (2020-12) object.
    pub parameters: Value,
    /// Hints.
    pub annotations: Annotations,
}

/// A tool as policies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolInfo {
    /// Its name.
    pub name: String,
    /// Who provides it; annotations are worth what it is worth.
    pub plugin: PluginName,
    /// Hints.
    pub annotations: Annotations,
}

/// What came of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What the model reads.
    pub content: Vec<ResultBlock>,
    /// Whether the call failed.
    pub is_error: bool,
    /// Why, when it failed.
    pub code: Option<String>,
    /// Who denied it, failed, or answered in the tool's place; none: the tool itself.
    pub plugin: Option<PluginName>,
}

/// Codes of `tool/result` that count as denied.
pub const DENYING_CODES: [&str; 3] = ["denied", "approval-denied", "approval-unavailable"];

impl Outcome {
    /// A good outcome with one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![ResultBlock::text(text)], is_error: false, code: None, plugin: None }
    }

    /// A failed outcome with one text.
    pub fn error(code: impl Into<String>, text: impl Into<String>) -> Self {
        Self { content: vec![ResultBlock::text(text)], is_error: true, code: Some(code.into()), plugin: None }
    }

    /// Says who is behind it.
    #[must_use]
    pub fn by(mut self, plugin: PluginName) -> Self {
        self.plugin = Some(plugin);
        self
    }

    /// Bytes of text in it.
    pub fn bytes(&self) -> usize {
        self.content
            .iter()
            .map(|block| match block {
                ResultBlock::Text(block) => block.text.len(),
                ResultBlock::Image(image) => match &image.source {
                    crate::message::ImageSource::Url(text) | crate::message::ImageSource::Data(text) => text.len(),
                },
                ResultBlock::Other(value) => value.to_string().len(),
            })
            .sum()
    }
}

/// What may be done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// A path and what may be done below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathGrant {
    /// Relative to the workspace, with `/`, without `..`; `.` is the workspace itself.
    pub path: String,
    /// What may be done.
    pub access: Access,
}

/// Where a tool may connect to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkPolicy {
    /// Nowhere.
    Closed,
    /// To these hosts.
    Hosts(Vec<String>),
    /// Anywhere.
    Open,
}

/// What a tool may touch. Profiles only ever intersect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Profile {
    /// What may be read and written.
    pub paths: Vec<PathGrant>,
    /// Taken away again below `paths`: `write` leaves it readable, `read` hides it.
    pub denied: Vec<PathGrant>,
    /// Where it may connect to.
    pub network: NetworkPolicy,
    /// Whether it may start programs.
    pub processes: bool,
    /// Names of environment variables; a `*` at the end stands for any rest.
    pub env: Vec<String>,
    /// The most time, in milliseconds.
    pub timeout_ms: Option<u32>,
    /// The most output, in bytes.
    pub max_output_bytes: Option<u32>,
}

impl Profile {
    /// What is in force when nobody narrowed anything.
    pub fn unrestricted() -> Self {
        Self {
            paths: vec![PathGrant { path: ".".into(), access: Access::Write }],
            denied: vec![],
            network: NetworkPolicy::Open,
            processes: true,
            env: vec!["*".into()],
            timeout_ms: None,
            max_output_bytes: None,
        }
    }

    /// Whether nobody narrowed anything.
    pub fn is_unrestricted(&self) -> bool {
        *self == Self::unrestricted()
    }

    /// What both allow: paths pairwise (the deeper path, the lower access), hosts and names in both, the smaller number.
    #[must_use]
    pub fn intersect(&self, other: &Profile) -> Profile {
        Profile {
            paths: intersect_paths(&self.paths, &other.paths),
            denied: union(&self.denied, &other.denied),
            network: intersect_network(&self.network, &other.network),
            processes: self.processes && other.processes,
            env: intersect_patterns(&self.env, &other.env),
            timeout_ms: smaller(self.timeout_ms, other.timeout_ms),
            max_output_bytes: smaller(self.max_output_bytes, other.max_output_bytes),
        }
    }

    /// Checks the form of a profile that came from outside and brings its paths into the one form without `.` and doubled `/`.
    pub fn normalize(mut self) -> Result<Self, Failure> {
        for grant in self.paths.iter_mut().chain(&mut self.denied) {
            grant.path = normalize_path(&grant.path).ok_or_else(|| {
                Failure::invalid_argument(format!(
                    "`{}` is not a path inside the workspace: use a relative path with `/` and without `..`",
                    grant.path
                ))
            })?;
        }
        Ok(self)
    }

    /// The access that `path` (normalised, relative to the workspace) has.
    pub fn access(&self, path: &str) -> Option<Access> {
        let best = self.paths.iter().filter(|grant| covers(&grant.path, path)).map(|grant| grant.access).max()?;
        let taken = self.denied.iter().filter(|grant| covers(&grant.path, path)).map(|grant| grant.access).min();
        match taken {
            None => Some(best),
            Some(Access::Write) => Some(Access::Read),
            Some(Access::Read) => None,
        }
    }
}

/// A relative path without `.`, empty parts and backslashes; none when it is absolute or has a `..`. The workspace itself is `.`.
pub fn normalize_path(path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains('\\') || path.contains('\0') {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return None;
    }
    Some(if parts.is_empty() { ".".into() } else { parts.join("/") })
}

/// Whether `path` is `above` or below it; both normalised.
pub fn covers(above: &str, path: &str) -> bool {
    above == "." || path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn intersect_paths(left: &[PathGrant], right: &[PathGrant]) -> Vec<PathGrant> {
    let mut out: Vec<PathGrant> = Vec::new();
    for a in left {
        for b in right {
            let deeper = if covers(&a.path, &b.path) {
                &b.path
            } else if covers(&b.path, &a.path) {
                &a.path
            } else {
                continue;
            };
            let grant = PathGrant { path: deeper.clone(), access: a.access.min(b.access) };
            if !out.contains(&grant) {
                out.push(grant);
            }
        }
    }
    out
}

fn union(left: &[PathGrant], right: &[PathGrant]) -> Vec<PathGrant> {
    let mut out = left.to_vec();
    out.extend(right.iter().filter(|grant| !left.contains(grant)).cloned());
    out
}

fn intersect_network(left: &NetworkPolicy, right: &NetworkPolicy) -> NetworkPolicy {
    match (left, right) {
        (NetworkPolicy::Closed, _) | (_, NetworkPolicy::Closed) => NetworkPolicy::Closed,
        (NetworkPolicy::Open, other) | (other, NetworkPolicy::Open) => other.clone(),
        (NetworkPolicy::Hosts(a), NetworkPolicy::Hosts(b)) => {
            NetworkPolicy::Hosts(a.iter().filter(|host| b.contains(host)).cloned().collect())
        }
    }
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

fn intersect_patterns(left: &[String], right: &[String]) -> Vec<String> {
    let inside = |pattern: &String, others: &[String]| others.iter().any(|other| matches_pattern(other, pattern));
    let mut out: Vec<String> = left.iter().filter(|pattern| inside(pattern, right)).cloned().collect();
    out.extend(right.iter().filter(|pattern| !left.contains(pattern) && inside(pattern, left)).cloned());
    out
}

fn smaller(left: Option<u32>, right: Option<u32>) -> Option<u32> {
    match (left, right) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessCommand {
    /// A name looked up in PATH, or a path.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs, relative to the workspace; none: in the workspace.
    pub cwd: Option<String>,
    /// More variables of its environment.
    pub env: Vec<(String, String)>,
    /// What it reads; none: nothing.
    pub stdin: Option<Vec<u8>>,
    /// The most time, in milliseconds.
    pub timeout_ms: Option<u32>,
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessExit {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Whether it took too long and was killed with all it had started.
    pub timed_out: bool,
    /// Whether output was cut.
    pub truncated: bool,
}

/// Runs programs under a profile.
#[async_trait]
pub trait Processes: Send + Sync {
    /// Runs `command` to its end, under `profile`, with the environment variables PATH, HOME, LANG, TERM, TMPDIR and `env` of the
    /// host's that the profile lets through. A failure means that nothing ran: `invalid-argument`, `unenforceable`, `not-available`.
    ///
    /// Dropping the future, or cancelling, kills the program and all it started.
    async fn run(
        &self,
        command: ProcessCommand,
        profile: &Profile,
        env: &[String],
        cancel: &CancellationToken,
    ) -> Result<ProcessExit, Failure>;

    /// Whether this machine can hold a program to `profile`; the failure (`unenforceable`) says what is missing.
    fn enforceable(&self, profile: &Profile) -> Result<(), Failure>;
}

/// What a running tool has around it.
#[derive(Clone)]
pub struct ToolContext {
    /// On whose behalf.
    pub agent: AgentInfo,
    /// Where in its life; 0 and 0 for the command `tool call`.
    pub at: StepRef,
    /// The call's id.
    pub call_id: String,
    /// What it may touch.
    pub profile: Arc<Profile>,
    /// Cancelled when the turn is; then it should return soon.
    pub cancel: CancellationToken,
    /// Says how far it is.
    pub progress: Arc<dyn Progress>,
    /// Runs programs.
    pub processes: Arc<dyn Processes>,
}

/// Shows how far a tool is.
pub trait Progress: Send + Sync {
    /// `fraction` is from 0 to 1.
    fn report(&self, text: &str, fraction: Option<f32>);
}

/// Gives tools.
#[async_trait]
pub trait ToolProvider: Send + Sync {
    /// The tools, always the same.
    fn definitions(&self) -> &[ToolDefinition];

    /// Runs one; `call.arguments` is valid JSON and matches the tool's schema. A tool that fails answers an outcome with `is_error`;
    /// an error here means that the plugin itself failed.
    async fn call(&self, cx: &ToolContext, call: ToolCall) -> Result<Outcome, PluginError>;
}

/// What a guard says of a call. There is no allow: it can only tighten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No opinion.
    Abstain,
    /// Ask a person.
    Ask(Question),
    /// No, and why.
    Deny(String),
}

/// What to ask a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// In a few words.
    pub title: String,
    /// All that a person needs to decide.
    pub detail: String,
    /// The key under which `allow-always` is kept for the session; none: it is not offered.
    pub remember: Option<String>,
}

/// A gate over the final call, right before the tool runs.
#[async_trait]
pub trait Guard: Send + Sync {
    /// Judges the call.
    async fn check(
        &self,
        at: StepRef,
        call: &ToolCall,
        tool: &ToolInfo,
        cancel: &CancellationToken,
    ) -> Result<Verdict, PluginError>;
}

/// A guard with its name and its failure mode.
#[derive(Clone)]
pub struct RegisteredGuard {
    /// Whose it is.
    pub plugin: PluginName,
    /// Closed: its failure stops the call. Open: it abstains.
    pub mode: FailureMode,
    /// The guard.
    pub guard: Arc<dyn Guard>,
}

/// What the dispatcher and the approvals may put into the log, and nothing else.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolEvent {
    /// A tool is run again, or with a changed call.
    Dispatched(ToolDispatched),
    /// A question is put.
    Asked(ApprovalAsked),
    /// A question is answered.
    Decided(ApprovalDecided),
    /// Listeners changed a call or its outcome.
    Changed(WaterfallChanged),
}

/// The log of one agent, as far as tools may write it.
#[async_trait]
pub trait ToolLog: FailureReport {
    /// Appends; returns when the entry is written and its observers are done.
    async fn append(&self, event: ToolEvent) -> Result<(), RunError>;
    /// Whether a person answered this plugin's question with this key with `allow-always` in this session.
    fn remembers(&self, plugin: &PluginName, key: &str) -> bool;
    /// Shows progress.
    fn progress(&self, at: StepRef, call_id: &str, plugin: &PluginName, text: &str, fraction: Option<f32>);
    /// Makes the log durable before a tool that changes something runs (`--durability tool`); otherwise does nothing.
    async fn before_tool(&self, read_only: bool) -> Result<(), RunError>;
    /// Runs `work`, which ends what was begun in the log by somebody who is gone, on a task of its own; the agent's driver does nothing
    /// else before it is done. Must be called inside of the runtime.
    fn owe(&self, work: BoxFuture<'static, ()>);
    /// The log for one call: its failures carry the call's id.
    fn for_call(&self, at: StepRef, call_id: &str) -> Arc<dyn ToolLog>;
}

/// What the dispatcher needs to serve one agent.
pub struct ToolSetup {
    /// The agent.
    pub agent: AgentInfo,
    /// Providers in plugin order, with their names.
    pub providers: Vec<(PluginName, Arc<dyn ToolProvider>)>,
    /// Listeners of `tools/execute` in plugin order.
    pub listeners: Arc<[Registered<ToolsExecute>]>,
    /// Guards in plugin order.
    pub guards: Arc<[RegisteredGuard]>,
    /// The agent's approvals.
    pub approvals: Arc<dyn Approvals>,
    /// Where it logs.
    pub log: Arc<dyn ToolLog>,
    /// The names of the tools that there are for this agent; none: all. Any other is an unknown tool.
    pub only: Option<BTreeSet<String>>,
    /// What every call may touch before any listener narrows it.
    pub profile: Arc<Profile>,
}

/// The service `tools`: makes the registry and dispatcher of an agent.
pub trait Tools: Send + Sync {
    /// Fails when two tools have one name, when a schema is none, or when a name is not allowed; the failure names both.
    fn for_agent(&self, setup: ToolSetup) -> Result<Arc<dyn AgentTools>, Failure>;
}

/// One agent's tools: registry and dispatcher. Every call of a tool, whoever made it, takes [`AgentTools::dispatch`].
#[async_trait]
pub trait AgentTools: Send + Sync {
    /// The tools, in the order the model sees them.
    fn definitions(&self) -> Arc<[ToolDefinition]>;
    /// The tool with that name.
    fn find(&self, name: &str) -> Option<ToolInfo>;
    /// Takes a plugin's tools away; a running call finishes, the next look-up does not find them.
    fn remove(&self, plugin: &PluginName);
    /// Runs one call: the waterfall `tools/execute` and, innermost, look-up, validation, guards, profile, the tool. A tool that
    /// fails, is unknown or is denied is an outcome; an error means that the turn cannot go on: `Dispatch` says what then stands for
    /// the result. Under a cancelled token the running tool is awaited, a guest for its grace period.
    async fn dispatch(&self, at: StepRef, call: ToolCall, cancel: &CancellationToken) -> Dispatch;
}

/// What came of a dispatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// The call's one result. When a listener failed it tells the truth: not run, or ran and withheld.
    pub outcome: Outcome,
    /// Set when the turn must end.
    pub fatal: Option<RunError>,
}

/// Something to be decided.
#[derive(Debug, Clone)]
pub struct ApprovalRequest {
    /// Where in the agent's life.
    pub at: StepRef,
    /// The final call, if it is about one.
    pub call: Option<ToolCall>,
    /// All that is asked.
    pub questions: Vec<AskedQuestion>,
}

/// The approvals of one agent: asks one question at a time, logs question and answer, remembers.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// Asks and waits. Under a cancelled token the answer is `Aborted`, and is logged.
    async fn ask(&self, request: ApprovalRequest, cancel: &CancellationToken) -> Result<ApprovalDecided, RunError>;
}

/// Whoever answers questions: a person, a program, an option.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Waits for the answer. Dropping the future withdraws the question.
    async fn decide(
        &self,
        agent: &AgentInfo,
        asked: &ApprovalAsked,
    ) -> (crate::event::ApprovalAnswer, crate::event::ApprovalBy);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_form() {
        let check = |path: &str, expect: Option<&str>| assert_eq!(normalize_path(path).as_deref(), expect, "{path:?}");
        check("docs/a", Some("docs/a"));
        check("./docs//a/", Some("docs/a"));
        check(".", Some("."));
        check("", Some("."));
        check("/etc", None);
        check("a/../b", None);
        check("a\\b", None);
    }

    fn profile(paths: &[(&str, Access)], denied: &[(&str, Access)]) -> Profile {
        let grants = |list: &[(&str, Access)]| {
            list.iter().map(|(path, access)| PathGrant { path: (*path).into(), access: *access }).collect()
        };
        Profile { paths: grants(paths), denied: grants(denied), ..Profile::unrestricted() }
    }

    #[test]
    fn profiles_only_narrow() {
        use Access::{Read, Write};
        let all = Profile::unrestricted();
        let docs = profile(&[("docs", Write), (".", Read)], &[("docs/secret", Read)]);
        assert_eq!(all.intersect(&all), all);
        let both = all.intersect(&docs);
        let check = |path: &str, expect: Option<Access>| assert_eq!(both.access(path), expect, "{path}");
        check("docs/a", Some(Write));
        check("docs", Some(Write));
        check("docsy", Some(Read));
        check("docs/secret/x", None);
        let narrow = both.intersect(&profile(&[("docs", Read)], &[]));
        assert_eq!((narrow.access("docs/a"), narrow.access("src")), (Some(Read), None));
        assert_eq!(docs.intersect(&profile(&[("other", Write)], &[])).access("docs"), None);
    }

    #[test]
    fn names_and_hosts_in_both_stay() {
        let env = |left: &[&str], right: &[&str]| {
            let owned = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            intersect_patterns(&owned(left), &owned(right)).join(" ")
        };
        assert_eq!(env(&["*"], &["A", "B*"]), "A B*");
        assert_eq!(env(&["A*"], &["AB", "C"]), "AB");
        assert_eq!(env(&["A"], &["B"]), "");
    }
}
