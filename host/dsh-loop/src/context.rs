//! What a plugin can do on an agent's behalf. Each context belongs to one plugin and appends only that plugin's kinds.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use dsh_seam::event::{
    ApprovalAnswer, AskedQuestion, Entry, Event, ForeignEvent, PluginRefused, PluginState, Source, UsageEvent,
};
use dsh_seam::failure::Failure;
use dsh_seam::ids::{AgentInfo, PluginName, StepRef};
use dsh_seam::llm::{GenerateRequest, GenerateResponse, ModelRequest, RequestedBy};
use dsh_seam::message::{Chunk, ContentBlock, FinishReason, Message};
use dsh_seam::plugin::PluginContext;
use dsh_seam::session::check_own_entry;
use dsh_seam::subagents::{AgentReport, AgentTask};
use dsh_seam::tools::{ApprovalRequest, Question, ToolContext, ToolDefinition, ToolInfo};
use dsh_seam::view::MessageList;
use futures::StreamExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::queued::Queued;
use crate::stream::Assembly;

/// Different refusals of one plugin that are logged in one session. A plugin that asks for what it was not given can ask for anything.
const MAX_REFUSALS: usize = 256;

/// One plugin's context for one agent. It does not keep the agent alive.
pub(crate) struct Context {
    plugin: PluginName,
    info: AgentInfo,
    core: Weak<Core>,
    refused: Mutex<HashSet<String>>,
}

impl Context {
    pub(crate) fn new(plugin: PluginName, info: AgentInfo, core: Weak<Core>) -> Self {
        Self { plugin, info, core, refused: Mutex::default() }
    }

    fn core(&self) -> Result<Arc<Core>, Failure> {
        self.core.upgrade().ok_or_else(|| Failure::new("not-available", "the agent is gone"))
    }

    fn queued(&self, content: Vec<ContentBlock>) -> Result<Queued, Failure> {
        Queued::new(content, Source::Plugin { plugin: self.plugin.clone() })
    }
}

#[async_trait]
impl PluginContext for Context {
    fn plugin(&self) -> &PluginName {
        &self.plugin
    }

    fn agent(&self) -> &AgentInfo {
        &self.info
    }

    fn cancellation(&self) -> CancellationToken {
        self.core.upgrade().map_or_else(CancellationToken::new, |core| core.cancellation())
    }

    fn at(&self) -> StepRef {
        self.core.upgrade().map_or_else(StepRef::default, |core| core.journal.state().at())
    }

    async fn send(&self, content: Vec<ContentBlock>) -> Result<(), Failure> {
        self.core()?.inbox.enqueue(self.queued(content)?)
    }

    async fn steer(&self, content: Vec<ContentBlock>) -> Result<(), Failure> {
        self.core()?.inbox.steer(self.queued(content)?)
    }

    async fn inject(&self, content: Vec<ContentBlock>) -> Result<(), Failure> {
        self.core()?.inject(self.queued(content)?).await
    }

    async fn read_log(&self, start: u64, limit: u32, max_bytes: usize) -> Result<Vec<Entry>, Failure> {
        let entries = self.core()?.journal.read(start, limit, max_bytes).await;
        let entries =
            entries.map_err(|error| Failure::new("not-available", format!("the log could not be read: {error}")))?;
        let foreign_state =
            |entry: &Entry| matches!(&entry.event, Event::PluginState { plugin, .. } if *plugin != self.plugin);
        Ok(entries.into_iter().filter(|entry| !foreign_state(entry)).collect())
    }

    async fn append_log(&self, kind: &str, data: Value, depth: u32) -> Result<u64, Failure> {
        check_own_entry(kind, data.to_string().len())?;
        let event = Event::Foreign(ForeignEvent { kind: format!("plugin/{}/{kind}", self.plugin), data });
        let entry = self.core()?.journal.append_whole(event, depth).await.map_err(|error| error.to_failure())?;
        Ok(entry.seq)
    }

    fn state(&self, key: &str) -> Option<Arc<str>> {
        self.core.upgrade()?.journal.state().state_of(&self.plugin)?.get(key).cloned()
    }

    fn state_keys(&self, prefix: &str) -> Vec<String> {
        let Some(core) = self.core.upgrade() else { return Vec::new() };
        let state = core.journal.state();
        let keys = state.state_of(&self.plugin).into_iter().flat_map(|kept| kept.range(prefix.to_owned()..));
        keys.map(|(key, _)| key).take_while(|key| key.starts_with(prefix)).cloned().collect()
    }

    fn state_bytes(&self) -> usize {
        let Some(core) = self.core.upgrade() else { return 0 };
        let state = core.journal.state();
        state.state_of(&self.plugin).into_iter().flatten().map(|(key, value)| key.len() + value.len()).sum()
    }

    async fn commit_state(&self, changes: Vec<(String, Option<Value>)>, depth: u32) -> Result<(), Failure> {
        let (core, plugin) = (self.core()?, self.plugin.clone());
        // All of them or none: an abort must not leave half of what a call set.
        let journal = core.journal.clone();
        journal
            .whole(async move {
                for (key, value) in changes {
                    let event = Event::PluginState { plugin: plugin.clone(), state: PluginState { key, value } };
                    core.journal.append_at(event, depth, true).await.map_err(|error| error.to_failure())?;
                }
                Ok(())
            })
            .await
    }

    fn tools(&self) -> Vec<ToolInfo> {
        let Some(core) = self.core.upgrade() else { return Vec::new() };
        let tools = core.seams().tools.clone();
        tools.definitions().iter().filter_map(|tool| tools.find(&tool.name)).collect()
    }

    fn find_tool(&self, name: &str) -> Option<ToolDefinition> {
        self.core.upgrade()?.seams().tools.definitions().iter().find(|tool| tool.name == name).cloned()
    }

    async fn generate(&self, request: GenerateRequest) -> Result<GenerateResponse, Failure> {
        let core = self.core()?;
        if let Some(over) = core.services.budget.used_up() {
            return Err(Failure::new("limit", over.message));
        }
        let model = match &request.model {
            Some(model) => {
                core.services.llm.check_for_plugin(model)?;
                model.as_str().into()
            }
            None => {
                core.options.model.clone().ok_or_else(|| Failure::new("not-available", "the agent has no model"))?
            }
        };
        let messages = MessageList::of(request.messages);
        messages.check_pairs().map_err(|parted| Failure::invalid_argument(parted.to_string()))?;
        let at = core.journal.state().at();
        let request = ModelRequest {
            by: RequestedBy::Plugin(self.plugin.clone()),
            agent: self.info.agent.clone(),
            session: self.info.session.clone(),
            at,
            attempt: 1,
            model,
            system: request.system.unwrap_or_default().into(),
            messages,
            tools: request.tools.into(),
            sampling: Arc::new(request.sampling),
        };
        let cancel = core.cancellation();
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Failure::aborted()),
            answer = collect(&core, request) => answer?,
        };
        if let Some(usage) = answer.usage {
            let event = UsageEvent { turn: at.turn, step: at.step, usage, plugin: Some(self.plugin.clone()) };
            core.journal.append_whole(Event::Usage(event), 0).await.map_err(|error| error.to_failure())?;
        }
        Ok(answer)
    }

    async fn ask(&self, question: Question) -> Result<ApprovalAnswer, Failure> {
        let core = self.core()?;
        let Question { title, detail, remember } = question;
        let questions = vec![AskedQuestion { plugin: self.plugin.clone(), title, detail, remember }];
        let request = ApprovalRequest { at: self.at(), call: None, questions };
        let decided =
            core.seams().approvals.ask(request, &core.cancellation()).await.map_err(|error| error.to_failure())?;
        match decided.answer {
            ApprovalAnswer::Aborted => Err(Failure::aborted()),
            answer => Ok(answer),
        }
    }

    async fn run_agent(&self, task: AgentTask, call: &ToolContext) -> Result<AgentReport, Failure> {
        self.core()?.run_child(task, call).await
    }

    async fn refused(&self, capability: &str, grant: &str) {
        let first = {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            refused.len() < MAX_REFUSALS && refused.insert(capability.to_owned())
        };
        if let Ok(core) = self.core()
            && first
        {
            let event = PluginRefused {
                plugin: self.plugin.clone(),
                capability: capability.to_owned(),
                grant: grant.to_owned(),
            };
            // A failing append reports itself.
            let _ = core.journal.append_whole(Event::PluginRefused(event), 0).await;
        }
    }
}

/// Waits for a whole answer. A model that fails midway is an answer that says so; one that does not answer at all is a failure.
async fn collect(core: &Core, request: ModelRequest) -> Result<GenerateResponse, Failure> {
    let told = |failure: dsh_seam::ModelFailure| Failure::new(failure.code, failure.message);
    let model = core.services.llm.model(&request.model).map_err(told)?;
    let mut stream = model.stream(Arc::new(request)).await.map_err(told)?;
    let mut answer = Assembly::default();
    let mut failed = None;
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(chunk) => {
                answer.push(&chunk);
                if matches!(chunk, Chunk::Finish { .. }) {
                    break;
                }
                if answer.is_too_large() {
                    failed = Some(told(Assembly::too_large()));
                    break;
                }
            }
            Err(failure) => {
                failed = Some(told(failure));
                break;
            }
        }
    }
    let usage = answer.usage();
    let outcome = failed.map_or_else(|| answer.finish().map_err(told), Err);
    let (message, finish) = outcome.unwrap_or_else(|failure| {
        let said = answer.interrupted().unwrap_or_default();
        (Message::assistant(said), FinishReason::Error(failure))
    });
    Ok(GenerateResponse { message, usage, finish })
}
