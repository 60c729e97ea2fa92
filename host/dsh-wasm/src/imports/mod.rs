//! What a guest can call: one file per WIT package, each implementing the generated `Host` traits on [`GuestState`].
//!
//! Every import counts itself ([`GuestState::enter`]); those that wait stop the guest's clocks; those behind a capability ask
//! [`GuestState::granted`] first.

mod agent;
mod llm;
mod plugin;
mod session;
mod tools;

pub(crate) use agent::passed_on;
pub(crate) use session::entry;
use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::p2::bindings::filesystem;

use crate::bindings::Everything;
use crate::store::GuestState;
use crate::wasi::fs::Fs;

/// Links everything that any plugin may import: ours, WASI, HTTP. What was not granted is linked too, and refuses when it is called.
pub(crate) fn add_to_linker(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    Everything::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, |state| state)?;
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    // Files go through our own layer.
    linker.allow_shadowing(true);
    filesystem::preopens::add_to_linker::<GuestState, Fs>(linker, GuestState::files)?;
    filesystem::types::add_to_linker::<GuestState, Fs>(linker, GuestState::files)?;
    linker.allow_shadowing(false);
    Ok(())
}
