//! Responses of OpenAI, and of every server that speaks it: without state on the server, so that the log of the session is all there is.

mod decode;
mod request;
#[cfg(test)]
mod tests;

use dsh_seam::ModelFailure;
use dsh_seam::llm::ModelRequest;

use super::network::{Decode, Protocol, Target};

/// The protocol.
pub(super) struct Responses;

impl Protocol for Responses {
    fn path(&self, _: &str) -> &'static str {
        "responses"
    }

    fn check(&self, target: &Target, request: &ModelRequest) -> Result<(), ModelFailure> {
        if request.sampling.stop.is_empty() {
            return Ok(());
        }
        Err(ModelFailure::new(
            "invalid-request",
            format!(
                "Responses, which the provider `{}` speaks, has no texts to stop at: leave out `stop`, or send it as `extra.stop` to a server that knows it",
                target.provider.name
            ),
        ))
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
