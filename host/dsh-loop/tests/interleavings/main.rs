//! The inbox and the dispose chain under a model checker: at every lock and every start of a task it decides who goes on, and tries
//! one order after the other. See the README.md of this folder.

mod dispose;
mod explore;
mod family;
mod inbox;
