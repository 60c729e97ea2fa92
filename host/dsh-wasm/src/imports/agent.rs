//! `dsh:agent`: the request being shaped, the rest of a waterfall, the inbox, sub-agents.

use std::sync::Arc;

use wasmtime::component::Resource;

use crate::bindings::dsh::agent::{agent_types, agents, inbox};
use crate::bindings::dsh::llm::llm_types::{self, ContentBlock, Failure};
use crate::clock::Wait;
use crate::convert;
use crate::grants::Grant;
use crate::handles::{LlmRequest, RequestErrorNext, RequestNext, StepResultNext, TurnContinuationNext};
use crate::heavy;
use crate::store::GuestState;
use crate::words::{self, Message, RequestDraft, RunError};

/// What a tool weighs: its description and its schema.
const TOOL_WEIGHT: usize = 1_024;

type Res<T> = wasmtime::Result<T>;
type Answer<T> = wasmtime::Result<Result<T, Failure>>;

impl GuestState {
    fn draft(&mut self, handle: &Resource<LlmRequest>) -> Res<Arc<RequestDraft>> {
        self.enter()?;
        Ok(self.handles.get(handle)?.0.clone())
    }
}

fn told(error: &RunError) -> Failure {
    convert::failure(error.to_failure())
}

impl agent_types::Host for GuestState {}

impl agent_types::HostLlmRequest for GuestState {
    fn model(&mut self, handle: Resource<LlmRequest>) -> Res<Option<String>> {
        let model = self.draft(&handle)?.model().map(|model| model.as_ref().to_owned());
        Ok(self.gives(model))
    }

    fn set_model(&mut self, handle: Resource<LlmRequest>, model: String) -> Answer<()> {
        let draft = self.draft(&handle)?;
        self.takes(&model);
        Ok(draft.set_model(&self.core.name, &model).map_err(convert::failure))
    }

    fn system(&mut self, handle: Resource<LlmRequest>) -> Res<String> {
        let system = self.draft(&handle)?.system().as_ref().to_owned();
        Ok(self.gives(system))
    }

    fn set_system(&mut self, handle: Resource<LlmRequest>, text: String) -> Answer<()> {
        let draft = self.draft(&handle)?;
        self.takes(&text);
        draft.set_system(&self.core.name, &text);
        Ok(Ok(()))
    }

    async fn tools(&mut self, handle: Resource<LlmRequest>) -> Res<Vec<llm_types::ToolSchema>> {
        let tools = self.draft(&handle)?.tools();
        let weight = tools.len().saturating_mul(TOOL_WEIGHT);
        let tools = Self::work(&self.clock, weight, move || tools.iter().map(convert::tool_schema).collect()).await;
        Ok(self.gives(tools))
    }

    async fn set_tools(&mut self, handle: Resource<LlmRequest>, tools: Vec<llm_types::ToolSchema>) -> Answer<()> {
        let draft = self.draft(&handle)?;
        self.takes(&tools);
        let longest = self.check_lists(&tools)?;
        let (weight, core) = (heavy::weight(&tools, longest), self.core.clone());
        let set = move || match convert::tool_schemas_in(tools) {
            Ok(tools) => draft.set_tools(&core.name, tools).map_err(convert::failure),
            Err(ill) => Err(convert::invalid(&ill)),
        };
        Ok(Self::work(&self.clock, weight, set).await)
    }

    fn sampling(&mut self, handle: Resource<LlmRequest>) -> Res<llm_types::Sampling> {
        let sampling = convert::sampling(&self.draft(&handle)?.sampling());
        Ok(self.gives(sampling))
    }

    async fn set_sampling(&mut self, handle: Resource<LlmRequest>, sampling: llm_types::Sampling) -> Answer<()> {
        let draft = self.draft(&handle)?;
        self.takes(&sampling);
        let longest = self.check_lists(&sampling)?;
        let (weight, core) = (heavy::weight(&sampling, longest), self.core.clone());
        let set = move || match convert::sampling_in(sampling) {
            Ok(sampling) => draft.set_sampling(&core.name, sampling).map_err(convert::failure),
            Err(ill) => Err(convert::invalid(&ill)),
        };
        Ok(Self::work(&self.clock, weight, set).await)
    }

    fn message_count(&mut self, handle: Resource<LlmRequest>) -> Res<u32> {
        self.enter()?;
        Ok(self.handles.get(&handle)?.0.message_count())
    }

    async fn outline(
        &mut self,
        handle: Resource<LlmRequest>,
        start: u32,
        count: u32,
    ) -> Answer<Vec<agent_types::MessageOutline>> {
        let messages = match self.draft(&handle)?.messages(start, count) {
            Ok(messages) => messages,
            Err(failure) => return Ok(Err(convert::failure(failure))),
        };
        let weight = messages.len().saturating_mul(heavy::ITEM_WEIGHT);
        let outlines = move || messages.iter().map(|message| convert::outline(message)).collect();
        let outlines = Self::work(&self.clock, weight, outlines).await;
        Ok(Ok(self.gives(outlines)))
    }

    async fn messages(
        &mut self,
        handle: Resource<LlmRequest>,
        start: u32,
        count: u32,
    ) -> Answer<Vec<llm_types::Message>> {
        let messages = match self.draft(&handle)?.messages(start, count) {
            Ok(messages) => messages,
            Err(failure) => return Ok(Err(convert::failure(failure))),
        };
        let weight = messages.iter().map(|message| message.bytes as usize + heavy::ITEM_WEIGHT).sum();
        let copies = move || messages.iter().map(|message| convert::message(&message.message)).collect();
        let copies = Self::work(&self.clock, weight, copies).await;
        Ok(Ok(self.gives(copies)))
    }

    async fn splice(
        &mut self,
        handle: Resource<LlmRequest>,
        start: u32,
        count: u32,
        replacement: Vec<llm_types::Message>,
    ) -> Answer<()> {
        let draft = self.draft(&handle)?;
        self.takes(&replacement);
        let longest = self.check_lists(&replacement)?;
        let (weight, core) = (heavy::weight(&replacement, longest), self.core.clone());
        let splice = move || match convert::messages_in("replacement", replacement) {
            Ok(messages) => draft.splice(&core.name, start, count, messages).map_err(convert::failure),
            Err(ill) => Err(convert::invalid(&ill)),
        };
        Ok(Self::work(&self.clock, weight, splice).await)
    }

    async fn compact(
        &mut self,
        handle: Resource<LlmRequest>,
        start: u32,
        count: u32,
        replacement: Vec<llm_types::Message>,
    ) -> Answer<()> {
        let draft = self.draft(&handle)?;
        self.takes(&replacement);
        let longest = self.check_lists(&replacement)?;
        let (weight, core) = (heavy::weight(&replacement, longest), self.core.clone());
        let compact = move || match convert::messages_in("replacement", replacement) {
            Ok(messages) => draft.compact(&core.name, start, count, messages).map_err(convert::failure),
            Err(ill) => Err(convert::invalid(&ill)),
        };
        Ok(Self::work(&self.clock, weight, compact).await)
    }

    fn estimated_tokens(&mut self, handle: Resource<LlmRequest>) -> Res<u32> {
        Ok(self.draft(&handle)?.estimated_tokens())
    }

    fn context_window(&mut self, handle: Resource<LlmRequest>) -> Res<Option<u32>> {
        Ok(self.draft(&handle)?.context_window())
    }

    fn last_usage(&mut self, handle: Resource<LlmRequest>) -> Res<Option<llm_types::Usage>> {
        Ok(self.draft(&handle)?.last_usage().map(convert::usage))
    }

    fn retry_of(&mut self, handle: Resource<LlmRequest>) -> Res<Option<agent_types::RequestFailure>> {
        let failure = self.draft(&handle)?.retry_of().map(convert::request_failure);
        Ok(self.gives(failure))
    }

    fn drop(&mut self, handle: Resource<LlmRequest>) -> Res<()> {
        self.handles.dropped(handle.rep());
        Ok(())
    }
}

impl agent_types::HostRequestNext for GuestState {
    async fn run(&mut self, handle: Resource<RequestNext>) -> Answer<()> {
        self.enter()?;
        let RequestNext(next, draft) = self.handles.get(&handle)?;
        let outcome = Self::waiting(&self.clock, Wait::Excluded, next.run(draft.clone())).await;
        Ok(outcome.map_err(|error| told(&error)))
    }

    fn drop(&mut self, handle: Resource<RequestNext>) -> Res<()> {
        self.handles.dropped(handle.rep());
        Ok(())
    }
}

impl agent_types::HostRequestErrorNext for GuestState {
    async fn run(&mut self, handle: Resource<RequestErrorNext>) -> Answer<agent_types::Recovery> {
        self.enter()?;
        let next = &self.handles.get(&handle)?.0;
        let outcome = Self::waiting(&self.clock, Wait::Excluded, next.run(())).await;
        Ok(outcome.map(convert::recovery).map_err(|error| told(&error)))
    }

    fn streamed(&mut self, handle: Resource<RequestErrorNext>) -> Res<bool> {
        self.enter()?;
        Ok(self.handles.get(&handle)?.1.streamed)
    }

    fn codes(&mut self, handle: Resource<RequestErrorNext>) -> Res<Vec<String>> {
        self.enter()?;
        let codes = self.handles.get(&handle)?.1.codes.clone();
        Ok(self.gives(codes))
    }

    fn waited_ms(&mut self, handle: Resource<RequestErrorNext>) -> Res<u32> {
        self.enter()?;
        let waited = self.handles.get(&handle)?.1.waited;
        Ok(u32::try_from(waited.as_millis()).unwrap_or(u32::MAX))
    }

    fn drop(&mut self, handle: Resource<RequestErrorNext>) -> Res<()> {
        self.handles.dropped(handle.rep());
        Ok(())
    }
}

/// The message that a guest passed on, or `given` itself when it is the same: what is the same is not a change.
pub(crate) fn passed_on(
    field: &str,
    message: llm_types::Message,
    given: &Arc<Message>,
) -> Result<Arc<Message>, convert::IllFormed> {
    let message = convert::message_in(field, message)?;
    if message.role != given.role {
        return Err(convert::IllFormed::new(format!("{field}.role"), "is not `assistant`"));
    }
    Ok(if message == **given { given.clone() } else { Arc::new(message) })
}

impl agent_types::HostStepResultNext for GuestState {
    async fn run(
        &mut self,
        handle: Resource<StepResultNext>,
        message: llm_types::Message,
    ) -> Answer<llm_types::Message> {
        self.enter()?;
        self.takes(&message);
        self.check_lists(&message)?;
        let StepResultNext(next, given) = self.handles.get(&handle)?;
        let message = match passed_on("message", message, given) {
            Ok(message) => message,
            Err(ill) => return Ok(Err(convert::invalid(&ill))),
        };
        let outcome = Self::waiting(&self.clock, Wait::Excluded, next.run(message)).await;
        if let (Ok(answered), Ok(known)) = (&outcome, self.handles.get(&handle)) {
            // What the rest answered last is what an unchanged answer is compared with.
            known.1 = answered.clone();
        }
        let answer = outcome.map(|message| convert::message(&message)).map_err(|error| told(&error));
        Ok(self.gives(answer))
    }

    fn drop(&mut self, handle: Resource<StepResultNext>) -> Res<()> {
        self.handles.dropped(handle.rep());
        Ok(())
    }
}

impl agent_types::HostTurnContinuationNext for GuestState {
    async fn run(
        &mut self,
        handle: Resource<TurnContinuationNext>,
        proposal: agent_types::Decision,
    ) -> Answer<agent_types::Decision> {
        self.enter()?;
        self.takes(&proposal);
        let next = &self.handles.get(&handle)?.0;
        let outcome = Self::waiting(&self.clock, Wait::Excluded, next.run(convert::decision_in(proposal))).await;
        let answer = outcome.map(|decision| convert::decision(&decision)).map_err(|error| told(&error));
        Ok(self.gives(answer))
    }

    fn drop(&mut self, handle: Resource<TurnContinuationNext>) -> Res<()> {
        self.handles.dropped(handle.rep());
        Ok(())
    }
}

/// How a message reaches the agent.
#[derive(Clone, Copy)]
enum Way {
    Send,
    Steer,
    Inject,
}

impl GuestState {
    async fn put(&mut self, way: Way, content: Vec<ContentBlock>) -> Answer<()> {
        self.enter()?;
        self.takes(&content);
        self.check_lists(&content)?;
        let session = match self.granted(Grant::Inbox).await {
            Ok(session) => session,
            Err(refused) => return Ok(Err(refused)),
        };
        let content = match convert::blocks_in("content", content) {
            Ok(content) => content,
            Err(ill) => return Ok(Err(convert::invalid(&ill))),
        };
        let weight = serde_json::to_string(&content).map_or(0, |text| text.len());
        if let Err(limit) = self.hand_over(weight) {
            return Ok(Err(limit));
        }
        let put = async {
            match way {
                Way::Send => session.send(content).await,
                Way::Steer => session.steer(content).await,
                Way::Inject => session.inject(content).await,
            }
        };
        Ok(Self::waiting(&self.clock, Wait::Counted, put).await.map_err(convert::failure))
    }
}

impl inbox::Host for GuestState {
    async fn send(&mut self, content: Vec<ContentBlock>) -> Answer<()> {
        self.put(Way::Send, content).await
    }

    async fn steer(&mut self, content: Vec<ContentBlock>) -> Answer<()> {
        self.put(Way::Steer, content).await
    }

    async fn inject(&mut self, content: Vec<ContentBlock>) -> Answer<()> {
        self.put(Way::Inject, content).await
    }
}

impl agents::Host for GuestState {
    async fn run(&mut self, task: agents::Task) -> Answer<agents::Report> {
        self.enter()?;
        self.takes(&task);
        self.check_lists(&task)?;
        let session = match self.granted(Grant::Agents).await {
            Ok(session) => session,
            Err(refused) => return Ok(Err(refused)),
        };
        let Some(tool) = self.call.tool.clone() else {
            let message = format!("a sub-agent can work inside `call-tool` only, not in `{}`", self.call.seam);
            return Ok(Err(convert::failure(words::Failure::new("not-available", message))));
        };
        let task = match convert::agent_task_in(task) {
            Ok(task) => task,
            Err(ill) => return Ok(Err(convert::invalid(&ill))),
        };
        let weight = serde_json::to_string(&task.prompt).map_or(0, |text| text.len());
        if let Err(limit) = self.hand_over(weight) {
            return Ok(Err(limit));
        }
        self.outside_call()?;
        let report = Self::waiting(&self.clock, Wait::Excluded, session.run_agent(task, &tool)).await;
        let report = report.map(|report| convert::agent_report(&report)).map_err(convert::failure);
        Ok(self.gives(report))
    }
}
