//! Moves the epoch of the engines, on an OS thread of its own: a guest that occupies the thread which owns tokio's timers would stop a
//! ticker that is a task. While no guest call runs the thread is parked.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

use wasmtime::EngineWeak;

use crate::limits::TICK;

/// Ticks without a call after which the thread parks: long enough that a busy agent never pays for waking it.
const IDLE_TICKS: u32 = 200;

#[derive(Default)]
struct Shared {
    /// Not held alive.
    engines: Mutex<Vec<EngineWeak>>,
    stop: AtomicBool,
    parked: AtomicBool,
    running: AtomicUsize,
}

/// The thread that ticks; it stops when this is dropped.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

impl Ticker {
    /// Starts the thread for one engine; [`Ticker::tick`] adds others.
    pub(crate) fn start(engine: &wasmtime::Engine) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let handle = std::thread::Builder::new().name("dsh-epoch".into()).spawn(move || run(&for_thread))?;
        let ticker = Self { shared, thread: handle.thread().clone() };
        ticker.tick(engine);
        Ok(ticker)
    }

    /// Moves the epoch of this engine too, as long as it lives.
    pub(crate) fn tick(&self, engine: &wasmtime::Engine) {
        self.shared.engines().push(engine.weak());
    }

    /// Counts a guest call as running until the guard is dropped, and wakes the thread if it was parked.
    pub(crate) fn running(&self) -> Running<'_> {
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Running(&self.shared)
    }

    /// How many calls are under way, and whether the thread ticks.
    pub(crate) fn now(&self) -> (usize, bool) {
        (self.shared.running.load(Ordering::SeqCst), !self.shared.parked.load(Ordering::SeqCst))
    }

    #[cfg(test)]
    fn is_parked(&self) -> bool {
        self.shared.parked.load(Ordering::SeqCst)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// A guest call is under way.
pub(crate) struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn engines(&self) -> std::sync::MutexGuard<'_, Vec<EngineWeak>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn move_epochs(&self) {
        self.engines().retain(|engine| match engine.upgrade() {
            Some(engine) => {
                engine.increment_epoch();
                true
            }
            None => false,
        });
    }
}

fn run(shared: &Shared) {
    let mut idle = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        std::thread::sleep(TICK);
        shared.move_epochs();
        idle = if shared.running.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
        if idle >= IDLE_TICKS {
            park(shared);
            idle = 0;
        }
    }
}

/// Parks until a call runs or the engine is gone. `parked` is set before `running` is looked at, and a caller counts itself in
/// `running` before it looks at `parked`, so that one of the two sees the other.
fn park(shared: &Shared) {
    shared.parked.store(true, Ordering::SeqCst);
    while shared.running.load(Ordering::SeqCst) == 0 && !shared.stop.load(Ordering::SeqCst) {
        std::thread::park();
    }
    shared.parked.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ticks_parks_and_wakes() {
        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        let engine = wasmtime::Engine::new(&config).expect("an engine");
        let ticker = Ticker::start(&engine).expect("a thread");
        while !ticker.is_parked() {
            std::thread::yield_now();
        }
        let running = ticker.running();
        while ticker.is_parked() {
            std::thread::yield_now();
        }
        drop(running);
    }

    #[test]
    fn it_stops_with_the_engine() {
        let engine = wasmtime::Engine::default();
        let ticker = Ticker::start(&engine).expect("a thread");
        let shared = Arc::downgrade(&ticker.shared);
        drop(ticker);
        while shared.upgrade().is_some() {
            std::thread::yield_now();
        }
    }
}
