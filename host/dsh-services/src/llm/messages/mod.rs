//! Messages of Anthropic, and of every server that speaks it.
//!
//! [`request`] writes the body: [`frame`] what stands before the conversation, [`blocks`] its pieces. [`decode`] makes chunks of the
//! answer.

mod blocks;
mod decode;
mod frame;
mod request;
#[cfg(test)]
mod tests;

use dsh_seam::llm::ModelRequest;

use super::network::{Decode, Protocol, Target};
use super::provider::Secret;

/// The version of the interface, part of every address.
const VERSION: &str = "/v1";

/// The protocol.
pub(super) struct Messages;

impl Protocol for Messages {
    /// Addresses are written with the version (as ours) and without (as in the variable of Anthropic's own libraries).
    fn path(&self, base: &str) -> &'static str {
        if base.ends_with(VERSION) { "messages" } else { "v1/messages" }
    }

    fn key_header(&self, key: &Secret) -> (&'static str, String) {
        ("x-api-key", key.reveal().to_owned())
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn reserved(&self) -> &'static [&'static str] {
        &frame::RESERVED
    }

    fn body(&self, target: &Target, request: &ModelRequest) -> Vec<u8> {
        request::body(target, request)
    }

    fn decoder(&self, target: &Target) -> Box<dyn Decode> {
        Box::new(decode::Decoder::new(&target.provider.name))
    }
}
