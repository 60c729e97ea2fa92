//! What providers should not do, and do: behaviours on the wire, each in every protocol.
//!
//! A behaviour is data: a name, a sentence and a [`Reply`]. What comes of each is in the tests that run all of them.

mod bytes;
mod connection;
mod content;
mod gzip;
mod refusals;

use super::{Answer, Protocol, Reply, Stage};

/// Which wait a behaviour is about, so that a test makes it short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// None: no time-out decides.
    No,
    /// Until the answer begins.
    FirstByte,
    /// Between two pieces.
    Idle,
    /// For everything.
    Total,
}

/// One behaviour.
pub struct Fault {
    /// A short name, in kebab-case.
    pub name: &'static str,
    /// What the server does, as the end of a sentence that begins with "the server".
    pub about: &'static str,
    /// What decides its end.
    pub wait: Wait,
    /// The reply in a protocol.
    pub reply: fn(Protocol) -> Reply,
}

impl Fault {
    const fn new(name: &'static str, about: &'static str, reply: fn(Protocol) -> Reply) -> Self {
        Self { name, about, wait: Wait::No, reply }
    }

    const fn waits(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }
}

/// A group of behaviours, with its title.
pub type Group = (&'static str, &'static [Fault]);

/// All behaviours, by what they are about.
pub fn groups() -> [Group; 4] {
    [
        ("The connection", connection::FAULTS),
        ("The bytes", bytes::FAULTS),
        ("Refusals", refusals::FAULTS),
        ("What is said", content::FAULTS),
    ]
}

/// What is said where nothing is wrong with it.
pub const TEXT: &str = "Hällo, wörld 👍";

/// An answer of one text.
fn text() -> Answer {
    Answer::new().text(TEXT).cut(6)
}

/// A whole answer of one text.
fn whole(protocol: Protocol) -> Reply {
    Reply::answer(protocol, &text())
}

/// The text, and no word that it is whole.
fn half(protocol: Protocol) -> Reply {
    Reply::until(protocol, &text(), Stage::Close)
}

/// A piece of text in the middle of an answer, as bytes.
fn piece(protocol: Protocol, said: &str) -> Vec<u8> {
    let events = protocol.events(&Answer::new().text(said));
    // The last piece is the text, whatever a protocol says before it.
    let last = events.iter().rfind(|event| event.stage == Stage::Piece).expect("an answer has a piece");
    last.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let names: Vec<&str> = groups().iter().flat_map(|(_, faults)| faults.iter().map(|fault| fault.name)).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        assert!(names.len() >= 25);
    }
}
