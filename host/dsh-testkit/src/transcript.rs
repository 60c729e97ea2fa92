//! Prints events, as `--output jsonl` writes them, as a transcript that a person can read and a test can compare.
//!
//! One event is one line: a durable event is its type and its data, a live one stands behind `~ `. A live event that directly
//! follows its durable twin and carries the same data is its type alone; whatever deviates from that is printed whole, so that it
//! shows. What differs from run to run is left out: `seq`, `time` and `session`, which other checks look at, and a request's `hash`.
//! An agent other than `main` is named in front.

use serde_json::Value;

/// A durable event and the live event that follows it.
pub const TWINS: &[(&str, &str)] = &[
    ("turn/start", "agent/turn-start"),
    ("turn/end", "agent/turn-end"),
    ("step/start", "agent/step-start"),
    ("step/end", "agent/step-end"),
    ("steering/message", "agent/steering"),
    ("assistant/chunk", "agent/stream-chunk"),
];

/// Whether the frame of a request, its system prompt and tools, is printed whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Frame {
    /// Tools by their names only.
    #[default]
    Names,
    /// With descriptions and schemas.
    Whole,
}

/// The transcript of `lines`. A line that is no event is printed behind `! `.
pub fn transcript<'a>(lines: impl IntoIterator<Item = &'a str>, frame: Frame) -> String {
    let mut out = String::new();
    let mut before: Option<Value> = None;
    for line in lines {
        let event: Value = serde_json::from_str(line).unwrap_or(Value::Null);
        let Some(kind) = event["type"].as_str() else {
            out.push_str(&format!("! {line}\n"));
            before = None;
            continue;
        };
        if let Some(agent) = event["agent"].as_str().filter(|agent| *agent != "main") {
            out.push_str(&format!("[{agent}] "));
        }
        if event.get("seq").is_some() {
            out.push_str(&format!("{kind} {}\n", shown(kind, &event["data"], frame)));
        } else if before.as_ref().is_some_and(|before| are_twins(before, &event)) {
            out.push_str(&format!("~ {kind}\n"));
        } else {
            out.push_str(&format!("~ {kind} {}\n", event["data"]));
        }
        before = Some(event);
    }
    out
}

fn are_twins(durable: &Value, live: &Value) -> bool {
    let kinds = (durable["type"].as_str().unwrap_or(""), live["type"].as_str().unwrap_or(""));
    durable.get("seq").is_some()
        && TWINS.contains(&kinds)
        && durable["data"] == live["data"]
        && durable["agent"] == live["agent"]
}

fn shown(kind: &str, data: &Value, frame: Frame) -> String {
    if kind != "request/sent" {
        return data.to_string();
    }
    let mut data = data.clone();
    if let Some(hash) = data.get_mut("hash").filter(|hash| is_hash(hash)) {
        *hash = Value::from("HASH");
    }
    if frame == Frame::Names
        && let Some(Value::Array(tools)) = data.get_mut("tools")
    {
        for tool in tools {
            *tool = tool["name"].clone();
        }
    }
    data.to_string()
}

fn is_hash(value: &Value) -> bool {
    let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    value.as_str().is_some_and(|text| text.len() == 64 && text.chars().all(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &str, expect: &str) {
        assert_eq!(transcript(lines.lines(), Frame::Names), expect);
    }

    #[test]
    fn twins_are_folded_and_deviations_are_not() {
        let start = r#"{"type":"step/start","seq":1,"time":2,"session":"s","agent":"main","data":{"turn":1,"step":1}}"#;
        let twin = r#"{"type":"agent/step-start","session":"s","agent":"main","data":{"turn":1,"step":1}}"#;
        let other = r#"{"type":"agent/step-start","session":"s","agent":"main","data":{"turn":1,"step":2}}"#;
        check(&format!("{start}\n{twin}"), "step/start {\"turn\":1,\"step\":1}\n~ agent/step-start\n");
        check(
            &format!("{start}\n{other}"),
            "step/start {\"turn\":1,\"step\":1}\n~ agent/step-start {\"turn\":1,\"step\":2}\n",
        );
        check(
            &format!("{start}\n{twin}\n{twin}"),
            "step/start {\"turn\":1,\"step\":1}\n~ agent/step-start\n~ agent/step-start {\"turn\":1,\"step\":1}\n",
        );
        check(twin, "~ agent/step-start {\"turn\":1,\"step\":1}\n");
    }

    #[test]
    fn what_is_no_event_shows() {
        check("hello\n[]", "! hello\n! []\n");
    }

    #[test]
    fn other_agents_are_named() {
        check(
            r#"{"type":"agent/status","session":"s","agent":"sub","data":{"status":"idle"}}"#,
            "[sub] ~ agent/status {\"status\":\"idle\"}\n",
        );
    }

    #[test]
    fn a_frame_is_shortened_and_a_wrong_hash_is_not() {
        let sent = |hash: &str| {
            format!(
                r#"{{"type":"request/sent","seq":1,"time":2,"session":"s","agent":"main","data":{{"tools":[{{"name":"echo","description":"d","parameters":{{}}}}],"hash":"{hash}"}}}}"#
            )
        };
        check(&sent(&"0a".repeat(32)), "request/sent {\"tools\":[\"echo\"],\"hash\":\"HASH\"}\n");
        check(&sent("0A"), "request/sent {\"tools\":[\"echo\"],\"hash\":\"0A\"}\n");
    }
}
