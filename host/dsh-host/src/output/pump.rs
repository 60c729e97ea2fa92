//! Brings bytes to standard output on a thread of its own, so that a reader who is slow does not hold an agent up, and one who is
//! gone is noticed at once, also while nothing is printed.

use std::io::Write as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};

/// Bytes that may wait for a slow reader; then the agent waits too.
const WAITING_BYTES: usize = 64 * 1024 * 1024;

/// Called once, when nobody reads any more.
pub type OnClosed = Box<dyn Fn() + Send + Sync>;

/// Standard output.
#[derive(Clone)]
pub struct Pump {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    on_closed: OnClosed,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Nothing is written before this is set: an error before the first turn leaves nothing behind.
    open: bool,
    writing: bool,
    closed: bool,
    /// Why something could not be written, other than that nobody reads.
    failed: Option<String>,
    ended: bool,
}

impl Pump {
    /// Starts the thread that writes and the one that watches. Until [`Pump::open`] all is kept back.
    pub fn start(on_closed: OnClosed) -> (Self, JoinHandle<()>) {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), on_closed });
        let writer = shared.clone();
        let thread = std::thread::spawn(move || writer.write_until_the_end());
        let watcher = shared.clone();
        std::thread::spawn(move || watcher.watch());
        (Self { shared }, thread)
    }

    /// Lets what was kept back and all that follows through.
    pub fn open(&self) {
        self.shared.state().open = true;
        self.shared.changed.notify_all();
    }

    /// Adds bytes. Waits while too many are waiting.
    pub fn write(&self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.shared.state();
        while state.waiting.len() > WAITING_BYTES && state.open && !state.closed {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !state.closed {
            fill(&mut state.waiting);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until everything is written, or nobody reads any more.
    pub fn drain(&self) {
        let mut state = self.shared.state();
        while state.open && !state.closed && (!state.waiting.is_empty() || state.writing) {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes the rest and ends the thread; what was never let through is dropped.
    ///
    /// # Errors
    /// Why something that should have been written was not, other than that nobody reads.
    pub fn end(&self, thread: JoinHandle<()>) -> Result<(), String> {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
        // A panic there has been reported by the hook.
        let _ = thread.join();
        self.shared.state().failed.take().map_or(Ok(()), Err)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_until_the_end(&self) {
        loop {
            let mut state = self.state();
            while !state.ended && (state.waiting.is_empty() || !state.open) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.closed || state.waiting.is_empty() || !state.open {
                return;
            }
            let bytes = std::mem::take(&mut state.waiting);
            state.writing = true;
            drop(state);
            let mut stdout = std::io::stdout().lock();
            let written = stdout.write_all(&bytes).and_then(|()| stdout.flush());
            drop(stdout);
            self.state().writing = false;
            self.changed.notify_all();
            if let Err(error) = written {
                let gone = error.kind() == std::io::ErrorKind::BrokenPipe;
                self.state().failed = (!gone).then(|| format!("standard output could not be written: {error}"));
                return self.close();
            }
        }
    }

    /// Waits until the reading end is gone. A file and a terminal never say so, and then this thread sleeps until the process ends.
    fn watch(&self) {
        let stdout = std::io::stdout();
        let mut descriptors = [PollFd::new(&stdout, PollFlags::empty())];
        loop {
            match poll(&mut descriptors, None) {
                Ok(_) if descriptors[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) => {
                    return self.close();
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn close(&self) {
        let mut state = self.state();
        let first = !std::mem::replace(&mut state.closed, true);
        state.waiting.clear();
        let over = state.ended;
        drop(state);
        self.changed.notify_all();
        if first && !over {
            (self.on_closed)();
        }
    }
}
