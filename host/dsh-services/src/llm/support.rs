//! What the tests of this module share.

use std::io::Write;
use std::sync::{Arc, Mutex};

use dsh_seam::llm::{ChunkStream, ModelRequest, RequestedBy};
use dsh_seam::message::{Message, ToolSchema};
use dsh_seam::view::MessageList;
use dsh_seam::{AgentId, ModelFailure, SessionId, StepRef};
use futures::StreamExt;
use serde_json::json;

/// A request of the agent `main`.
pub fn request(model: &str, messages: Vec<Message>, tools: &[&str]) -> Arc<ModelRequest> {
    request_of("main", model, messages, tools)
}

/// A request of an agent.
pub fn request_of(agent: &str, model: &str, messages: Vec<Message>, tools: &[&str]) -> Arc<ModelRequest> {
    let schema = |name: &&str| ToolSchema {
        name: (*name).to_owned(),
        description: String::new(),
        parameters: json!({"type": "object"}),
        strict: None,
    };
    Arc::new(ModelRequest {
        by: RequestedBy::Loop,
        agent: AgentId::new(agent).expect("a valid id"),
        session: SessionId::new("s").expect("a valid id"),
        at: StepRef { turn: 1, step: 1 },
        attempt: 1,
        model: model.into(),
        system: "".into(),
        messages: MessageList::of(messages),
        tools: tools.iter().map(schema).collect(),
        sampling: Arc::default(),
    })
}

/// Everything a stream gives, as JSON separated by blanks; a failure is `!code message [status] [retry]`.
pub async fn all(stream: Result<ChunkStream, ModelFailure>) -> String {
    let mut items = Vec::new();
    match stream {
        Err(failure) => items.push(shown(&failure)),
        Ok(mut stream) => {
            while let Some(item) = stream.next().await {
                items.push(match item {
                    Ok(chunk) => serde_json::to_string(&chunk).expect("a chunk is JSON"),
                    Err(failure) => shown(&failure),
                });
            }
        }
    }
    items.join(" ")
}

/// A failure as text.
pub fn shown(failure: &ModelFailure) -> String {
    let status = failure.status.map(|status| format!(" status={status}")).unwrap_or_default();
    let retry = failure.retry_after_ms.map(|ms| format!(" retry={ms}")).unwrap_or_default();
    format!("!{} {}{status}{retry}", failure.code, failure.message)
}

/// A file in memory.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    /// What was written.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("unpoisoned").clone()).expect("text was written")
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
