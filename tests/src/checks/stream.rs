//! Standard output of `--output jsonl` is the durable part of the log, line by line, with live events between.

use serde_json::Value;

use crate::log::Log;

/// What is wrong; empty when nothing is. `before`: how many entries the log had before this process, when it was there.
pub fn check(log: &Log, before: Option<usize>, stdout: &str) -> Vec<String> {
    let mut printed: Vec<&str> = Vec::new();
    let mut problems = Vec::new();
    for (at, line) in stdout.lines().enumerate() {
        let event: Value = match serde_json::from_str(line) {
            Ok(event) => event,
            Err(error) => {
                problems.push(format!("line {} of standard output is not JSON: {error}", at + 1));
                continue;
            }
        };
        let keys: Vec<&str> = event.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        let durable = event.get("seq").is_some();
        if !durable && keys != ["type", "session", "agent", "data"] {
            problems.push(format!("line {} of standard output has the members {keys:?}", at + 1));
        }
        if durable && event["session"] == log.id.as_str() {
            printed.push(line);
        }
    }
    let start = log.lines.len().saturating_sub(printed.len());
    if let Some(at) = (0..printed.len()).find(|at| log.lines.get(start + at).is_none_or(|line| line != printed[*at])) {
        problems.push(format!(
            "standard output and the log differ: printed `{}`, logged `{}`",
            printed[at],
            log.lines.get(start + at).map_or("nothing", String::as_str)
        ));
    }
    if let Some(before) = before
        && before + printed.len() != log.lines.len()
    {
        problems.push(format!(
            "the log grew from {before} to {} entries, and {} were printed",
            log.lines.len(),
            printed.len()
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture::{events, log};

    fn check_doctored(doctor: impl Fn(&mut Vec<String>), before: Option<usize>, expect: &[&str]) {
        let log = log(events());
        let mut lines = log.lines.clone();
        lines.insert(
            0,
            r#"{"type":"agent/status","session":"s","agent":"main","data":{"status":"running"}}"#.to_owned(),
        );
        doctor(&mut lines);
        let found = check(&log, before, &lines.join("\n"));
        assert_eq!(found.len(), expect.len(), "{found:#?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.starts_with(expect), "{found}");
        }
    }

    #[test]
    fn the_same_is_good() {
        check_doctored(|_| (), Some(0), &[]);
        check_doctored(|lines| drop(lines.drain(1..4)), Some(3), &[]);
        check_doctored(|lines| drop(lines.drain(1..4)), None, &[]);
    }

    #[test]
    fn differences_are_found() {
        check_doctored(
            |lines| drop(lines.remove(5)),
            Some(0),
            &["standard output and the log differ", "the log grew from 0 to 16 entries, and 15 were printed"],
        );
        check_doctored(
            |lines| drop(lines.remove(1)),
            Some(0),
            &["the log grew from 0 to 16 entries, and 15 were printed"],
        );
        check_doctored(
            |lines| lines[5] = lines[5].replace(',', ", "),
            Some(0),
            &["standard output and the log differ"],
        );
        check_doctored(|lines| lines.push("warning: x".into()), Some(0), &["line 18 of standard output is not JSON"]);
        check_doctored(
            |lines| lines[0] = r#"{"type":"agent/status","data":{}}"#.into(),
            Some(0),
            &["line 1 of standard output has the members [\"type\", \"data\"]"],
        );
    }
}
