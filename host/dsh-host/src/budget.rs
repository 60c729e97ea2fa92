//! What a run may use: the values of `max-cost`, `max-total-tokens` and `max-time`, and what was used, in words.

use std::str::FromStr;
use std::time::Duration;

use dsh_seam::cost::Cost;
use dsh_seam::message::Usage;
use dsh_services::budget::BudgetLimits;
use schemars::JsonSchema;
use serde::Deserialize;

/// The value of `max-cost`. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "f64")]
#[schemars(with = "f64")]
pub struct MaxCost(Cost);

impl TryFrom<f64> for MaxCost {
    type Error = String;

    fn try_from(units: f64) -> Result<Self, String> {
        let cost = Cost::from_units(units).filter(|cost| *cost != Cost::ZERO || units == 0.0);
        cost.map(Self).ok_or_else(|| {
            let (least, most) = (Cost::from_parts(1), Cost::MAX);
            format!("it is no amount of money: write a number from {least} to {most}, or 0 for no limit")
        })
    }
}

impl FromStr for MaxCost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::try_from(text.parse::<f64>().unwrap_or(f64::NAN))
    }
}

/// The value of `max-time`: seconds, or a number with a unit. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "TimeValue")]
#[schemars(with = "TimeValue")]
pub struct MaxTime(Duration);

/// A time as it stands in `dsh.toml`.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "it is no time: write seconds, or a number with `ms`, `s`, `m` or `h` in quotes")]
enum TimeValue {
    /// Seconds.
    Seconds(f64),
    /// A number with a unit: `ms`, `s`, `m` or `h`.
    Text(String),
}

impl TryFrom<TimeValue> for MaxTime {
    type Error = String;

    fn try_from(value: TimeValue) -> Result<Self, String> {
        match value {
            TimeValue::Seconds(seconds) => Self::of(seconds),
            TimeValue::Text(text) => text.parse(),
        }
    }
}

impl MaxTime {
    fn of(seconds: f64) -> Result<Self, String> {
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero() || seconds == 0.0);
        time.map(Self).ok_or_else(|| "it is no time: write seconds, or a number with `ms`, `s`, `m` or `h`".into())
    }
}

impl FromStr for MaxTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let with_unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
        let (number, seconds) = with_unit.unwrap_or((text, &1.0));
        Self::of(number.parse::<f64>().unwrap_or(f64::NAN) * seconds)
    }
}

/// The limits that these values mean.
pub fn limits(cost: Option<MaxCost>, tokens: Option<u64>, time: Option<MaxTime>) -> BudgetLimits {
    BudgetLimits {
        cost: cost.map(|MaxCost(cost)| cost).filter(|cost| *cost != Cost::ZERO),
        tokens: tokens.filter(|tokens| *tokens != 0),
        time: time.map(|MaxTime(time)| time).filter(|time| !time.is_zero()),
    }
}

/// What a run used, on a line.
pub fn in_words(usage: &Usage) -> String {
    let Usage { input, output, cache_read, cache_write, reasoning, cost, estimated } = usage;
    let cost = cost.map_or_else(|| "at an unknown cost".to_owned(), |cost| format!("cost {cost}"));
    let estimated = if *estimated { ", in part by the host's estimate" } else { "" };
    format!(
        "{} tokens (input {input}, output {output}, cache-read {cache_read}, cache-write {cache_write}, reasoning {reasoning}), {cost}{estimated}",
        usage.tokens()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_a_number_and_almost_nothing_is_not_no_limit() {
        let check = |text: &str, expect: Option<&str>| {
            let cost = text.parse::<MaxCost>().ok().map(|MaxCost(cost)| cost.to_string());
            assert_eq!(cost.as_deref(), expect, "{text}");
        };
        check("0.5", Some("0.5"));
        check("2", Some("2"));
        check("1e-3", Some("0.001"));
        check("0", Some("0"));
        for text in ["-1", "0.0000000001", "1000000", "inf", "NaN", "", "1,5", "$1", "1 USD"] {
            check(text, None);
        }
    }

    #[test]
    fn a_time_is_seconds_or_has_a_unit() {
        let check = |text: &str, expect: Option<u64>| {
            let time = text.parse::<MaxTime>().ok().map(|MaxTime(time)| time.as_millis());
            assert_eq!(time, expect.map(u128::from), "{text}");
        };
        check("90", Some(90_000));
        check("90s", Some(90_000));
        check("1.5", Some(1_500));
        check("250ms", Some(250));
        check("5m", Some(300_000));
        check("1h", Some(3_600_000));
        check("0", Some(0));
        for text in ["-1", "1d", "m", "", "1 m", "inf", "1e30", "NaNs", "1e-12"] {
            check(text, None);
        }
    }

    #[test]
    fn nothing_is_no_limit() {
        let zero = limits("0".parse().ok(), Some(0), "0".parse().ok());
        assert_eq!((zero, limits(None, None, None)), (BudgetLimits::default(), BudgetLimits::default()));
    }

    #[test]
    fn what_was_used_is_a_line() {
        let usage = Usage { input: 3, output: 4, ..Usage::default() };
        let counts = "7 tokens (input 3, output 4, cache-read 0, cache-write 0, reasoning 0)";
        assert_eq!(in_words(&usage), format!("{counts}, at an unknown cost"));
        let priced = Usage { cost: Some(Cost::from_parts(1_500_000)), estimated: true, ..usage };
        assert_eq!(in_words(&priced), format!("{counts}, cost 0.0015, in part by the host's estimate"));
    }
}
