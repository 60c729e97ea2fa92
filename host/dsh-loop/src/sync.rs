//! What tasks meet at: locks, and the start of tasks.
//!
//! With the feature `interleavings` these are the model checker's, which decides at each of them which task goes on; it is on for
//! `tests/interleavings` only. Signals (`Notify`, `watch`, `CancellationToken`) stay tokio's own, which is checked in the same way by its
//! makers: each is used next to a lock, so that the checker comes between.

#[cfg(not(feature = "interleavings"))]
mod chosen {
    pub(crate) use std::sync::{Mutex, MutexGuard};

    pub(crate) use tokio::spawn;
    pub(crate) use tokio::task::{JoinError, JoinHandle};
    pub(crate) use tokio::time::sleep;

    /// What a task came to; a panic in it goes on here. None when the runtime shut it down.
    pub(crate) fn joined<T>(result: Result<T, JoinError>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(error) => error.try_into_panic().map(|panic| std::panic::resume_unwind(panic)).ok(),
        }
    }
}

#[cfg(feature = "interleavings")]
mod chosen {
    use std::time::Duration;

    pub(crate) use shuttle::future::{JoinError, JoinHandle, spawn};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    /// How often others may go on before time is up: in some schedules before anything else happens, in others after all of it.
    const TURNS_OF_OTHERS: u32 = 3;

    /// Time passes as the checker likes.
    pub(crate) async fn sleep(_: Duration) {
        for _ in 0..TURNS_OF_OTHERS {
            shuttle::future::yield_now().await;
        }
    }

    pub(crate) fn joined<T>(result: Result<T, JoinError>) -> Option<T> {
        result.ok()
    }
}

pub(crate) use chosen::{JoinError, JoinHandle, Mutex, MutexGuard, joined, sleep, spawn};
