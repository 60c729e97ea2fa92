//! wasmtime and WIT: makes a component look like any other listener, guard, provider or observer.
//!
//! [`Engine::new`] makes the one engine of a process, [`Engine::load`] a [`WasmPlugin`] of a component's bytes and a [`PluginSpec`];
//! a `WasmPlugin` is a [`dsh_seam::plugin::Plugin`]. [`inspect`] looks at a file without compiling or running any of it,
//! [`Engine::describe`] also asks it about its tools and its configuration. Only this crate knows wasmtime.
//!
//! A tour: `engine` and `classes` (configuration), `contract`, `shape`, `refusal` (what fits and what to say when it does not), `prepare`,
//! `compile`, `cache` (from bytes to machine code), `plugin` and `places` (loading, and where an instance lives), `instance` (stores and
//! the one way to call a guest), `attachment` and `observing` (leases and seams), `imports` (what guests can call), `wasi` (files and
//! requests), `convert` (values), `clock`, `limiter`, `output`, `fault` (limits and what a failure is called), `receipt` and `scene`
//! (what a call cost, and where one failed).

mod attachment;
mod authority;
mod bare;
mod bindings;
mod cache;
mod carried;
mod ceiling;
mod census;
mod classes;
mod clock;
mod compile;
mod contract;
mod convert;
mod difference;
mod engine;
mod fault;
mod features;
mod foreign;
mod grants;
mod guests;
mod handles;
mod heavy;
mod imports;
mod inspect;
mod instance;
mod limiter;
mod limits;
mod lists;
mod nested;
mod observing;
mod output;
mod places;
mod plugin;
mod prepare;
mod receipt;
mod refusal;
mod scene;
mod shape;
mod state;
mod store;
mod ticker;
mod wasi;
mod words;

pub use authority::{Authority, Taken};
pub use bare::{BareCall, BareListener};
pub use cache::{CacheEntry, CacheError, CacheView, DEFAULT_CACHE_MAX_MIB, Readers};
pub use ceiling::{CEILING_SECTION, CeilingEntry};
pub use census::Census;
pub use compile::{
    COMPILE_ARGUMENT, CompileBudget, CompileFault, CompileLimit, CompileLimits, Compiler, Target, compile_for_parent,
};
pub use difference::{Difference, Side};
pub use engine::{Allocation, Engine, EngineError, EngineOptions};
pub use foreign::{Foreign, MadeFor};
pub use grants::{Grant, GrantError, GrantPath, Grants, NetRule};
pub use inspect::{Inspection, inspect, outline, sha256};
pub use limits::{Limit, LimitError, Limits, MAX_COMPONENT_BYTES};
pub use plugin::{Description, LoadError, PluginSpec, WasmPlugin};
pub use prepare::{CompileNotice, CompileStage, Compiling, Precompiled};
pub use receipt::{Receipt, ReceiptSink, Verdict, as_micros};
pub use refusal::Refusal;
pub use shape::Direction;
pub use wasi::connect::{Network, Resolve};
