//! Chat Completions: OpenAI, DeepSeek and every server that speaks the same.
//!
//! [`request`] writes the body, [`decode`] makes chunks of the answer.

mod decode;
mod request;
#[cfg(test)]
mod tests;

use dsh_seam::llm::ModelRequest;

use super::network::{Decode, Protocol, Target};

/// The protocol.
pub(super) struct Chat;

impl Protocol for Chat {
    fn path(&self, _: &str) -> &'static str {
        "chat/completions"
    }

    fn body(&self, target: &Target, request: &ModelRequest) -> Vec<u8> {
        request::body(target, request)
    }

    fn decoder(&self, _: &Target) -> Box<dyn Decode> {
        Box::<decode::Decoder>::default()
    }
}
