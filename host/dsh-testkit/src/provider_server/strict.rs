//! What a strict provider refuses: tool calls and results that do not stand together.

use serde_json::Value;

/// What is wrong with a request, if anything is.
pub(super) fn refusal(path: &str, request: &Value) -> Option<String> {
    let mut open: Vec<String> = Vec::new();
    let list = if path.ends_with("/responses") { "input" } else { "messages" };
    for item in request[list].as_array().into_iter().flatten() {
        for part in parts(item) {
            match part {
                Part::Call(id) => open.push(id),
                Part::Result(id) => match open.iter().position(|known| *known == id) {
                    Some(at) => drop(open.remove(at)),
                    None => return Some(format!("a result for `{id}` follows no such call")),
                },
                Part::Other if list == "messages" => {
                    if let Some(id) = open.first() {
                        return Some(format!("the call `{id}` is not followed by its result"));
                    }
                }
                // Responses pairs calls and results by id only.
                Part::Other => {}
            }
        }
    }
    open.first().map(|id| format!("the call `{id}` has no result"))
}

enum Part {
    Call(String),
    Result(String),
    Other,
}

/// The parts of a message or an item, calls last, as all of them are made at once.
fn parts(item: &Value) -> Vec<Part> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let blocks = item["content"].as_array().into_iter().flatten();
    let uses = blocks.clone().filter(|block| block["type"] == "tool_use").map(|block| Part::Call(text(block, "id")));
    let results: Vec<Part> = blocks
        .filter(|block| block["type"] == "tool_result")
        .map(|block| Part::Result(text(block, "tool_use_id")))
        .collect();
    match (item["type"].as_str(), item["role"].as_str()) {
        (Some("function_call"), _) => vec![Part::Call(text(item, "call_id"))],
        (Some("function_call_output"), _) => vec![Part::Result(text(item, "call_id"))],
        (_, Some("tool")) => vec![Part::Result(text(item, "tool_call_id"))],
        (_, Some("user")) if !results.is_empty() => results,
        _ => {
            let calls = item["tool_calls"].as_array().into_iter().flatten();
            std::iter::once(Part::Other).chain(uses).chain(calls.map(|call| Part::Call(text(call, "id")))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parted_calls_are_found() {
        let check = |messages: Value, expect: Option<&str>| {
            let refused = refusal("/v1/chat/completions", &json!({ "messages": messages }));
            assert_eq!(refused.as_deref(), expect);
        };
        let call = json!({"role": "assistant", "tool_calls": [{"id": "a"}]});
        let result = json!({"role": "tool", "tool_call_id": "a"});
        let user = json!({"role": "user"});
        check(json!([user, call, result, user]), None);
        check(json!([call]), Some("the call `a` has no result"));
        check(json!([call, user, result]), Some("the call `a` is not followed by its result"));
        check(json!([result]), Some("a result for `a` follows no such call"));
        let used = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]});
        let result =
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text"}]});
        check(json!([user, used, result, user]), None);
        check(json!([used, user, result]), Some("the call `a` is not followed by its result"));
        check(json!([used]), Some("the call `a` has no result"));
        check(json!([result]), Some("a result for `a` follows no such call"));
    }

    #[test]
    fn items_are_paired_by_id() {
        let check = |input: Value, expect: Option<&str>| {
            assert_eq!(refusal("/v1/responses", &json!({ "input": input })).as_deref(), expect);
        };
        let call = json!({"type": "function_call", "call_id": "a"});
        let result = json!({"type": "function_call_output", "call_id": "a"});
        let user = json!({"role": "user"});
        check(json!([user, call, result]), None);
        check(json!([call, user]), Some("the call `a` has no result"));
        check(json!([result]), Some("a result for `a` follows no such call"));
    }
}
