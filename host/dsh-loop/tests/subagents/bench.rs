//! A bench for families: a model that has a script for each agent, a tool `task` over the seam, and a recorder that says whose each
//! event is.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dsh_loop::{AgentLoop, AgentOptions, AgentOwner, LoopAgent};
use dsh_seam::event::{Entry, Source};
use dsh_seam::failure::{FailureMode, PluginError};
use dsh_seam::ids::AgentId;
use dsh_seam::llm::ModelRequest;
use dsh_seam::message::{ContentBlock, ToolCall};
use dsh_seam::plugin::{Attached, Plugin, PluginContext};
use dsh_seam::services::{NoBudget, Services, SystemClock};
use dsh_seam::session::{Observer, SessionError, Sessions};
use dsh_seam::subagents::{AgentTask, StartFrom};
use dsh_seam::tools::{Annotations, NetworkPolicy, Outcome, Profile, ToolContext, ToolDefinition, ToolProvider};
use dsh_seam::waterfall::{Listener, Next, RunContext};
use dsh_seam::waterfalls::{Execution, ToolsExecute};
use dsh_services::agents::AgentRegistry;
use dsh_services::approvals::{ApprovalDesks, HeadlessApprover};
use dsh_services::session::MemorySessions;
use dsh_services::system_prompt::SystemPromptSections;
use dsh_services::tools::ToolServices;
pub use dsh_testkit::Answer;
use dsh_testkit::line::{Details, line};
use dsh_testkit::script::messages;
use dsh_testkit::sessions::{altered, full_from};
use dsh_testkit::{NoProcesses, OneModel, Script};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Barrier;

/// A request: agent, model, system prompt, tools, messages.
fn request(request: &ModelRequest) -> String {
    let ModelRequest { agent, model, system, .. } = request;
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    format!("{agent} {model} [{system}] [{}] {}", tools.join(" "), messages(request))
}

/// Records what is shown, `agent event detail` a line; its hooks get the first agent.
pub type Recorder = dsh_testkit::Recorder<LoopAgent>;

/// What the lines say that the tests are about.
const DETAILS: Details = Details { bare: &["tool/call", "agent/disposed", "agent/dropped"], whole: true };

/// The tool `task` over the seam, and tools that show what a child has.
struct Tools {
    context: Arc<dyn PluginContext>,
    meeting: Arc<Barrier>,
    definitions: Vec<ToolDefinition>,
}

impl Tools {
    fn new(context: Arc<dyn PluginContext>, meeting: Arc<Barrier>) -> Self {
        let tool = |name: &str, parallel_safe| ToolDefinition {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            annotations: Annotations { parallel_safe, ..Annotations::default() },
        };
        Self {
            context,
            meeting,
            definitions: vec![tool("task", true), tool("look", true), tool("wait", true), tool("meet", true)],
        }
    }
}

#[async_trait]
impl ToolProvider for Tools {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }

    async fn call(&self, cx: &ToolContext, call: ToolCall) -> Result<Outcome, PluginError> {
        let arguments: Value = serde_json::from_str(&call.arguments).expect("the dispatcher has checked it");
        let text = |key: &str| arguments[key].as_str().map(str::to_owned);
        Ok(match call.name.as_str() {
            "look" => Outcome::text(format!(
                "{:?} {:?}",
                cx.profile.network,
                cx.agent.lineage.iter().map(AgentId::as_str).collect::<Vec<_>>()
            )),
            // Three must be there at once.
            "meet" => match tokio::time::timeout(Duration::from_secs(60), self.meeting.wait()).await {
                Ok(_) => Outcome::text("met"),
                Err(_) => Outcome::error("tool-failed", "alone"),
            },
            "wait" => {
                cx.cancel.cancelled().await;
                // A tool that takes its time to stop.
                tokio::time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or_default())).await;
                Outcome::error("aborted", "stopped")
            }
            _ => {
                let names = |list: &Vec<Value>| list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                let task = AgentTask {
                    prompt: vec![ContentBlock::text(text("prompt").unwrap_or_default())],
                    start_from: if arguments["fork"] == true { StartFrom::Fork } else { StartFrom::Fresh },
                    model: text("model"),
                    tools: arguments["tools"].as_array().map(names),
                    system: text("system"),
                    max_steps: arguments["steps"].as_u64().map(|steps| steps as u32),
                };
                match self.context.run_agent(task, cx).await {
                    Ok(report) => Outcome::text(format!("{:?} {}", report.reason.kind, report.text)),
                    Err(failure) => Outcome::error(failure.code, failure.message),
                }
            }
        })
    }
}

/// A native plugin.
pub fn plugin(
    name: &str,
    attach: impl Fn(Arc<dyn PluginContext>) -> Attached + Send + Sync + 'static,
) -> Arc<dyn Plugin> {
    dsh_testkit::plugin(name, FailureMode::Closed, attach)
}

/// Narrows what the calls of one tool may touch.
pub struct Narrows {
    pub tool: &'static str,
    pub profile: Profile,
}

impl Narrows {
    pub fn offline(tool: &'static str) -> Self {
        Self { tool, profile: Profile { network: NetworkPolicy::Closed, ..Profile::unrestricted() } }
    }
}

#[async_trait]
impl Listener<ToolsExecute> for Narrows {
    async fn handle(
        &self,
        _cx: &RunContext<ToolsExecute>,
        value: Execution,
        next: Next<ToolsExecute>,
    ) -> Result<Arc<Outcome>, PluginError> {
        let profile = match value.call.name == self.tool {
            true => Arc::new(value.profile.intersect(&self.profile)),
            false => value.profile.clone(),
        };
        let answer = next.run(Execution { profile, ..value }).await;
        Ok(answer.unwrap_or_else(|error| Arc::new(Outcome::error("tool-failed", error.to_string()))))
    }
}

/// Sends a message to the agent it is attached to when a turn starts, if another agent made it.
pub struct SpeaksToItself {
    context: Arc<dyn PluginContext>,
    kinds: Vec<String>,
}

impl SpeaksToItself {
    pub fn new(context: Arc<dyn PluginContext>) -> Self {
        Self { context, kinds: vec!["turn/start".into()] }
    }
}

#[async_trait]
impl Observer for SpeaksToItself {
    fn kinds(&self) -> &[String] {
        &self.kinds
    }
    async fn on_entries(&self, _entries: &[Arc<Entry>], _depth: u32) -> Result<(), PluginError> {
        if !self.context.agent().lineage.is_empty() {
            self.context.send(vec![ContentBlock::text("and more")]).await.expect("there is room");
        }
        Ok(())
    }
}

/// A family and all around it.
pub struct Bench {
    pub recorder: Arc<Recorder>,
    pub model: Arc<Script>,
    pub agents: Arc<AgentRegistry>,
    pub sessions: Arc<dyn Sessions>,
    memory: MemorySessions,
    plugins: Vec<Arc<dyn Plugin>>,
    pub options: AgentOptions,
}

impl Bench {
    pub fn new(scripts: &[(&str, &[Answer])]) -> Self {
        let answers = scripts.iter().map(|(agent, answers)| (*agent, answers.to_vec()));
        let model = Arc::new(Script::new(answers, request));
        let meeting = Arc::new(Barrier::new(3));
        let tools = plugin("tools", move |context| Attached {
            provider: Some(Arc::new(Tools::new(context, meeting.clone()))),
            ..Attached::default()
        });
        let memory = MemorySessions::new(Arc::new(SystemClock));
        Self {
            recorder: Arc::new(Recorder::new(|emitted| format!("{} {}", emitted.agent(), line(emitted, DETAILS)))),
            model,
            agents: Arc::new(AgentRegistry::new()),
            sessions: Arc::new(memory.clone()),
            memory,
            plugins: vec![tools],
            options: AgentOptions { model: Some("own".into()), workspace: "/w".into(), ..AgentOptions::default() },
        }
    }

    pub fn with(mut self, plugin: Arc<dyn Plugin>) -> Self {
        self.plugins.insert(0, plugin);
        self
    }

    /// The log of `agent` cannot be written from its entry `at` on; none: it cannot be made.
    pub fn failing(mut self, agent: &str, at: Option<u64>) -> Self {
        let agent = AgentId::new(agent).expect("valid");
        self.sessions = altered(self.sessions, move |session| match at {
            _ if session.header.agent != agent => Ok(session),
            Some(seq) => Ok(full_from(session, seq)),
            None => Err(SessionError::Locked(session.header.id)),
        });
        self
    }

    /// Runs `then` once, when the event with that line has settled.
    pub fn on(
        self,
        line: &str,
        then: impl Fn(Arc<LoopAgent>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        self.recorder.on(line, then);
        self
    }

    pub async fn create(&self) -> AgentOwner {
        let services = Services {
            agents: self.agents.clone(),
            sessions: self.sessions.clone(),
            llm: Arc::new(OneModel::new(self.model.clone())),
            tools: Arc::new(ToolServices::new(Arc::new(NoProcesses))),
            system_prompt: Arc::new(SystemPromptSections),
            approver: Arc::new(HeadlessApprover),
            approvals: Arc::new(ApprovalDesks),
            processes: Arc::new(NoProcesses),
            events: self.recorder.clone(),
            clock: Arc::new(SystemClock),
            budget: Arc::new(NoBudget),
        };
        let main = AgentId::new("main").expect("valid");
        let agents = AgentLoop::new(services, self.plugins.clone());
        let owner = agents.create(main, self.options.clone()).await.expect("the agent can be made");
        self.recorder.is_about(owner.agent());
        owner
    }

    /// Sends `go`, waits until the first agent is idle, disposes it; nothing of the family is left.
    pub async fn run(&self) -> String {
        let agent = self.create().await;
        agent.send(vec![ContentBlock::text("go")], Source::User).expect("there is room");
        agent.idle().await;
        agent.dispose("done").await;
        self.nothing_is_left().await;
        self.transcript()
    }

    /// All ids are free, and every session can be opened by its owner.
    pub async fn nothing_is_left(&self) {
        use dsh_seam::services::Agents;
        assert_eq!(self.agents.list(), [], "ids are taken");
        for summary in self.memory.list().await.expect("listed") {
            let header = summary.header;
            let open = self.memory.open(&header.id, &header.agent, Arc::new(Mutex::new(()))).await;
            assert!(open.is_ok(), "the session of {} is locked", header.agent);
        }
    }

    /// What was shown so far: the events that the tests are about.
    pub fn transcript(&self) -> String {
        let shown = [
            "user/message",
            "turn/end",
            "tool/call",
            "tool/result",
            "agent/status disposed",
            "agent/disposed",
            "agent/dropped",
        ];
        let lines = self.recorder.lines();
        let about = |line: &&String| {
            let event = line.split_once(' ').map_or("", |(_, event)| event);
            shown.iter().any(|shown| event.starts_with(shown))
        };
        lines.iter().filter(about).cloned().collect::<Vec<_>>().join("\n")
    }
}
