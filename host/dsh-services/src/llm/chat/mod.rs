//! Chat Completions: OpenAI, DeepSeek and every server that speaks the same.
//!
//! [`request`] writes the body from messages that [`written`] keeps, [`decode`] makes chunks of the answer, [`usage`] reads the counts.

mod decode;
mod request;
#[cfg(test)]
mod tests;
mod usage;
mod written;

use dsh_seam::llm::ModelRequest;

use super::network::{Decode, Protocol, Target};

/// The protocol.
pub(super) struct Chat;

impl Protocol for Chat {
    fn path(&self, _: &str) -> &'static str {
        "chat/completions"
    }

    fn reserved(&self) -> &'static [&'static str] {
        &request::RESERVED
    }

    fn body(&self, target: &Target, request: &ModelRequest) -> Vec<u8> {
        request::body(target, request)
    }

    fn decoder(&self, target: &Target) -> Box<dyn Decode> {
        Box::new(decode::Decoder::new(&target.provider.name))
    }
}
