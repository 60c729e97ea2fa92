//! What tests of several crates share: a clock that stands still, a printer of transcripts, a model server with faults.

pub mod chat_server;
pub mod clock;
pub mod transcript;

pub use clock::ManualClock;
