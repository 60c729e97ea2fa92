//! What a log that stopped anywhere owes, as the specification says it; and that the next writer paid exactly that, first of all.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::log::Log;

/// What is wrong with the log `after`, in which a later process went on where `before` had stopped; empty when nothing is. `killed`:
/// that process may have ended while it paid.
pub fn check(before: &Log, after: &Log, killed: bool) -> Vec<String> {
    // Observers may answer what is repaired with entries of their own and with context.
    let of_plugins = |entry: &&Value| {
        entry["type"].as_str().is_some_and(|kind| kind.starts_with("plugin/"))
            || entry["type"] == "context/message" && entry["data"]["source"]["type"] == "plugin"
    };
    let mut paid = after.entries.iter().skip(before.entries.len()).filter(|entry| !of_plugins(entry));
    for (kind, data) in owed(before) {
        let expected = outline(&kind.into(), &data);
        let found = match paid.next() {
            Some(entry) => outline(&entry["type"], &entry["data"]),
            None if killed => return Vec::new(),
            None => "nothing".to_owned(),
        };
        if found != expected {
            return vec![format!("after seq {} {expected} was owed, found {found}", before.entries.len())];
        }
    }
    Vec::new()
}

/// An entry without the words of a result, which are for the model.
fn outline(kind: &Value, data: &Value) -> String {
    let mut data = data.clone();
    if kind == "tool/result"
        && let Some(data) = data.as_object_mut()
    {
        data.shift_remove("content");
    }
    format!("{} {data}", kind.as_str().unwrap_or_default())
}

/// Kind and data of each entry that `log` owes, in order.
fn owed(log: &Log) -> Vec<(&'static str, Value)> {
    let position = |kind: &str| log.entries.iter().rposition(|entry| entry["type"] == kind);
    let Some(start) = position("turn/start").filter(|start| position("turn/end").is_none_or(|end| end < *start)) else {
        return Vec::new();
    };
    let turn = &log.entries[start]["data"]["turn"];
    let mut owed = Vec::new();
    let open =
        position("step/start").filter(|step| *step > start && position("step/end").is_none_or(|end| end < *step));
    if let Some(open) = open {
        let step = &log.entries[open]["data"]["step"];
        owed.extend(in_step(&log.entries[open..], turn, step));
        owed.push(("step/end", json!({"turn": turn, "step": step})));
    }
    owed.push(("turn/end", json!({"turn": turn, "reason": {"type": "interrupted"}})));
    owed
}

fn in_step(entries: &[Value], turn: &Value, step: &Value) -> Vec<(&'static str, Value)> {
    let Some(message) = entries.iter().rfind(|entry| entry["type"] == "assistant/message") else {
        let content = streamed(entries);
        if content.is_empty() {
            return Vec::new();
        }
        let data = json!({"turn": turn, "step": step, "content": content, "interrupted": true});
        return vec![("assistant/message", data)];
    };
    let is_there =
        |kind: &str, id: &Value| entries.iter().any(|entry| entry["type"] == kind && entry["data"]["callId"] == *id);
    let mut owed = Vec::new();
    for call in message["data"]["content"].as_array().into_iter().flatten() {
        let id = &call["id"];
        if call["type"] != "tool-call" || is_there("tool/result", id) {
            continue;
        }
        let called = is_there("tool/call", id);
        if !called {
            let data =
                json!({"turn": turn, "step": step, "callId": id, "name": call["name"], "arguments": call["arguments"]});
            owed.push(("tool/call", data));
        }
        let code = if called { "outcome-unknown" } else { "not-started" };
        owed.push(("tool/result", json!({"turn": turn, "step": step, "callId": id, "isError": true, "code": code})));
    }
    owed
}

/// Text and reasoning that arrived since the last request, unless that failed.
fn streamed(entries: &[Value]) -> Vec<Value> {
    let last = entries.iter().rposition(|entry| entry["type"] == "request/sent" || entry["type"] == "request/failed");
    let Some(last) = last.filter(|last| entries[*last]["type"] == "request/sent") else { return Vec::new() };
    let mut blocks: BTreeMap<u64, Value> = BTreeMap::new();
    for entry in entries[last..].iter().filter(|entry| entry["type"] == "assistant/chunk") {
        let chunk = &entry["data"]["chunk"];
        let index = chunk["index"].as_u64().unwrap_or(0);
        let kind = chunk["type"].as_str().unwrap_or_default();
        let mut add = |kind: &str| {
            let block = blocks.entry(index).or_insert_with(|| json!({"type": kind, "text": ""}));
            let text = format!("{}{}", block["text"].as_str().unwrap_or(""), chunk["text"].as_str().unwrap_or(""));
            *block = json!({"type": kind, "text": text});
        };
        match kind {
            "text-delta" => add("text"),
            "reasoning-delta" => add("reasoning"),
            "block-end" => drop(blocks.insert(index, chunk["block"].clone())),
            _ => {}
        }
    }
    let says_something = |block: &Value| {
        (block["type"] == "text" || block["type"] == "reasoning")
            && block["text"].as_str().is_some_and(|text| !text.is_empty())
    };
    blocks.into_values().filter(says_something).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture::{events, log};

    /// The fixture, killed after so many entries, and how it went on.
    fn check_repair(length: usize, paid: Vec<(&'static str, Value)>, killed: bool, expect: &[&str]) {
        let mut all = events();
        all.truncate(length);
        let before = log(all.clone());
        all.extend(paid);
        let found = check(&before, &log(all), killed);
        assert_eq!(found.len(), expect.len(), "{found:#?}");
        for (found, expect) in found.iter().zip(expect) {
            assert_eq!(found, expect);
        }
    }

    fn result(code: &str) -> (&'static str, Value) {
        let data = json!({"turn": 1, "step": 1, "callId": "c1", "content": [], "isError": true, "code": code});
        ("tool/result", data)
    }

    fn end() -> Vec<(&'static str, Value)> {
        let reason = json!({"type": "interrupted"});
        vec![("step/end", json!({"turn": 1, "step": 1})), ("turn/end", json!({"turn": 1, "reason": reason}))]
    }

    #[test]
    fn what_was_owed_is_good() {
        let call = events()[7].clone();
        check_repair(16, Vec::new(), false, &[]);
        check_repair(1, Vec::new(), false, &[]);
        check_repair(3, end(), false, &[]);
        check_repair(8, [vec![result("outcome-unknown")], end()].concat(), false, &[]);
        check_repair(7, [vec![call.clone(), result("not-started")], end()].concat(), false, &[]);
        check_repair(7, vec![call], true, &[]);
    }

    #[test]
    fn anything_else_is_found() {
        let unknown = r#"tool/result {"turn":1,"step":1,"callId":"c1","isError":true,"code":"outcome-unknown"}"#;
        let wrong = r#"tool/result {"turn":1,"step":1,"callId":"c1","isError":true,"code":"not-started"}"#;
        check_repair(8, Vec::new(), false, &[&format!("after seq 8 {unknown} was owed, found nothing")]);
        check_repair(
            8,
            vec![result("not-started")],
            true,
            &[&format!("after seq 8 {unknown} was owed, found {wrong}")],
        );
        let late = format!("after seq 8 {unknown} was owed, found step/end {{\"turn\":1,\"step\":1}}");
        check_repair(8, end(), false, &[&late]);
    }

    #[test]
    fn streamed_text_is_owed_unless_the_request_failed() {
        let mut all = events();
        all.truncate(4);
        let chunk = |chunk: Value| ("assistant/chunk", json!({"turn": 1, "step": 1, "chunk": chunk}));
        all.push(chunk(json!({"type": "reasoning-delta", "index": 0, "text": "h"})));
        all.push(chunk(json!({"type": "reasoning-delta", "index": 0, "text": "m"})));
        all.push(chunk(json!({"type": "block-start", "index": 1, "blockType": "text"})));
        all.push(chunk(json!({"type": "tool-call-delta", "index": 2, "id": "c", "argumentsDelta": ""})));
        let message =
            json!({"turn": 1, "step": 1, "content": [{"type": "reasoning", "text": "hm"}], "interrupted": true});
        assert_eq!(owed(&log(all.clone()))[0], ("assistant/message", message));
        all.push(("request/failed", json!({"turn": 1, "step": 1, "attempt": 1, "code": "c", "message": "m"})));
        assert_eq!(owed(&log(all)), end());
    }
}
