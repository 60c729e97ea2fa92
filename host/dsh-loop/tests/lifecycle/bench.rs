//! A bench for one agent: the real providers, a scripted model, native plugins made of closures, and a recorder of all that is shown.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use dsh_loop::{AgentLoop, AgentOptions, AgentOwner, LoopAgent};
use dsh_seam::event::{Entry, Source};
use dsh_seam::failure::{FailureKind, FailureMode, PluginError, Seam};
use dsh_seam::ids::{AgentId, PluginName};
use dsh_seam::message::{ContentBlock, ResultBlock, ToolCall};
use dsh_seam::plugin::{Attached, Plugin};
use dsh_seam::services::{Agents, Budget, NoBudget, Services};
use dsh_seam::session::{Flush, FlushError, Observer, OpenSession, Sessions};
use dsh_seam::tools::{Annotations, Approver, Outcome, ToolContext, ToolDefinition, ToolProvider};
use dsh_seam::waterfall::{Listener, Next, RunContext, RunError, Waterfall};
use dsh_services::agents::AgentRegistry;
use dsh_services::approvals::{ApprovalDesks, HeadlessApprover};
use dsh_services::session::MemorySessions;
use dsh_services::system_prompt::SystemPromptSections;
use dsh_services::tools::ToolServices;
use dsh_testkit::line::{Details, line};
use dsh_testkit::script::messages;
use dsh_testkit::sessions::{altered, full_from, refusing};
pub use dsh_testkit::{Answer, plugin};
use dsh_testkit::{ManualClock, NoProcesses, OneModel, Script};
use futures::future::BoxFuture;

/// The time of every entry.
const NOW_MS: u64 = 1_000;

/// Records what is shown, a line each.
pub type Recorder = dsh_testkit::Recorder<LoopAgent>;

/// A failure of a plugin in a seam.
pub fn broken(seam: Seam) -> PluginError {
    PluginError {
        plugin: PluginName::new("bad").expect("valid"),
        seam,
        kind: FailureKind::Trap,
        message: "it broke".into(),
        code: None,
    }
}

/// What a test listener does.
pub enum Does {
    Fail,
    FailAfter,
    Hang,
}

#[async_trait]
impl<W: Waterfall> Listener<W> for Does {
    async fn handle(&self, _cx: &RunContext<W>, value: W::Value, next: Next<W>) -> Result<W::Outcome, PluginError> {
        match self {
            Does::Fail => Err(broken(W::SEAM)),
            Does::FailAfter => {
                let _: Result<W::Outcome, RunError> = next.run(value).await;
                Err(broken(W::SEAM))
            }
            Does::Hang => std::future::pending().await,
        }
    }
}

/// A listener made of a closure over the rest's outcome.
pub struct Answers<W: Waterfall>(pub Box<dyn Fn() -> W::Outcome + Send + Sync>);

#[async_trait]
impl<W: Waterfall> Listener<W> for Answers<W> {
    async fn handle(&self, _cx: &RunContext<W>, value: W::Value, next: Next<W>) -> Result<W::Outcome, PluginError> {
        next.run(value).await.map_err(|_| broken(W::SEAM))?;
        Ok((self.0)())
    }
}

/// What an observer does with an entry.
pub type Seen = dyn Fn(Arc<Entry>, u32) -> BoxFuture<'static, Result<(), PluginError>> + Send + Sync;

/// An observer made of a closure.
pub struct Watches {
    pub kinds: Vec<String>,
    pub seen: Box<Seen>,
}

#[async_trait]
impl Observer for Watches {
    fn kinds(&self) -> &[String] {
        &self.kinds
    }
    async fn on_entries(&self, entries: &[Arc<Entry>], depth: u32) -> Result<(), PluginError> {
        for entry in entries {
            (self.seen)(entry.clone(), depth).await?;
        }
        Ok(())
    }
}

/// A flush that never ends.
pub struct HangingFlush;

#[async_trait]
impl Flush for HangingFlush {
    async fn flush(&self) -> Result<(), FlushError> {
        std::future::pending().await
    }
}

/// Tools `ok` (answers), `safe` (the same, parallel-safe), `wait` (until it is cancelled).
pub struct SomeTools(Vec<ToolDefinition>);

impl SomeTools {
    pub fn new() -> Self {
        let tool = |name: &str, parallel_safe| ToolDefinition {
            name: name.into(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
            annotations: Annotations { parallel_safe, ..Annotations::default() },
        };
        Self(vec![tool("ok", false), tool("safe", true), tool("wait", false)])
    }
}

#[async_trait]
impl ToolProvider for SomeTools {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.0
    }
    async fn call(&self, cx: &ToolContext, call: ToolCall) -> Result<Outcome, PluginError> {
        if call.name == "wait" {
            cx.cancel.cancelled().await;
            return Ok(Outcome::error("aborted", "aborted"));
        }
        Ok(Outcome { content: vec![ResultBlock::text("done")], is_error: false, code: None, plugin: None })
    }
}

/// One agent and all around it.
pub struct Bench {
    pub recorder: Arc<Recorder>,
    pub model: Arc<Script>,
    pub agents: Arc<AgentRegistry>,
    pub sessions: Arc<dyn Sessions>,
    plugins: Vec<Arc<dyn Plugin>>,
    pub options: AgentOptions,
    pub approver: Arc<dyn Approver>,
    pub budget: Arc<dyn Budget>,
}

impl Bench {
    pub fn new(answers: Vec<Answer>) -> Self {
        let model = Arc::new(Script::new([("main", answers)], messages));
        let tools = plugin("tools", FailureMode::Closed, |_| Attached {
            provider: Some(Arc::new(SomeTools::new())),
            ..Attached::default()
        });
        Self {
            recorder: Arc::new(Recorder::new(|emitted| line(emitted, Details::default()))),
            model,
            agents: Arc::new(AgentRegistry::new()),
            sessions: Arc::new(MemorySessions::new(Arc::new(ManualClock::at(NOW_MS)))),
            plugins: vec![tools],
            options: AgentOptions { model: Some("script".into()), workspace: "/w".into(), ..AgentOptions::default() },
            approver: Arc::new(HeadlessApprover),
            budget: Arc::new(NoBudget),
        }
    }

    pub fn with(mut self, plugin: Arc<dyn Plugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// The log takes nothing from entry `seq` on.
    pub fn failing_at(self, seq: u64) -> Self {
        self.altered(move |session| full_from(session, seq))
    }

    /// The log refuses each entry with `word` in it as too large.
    pub fn too_large(self, word: &'static str) -> Self {
        self.altered(move |session| {
            refusing(session, move |entry| match serde_json::to_string(entry)?.contains(word) {
                true => Err(io::Error::new(io::ErrorKind::InvalidInput, "too long")),
                false => Ok(()),
            })
        })
    }

    fn altered(mut self, opened: impl Fn(OpenSession) -> OpenSession + Send + Sync + 'static) -> Self {
        self.sessions = altered(self.sessions, move |session| Ok(opened(session)));
        self
    }

    /// Runs `then` once, when the event has settled: a kind, or a whole line of the transcript.
    pub fn on(
        self,
        event: &str,
        then: impl Fn(Arc<LoopAgent>) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        self.recorder.on(event, then);
        self
    }

    /// The plugins, of which the first are the tools `ok`, `safe` and `wait`.
    pub fn plugins(&self) -> &[Arc<dyn Plugin>] {
        &self.plugins
    }

    pub fn agent_loop(&self) -> AgentLoop {
        let services = Services {
            agents: self.agents.clone(),
            sessions: self.sessions.clone(),
            llm: Arc::new(OneModel::new(self.model.clone())),
            tools: Arc::new(ToolServices::new(Arc::new(NoProcesses))),
            system_prompt: Arc::new(SystemPromptSections),
            approver: self.approver.clone(),
            approvals: Arc::new(ApprovalDesks),
            processes: Arc::new(NoProcesses),
            events: self.recorder.clone(),
            clock: Arc::new(ManualClock::at(NOW_MS)),
            budget: self.budget.clone(),
        };
        AgentLoop::new(services, self.plugins.clone())
    }

    /// An agent whose driver waits for its release.
    pub async fn held(&self) -> AgentOwner {
        let options = AgentOptions { held: true, ..self.options.clone() };
        let owner = self
            .agent_loop()
            .create(AgentId::new("main").expect("valid"), options)
            .await
            .expect("the agent can be made");
        self.recorder.is_about(owner.agent());
        owner
    }

    /// Sends the prompts, waits until the agent is idle, disposes it.
    pub async fn run(&self, prompts: &[&str]) -> String {
        let agent = self.held().await;
        for prompt in prompts {
            agent.send(text(prompt), Source::User).expect("there is room");
        }
        agent.release();
        agent.idle().await;
        agent.dispose("done").await;
        assert!(self.agents.list().is_empty(), "the id is free again");
        self.transcript()
    }

    /// What was shown so far, without the pieces of answers and the events that only repeat a durable one.
    pub fn transcript(&self) -> String {
        let chunks = ["assistant/chunk", "agent/stream-chunk"];
        let twins = ["agent/turn-start", "agent/turn-end", "agent/step-start", "agent/step-end", "agent/steering"];
        let left_out = [&chunks[..], &twins].concat();
        let mut lines = self.recorder.lines();
        lines.retain(|line| !left_out.contains(&line.as_str()));
        lines.join("\n")
    }
}

/// One text block.
pub fn text(text: &str) -> Vec<ContentBlock> {
    vec![ContentBlock::text(text)]
}
