//! What holds after every run, whatever the case is about: the promises of the session log and of the streams.
//!
//! Each check reads plain JSON and shares no code with the product, so that a mistake there does not hide itself. Each is shown to
//! fail on a doctored input.

pub mod family;
pub mod provider;
pub mod repair;
pub mod requests;
pub mod secrets;
pub mod shape;
pub mod stream;

#[cfg(test)]
pub(crate) mod fixture {
    //! A good log to doctor.

    use serde_json::{Value, json};

    use crate::log::Log;

    /// Events of one turn with two steps, a tool call and a message that came in mid-turn.
    pub(crate) fn events() -> Vec<(&'static str, Value)> {
        vec![
            ("user/message", json!({"content": [{"type": "text", "text": "hi"}], "source": {"type": "user"}})),
            ("turn/start", json!({"turn": 1, "trigger": {"type": "message", "source": {"type": "user"}}})),
            ("step/start", json!({"turn": 1, "step": 1})),
            (
                "request/sent",
                json!({"turn": 1, "step": 1, "attempt": 1, "model": "echo", "sampling": {}, "system": "", "tools": [], "edits": [], "messages": 1, "hash": ""}),
            ),
            ("assistant/chunk", json!({"turn": 1, "step": 1, "chunk": {"type": "finish", "reason": "tool-calls"}})),
            (
                "assistant/message",
                json!({"turn": 1, "step": 1, "content": [{"type": "tool-call", "id": "c1", "name": "echo", "arguments": "{}"}]}),
            ),
            ("usage", json!({"turn": 1, "step": 1, "usage": {}})),
            ("tool/call", json!({"turn": 1, "step": 1, "callId": "c1", "name": "echo", "arguments": "{}"})),
            (
                "tool/result",
                json!({"turn": 1, "step": 1, "callId": "c1", "content": [{"type": "text", "text": "HI"}], "isError": false}),
            ),
            (
                "steering/message",
                json!({"turn": 1, "content": [{"type": "text", "text": "and?"}], "source": {"type": "user"}}),
            ),
            ("step/end", json!({"turn": 1, "step": 1})),
            ("step/start", json!({"turn": 1, "step": 2})),
            (
                "request/sent",
                json!({"turn": 1, "step": 2, "attempt": 1, "model": "echo", "sampling": {}, "edits": [], "messages": 4, "hash": ""}),
            ),
            ("assistant/message", json!({"turn": 1, "step": 2, "content": [{"type": "text", "text": "bye"}]})),
            ("step/end", json!({"turn": 1, "step": 2})),
            ("turn/end", json!({"turn": 1, "reason": {"type": "completed"}})),
        ]
    }

    /// Numbers events into a log.
    pub(crate) fn log(events: Vec<(&'static str, Value)>) -> Log {
        let header = json!({"type": "session/header", "version": 1, "id": "s", "agent": "main", "workspace": "/w", "model": "echo", "host": "0.1.0", "created": 1});
        let entry = |(seq, (kind, data)): (usize, (&str, Value))| json!({"type": kind, "seq": seq, "time": 10 + seq, "session": "s", "agent": "main", "data": data});
        let entries: Vec<Value> = events.into_iter().enumerate().map(entry).collect();
        let lines = entries.iter().map(Value::to_string).collect();
        Log { id: "s".to_owned(), header, entries, lines }
    }
}
