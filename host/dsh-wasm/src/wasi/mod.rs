//! WASI for guests: wasmtime's implementation, with our own layer over files and over outgoing requests.

pub(crate) mod fs;
pub(crate) mod http;
