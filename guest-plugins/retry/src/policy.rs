//! The decision. Pure: what is known of the failure in, what to do out.

use std::fmt;
use std::ops::RangeInclusive;

use crate::config::{AfterOutput, Config};

/// What a decision looks at.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The codes of the step's failures so far; the last is the one to decide on.
    pub codes: Vec<String>,
    /// How long the provider asks to wait.
    pub retry_after_ms: Option<u32>,
    /// Whether text or reasoning of the failed attempt had been streamed.
    pub streamed: bool,
    /// How long the turn has waited so far.
    pub waited_ms: u32,
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Wait for some time in this range, in milliseconds, and try again.
    Retry(RangeInclusive<u32>),
    /// The failure is none of those that are tried again.
    OtherCode,
    /// A part of the answer had been shown.
    Shown,
    /// All attempts were made.
    UsedUp {
        /// How many failures there were.
        failures: u32,
    },
    /// The provider asks for a longer wait than may be.
    TooLong {
        /// What it asks for.
        asked_ms: u32,
        /// What may be.
        most_ms: u32,
    },
    /// The turn has waited so long that this wait does not fit.
    OverBudget {
        /// What it has waited.
        waited_ms: u32,
        /// What it may.
        budget_ms: u32,
    },
}

impl Verdict {
    /// Whether a person should hear of it without asking for details: the failure itself does not show it.
    pub fn is_worth_telling(&self) -> bool {
        matches!(self, Verdict::TooLong { .. } | Verdict::OverBudget { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Retry(_) => write!(f, "another attempt"),
            Verdict::OtherCode => write!(f, "no other attempt after a failure of this kind"),
            Verdict::Shown => write!(f, "no other attempt, since a part of the answer had been shown"),
            Verdict::UsedUp { failures } => write!(f, "no other attempt after {failures} failures"),
            Verdict::TooLong { asked_ms, most_ms } => {
                write!(f, "no other attempt: the provider asks to wait {asked_ms} ms, and `max-wait-ms` is {most_ms}")
            }
            Verdict::OverBudget { waited_ms, budget_ms } => write!(
                f,
                "no other attempt: this turn has waited {waited_ms} ms already, and `budget-ms` is {budget_ms}"
            ),
        }
    }
}

/// Decides.
pub fn decide(config: &Config, facts: &Facts) -> Verdict {
    let is_ours = |code: &str| config.codes.iter().any(|known| known.as_str() == code);
    if !facts.codes.last().is_some_and(|code| is_ours(code)) {
        return Verdict::OtherCode;
    }
    if facts.streamed && config.after_output == AfterOutput::GiveUp {
        return Verdict::Shown;
    }
    // Failures of other kinds are answered by others, and neither use up attempts here nor lengthen the wait.
    let failures = facts.codes.iter().filter(|code| is_ours(code)).count();
    let failures = u32::try_from(failures).unwrap_or(u32::MAX);
    if failures > config.retries {
        return Verdict::UsedUp { failures };
    }
    if let Some(asked_ms) = facts.retry_after_ms.filter(|asked| *asked > config.max_wait_ms) {
        return Verdict::TooLong { asked_ms, most_ms: config.max_wait_ms };
    }
    let wait = wait(config, failures, facts.retry_after_ms.unwrap_or(0));
    let left = config.budget_ms.saturating_sub(facts.waited_ms);
    if *wait.start() > left {
        return Verdict::OverBudget { waited_ms: facts.waited_ms, budget_ms: config.budget_ms };
    }
    Verdict::Retry(*wait.start()..=left.min(*wait.end()))
}

/// How long to wait after so many failures: the first wait, doubled with each further failure, and up to half of it more. Where that
/// would be longer than the longest wait, it is the last third before that, so that not all come back at once there either. What the
/// provider asks for, at most the longest wait, is the least.
fn wait(config: &Config, failures: u32, asked_ms: u32) -> RangeInclusive<u32> {
    let most = config.max_wait_ms;
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let own = config.first_wait_ms.saturating_mul(doubled).min(most);
    let longest = own.saturating_add(own / 2).min(most);
    let shortest = own.min(longest - longest / 3);
    let asked_and_more = asked_ms.saturating_add(own / 2).min(most);
    shortest.max(asked_ms)..=longest.max(asked_and_more)
}

/// One wait of a range, chosen by a random number.
pub fn choose(range: &RangeInclusive<u32>, random: u64) -> u32 {
    let width = u64::from(range.end() - range.start()) + 1;
    let more = u32::try_from(random % width).expect("invariant: less than a width of 32 bits");
    range.start() + more
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(config: &str, facts: &Facts) -> Verdict {
        decide(&serde_json::from_str(config).expect(config), facts)
    }

    fn failed(codes: &[&str]) -> Facts {
        Facts { codes: codes.iter().map(|code| (*code).to_owned()).collect(), ..Facts::default() }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let check = |config: &str, failures: usize, expect: RangeInclusive<u32>| {
            let got = decided(config, &failed(&vec!["server"; failures]));
            assert_eq!(got, Verdict::Retry(expect), "{config} {failures}");
        };
        check("{}", 1, 500..=750);
        check("{}", 2, 1_000..=1_500);
        check("{}", 3, 2_000..=3_000);
        let many = r#"{"retries":100}"#;
        check(many, 5, 6_667..=10_000);
        check(many, 6, 6_667..=10_000);
        check(many, 100, 6_667..=10_000);
        check(r#"{"max-wait-ms":100}"#, 1, 67..=100);
        check(r#"{"max-wait-ms":600}"#, 1, 400..=600);
        check(r#"{"first-wait-ms":0}"#, 2, 0..=0);
        check(r#"{"max-wait-ms":0}"#, 2, 0..=0);
        check(
            r#"{"first-wait-ms":4294967295,"max-wait-ms":4294967295,"budget-ms":4294967295}"#,
            2,
            2_863_311_530..=u32::MAX,
        );
    }

    #[test]
    fn a_provider_that_asks_to_wait_is_not_asked_sooner() {
        let check = |config: &str, asked: u32, expect: Verdict| {
            let facts = Facts { retry_after_ms: Some(asked), ..failed(&["rate-limit"]) };
            assert_eq!(decided(config, &facts), expect, "{config} {asked}");
        };
        check("{}", 0, Verdict::Retry(500..=750));
        check("{}", 600, Verdict::Retry(600..=850));
        check("{}", 2_000, Verdict::Retry(2_000..=2_250));
        check("{}", 9_900, Verdict::Retry(9_900..=10_000));
        check("{}", 10_000, Verdict::Retry(10_000..=10_000));
        check("{}", 10_001, Verdict::TooLong { asked_ms: 10_001, most_ms: 10_000 });
        check(r#"{"max-wait-ms":60000}"#, 30_000, Verdict::Retry(30_000..=30_250));
        check(r#"{"max-wait-ms":0}"#, 1, Verdict::TooLong { asked_ms: 1, most_ms: 0 });
    }

    #[test]
    fn only_what_may_go_better_is_tried_again_and_only_so_often() {
        let check = |config: &str, codes: &[&str], expect: Verdict| {
            assert_eq!(decided(config, &failed(codes)), expect, "{config} {codes:?}");
        };
        let first = Verdict::Retry(500..=750);
        for code in ["rate-limit", "server", "timeout", "transport", "empty-response", "stream-closed"] {
            check("{}", &[code], first.clone());
        }
        for code in ["auth", "quota", "invalid-request", "context-window-exceeded", "malformed-response", "no-adapter"]
        {
            check("{}", &[code], Verdict::OtherCode);
        }
        check(r#"{"codes":["quota"]}"#, &["quota"], first.clone());
        check(r#"{"codes":["quota"]}"#, &["server"], Verdict::OtherCode);
        check(r#"{"codes":[]}"#, &["server"], Verdict::OtherCode);
        check(r#"{"retries":0}"#, &["server"], Verdict::UsedUp { failures: 1 });
        check("{}", &["server", "timeout", "server", "server"], Verdict::UsedUp { failures: 4 });
        check("{}", &["context-window-exceeded", "context-window-exceeded", "server"], first);
    }

    #[test]
    fn what_was_shown_is_not_said_again_unless_wanted() {
        let facts = Facts { streamed: true, ..failed(&["transport"]) };
        assert_eq!(decided("{}", &facts), Verdict::Shown);
        assert_eq!(decided(r#"{"after-output":"start-again"}"#, &facts), Verdict::Retry(500..=750));
    }

    #[test]
    fn a_turn_waits_no_longer_than_its_budget() {
        let check = |waited_ms: u32, expect: Verdict| {
            let facts = Facts { waited_ms, ..failed(&["server"]) };
            assert_eq!(decided(r#"{"budget-ms":1000}"#, &facts), expect, "{waited_ms}");
        };
        check(0, Verdict::Retry(500..=750));
        check(400, Verdict::Retry(500..=600));
        check(500, Verdict::Retry(500..=500));
        check(501, Verdict::OverBudget { waited_ms: 501, budget_ms: 1_000 });
        check(2_000, Verdict::OverBudget { waited_ms: 2_000, budget_ms: 1_000 });
    }

    #[test]
    fn chance_stays_in_the_range() {
        let check = |range: RangeInclusive<u32>, random: u64, expect: u32| {
            assert_eq!(choose(&range, random), expect, "{range:?} {random}");
        };
        check(500..=750, 0, 500);
        check(500..=750, 250, 750);
        check(500..=750, 251, 500);
        check(7..=7, u64::MAX, 7);
        check(0..=u32::MAX, u64::MAX, u32::MAX);
    }
}
