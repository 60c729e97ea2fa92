//! A printed event as the reference writes it: its type and what the reference knows of its data.

use serde_json::Value;

/// One line of `--output jsonl`.
pub fn shown(event: &Value) -> String {
    let (kind, data) = (event["type"].as_str().unwrap_or("?"), &event["data"]);
    let word = |key: &str| data[key].as_str().unwrap_or("-").to_owned();
    let place = || format!("{} {}", data["turn"], data["step"]);
    let detail = match kind {
        "agent/queued" if data["steering"] == true => format!("{} steering", texts(&data["content"])),
        "agent/queued" | "user/message" | "steering/message" | "context/message" => texts(&data["content"]),
        "agent/status" => word("status"),
        "agent/dropped" => data["count"].to_string(),
        "agent/disposed" => data["dropped"].to_string(),
        "turn/start" => data["turn"].to_string(),
        "step/start" | "step/end" => place(),
        "request/sent" => data["messages"].to_string(),
        "request/failed" | "error" | "agent/error" => word("code"),
        "assistant/message" if data["interrupted"] == true => format!("{} interrupted", texts(&data["content"])),
        "assistant/message" => texts(&data["content"]),
        "usage" => data["usage"]["output"].to_string(),
        "tool/call" => word("callId"),
        "tool/result" => format!("{} {}", word("callId"), word("code")),
        "turn/end" => {
            let reason = &data["reason"];
            let detail = reason["code"].as_str().or(reason["reason"].as_str()).unwrap_or("-");
            format!("{} {} {detail}", data["turn"], reason["type"].as_str().unwrap_or("?"))
        }
        _ => String::new(),
    };
    format!("{kind} {detail}").trim_end().to_owned()
}

/// The texts of blocks, and the ids of calls.
fn texts(content: &Value) -> String {
    let block = |block: &Value| block["text"].as_str().or(block["id"].as_str()).unwrap_or("?").to_owned();
    content.as_array().into_iter().flatten().map(block).collect::<Vec<_>>().join(",")
}
