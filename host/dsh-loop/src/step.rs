//! One step: shape a request, call the model, shape its answer, run the tools it asked for, and close the step in the log.

use std::sync::Arc;
use std::time::Duration;

use dsh_seam::draft::{DraftStart, FinishedDraft, RequestDraft, RequestFailure};
use dsh_seam::event::{AssistantChunk, AssistantMessage, Event, RequestFailed, RequestSent, StepMark, UsageEvent};
use dsh_seam::failure::{ModelFailure, Seam};
use dsh_seam::ids::StepRef;
use dsh_seam::llm::{ModelRequest, RequestedBy};
use dsh_seam::message::{Chunk, ContentBlock, FinishReason, Message, Role, ToolSchema, Usage};
use dsh_seam::view::MessageList;
use dsh_seam::waterfall::{Chain, Innermost, RunContext, RunError};
use dsh_seam::waterfalls::{FailedRequest, Recovery, Request, RequestError, StepResult};
use futures::StreamExt;
use tracing::Instrument as _;

use crate::call_ids::make_unique;
use crate::core::Core;
use crate::frames::Prompt;
use crate::journal::TOO_LARGE;
use crate::queued::Queued;
use crate::spans;
use crate::stop::Stop;
use crate::stream::Assembly;
use crate::turn_token::TurnToken;

/// How often one step may call the model: an outage is not waited out by one step.
pub(crate) const MAX_ATTEMPTS: u32 = 10;
/// The longest wait before another attempt: who asks for more (a provider whose quota is used up, a plugin that wants to stall the agent) is
/// told no at once.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(3600);

/// What a step did.
#[derive(Debug)]
pub(crate) struct StepDone {
    pub(crate) finish: FinishReason,
    pub(crate) tool_calls: u32,
    pub(crate) steered: bool,
    pub(crate) usage: Option<Usage>,
}

/// One model request of a step.
struct Attempt {
    number: u32,
    prompt: Prompt,
    tools: Arc<[ToolSchema]>,
    retry_of: Option<RequestFailure>,
}

impl Core {
    /// One step. `last` when max-steps allows no other; `head` is the text of the continuation before it.
    pub(crate) async fn step(
        &self,
        at: StepRef,
        last: bool,
        head: Option<Queued>,
        token: &TurnToken,
    ) -> Result<StepDone, Stop> {
        self.may_go_on(token)?;
        self.log_steering(at.turn, head).await?;
        if token.token().is_cancelled() {
            return Err(Stop::Cancelled);
        }
        self.held.step_opens().await;
        self.journal.append(Event::StepStart(StepMark { turn: at.turn, step: at.step })).await?;
        let mut spent = None;
        let mut done = self.ask_and_act(at, token, &mut spent).await;
        if let Err(Stop::Dead) = done {
            return done;
        }
        if let Err(stop) = &done
            && let Err(unlogged) = self.settle_broken_step(at, stop, spent).await
        {
            // What is too large for the log is left out; the step is closed all the same.
            match Stop::from(unlogged) {
                Stop::Dead => return Err(Stop::Dead),
                Stop::Cancelled | Stop::Fail(_) => {}
            }
        }
        if let Ok(done) = &mut done
            && !last
            && done.finish != FinishReason::MaxTokens
        {
            done.steered = self.log_steering(at.turn, None).await? > 0;
        }
        self.log_held().await?;
        self.journal.append(Event::StepEnd(StepMark { turn: at.turn, step: at.step })).await?;
        done
    }

    /// What a step that did not come to its end still owes the log: the interrupted message after an abort, and the usage.
    async fn settle_broken_step(&self, at: StepRef, stop: &Stop, spent: Option<Usage>) -> Result<(), RunError> {
        let (interrupted, usage) = {
            let state = self.journal.state();
            match state.open.as_ref().and_then(|turn| turn.step.as_ref()) {
                Some(step) if !step.message_logged => {
                    let interrupted = if *stop == Stop::Cancelled { step.stream.interrupted() } else { None };
                    (interrupted, plus(spent, step.stream.usage()))
                }
                _ => (None, None),
            }
        };
        if let Some(content) = interrupted {
            self.journal
                .append(Event::AssistantMessage(AssistantMessage {
                    turn: at.turn,
                    step: at.step,
                    content,
                    interrupted: Some(true),
                }))
                .await?;
        }
        self.log_usage(at, usage).await
    }

    async fn log_usage(&self, at: StepRef, usage: Option<Usage>) -> Result<(), RunError> {
        let Some(usage) = usage else { return Ok(()) };
        self.journal
            .append(Event::Usage(UsageEvent { turn: at.turn, step: at.step, usage, plugin: None }))
            .await
            .map(drop)
    }

    /// The model's answer and the tools it asked for.
    async fn ask_and_act(&self, at: StepRef, token: &TurnToken, spent: &mut Option<Usage>) -> Result<StepDone, Stop> {
        let (answer, finish) = self.ask(at, token, spent).await?;
        let answer = self.shape_answer(at, answer, &finish, token).await?;
        let calls: Vec<_> = answer.tool_calls().cloned().collect();
        let usage = plus(spent.take(), self.open_stream(Assembly::usage));
        let content = Arc::unwrap_or_clone(answer).content;
        self.journal
            .append(Event::AssistantMessage(AssistantMessage {
                turn: at.turn,
                step: at.step,
                content,
                interrupted: None,
            }))
            .await?;
        self.log_usage(at, usage).await?;
        let tool_calls = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        self.batch(at, calls, token).await?;
        Ok(StepDone { finish, tool_calls, steered: false, usage })
    }

    /// Calls the model until it answers or nobody wants another attempt.
    async fn ask(
        &self,
        at: StepRef,
        token: &TurnToken,
        spent: &mut Option<Usage>,
    ) -> Result<(Message, FinishReason), Stop> {
        let place = self.journal.place(at, None);
        let seams = self.seams();
        let assemble = self.services.system_prompt.assemble(
            at,
            &seams.sections,
            &self.system_suffix,
            place.as_ref(),
            token.token(),
        );
        let prompt = self.frames.prompt(self.guarded(token, assemble).await??);
        let mut attempt = Attempt { number: 1, prompt, tools: self.tool_schemas(), retry_of: None };
        let mut codes = Vec::new();
        loop {
            let request = self.shape_request(at, &attempt, token).await?;
            let model = request.model.clone();
            let span = spans::request(&request);
            let failure = match self.call_model(at, request, token).instrument(span).await? {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if token.token().is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let (usage, streamed) = self.open_stream(|stream| (stream.usage(), stream.has_output()));
            *spent = plus(spent.take(), usage);
            self.log_request_failure(at, attempt.number, &failure).await?;
            codes.push(failure.code.clone());
            let failed = RequestFailure { failure, attempt: attempt.number };
            attempt.retry_of = Some(failed.clone());
            let about = FailedRequest { failed, model, streamed, codes: codes.clone(), waited: token.waited() };
            let wait = self.recover(at, about, token).await?;
            self.may_go_on(token)?;
            self.guarded(token, tokio::time::sleep(wait)).await?;
            token.add_wait(wait);
            attempt.number += 1;
        }
    }

    async fn log_request_failure(&self, at: StepRef, attempt: u32, failure: &ModelFailure) -> Result<(), RunError> {
        let ModelFailure { code, message, status, retry_after_ms } = failure.clone();
        let event = RequestFailed { turn: at.turn, step: at.step, attempt, code, message, status, retry_after_ms };
        self.journal.append(Event::RequestFailed(event)).await.map(drop)
    }

    /// Waterfall `agent/request-error`: how long to wait before the next attempt, or the failure when there is none.
    async fn recover(&self, at: StepRef, about: FailedRequest, token: &TurnToken) -> Result<Duration, Stop> {
        let RequestFailure { failure, attempt } = about.failed.clone();
        let listeners = self.seams().request_error.clone();
        if listeners.is_empty() {
            return Err(failure.into());
        }
        let cx = RunContext::<RequestError> { at, cancel: token.token().clone(), about };
        let innermost: Innermost<RequestError> = Arc::new(|()| Box::pin(async { Ok(Recovery::GiveUp) }));
        let (recovery, _) =
            self.guarded(token, Chain::run(cx, listeners, self.journal.place(at, None), (), innermost)).await?;
        match recovery? {
            Recovery::GiveUp => Err(failure.into()),
            Recovery::RetryAfterMs(_) if attempt >= MAX_ATTEMPTS => {
                Err(Stop::fail(failure.code.clone(), format!("{} (after {MAX_ATTEMPTS} attempts)", failure.message)))
            }
            Recovery::RetryAfterMs(wait) => match Duration::from_millis(wait.into()) {
                wait if wait <= MAX_RETRY_WAIT => Ok(wait),
                wait => {
                    let (wait, most) = (wait.as_secs(), MAX_RETRY_WAIT.as_secs());
                    let told = format!(
                        "{} (the next attempt would be in {wait} s, and the longest wait is {most} s)",
                        failure.message
                    );
                    Err(Stop::fail(failure.code.clone(), told))
                }
            },
        }
    }

    /// Waterfall `agent/request`, the entries it makes, and `request/sent`.
    async fn shape_request(&self, at: StepRef, attempt: &Attempt, token: &TurnToken) -> Result<ModelRequest, Stop> {
        let shaped = self.run_request_waterfall(at, attempt, token).await?;
        let FinishedDraft { model, system, tools, sampling, messages, compactions, edits, changes } = shaped;
        let compacted = !compactions.is_empty();
        self.log_compactions(at, compactions).await?;
        self.log_changes(at, Seam::Request, self.in_plugin_order(changes)).await?;
        // Without edits the history now is what the draft made of it, with hashes and estimates kept.
        let messages = if compacted && edits.is_empty() {
            MessageList::new(self.journal.state().history.clone())
        } else {
            messages
        };
        let Some(model) = model else {
            let agent = &self.info.agent;
            return Err(Stop::fail(
                "no-model",
                format!(
                    "agent `{agent}` has no model; set one with `--model PROVIDER/MODEL`, or `model` of its `[[agents]]` entry"
                ),
            ));
        };
        if let Err(parted) = messages.check_pairs() {
            return Err(Stop::fail(
                "invalid-request",
                format!("the request was not sent, since every provider would refuse it: {parted}"),
            ));
        }
        self.may_go_on(token)?;
        let hash = self.frames.hash(&model, &sampling, &system, &tools).request(&messages.chain());
        let (changed_system, changed_sections, changed_tools) = {
            let state = self.journal.state();
            let known = state.frame.as_ref();
            (
                known.is_none_or(|(known, _)| **known != *system),
                *state.sections != *attempt.prompt.sections,
                known.is_none_or(|(_, known)| !Arc::ptr_eq(known, &tools) && **known != *tools),
            )
        };
        let sent = RequestSent {
            turn: at.turn,
            step: at.step,
            attempt: attempt.number,
            model: model.to_string(),
            sampling: (*sampling).clone(),
            system: changed_system.then(|| system.to_string()),
            sections: changed_sections.then(|| attempt.prompt.sections.clone()),
            tools: changed_tools.then(|| tools.clone()),
            edits,
            messages: u32::try_from(messages.len()).unwrap_or(u32::MAX),
            hash,
        };
        self.journal.append(Event::RequestSent(sent)).await?;
        let (agent, session) = (self.info.agent.clone(), self.info.session.clone());
        Ok(ModelRequest {
            by: RequestedBy::Loop,
            agent,
            session,
            at,
            attempt: attempt.number,
            model,
            system,
            messages,
            tools,
            sampling,
        })
    }

    async fn run_request_waterfall(
        &self,
        at: StepRef,
        attempt: &Attempt,
        token: &TurnToken,
    ) -> Result<FinishedDraft, Stop> {
        let (history, last_usage) = {
            let state = self.journal.state();
            (state.history.clone(), state.last_usage)
        };
        let draft = Arc::new(RequestDraft::new(DraftStart {
            model: self.options.model.clone(),
            system: attempt.prompt.text.clone(),
            tools: attempt.tools.clone(),
            sampling: self.frames.sampling.clone(),
            history,
            last_usage,
            retry_of: attempt.retry_of.clone(),
            models: self.services.llm.clone(),
        }));
        let listeners = self.seams().request.clone();
        if !listeners.is_empty() {
            let cx = RunContext::<Request> { at, cancel: token.token().clone(), about: () };
            let innermost: Innermost<Request> = Arc::new(|_| Box::pin(async { Ok(()) }));
            let run = Chain::run(cx, listeners, self.journal.place(at, None), draft.clone(), innermost);
            let (outcome, _) = self.guarded(token, run).await?;
            outcome?;
        } else if token.token().is_cancelled() {
            return Err(Stop::Cancelled);
        }
        Ok(draft.finish())
    }

    /// Streams the answer into the log. The outer error is the turn's, the inner one the model's.
    async fn call_model(
        &self,
        at: StepRef,
        request: ModelRequest,
        token: &TurnToken,
    ) -> Result<Result<(Message, FinishReason), ModelFailure>, Stop> {
        let model = match self.services.llm.model(&request.model) {
            Ok(model) => model,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut stream = match self.guarded(token, model.stream(Arc::new(request))).await? {
            Ok(stream) => stream,
            Err(failure) => return Ok(Err(failure)),
        };
        while let Some(chunk) = self.guarded(token, stream.next()).await? {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(failure) => return Ok(Err(failure)),
            };
            let last = matches!(chunk, Chunk::Finish { .. });
            let chunk = Event::AssistantChunk(AssistantChunk { turn: at.turn, step: at.step, chunk });
            let too_large = match self.journal.append(chunk).await {
                Err(RunError::Host(failure)) if failure.code == TOO_LARGE => true,
                logged => logged.map(|_| !last && self.open_stream(Assembly::is_too_large))?,
            };
            if too_large {
                return Ok(Err(Assembly::too_large()));
            }
            if last {
                break;
            }
        }
        drop(stream);
        let state = self.journal.state();
        let step = state.open.as_ref().and_then(|turn| turn.step.as_ref());
        Ok(step.map_or_else(
            || Err(ModelFailure::new("stream-closed", "the step was closed under the stream")),
            |step| step.stream.finish(),
        ))
    }

    /// Looks at what has been streamed in the open step.
    fn open_stream<T: Default>(&self, look: impl FnOnce(&Assembly) -> T) -> T {
        let state = self.journal.state();
        let step = state.open.as_ref().and_then(|turn| turn.step.as_ref());
        step.map(|step| look(&step.stream)).unwrap_or_default()
    }

    /// Waterfall `agent/step-result` and what holds for every answer: its ids are unique, cut output runs no tools.
    async fn shape_answer(
        &self,
        at: StepRef,
        answer: Message,
        finish: &FinishReason,
        token: &TurnToken,
    ) -> Result<Arc<Message>, Stop> {
        let mut answer = Arc::new(answer);
        let listeners = self.seams().step_result.clone();
        if !listeners.is_empty() {
            let cx = RunContext::<StepResult> { at, cancel: token.token().clone(), about: () };
            let innermost: Innermost<StepResult> = Arc::new(|message| Box::pin(async move { Ok(message) }));
            let run = Chain::run(cx, listeners, self.journal.place(at, None), answer, innermost);
            let (outcome, changes) = self.guarded(token, run).await?;
            answer = outcome?;
            self.log_changes(at, Seam::StepResult, changes).await?;
        }
        if token.token().is_cancelled() {
            return Err(Stop::Cancelled);
        }
        let cut = *finish == FinishReason::MaxTokens;
        let out_of_place = |block: &ContentBlock| {
            matches!(block, ContentBlock::ToolResult(_)) || (cut && matches!(block, ContentBlock::ToolCall(_)))
        };
        if answer.role != Role::Assistant || answer.content.iter().any(out_of_place) {
            let content = answer.content.iter().filter(|block| !out_of_place(block)).cloned().collect();
            answer = Arc::new(Message::assistant(content));
        }
        let state = self.journal.state();
        Ok(make_unique(answer, at, |id| state.has_call(id)))
    }
}

fn plus(left: Option<Usage>, right: Option<Usage>) -> Option<Usage> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.plus(right)),
        (left, right) => left.or(right),
    }
}
