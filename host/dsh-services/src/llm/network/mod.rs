//! What all network protocols share: the connection, the waiting, the cutting into events, the codes of failures.
//!
//! A protocol is a [`Protocol`] that writes the body of a request and a [`Decode`] that makes chunks of the answer; nothing else of it
//! knows HTTP. `client` makes connections and knows the key, `answer` waits and reads, `sse` cuts bytes into events, `error` gives
//! failures their codes, `blocks` keeps the blocks of an answer under way, `body` writes the messages, `tools` keeps the tools as they were written.

mod advice;
pub(super) mod answer;
pub(super) mod blocks;
pub(super) mod body;
mod client;
pub(super) mod error;
pub(super) mod list;
pub(super) mod piece;
mod said;
pub(super) mod sse;
#[cfg(test)]
mod tests;
mod times;
pub(super) mod tools;
mod waits;

use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::ModelFailure;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::Chunk;
use serde_json::{Map, Value};

use super::provider::{ModelConfig, ProviderConfig, ProviderKind, Secret};
pub(super) use client::Provider;
use sse::Event;
use tools::WrittenTools;

/// The member of `opaque` that says whose it is.
const KEPT_FOR: &str = "provider";

/// What a protocol is: how a request is written and how its answer is read.
pub(super) trait Protocol: Send + Sync {
    /// Where requests go, behind the provider's address `base`, which has no slash at its end.
    fn path(&self, base: &str) -> &'static str;
    /// The header that carries the key: its name and its value.
    fn key_header(&self, key: &Secret) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", key.reveal()))
    }
    /// Headers that every request has beside the usual ones.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Members of the request's body that nobody else can set: the adapter could not read the answer, or would send another
    /// conversation.
    fn reserved(&self) -> &'static [&'static str] {
        &[]
    }
    /// Fails when the request asks for what cannot be said in this protocol: better no answer than another one.
    fn check(&self, _target: &Target, _request: &ModelRequest) -> Result<(), ModelFailure> {
        Ok(())
    }
    /// The request's body.
    fn body(&self, target: &Target, request: &ModelRequest) -> Vec<u8>;
    /// Reads one answer.
    fn decoder(&self, target: &Target) -> Box<dyn Decode>;
}

/// Makes chunks of one answer. A block is closed only when the provider said so, never because the body ended.
pub(super) trait Decode: Send {
    /// One event of a stream.
    fn event(&mut self, event: &Event) -> Result<(), ModelFailure>;
    /// An answer that was not streamed: a JSON document.
    fn whole(&mut self, body: &[u8]) -> Result<(), ModelFailure>;
    /// The body has ended. What is still open stays open: the loop judges.
    fn end(&mut self) -> Result<(), ModelFailure>;
    /// The chunks that are ready.
    fn take(&mut self) -> Vec<Chunk>;
    /// Whether the provider has said that the answer is whole, so that a connection that breaks now takes nothing away.
    fn is_finished(&self) -> bool;
    /// Whether the last chunk is out.
    fn is_over(&self) -> bool;
}

/// Whom a request is for.
pub(super) struct Target {
    /// The provider.
    pub provider: Arc<ProviderConfig>,
    /// The model, in the provider's words.
    pub model: String,
    /// What is known of it.
    pub known: ModelConfig,
    /// The name under which messages are kept as they were written: nothing but this way of writing has it.
    pub dialect: Arc<str>,
    /// The tools that were written last.
    pub tools: Arc<WrittenTools>,
}

impl Target {
    /// A model of a provider.
    pub fn new(provider: Arc<ProviderConfig>, model: &str) -> Self {
        let known = provider.model(model);
        let dialect = format!("{}/{}/{model}", provider.kind.as_str(), provider.name).into();
        Self { provider, model: model.to_owned(), known, dialect, tools: Arc::default() }
    }

    /// Whether the configuration says that a member is not sent.
    pub fn omits(&self, name: &str) -> bool {
        self.known.omit.iter().any(|omitted| omitted == name)
    }
}

/// The protocol of a kind of provider.
pub(super) fn protocol(kind: ProviderKind) -> &'static dyn Protocol {
    match kind {
        ProviderKind::OpenAi | ProviderKind::DeepSeek | ProviderKind::Compatible => &super::chat::Chat,
        ProviderKind::OpenAiResponses => &super::responses::Responses,
        ProviderKind::Anthropic => &super::messages::Messages,
    }
}

/// One model of one provider.
pub(super) struct NetworkModel {
    provider: Arc<Provider>,
    target: Target,
}

impl NetworkModel {
    pub fn new(provider: Arc<Provider>, model: &str) -> Self {
        let tools = provider.tools.clone();
        let target = Target { tools, ..Target::new(provider.config.clone(), model) };
        Self { provider, target }
    }

    /// The body of a request.
    pub fn body(&self, request: &ModelRequest) -> Vec<u8> {
        protocol(self.provider.config.kind).body(&self.target, request)
    }
}

#[async_trait]
impl Model for NetworkModel {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let protocol = protocol(self.provider.config.kind);
        protocol.check(&self.target, &request)?;
        let body = self.body(&request);
        let answer = answer::stream(self.provider.clone(), &self.target.model, body, protocol.decoder(&self.target));
        answer.await.map_err(|failure| self.provider.clean(failure))
    }
}

/// What an adapter keeps of a block for its provider: an object that names the provider, so that nobody else is sent it.
pub(super) fn keep(provider: &str, members: Map<String, Value>) -> Value {
    let mut kept = Map::from_iter([(KEPT_FOR.to_owned(), Value::from(provider))]);
    kept.extend(members);
    Value::Object(kept)
}

/// What was kept of a block for this provider; none when there is nothing, or when it is another's.
pub(super) fn kept<'a>(opaque: Option<&'a Value>, provider: &str) -> Option<&'a Map<String, Value>> {
    let members = opaque?.as_object()?;
    (members.get(KEPT_FOR)?.as_str()? == provider).then_some(members)
}

/// A block that only its provider and its sender know, without what another provider keeps in it.
pub(super) fn without_opaque(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(members) = value.as_object_mut() {
        members.shift_remove("opaque");
    }
    value
}
