//! The plugin `compaction`: when a session outgrows its budget, the middle of the history is replaced, for good, by one message.
//!
//! Below the trigger it costs two small calls to the host, whatever the length of the history. Above it only outlines are read, and texts
//! only of what is summarised.

mod config;
mod marker;
mod plan;
mod progress;
mod summary;

use config::{Budget, Config};
use dsh_sdk::{
    Failure, LlmRequest, Message, MessageOutline, Plugin, Recovery, RequestErrorListener, RequestErrorNext,
    RequestFailure, RequestListener, RequestNext, Step, log, state,
};
use plan::{Outline, Plan};
use progress::{Attempt, Progress};

/// How many outlines are read by one call to the host: large enough to be few calls, small enough for the limit on what crosses.
const OUTLINES_AT_ONCE: u32 = 512;
/// The code of a request that is larger than the model's context window.
const OVERFLOW: &str = "context-window-exceeded";
/// Where the last attempt that did not help is kept.
const ATTEMPT_KEY: &str = "attempt";

struct Compaction {
    budget: Budget,
    summarize: bool,
}

impl Plugin for Compaction {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        let summarize = config.summarize;
        Ok(Self { budget: Budget::new(&config).map_err(Failure::invalid_config)?, summarize })
    }
}

impl RequestListener for Compaction {
    fn on_request(&self, at: Step, request: &LlmRequest, next: &RequestNext) -> Result<(), Failure> {
        let trigger = self.budget.trigger(|| request.context_window());
        let tokens = request.estimated_tokens();
        if request.retry_of().is_some_and(|failed| failed.failure.code == OVERFLOW) {
            // The provider counts more than the estimate: what is there now is too much, whatever the trigger.
            self.compact(at, request, tokens, trigger.min(tokens).max(1))?;
        } else if tokens >= trigger && self.is_worth_it(tokens, trigger)? {
            self.compact(at, request, tokens, trigger)?;
        }
        next.run()
    }
}

impl RequestErrorListener for Compaction {
    /// When the provider refuses the request for its size, the same step is tried once more, compacted.
    fn on_request_error(
        &self,
        _at: Step,
        failed: &RequestFailure,
        next: &RequestErrorNext,
    ) -> Result<Recovery, Failure> {
        if failed.failure.code == OVERFLOW && failed.attempt == 1 {
            return Ok(Recovery::RetryAfterMs(0));
        }
        next.run()
    }
}

impl Compaction {
    /// Whether nothing speaks against another attempt.
    fn is_worth_it(&self, tokens: u32, trigger: u32) -> Result<bool, Failure> {
        let earlier: Option<Attempt> = state::get(ATTEMPT_KEY)?;
        Ok(earlier.is_none_or(|attempt| attempt.may_try_again(tokens, trigger)))
    }

    /// Compacts once, and remembers when it did not help.
    fn compact(&self, at: Step, request: &LlmRequest, tokens: u32, trigger: u32) -> Result<(), Failure> {
        let outlines = outlines(request)?;
        let Some(plan) = plan::plan(&outlines, tokens, trigger, self.budget.keep_tokens()) else {
            return Ok(());
        };
        let replacement = self.replacement(request, &plan)?;
        let done = request.compact(plan.start, plan.count(), &[replacement]);
        let after = match &done {
            Ok(()) => request.estimated_tokens(),
            Err(failure) => {
                log!(Warn, "turn {} step {}: no compaction: {}", at.turn, at.step, failure.message);
                tokens
            }
        };
        match progress::judge(done.is_ok(), after, trigger, plan.fixed_tokens) {
            Progress::Enough => {
                // A removal is an entry in the log: only where there is something to remove.
                if !state::keys(ATTEMPT_KEY).is_empty() {
                    state::remove(ATTEMPT_KEY)?;
                }
            }
            Progress::TooLittle(attempt) => {
                log!(Warn, "the request is still at {after} tokens, the trigger is {trigger}: {}", attempt.advice());
                state::set(ATTEMPT_KEY, &attempt)?;
            }
        }
        Ok(())
    }

    /// The one message that takes the place of the middle.
    fn replacement(&self, request: &LlmRequest, plan: &Plan) -> Result<Message, Failure> {
        let text_of = |at: u32| Ok(request.messages(at, 1)?.first().map(Message::to_text).unwrap_or_default());
        let earlier = plan.earlier.map(text_of).transpose()?;
        let left_out = marker::count_with(plan.count(), earlier.as_deref());
        if self.summarize
            && let Some(summary) = summary::summarize(request, plan, earlier.as_deref())?
        {
            return Ok(Message::user(marker::with_summary(left_out, &summary)));
        }
        let last_words = match plan.last_user {
            Some(at) => Some(text_of(at)?),
            None => earlier.as_deref().and_then(marker::quote_of).map(str::to_owned),
        };
        Ok(Message::user(marker::without_summary(left_out, last_words.as_deref(), plan.removed_tokens)))
    }
}

/// All outlines, reduced to what planning needs.
fn outlines(request: &LlmRequest) -> Result<Vec<Outline>, Failure> {
    let total = request.message_count();
    let mut outlines = Vec::with_capacity(total as usize);
    while (outlines.len() as u32) < total {
        let start = outlines.len() as u32;
        let piece: Vec<MessageOutline> = request.outline(start, OUTLINES_AT_ONCE.min(total - start))?;
        if piece.is_empty() {
            return Err(Failure::new(
                "compaction-outline",
                format!("the host gave no outline from message {start} on"),
            ));
        }
        outlines.extend(piece.iter().map(Outline::from));
    }
    Ok(outlines)
}

dsh_sdk::ceiling!("llm": "to write summaries, when summarize is on");
dsh_sdk::export!(Compaction: request, request_error, configure);
