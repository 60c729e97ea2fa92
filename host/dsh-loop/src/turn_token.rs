//! The cancellation of one turn, what cancelled it, the call above it when the agent was made for one, and how long it has waited.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dsh_seam::event::{ReasonKind, TurnReason};
use dsh_seam::services::OutOfBudget;
use tokio_util::sync::CancellationToken;

/// The reason of a dispose that came from a call outside of any turn, which has no reason of its own.
const PARENT_DISPOSED: &str = "its parent was disposed";

/// What ended a turn before its own end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A budget of the run is used up.
    Budget(OutOfBudget),
    /// `abort` or `cancel`, with the first reason. It replaces a budget.
    Aborted(String),
    /// `dispose`, which replaces both.
    Disposed(String),
}

impl Cause {
    /// A stronger cause replaces a weaker one; among equals the first stands.
    fn is_stronger_than(&self, other: &Cause) -> bool {
        let strength = |cause: &Cause| match cause {
            Cause::Budget(_) => 0,
            Cause::Aborted(_) => 1,
            Cause::Disposed(_) => 2,
        };
        strength(self) > strength(other)
    }

    /// The sentence that says why.
    pub(crate) fn into_words(self) -> String {
        match self {
            Cause::Budget(over) => over.message,
            Cause::Aborted(reason) | Cause::Disposed(reason) => reason,
        }
    }

    /// How a turn ends for it.
    pub(crate) fn into_reason(self) -> TurnReason {
        match self {
            Cause::Budget(OutOfBudget { code, message }) => TurnReason {
                code: Some(code.to_owned()),
                message: Some(message),
                ..TurnReason::plain(ReasonKind::Budget)
            },
            Cause::Aborted(reason) => TurnReason { reason: Some(reason), ..TurnReason::plain(ReasonKind::Aborted) },
            Cause::Disposed(reason) => TurnReason { reason: Some(reason), ..TurnReason::plain(ReasonKind::Disposed) },
        }
    }
}

/// The cancellation of one turn, from its drain to just before `turn/end`.
#[derive(Debug, Default)]
pub struct TurnToken {
    token: CancellationToken,
    /// A plain lock: it is taken beside the inbox's, where the model checker comes between already.
    cause: Mutex<Option<Cause>>,
    above: Option<Arc<Above>>,
    /// Milliseconds waited for further attempts at model calls.
    waited_ms: AtomicU64,
}

impl TurnToken {
    /// A turn of an agent that was made for a call is cancelled with it, in the same step.
    pub fn new(above: Option<Arc<Above>>) -> Self {
        let token = above.as_ref().map_or_else(CancellationToken::new, |above| above.cancel.child_token());
        Self { token, cause: Mutex::default(), above, waited_ms: AtomicU64::new(0) }
    }

    /// How long the turn has waited for further attempts.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_millis(self.waited_ms.load(Ordering::Relaxed))
    }

    /// Counts a wait; only the driver waits, so nothing comes between.
    pub(crate) fn add_wait(&self, wait: Duration) {
        self.waited_ms.fetch_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What is cancelled.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// What cancelled it, if anything did.
    pub fn cause(&self) -> Option<Cause> {
        let own = self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (own, self.above.as_ref().and_then(|above| above.cause())) {
            (Some(own), Some(above)) if above.is_stronger_than(&own) => Some(above),
            (own, above) => own.or(above),
        }
    }

    /// Cancels it. The strongest cause stands, among equals the first.
    pub(crate) fn cancel(&self, cause: Cause) {
        let mut known = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| cause.is_stronger_than(known)) {
            *known = Some(cause);
        }
        drop(known);
        self.token.cancel();
    }
}

/// The call that an agent was made for, which its turns end with.
#[derive(Debug)]
pub struct Above {
    cancel: CancellationToken,
    turn: Option<Arc<TurnToken>>,
}

impl Above {
    /// `cancel` is the token of the call; `turn` is the turn that the call is in, if it is in one.
    pub fn new(cancel: CancellationToken, turn: Option<Arc<TurnToken>>) -> Self {
        Self { cancel, turn }
    }

    /// What ended the call, if anything did.
    pub fn cause(&self) -> Option<Cause> {
        let of_turn = self.turn.as_ref().and_then(|turn| turn.cause());
        of_turn.or_else(|| self.cancel.is_cancelled().then(|| Cause::Disposed(PARENT_DISPOSED.to_owned())))
    }

    /// Returns when the call is cancelled. Cancel safe.
    pub async fn ended(&self) {
        self.cancel.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted(reason: &str) -> Cause {
        Cause::Aborted(reason.into())
    }

    fn disposed(reason: &str) -> Cause {
        Cause::Disposed(reason.into())
    }

    fn budget() -> Cause {
        Cause::Budget(OutOfBudget { code: "max-cost", message: "too dear".into() })
    }

    /// A turn, and a turn two generations below it.
    fn family() -> (Arc<TurnToken>, TurnToken) {
        let below = |turn: &Arc<TurnToken>| {
            TurnToken::new(Some(Arc::new(Above::new(turn.token().clone(), Some(turn.clone())))))
        };
        let first = Arc::new(TurnToken::default());
        let second = Arc::new(below(&first));
        let third = below(&second);
        (first, third)
    }

    #[test]
    fn what_ends_a_turn_ends_all_below_it_for_the_same_reason() {
        let (first, third) = family();
        assert_eq!((third.token().is_cancelled(), third.cause()), (false, None));
        first.cancel(aborted("enough"));
        assert_eq!((third.token().is_cancelled(), third.cause()), (true, Some(aborted("enough"))));
        first.cancel(disposed("bye"));
        assert_eq!(third.cause(), Some(disposed("bye")));
    }

    #[test]
    fn what_ends_a_turn_below_leaves_those_above_alone_and_a_dispose_comes_before_an_abort() {
        let (first, third) = family();
        third.cancel(aborted("itself"));
        assert_eq!((first.token().is_cancelled(), first.cause()), (false, None));
        first.cancel(aborted("enough"));
        assert_eq!(third.cause(), Some(aborted("itself")), "the first of two aborts");
        first.cancel(disposed("bye"));
        assert_eq!(third.cause(), Some(disposed("bye")));
        third.cancel(disposed("its own"));
        assert_eq!(third.cause(), Some(disposed("its own")));
    }

    #[test]
    fn a_budget_gives_way_to_an_abort_and_an_abort_to_a_dispose_whichever_came_first() {
        let causes = [budget(), aborted("enough"), disposed("bye")];
        for (weak, first) in causes.iter().enumerate() {
            for (strong, second) in causes.iter().enumerate() {
                let turn = TurnToken::default();
                turn.cancel(first.clone());
                turn.cancel(second.clone());
                assert_eq!(turn.cause().as_ref(), Some(&causes[weak.max(strong)]), "{first:?}, {second:?}");
                let (above, below) = family();
                below.cancel(first.clone());
                above.cancel(second.clone());
                assert_eq!(below.cause().as_ref(), Some(&causes[weak.max(strong)]), "{first:?} under {second:?}");
            }
        }
    }

    #[test]
    fn a_call_outside_of_any_turn_ends_with_its_agent() {
        let life = CancellationToken::new();
        let turn = TurnToken::new(Some(Arc::new(Above::new(life.clone(), None))));
        assert_eq!(turn.cause(), None);
        life.cancel();
        assert_eq!((turn.token().is_cancelled(), turn.cause()), (true, Some(disposed(PARENT_DISPOSED))));
    }
}
