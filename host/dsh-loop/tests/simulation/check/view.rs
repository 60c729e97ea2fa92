//! What the model is sent: the log's messages and nothing else, in a form that every provider takes.

use serde_json::Value;

use super::{Verdict, at, ensure};
use crate::record::Record;
use crate::run::Life;

/// One message in short: its role, and for each block its kind and what tells it from others.
pub fn brief(role: &str, content: &Value) -> Option<String> {
    let mut words = vec![role.to_owned()];
    for block in content.as_array().map(Vec::as_slice).unwrap_or_default() {
        let text = |member: &str| block[member].as_str().unwrap_or_default();
        match text("type") {
            "text" if text("text").is_empty() => {}
            "text" => words.push(format!("says:{}", text("text"))),
            "tool-call" => words.push(format!("calls:{}:{}:{}", text("id"), text("name"), text("arguments"))),
            "tool-result" => words.push(format!("answers:{}:{}", text("callId"), block["isError"])),
            other => words.push(other.to_owned()),
        }
    }
    (words.len() > 1).then(|| words.join(" "))
}

/// The message that an entry of the log stands for.
fn of(record: &Record) -> Option<String> {
    match record.kind.as_str() {
        "user/message" | "steering/message" | "context/message" => brief("user", &record.data["content"]),
        "assistant/message" => brief("assistant", &record.data["content"]),
        "tool/result" => Some(format!("user answers:{}:{}", record.text("callId"), record.data["isError"])),
        _ => None,
    }
}

/// Every request is what the log stood for, and each of its calls has its result directly after its message.
pub fn requests(life: &Life) -> Verdict {
    let mut due: Vec<String> = life.before.iter().filter_map(of).collect();
    let mut said = 0;
    for (place, record) in life.records.iter().enumerate() {
        if record.is_logged() {
            due.extend(of(record));
        }
        if record.is("request/sent") {
            said = record.number("messages");
        }
        if record.is("model asked") {
            let sent: Vec<&str> = record.text("messages").lines().collect();
            ensure(said == sent.len() as u64, || format!("{said} are said to be sent: {}", at(place, record)))?;
            let differs = sent.iter().zip(&due).position(|(sent, due)| sent != due);
            ensure(differs.is_none() && sent.len() == due.len(), || {
                let differs = differs.unwrap_or(sent.len().min(due.len()));
                let (sent, due) = (sent.get(differs), due.get(differs));
                format!("message {differs} is {sent:?}, in the log it is {due:?}, at line {place}")
            })?;
            pairs(&sent).map_err(|problem| format!("{problem} at line {place}"))?;
        }
    }
    Ok(())
}

fn pairs(sent: &[&str]) -> Verdict {
    let mut owed: Vec<&str> = Vec::new();
    for message in sent {
        let ids = |word: &'static str| {
            message.split(' ').filter_map(move |block| block.strip_prefix(word)?.split(':').next())
        };
        let answered = ids("answers:").count();
        ensure(owed.is_empty() || answered > 0, || format!("{owed:?} have no result"))?;
        for id in ids("answers:") {
            let found = owed.iter().position(|owed| *owed == id).ok_or_else(|| format!("nobody called {id}"))?;
            owed.remove(found);
        }
        owed.extend(ids("calls:"));
    }
    ensure(owed.is_empty(), || format!("{owed:?} have no result"))
}
