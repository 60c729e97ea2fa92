//! One turn of an agent with one plugin, as far as the plugin is concerned: each seam that it has is called once, in the order of a turn.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dsh_seam::draft::RequestFailure;
use dsh_seam::event::{Entry, Event, StepMark};
use dsh_seam::message::{ContentBlock, FinishReason, Message, Role, ToolCall, Usage};
use dsh_seam::plugin::Attached;
use dsh_seam::session::FlushError;
use dsh_seam::tools::{Annotations, Outcome, Profile, ToolInfo};
use dsh_seam::waterfall::{Chain, FailureReport, Innermost, Registered, RunContext, RunError, Waterfall};
use dsh_seam::waterfalls::{
    Decision, ExecuteContext, Execution, FailedRequest, RequestError, StepResult, StepSummary, ToolsExecute,
    TurnContinuation,
};
use dsh_seam::{AgentId, FailureMode, ModelFailure, PluginError, SessionId, StepRef};
use tokio_util::sync::CancellationToken;

use super::{Agent, FakeProcesses, draft, name, nothing, run_request_at, tool_context_at};

/// Runs a turn; a line for each failure: `SEAM KIND: MESSAGE`.
pub async fn run(attached: &Attached, agent: &Agent, turn: u32) -> Vec<String> {
    let failures = Arc::new(Failures::default());
    let at = StepRef { turn, step: 1 };
    let cancel = CancellationToken::new();
    if let Some(sections) = &attached.sections {
        failures.note(sections.sections(at, &cancel).await.err());
    }
    if attached.request.is_some() {
        failures.keep(run_request_at(at, &[attached], draft(3), nothing()).await.err());
    }
    waterfalls(attached, at, &failures).await;
    tools(attached, at, &failures).await;
    if let Some(listener) = &attached.turn_continuation {
        let summary = StepSummary {
            finish: FinishReason::ToolCalls,
            tool_calls: 1,
            steered: false,
            usage: None,
            session_usage: Usage::default(),
        };
        let innermost: Innermost<TurnContinuation> = Arc::new(|proposal| Box::pin(async move { Ok(proposal) }));
        chain(at, summary, listener.clone(), Decision::Proceed(None), innermost, &failures).await;
    }
    if let Some(observer) = &attached.observer {
        let entries: Vec<_> = (1..4).map(|seq| entry(seq, turn)).collect();
        failures.note(observer.on_entries(&entries, 0).await.err());
    }
    if let Some(flush) = &attached.flush {
        match flush.flush().await {
            Err(FlushError::Plugin(error)) => failures.note(Some(error)),
            Err(FlushError::Refused { failure, .. }) => {
                failures.line(format!("session/flush refused: {} ({})", failure.message, failure.code));
            }
            _ => {}
        }
    }
    if let Some(lifecycle) = &attached.lifecycle {
        lifecycle.turn_ended();
    }
    agent.forget();
    failures.lines()
}

/// The waterfalls in the middle of a step.
async fn waterfalls(attached: &Attached, at: StepRef, failures: &Arc<Failures>) {
    if let Some(listener) = &attached.request_error {
        let failed = FailedRequest {
            failed: RequestFailure { failure: ModelFailure::new("server", "no"), attempt: 1 },
            model: "test/model".into(),
            streamed: false,
            codes: vec!["server".into()],
            waited: Duration::ZERO,
        };
        let innermost: Innermost<RequestError> =
            Arc::new(|()| Box::pin(async { Ok(dsh_seam::waterfalls::Recovery::GiveUp) }));
        chain(at, failed, listener.clone(), (), innermost, failures).await;
    }
    if let Some(listener) = &attached.step_result {
        let said = vec![ContentBlock::text("hello"), ContentBlock::ToolCall(call())];
        let message = Arc::new(Message { role: Role::Assistant, content: said });
        let innermost: Innermost<StepResult> = Arc::new(|message| Box::pin(async move { Ok(message) }));
        chain(at, (), listener.clone(), message, innermost, failures).await;
    }
}

/// A tool call on its way: the listener around, the guard, the tool.
async fn tools(attached: &Attached, at: StepRef, failures: &Arc<Failures>) {
    let (guard, provider) = (attached.guard.clone(), attached.provider.clone());
    let noted = failures.clone();
    let innermost: Innermost<ToolsExecute> = Arc::new(move |execution: Execution| {
        let (guard, provider, noted) = (guard.clone(), provider.clone(), noted.clone());
        Box::pin(async move {
            if let Some(guard) = guard {
                noted.note(guard.check(at, &execution.call, &info(), &CancellationToken::new()).await.err());
            }
            let Some(provider) = provider else { return Ok(Arc::new(Outcome::text("done"))) };
            let context = tool_context_at(at, &execution.profile);
            let outcome = provider.call(&context, execution.call).await;
            Ok(Arc::new(outcome.unwrap_or_else(|error| {
                noted.note(Some(error));
                Outcome::error("plugin-failed", "it failed")
            })))
        })
    });
    let execution = Execution { call: call(), profile: Arc::new(Profile::unrestricted()), changed_by: None };
    match &attached.execute {
        Some(listener) => {
            let find: Arc<dsh_seam::waterfalls::FindTool> = Arc::new(|_: &str| Some(info()));
            let about = ExecuteContext { find, processes: Arc::new(FakeProcesses) };
            chain(at, about, listener.clone(), execution, innermost, failures).await;
        }
        None if attached.guard.is_some() || attached.provider.is_some() => {
            failures.keep(innermost(execution).await.err());
        }
        None => {}
    }
}

async fn chain<W: Waterfall>(
    at: StepRef,
    about: W::Context,
    listener: Arc<dyn dsh_seam::waterfall::Listener<W>>,
    value: W::Value,
    innermost: Innermost<W>,
    failures: &Arc<Failures>,
) {
    let listeners: Arc<[_]> = [Registered { plugin: name("p"), mode: FailureMode::Closed, listener }].into();
    let cx = RunContext { at, cancel: CancellationToken::new(), about };
    failures.keep(Chain::run(cx, listeners, Arc::new(Silent), value, innermost).await.0.err());
}

fn call() -> ToolCall {
    ToolCall { id: "call-1".into(), name: "t".into(), arguments: "{}".into(), opaque: None }
}

fn info() -> ToolInfo {
    ToolInfo { name: "t".into(), plugin: name("p"), annotations: Annotations::default() }
}

fn entry(seq: u64, turn: u32) -> Arc<Entry> {
    Arc::new(Entry {
        seq,
        time_ms: seq,
        session: SessionId::new("s1").expect("an id"),
        agent: AgentId::new("main").expect("an id"),
        event: Event::StepStart(StepMark { turn, step: 1 }),
    })
}

/// Failures are noted where they are returned.
struct Silent;

#[async_trait::async_trait]
impl FailureReport for Silent {
    async fn plugin_failed(&self, _error: &PluginError) -> Result<(), RunError> {
        Ok(())
    }
}

/// What failed so far.
#[derive(Default)]
struct Failures(Mutex<Vec<String>>);

impl Failures {
    fn line(&self, line: String) {
        self.0.lock().expect("not poisoned").push(line);
    }

    fn note(&self, error: Option<PluginError>) {
        if let Some(error) = error {
            self.line(format!("{} {}: {}", error.seam, format!("{:?}", error.kind).to_lowercase(), error.message));
        }
    }

    fn keep(&self, error: Option<RunError>) {
        match error {
            Some(RunError::Plugin(error)) => self.note(Some(error)),
            Some(other) => self.line(format!("{other:?}")),
            None => {}
        }
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("not poisoned").clone()
    }
}
