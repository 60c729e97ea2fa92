//! WASI for guests: wasmtime's implementation, with our own layer over files and over outgoing requests.

mod address;
pub(crate) mod connect;
pub(crate) mod fs;
pub(crate) mod host;
pub(crate) mod http;
mod place;
