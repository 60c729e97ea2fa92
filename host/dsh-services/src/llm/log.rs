//! `--log-requests`: every request as the adapter receives it, a line each, before it goes out.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dsh_seam::ModelFailure;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};

use super::Sink;

/// The code of a request that was not sent, because it could not be written down.
pub(super) const LOG_FAILED: &str = "log-failed";

/// A file of JSON lines, flushed per line.
pub(super) struct Lines {
    what: &'static str,
    sink: Mutex<Sink>,
}

impl Lines {
    pub fn new(what: &'static str, sink: Sink) -> Self {
        Self { what, sink: Mutex::new(sink) }
    }

    /// Writes one line whole. The failure is a sentence for a person.
    pub fn write(&self, mut line: String) -> Result<(), String> {
        line.push('\n');
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let written = sink.write_all(line.as_bytes()).and_then(|()| sink.flush());
        written.map_err(|error| format!("the file of `{}` could not be written: {error}", self.what))
    }
}

/// A model whose requests are written down.
pub(super) struct Logged {
    model: Arc<dyn Model>,
    lines: Arc<Lines>,
}

impl Logged {
    pub fn new(model: Arc<dyn Model>, lines: Arc<Lines>) -> Self {
        Self { model, lines }
    }
}

#[async_trait]
impl Model for Logged {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let line = serde_json::to_string(&*request).expect("a request has string keys and finite numbers");
        // Whoever asks for the log relies on it: what cannot be written down is not sent.
        self.lines
            .write(line)
            .map_err(|problem| ModelFailure::new(LOG_FAILED, format!("the request was not sent: {problem}")))?;
        self.model.stream(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::support::{Shared, request};
    use super::super::{Models, ModelsConfig};
    use dsh_seam::llm::Llm;
    use dsh_seam::message::Message;

    #[tokio::test]
    async fn a_request_is_one_line() {
        let file = Shared::default();
        let models =
            Models::new(ModelsConfig { log_requests: Some(Box::new(file.clone())), ..ModelsConfig::default() });
        let model = models.model("echo").expect("echo is there");
        drop(model.stream(request("echo", vec![Message::user_text("hi")], &["t"])).await.expect("echo answers"));
        assert_eq!(
            file.text(),
            concat!(
                r#"{"by":"loop","agent":"main","session":"s","turn":1,"step":1,"attempt":1,"model":"echo","system":"","#,
                r#""messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"#,
                r#""tools":[{"name":"t","description":"","parameters":{"type":"object"}}],"sampling":{}}"#,
                "\n"
            )
        );
    }
}
