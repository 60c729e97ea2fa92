//! The plugin `compaction`: when a session outgrows its budget, the middle of the history is replaced, for good, by one message.
//!
//! Below the trigger it costs two small calls to the host, whatever the length of the history. Above it only outlines are read, and texts
//! only of what is summarised.

mod config;
mod marker;
mod plan;
mod progress;
mod refusal;
mod summary;

use config::{Budget, Config};
use dsh_sdk::{
    Failure, LlmRequest, Message, MessageOutline, Plugin, Recovery, RequestErrorListener, RequestErrorNext,
    RequestFailure, RequestListener, RequestNext, Step, log, state,
};
use plan::{Outline, Plan};
use progress::{Attempt, Progress};
use refusal::{Outcome, Refused};

/// How many outlines are read by one call to the host: large enough to be few calls, small enough for the limit on what crosses.
const OUTLINES_AT_ONCE: u32 = 512;
/// The code of a request that is larger than the model's context window.
const OVERFLOW: &str = "context-window-exceeded";
/// Where the last attempt that did not help is kept.
const ATTEMPT_KEY: &str = "attempt";
/// Where it is kept what the provider refused for its size.
const REFUSED_KEY: &str = "refused";

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
            self.compact_refused(at, request, tokens, trigger)?;
        } else {
            let trigger = trigger.min(settle(at, request)?.unwrap_or(trigger));
            if tokens >= trigger && self.is_worth_it(tokens, trigger)? {
                self.compact(at, request, tokens, trigger)?;
            }
        }
        next.run()
    }
}

impl RequestErrorListener for Compaction {
    /// When the provider refuses the request for its size, it is tried again, compacted, as long as that may help.
    fn on_request_error(
        &self,
        at: Step,
        failed: &RequestFailure,
        next: &RequestErrorNext,
    ) -> Result<Recovery, Failure> {
        // A part of an answer that somebody has seen is not said a second time.
        if failed.failure.code != OVERFLOW || next.streamed() {
            return next.run();
        }
        let refused: Option<Refused> = state::get(REFUSED_KEY)?;
        match refused.and_then(|refused| refused.hopeless(at)) {
            None => Ok(Recovery::RetryAfterMs(0)),
            Some(reason) => {
                log!(
                    Warn,
                    "turn {} step {}: the request is too large, and no compaction helps: {reason}",
                    at.turn,
                    at.step
                );
                next.run()
            }
        }
    }
}

/// Before a first attempt: notes that a request was taken since the last compaction, and answers how large a request is refused, where
/// that is known from a refusal.
fn settle(at: Step, request: &LlmRequest) -> Result<Option<u32>, Failure> {
    let Some(refused) = state::get::<Refused>(REFUSED_KEY)? else { return Ok(None) };
    if !refused.is_of(request.model().as_deref()) {
        state::remove(REFUSED_KEY)?;
        return Ok(None);
    }
    let has_answer = |behind: u32| {
        let outlines = outlines(request)?;
        let lasting = outlines.iter().filter(|outline| !outline.is_edit);
        Ok(lasting.skip(behind as usize).any(|outline| outline.is_assistant))
    };
    if !refused.is_unproven() || !refused.was_taken(at, has_answer)? {
        return Ok(refused.limit());
    }
    let proven = refused.proven();
    state::set(REFUSED_KEY, &proven)?;
    Ok(proven.limit())
}

impl Compaction {
    /// Whether nothing speaks against another attempt.
    fn is_worth_it(&self, tokens: u32, trigger: u32) -> Result<bool, Failure> {
        let earlier: Option<Attempt> = state::get(ATTEMPT_KEY)?;
        Ok(earlier.is_none_or(|attempt| attempt.may_try_again(tokens, trigger)))
    }

    /// Compacts what the provider refused. It counts more than the host estimates, or its window is smaller than is known: what is there
    /// now is too much, whatever the trigger.
    fn compact_refused(&self, at: Step, request: &LlmRequest, tokens: u32, trigger: u32) -> Result<(), Failure> {
        let outlines = outlines(request)?;
        let plan = plan::plan(&outlines, tokens, trigger.min(tokens).max(1), self.budget.keep_tokens());
        let weight = outlines.iter().fold(0_u32, |sum, outline| sum.saturating_add(outline.tokens));
        let fixed = tokens.saturating_sub(weight);
        let done = match &plan {
            Some(plan) => self.replace(at, request, plan)?,
            None => false,
        };
        let after = request.estimated_tokens();
        let mostly_fixed = fixed >= after / 2;
        let outcome = match plan {
            Some(plan) if done && after < tokens => {
                let edits = outlines.iter().filter(|outline| outline.is_edit).count();
                let lasting = outlines.len() - edits - plan.count() as usize + 1;
                let messages = u32::try_from(lasting).expect("invariant: the host counts messages in 32 bits");
                Outcome::Smaller { messages, mostly_fixed }
            }
            _ => Outcome::Stuck { mostly_fixed },
        };
        let before = state::get(REFUSED_KEY)?;
        state::set(REFUSED_KEY, &Refused::after(before, request.model(), at, tokens, outcome))
    }

    /// Puts a message in the place of what goes; false when the host refused, which is said.
    fn replace(&self, at: Step, request: &LlmRequest, plan: &Plan) -> Result<bool, Failure> {
        let replacement = self.replacement(request, plan)?;
        let done = request.compact(plan.start, plan.count(), &[replacement]);
        if let Err(failure) = &done {
            log!(Warn, "turn {} step {}: no compaction: {}", at.turn, at.step, failure.message);
        }
        Ok(done.is_ok())
    }

    /// Compacts once, and remembers when it did not help.
    fn compact(&self, at: Step, request: &LlmRequest, tokens: u32, trigger: u32) -> Result<(), Failure> {
        let outlines = outlines(request)?;
        let Some(plan) = plan::plan(&outlines, tokens, trigger, self.budget.keep_tokens()) else {
            return Ok(());
        };
        let done = self.replace(at, request, &plan)?;
        let after = if done { request.estimated_tokens() } else { tokens };
        match progress::judge(done, after, trigger, plan.fixed_tokens) {
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
