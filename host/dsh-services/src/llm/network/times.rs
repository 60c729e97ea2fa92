//! The deadlines of one call; that for the connection is the client's.

use std::time::Duration;

use dsh_seam::ModelFailure;
use tokio::time::Instant;

use super::super::provider::ProviderConfig;

/// How long the rest of an answer is waited for once the provider has said that it is whole: the counts come right behind that word,
/// and a server that leaves its connection open brings nothing any more.
const AFTER_FINISH: Duration = Duration::from_secs(2);

/// What a time-out was waiting for.
#[derive(Clone, Copy)]
pub(super) enum Waited {
    FirstByte,
    Idle,
    Total,
}

/// The deadlines of one call.
pub(super) struct Times {
    begun: Instant,
    first_byte_ms: u64,
    idle_ms: u64,
    total_ms: u64,
}

impl Times {
    pub fn new(config: &ProviderConfig) -> Self {
        Self {
            begun: Instant::now(),
            first_byte_ms: config.first_byte_timeout_ms,
            idle_ms: config.idle_timeout_ms,
            total_ms: config.total_timeout_ms,
        }
    }

    pub fn total(&self) -> Instant {
        self.begun + Duration::from_millis(self.total_ms)
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.total()
    }

    pub fn first_byte(&self) -> Instant {
        self.total().min(self.begun + Duration::from_millis(self.first_byte_ms))
    }

    /// Counted from now, so that a reader that falls behind is no silence of the provider's.
    pub fn idle(&self) -> Instant {
        self.total().min(Instant::now() + Duration::from_millis(self.idle_ms))
    }

    /// For what may still come behind the end of an answer.
    pub fn after_finish(&self) -> Instant {
        self.idle().min(Instant::now() + AFTER_FINISH)
    }

    pub fn failure(&self, waited: Waited) -> ModelFailure {
        let waited = if self.is_over() { Waited::Total } else { waited };
        let text = match waited {
            Waited::FirstByte => format!("no answer began within {} ms (`first-byte-timeout-ms`)", self.first_byte_ms),
            Waited::Idle => format!("the answer stood still for {} ms (`idle-timeout-ms`)", self.idle_ms),
            Waited::Total => format!("the answer took longer than {} ms (`total-timeout-ms`)", self.total_ms),
        };
        ModelFailure::new("timeout", text)
    }
}
