//! The seam to models: what a model call is given and what it streams back.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::draft::{ModelCatalog, tool_tokens};
use crate::failure::ModelFailure;
use crate::ids::{AgentId, PluginName, SessionId, StepRef};
use crate::message::{Chunk, FinishReason, Message, ModelName, Sampling, ToolSchema, Usage};
use crate::view::{MessageList, estimate_tokens};

/// Who wants a model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedBy {
    /// The loop.
    Loop,
    /// A plugin, through `dsh:llm/model`.
    Plugin(PluginName),
}

/// One model request, as the provider adapter receives it. Its JSON is a line of `--log-requests`.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// Who wants it.
    pub by: RequestedBy,
    /// On whose behalf.
    pub agent: AgentId,
    /// In which session.
    pub session: SessionId,
    /// Where in the agent's life.
    pub at: StepRef,
    /// From 1.
    pub attempt: u32,
    /// `PROVIDER/MODEL`.
    pub model: ModelName,
    /// The system prompt; empty when there is none.
    pub system: Arc<str>,
    /// The conversation.
    pub messages: MessageList,
    /// The tools on offer.
    pub tools: Arc<[ToolSchema]>,
    /// How to answer.
    pub sampling: Arc<Sampling>,
}

impl ModelRequest {
    /// The host's estimate of what goes in.
    pub fn estimated_tokens(&self) -> u32 {
        let tools: u64 = self.tools.iter().map(|tool| u64::from(tool_tokens(tool))).sum();
        let tokens = self.messages.tokens() + tools + u64::from(estimate_tokens(self.system.len()));
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }
}

impl Serialize for ModelRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(11))?;
        map.serialize_entry(
            "by",
            match &self.by {
                RequestedBy::Loop => "loop",
                RequestedBy::Plugin(plugin) => plugin.as_str(),
            },
        )?;
        map.serialize_entry("agent", &self.agent)?;
        map.serialize_entry("session", &self.session)?;
        map.serialize_entry("turn", &self.at.turn)?;
        map.serialize_entry("step", &self.at.step)?;
        map.serialize_entry("attempt", &self.attempt)?;
        map.serialize_entry("model", &*self.model)?;
        map.serialize_entry("system", &*self.system)?;
        map.serialize_entry("messages", &self.messages)?;
        map.serialize_entry("tools", &*self.tools)?;
        map.serialize_entry("sampling", &*self.sampling)?;
        map.end()
    }
}

/// A model's answer while it comes. Dropping it ends the call at once; the provider sees the connection close.
///
/// Rules for adapters: blocks are opened, filled and closed in any interleaving, each `index` once; `Usage` may come at any time, a
/// later one replaces an earlier one; `Finish` is the last chunk. A block is closed only when the provider said so, never because
/// the connection ended; a stream that ends without `Finish` is judged by the loop.
pub type ChunkStream = BoxStream<'static, Result<Chunk, ModelFailure>>;

/// One model of one provider.
#[async_trait]
pub trait Model: Send + Sync {
    /// Sends the request and returns the stream of the answer.
    ///
    /// Cancel safe: dropping the future or the stream ends the call. Has time-outs of its own.
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure>;
}

/// The service `llm`: finds the adapter for a model's name.
pub trait Llm: ModelCatalog + Send + Sync {
    /// The model behind `PROVIDER/MODEL`; the failure (`no-adapter`) says what there is.
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelFailure>;
}

/// A model call by a plugin.
#[derive(Debug, Clone)]
pub struct GenerateRequest {
    /// `PROVIDER/MODEL` of a configured network provider; none: the agent's own.
    pub model: Option<String>,
    /// The system prompt.
    pub system: Option<String>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The tools on offer.
    pub tools: Vec<ToolSchema>,
    /// How to answer.
    pub sampling: Sampling,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct GenerateResponse {
    /// The answer.
    pub message: Message,
    /// What it cost, when known.
    pub usage: Option<Usage>,
    /// Why it stopped; a model that failed midway is `Error`.
    pub finish: FinishReason,
}
