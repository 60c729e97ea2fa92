//! The table and the file that come out of it.

use std::fmt;

use serde_json::{Value, json};

use crate::Rows;
use crate::measure::Samples;

/// A bound that a number should keep.
#[derive(Debug, Clone, Copy)]
pub struct Reach {
    bound: f64,
    unit: &'static str,
    at_least: bool,
}

impl Reach {
    /// At most `bound`.
    pub fn at_most(bound: f64, unit: &'static str) -> Self {
        Self { bound, unit, at_least: false }
    }

    /// At least `bound`.
    pub fn at_least(bound: f64, unit: &'static str) -> Self {
        Self { bound, unit, at_least: true }
    }

    fn is_met(&self, value: f64) -> bool {
        if self.at_least { value >= self.bound } else { value <= self.bound }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.at_least { "≥" } else { "≤" };
        write!(f, "{sign} {}", shown(self.bound, self.unit))
    }
}

/// One line.
#[derive(Debug, Clone)]
pub struct Row {
    what: String,
    reach: Option<Reach>,
    unit: &'static str,
    measured: Result<Samples, String>,
    detail: String,
}

impl Row {
    /// A number with a bound.
    pub fn new(what: impl Into<String>, reach: Reach, measured: Samples) -> Self {
        Self { what: what.into(), unit: reach.unit, reach: Some(reach), measured: Ok(measured), detail: String::new() }
    }

    /// A number without a bound, to read others by.
    pub fn plain(what: impl Into<String>, unit: &'static str, measured: Samples) -> Self {
        Self { what: what.into(), unit, reach: None, measured: Ok(measured), detail: String::new() }
    }

    /// A number that could not be had here.
    pub fn skipped(what: impl Into<String>, reach: Reach, why: impl fmt::Display) -> Self {
        Self {
            what: what.into(),
            unit: reach.unit,
            reach: Some(reach),
            measured: Err(why.to_string()),
            detail: String::new(),
        }
    }

    /// Adds what the number was made of.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    fn reached(&self) -> Option<bool> {
        let (reach, measured) = (self.reach.as_ref()?, self.measured.as_ref().ok()?);
        Some(reach.is_met(measured.median()))
    }

    fn cells(&self) -> [String; 5] {
        let reach = self.reach.map(|reach| reach.to_string()).unwrap_or_default();
        let (measured, noise) = match &self.measured {
            Ok(samples) => (shown(samples.median(), self.unit), format!("±{:.0} %", samples.noise().abs() * 100.0)),
            Err(_) => (String::new(), String::new()),
        };
        let reached = match (self.reached(), &self.measured) {
            (_, Err(why)) => format!("not measured: {why}"),
            (Some(true), _) => "yes".into(),
            (Some(false), _) => "NO".into(),
            (None, _) => String::new(),
        };
        let what = if self.detail.is_empty() { self.what.clone() } else { format!("{} ({})", self.what, self.detail) };
        [what, reach, measured, noise, reached]
    }

    fn json(&self) -> Value {
        let samples = self.measured.as_ref().ok();
        json!({
            "what": self.what,
            "unit": self.unit,
            "reach": self.reach.map(|reach| reach.bound),
            "atLeast": self.reach.is_some_and(|reach| reach.at_least),
            "measured": samples.map(Samples::median),
            "noise": samples.map(Samples::noise),
            "reached": self.reached(),
            "detail": self.detail,
            "skipped": self.measured.as_ref().err(),
        })
    }
}

/// A number as a person reads it: three digits that count.
fn shown(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let number = format!("{value:.digits$}");
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    if unit == "×" { format!("{number}×") } else { format!("{number} {unit}") }
}

/// All rows.
pub struct Report {
    only: Option<String>,
    rows: Vec<Row>,
    failed: Vec<(String, String)>,
}

impl Report {
    /// One for all groups, or only one of them.
    pub fn new(only: Option<&str>) -> Self {
        Self { only: only.map(str::to_owned), rows: Vec::new(), failed: Vec::new() }
    }

    /// Measures a group, unless it is not wanted. A group that fails is said, and the others go on.
    pub async fn group<F: Future<Output = Rows>>(&mut self, name: &str, measure: impl FnOnce() -> F) {
        if self.only.as_ref().is_some_and(|only| only != name) {
            return;
        }
        eprintln!("measuring {name} …");
        match measure().await {
            Ok(rows) => self.rows.extend(rows),
            Err(error) => self.failed.push((name.to_owned(), error.to_string())),
        }
    }

    /// For programs.
    pub fn json(&self) -> String {
        let failed: Vec<Value> = self.failed.iter().map(|(group, why)| json!({ "group": group, "why": why })).collect();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let value =
            json!({ "cores": cores, "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(), "failed": failed });
        serde_json::to_string_pretty(&value).expect("invariant: all keys are strings") + "\n"
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["what", "reach", "measured", "noise", "reached"].map(str::to_owned);
        let rule = [(); 5].map(|()| "---".to_owned());
        for cells in [head, rule].into_iter().chain(self.rows.iter().map(Row::cells)) {
            writeln!(f, "| {} |", cells.join(" | "))?;
        }
        for (group, why) in &self.failed {
            writeln!(f, "\nThe group `{group}` could not be measured: {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_whether_the_bound_is_kept() {
        let check = |row: Row, expect: [&str; 5]| assert_eq!(row.cells(), expect);
        let samples = |values: &[f64]| values.iter().copied().collect::<Samples>();
        check(Row::new("a", Reach::at_most(1.2, "×"), samples(&[1.1])), ["a", "≤ 1.2×", "1.1×", "±0 %", "yes"]);
        check(
            Row::new("a", Reach::at_most(60.0, "µs"), samples(&[61.04])).detail("b"),
            ["a (b)", "≤ 60 µs", "61 µs", "±0 %", "NO"],
        );
        check(Row::new("a", Reach::at_least(3000.0, "×"), samples(&[2999.0])), ["a", "≥ 3000×", "2999×", "±0 %", "NO"]);
        check(Row::plain("a", "ms", samples(&[0.5])), ["a", "", "0.5 ms", "±0 %", ""]);
        check(Row::skipped("a", Reach::at_most(3.0, "×"), "no"), ["a", "≤ 3×", "", "", "not measured: no"]);
    }
}
