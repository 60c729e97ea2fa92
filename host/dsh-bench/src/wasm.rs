//! Components out of the build directory, loaded and attached without an agent.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::event::{ApprovalAnswer, Entry};
use dsh_seam::failure::Failure;
use dsh_seam::ids::{AgentId, AgentInfo, PluginName, SessionId, StepRef};
use dsh_seam::llm::{GenerateRequest, GenerateResponse};
use dsh_seam::message::ContentBlock;
use dsh_seam::plugin::{Plugin, PluginContext};
use dsh_seam::subagents::{AgentReport, AgentTask};
use dsh_seam::tools::{Question, ToolContext, ToolDefinition, ToolInfo};
use dsh_wasm::{Compiler, Engine, EngineOptions, PluginSpec};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Fallible, Places};

/// How many plugins a run is measured with.
pub const FIVE: usize = 5;

/// An engine as `dsh-host` makes it, without a cache.
pub fn engine() -> Fallible<Engine> {
    Ok(Engine::new(EngineOptions::new(Compiler::InProcess))?)
}

/// Loads the component `file` of `folder` under `name`.
pub async fn load(engine: &Engine, folder: &Path, file: &str, name: &str, config: Value) -> Fallible<Arc<dyn Plugin>> {
    let path = folder.join(format!("{file}.wasm"));
    let bytes = std::fs::read(&path)
        .map_err(|error| format!("{}: {error}; build it with `cargo xtask guests`", path.display()))?;
    let spec = PluginSpec { config, ..PluginSpec::new(PluginName::new(name)?) };
    Ok(engine.load(bytes, spec).await?)
}

/// Five plugins whose listeners pass everything on.
pub async fn five_noops(engine: &Engine, places: &Places) -> Fallible<Vec<Arc<dyn Plugin>>> {
    noops(engine, places, FIVE).await
}

/// So many of them.
pub async fn noops(engine: &Engine, places: &Places, count: usize) -> Fallible<Vec<Arc<dyn Plugin>>> {
    let mut plugins = Vec::with_capacity(count);
    for n in 1..=count {
        plugins
            .push(load(engine, &places.guests, "noop", &format!("noop-{n}"), Value::Object(Default::default())).await?);
    }
    Ok(plugins)
}

/// A plugin's surroundings in which nothing is there.
pub struct Nobody {
    plugin: PluginName,
    agent: AgentInfo,
}

impl Nobody {
    /// For the plugin of that name.
    pub fn for_plugin(plugin: &PluginName) -> Arc<dyn PluginContext> {
        let agent = AgentInfo {
            agent: AgentId::new("main").expect("invariant: a valid id"),
            session: SessionId::new("bench").expect("invariant: a valid id"),
            lineage: Vec::new(),
        };
        Arc::new(Self { plugin: plugin.clone(), agent })
    }
}

fn nothing<T>() -> Result<T, Failure> {
    Err(Failure::new("not-available", "nothing is here while a call is measured"))
}

#[async_trait]
impl PluginContext for Nobody {
    fn plugin(&self) -> &PluginName {
        &self.plugin
    }

    fn agent(&self) -> &AgentInfo {
        &self.agent
    }

    fn cancellation(&self) -> CancellationToken {
        CancellationToken::new()
    }

    fn at(&self) -> StepRef {
        StepRef { turn: 1, step: 1 }
    }

    async fn send(&self, _content: Vec<ContentBlock>) -> Result<(), Failure> {
        nothing()
    }

    async fn steer(&self, _content: Vec<ContentBlock>) -> Result<(), Failure> {
        nothing()
    }

    async fn inject(&self, _content: Vec<ContentBlock>) -> Result<(), Failure> {
        nothing()
    }

    async fn read_log(&self, _start: u64, _limit: u32, _max_bytes: usize) -> Result<Vec<Entry>, Failure> {
        nothing()
    }

    async fn append_log(&self, _kind: &str, _data: Value, _depth: u32) -> Result<u64, Failure> {
        nothing()
    }

    fn state(&self, _key: &str) -> Option<Arc<str>> {
        None
    }

    fn state_keys(&self, _prefix: &str) -> Vec<String> {
        Vec::new()
    }

    fn state_bytes(&self) -> usize {
        0
    }

    async fn commit_state(&self, _changes: Vec<(String, Option<Value>)>, _depth: u32) -> Result<(), Failure> {
        nothing()
    }

    fn tools(&self) -> Vec<ToolInfo> {
        Vec::new()
    }

    fn find_tool(&self, _name: &str) -> Option<ToolDefinition> {
        None
    }

    async fn generate(&self, _request: GenerateRequest) -> Result<GenerateResponse, Failure> {
        nothing()
    }

    async fn ask(&self, _question: Question) -> Result<ApprovalAnswer, Failure> {
        nothing()
    }

    async fn run_agent(&self, _task: AgentTask, _call: &ToolContext) -> Result<AgentReport, Failure> {
        nothing()
    }

    async fn refused(&self, _capability: &str, _grant: &str) {}
}
