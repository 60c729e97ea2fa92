//! Standard input: read by a thread of its own, as one message, as a person's lines, or as commands.

pub mod after;
pub mod command;
pub mod desk;
pub mod stdin;
