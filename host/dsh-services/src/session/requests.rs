//! What the model was shown, rebuilt from a log: each `request/sent` as the request that it stands for.

use std::sync::Arc;

use dsh_seam::StepRef;
use dsh_seam::event::{Entry, Event, RequestEdit, RequestSent};
use dsh_seam::llm::{ModelRequest, RequestedBy};
use dsh_seam::message::{Message, ToolSchema};
use dsh_seam::view::{Frame, FrameHash, History, MessageList};

/// Rebuilds requests while it is shown a log, entry by entry from its beginning.
#[derive(Debug, Default)]
pub struct Requests {
    history: Arc<History>,
    system: Arc<str>,
    tools: Arc<[ToolSchema]>,
}

/// A request as the log says it was.
#[derive(Debug, Clone)]
pub struct RebuiltRequest {
    /// The request; its JSON is the line that `--log-requests` wrote.
    pub request: ModelRequest,
    /// Whether it has the hash and the length that were logged when it was sent. False: the log was changed since.
    pub is_as_sent: bool,
}

impl Requests {
    /// Takes the log's next entry; the request, if it stands for one.
    pub fn apply(&mut self, entry: &Entry) -> Option<RebuiltRequest> {
        match &entry.event {
            Event::RequestSent(sent) => Some(self.rebuild(entry, sent)),
            event => {
                Arc::make_mut(&mut self.history).apply(event);
                None
            }
        }
    }

    fn rebuild(&mut self, entry: &Entry, sent: &RequestSent) -> RebuiltRequest {
        if let Some(system) = &sent.system {
            self.system = system.as_str().into();
        }
        if let Some(tools) = &sent.tools {
            self.tools = tools.clone();
        }
        let messages = edited(&self.history, &sent.edits);
        let frame = Frame { model: &sent.model, sampling: &sent.sampling, system: &self.system, tools: &self.tools };
        let hash = FrameHash::new(&frame).request(&messages.chain());
        let is_as_sent = hash == sent.hash && messages.len() == sent.messages as usize;
        let request = ModelRequest {
            by: RequestedBy::Loop,
            agent: entry.agent.clone(),
            session: entry.session.clone(),
            at: StepRef { turn: sent.turn, step: sent.step },
            attempt: sent.attempt,
            model: sent.model.as_str().into(),
            system: self.system.clone(),
            messages,
            tools: self.tools.clone(),
            sampling: Arc::new(sent.sampling.clone()),
        };
        RebuiltRequest { request, is_as_sent }
    }
}

/// The history with the edits of one request; an edit beyond the end (a log that was changed) takes out what is there.
fn edited(history: &Arc<History>, edits: &[RequestEdit]) -> MessageList {
    if edits.is_empty() {
        return MessageList::new(history.clone());
    }
    let mut messages: Vec<Message> = history.messages().iter().map(|message| message.message.clone()).collect();
    for edit in edits {
        let start = (edit.start as usize).min(messages.len());
        let end = start.saturating_add(edit.count as usize).min(messages.len());
        messages.splice(start..end, edit.replacement.iter().cloned());
    }
    MessageList::of(messages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entry(seq: u64, kind: &str, data: Value) -> Entry {
        let line = json!({"type": kind, "seq": seq, "time": 0, "session": "s", "agent": "main", "data": data});
        Entry::parse(&line.to_string()).expect("an entry")
    }

    fn said(text: &str) -> Value {
        json!({"content": [{"type": "text", "text": text}], "source": {"type": "user"}})
    }

    fn sent(step: u32, more: Value) -> Value {
        let mut sent = json!({"turn": 1, "step": step, "attempt": 1, "model": "echo", "sampling": {}, "edits": [], "messages": 1, "hash": "00"});
        sent.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        sent
    }

    fn rebuilt(entries: &[Entry]) -> Vec<RebuiltRequest> {
        let mut requests = Requests::default();
        entries.iter().filter_map(|entry| requests.apply(entry)).collect()
    }

    #[test]
    fn system_and_tools_last_until_they_change() {
        let tools = json!([{"name": "t", "description": "", "parameters": {"type": "object"}}]);
        let requests = rebuilt(&[
            entry(0, "user/message", said("hi")),
            entry(1, "request/sent", sent(1, json!({"system": "be kind", "tools": tools}))),
            entry(2, "request/sent", sent(2, json!({}))),
            entry(3, "request/sent", sent(3, json!({"system": ""}))),
        ]);
        let seen = |request: &RebuiltRequest| (request.request.system.to_string(), request.request.tools.len());
        let seen: Vec<(String, usize)> = requests.iter().map(seen).collect();
        assert_eq!(seen, [("be kind".into(), 1), ("be kind".into(), 1), (String::new(), 1)]);
    }

    #[test]
    fn an_edit_is_for_one_request() {
        let message = |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
        let edits = json!([{"plugin": "p", "start": 0, "count": 1, "replacement": [message("x"), message("y")]}, {"plugin": "p", "start": 9, "count": 9, "replacement": [message("z")]}]);
        let requests = rebuilt(&[
            entry(0, "user/message", said("a")),
            entry(1, "request/sent", sent(1, json!({"edits": edits}))),
            entry(2, "request/sent", sent(2, json!({}))),
        ]);
        let messages = |request: &RebuiltRequest| json!(request.request.messages);
        assert_eq!(messages(&requests[0]), json!([message("x"), message("y"), message("z")]));
        assert_eq!(messages(&requests[1]), json!([message("a")]));
    }

    #[test]
    fn a_log_that_was_changed_is_noticed() {
        // Computed from the definition, with another implementation of SHA-256.
        let hash = "e8b4b5fadbb10dd8e03ba6e93b69c0401167ea50a31dc0d5fc0df7daaf1e3199";
        let check = |said_text: &str, count: u32, as_sent: bool| {
            let more = json!({"model": "m", "hash": hash, "messages": count, "system": "", "tools": []});
            let requests =
                rebuilt(&[entry(0, "user/message", said(said_text)), entry(1, "request/sent", sent(1, more))]);
            assert_eq!(requests[0].is_as_sent, as_sent, "{said_text} {count}");
        };
        check("a", 1, true);
        check("b", 1, false);
        check("a", 2, false);
    }
}
