//! `--record`: every answer as a line of a script, in the form `chunks`, so that `script:FILE` streams the same again.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use dsh_seam::ModelFailure;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::Chunk;
use futures::{Stream, StreamExt};
use serde_json::{Value, json};

use super::log::Lines;

/// A model whose answers are written down.
pub(super) struct Recorded {
    model: Arc<dyn Model>,
    lines: Arc<Lines>,
}

impl Recorded {
    pub fn new(model: Arc<dyn Model>, lines: Arc<Lines>) -> Self {
        Self { model, lines }
    }
}

#[async_trait]
impl Model for Recorded {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let mut line = Line { chunks: vec![], error: None, lines: self.lines.clone() };
        match self.model.stream(request).await {
            Ok(stream) => Ok(Tee { stream, line: Some(line) }.boxed()),
            Err(failure) => {
                line.error = Some(failure.clone());
                Err(failure)
            }
        }
    }
}

/// One answer; written when it is dropped, so that an answer that was given up has its line too and later ones keep their place.
struct Line {
    chunks: Vec<Value>,
    error: Option<ModelFailure>,
    lines: Arc<Lines>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let chunks = std::mem::take(&mut self.chunks);
        let line = match self.error.take() {
            None => json!({ "chunks": chunks }),
            Some(failure) if chunks.is_empty() => json!({ "error": error(failure) }),
            Some(failure) => {
                let after = chunks.len();
                json!({ "chunks": chunks, "error": error(failure), "afterChunks": after })
            }
        };
        // The answer has been given; the next request will find the same.
        if let Err(problem) = self.lines.write(line.to_string()) {
            tracing::error!("{problem}");
        }
    }
}

fn error(failure: ModelFailure) -> Value {
    let mut error = json!({ "code": failure.code, "message": failure.message });
    if let Some(status) = failure.status {
        error["status"] = status.into();
    }
    if let Some(ms) = failure.retry_after_ms {
        error["retryAfterMs"] = ms.into();
    }
    error
}

struct Tee {
    stream: ChunkStream,
    line: Option<Line>,
}

impl Stream for Tee {
    type Item = Result<Chunk, ModelFailure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = std::task::ready!(self.stream.poll_next_unpin(cx));
        match (&next, &mut self.line) {
            (Some(Ok(chunk)), Some(line)) => {
                line.chunks.push(serde_json::to_value(chunk).expect("a chunk has string keys and finite numbers"));
            }
            (Some(Err(failure)), Some(line)) => line.error = Some(failure.clone()),
            (None, _) => self.line = None,
            (Some(_), None) => {}
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::support::{Shared, all, request};
    use super::super::{Models, ModelsConfig};
    use dsh_seam::llm::Llm;
    use dsh_seam::message::Message;
    use futures::StreamExt;
    use std::io::Write;

    fn file_of(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("it can be written");
        file
    }

    #[tokio::test]
    async fn a_recording_replays_the_same() {
        let script = concat!(
            r#"{"reasoning":"hm","text":"hällo","toolCalls":[{"name":"t","arguments":{"b":1,"a":2}}],"chunkSize":2,"usage":{"input":3}}"#,
            "\n",
            r#"{"error":{"code":"rate-limit","message":"slow down","status":429,"retryAfterMs":10}}"#,
            "\n",
            r#"{"text":"abc","chunkSize":1,"error":{"code":"server","message":"gone"},"afterChunks":3}"#,
            "\n",
        );
        let source = file_of(script);
        let recording = Shared::default();
        let config = ModelsConfig { record: Some(Box::new(recording.clone())), ..ModelsConfig::default() };
        let name = format!("script:{}", source.path().display());
        let first = answers(&Models::new(config), &name, 4).await;
        let copy = file_of(&recording.text());
        let second =
            answers(&Models::new(ModelsConfig::default()), &format!("script:{}", copy.path().display()), 3).await;
        assert_eq!(first[..3], second[..]);
        assert_eq!(
            recording.text().lines().nth(1),
            Some(r#"{"error":{"code":"rate-limit","message":"slow down","status":429,"retryAfterMs":10}}"#)
        );
        assert!(recording.text().lines().nth(3).expect("a fourth line").contains("script-exhausted"));
    }

    async fn answers(models: &Models, name: &str, count: usize) -> Vec<String> {
        let model = models.model(name).expect("the script is there");
        let mut out = Vec::new();
        for _ in 0..count {
            out.push(all(model.stream(request(name, vec![Message::user_text("hi")], &[])).await).await);
        }
        out
    }

    #[tokio::test]
    async fn an_answer_that_was_given_up_has_its_line() {
        let source = file_of(r#"{"text":"abc","chunkSize":1}"#);
        let recording = Shared::default();
        let config = ModelsConfig { record: Some(Box::new(recording.clone())), ..ModelsConfig::default() };
        let name = format!("script:{}", source.path().display());
        let model = Models::new(config).model(&name).expect("the script is there");
        let mut stream = model.stream(request(&name, vec![], &[])).await.expect("it answers");
        stream.next().await;
        drop(stream);
        assert_eq!(recording.text(), "{\"chunks\":[{\"type\":\"block-start\",\"index\":0,\"blockType\":\"text\"}]}\n");
    }
}
