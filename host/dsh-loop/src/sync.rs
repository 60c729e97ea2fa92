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
    use std::ops::{Deref, DerefMut};
    use std::sync::{LockResult, PoisonError, TryLockError};
    use std::time::Duration;

    pub(crate) use shuttle::future::{JoinError, JoinHandle, spawn};
    use shuttle::sync::atomic::{AtomicBool, Ordering};

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

    /// Whoever lets go of it may be overtaken before it does anything else. Half as many points as the checker's own lock has, which
    /// makes the difference between trying all orders and trying some.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T> {
        inner: std::sync::Mutex<T>,
        point: AtomicBool,
    }

    pub(crate) struct MutexGuard<'a, T> {
        inner: Option<std::sync::MutexGuard<'a, T>>,
        point: &'a AtomicBool,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { inner: std::sync::Mutex::new(value), point: AtomicBool::new(false) }
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            let guard = |inner| MutexGuard { inner: Some(inner), point: &self.point };
            loop {
                match self.inner.try_lock() {
                    Ok(inner) => return Ok(guard(inner)),
                    Err(TryLockError::Poisoned(inner)) => return Err(PoisonError::new(guard(inner.into_inner()))),
                    Err(TryLockError::WouldBlock) => shuttle::thread::yield_now(),
                }
            }
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.inner.as_ref().expect("invariant: taken when it is dropped")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.inner.as_mut().expect("invariant: taken when it is dropped")
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            self.inner = None;
            if !std::thread::panicking() {
                self.point.load(Ordering::Relaxed);
            }
        }
    }
}

pub(crate) use chosen::{JoinError, JoinHandle, Mutex, MutexGuard, joined, sleep, spawn};
