//! Every agent that was made is disposed once, and no sub-agent outlives a turn or the end of an ancestor.

use std::collections::BTreeMap;

use serde_json::Value;

/// What is wrong with the events of a run that came to its end; empty when nothing is.
pub fn check(stdout: &str) -> Vec<String> {
    let mut problems = Vec::new();
    // The agents that are there, with their ancestors.
    let mut there: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let (Some(kind), Some(agent)) = (event["type"].as_str(), event["agent"].as_str()) else { continue };
        let ends = matches!(kind, "turn/end" | "agent/disposed");
        let mut left = there.iter().filter(|(_, lineage)| ends && lineage.iter().any(|ancestor| ancestor == agent));
        if let Some((left, _)) = left.next() {
            problems.push(format!("`{kind}` of `{agent}` while its sub-agent `{left}` is there"));
        }
        match kind {
            "agent/created" => {
                let lineage = event["data"]["lineage"].as_array().into_iter().flatten();
                let lineage = lineage.filter_map(Value::as_str).map(str::to_owned).collect();
                if there.insert(agent.to_owned(), lineage).is_some() {
                    problems.push(format!("`{agent}` is made while it is there"));
                }
            }
            "agent/disposed" if there.remove(agent).is_none() => {
                problems.push(format!("`{agent}` is disposed and was not there"));
            }
            _ if kind != "agent/disposed" && !there.contains_key(agent) => {
                problems.push(format!("`{kind}` of `{agent}`, which is not there"));
            }
            _ => {}
        }
    }
    problems.extend(there.keys().map(|agent| format!("`{agent}` is not disposed")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_events(events: &[(&str, &str)], expect: &[&str]) {
        let line = |(agent, kind): &(&str, &str)| {
            let lineage: Vec<&str> = agent.rmatch_indices('.').map(|(at, _)| &agent[..at]).collect();
            serde_json::json!({"type": kind, "session": "s", "agent": agent, "data": {"lineage": lineage}}).to_string()
        };
        let stdout: Vec<String> = events.iter().map(line).collect();
        assert_eq!(check(&stdout.join("\n")), expect);
    }

    const MADE: (&str, &str) = ("main", "agent/created");
    const GONE: (&str, &str) = ("main", "agent/disposed");
    const CHILD_MADE: (&str, &str) = ("main.1", "agent/created");
    const CHILD_GONE: (&str, &str) = ("main.1", "agent/disposed");

    #[test]
    fn what_outlives_is_found() {
        let end = ("main", "turn/end");
        check_events(&[MADE, CHILD_MADE, CHILD_GONE, end, GONE], &[]);
        check_events(&[MADE, CHILD_MADE, CHILD_GONE, CHILD_MADE, CHILD_GONE, GONE], &[]);
        check_events(
            &[MADE, CHILD_MADE, end, CHILD_GONE, GONE],
            &["`turn/end` of `main` while its sub-agent `main.1` is there"],
        );
        check_events(
            &[MADE, CHILD_MADE, GONE, CHILD_GONE],
            &["`agent/disposed` of `main` while its sub-agent `main.1` is there"],
        );
        check_events(&[MADE, CHILD_MADE, CHILD_GONE], &["`main` is not disposed"]);
        check_events(&[MADE, CHILD_GONE, GONE], &["`main.1` is disposed and was not there"]);
        check_events(&[MADE, GONE, end], &["`turn/end` of `main`, which is not there"]);
        check_events(&[MADE, MADE, GONE], &["`main` is made while it is there"]);
    }
}
