//! A request that every provider takes: roles take turns once neighbours are merged, beginning and ending with the user, and every tool
//! call has its one result directly after it.

use serde_json::Value;

/// What is wrong with a line of `--log-requests`; empty when nothing is.
pub fn check(request: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    let mut last_role = "";
    for (at, message) in request["messages"].as_array().into_iter().flatten().enumerate() {
        let mut must = |holds: bool, problem: &str| {
            if !holds {
                problems.push(format!("message {at}: {problem}"));
            }
        };
        let role = message["role"].as_str().unwrap_or_default();
        must(role == "user" || role == "assistant", "it is of no known role");
        must(at > 0 || role == "user", "the first is not the user's");
        must(role != "assistant" || last_role != "assistant", "the assistant speaks twice");
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
        must(!blocks.is_empty(), "it is empty");
        must(open.is_empty() || of("tool-result").next().is_some(), "it stands between a call and its result");
        for result in of("tool-result") {
            let found = open.iter().position(|open| result["callId"] == **open);
            must(found.is_some(), "a result of no open call");
            found.map(|found| open.remove(found));
        }
        must(role == "assistant" || of("tool-call").next().is_none(), "a call of the user");
        open.extend(of("tool-call").filter_map(|call| call["id"].as_str()));
        last_role = role;
    }
    if last_role != "user" {
        problems.push("it does not end with the user".to_owned());
    }
    if !open.is_empty() {
        problems.push(format!("calls without result: {open:?}"));
    }
    let place = format!("the request of turn {}, step {}", request["turn"], request["step"]);
    problems.into_iter().map(|problem| format!("{place}: {problem}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_messages(messages: Value, expect: &[&str]) {
        let expect: Vec<String> =
            expect.iter().map(|problem| format!("the request of turn 1, step 2: {problem}")).collect();
        assert_eq!(check(&json!({"turn": 1, "step": 2, "messages": messages})), expect);
    }

    #[test]
    fn only_what_every_provider_takes_is_good() {
        let text = |role: &str| json!({"role": role, "content": [{"type": "text", "text": "x"}]});
        let call = |id: &str| json!({"role": "assistant", "content": [{"type": "tool-call", "id": id, "name": "n", "arguments": ""}]});
        let result =
            |id: &str| json!({"role": "user", "content": [{"type": "tool-result", "callId": id, "content": []}]});
        check_messages(json!([text("user"), call("a"), result("a"), text("user")]), &[]);
        check_messages(
            json!([text("user"), call("a")]),
            &["it does not end with the user", "calls without result: [\"a\"]"],
        );
        check_messages(
            json!([text("user"), call("a"), text("user"), result("a")]),
            &["message 2: it stands between a call and its result"],
        );
        check_messages(
            json!([text("user"), call("a"), result("a"), result("a")]),
            &["message 3: a result of no open call"],
        );
        check_messages(
            json!([text("user"), text("assistant"), text("assistant"), text("user")]),
            &["message 2: the assistant speaks twice"],
        );
        check_messages(json!([text("assistant"), text("user")]), &["message 0: the first is not the user's"]);
        check_messages(
            json!([text("system"), {"role": "user", "content": []}]),
            &["message 0: it is of no known role", "message 0: the first is not the user's", "message 1: it is empty"],
        );
    }
}
