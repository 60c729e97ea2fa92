//! The yardstick of the benchmark: a component's function called on the same engine, with nothing of ours around it.

use wasmtime::Store;
use wasmtime::component::{Component, Linker, TypedFunc};

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

impl BareCall {
    /// Calls it once.
    ///
    /// # Errors
    /// When it traps.
    pub async fn call(&mut self) -> Result<(), EngineError> {
        self.function.call_async(&mut self.store, ()).await.map_err(failed)
    }
}
