//! The tool calls of one message: runs of neighbouring parallel-safe calls, single others, and a result for every call whatever happens.

use dsh_seam::event::{Event, ToolCallEvent, ToolResultEvent};
use dsh_seam::ids::StepRef;
use dsh_seam::message::ToolCall;
use dsh_seam::tools::{AgentTools, Dispatch, Outcome};
use dsh_seam::waterfall::RunError;
use futures::future::join_all;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::core::Core;
use crate::journal::TOO_LARGE;
use crate::spans;
use crate::stop::Stop;
use crate::turn_token::TurnToken;

/// Calls of a run that are started together: enough to hide latency, few enough for a small machine.
const MAX_PARALLEL: usize = 8;

impl Core {
    /// Runs the calls in order. Every call gets exactly one result, also when the turn ends half way.
    pub(crate) async fn batch(&self, at: StepRef, calls: Vec<ToolCall>, token: &TurnToken) -> Result<(), Stop> {
        let mut stop: Option<Stop> = None;
        for run in runs(&calls, self.seams().tools.as_ref()) {
            stop = stop_now(stop, token);
            match &stop {
                None => stop = self.run_together(at, run, token.token()).await?,
                Some(stop) => self.answer_for(at, run, stop).await?,
            }
        }
        stop_now(stop, token).map_or(Ok(()), Err)
    }

    /// All `tool/call`s, then the tools together, then all `tool/result`s. What an abort finds without its `tool/call` is not started.
    async fn run_together(
        &self,
        at: StepRef,
        run: &[ToolCall],
        cancel: &CancellationToken,
    ) -> Result<Option<Stop>, RunError> {
        let mut started = 0;
        while started < run.len() && (started == 0 || !cancel.is_cancelled()) {
            self.log_call(at, &run[started]).await?;
            started += 1;
        }
        let (run, not_started) = run.split_at(started);
        let mut stop = None;
        for Dispatch { fatal, .. } in self.run_started(at, run, cancel).await? {
            stop = stop.or(fatal.map(Stop::from));
        }
        self.answer_for(at, not_started, &Stop::Cancelled).await?;
        Ok(stop)
    }

    /// Runs calls whose `tool/call` is in the log, and logs their results once nothing is left of what they began.
    async fn run_started(
        &self,
        at: StepRef,
        calls: &[ToolCall],
        cancel: &CancellationToken,
    ) -> Result<Vec<Dispatch>, RunError> {
        let tools = self.seams().tools.clone();
        let dispatches = self.journal.settling(async {
            let run = |call: &ToolCall| tools.dispatch(at, call.clone(), cancel).instrument(spans::tool_call(at, call));
            match calls {
                [call] => vec![run(call).await],
                calls => join_all(calls.iter().map(run)).await,
            }
        });
        let dispatches = dispatches.await;
        self.journal.until_done().await;
        self.children_gone().await;
        for (call, dispatch) in calls.iter().zip(&dispatches) {
            self.log_result(at, call, dispatch.outcome.clone()).await?;
        }
        Ok(dispatches)
    }

    /// The results of calls that are not run any more.
    async fn answer_for(&self, at: StepRef, run: &[ToolCall], stop: &Stop) -> Result<(), RunError> {
        for call in run {
            self.log_call(at, call).await?;
            let outcome = match stop {
                Stop::Cancelled => Outcome::error(
                    "aborted-before-dispatch",
                    "Not run: the turn was aborted before this call was started.",
                ),
                Stop::Fail(_) | Stop::Dead => Outcome::error(
                    "skipped",
                    "Not run: a plugin failed at an earlier call of this message, which ended the turn.",
                ),
            };
            self.log_result(at, call, outcome).await?;
        }
        Ok(())
    }

    /// One call outside of any turn: the command `tool call`.
    pub(crate) async fn call_outside(&self, call: ToolCall, cancel: &CancellationToken) -> Result<Dispatch, RunError> {
        let at = StepRef::default();
        let _under_way = self.outside.read().await;
        self.children.count_anew();
        self.log_call(at, &call).await?;
        let mut dispatches = self.run_started(at, &[call], cancel).await?;
        Ok(dispatches.pop().expect("invariant: a dispatch for each call"))
    }

    async fn log_call(&self, at: StepRef, call: &ToolCall) -> Result<(), RunError> {
        let event = ToolCallEvent {
            turn: at.turn,
            step: at.step,
            call_id: call.id.clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        };
        self.journal.append(Event::ToolCall(event)).await.map(drop)
    }

    async fn log_result(&self, at: StepRef, call: &ToolCall, outcome: Outcome) -> Result<(), RunError> {
        let Outcome { content, is_error, code, plugin } = outcome;
        let result = |content, is_error, code, plugin| {
            let event = ToolResultEvent {
                turn: at.turn,
                step: at.step,
                call_id: call.id.clone(),
                content,
                is_error,
                code,
                plugin,
            };
            self.journal.append(Event::ToolResult(event))
        };
        match result(content, is_error, code, plugin.clone()).await {
            // A call without a result would spoil the session.
            Err(RunError::Host(failure)) if failure.code == TOO_LARGE => {
                let Outcome { content, is_error, code, .. } =
                    Outcome::error("tool-failed", format!("Its result is lost: {}", failure.message));
                result(content, is_error, code, plugin).await.map(drop)
            }
            logged => logged.map(drop),
        }
    }
}

/// What ends a batch: an abort comes before the failure of a plugin, as it does in the reason of the turn.
fn stop_now(stop: Option<Stop>, token: &TurnToken) -> Option<Stop> {
    match stop {
        Some(Stop::Dead) => Some(Stop::Dead),
        _ if token.token().is_cancelled() => Some(Stop::Cancelled),
        stop => stop,
    }
}

/// Cuts a batch into runs: neighbouring parallel-safe calls, at most [`MAX_PARALLEL`] of them, and single others.
fn runs<'a>(calls: &'a [ToolCall], tools: &dyn AgentTools) -> Vec<&'a [ToolCall]> {
    let safe = |call: &ToolCall| tools.find(&call.name).is_some_and(|tool| tool.annotations.parallel_safe);
    calls.chunk_by(|left, right| safe(left) && safe(right)).flat_map(|run| run.chunks(MAX_PARALLEL)).collect()
}
