//! A request that every provider takes: roles take turns once neighbours are merged, beginning and ending with the user, and every tool
//! call has its one result directly after it.

use serde_json::Value;

/// What is wrong with a line of `--log-requests`; empty when nothing is.
pub fn check(request: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    let mut last_role = "";
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (at, message) in messages.iter().enumerate() {
        let mut must = |holds: bool, problem: &str| {
            if !holds {
                problems.push(format!(
                    "the request of turn {}, step {}: message {at}: {problem}",
                    request["turn"], request["step"]
                ));
            }
        };
        let role = message["role"].as_str().unwrap_or_default();
        must(role == "user" || role == "assistant", "it is of no known role");
        must(at > 0 || role == "user", "the first is not the user's");
        must(role != "assistant" || last_role != "assistant", "the assistant speaks twice");
        let content = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        must(!content.is_empty(), "it is empty");
        let results: Vec<&Value> = content.iter().filter(|block| block["type"] == "tool-result").collect();
        must(open.is_empty() || !results.is_empty(), "it stands between a call and its result");
        for block in results {
            let id = block["callId"].as_str().unwrap_or_default();
            let found = open.iter().position(|open| *open == id);
            must(found.is_some(), "a result of no open call");
            found.map(|found| open.remove(found));
        }
        let calls = content.iter().filter(|block| block["type"] == "tool-call");
        open.extend(calls.map(|call| call["id"].as_str().unwrap_or_default()));
        must(open.is_empty() || role == "assistant" || last_role != "", "calls of the user");
        last_role = role;
    }
    if last_role != "user" {
        problems.push(format!(
            "the request of turn {}, step {} does not end with the user",
            request["turn"], request["step"]
        ));
    }
    if !open.is_empty() {
        problems.push(format!(
            "the request of turn {}, step {}: calls without result: {open:?}",
            request["turn"], request["step"]
        ));
    }
    problems
}
