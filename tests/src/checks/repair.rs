//! What a log that stopped anywhere owes, as the specification says it; and that the next writer paid exactly that, first of all.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::log::Log;

/// What is wrong with the log `after`, in which a later process went on where `before` had stopped; empty when nothing is.
pub fn check(before: &Log, after: &Log) -> Vec<String> {
    let owed = owed(before);
    // Observers may answer what is repaired with entries of their own and with context.
    let of_plugins = |entry: &&Value| {
        entry["type"].as_str().is_some_and(|kind| kind.starts_with("plugin/"))
            || entry["type"] == "context/message" && entry["data"]["source"]["type"] == "plugin"
    };
    let new = after.entries.iter().skip(before.entries.len()).filter(|entry| !of_plugins(entry));
    let mut problems = Vec::new();
    for (owed, paid) in owed.iter().zip(new.map(Some).chain(std::iter::repeat(None))) {
        let found = paid.map_or_else(|| "nothing".to_owned(), |entry| outline(&entry["type"], &entry["data"]));
        let expected = outline(&owed.0.into(), &owed.1);
        if found != expected {
            problems.push(format!("after seq {} {expected} was owed, found {found}", before.entries.len()));
            return problems;
        }
    }
    problems
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
