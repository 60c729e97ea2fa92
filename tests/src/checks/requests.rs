//! Every `request/sent` can be rebuilt from the log alone, and is then the line that `--log-requests` wrote, with its hash.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::log::Log;

/// What is wrong; empty when nothing is. `first`: the entry from which on this process wrote. `lines`: the loop's and plugins' lines of
/// `--log-requests`, in order.
pub fn check(log: &Log, first: usize, lines: &[Value]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut lines: Vec<&Value> =
        lines.iter().filter(|line| line["by"] == "loop" && line["session"] == log.id.as_str()).collect();
    let mut history: Vec<Value> = Vec::new();
    let (mut system, mut tools) = (Value::Null, Value::Null);
    for (at, entry) in log.entries.iter().enumerate() {
        let data = &entry["data"];
        if log.kind(at) != "request/sent" {
            apply(&mut history, log.kind(at), data);
            continue;
        }
        system = data.get("system").cloned().unwrap_or(system);
        tools = data.get("tools").cloned().unwrap_or(tools);
        let rebuilt = json!({"model": data["model"], "system": system, "messages": edited(&history, &data["edits"]), "tools": tools, "sampling": data["sampling"]});
        let mut compare = |problem: Option<String>| {
            problems.extend(problem.map(|problem| format!("seq {at} (`request/sent`): {problem}")))
        };
        compare(differs("hash", &data["hash"], &json!(hash(&rebuilt))));
        compare(differs("messages", &data["messages"], &json!(rebuilt["messages"].as_array().map_or(0, Vec::len))));
        if at >= first {
            match lines.first().filter(|line| ["turn", "step", "attempt"].iter().all(|key| line[key] == data[key])) {
                Some(line) => {
                    for key in ["model", "system", "messages", "tools", "sampling"] {
                        compare(differs(key, &line[key], &rebuilt[key]));
                    }
                    lines.remove(0);
                }
                None if was_cancelled(log, at) => {}
                None => compare(Some("`--log-requests` has no line for it".to_owned())),
            }
        }
    }
    problems.extend(lines.iter().map(|line| {
        format!(
            "`--log-requests` has a line without `request/sent`: turn {}, step {}, attempt {}",
            line["turn"], line["step"], line["attempt"]
        )
    }));
    problems
}

fn differs(what: &str, found: &Value, rebuilt: &Value) -> Option<String> {
    (found != rebuilt).then(|| format!("`{what}` is {found}, rebuilt from the log it is {rebuilt}"))
}

/// The turn ended before the request could reach the adapter.
fn was_cancelled(log: &Log, at: usize) -> bool {
    let end = (at..log.entries.len()).find(|at| log.kind(*at) == "turn/end");
    let chunk = log.entries.get(at + 1).is_some_and(|next| next["type"] == "assistant/chunk");
    !chunk
        && end.is_none_or(|end| {
            matches!(log.entries[end]["data"]["reason"]["type"].as_str(), Some("aborted" | "disposed" | "interrupted"))
        })
}

/// The model's view, as lifecycle says it.
fn apply(history: &mut Vec<Value>, kind: &str, data: &Value) {
    match kind {
        "user/message" | "steering/message" | "context/message" => push(history, "user", data["content"].clone()),
        "assistant/message" if data["turn"] != 0 => push(history, "assistant", data["content"].clone()),
        "tool/result" if data["turn"] != 0 => {
            push(
                history,
                "user",
                json!([{"type": "tool-result", "callId": data["callId"], "content": data["content"], "isError": data["isError"]}]),
            );
        }
        "compaction/applied" => splice(history, data),
        _ => {}
    }
}

fn push(history: &mut Vec<Value>, role: &str, content: Value) {
    let says_something = |block: &Value| match block["type"].as_str() {
        Some("text") => block["text"] != "",
        Some("reasoning") => block.get("opaque").is_some(),
        _ => true,
    };
    if content.as_array().is_some_and(|blocks| blocks.iter().any(says_something)) {
        history.push(json!({"role": role, "content": content}));
    }
}

fn splice(messages: &mut Vec<Value>, splice: &Value) {
    let number = |key: &str| usize::try_from(splice[key].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let start = number("start").min(messages.len());
    let end = start.saturating_add(number("count")).min(messages.len());
    let replacement = splice["replacement"].as_array().cloned().unwrap_or_default();
    messages.splice(start..end, replacement);
}

fn edited(history: &[Value], edits: &Value) -> Vec<Value> {
    let mut messages = history.to_vec();
    edits.as_array().into_iter().flatten().for_each(|edit| splice(&mut messages, edit));
    messages
}

/// SHA-256(frame ‖ chain), chainᵢ = SHA-256(chainᵢ₋₁ ‖ message i), all as canonical JSON.
fn hash(request: &Value) -> String {
    let canonical = |value: &Value| serde_json_canonicalizer::to_vec(value).expect("JSON values have a canonical form");
    let link = |chain: [u8; 32], message: &Value| {
        Sha256::new().chain_update(chain).chain_update(canonical(message)).finalize().into()
    };
    let chain = request["messages"].as_array().into_iter().flatten().fold([0; 32], link);
    let frame = json!({"model": request["model"], "sampling": request["sampling"], "system": request["system"], "tools": request["tools"]});
    let digest = Sha256::new().chain_update(canonical(&frame)).chain_update(chain).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture::{events, log};

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": [{"type": "text", "text": text}]})
    }

    /// The lines that belong to the fixture.
    fn lines() -> Vec<Value> {
        let line = |step: u32, messages: Value| json!({"by": "loop", "agent": "main", "session": "s", "turn": 1, "step": step, "attempt": 1, "model": "echo", "system": "", "messages": messages, "tools": [], "sampling": {}});
        let call = json!({"role": "assistant", "content": [{"type": "tool-call", "id": "c1", "name": "echo", "arguments": "{}"}]});
        let result = json!({"role": "user", "content": [{"type": "tool-result", "callId": "c1", "content": [{"type": "text", "text": "HI"}], "isError": false}]});
        vec![line(1, json!([user("hi")])), line(2, json!([user("hi"), call, result, user("and?")]))]
    }

    fn good() -> (Log, Vec<Value>) {
        let lines = lines();
        let mut log = log(events());
        for (at, line) in [(3, &lines[0]), (12, &lines[1])] {
            log.entries[at]["data"]["hash"] = json!(hash(line));
        }
        (log, lines)
    }

    fn check_doctored(doctor: impl Fn(&mut Log, &mut Vec<Value>), expect: &[&str]) {
        let (mut log, mut lines) = good();
        doctor(&mut log, &mut lines);
        let found = check(&log, 0, &lines);
        assert_eq!(found.len(), expect.len(), "{found:#?}");
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.starts_with(expect), "{found}");
        }
    }

    #[test]
    fn a_good_log_is_good() {
        check_doctored(|_, _| (), &[]);
    }

    #[test]
    fn the_hash_is_that_of_its_definition() {
        // Computed by hand from the definition, with another implementation of SHA-256.
        let request = json!({"model": "m", "sampling": {}, "system": "", "tools": [], "messages": [user("a")]});
        assert_eq!(hash(&request), "e8b4b5fadbb10dd8e03ba6e93b69c0401167ea50a31dc0d5fc0df7daaf1e3199");
    }

    #[test]
    fn differences_are_found() {
        check_doctored(
            |log, _| log.entries[3]["data"]["hash"] = json!("00"),
            &["seq 3 (`request/sent`): `hash` is \"00\""],
        );
        check_doctored(
            |log, _| log.entries[3]["data"]["messages"] = json!(2),
            &["seq 3 (`request/sent`): `messages` is 2, rebuilt"],
        );
        check_doctored(
            |_, lines| lines[0]["messages"][0]["content"][0]["text"] = json!("ho"),
            &["seq 3 (`request/sent`): `messages` is [{"],
        );
        check_doctored(|_, lines| lines[1]["system"] = json!("x"), &["seq 12 (`request/sent`): `system` is \"x\""]);
        check_doctored(
            |_, lines| lines[0]["sampling"] = json!({"temperature": 1}),
            &["seq 3 (`request/sent`): `sampling` is"],
        );
        check_doctored(
            |_, lines| drop(lines.remove(1)),
            &["seq 12 (`request/sent`): `--log-requests` has no line for it"],
        );
        check_doctored(
            |_, lines| lines.push(lines[1].clone()),
            &["`--log-requests` has a line without `request/sent`: turn 1, step 2, attempt 1"],
        );
        let message = |log: &mut Log, _: &mut Vec<Value>| log.entries[8]["data"]["content"][0]["text"] = json!("HO");
        check_doctored(message, &["seq 12 (`request/sent`): `hash`", "seq 12 (`request/sent`): `messages`"]);
    }

    #[test]
    fn edits_and_compactions_are_applied_in_order() {
        let history = [user("a"), user("b"), user("c")];
        let edits = json!([{"plugin": "p", "start": 1, "count": 1, "replacement": [user("x"), user("y")]}, {"plugin": "p", "start": 3, "count": 1, "replacement": []}]);
        assert_eq!(edited(&history, &edits), [user("a"), user("x"), user("y")]);
        let mut compacted = history.to_vec();
        apply(&mut compacted, "compaction/applied", &json!({"start": 0, "count": 2, "replacement": [user("s")]}));
        assert_eq!(compacted, [user("s"), user("c")]);
    }

    #[test]
    fn messages_that_say_nothing_are_skipped() {
        let mut history = Vec::new();
        apply(&mut history, "assistant/message", &json!({"turn": 1, "content": []}));
        apply(
            &mut history,
            "assistant/message",
            &json!({"turn": 1, "content": [{"type": "text", "text": ""}, {"type": "reasoning", "text": "hm"}]}),
        );
        apply(&mut history, "tool/result", &json!({"turn": 0, "callId": "c", "content": [], "isError": false}));
        assert!(history.is_empty());
    }
}
