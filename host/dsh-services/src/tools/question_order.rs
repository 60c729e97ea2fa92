//! Calls that were started together put their questions in the order in which they were started, however long their guards take: who
//! answers the second question knows which call it is about.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// The calls of one agent that may still ask.
pub(super) struct QuestionOrder {
    next: AtomicU64,
    waiting: watch::Sender<BTreeSet<u64>>,
}

impl QuestionOrder {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { next: AtomicU64::new(0), waiting: watch::Sender::new(BTreeSet::new()) })
    }

    /// The next place in the order.
    pub fn enter(self: &Arc<Self>) -> QuestionTurn {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting.send_if_modified(|waiting| waiting.insert(number));
        QuestionTurn { order: self.clone(), number }
    }
}

/// A call's turn to ask.
pub(super) struct QuestionTurn {
    order: Arc<QuestionOrder>,
    number: u64,
}

impl QuestionTurn {
    /// Waits until no call that was started before may still ask. Cancel safe.
    pub async fn come(&self) {
        // The sender is a field of the order, so waiting cannot fail.
        let _ = self.order.waiting.subscribe().wait_for(|waiting| waiting.range(..self.number).next().is_none()).await;
    }

    /// This call has asked what it had to ask.
    pub fn leave(&self) {
        self.order.waiting.send_if_modified(|waiting| waiting.remove(&self.number));
    }
}

/// The call is under way; dropped, it is out of the order, whatever else still holds its turn.
pub(super) struct UnderWay<'a>(pub &'a QuestionTurn);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_call_waits_for_those_before_it_until_they_leave_or_are_gone() {
        let order = QuestionOrder::new();
        let (first, second, third) = (order.enter(), order.enter(), order.enter());
        let is_its_turn = |turn: &QuestionTurn| turn.come().now_or_never().is_some();
        assert_eq!([&first, &second, &third].map(is_its_turn), [true, false, false]);
        second.leave();
        assert_eq!([&first, &third].map(is_its_turn), [true, false]);
        drop(UnderWay(&first));
        assert!(is_its_turn(&third));
        assert!(is_its_turn(&second), "who has left may ask again");
    }
}
