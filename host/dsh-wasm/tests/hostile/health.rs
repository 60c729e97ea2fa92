//! What must be the same before and after a guest.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dsh_wasm::{Census, Engine};

/// How much more memory the process may hold at the end than after the first tenth of the rounds: what an allocator keeps, and no more.
/// One thing left over in each of 180 rounds is noticed when it has 300 KiB; of a guest that fills its state for as long as it may compute,
/// the allocator was seen to keep 20 MiB.
const RISE_KIB: u64 = 48 * 1024;

/// How many more threads there may be: the runtime has a pool for work that takes long, and keeps its threads for a while.
const POOL_THREADS: u64 = 8;

/// How long the clock's thread may go on after the last call: it parks after a second.
const PARKS_WITHIN: Duration = Duration::from_secs(10);

static PANICS: AtomicU32 = AtomicU32::new(0);

/// Counts panics from now on.
pub fn count_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        print(info);
    }));
}

pub fn panics() -> u32 {
    PANICS.load(Ordering::Relaxed)
}

/// What is alive.
#[derive(Debug, PartialEq, Eq)]
pub struct Health {
    census: Census,
    tasks: usize,
}

impl Health {
    pub fn now(engine: &Engine) -> Self {
        let census = Census { ticking: false, ..engine.census() };
        Self { census, tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks() }
    }

    pub fn differs(&self, after: &Self) -> Option<String> {
        (self != after).then(|| format!("alive before {self:?}\nalive after {after:?}"))
    }
}

/// What the process takes.
#[derive(Debug, Default)]
pub struct Level {
    resident_kib: u64,
    threads: u64,
}

impl Level {
    pub fn now() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("this runs on Linux");
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).expect("a number")
        };
        Self { resident_kib: number("VmRSS:"), threads: number("Threads:") }
    }

    /// What is more now.
    pub fn risen(&self) -> Option<String> {
        let now = Self::now();
        let much = now.resident_kib > self.resident_kib + RISE_KIB || now.threads > self.threads + POOL_THREADS;
        much.then(|| format!("after the first tenth of the rounds {self:?}, at the end {now:?}"))
    }
}

/// Waits for the clock's thread to park.
pub fn parks(engine: &Engine) -> Result<(), String> {
    let start = Instant::now();
    while engine.census().ticking {
        if start.elapsed() > PARKS_WITHIN {
            return Err(format!("it still ticks: {:?}", engine.census()));
        }
        std::thread::yield_now();
    }
    Ok(())
}
