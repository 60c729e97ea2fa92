//! Keeps the head of what a program writes and reads the rest away, so that the program never waits for us.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::task::AbortOnDropHandle;

/// How much is read at once: a pipe's usual capacity.
const READ_BYTES: usize = 64 * 1024;

/// One output stream.
pub(super) struct Capture {
    kept: Arc<Mutex<Kept>>,
    reading: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    cut: bool,
}

fn locked(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Capture {
    /// Begins to read `stream`; at most `limit` bytes are kept.
    pub(super) fn start(stream: Option<impl AsyncRead + Unpin + Send + 'static>, limit: usize) -> Self {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let into = kept.clone();
        let reading = tokio::spawn(async move {
            let Some(mut stream) = stream else { return };
            let mut buffer = vec![0; READ_BYTES];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                let mut kept = locked(&into);
                let room = limit - kept.bytes.len();
                kept.bytes.extend_from_slice(&buffer[..read.min(room)]);
                kept.cut |= read > room;
            }
        });
        Self { kept, reading: AbortOnDropHandle::new(reading) }
    }

    /// Waits until the stream has ended. Cancel safe.
    pub(super) async fn ended(&mut self) {
        if !self.reading.is_finished() {
            // A reader that was stopped has kept what there was.
            let _ = (&mut self.reading).await;
        }
    }

    /// What was kept until now, and whether something was cut. Stops reading.
    pub(super) fn take(self) -> (Vec<u8>, bool) {
        self.reading.abort();
        let mut kept = locked(&self.kept);
        (std::mem::take(&mut kept.bytes), kept.cut)
    }
}
