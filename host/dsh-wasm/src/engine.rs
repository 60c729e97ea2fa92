//! The engine: one per process, with its classes, the epoch's ticker and the cache of compiled components.

use std::path::PathBuf;
use std::sync::Arc;

use cap_std::fs::Dir;

use crate::cache::{DEFAULT_CACHE_MAX_MIB, Readers};
use crate::classes::Classes;
use crate::compile::{CompileLimits, Compiler};
use crate::prepare::{CompileNotice, Preparing};
use crate::receipt::{ReceiptSink, Receipts};
use crate::ticker::Ticker;
use crate::wasi::connect::Network;

/// Where instances get their memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allocation {
    /// From a pool, or one by one when its address space cannot be had.
    #[default]
    PoolIfPossible,
    /// One by one.
    OnDemand,
}

/// How to make an engine.
pub struct EngineOptions {
    /// Who compiles.
    pub compiler: Compiler,
    /// What compiling one component may use; it holds in a process of its own.
    pub compile_limits: CompileLimits,
    /// Where compiled components are kept; none: each run compiles.
    pub cache_dir: Option<PathBuf>,
    /// How large the cache may become, in MiB; 0 is no limit.
    pub cache_max_mib: u32,
    /// Who may read what is written to the cache.
    pub cache_readers: Readers,
    /// The root of granted paths, open; none: no path can be granted.
    pub workspace: Option<Dir>,
    /// Told when a component is compiled.
    pub on_compile: Option<CompileNotice>,
    /// Where instances get their memory.
    pub allocation: Allocation,
    /// How requests of guests leave.
    pub network: Network,
    /// Who gets the receipts of calls; none: none are made.
    pub receipts: Option<ReceiptSink>,
}

impl EngineOptions {
    /// No cache, no workspace, and the usual limits.
    #[must_use]
    pub fn new(compiler: Compiler) -> Self {
        Self {
            compiler,
            compile_limits: CompileLimits::default(),
            cache_dir: None,
            cache_max_mib: DEFAULT_CACHE_MAX_MIB,
            cache_readers: Readers::default(),
            workspace: None,
            on_compile: None,
            allocation: Allocation::default(),
            network: Network::default(),
            receipts: None,
        }
    }
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// wasmtime cannot run on this machine.
    #[error("the WebAssembly engine cannot start: {0}")]
    Wasmtime(String),
    /// The thread that keeps time cannot be made.
    #[error("the engine's clock thread cannot start: {0}")]
    Ticker(#[source] std::io::Error),
}

/// One engine; cloning shares it. It stops when the last clone and the last plugin of it are dropped.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) classes: Classes,
    pub(crate) preparing: Preparing,
    pub(crate) workspace: Option<Arc<Dir>>,
    pub(crate) network: Network,
    pub(crate) ticker: Ticker,
    pub(crate) receipts: Receipts,
}

impl Engine {
    /// Makes the engine. A cache that cannot be used, or a pool whose address space cannot be had, is a warning: things are slower then.
    ///
    /// # Errors
    /// When wasmtime cannot run here at all, or no thread can be made.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let classes = Classes::new(options.allocation)?;
        let ticker = Ticker::start(&classes.usual().engine).map_err(EngineError::Ticker)?;
        let preparing = Preparing::new(&options);
        let workspace = options.workspace.map(Arc::new);
        let (network, receipts) = (options.network, Receipts::new(options.receipts));
        let inner = Inner { classes, preparing, workspace, network, ticker, receipts };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether instances come from the pool.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.inner.classes.usual().pooled
    }

    /// Whether compiled components are kept on disk.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.inner.preparing.is_cached()
    }
}

impl Inner {
    /// The engine underneath.
    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.classes.usual().engine
    }
}
