//! The server of [`crate::provider_server`] where only Chat Completions is spoken, in the words of that protocol.
//!
//! ```no_run
//! # async fn example() {
//! use dsh_testkit::chat_server::{ChatServer, Reply};
//! let server = ChatServer::start(vec![Reply::status(429, "{}").header("retry-after", "1"), Reply::text("hello")]).await;
//! let base_url = server.base_url(); // http://127.0.0.1:PORT/v1
//! # }
//! ```

use serde_json::json;

pub use crate::provider_server::chat::{delta, finish, usage};
pub use crate::provider_server::{ProviderServer as ChatServer, Received, Reply};

impl Reply {
    /// Chat Completions: a stream with one text, its finish, its usage and `[DONE]`.
    pub fn text(text: &str) -> Self {
        Self::events([delta(json!({ "role": "assistant", "content": text })), finish("stop"), usage(10, 5)]).done()
    }

    /// Chat Completions: a stream with one tool call.
    pub fn tool_call(id: &str, name: &str, arguments: &str) -> Self {
        let call =
            json!({ "index": 0, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        Self::events([delta(json!({ "role": "assistant", "tool_calls": [call] })), finish("tool_calls"), usage(10, 5)])
            .done()
    }
}
