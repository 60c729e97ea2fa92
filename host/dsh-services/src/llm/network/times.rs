//! The deadlines of one call.

use std::time::Duration;

use dsh_seam::ModelFailure;
use tokio::time::Instant;

use super::super::provider::ProviderConfig;

/// What a time-out was waiting for.
#[derive(Clone, Copy)]
pub(super) enum Waited {
    FirstByte,
    Idle,
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

    pub fn first_byte(&self) -> Instant {
        self.total().min(self.begun + Duration::from_millis(self.first_byte_ms))
    }

    pub fn idle(&self) -> Instant {
        self.total().min(Instant::now() + Duration::from_millis(self.idle_ms))
    }

    pub fn failure(&self, waited: Waited) -> ModelFailure {
        let text = match waited {
            _ if Instant::now() >= self.total() => {
                format!("the answer took longer than {} ms (`total-timeout-ms`)", self.total_ms)
            }
            Waited::FirstByte => format!("no answer began within {} ms (`first-byte-timeout-ms`)", self.first_byte_ms),
            Waited::Idle => format!("the answer stood still for {} ms (`idle-timeout-ms`)", self.idle_ms),
        };
        ModelFailure::new("timeout", text)
    }
}
