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
    group: String,
    what: String,
    reach: Option<Reach>,
    unit: &'static str,
    measured: Result<Samples, String>,
    detail: String,
}

impl Row {
    /// A number with a bound.
    pub fn new(what: impl Into<String>, reach: Reach, measured: Samples) -> Self {
        Self { reach: Some(reach), ..Self::plain(what, reach.unit, measured) }
    }

    /// A number without a bound, to read others by.
    pub fn plain(what: impl Into<String>, unit: &'static str, measured: Samples) -> Self {
        let (group, detail) = (String::new(), String::new());
        Self { group, what: what.into(), unit, reach: None, measured: Ok(measured), detail }
    }

    /// A number with a bound that could not be had here.
    pub fn skipped(what: impl Into<String>, reach: Reach, why: impl fmt::Display) -> Self {
        Self { reach: Some(reach), ..Self::missing(what, reach.unit, why) }
    }

    /// The same without a bound.
    pub fn missing(what: impl Into<String>, unit: &'static str, why: impl fmt::Display) -> Self {
        Self { measured: Err(why.to_string()), ..Self::plain(what, unit, Samples::default()) }
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
            "group": self.group,
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
    left_out: Vec<&'static str>,
    rows: Vec<Row>,
    failed: Vec<(String, String)>,
}

impl Report {
    /// One for all groups but those `left_out`, or only one of them.
    pub fn new(only: Option<&str>, left_out: Vec<&'static str>) -> Self {
        Self { only: only.map(str::to_owned), left_out, rows: Vec::new(), failed: Vec::new() }
    }

    /// Measures a group, unless it is not wanted. A group that fails is said, and the others go on.
    pub async fn group<F: Future<Output = Rows>>(&mut self, name: &str, measure: impl FnOnce() -> F) {
        let wanted = self.only.as_ref().map_or(!self.left_out.contains(&name), |only| only == name);
        if !wanted {
            return;
        }
        eprintln!("measuring {name} …");
        match measure().await {
            Ok(rows) => self.rows.extend(rows.into_iter().map(|row| Row { group: name.to_owned(), ..row })),
            Err(error) => self.failed.push((name.to_owned(), error.to_string())),
        }
    }

    /// For programs. When one group was measured, the others are as they were in `before`.
    pub fn json(&self, quick: bool, before: &Value) -> String {
        let mut rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        let mut failed: Vec<Value> =
            self.failed.iter().map(|(group, why)| json!({ "group": group, "why": why })).collect();
        if let Some(only) = &self.only {
            let others = |list: &str| {
                let known = before[list].as_array().cloned().unwrap_or_default();
                known.into_iter().filter(|row| row["group"] != only.as_str()).collect::<Vec<_>>()
            };
            rows.splice(0..0, others("rows"));
            failed.splice(0..0, others("failed"));
        }
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let value = json!({ "cores": cores, "quick": quick, "rows": rows, "failed": failed });
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
        check(Row::missing("a", "×", "no"), ["a", "", "", "", "not measured: no"]);
    }

    #[tokio::test]
    async fn a_group_takes_the_place_of_its_rows_from_before() {
        let rows = |what: &str| vec![Row::plain(what, "ms", [1.0].into_iter().collect())];
        let mut all = Report::new(None, vec!["left-out"]);
        all.group("a", async || Ok(rows("a1"))).await;
        all.group("left-out", async || Ok(rows("never"))).await;
        all.group("b", async || Err("broken".into())).await;
        let before: Value = serde_json::from_str(&all.json(false, &Value::Null)).expect("JSON");
        let mut one = Report::new(Some("b"), Vec::new());
        one.group("a", async || Ok(rows("never"))).await;
        one.group("b", async || Ok(rows("b1"))).await;
        let after: Value = serde_json::from_str(&one.json(false, &before)).expect("JSON");
        let told = |value: &Value| {
            let rows =
                value["rows"].as_array().expect("rows").iter().map(|row| format!("{} {}", row["group"], row["what"]));
            (rows.collect::<Vec<_>>(), value["failed"].as_array().expect("failed").len())
        };
        assert_eq!(told(&before), (vec![r#""a" "a1""#.to_owned()], 1));
        assert_eq!(told(&after), (vec![r#""a" "a1""#.to_owned(), r#""b" "b1""#.to_owned()], 0));
    }
}
