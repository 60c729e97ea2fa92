//! WASI for guests: wasmtime's implementation, with our own layer over files and over outgoing requests.

mod address;
pub(crate) mod connect;
pub(crate) mod fs;
pub(crate) mod host;
pub(crate) mod http;
mod listing;
mod place;
pub(crate) mod refusals;
mod slots;
