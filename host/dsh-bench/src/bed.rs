//! Agents in this process: real services, a model that knows its lines, a tool that does nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dsh_loop::{AgentLoop, AgentOptions, AgentOwner};
use dsh_seam::event::{Emitted, Event, Source};
use dsh_seam::failure::{FailureMode, ModelFailure, PluginError};
use dsh_seam::ids::AgentId;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::{BlockType, Chunk, ContentBlock, FinishReason, ToolCall};
use dsh_seam::plugin::{Attached, EventSink, Plugin};
use dsh_seam::services::{NoBudget, Services, SystemClock};
use dsh_seam::session::Sessions;
use dsh_seam::tools::{Annotations, Outcome, Processes, ToolContext, ToolDefinition, ToolProvider};
use dsh_services::agents::AgentRegistry;
use dsh_services::approvals::{ApprovalDesks, FixedApprover};
use dsh_services::session::MemorySessions;
use dsh_services::system_prompt::SystemPromptSections;
use dsh_services::tools::ToolServices;
use dsh_testkit::{NoProcesses, OneModel, plugin};
use futures::StreamExt;

use crate::Fallible;

/// The tool that does nothing.
pub const TOOL: &str = "nothing";
/// Tokens that the model takes: more than any row here fills.
const CONTEXT_WINDOW: u32 = 1_000_000;

/// Asks for one tool call a step until `steps`, then says a word; each answer takes `latency`.
struct Scripted {
    steps: u32,
    latency: Duration,
}

#[async_trait]
impl Model for Scripted {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        if !self.latency.is_zero() {
            tokio::time::sleep(self.latency).await;
        }
        let chunks = if request.at.step < self.steps { call(request.at.step) } else { word() };
        Ok(futures::stream::iter(chunks.into_iter().map(Ok)).boxed())
    }
}

fn call(step: u32) -> Vec<Chunk> {
    let call = ToolCall {
        id: format!("call-{step}"),
        name: TOOL.into(),
        arguments: r#"{"path":"src/main.rs"}"#.into(),
        opaque: None,
    };
    let delta = Chunk::ToolCallDelta {
        index: 0,
        id: call.id.clone(),
        name: Some(call.name.clone()),
        arguments_delta: call.arguments.clone(),
    };
    vec![
        Chunk::BlockStart { index: 0, block_type: BlockType::ToolCall },
        delta,
        Chunk::BlockEnd { index: 0, block: ContentBlock::ToolCall(call) },
        Chunk::Finish { reason: FinishReason::ToolCalls },
    ]
}

fn word() -> Vec<Chunk> {
    vec![
        Chunk::BlockStart { index: 0, block_type: BlockType::Text },
        Chunk::TextDelta { index: 0, text: "done".into() },
        Chunk::BlockEnd { index: 0, block: ContentBlock::text("done") },
        Chunk::Finish { reason: FinishReason::Stop },
    ]
}

/// Notes when each step began, and whether anything went wrong.
#[derive(Default)]
pub struct Marks {
    starts: Mutex<Vec<Instant>>,
    wrong: Mutex<Option<String>>,
}

impl Marks {
    /// An error when anything went wrong.
    pub fn check(&self) -> Fallible<()> {
        match self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(wrong) => Err(wrong.into()),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl EventSink for Marks {
    fn emit(&self, emitted: &Emitted) {
        let Emitted::Durable(entry) = emitted else { return };
        match &entry.event {
            Event::StepStart(_) => self.starts.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now()),
            Event::Error(error) => {
                *self.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.message.clone())
            }
            _ => {}
        }
    }

    async fn settled(&self, _emitted: &Emitted) {}
}

/// The tool that does nothing.
struct NativeTool(Arc<[ToolDefinition]>);

/// A plugin with the tool that does nothing.
pub fn native_tool() -> Arc<dyn Plugin> {
    let parameters =
        serde_json::json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
    let annotations = Annotations { read_only: true, ..Annotations::default() };
    let definition = ToolDefinition { name: TOOL.into(), description: "Does nothing.".into(), parameters, annotations };
    let definitions: Arc<[ToolDefinition]> = Arc::new([definition]);
    plugin("native", FailureMode::Closed, move |_| Attached {
        provider: Some(Arc::new(NativeTool(definitions.clone()))),
        ..Attached::default()
    })
}

#[async_trait]
impl ToolProvider for NativeTool {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.0
    }

    async fn call(&self, _cx: &ToolContext, _call: ToolCall) -> Result<Outcome, PluginError> {
        Ok(Outcome::text("ok"))
    }
}

/// Sessions in memory.
pub fn memory_sessions() -> Arc<dyn Sessions> {
    Arc::new(MemorySessions::new(Arc::new(SystemClock)))
}

/// Real services around a model that makes a turn of `steps` steps and answers at once.
pub fn services(steps: u32, sessions: Arc<dyn Sessions>, events: Arc<dyn EventSink>) -> Services {
    services_with_latency(steps, Duration::ZERO, sessions, events)
}

/// The same with a model that takes `latency` for each answer.
pub fn services_with_latency(
    steps: u32,
    latency: Duration,
    sessions: Arc<dyn Sessions>,
    events: Arc<dyn EventSink>,
) -> Services {
    let processes: Arc<dyn Processes> = Arc::new(NoProcesses);
    Services {
        agents: Arc::new(AgentRegistry::new()),
        sessions,
        llm: Arc::new(OneModel::with_context_window(Arc::new(Scripted { steps, latency }), CONTEXT_WINDOW)),
        tools: Arc::new(ToolServices::new(processes.clone())),
        system_prompt: Arc::new(SystemPromptSections),
        approver: Arc::new(FixedApprover::allow()),
        approvals: Arc::new(ApprovalDesks),
        processes,
        events,
        clock: Arc::new(SystemClock),
        budget: Arc::new(NoBudget),
    }
}

/// An agent called `id`, idle.
pub async fn agent(agents: &AgentLoop, id: &str) -> Fallible<AgentOwner> {
    let options = AgentOptions {
        model: Some("bench/model".into()),
        system_prompt: "You are measured.".into(),
        max_steps: 0,
        workspace: "/".into(),
        ..AgentOptions::default()
    };
    Ok(agents.create(AgentId::new(id)?, options).await?)
}

/// Lets the agent do one turn.
pub async fn turn(agent: &AgentOwner) -> Fallible<()> {
    agent.send(vec![ContentBlock::text("go")], Source::User)?;
    agent.idle().await;
    Ok(())
}

/// How long each step of one turn took: one fewer than `steps`, since a step ends where the next begins.
pub async fn time_steps(
    steps: u32,
    sessions: Arc<dyn Sessions>,
    plugins: &[Arc<dyn Plugin>],
) -> Fallible<Vec<Duration>> {
    let marks = Arc::new(Marks::default());
    let plugins = plugins.iter().cloned().chain([native_tool()]).collect();
    let agents = AgentLoop::new(services(steps, sessions, marks.clone()), plugins);
    let agent = agent(&agents, "main").await?;
    turn(&agent).await?;
    agent.dispose("measured").await;
    marks.check()?;
    let starts = marks.starts.lock().unwrap_or_else(PoisonError::into_inner);
    let times: Vec<Duration> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    if times.len() + 1 != steps as usize {
        return Err(format!("the turn had {} steps, not {steps}", times.len() + 1).into());
    }
    Ok(times)
}
