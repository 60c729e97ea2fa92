//! What tests of several crates share: parts to put around an agent, chance with a seed, a printer of transcripts, a model
//! provider with faults.

pub mod catalog;
pub mod chance;
pub mod chat_server;
pub mod clock;
pub mod line;
pub mod native;
pub mod processes;
pub mod provider_server;
pub mod recorder;
pub mod script;
pub mod sessions;
pub mod transcript;

pub use catalog::OneModel;
pub use chance::Chance;
pub use clock::ManualClock;
pub use native::plugin;
pub use processes::NoProcesses;
pub use recorder::Recorder;
pub use script::{Answer, Script};
