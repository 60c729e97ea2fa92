//! Money: an integer inside, a plain number in JSON.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The parts of one unit of money.
const PARTS: u64 = 1_000_000_000;

/// An amount of money, in US dollars or whatever else the price table is in, in steps of 10⁻⁹. Sums are sums of integers.
///
/// Its JSON is a number of units, `0.001234`. A double carries fifteen decimal digits exactly, so an amount has no more: it is less
/// than a million, and larger sums stay at [`Cost::MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// Nothing.
    pub const ZERO: Cost = Cost(0);
    /// The largest amount, 999,999.999999999.
    pub const MAX: Cost = Cost(PARTS * 1_000_000 - 1);

    /// So many steps of 10⁻⁹, at most [`Cost::MAX`].
    pub const fn from_parts(parts: u64) -> Self {
        if parts < Self::MAX.0 { Self(parts) } else { Self::MAX }
    }

    /// Steps of 10⁻⁹.
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// So many units, rounded to the nearest step; none for what is no amount: less than nothing, more than [`Cost::MAX`], no number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is looked at before")]
    #[expect(clippy::cast_precision_loss, reason = "both numbers are less than 2⁵³")]
    pub fn from_units(units: f64) -> Option<Self> {
        let parts = (units * PARTS as f64).round();
        (units >= 0.0 && parts <= Self::MAX.0 as f64).then_some(Self(parts as u64))
    }

    /// Both together, at most [`Cost::MAX`].
    #[must_use]
    pub const fn plus(self, other: Cost) -> Self {
        Self::from_parts(self.0.saturating_add(other.0))
    }

    /// What is left of it, at least nothing.
    #[must_use]
    pub const fn minus(self, other: Cost) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// What is known of both together.
    #[must_use]
    pub fn plus_known(one: Option<Cost>, other: Option<Cost>) -> Option<Cost> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.plus(other)),
            (one, other) => one.or(other),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, parts) = (self.0 / PARTS, self.0 % PARTS);
        if parts == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{parts:09}").trim_end_matches('0'))
    }
}

/// What is no amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an amount of money is a number from 0 to {}", Cost::MAX)]
pub struct NoCost;

impl FromStr for Cost {
    type Err = NoCost;

    fn from_str(text: &str) -> Result<Self, NoCost> {
        text.parse().ok().and_then(Self::from_units).ok_or(NoCost)
    }
}

impl Serialize for Cost {
    #[expect(clippy::cast_precision_loss, reason = "both numbers are less than 2⁵³")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(PARTS) {
            serializer.serialize_u64(self.0 / PARTS)
        } else {
            serializer.serialize_f64(self.0 as f64 / PARTS as f64)
        }
    }
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let units = f64::deserialize(deserializer)?;
        Self::from_units(units).ok_or_else(|| serde::de::Error::custom(NoCost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_the_shortest_number_in_json_and_comes_back_the_same() {
        let check = |parts: u64, json: &str, shown: &str| {
            let cost = Cost::from_parts(parts);
            assert_eq!(
                (serde_json::to_string(&cost).expect("a number"), cost.to_string()),
                (json.into(), shown.into())
            );
            assert_eq!(serde_json::from_str::<Cost>(json).expect(json), cost);
            assert_eq!(shown.parse(), Ok(cost));
        };
        check(0, "0", "0");
        check(1, "1e-9", "0.000000001");
        check(1_234_000, "0.001234", "0.001234");
        check(300_000_000, "0.3", "0.3");
        check(1_000_000_000, "1", "1");
        check(12_345_678_901, "12.345678901", "12.345678901");
        check(u64::MAX, "999999.999999999", "999999.999999999");
    }

    #[test]
    fn every_amount_comes_back_the_same() {
        let mut parts = 1;
        while parts < Cost::MAX.parts() {
            for near in [parts - 1, parts, parts + 1] {
                let cost = Cost::from_parts(near);
                let json = serde_json::to_string(&cost).expect("a number");
                assert_eq!(serde_json::from_str::<Cost>(&json).expect(&json), cost, "{json}");
                assert_eq!(cost.to_string().parse(), Ok(cost));
            }
            parts += parts / 97 + 1;
        }
    }

    #[test]
    fn sums_are_exact_and_stay_at_the_largest() {
        let tenth = Cost::from_parts(PARTS / 10);
        assert_eq!(Cost::MAX.plus(tenth), Cost::MAX);
        assert_eq!(Cost::MAX.minus(tenth).plus(tenth), Cost::MAX);
        assert_eq!(tenth.minus(Cost::MAX), Cost::ZERO);
        assert_eq!((0..10).fold(Cost::ZERO, |sum, _| sum.plus(tenth)), Cost::from_parts(PARTS));
        assert_eq!(Cost::plus_known(None, Some(tenth)), Some(tenth));
        assert_eq!(Cost::plus_known(Some(tenth), None), Some(tenth));
        assert_eq!(Cost::plus_known(None, None), None);
        assert_eq!(Cost::plus_known(Some(tenth), Some(tenth)), Some(Cost::from_parts(PARTS / 5)));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["-1", "-0.1", "1000000", "1e300", "NaN", "inf", "", "1,5", "$1"] {
            assert_eq!(text.parse::<Cost>(), Err(NoCost), "{text}");
        }
        let error = serde_json::from_str::<Cost>("-1").expect_err("refused").to_string();
        assert!(error.starts_with("an amount of money is a number from 0 to 999999.999999999"), "{error}");
        assert_eq!("1e-9".parse(), Ok(Cost::from_parts(1)));
        assert_eq!("0.00000000049".parse(), Ok(Cost::ZERO), "rounded");
    }
}
