//! Numbers, and what can be said about many of them.

use std::time::{Duration, Instant};

/// The same measured again and again.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// One more.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The one in the middle; NaN when there is none.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Half of the distance between the quartiles, as a part of the median.
    pub fn noise(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / 2.0 / self.median()
    }

    /// The one below which this part of them is; NaN when there is none.
    pub fn quantile(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a short list"
        )]
        let at = ((sorted.len().saturating_sub(1)) as f64 * part).round() as usize;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> Self {
        Self(values.into_iter().collect())
    }
}

/// Two things measured in turns, one number each a round.
#[derive(Debug, Clone, Default)]
pub struct Pair {
    /// What is looked at.
    pub this: Samples,
    /// What it is compared with.
    pub other: Samples,
}

impl Pair {
    /// One more round.
    pub fn push(&mut self, this: f64, other: f64) {
        self.this.push(this);
        self.other.push(other);
    }

    /// `this / other`, round by round.
    pub fn ratios(&self) -> Samples {
        self.this.0.iter().zip(&self.other.0).map(|(this, other)| this / other).collect()
    }

    /// `this - other`, round by round.
    pub fn differences(&self) -> Samples {
        self.this.0.iter().zip(&self.other.0).map(|(this, other)| this - other).collect()
    }
}

/// A duration in microseconds.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A duration in milliseconds.
pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Microseconds since `start`, for each of `count` things done since then.
pub fn micros_each(start: Instant, count: u32) -> f64 {
    micros(start.elapsed()) / f64::from(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_noise() {
        let check = |values: &[f64], median: f64, noise: f64| {
            let samples: Samples = values.iter().copied().collect();
            assert_eq!((samples.median(), samples.noise()), (median, noise), "{values:?}");
        };
        check(&[3.0, 1.0, 2.0], 2.0, 0.25);
        check(&[2.0, 2.0, 2.0, 2.0, 100.0], 2.0, 0.0);
        check(&[8.0, 9.0, 10.0, 11.0, 12.0], 10.0, 0.1);
        assert!(Samples::default().median().is_nan());
    }

    #[test]
    fn pairs_compare_round_by_round() {
        let mut pair = Pair::default();
        pair.push(2.0, 1.0);
        pair.push(20.0, 10.0);
        pair.push(9.0, 3.0);
        assert_eq!(pair.ratios().median(), 2.0);
        assert_eq!(pair.differences().median(), 6.0);
    }
}
