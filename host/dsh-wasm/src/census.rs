//! What an engine holds at the moment: how a test sees that nothing is left of a guest.

use crate::engine::Engine;

/// What is alive in an engine. Instances are counted when they come from the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    /// Guest calls under way.
    pub calls: usize,
    /// Component instances, idle ones among them.
    pub instances: u64,
    /// Places that instances take, in the pool and beside it.
    pub places: u32,
    /// Core instances inside them.
    pub core_instances: u64,
    /// Linear memories.
    pub memories: usize,
    /// Tables.
    pub tables: usize,
    /// Stacks of calls.
    pub stacks: usize,
    /// Whether the clock's thread ticks; it parks when no guest was called for a while.
    pub ticking: bool,
}

impl Engine {
    /// Counts what is alive.
    #[must_use]
    pub fn census(&self) -> Census {
        let (calls, ticking) = self.inner.ticker.now();
        let mut census = Census { calls, ticking, places: self.inner.classes.taken(), ..Census::default() };
        if let Some(pool) = self.inner.wasmtime().pooling_allocator_metrics() {
            census.instances = pool.component_instances();
            census.core_instances = pool.core_instances();
            census.memories = pool.memories();
            census.tables = pool.tables();
            census.stacks = pool.stacks();
        }
        census
    }
}
