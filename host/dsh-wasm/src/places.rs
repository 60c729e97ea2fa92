//! Where an instance lives: in a place of the pool, or, when all of them are taken, beside it, in an engine that makes instances one by
//! one. A thousand agents at work have thousands of instances; a pool with room for all of them would cost every small run its set-up.
//!
//! Places are counted here and not found out by asking the pool, so that an instance is made once and its start functions run once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wasmtime::component::{Component, InstancePre};

use crate::classes::Class;
use crate::engine::Inner;
use crate::fault::{Bound, Fault};
use crate::guests::Indices;
use crate::limits::{MAX_BESIDE, MAX_POOLED};
use crate::prepare::deserialize;
use crate::refusal::Refusal;
use crate::store::GuestState;
use crate::words::Seam;

/// Tables for each place of the pool.
pub(crate) const TABLES_EACH: u32 = 4;

/// The places of one engine.
#[derive(Debug)]
pub(crate) struct Places {
    taken: AtomicU32,
    most: u32,
}

impl Places {
    pub(crate) fn new(pooled: bool) -> Arc<Self> {
        Arc::new(Self { taken: AtomicU32::new(0), most: if pooled { MAX_POOLED } else { MAX_BESIDE } })
    }

    /// Takes `count` places together, if there are so many.
    fn take(self: &Arc<Self>, count: u32) -> Option<Place> {
        let more = |taken: u32| taken.checked_add(count).filter(|taken| *taken <= self.most);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place { places: self.clone(), count })
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// What one instance takes up; free again when it is dropped, so it is dropped after the instance's store.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    count: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// A component in one engine, ready to be instantiated.
pub(crate) struct Ready {
    class: Arc<Class>,
    pub pre: InstancePre<GuestState>,
    pub indices: Indices,
    /// How many places an instance takes.
    size: u32,
}

impl Ready {
    /// Links `component`, and looks up the functions of `seams`.
    pub(crate) fn new(class: Arc<Class>, component: &Component, seams: &[Seam]) -> Result<Self, Refusal> {
        let link = |error: wasmtime::Error| Refusal::Link { detail: format!("{error:#}") };
        let pre = class.linker.instantiate_pre(component).map_err(link)?;
        let indices = Indices::new(&pre, seams).map_err(link)?;
        Ok(Self { size: size(component), class, pre, indices })
    }
}

/// A place holds a memory and a few tables.
fn size(component: &Component) -> u32 {
    let needed = component.resources_required();
    needed.map_or(1, |needed| needed.num_memories.max(needed.num_tables.div_ceil(TABLES_EACH)).max(1))
}

/// One plugin's component wherever it can be instantiated.
pub(crate) struct Rooms {
    usual: Ready,
    /// Made when the pool was full for the first time.
    beside: tokio::sync::OnceCell<Ready>,
    seams: Box<[Seam]>,
}

impl Rooms {
    pub(crate) fn new(usual: Ready, seams: &[Seam]) -> Self {
        Self { usual, beside: tokio::sync::OnceCell::new(), seams: seams.into() }
    }

    /// Whether the functions of `seam` are there and may be called.
    pub(crate) fn has(&self, seam: Seam) -> bool {
        self.usual.indices.has(seam)
    }

    /// A place for one more instance, and what it is made from there.
    pub(crate) async fn place(&self, engine: &Inner) -> Result<(&Ready, Place), Fault> {
        if let Some(place) = self.usual.class.places.take(self.usual.size) {
            return Ok((&self.usual, place));
        }
        let full = |most: u32| Fault::Limit(Bound::Room(most).to_string());
        if !self.usual.class.pooled {
            return Err(full(MAX_BESIDE));
        }
        let beside = self.beside.get_or_try_init(|| async { self.make_beside(engine) }).await;
        let beside = beside.map_err(|refusal| Fault::error(refusal.to_string()))?;
        let place = beside.class.places.take(beside.size).ok_or_else(|| full(MAX_POOLED + MAX_BESIDE))?;
        Ok((beside, place))
    }

    fn make_beside(&self, engine: &Inner) -> Result<Ready, Refusal> {
        let link = |detail: String| Refusal::Link { detail };
        let class = engine.classes.beside(self.usual.class.stack_kib, &engine.ticker);
        let class = class.map_err(|error| link(error.to_string()))?;
        let code = self.usual.pre.component().serialize().map_err(|error| link(format!("{error:#}")))?;
        let component = deserialize(&class, &code).map_err(link)?;
        Ready::new(class, &component, &self.seams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let places = Places::new(true);
        let most = places.take(MAX_POOLED).expect("all are free");
        assert!(places.take(1).is_none());
        drop(most);
        let one = places.take(1).expect("all are free again");
        assert!(places.take(MAX_POOLED).is_none(), "one is taken");
        drop(one);
        assert_eq!(places.taken(), 0);
    }
}
