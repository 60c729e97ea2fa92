//! Whether a compaction helped, judged by its outcome, and when it is worth another try.

use serde::{Deserialize, Serialize};

/// After an attempt that did not help the request must have grown by one part in this many before the next.
const GROWTH_DIVISOR: u32 = 4;

/// An attempt that did not bring the request below the trigger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was left, in tokens.
    tokens: u32,
    /// The trigger then, in tokens.
    trigger: u32,
    /// The part that no compaction touches (system prompt, tools) was above the trigger by itself.
    hopeless: bool,
}

/// What an attempt came to.
#[derive(Debug, PartialEq)]
pub enum Progress {
    /// The request is below the trigger.
    Enough,
    /// It is not.
    TooLittle(Attempt),
}

/// Judges an attempt.
pub fn judge(compacted: bool, after: u32, trigger: u32, fixed_tokens: u32) -> Progress {
    if compacted && after < trigger {
        return Progress::Enough;
    }
    Progress::TooLittle(Attempt { tokens: after, trigger, hopeless: fixed_tokens >= trigger })
}

impl Attempt {
    /// Never again while the fixed part alone is too large (a doubled request may have another one); otherwise once there is
    /// substantially more to compact.
    pub fn may_try_again(&self, tokens: u32, trigger: u32) -> bool {
        if trigger != self.trigger {
            return true;
        }
        let growth = if self.hopeless { self.tokens } else { self.tokens / GROWTH_DIVISOR };
        tokens >= self.tokens.saturating_add(growth.max(1))
    }

    /// What a person can do about it.
    pub fn advice(&self) -> &'static str {
        if self.hopeless {
            "the system prompt and the tools alone are above the trigger; raise it, or load fewer tools"
        } else {
            "it is tried again when the request has grown by a quarter"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_by_outcome() {
        assert_eq!(judge(true, 50, 100, 10), Progress::Enough);
        let Progress::TooLittle(futile) = judge(true, 120, 100, 10) else { panic!("it did not help") };
        assert!(!futile.may_try_again(149, 100) && futile.may_try_again(150, 100) && futile.may_try_again(1, 200));
        let Progress::TooLittle(hopeless) = judge(true, 120, 100, 110) else { panic!("it did not help") };
        assert!(!hopeless.may_try_again(200, 100) && hopeless.may_try_again(240, 100));
        assert!(matches!(judge(false, 50, 100, 10), Progress::TooLittle(_)));
    }
}
