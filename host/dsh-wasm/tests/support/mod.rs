//! What the tests of the engine share: components made of a few lines of WebAssembly text, and an agent that only remembers.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

pub mod round;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dsh_seam::draft::{DraftStart, ModelCatalog, RequestDraft};
use dsh_seam::event::{ApprovalAnswer, Entry, Event, ReasonKind, Source, TurnReason, UserMessage};
use dsh_seam::llm::{GenerateRequest, GenerateResponse};
use dsh_seam::message::{ContentBlock, Usage};
use dsh_seam::plugin::{Attached, Plugin, PluginContext};
use dsh_seam::subagents::{AgentReport, AgentTask};
use dsh_seam::tools::{
    ProcessCommand, ProcessExit, Processes, Profile, Progress, Question, ToolContext, ToolDefinition, ToolInfo,
};
use dsh_seam::view::History;
use dsh_seam::waterfall::{Chain, FailureReport, Innermost, Registered, RunContext, RunError};
use dsh_seam::waterfalls::Request;
use dsh_seam::{AgentId, AgentInfo, Failure, FailureMode, PluginError, PluginName, SessionId, StepRef};
use dsh_wasm::{Compiler, Engine, EngineOptions, LoadError, PluginSpec, WasmPlugin};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use dsh_text_guests::{component, component_with};

/// The world of a listener of `agent/request`.
pub const REQUEST_WORLD: &str = "import dsh:agent/agent-types@0.1.0; export dsh:agent/request@0.1.0;";

/// A listener of `agent/request`. In `body` the locals are `$request` and `$next`; it leaves the address of its result, `(call $ok)` for a
/// good one. `extra` stands outside of the function.
pub fn request_listener(extra: &str, body: &str) -> Vec<u8> {
    component(REQUEST_WORLD, &request_core(extra, body))
}

/// The core module of [`request_listener`].
pub fn request_core(extra: &str, body: &str) -> String {
    format!(
        r#"(module
            (import "dsh:agent/agent-types@0.1.0" "[method]llm-request.message-count" (func $count (param i32) (result i32)))
            (import "dsh:agent/agent-types@0.1.0" "[method]llm-request.set-system" (func $set_system (param i32 i32 i32 i32)))
            (import "dsh:agent/agent-types@0.1.0" "[method]request-next.run" (func $run (param i32 i32)))
            (import "dsh:agent/agent-types@0.1.0" "[resource-drop]llm-request" (func $drop_request (param i32)))
            (import "dsh:agent/agent-types@0.1.0" "[resource-drop]request-next" (func $drop_next (param i32)))
            (memory (export "memory") 2)
            (data (i32.const 64) "edited")
            {extra}
            (func $ok (result i32) (i32.store8 (i32.const 128) (i32.const 0)) (i32.const 128))
            (func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
                {body})
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
        )"#
    )
}

/// Drops both handles and returns well.
pub const DONE: &str = "(call $drop_request (local.get $request)) (call $drop_next (local.get $next)) (call $ok)";
/// Runs the rest, then [`DONE`].
pub const PASS: &str = "(call $run (local.get $next) (i32.const 256)) (call $drop_request (local.get $request)) (call $drop_next (local.get $next)) (call $ok)";

pub fn name(text: &str) -> PluginName {
    PluginName::new(text).expect("a plugin's name")
}

pub fn engine() -> Engine {
    Engine::new(EngineOptions::new(Compiler::InProcess)).expect("an engine")
}

pub fn spec(plugin: &str) -> PluginSpec {
    PluginSpec::new(name(plugin))
}

pub async fn load(engine: &Engine, bytes: &[u8], spec: PluginSpec) -> Result<Arc<WasmPlugin>, LoadError> {
    engine.load(bytes.to_vec(), spec).await
}

/// An agent that remembers what a plugin did to it.
pub struct Agent {
    plugin: PluginName,
    info: AgentInfo,
    pub cancel: CancellationToken,
    pub state: Mutex<BTreeMap<String, Arc<str>>>,
    pub refused: Mutex<Vec<String>>,
    pub appended: Mutex<Vec<(String, Value, u32)>>,
    pub inbox: Mutex<Vec<String>>,
}

impl Agent {
    pub fn new(plugin: &str) -> Arc<Self> {
        Arc::new(Self {
            plugin: name(plugin),
            info: AgentInfo {
                agent: AgentId::new("main").expect("an id"),
                session: SessionId::new("s1").expect("an id"),
                lineage: vec![],
            },
            cancel: CancellationToken::new(),
            state: Mutex::default(),
            refused: Mutex::default(),
            appended: Mutex::default(),
            inbox: Mutex::default(),
        })
    }

    /// Forgets what the plugin handed over; its state stays.
    pub fn forget(&self) {
        self.refused.lock().expect("not poisoned").clear();
        self.appended.lock().expect("not poisoned").clear();
        self.inbox.lock().expect("not poisoned").clear();
    }

    fn put(&self, way: &str, content: &[ContentBlock]) {
        let text: Vec<_> = content.iter().filter_map(ContentBlock::as_text).collect();
        self.inbox.lock().expect("not poisoned").push(format!("{way}: {}", text.join(" ")));
    }
}

#[async_trait]
impl PluginContext for Agent {
    fn plugin(&self) -> &PluginName {
        &self.plugin
    }
    fn agent(&self) -> &AgentInfo {
        &self.info
    }
    fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }
    fn at(&self) -> StepRef {
        StepRef { turn: 1, step: 1 }
    }
    async fn send(&self, content: Vec<ContentBlock>) -> Result<(), Failure> {
        self.put("send", &content);
        Ok(())
    }
    async fn steer(&self, content: Vec<ContentBlock>) -> Result<(), Failure> {
        self.put("steer", &content);
        Ok(())
    }
    async fn inject(&self, content: Vec<ContentBlock>) -> Result<(), Failure> {
        self.put("inject", &content);
        Ok(())
    }
    async fn read_log(&self, _start: u64, _limit: u32, _max_bytes: usize) -> Result<Vec<Entry>, Failure> {
        Ok(vec![])
    }
    async fn append_log(&self, kind: &str, data: Value, depth: u32) -> Result<u64, Failure> {
        let mut appended = self.appended.lock().expect("not poisoned");
        appended.push((kind.to_owned(), data, depth));
        Ok(appended.len() as u64 - 1)
    }
    fn state(&self, key: &str) -> Option<Arc<str>> {
        self.state.lock().expect("not poisoned").get(key).cloned()
    }
    fn state_keys(&self, prefix: &str) -> Vec<String> {
        self.state.lock().expect("not poisoned").keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }
    fn state_bytes(&self) -> usize {
        self.state.lock().expect("not poisoned").iter().map(|(key, value)| key.len() + value.len()).sum()
    }
    async fn commit_state(&self, changes: Vec<(String, Option<Value>)>, _depth: u32) -> Result<(), Failure> {
        let mut state = self.state.lock().expect("not poisoned");
        for (key, value) in changes {
            match value {
                Some(value) => state.insert(key, value.to_string().into()),
                None => state.remove(&key),
            };
        }
        Ok(())
    }
    fn tools(&self) -> Vec<ToolInfo> {
        vec![]
    }
    fn find_tool(&self, _name: &str) -> Option<ToolDefinition> {
        None
    }
    async fn generate(&self, _request: GenerateRequest) -> Result<GenerateResponse, Failure> {
        Err(Failure::new("not-available", "no model in this test"))
    }
    async fn ask(&self, _question: Question) -> Result<ApprovalAnswer, Failure> {
        Ok(ApprovalAnswer::AllowOnce)
    }
    async fn run_agent(&self, task: AgentTask, call: &ToolContext) -> Result<AgentReport, Failure> {
        let prompt: Vec<_> = task.prompt.iter().filter_map(ContentBlock::as_text).collect();
        let text = format!("{:?} {:?} {:?} for {}", prompt, task.start_from, task.tools, call.call_id);
        Ok(AgentReport {
            agent: AgentId::new("main.1").expect("valid"),
            session: SessionId::new("child").expect("valid"),
            text,
            reason: TurnReason::plain(ReasonKind::MaxSteps),
            usage: Usage::default(),
            turns: 1,
            steps: 2,
        })
    }
    async fn refused(&self, capability: &str, grant: &str) {
        self.refused.lock().expect("not poisoned").push(format!("{capability} {grant}"));
    }
}

struct NoModels;

impl ModelCatalog for NoModels {
    fn check_for_plugin(&self, model: &str) -> Result<(), Failure> {
        Err(Failure::invalid_argument(format!("no provider for `{model}`")))
    }
    fn context_window(&self, _model: &str) -> Option<u32> {
        None
    }
}

/// A request over a history of `messages` messages.
pub fn draft(messages: usize) -> Arc<RequestDraft> {
    draft_of((0..messages).map(|n| format!("message {n}")))
}

/// A request over a history of so many messages of so many bytes.
pub fn long_draft(messages: u32, bytes: usize) -> Arc<RequestDraft> {
    draft_of((0..messages).map(|_| "x".repeat(bytes)))
}

fn draft_of(texts: impl Iterator<Item = String>) -> Arc<RequestDraft> {
    let mut history = History::default();
    for text in texts {
        history
            .apply(&Event::UserMessage(UserMessage { content: vec![ContentBlock::text(text)], source: Source::User }));
    }
    Arc::new(RequestDraft::new(DraftStart {
        model: None,
        system: "system".into(),
        tools: [].into(),
        sampling: Arc::default(),
        history: Arc::new(history),
        last_usage: None,
        retry_of: None,
        models: Arc::new(NoModels),
    }))
}

/// Collects failures.
#[derive(Default)]
pub struct Report(pub Mutex<Vec<String>>);

#[async_trait]
impl FailureReport for Report {
    async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError> {
        self.0.lock().expect("not poisoned").push(format!("{:?}: {}", error.kind, error.message));
        Ok(())
    }
}

/// Runs `agent/request` over attachments.
pub async fn run_request(
    attached: &[&Attached],
    draft: Arc<RequestDraft>,
    innermost: Innermost<Request>,
) -> Result<(), RunError> {
    run_request_at(StepRef { turn: 1, step: 1 }, attached, draft, innermost).await
}

/// The same in another step.
pub async fn run_request_at(
    at: StepRef,
    attached: &[&Attached],
    draft: Arc<RequestDraft>,
    innermost: Innermost<Request>,
) -> Result<(), RunError> {
    let listeners: Arc<[_]> = attached
        .iter()
        .map(|attached| Registered {
            plugin: name("p"),
            mode: FailureMode::Closed,
            listener: attached.request.clone().expect("it listens to requests"),
        })
        .collect();
    let cx = RunContext { at, cancel: CancellationToken::new(), about: () };
    Chain::run(cx, listeners, Arc::new(Report::default()), draft, innermost).await.0
}

/// An innermost part that does nothing.
pub fn nothing() -> Innermost<Request> {
    Arc::new(|_| Box::pin(async { Ok(()) }))
}

/// Loads `bytes` with `spec` and attaches it to a fresh agent.
pub async fn attach(engine: &Engine, bytes: &[u8], spec: PluginSpec) -> (Attached, Arc<Agent>) {
    let agent = Agent::new(spec.name.as_str());
    let plugin = load(engine, bytes, spec).await.unwrap_or_else(|error| panic!("{error}; {}", error.hint()));
    (plugin.attach(agent.clone()), agent)
}

/// Where builds go.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from)
}

/// Answers with the command, the profile's access to `.`, and the names of the variables it was given.
pub struct FakeProcesses;

#[async_trait]
impl Processes for FakeProcesses {
    async fn run(
        &self,
        command: ProcessCommand,
        _profile: &Profile,
        env: &[String],
        _cancel: &CancellationToken,
    ) -> Result<ProcessExit, Failure> {
        let stdout = format!("{} {} {env:?}", command.program, command.args.join(" ")).into_bytes();
        Ok(ProcessExit { code: Some(0), stdout, stderr: vec![], timed_out: false, truncated: false })
    }
    fn enforceable(&self, _profile: &Profile) -> Result<(), Failure> {
        Ok(())
    }
}

#[derive(Default)]
pub struct Steps(Mutex<Vec<String>>);

impl Progress for Steps {
    fn report(&self, text: &str, fraction: Option<f32>) {
        self.0.lock().expect("not poisoned").push(format!("{text} {fraction:?}"));
    }
}

pub fn tool_context(profile: Profile, cancel: &CancellationToken) -> ToolContext {
    ToolContext { cancel: cancel.clone(), ..tool_context_at(StepRef { turn: 1, step: 2 }, &Arc::new(profile)) }
}

/// A call in step `at` under `profile`.
pub fn tool_context_at(at: StepRef, profile: &Arc<Profile>) -> ToolContext {
    ToolContext {
        agent: AgentInfo {
            agent: AgentId::new("main").expect("an id"),
            session: SessionId::new("s1").expect("an id"),
            lineage: vec![],
        },
        at,
        call_id: "call-1".into(),
        profile: profile.clone(),
        cancel: CancellationToken::new(),
        progress: Arc::new(Steps::default()),
        processes: Arc::new(FakeProcesses),
    }
}
