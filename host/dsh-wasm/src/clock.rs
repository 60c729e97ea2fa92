//! The two clocks of one guest call, kept honest: time the guest computes (`cpu-ms`) and time from call to return (`wall-ms`).
//!
//! A call that returns within a tick costs one look at the monotonic clock. Everything else is done when the epoch moves under a
//! computing guest, and around imports that wait: those are not billed to the guest, and some (`next`, an approval, a process, a model
//! call) stop the wall clock too. While a guest computes on past a tick its time is taken from the thread's CPU clock, so that a busy
//! machine does not kill plugins.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::limits::{Budget, TICK};

/// The most that the first stretch after a call or an import can be billed: the epoch moved, so it was about one tick, and what is
/// beyond this is a machine that did not let us run.
const MAX_FIRST_STRETCH: Duration = Duration::from_millis(4 * TICK.as_millis() as u64);

/// What a waiting import does to the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It counts for the wall time.
    Counted,
    /// It has limits of its own, so the wall clock stands still.
    Excluded,
}

/// A limit on time that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overrun {
    Cpu { name: &'static str, ms: u64 },
    Wall { name: &'static str, ms: u64, in_host_ms: u64 },
}

impl std::fmt::Display for Overrun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu { name, ms } => write!(f, "it computed for longer than the limit `{name}` of {ms} ms"),
            Self::Wall { name, ms, in_host_ms } => {
                write!(
                    f,
                    "it took longer than the limit `{name}` of {ms} ms ({in_host_ms} ms of it waiting for the host)"
                )
            }
        }
    }
}

impl std::error::Error for Overrun {}

/// The clocks of one instance, restarted for each call. All times are nanoseconds since the process began to use clocks; the atomics
/// are only there because the call's future and the store both hold it: one task uses it at a time.
#[derive(Debug, Default)]
pub(crate) struct CallClock {
    cpu_limit: AtomicU64,
    wall_limit: AtomicU64,
    tool: AtomicBool,
    started: AtomicU64,
    /// When the guest last took over; 0 while it waits.
    resumed: AtomicU64,
    /// The thread's CPU clock at `resumed`, 0 when unknown.
    thread_mark: AtomicU64,
    cpu: AtomicU64,
    in_host: AtomicU64,
    parked_at: AtomicU64,
    excluded: AtomicU64,
    excluded_from: AtomicU64,
}

fn now() -> u64 {
    static BASE: OnceLock<Instant> = OnceLock::new();
    // One is added so that 0 can stand for "not".
    u64::try_from(BASE.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX - 1) + 1
}

fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl CallClock {
    /// Starts both clocks for a call.
    pub(crate) fn start(&self, budget: &Budget, tool: bool) {
        let now = now();
        self.cpu_limit.store(nanos(budget.cpu), Relaxed);
        self.wall_limit.store(nanos(budget.wall), Relaxed);
        self.tool.store(tool, Relaxed);
        self.started.store(now, Relaxed);
        self.resumed.store(now, Relaxed);
        for field in [&self.thread_mark, &self.cpu, &self.in_host, &self.parked_at, &self.excluded, &self.excluded_from]
        {
            field.store(0, Relaxed);
        }
    }

    /// The guest called an import that waits.
    pub(crate) fn park(&self, wait: Wait) {
        let now = now();
        self.bill(now, false);
        self.resumed.store(0, Relaxed);
        self.parked_at.store(now, Relaxed);
        if wait == Wait::Excluded {
            self.excluded_from.store(now, Relaxed);
        }
    }

    /// The import returns to the guest.
    pub(crate) fn resume(&self) {
        let now = now();
        self.in_host.fetch_add(now.saturating_sub(self.parked_at.load(Relaxed)), Relaxed);
        let from = self.excluded_from.swap(0, Relaxed);
        if from != 0 {
            self.excluded.fetch_add(now.saturating_sub(from), Relaxed);
        }
        self.parked_at.store(0, Relaxed);
        self.resumed.store(now, Relaxed);
        self.thread_mark.store(0, Relaxed);
    }

    /// The call's future is polled again after it was pending. Between two polls nobody computes.
    pub(crate) fn polled(&self) {
        if self.resumed.load(Relaxed) != 0 {
            let now = now();
            self.in_host.fetch_add(now.saturating_sub(self.resumed.load(Relaxed)), Relaxed);
            self.resumed.store(now, Relaxed);
            // Inside one poll the thread stays the same.
            self.thread_mark.store(thread_cpu(), Relaxed);
        }
    }

    /// The call's future is pending: the guest yielded, or waits in an import that does not tell the clock (WASI).
    pub(crate) fn pending(&self) {
        self.bill(now(), false);
    }

    /// The epoch moved while the guest computed: bills it, and says which limit it has passed.
    pub(crate) fn tick(&self) -> Result<(), Overrun> {
        let now = now();
        self.bill(now, true);
        let cpu_limit = self.cpu_limit.load(Relaxed);
        if self.cpu.load(Relaxed) > cpu_limit {
            let name = if self.tool.load(Relaxed) { "tool-cpu-ms" } else { "cpu-ms" };
            return Err(Overrun::Cpu { name, ms: cpu_limit / 1_000_000 });
        }
        match self.wall_left(now) {
            Some(left) if left.is_zero() => Err(self.wall_overrun()),
            _ => Ok(()),
        }
    }

    fn bill(&self, now: u64, mark: bool) {
        let resumed = self.resumed.load(Relaxed);
        if resumed == 0 {
            return;
        }
        let wall = now.saturating_sub(resumed);
        let marked = self.thread_mark.load(Relaxed);
        let thread = if mark || marked != 0 { thread_cpu() } else { 0 };
        let used =
            if marked == 0 { wall.min(nanos(MAX_FIRST_STRETCH)) } else { wall.min(thread.saturating_sub(marked)) };
        self.cpu.fetch_add(used, Relaxed);
        self.resumed.store(now, Relaxed);
        self.thread_mark.store(thread, Relaxed);
    }

    fn wall_left(&self, now: u64) -> Option<Duration> {
        if self.excluded_from.load(Relaxed) != 0 {
            return None;
        }
        let used = now.saturating_sub(self.started.load(Relaxed)).saturating_sub(self.excluded.load(Relaxed));
        Some(Duration::from_nanos(self.wall_limit.load(Relaxed).saturating_sub(used)))
    }

    /// How much wall time is left; none while the clock stands still.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.wall_left(now())
    }

    /// The error for a wall clock that ran out.
    pub(crate) fn wall_overrun(&self) -> Overrun {
        let name = if self.tool.load(Relaxed) { "tool-wall-ms" } else { "wall-ms" };
        let parked_at = self.parked_at.load(Relaxed);
        let parked = if parked_at == 0 { 0 } else { now().saturating_sub(parked_at) };
        let in_host = (self.in_host.load(Relaxed) + parked).saturating_sub(self.excluded.load(Relaxed));
        Overrun::Wall { name, ms: self.wall_limit.load(Relaxed) / 1_000_000, in_host_ms: in_host / 1_000_000 }
    }

    /// For how long the call has waited for the host so far, and how much of that does not count for the wall time.
    pub(crate) fn waited(&self) -> (Duration, Duration) {
        (Duration::from_nanos(self.in_host.load(Relaxed)), Duration::from_nanos(self.excluded.load(Relaxed)))
    }
}

/// Stops the clocks while a waiting import runs, also when its future is dropped.
#[derive(Debug)]
pub(crate) struct Parked<'a>(&'a CallClock);

impl<'a> Parked<'a> {
    pub(crate) fn new(clock: &'a CallClock, wait: Wait) -> Self {
        clock.park(wait);
        Self(clock)
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn spin(time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
    }

    fn clock(cpu_ms: u32, wall_ms: u32) -> CallClock {
        let limits = Limits { cpu_ms, wall_ms, ..Limits::default() };
        let clock = CallClock::default();
        clock.start(&limits.budget(false), false);
        clock
    }

    #[test]
    fn computing_is_billed_and_waiting_is_not() {
        let clock = clock(60_000, 60_000);
        clock.park(Wait::Counted);
        spin(Duration::from_millis(30));
        clock.resume();
        clock.tick().expect("inside the limits");
        assert!(clock.cpu.load(Relaxed) < nanos(Duration::from_millis(10)), "waiting was billed");
        spin(Duration::from_millis(20));
        clock.tick().expect("inside the limits");
        assert!(clock.cpu.load(Relaxed) > 0, "computing was not billed");
    }

    #[test]
    fn a_spinning_guest_passes_its_cpu_limit() {
        let clock = clock(5, 60_000);
        let overrun = loop {
            spin(Duration::from_millis(2));
            if let Err(overrun) = clock.tick() {
                break overrun;
            }
        };
        assert_eq!(overrun.to_string(), "it computed for longer than the limit `cpu-ms` of 5 ms");
    }

    #[test]
    fn an_excluded_wait_stops_the_wall_clock() {
        let clock = clock(60_000, 1_000);
        clock.park(Wait::Excluded);
        assert_eq!(clock.left(), None);
        spin(Duration::from_millis(20));
        clock.resume();
        let left = clock.left().expect("the clock runs again");
        assert!(left > Duration::from_millis(980), "{left:?}");
    }

    #[test]
    fn a_counted_wait_does_not() {
        let clock = clock(60_000, 10);
        clock.park(Wait::Counted);
        spin(Duration::from_millis(12));
        assert_eq!(clock.left(), Some(Duration::ZERO));
        let message = clock.wall_overrun().to_string();
        assert!(message.starts_with("it took longer than the limit `wall-ms` of 10 ms ("), "{message}");
    }
}
