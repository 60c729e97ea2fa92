//! The yardstick of the benchmark: a component's function called on the same engine, with nothing of ours around it.

use wasmtime::Store;
use wasmtime::component::{Component, Linker, Resource, ResourceType, TypedFunc};

use crate::engine::{Engine, EngineError};

/// A component's function `f`, without parameters and results, and the store that it runs in.
pub struct BareCall {
    store: Store<()>,
    function: TypedFunc<(), ()>,
}

fn failed(error: wasmtime::Error) -> EngineError {
    EngineError::Wasmtime(format!("{error:#}"))
}

impl Engine {
    /// Compiles and instantiates a component that imports nothing and exports a function `f`.
    ///
    /// # Errors
    /// When it is no such component.
    pub async fn bare_call(&self, component: &[u8]) -> Result<BareCall, EngineError> {
        let engine = self.inner.wasmtime();
        let component = Component::from_binary(engine, component).map_err(failed)?;
        let mut store = Store::new(engine, ());
        // Far enough away that it never comes.
        store.set_epoch_deadline(u64::MAX / 2);
        let instance = Linker::new(engine).instantiate_async(&mut store, &component).await.map_err(failed)?;
        let function = instance.get_typed_func(&mut store, "f").map_err(failed)?;
        Ok(BareCall { store, function })
    }
}

/// A thing behind a handle.
struct Thing;

/// A function `f` that is given two handles: what a listener's call is made of, with nothing of ours in it.
pub struct BareListener {
    store: Store<()>,
    function: TypedFunc<(Resource<Thing>, Resource<Thing>), ()>,
}

impl Engine {
    /// Compiles and instantiates a component that imports a resource `thing` and a function `next`, which takes one and may wait, and
    /// exports a function `f` that is given two.
    ///
    /// # Errors
    /// When it is no such component.
    pub async fn bare_listener(&self, component: &[u8]) -> Result<BareListener, EngineError> {
        let engine = self.inner.wasmtime();
        let component = Component::from_binary(engine, component).map_err(failed)?;
        let mut store = Store::new(engine, ());
        store.set_epoch_deadline(u64::MAX / 2);
        let mut linker = Linker::new(engine);
        let mut root = linker.root();
        root.resource("thing", ResourceType::host::<Thing>(), |_, _| Ok(())).map_err(failed)?;
        root.func_wrap_async("next", |_, (_,): (Resource<Thing>,)| Box::new(async { Ok(()) })).map_err(failed)?;
        let instance = linker.instantiate_async(&mut store, &component).await.map_err(failed)?;
        let function = instance.get_typed_func(&mut store, "f").map_err(failed)?;
        Ok(BareListener { store, function })
    }
}

impl BareListener {
    /// Calls it once.
    ///
    /// # Errors
    /// When it traps.
    pub async fn call(&mut self) -> Result<(), EngineError> {
        let things = (Resource::new_own(1), Resource::new_own(2));
        self.function.call_async(&mut self.store, things).await.map_err(failed)
    }
}

impl BareCall {
    /// Calls it once.
    ///
    /// # Errors
    /// When it traps.
    pub async fn call(&mut self) -> Result<(), EngineError> {
        self.function.call_async(&mut self.store, ()).await.map_err(failed)
    }
}
