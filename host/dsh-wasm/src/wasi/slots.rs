//! How many files guests hold open: each is a descriptor of the process, and a process that has no more of them can neither write its
//! session nor serve anybody.

use std::sync::{Arc, LazyLock};

use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, InputStream, OutputStream, Pollable, StreamResult};

/// Files, directories and listings that one instance may hold open. Programs rarely hold a tenth of it.
pub(crate) const MAX_INSTANCE_FILES: usize = 256;
/// What the process is taken to have when it has no limit.
const UNLIMITED: u64 = 1 << 20;

/// Half of what the process may open: the other half is the host's own, requests of guests among it.
static ALL: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED).min(UNLIMITED);
    Arc::new(Semaphore::new(usize::try_from(most / 2).unwrap_or(MAX_INSTANCE_FILES)))
});

/// One open file of a guest. It is free again when the last copy is gone: that of the descriptor, and those of its streams.
pub(crate) type Slot = Arc<(OwnedSemaphorePermit, OwnedSemaphorePermit)>;

/// What one instance holds open.
pub(crate) struct Slots(Arc<Semaphore>);

impl Default for Slots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_INSTANCE_FILES)))
    }
}

impl Slots {
    /// One more; none when the instance has all that it may have, or all guests together have.
    pub(crate) fn take(&self) -> Option<Slot> {
        let own = self.0.clone().try_acquire_owned().ok()?;
        Some(Arc::new((own, ALL.clone().try_acquire_owned().ok()?)))
    }
}

/// A stream of a file. It keeps the file open when its descriptor is gone.
pub(crate) struct Held<S> {
    stream: S,
    _slot: Slot,
}

impl<S> Held<S> {
    pub(crate) fn new(stream: S, slot: Slot) -> Self {
        Self { stream, _slot: slot }
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Held<DynInputStream> {
    async fn ready(&mut self) {
        self.stream.ready().await;
    }
}

#[wasmtime_wasi::async_trait]
impl InputStream for Held<DynInputStream> {
    fn read(&mut self, size: usize) -> StreamResult<bytes::Bytes> {
        self.stream.read(size)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<bytes::Bytes> {
        self.stream.blocking_read(size).await
    }

    async fn cancel(&mut self) {
        self.stream.cancel().await;
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Held<DynOutputStream> {
    async fn ready(&mut self) {
        self.stream.ready().await;
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Held<DynOutputStream> {
    fn write(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.stream.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.stream.check_write()
    }

    async fn blocking_write_and_flush(&mut self, bytes: bytes::Bytes) -> StreamResult<()> {
        self.stream.blocking_write_and_flush(bytes).await
    }

    async fn cancel(&mut self) {
        self.stream.cancel().await;
    }
}
