//! The model `echo`: answers the last message with itself, and a text `echo …` with one call of the tool `echo`.

use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::ModelFailure;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::{Chunk, FinishReason, ToolCall, result_text};
use futures::StreamExt;
use serde_json::json;

use super::blocks;

/// What a text must begin with to become a call.
const CALL_PREFIX: &str = "echo ";

pub(super) struct Echo;

#[async_trait]
impl Model for Echo {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        Ok(futures::stream::iter(answer(&request).into_iter().map(Ok)).boxed())
    }
}

fn answer(request: &ModelRequest) -> Vec<Chunk> {
    let last = request.messages.iter().next_back().map(|message| &message.message);
    let result = last.and_then(|message| message.tool_results().next());
    let text = match result {
        Some(result) => result_text(&result.content),
        None => last.and_then(|message| message.text()).unwrap_or_default(),
    };
    let callable = result.is_none() && request.tools.iter().any(|tool| tool.name == "echo");
    let (mut chunks, reason) = match text.strip_prefix(CALL_PREFIX) {
        Some(rest) if callable => {
            let arguments = json!({ "text": rest }).to_string();
            let call = ToolCall { id: String::new(), name: "echo".into(), arguments, opaque: None };
            (blocks::tool_call(0, call, None), FinishReason::ToolCalls)
        }
        _ => (blocks::text(0, &text, None), FinishReason::Stop),
    };
    chunks.push(Chunk::Finish { reason });
    chunks
}

#[cfg(test)]
mod tests {
    use super::super::support::{all, request};
    use super::*;
    use dsh_seam::message::{ContentBlock, Message, ResultBlock, ToolResult};

    #[tokio::test]
    async fn the_last_message_is_answered() {
        let check = async |messages: Vec<Message>, tools: &[&str], expect: &str| {
            assert_eq!(all(Echo.stream(request("echo", messages, tools)).await).await, expect);
        };
        let text = |text: &str| {
            format!(
                r#"{{"type":"block-start","index":0,"blockType":"text"}} {{"type":"text-delta","index":0,"text":"{text}"}} {{"type":"block-end","index":0,"block":{{"type":"text","text":"{text}"}}}} {{"type":"finish","reason":"stop"}}"#
            )
        };
        check(vec![Message::user_text("a"), Message::user_text("hi")], &[], &text("hi")).await;
        check(vec![Message::user_text("echo hi")], &["other"], &text("echo hi")).await;
        check(
            vec![Message::user_text("echo hi \"x\"")],
            &["echo"],
            r#"{"type":"block-start","index":0,"blockType":"tool-call"} {"type":"tool-call-delta","index":0,"id":"","name":"echo","argumentsDelta":"{\"text\":\"hi \\\"x\\\"\"}"} {"type":"block-end","index":0,"block":{"type":"tool-call","id":"","name":"echo","arguments":"{\"text\":\"hi \\\"x\\\"\"}"}} {"type":"finish","reason":"tool-calls"}"#,
        )
        .await;
        let result = ToolResult {
            call_id: "c".into(),
            content: vec![ResultBlock::text("echo X")],
            is_error: false,
            cache: None,
        };
        check(vec![Message::user(vec![ContentBlock::ToolResult(result)])], &["echo"], &text("echo X")).await;
    }
}
