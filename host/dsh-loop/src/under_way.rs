//! How much of something is under way, and waits for the end of it, which are never for ever.

use std::time::Duration;

use tokio::sync::watch;

use crate::sync::sleep;

/// Awaits `work` no longer than `deadline`; then `what` it is about is left alone, and said to be. Whether it ended.
pub(crate) async fn in_time(deadline: Duration, what: &str, work: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = work => true,
        () = sleep(deadline) => {
            tracing::error!("{what} did not end within {} ms and is left alone", deadline.as_millis());
            false
        }
    }
}

/// A count of what is under way.
#[derive(Default)]
pub(crate) struct UnderWay(watch::Sender<u32>);

/// One of them, until it is dropped.
pub(crate) struct Begun(watch::Sender<u32>);

impl UnderWay {
    /// One more.
    pub(crate) fn begin(&self) -> Begun {
        self.0.send_modify(|count| *count += 1);
        Begun(self.0.clone())
    }

    /// Whether none is.
    pub(crate) fn is_over(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Waits until none is. Cancel safe.
    pub(crate) async fn over(&self) {
        // The sender is a field of `self`, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
