//! A model that says anything, in any pieces, and breaks off anywhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use dsh_seam::draft::ModelCatalog;
use dsh_seam::failure::{Failure, ModelFailure};
use dsh_seam::llm::{ChunkStream, Llm, Model, ModelRequest, RequestedBy};
use dsh_seam::message::{Chunk, ContentBlock, FinishReason, Message, Role, ToolCall, Usage};
use futures::StreamExt;
use serde_json::json;

use crate::chaos::Chaos;
use crate::check::brief;
use crate::plan::Fault;

/// Answers with tool calls in one run; after these it only talks, so that the run comes to its end.
const MOST_CALLING_ANSWERS: u32 = 12;

/// The model of a run.
#[derive(Clone)]
pub struct AnyModel(pub Arc<AnyModelState>);

/// What it needs.
pub struct AnyModelState {
    pub chaos: Arc<Chaos>,
    /// Of this run and those before it, so that call ids differ.
    pub calls: AtomicU32,
    pub calling_answers: AtomicU32,
}

/// One thing a stream does.
#[derive(Clone)]
enum Piece {
    Chunk(Chunk),
    Fails,
    Hangs,
}

impl AnyModel {
    pub fn new(chaos: Arc<Chaos>, first_call: u32) -> Self {
        Self(Arc::new(AnyModelState { chaos, calls: AtomicU32::new(first_call), calling_answers: AtomicU32::new(0) }))
    }

    fn pieces(&self) -> Vec<Piece> {
        let chaos = &self.0.chaos;
        let mut pieces = Vec::new();
        let text = |index, text: &str| {
            let delta = Piece::Chunk(Chunk::TextDelta { index, text: text.into() });
            [delta, Piece::Chunk(Chunk::BlockEnd { index, block: ContentBlock::text(text) })]
        };
        if chaos.strikes(Fault::NothingSaid, "model") {
            pieces.push(Piece::Chunk(Chunk::Finish { reason: FinishReason::Stop }));
            return pieces;
        }
        pieces.extend(text(0, "said"));
        let calls = if self.0.calling_answers.fetch_add(1, Ordering::Relaxed) < MOST_CALLING_ANSWERS {
            chaos.pick(&[0, 0, 1, 2, 3, 5, 10])
        } else {
            0
        };
        pieces.extend(
            (1..=calls)
                .map(|index| Piece::Chunk(Chunk::BlockEnd { index, block: ContentBlock::ToolCall(self.call()) })),
        );
        pieces.push(Piece::Chunk(Chunk::Usage { usage: Usage { output: 1, ..Usage::default() } }));
        let reason = if chaos.strikes(Fault::OutputCut, "model") {
            FinishReason::MaxTokens
        } else if calls > 0 {
            FinishReason::ToolCalls
        } else {
            FinishReason::Stop
        };
        pieces.push(Piece::Chunk(Chunk::Finish { reason }));
        for (fault, instead) in [
            (Fault::StreamFails, Some(Piece::Fails)),
            (Fault::StreamHangs, Some(Piece::Hangs)),
            (Fault::StreamEnds, None),
        ] {
            if chaos.strikes(fault, "model") {
                pieces.truncate(chaos.below(pieces.len() as u32) as usize);
                pieces.extend(instead);
            }
        }
        pieces
    }

    fn call(&self) -> ToolCall {
        let chaos = &self.0.chaos;
        let number = self.0.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let mut call = ToolCall {
            id: format!("c{number}"),
            name: chaos.pick(&["plain", "safe", "safe", "safe2"]).into(),
            arguments: "{}".into(),
            opaque: None,
        };
        if chaos.strikes(Fault::BadCall, "model") {
            match chaos.below(4) {
                0 => call.name = "no_such_tool".into(),
                1 => call.arguments = "{".into(),
                2 => call.arguments = String::new(),
                _ => call.id = chaos.pick(&["", "c1"]).into(),
            }
        }
        call
    }
}

#[async_trait]
impl Model for AnyModel {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let chaos = self.0.chaos.clone();
        let brief = |message: &Message| {
            let role = if message.role == Role::Assistant { "assistant" } else { "user" };
            brief(role, &serde_json::to_value(&message.content).expect("JSON")).unwrap_or_default()
        };
        let messages: Vec<String> = request.messages.iter().map(|message| brief(&message.message)).collect();
        if request.by == RequestedBy::Loop {
            chaos.note("model asked", json!({"messages": messages.join("\n")}));
        }
        chaos.point("model").await;
        if chaos.strikes(Fault::ModelFails, "model") {
            return Err(ModelFailure::new("server", "the model failed"));
        }
        let pieces = self.pieces();
        let stream = futures::stream::iter(pieces).then(move |piece| {
            let chaos = chaos.clone();
            async move {
                chaos.point("stream").await;
                match piece {
                    Piece::Chunk(chunk) => Ok(chunk),
                    Piece::Fails => Err(ModelFailure::new("server", "the stream broke")),
                    Piece::Hangs => std::future::pending().await,
                }
            }
        });
        Ok(stream.boxed())
    }
}

impl ModelCatalog for AnyModel {
    fn check_for_plugin(&self, _: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn context_window(&self, _: &str) -> Option<u32> {
        None
    }
}

impl Llm for AnyModel {
    fn model(&self, _: &str) -> Result<Arc<dyn Model>, ModelFailure> {
        Ok(Arc::new(self.clone()))
    }
}
