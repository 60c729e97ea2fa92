//! A clock that stands still until it is told to move.

use std::sync::atomic::{AtomicU64, Ordering};

use dsh_seam::services::Clock;

/// The time, in Unix milliseconds, as a test sets it. It may also go back: the log must not.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn at(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    /// Shows `now_ms` from now on.
    pub fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    /// Moves on by `ms`.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_when_told() {
        let clock = ManualClock::at(5);
        assert_eq!((clock.now_ms(), clock.now_ms()), (5, 5));
        clock.advance(3);
        assert_eq!(clock.now_ms(), 8);
        clock.set(1);
        assert_eq!(clock.now_ms(), 1);
    }
}
