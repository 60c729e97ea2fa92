//! The plugin `retry`: a model request that failed for a reason that may pass is tried again, after a wait.
//!
//! It keeps nothing: how often the step failed and how long the turn has waited is what the host says.

mod config;
mod policy;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use config::Config;
use dsh_sdk::{Failure, Plugin, Recovery, RequestErrorListener, RequestErrorNext, RequestFailure, Step, log};
use policy::{Facts, Verdict};

struct Retry(Config);

impl Plugin for Retry {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self(config))
    }
}

impl RequestErrorListener for Retry {
    fn on_request_error(
        &self,
        at: Step,
        failed: &RequestFailure,
        next: &RequestErrorNext,
    ) -> Result<Recovery, Failure> {
        let facts = Facts {
            codes: next.codes(),
            retry_after_ms: failed.retry_after_ms,
            streamed: next.streamed(),
            waited_ms: next.waited_ms(),
        };
        let verdict = policy::decide(&self.0, &facts);
        let place = format!("turn {} step {}", at.turn, at.step);
        match &verdict {
            Verdict::Retry(range) => {
                let wait = policy::choose(range, random());
                let (number, code) = (failed.attempt.saturating_add(1), &failed.failure.code);
                if facts.streamed {
                    log!(
                        Warn,
                        "{place}: the answer broke off (`{code}`) and begins again in {wait} ms; what was shown of it does not count"
                    );
                } else {
                    log!(Info, "{place}: attempt {number} in {wait} ms, after `{code}`");
                }
                return Ok(Recovery::RetryAfterMs(wait));
            }
            other if other.is_worth_telling() => log!(Warn, "{place}: {other}"),
            other => log!(Debug, "{place}: {other}"),
        }
        next.run()
    }
}

/// A number nobody can tell beforehand: agents that failed together do not come back together.
fn random() -> u64 {
    // The standard library takes its keys from the system's randomness.
    RandomState::new().build_hasher().finish()
}

dsh_sdk::export!(Retry: request_error, configure);
