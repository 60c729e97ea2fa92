//! What a run may use: counted by the models ([`crate::llm`]), asked for by the loop.

use std::cmp::Ordering;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dsh_seam::cost::Cost;
use dsh_seam::message::Usage;
use dsh_seam::services::{Budget, OutOfBudget};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

/// What a run may use at most; none is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Money.
    pub cost: Option<Cost>,
    /// Tokens of every kind together.
    pub tokens: Option<u64>,
    /// Time from the start of the first turn.
    pub time: Option<Duration>,
}

/// The budget of one run, and what of it was spent.
#[derive(Debug, Default)]
pub struct RunBudget {
    limits: BudgetLimits,
    spent: Mutex<Spent>,
    ends: OnceLock<Instant>,
}

#[derive(Debug, Default)]
struct Spent {
    tokens: u64,
    cost: Cost,
}

impl RunBudget {
    /// A budget of which nothing is spent; its time begins with the first turn.
    pub fn new(limits: BudgetLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The limits.
    pub fn limits(&self) -> &BudgetLimits {
        &self.limits
    }

    /// Whether it matters what model calls use.
    pub fn counts(&self) -> bool {
        self.limits.cost.is_some() || self.limits.tokens.is_some()
    }

    /// A call has used `now`, of which `before` is counted already.
    pub fn count(&self, before: &Usage, now: &Usage) {
        if !self.counts() {
            return;
        }
        let mut spent = self.spent();
        spent.tokens = spent.tokens.saturating_sub(before.tokens()).saturating_add(now.tokens());
        spent.cost = spent.cost.minus(before.cost.unwrap_or_default()).plus(now.cost.unwrap_or_default());
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first budget of which what was spent is `too_much`.
    fn first(&self, too_much: impl Fn(Ordering) -> bool) -> Option<OutOfBudget> {
        let BudgetLimits { cost, tokens, time } = self.limits;
        if self.counts() {
            let Spent { tokens: used, cost: paid } = *self.spent();
            if let Some(limit) = cost.filter(|limit| too_much(paid.cmp(limit))) {
                let message = format!("the run has cost {paid}, and `--max-cost` allows {limit}");
                return Some(OutOfBudget { code: "max-cost", message });
            }
            if let Some(limit) = tokens.filter(|limit| too_much(used.cmp(limit))) {
                let message = format!("the run has used {used} tokens, and `--max-total-tokens` allows {limit}");
                return Some(OutOfBudget { code: "max-total-tokens", message });
            }
        }
        let is_over = self.ends.get().is_some_and(|ends| Instant::now() >= *ends);
        time.filter(|_| is_over).map(out_of_time)
    }
}

impl Budget for RunBudget {
    fn used_up(&self) -> Option<OutOfBudget> {
        self.first(Ordering::is_ge)
    }

    fn exceeded(&self) -> Option<OutOfBudget> {
        self.first(Ordering::is_gt)
    }

    fn time_is_up(&self) -> BoxFuture<'_, OutOfBudget> {
        let Some(time) = self.limits.time else { return std::future::pending().boxed() };
        // A time that no clock can hold never ends.
        let Some(ends) = Instant::now().checked_add(time) else { return std::future::pending().boxed() };
        let ends = *self.ends.get_or_init(|| ends);
        async move {
            tokio::time::sleep_until(ends).await;
            out_of_time(time)
        }
        .boxed()
    }
}

fn out_of_time(time: Duration) -> OutOfBudget {
    let message = format!("the run has taken its {} s, and `--max-time` allows no more", time.as_secs_f64());
    OutOfBudget { code: "max-time", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(input: u32, cost: Option<u64>) -> Usage {
        Usage { input, cost: cost.map(Cost::from_parts), ..Usage::default() }
    }

    fn codes(budget: &RunBudget) -> (Option<&'static str>, Option<&'static str>) {
        (budget.used_up().map(|over| over.code), budget.exceeded().map(|over| over.code))
    }

    #[test]
    fn all_of_it_may_be_used_and_no_more() {
        let budget = RunBudget::new(BudgetLimits { tokens: Some(10), ..BudgetLimits::default() });
        let before = Usage::default();
        budget.count(&before, &used(9, None));
        assert_eq!(codes(&budget), (None, None));
        budget.count(&before, &used(1, None));
        assert_eq!(codes(&budget), (Some("max-total-tokens"), None));
        budget.count(&before, &used(1, None));
        assert_eq!(codes(&budget), (Some("max-total-tokens"), Some("max-total-tokens")));
        let message = budget.used_up().expect("used up").message;
        assert_eq!(message, "the run has used 11 tokens, and `--max-total-tokens` allows 10");
    }

    #[test]
    fn what_is_told_of_one_call_again_replaces_what_was_told() {
        let limits = BudgetLimits { tokens: Some(10), cost: Some(Cost::from_parts(100)), time: None };
        let budget = RunBudget::new(limits);
        budget.count(&Usage::default(), &used(8, Some(90)));
        budget.count(&used(8, Some(90)), &used(9, Some(99)));
        assert_eq!(codes(&budget), (None, None));
        budget.count(&Usage::default(), &used(0, Some(2)));
        assert_eq!(codes(&budget), (Some("max-cost"), Some("max-cost")));
        let message = budget.used_up().expect("used up").message;
        assert_eq!(message, "the run has cost 0.000000101, and `--max-cost` allows 0.0000001");
    }

    #[test]
    fn what_has_no_known_cost_is_free_and_without_limits_nothing_runs_out() {
        let budget = RunBudget::new(BudgetLimits { cost: Some(Cost::from_parts(1)), ..BudgetLimits::default() });
        budget.count(&Usage::default(), &used(u32::MAX, None));
        assert_eq!(codes(&budget), (None, None));
        let endless = RunBudget::new(BudgetLimits::default());
        endless.count(&Usage::default(), &used(u32::MAX, Some(u64::MAX)));
        assert_eq!(codes(&endless), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_begins_with_the_first_turn() {
        let budget = RunBudget::new(BudgetLimits { time: Some(Duration::from_secs(5)), ..BudgetLimits::default() });
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(codes(&budget), (None, None));
        assert!(tokio::time::timeout(Duration::from_secs(3), budget.time_is_up()).await.is_err(), "the first turn");
        assert_eq!(codes(&budget), (None, None));
        let begun = Instant::now();
        let over = budget.time_is_up().await;
        assert_eq!(begun.elapsed().as_secs(), 2, "another turn has what the first has left");
        assert_eq!(over.message, "the run has taken its 5 s, and `--max-time` allows no more");
        assert_eq!(codes(&budget), (Some("max-time"), Some("max-time")));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_the_time_never_ends() {
        let endless = RunBudget::new(BudgetLimits { time: Some(Duration::MAX), ..BudgetLimits::default() });
        for budget in [endless, RunBudget::default()] {
            let waited = tokio::time::timeout(Duration::from_secs(1_000_000), budget.time_is_up()).await;
            assert!(waited.is_err());
            assert_eq!(codes(&budget), (None, None));
        }
    }
}
