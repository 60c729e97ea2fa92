//! Work of the host on a guest's behalf that is large: it is done on a thread for such work, so that the other tasks of this thread get
//! their turn. What a guest may hand over costs up to half a second to parse and convert, and what it may ask for as much to copy.

use std::sync::Arc;

use crate::carried::Carried;
use crate::clock::{CallClock, Wait};
use crate::store::GuestState;

/// From this weight on a value is worth another thread: a millisecond or two at worst (JSON of many small values), and handing it over
/// costs twenty microseconds.
const HEAVY: usize = 64 * 1024;
/// What an item of a list weighs beside its bytes.
pub(crate) const ITEM_WEIGHT: usize = 64;

/// How much work a value is whose longest list has so many items.
pub(crate) fn weight(value: &impl Carried, longest: usize) -> usize {
    value.bytes().saturating_add(longest.saturating_mul(ITEM_WEIGHT))
}

/// Does `work` here, or elsewhere when it is heavy.
pub(crate) async fn done<T: Send + 'static>(weight: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if weight < HEAVY { work() } else { Box::pin(elsewhere(work)).await }
}

async fn elsewhere<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}

impl GuestState {
    /// The same for an import: the guest's clock stands meanwhile, its wall time does not.
    pub(crate) async fn work<T: Send + 'static>(
        clock: &Arc<CallClock>,
        weight: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if weight < HEAVY { work() } else { Self::waiting(clock, Wait::Counted, elsewhere(work)).await }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_is_heavy_goes_elsewhere() {
        let here = std::thread::current().id();
        let where_is = |weight: usize| done(weight, || std::thread::current().id());
        assert_eq!(where_is(HEAVY - 1).await, here);
        assert_ne!(where_is(HEAVY).await, here);
    }
}
