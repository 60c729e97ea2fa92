//! The policy of `policy.rs` as a native executable: reads a call, answers a verdict. What a hook that is a process costs.

use std::io::Read as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input)?;
    let call: serde_json::Value = serde_json::from_str(&input)?;
    let arguments: serde_json::Value = serde_json::from_str(call["arguments"].as_str().unwrap_or("{}"))?;
    let path = normalised(arguments["path"].as_str().unwrap_or_default());
    let allowed = call["name"] == "read" && path.starts_with("src/");
    let verdict = if allowed { "abstain" } else { "deny" };
    println!("{}", serde_json::json!({ "verdict": verdict }));
    Ok(())
}

/// A relative path without `.` and `..`.
fn normalised(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
