//! What a session knows of requests that the provider refused for their size, and when another compaction is pointless.
//!
//! A compaction is judged by its outcome alone: whether a request was taken after it.

use dsh_sdk::Step;
use serde::{Deserialize, Serialize};

/// After so many compactions in a row without a request that was taken it is not the history that is too long.
const MAX_UNPROVEN: u32 = 3;

/// Requests of one model that were refused for their size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// Which model, `PROVIDER/MODEL`.
    model: Option<String>,
    /// The smallest of them, in tokens by the host's estimate.
    tokens: u32,
    /// Compactions since the last request that was taken.
    unproven: u32,
    /// Where the last one was refused.
    turn: u32,
    step: u32,
    /// Messages of the history after the last compaction.
    messages: u32,
    /// There was nothing to compact, or nothing that would have made it smaller.
    stuck: bool,
    /// System prompt and tools were most of it.
    fixed: bool,
}

/// What came of the compaction of a refused request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// It is smaller now.
    Smaller {
        /// Messages of the history now.
        messages: u32,
        /// System prompt and tools are most of what is left.
        mostly_fixed: bool,
    },
    /// It is what it was.
    Stuck {
        /// System prompt and tools are most of it.
        mostly_fixed: bool,
    },
}

impl Refused {
    /// Takes a refusal into account: where it was, of what size, and what its compaction came to.
    pub fn after(before: Option<Self>, model: Option<String>, at: Step, tokens: u32, outcome: Outcome) -> Self {
        let before = before.filter(|before| before.model == model);
        let smallest = before.as_ref().map_or(tokens, |before| before.tokens.min(tokens));
        let unproven = before.as_ref().map_or(0, |before| before.unproven);
        let messages = before.map_or(0, |before| before.messages);
        let refused = Self {
            model,
            tokens: smallest,
            unproven,
            turn: at.turn,
            step: at.step,
            messages,
            stuck: false,
            fixed: false,
        };
        match outcome {
            Outcome::Smaller { messages, mostly_fixed } => {
                Self { messages, unproven: unproven.saturating_add(1), fixed: mostly_fixed, ..refused }
            }
            Outcome::Stuck { mostly_fixed } => Self { stuck: true, fixed: mostly_fixed, ..refused },
        }
    }

    /// Whether it is about this model.
    pub fn is_of(&self, model: Option<&str>) -> bool {
        self.model.as_deref() == model
    }

    /// Why a request that was refused at `at` should not be compacted and sent once more; none when it should.
    pub fn hopeless(&self, at: Step) -> Option<&'static str> {
        let here = (self.turn, self.step) == (at.turn, at.step);
        match self {
            Self { unproven: MAX_UNPROVEN.., fixed: true, .. } | Self { stuck: true, fixed: true, .. }
                if here || self.unproven >= MAX_UNPROVEN =>
            {
                Some(
                    "the system prompt and the tools are most of what is left; load fewer tools, or choose a model with a larger window",
                )
            }
            Self { unproven: MAX_UNPROVEN.., .. } => Some(
                "the last three compactions did not make the provider take a request; choose a model with a larger window",
            ),
            Self { stuck: true, .. } if here => Some("nothing in it can be compacted any more"),
            _ => None,
        }
    }

    /// Whether it waits for a request to be taken, and the number of messages to look behind for an answer; at a later step of the same
    /// turn there was one for certain.
    pub fn is_unproven(&self) -> bool {
        self.unproven > 0
    }

    /// Whether a request was taken since, seen from a request at `at` that is no other attempt. `has_answer` tells whether the model has
    /// said anything behind so many messages of the history.
    pub fn was_taken<E>(&self, at: Step, has_answer: impl FnOnce(u32) -> Result<bool, E>) -> Result<bool, E> {
        match (self.turn, self.step) {
            (turn, step) if turn == at.turn => Ok(at.step > step),
            _ => has_answer(self.messages),
        }
    }

    /// A request was taken: what was done helped.
    pub fn proven(self) -> Self {
        Self { unproven: 0, stuck: false, fixed: false, ..self }
    }

    /// A request of so many tokens will be refused, by what is known for certain: a compaction below has helped.
    pub fn limit(&self) -> Option<u32> {
        (self.unproven == 0 && !self.stuck).then_some(self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLER: Outcome = Outcome::Smaller { messages: 4, mostly_fixed: false };
    const STUCK: Outcome = Outcome::Stuck { mostly_fixed: false };

    fn step(turn: u32, step: u32) -> Step {
        Step { turn, step }
    }

    fn refused(outcomes: &[Outcome]) -> Refused {
        let add = |before, (n, outcome): (usize, &Outcome)| {
            Some(Refused::after(before, Some("a/b".to_owned()), step(1, 1), 100 - n as u32, *outcome))
        };
        outcomes.iter().enumerate().fold(None, add).expect("at least one outcome")
    }

    #[test]
    fn three_compactions_in_vain_are_enough() {
        let check = |outcomes: &[Outcome], here: bool, elsewhere: bool| {
            let refused = refused(outcomes);
            let got = (refused.hopeless(step(1, 1)).is_some(), refused.hopeless(step(2, 1)).is_some());
            assert_eq!(got, (here, elsewhere), "{outcomes:?}");
        };
        check(&[SMALLER], false, false);
        check(&[SMALLER, SMALLER], false, false);
        check(&[SMALLER, SMALLER, SMALLER], true, true);
        // Where nothing can go now something may once more was said.
        check(&[STUCK], true, false);
        check(&[SMALLER, STUCK], true, false);
        check(&[SMALLER, SMALLER, SMALLER, STUCK], true, true);
    }

    #[test]
    fn the_reason_says_what_to_do() {
        let check = |outcomes: &[Outcome], part: &str| {
            let reason = refused(outcomes).hopeless(step(1, 1)).expect("a reason");
            assert!(reason.contains(part), "{reason}");
        };
        check(&[STUCK], "nothing in it can be compacted");
        check(&[Outcome::Stuck { mostly_fixed: true }], "load fewer tools");
        check(&[SMALLER, SMALLER, SMALLER], "the last three compactions");
        check(&[SMALLER, SMALLER, Outcome::Smaller { messages: 1, mostly_fixed: true }], "load fewer tools");
    }

    #[test]
    fn a_request_that_was_taken_is_the_proof() {
        let waiting = refused(&[SMALLER, SMALLER]);
        assert_eq!((waiting.is_unproven(), waiting.limit()), (true, None));
        let taken = |at: Step, answers: bool| {
            let asked = |behind: u32| {
                assert_eq!(behind, 4);
                Ok::<_, ()>(answers)
            };
            waiting.was_taken(at, asked)
        };
        assert_eq!(taken(step(1, 1), true), Ok(false));
        assert_eq!(taken(step(1, 2), false), Ok(true));
        assert_eq!(taken(step(2, 1), false), Ok(false));
        assert_eq!(taken(step(2, 1), true), Ok(true));
        let proven = waiting.proven();
        assert_eq!((proven.is_unproven(), proven.limit()), (false, Some(99)));
        let again = Refused::after(Some(proven), Some("a/b".to_owned()), step(3, 1), 120, SMALLER);
        assert_eq!((again.unproven, again.tokens), (1, 99));
    }

    #[test]
    fn another_model_begins_anew() {
        let other = Refused::after(Some(refused(&[SMALLER; 3])), Some("c/d".to_owned()), step(2, 1), 7, SMALLER);
        assert_eq!((other.unproven, other.tokens, other.is_of(Some("c/d")), other.is_of(None)), (1, 7, true, false));
    }
}
