//! The policy of `policy.rs` as a native executable: reads a call, answers a verdict. What a hook that is a process costs.

#[path = "../normalised.rs"]
mod normalised;

use std::io::Read as _;

use normalised::normalised;

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
