//! Stack classes: how deep a guest's call stack may be is a setting of wasmtime's engine, not of a store or a call, so plugins with
//! another `stack-kib` have an engine of their own. There is one per value, made when a plugin first needs it. The settings that decide
//! what machine code looks like are the same in all, so they share the cache of compiled components.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::component::Linker;
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::compile::Target;
use crate::engine::{Allocation, EngineError};
use crate::imports;
use crate::limits::{Limits, MAX_POOLED, MIB, MOST_INSTANCES, MOST_MEMORIES, MOST_TABLE_ELEMENTS, MOST_TABLES};
use crate::places::{Places, TABLES_EACH};
use crate::store::GuestState;
use crate::ticker::Ticker;

/// The part of a call's stack on which host imports run, below the guest's own: converting and parsing what a guest may hand over needs
/// a tenth of it.
const HOST_STACK_BYTES: usize = 3 * MIB / 2;
/// What stays of a slot's memory in the pool when its instance is gone; more costs a `memset` for each instance.
const KEEP_RESIDENT_BYTES: usize = 32 * 1024;
/// A core instance's own data in the pool (not its memory); large languages need more than the default.
const CORE_INSTANCE_BYTES: usize = MIB;
/// The address space of one memory, as large as a 32-bit guest can make it; `memory-mib` is the limit that counts.
const MEMORY_BYTES: usize = 4 * 1024 * MIB;

/// One of wasmtime's engines, with everything linked that a guest may import.
pub(crate) struct Class {
    pub engine: wasmtime::Engine,
    pub linker: Linker<GuestState>,
    pub pooled: bool,
    pub stack_kib: u32,
    pub places: Arc<Places>,
}

/// The engines of a process, by the depth of their guests' stacks.
pub(crate) struct Classes {
    allocation: Allocation,
    /// For the default `stack-kib`.
    usual: Arc<Class>,
    others: Mutex<BTreeMap<(Allocation, u32), Arc<Class>>>,
}

impl Classes {
    /// Makes the usual class.
    pub(crate) fn new(allocation: Allocation) -> Result<Self, EngineError> {
        let usual = Arc::new(Class::new(allocation, Limits::default().stack_kib)?);
        Ok(Self { allocation, usual, others: Mutex::default() })
    }

    /// The class of plugins that say nothing about their stack.
    pub(crate) fn usual(&self) -> &Arc<Class> {
        &self.usual
    }

    /// The class of plugins with this `stack-kib`; `ticker` moves its epoch from then on.
    pub(crate) fn of(&self, stack_kib: u32, ticker: &Ticker) -> Result<Arc<Class>, EngineError> {
        if stack_kib == Limits::default().stack_kib {
            return Ok(self.usual.clone());
        }
        self.other(self.allocation, stack_kib, ticker)
    }

    /// The class beside the one with this `stack-kib`, for what the pool has no room for.
    pub(crate) fn beside(&self, stack_kib: u32, ticker: &Ticker) -> Result<Arc<Class>, EngineError> {
        self.other(Allocation::OnDemand, stack_kib, ticker)
    }

    /// How many places the instances of all classes take.
    pub(crate) fn taken(&self) -> u32 {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        self.usual.places.taken() + others.values().map(|class| class.places.taken()).sum::<u32>()
    }

    fn other(&self, allocation: Allocation, stack_kib: u32, ticker: &Ticker) -> Result<Arc<Class>, EngineError> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(class) = others.get(&(allocation, stack_kib)) {
            return Ok(class.clone());
        }
        let class = Arc::new(Class::new(allocation, stack_kib)?);
        ticker.tick(&class.engine);
        others.insert((allocation, stack_kib), class.clone());
        Ok(class)
    }
}

impl Class {
    fn new(allocation: Allocation, stack_kib: u32) -> Result<Self, EngineError> {
        let (engine, pooled) = make(allocation, stack_kib as usize * 1024)?;
        let mut linker = Linker::new(&engine);
        imports::add_to_linker(&mut linker).map_err(|error| EngineError::Wasmtime(format!("{error:#}")))?;
        Ok(Self { engine, linker, pooled, stack_kib, places: Places::new(pooled) })
    }
}

fn make(allocation: Allocation, stack_bytes: usize) -> Result<(wasmtime::Engine, bool), EngineError> {
    let mut config = config(stack_bytes);
    if allocation == Allocation::PoolIfPossible {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
        match wasmtime::Engine::new(&config) {
            Ok(engine) => return Ok((engine, true)),
            Err(error) => tracing::warn!(
                "the pool for plugin instances needs {} GiB of address space and cannot have it ({error:#}); instances are made one by one, which is slower (look at `ulimit -v`)",
                u64::from(MAX_POOLED) * 4
            ),
        }
        config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
    }
    let engine = wasmtime::Engine::new(&config).map_err(|error| EngineError::Wasmtime(format!("{error:#}")))?;
    Ok((engine, false))
}

/// An engine that compiles and runs nothing. What decides what machine code looks like is the same as in all classes.
pub(crate) fn compiling_engine(target: Target, parallel: bool) -> Result<wasmtime::Engine, EngineError> {
    let failed = |error: wasmtime::Error| EngineError::Wasmtime(format!("{error:#}"));
    let mut config = config(Limits::default().stack_kib as usize * 1024);
    config.parallel_compilation(parallel);
    if target == Target::Baseline {
        // With a target named, nothing is taken for granted that this machine's processor happens to have.
        config.target(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).map_err(failed)?;
    }
    wasmtime::Engine::new(&config).map_err(failed)
}

fn config(stack_bytes: usize) -> Config {
    let mut config = Config::new();
    // Every export is synchronous, and support for concurrent calls makes each call three to five times as expensive.
    config.concurrency_support(false);
    config.epoch_interruption(true);
    config.memory_init_cow(true);
    config.max_wasm_stack(stack_bytes);
    config.async_stack_size(stack_bytes + HOST_STACK_BYTES);
    config.parallel_compilation(true);
    config
}

/// What a pool has room for, per component, is the most that a limit may be: what bites is the limit, with its own words.
fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(MAX_POOLED)
        // Only counted, nothing is reserved for them.
        .total_core_instances(MAX_POOLED * MOST_INSTANCES)
        .total_memories(MAX_POOLED)
        .total_tables(MAX_POOLED * TABLES_EACH)
        // A store keeps the stack of its last call for the next one.
        .total_stacks(MAX_POOLED)
        .max_core_instances_per_component(MOST_INSTANCES)
        .max_memories_per_component(MOST_MEMORIES)
        .max_tables_per_component(MOST_TABLES)
        .max_memories_per_module(MOST_MEMORIES)
        .max_tables_per_module(MOST_TABLES)
        .max_core_instance_size(CORE_INSTANCE_BYTES)
        .max_component_instance_size(CORE_INSTANCE_BYTES)
        .max_memory_size(MEMORY_BYTES)
        .table_elements(MOST_TABLE_ELEMENTS as usize)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(KEEP_RESIDENT_BYTES);
    pool
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Key;

    #[test]
    fn classes_are_made_once_and_share_the_cache() {
        let classes = Classes::new(Allocation::OnDemand).expect("an engine");
        let ticker = Ticker::start(&classes.usual().engine).expect("a thread");
        let deep = classes.of(1_024, &ticker).expect("an engine");
        assert!(Arc::ptr_eq(&deep, &classes.of(1_024, &ticker).expect("an engine")));
        assert!(!wasmtime::Engine::same(&deep.engine, &classes.usual().engine));
        assert_eq!(Key::new("00", &deep.engine), Key::new("00", &classes.usual().engine));
    }
}
