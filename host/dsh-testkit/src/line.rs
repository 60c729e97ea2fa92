//! An event as one line for a person: its type and, in a word or two, what distinguishes it.

use dsh_seam::event::Emitted;
use serde_json::Value;

/// What a line says beyond the type of its event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Details {
    /// Of these types only the type is said.
    pub bare: &'static [&'static str],
    /// Whether a result is said with its text, and a message to the agent with its source.
    pub whole: bool,
}

/// The line of an event.
///
/// # Panics
/// When the event is not JSON, which every event is.
pub fn line(emitted: &Emitted, details: Details) -> String {
    let kind = emitted.kind();
    if details.bare.contains(&&*kind) {
        return kind.into_owned();
    }
    let data = serde_json::to_value(emitted).expect("invariant: events are JSON")["data"].take();
    format!("{kind} {}", detail(&kind, &data, details.whole)).trim_end().to_owned()
}

fn detail(kind: &str, data: &Value, whole: bool) -> String {
    let word = |member: &str| data[member].as_str().unwrap_or("?").to_owned();
    let texts_and = |flag: &str| match data[flag] == true {
        true => format!("{} {flag}", texts(&data["content"])),
        false => texts(&data["content"]),
    };
    match kind {
        "turn/end" => {
            let reason = &data["reason"];
            let why = reason["code"].as_str().or(reason["reason"].as_str()).unwrap_or_default();
            format!("{} {why}", reason["type"].as_str().unwrap_or("?"))
        }
        "agent/status" => word("status"),
        "agent/disposed" => data["dropped"].to_string(),
        "agent/dropped" => data["count"].to_string(),
        "agent/queued" => texts_and("steering"),
        "assistant/message" => texts_and("interrupted"),
        "user/message" if whole => {
            format!("{} {}", data["source"]["type"].as_str().unwrap_or("?"), texts(&data["content"]))
        }
        "user/message" | "steering/message" | "context/message" => texts(&data["content"]),
        "tool/call" => word("callId"),
        "tool/result" => {
            let result = format!("{} {}", word("callId"), data["code"].as_str().unwrap_or("ok"));
            if whole { format!("{result}: {}", texts(&data["content"])) } else { result }
        }
        "usage" => data["usage"]["output"].to_string(),
        "plugin/failed" => format!("{} {}", word("plugin"), word("kind")),
        "plugin/reloaded" => {
            format!("{} {} {} {}", word("plugin"), data["turn"], word("previous"), word("sha256"))
        }
        "request/failed" | "error" | "agent/error" => word("code"),
        _ => String::new(),
    }
}

/// The texts of blocks and the ids of calls.
fn texts(content: &Value) -> String {
    let block = |block: &Value| block["text"].as_str().or(block["id"].as_str()).unwrap_or("?").to_owned();
    content.as_array().into_iter().flatten().map(block).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_say_what_distinguishes_an_event() {
        let check = |kind, data: Value, whole, expect| assert_eq!(detail(kind, &data, whole), expect);
        let content = json!([{"type": "text", "text": "a"}, {"type": "tool-call", "id": "c1"}]);
        let result = json!({"callId": "c1", "code": "tool-failed", "content": [{"type": "text", "text": "no"}]});
        check("turn/end", json!({"reason": {"type": "aborted", "reason": "enough"}}), false, "aborted enough");
        check("agent/queued", json!({"content": content, "steering": true}), false, "a,c1 steering");
        check("user/message", json!({"content": content, "source": {"type": "user"}}), false, "a,c1");
        check("user/message", json!({"content": content, "source": {"type": "user"}}), true, "user a,c1");
        check("tool/result", result.clone(), false, "c1 tool-failed");
        check("tool/result", result, true, "c1 tool-failed: no");
        check("agent/disposed", json!({"dropped": 2}), false, "2");
        check("step/start", json!({"turn": 1, "step": 1}), true, "");
    }
}
