//! The engine: one per process, with one linker, the epoch's ticker and the cache of compiled components.

use std::path::PathBuf;
use std::sync::Arc;

use cap_std::fs::Dir;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::cache::{Cache, CacheError, Key};
use crate::imports;
use crate::inspect::{Inspection, check_shapes, outline};
use crate::limits::{MAX_CALLS, MAX_CORE_INSTANCES, MAX_INSTANCES, MAX_MEMORIES, MAX_TABLE_ELEMENTS, MAX_TABLES, MIB};
use crate::refusal::Refusal;
use crate::store::GuestState;
use crate::ticker::Ticker;

/// The guest's own stack, inside the fiber's.
const WASM_STACK_BYTES: usize = 512 * 1024;
/// The stack on which a call and its host imports run.
const FIBER_STACK_BYTES: usize = 2 * MIB;
/// What stays of a slot's memory in the pool when its instance is gone; more costs a `memset` for each instance.
const KEEP_RESIDENT_BYTES: usize = 32 * 1024;
/// A core instance's own data in the pool (not its memory); large languages need more than the default.
const CORE_INSTANCE_BYTES: usize = MIB;
/// The address space of one memory, as large as a 32-bit guest can make it; `memory-mib` is the limit that counts.
const MEMORY_BYTES: usize = 4 * 1024 * MIB;

/// Told before a component is compiled for the first time, because that takes long: what it is, and how large.
pub type CompileNotice = Arc<dyn Fn(&Compiling<'_>) + Send + Sync>;

/// What is about to be compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compiling<'a> {
    /// The plugin's name.
    pub plugin: &'a str,
    /// The component's size in bytes.
    pub bytes: usize,
    /// Whether the result is kept, so that this happens once.
    pub cached: bool,
}

impl std::fmt::Display for Compiling<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kib = self.bytes.div_ceil(1024);
        let why = if self.cached { "once; the result is kept" } else { "there is no cache to keep the result in" };
        write!(f, "compiling plugin `{}` ({kib} KiB) to machine code ({why})", self.plugin)
    }
}

/// Where instances get their memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Allocation {
    /// From a pool, or one by one when its address space cannot be had.
    #[default]
    PoolIfPossible,
    /// One by one.
    OnDemand,
}

/// How to make an engine.
#[derive(Default)]
pub struct EngineOptions {
    /// Where compiled components are kept; none: each run compiles.
    pub cache_dir: Option<PathBuf>,
    /// The root of granted paths, open; none: no path can be granted.
    pub workspace: Option<Dir>,
    /// Told before a component is compiled.
    pub on_compile: Option<CompileNotice>,
    /// Where instances get their memory.
    pub allocation: Allocation,
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
    engine: wasmtime::Engine,
    linker: Linker<GuestState>,
    cache: Option<Cache>,
    on_compile: Option<CompileNotice>,
    pub(crate) workspace: Option<Arc<Dir>>,
    pub(crate) ticker: Ticker,
    pooled: bool,
}

impl Engine {
    /// Makes the engine. A cache that cannot be used, or a pool whose address space cannot be had, is a warning: things are slower then.
    ///
    /// # Errors
    /// When wasmtime cannot run here at all, or no thread can be made.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let (engine, pooled) = make(options.allocation)?;
        let ticker = Ticker::start(&engine).map_err(EngineError::Ticker)?;
        let mut linker = Linker::new(&engine);
        imports::add_to_linker(&mut linker).map_err(|error| EngineError::Wasmtime(format!("{error:#}")))?;
        let cache = options.cache_dir.as_deref().and_then(open_cache);
        let workspace = options.workspace.map(Arc::new);
        let inner = Inner { engine, linker, cache, on_compile: options.on_compile, workspace, ticker, pooled };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether instances come from the pool.
    #[must_use]
    pub fn is_pooled(&self) -> bool {
        self.inner.pooled
    }

    /// Whether compiled components are kept on disk.
    #[must_use]
    pub fn is_cached(&self) -> bool {
        self.inner.cache.is_some()
    }
}

fn open_cache(directory: &std::path::Path) -> Option<Cache> {
    match Cache::open(directory) {
        Ok(cache) => Some(cache),
        Err(error @ (CacheError::Io { .. } | CacheError::Unsafe { .. })) => {
            tracing::warn!("{error}; plugins are compiled in each run");
            None
        }
    }
}

fn make(allocation: Allocation) -> Result<(wasmtime::Engine, bool), EngineError> {
    let mut config = config();
    if allocation == Allocation::PoolIfPossible {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        match wasmtime::Engine::new(&config) {
            Ok(engine) => return Ok((engine, true)),
            Err(error) => tracing::warn!(
                "the pool for plugin instances needs {} GiB of address space and cannot have it ({error:#}); instances are made one by one, which is slower (look at `ulimit -v`)",
                u64::from(MAX_INSTANCES) * 4
            ),
        }
        config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
    }
    let engine = wasmtime::Engine::new(&config).map_err(|error| EngineError::Wasmtime(format!("{error:#}")))?;
    Ok((engine, false))
}

fn config() -> Config {
    let mut config = Config::new();
    // Every export is synchronous, and support for concurrent calls makes each call three to five times as expensive.
    config.concurrency_support(false);
    config.epoch_interruption(true);
    config.memory_init_cow(true);
    config.max_wasm_stack(WASM_STACK_BYTES);
    config.async_stack_size(FIBER_STACK_BYTES);
    config.parallel_compilation(true);
    config
}

fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    let core_instances = u32::try_from(MAX_CORE_INSTANCES).unwrap_or(u32::MAX);
    pool.total_component_instances(MAX_INSTANCES)
        .total_core_instances(MAX_INSTANCES * 8)
        .total_memories(MAX_INSTANCES)
        .total_tables(MAX_INSTANCES * 4)
        .total_stacks(MAX_CALLS)
        .max_core_instances_per_component(core_instances)
        .max_memories_per_component(u32::try_from(MAX_MEMORIES).unwrap_or(u32::MAX))
        .max_tables_per_component(u32::try_from(MAX_TABLES).unwrap_or(u32::MAX))
        .max_core_instance_size(CORE_INSTANCE_BYTES)
        .max_component_instance_size(CORE_INSTANCE_BYTES)
        .max_memory_size(MEMORY_BYTES)
        .table_elements(MAX_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(KEEP_RESIDENT_BYTES);
    pool
}

/// A component that is ready to be instantiated.
pub(crate) struct Compiled {
    pub inspection: Inspection,
    pub pre: wasmtime::component::InstancePre<GuestState>,
}

impl Inner {
    /// The engine underneath.
    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.engine
    }

    /// Checks `bytes`, and compiles them or takes what was compiled before.
    pub(crate) fn compile(&self, plugin: &str, bytes: &[u8]) -> Result<Compiled, Refusal> {
        let inspection = outline(bytes)?;
        let key = Key::new(&inspection.sha256, &self.engine);
        let component = match self.cached(&key) {
            Some(component) => component,
            None => self.compile_now(plugin, bytes, &inspection, &key)?,
        };
        let pre =
            self.linker.instantiate_pre(&component).map_err(|error| Refusal::Link { detail: format!("{error:#}") })?;
        Ok(Compiled { inspection, pre })
    }

    fn cached(&self, key: &Key) -> Option<Component> {
        let cache = self.cache.as_ref()?;
        let code = cache.load(key)?;
        // SAFETY: these bytes were made by `compile_now` of this host for this very key: their hash stands beside them, in a directory
        // that only this user can write to, and it has just been checked over the bytes that are loaded.
        match unsafe { Component::deserialize(&self.engine, &code) } {
            Ok(component) => Some(component),
            Err(error) => {
                tracing::warn!(%error, "a cached component does not load and is compiled again");
                cache.remove(key);
                None
            }
        }
    }

    fn compile_now(
        &self,
        plugin: &str,
        bytes: &[u8],
        inspection: &Inspection,
        key: &Key,
    ) -> Result<Component, Refusal> {
        check_shapes(bytes, inspection)?;
        let compiling = Compiling { plugin, bytes: bytes.len(), cached: self.cache.is_some() };
        if let Some(notice) = &self.on_compile {
            notice(&compiling);
        }
        tracing::info!("{compiling}");
        let component = Component::from_binary(&self.engine, bytes)
            .map_err(|error| Refusal::Link { detail: format!("{error:#}") })?;
        if let Some(cache) = &self.cache {
            match component.serialize() {
                Ok(code) => cache.store(key, &code),
                Err(error) => tracing::warn!(%error, "a compiled component cannot be kept"),
            }
        }
        Ok(component)
    }
}
