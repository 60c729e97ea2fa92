//! The driver: one task per agent that takes turns from the inbox until the agent is disposed.
//!
//! This file and `step.rs`, `batch.rs` are all the loop logic there is. Whatever can be decided from the log is decided from the log
//! (`log_state.rs`); whatever closes something reads there whether it is open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dsh_seam::event::{
    ChangeKind, ErrorEvent, Event, LiveEvent, ReasonKind, Source, SteeringMessage, Trigger, TurnEnd, TurnReason,
    TurnStart, UserMessage,
};
use dsh_seam::failure::{FailureKind, FailureMode, PluginError, Seam};
use dsh_seam::ids::{PluginName, StepRef};
use dsh_seam::message::{ContentBlock, FinishReason};
use dsh_seam::session::Flush;
use dsh_seam::waterfall::{Chain, Change, FailureReport, Innermost, Registered, RunContext, RunError};
use dsh_seam::waterfalls::{Decision, StepSummary, TurnContinuation};
use tracing::Instrument as _;

use crate::core::Core;
use crate::inbox::{Drained, Due};
use crate::journal::in_words;
use crate::queued::Queued;
use crate::spans;
use crate::step::StepDone;
use crate::stop::{Fail, Stop};
use crate::turn_token::{Cause, TurnToken};

/// Takes turns until the agent is disposed.
pub(crate) async fn drive(core: Arc<Core>) {
    loop {
        core.journal.settle_all().await;
        core.inbox.confirm_quiet();
        match core.inbox.wait_for_queued(|| core.journal.is_unsettled()).await {
            None => return,
            Some(None) => {}
            Some(Some(due)) => {
                let mut next = Some(due);
                while let Some(due) = next {
                    core.journal.settle_all().await;
                    // Boxed, so that an idle agent's task does not keep room for a turn.
                    Box::pin(core.turn(due)).await;
                    next = core.inbox.hand_over();
                }
            }
        }
    }
}

impl Core {
    /// One turn, from the drained messages to the flush; before it, the exchange of plugins of which there are other versions.
    async fn turn(&self, due: Due) {
        let token = due.token.clone();
        self.exchange_plugins().await;
        let Some(turn) = self.open_turn(due).await else { return };
        self.go_on(turn, &token).instrument(spans::turn(&self.info, turn)).await;
        self.seams().turn_ended();
    }

    /// The rest of a turn that is open.
    async fn go_on(&self, turn: u32, token: &TurnToken) {
        let end = self.in_time(token, self.steps(turn, token)).await;
        self.close_turn(turn, end).await;
        self.flush_turn().await;
    }

    /// Awaits the steps of a turn. When the time of the run is over before, the turn is cancelled and they are awaited as after an abort.
    async fn in_time<T>(&self, token: &TurnToken, steps: impl Future<Output = T>) -> T {
        let time_is_up = self.services.budget.time_is_up();
        let mut steps = std::pin::pin!(steps);
        tokio::select! {
            biased;
            end = &mut steps => return end,
            over = time_is_up => token.cancel(Cause::Budget(over)),
        }
        steps.await
    }

    /// Logs what was drained and opens the turn; none when the log is dead, or has refused all that there was to answer.
    async fn open_turn(&self, due: Due) -> Option<u32> {
        let as_logged = |(content, source)| Event::UserMessage(UserMessage { content, source });
        self.log_drained(due.messages, as_logged).await.ok()?;
        let (turn, source) = {
            let state = self.journal.state();
            (state.last_turn + 1, state.unanswered.first().cloned()?)
        };
        let start = TurnStart { turn, trigger: Trigger::Message { source } };
        self.journal.append(Event::TurnStart(start)).await.ok().map(|_| turn)
    }

    /// The steps of a turn. `Ok` is how it ended by itself.
    async fn steps(&self, turn: u32, token: &TurnToken) -> Result<TurnReason, Stop> {
        let mut head = None;
        let max = self.options.max_steps;
        for n in 1.. {
            let at = StepRef { turn, step: n };
            let last = max != 0 && n >= max;
            let done = self.step(at, last, head.take(), token).instrument(spans::step(at)).await?;
            self.within_budget(token)?;
            let (decision, text) = self.continuation(at, &done, token).await?;
            self.within_budget(token)?;
            let cut = done.finish == FinishReason::MaxTokens;
            let another_possible = !last && !cut;
            let steered = done.steered || self.inbox.has_steering();
            head = match decision {
                Decision::OutOfBudget(message) => {
                    return Ok(TurnReason { message: Some(message), ..TurnReason::plain(ReasonKind::Budget) });
                }
                Decision::Stop if another_possible && steered => None,
                Decision::Stop if cut => return Ok(TurnReason::plain(ReasonKind::MaxTokens)),
                Decision::Stop => return Ok(TurnReason::plain(ReasonKind::Completed)),
                Decision::Proceed(_) if last => {
                    self.may_go_on(token)?;
                    return Ok(TurnReason::plain(ReasonKind::MaxSteps));
                }
                Decision::Proceed(_) => text,
            };
        }
        unreachable!("the range of steps has no end")
    }

    /// Waterfall `agent/turn-continuation`: the decision, and the message that the text of a `proceed` makes. The step is closed already.
    async fn continuation(
        &self,
        at: StepRef,
        done: &StepDone,
        token: &TurnToken,
    ) -> Result<(Decision, Option<Queued>), Stop> {
        let goes_on = done.finish != FinishReason::MaxTokens && (done.tool_calls > 0 || done.steered);
        let proposal = if goes_on { Decision::Proceed(None) } else { Decision::Stop };
        let listeners = self.seams().turn_continuation.clone();
        if listeners.is_empty() {
            return if token.token().is_cancelled() { Err(Stop::Cancelled) } else { Ok((proposal, None)) };
        }
        let summary = StepSummary {
            finish: done.finish.clone(),
            tool_calls: done.tool_calls,
            steered: done.steered,
            usage: done.usage,
            session_usage: self.journal.state().session_usage,
        };
        let cx = RunContext::<TurnContinuation> { at, cancel: token.token().clone(), about: summary };
        let innermost: Innermost<TurnContinuation> = Arc::new(|proposal| Box::pin(async move { Ok(proposal) }));
        let place = self.journal.place(at, None);
        let run = Chain::run(cx, listeners.clone(), place.clone(), proposal.clone(), innermost);
        let (decision, changes) = self.guarded(token, run).await?;
        let decision = decision?;
        match text_of(&decision, changes) {
            Ok(text) => Ok((decision, text)),
            Err(error) => {
                place.plugin_failed(&error).await?;
                let abstains = |it: &Registered<_>| it.plugin == error.plugin && it.mode == FailureMode::Open;
                if listeners.iter().any(abstains) { Ok((proposal, None)) } else { Err(RunError::Plugin(error).into()) }
            }
        }
    }

    /// Takes all steering into the log, behind `head`, the text of a continuation. Returns how many messages it took.
    pub(crate) async fn log_steering(&self, turn: u32, head: Option<Queued>) -> Result<usize, RunError> {
        let as_logged = |(content, source)| Event::SteeringMessage(SteeringMessage { turn, content, source });
        let mut count = 0;
        if let Some(head) = head {
            count += usize::from(self.log_message(as_logged(head.into_parts()), || ()).await?);
        }
        Ok(count + self.log_drained(self.inbox.drain_steering(), as_logged).await?)
    }

    /// Logs messages in order; those that the log does not take any more are counted as lost. Returns how many it took.
    pub(crate) async fn log_drained(
        &self,
        mut messages: Drained,
        as_logged: impl Fn((Vec<ContentBlock>, Source)) -> Event,
    ) -> Result<usize, RunError> {
        let mut count = 0;
        while let Some(message) = messages.next().cloned() {
            count += usize::from(self.log_message(as_logged(message.into_parts()), || messages.taken()).await?);
        }
        Ok(count)
    }

    /// Closes what is open and says how the turn ended; nothing when the log is dead.
    async fn close_turn(&self, turn: u32, end: Result<TurnReason, Stop>) {
        let end = match end {
            Err(Stop::Dead) => return drop(self.inbox.retire_token()),
            Err(Stop::Fail(_)) if self.inbox.token().is_some_and(|token| token.cause().is_some()) => {
                Err(Stop::Cancelled)
            }
            end => end,
        };
        if let Err(Stop::Fail(fail)) = &end
            && self.log_failure(turn, fail).await.is_err()
        {
            return drop(self.inbox.retire_token());
        }
        let logged_error = self.journal.state().open.as_ref().and_then(|open| open.error.clone());
        let reason = match (logged_error, self.inbox.retire_token(), end) {
            (Some((code, message)), _, _) => {
                TurnReason { kind: ReasonKind::Error, reason: None, code: Some(code), message: Some(message) }
            }
            (None, Some(cause), _) => cause.into_reason(),
            (None, None, Ok(reason)) => reason,
            (None, None, Err(_)) => TurnReason::plain(ReasonKind::Aborted),
        };
        // A failed append reports itself and ends the agent.
        let _ = self.journal.append(Event::TurnEnd(TurnEnd { turn, reason })).await;
    }

    /// `error` and `agent/error`, once each.
    async fn log_failure(&self, turn: u32, fail: &Fail) -> Result<(), RunError> {
        let step = self.journal.state().open.as_ref().map_or(0, |open| open.last_step);
        let event = ErrorEvent {
            turn,
            step,
            message: fail.message.clone(),
            code: fail.code.clone(),
            plugin: fail.plugin.clone(),
        };
        // Shown at once, so that a driver that is dropped here has shown what it logged.
        let shown = LiveEvent::AgentError(event.clone());
        self.journal.append_then(Event::Error(event), || self.journal.live_later(shown)).await
    }

    /// Awaits the flush of session and plugins, within the deadline; a failure is reported and the next turn proceeds. Nothing is asked
    /// twice to flush the same.
    pub(crate) async fn flush_turn(&self) {
        let mut failures = Vec::new();
        if let Err(message) = self.journal.flush().await {
            failures.push(("flush-failed".to_owned(), message, None));
        }
        self.flush_plugins(&self.seams().flushes, failures).await;
    }

    /// Asks those of the plugins to flush that were told of something since the last time, and reports all failures.
    pub(crate) async fn flush_plugins(&self, flushes: &[NamedFlush], mut failures: Vec<FlushFailure>) {
        // Read before anybody is asked: what comes while they flush is flushed the next time.
        let next_seq = self.journal.state().next_seq;
        let flushed = self.flushed.swap(next_seq, Ordering::AcqRel);
        let asked =
            |plugin: &PluginName| self.journal.state().has_news_for(plugin, flushed) && !self.journal.is_off(plugin);
        for (plugin, flush) in flushes.iter().filter(|(plugin, _)| asked(plugin)) {
            let deadline = self.options.deadlines.flush;
            let failed = match tokio::time::timeout(deadline, flush.flush()).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("flushing plugin `{plugin}` took longer than {}", in_words(deadline)),
            };
            failures.push(("plugin-failed".to_owned(), failed, Some(plugin.clone())));
        }
        for (code, message, plugin) in failures {
            // A failure of the session's own flush decides the exit code and is said there.
            if plugin.is_some() {
                tracing::warn!("{message}");
            }
            self.live(LiveEvent::AgentError(ErrorEvent { turn: 0, step: 0, message, code, plugin })).await;
        }
    }
}

/// A plugin's flush.
pub(crate) type NamedFlush = (PluginName, Arc<dyn Flush>);
/// Code and text of a flush that failed, and whose it was unless it was the session's.
type FlushFailure = (String, String, Option<PluginName>);

/// The message that the text of a `proceed` makes, if it says anything; a text that is too large is a failure of the plugin whose it is.
fn text_of(decision: &Decision, changes: Vec<Change>) -> Result<Option<Queued>, PluginError> {
    let Decision::Proceed(Some(text)) = decision else { return Ok(None) };
    let Some(plugin) = author(changes).filter(|_| !text.trim().is_empty()) else { return Ok(None) };
    let source = Source::Plugin { plugin: plugin.clone() };
    Queued::new(vec![ContentBlock::text(text)], source).map(Some).map_err(|failure| PluginError {
        plugin,
        seam: Seam::TurnContinuation,
        kind: FailureKind::Limit,
        message: format!("the text of its `proceed`: {}", failure.message),
        code: None,
    })
}

/// Whose a final decision is: the outermost plugin that answered something else than the rest, or else the innermost that proposed it.
fn author(changes: Vec<Change>) -> Option<PluginName> {
    let outward = changes.iter().find(|change| change.what.contains(&ChangeKind::Outcome));
    outward.or(changes.last()).map(|change| change.plugin.clone())
}
