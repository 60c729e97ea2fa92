//! How a scenario is explored: all of its orders when they can be counted, else many of them by two kinds of chance.

use shuttle::scheduler::{DfsScheduler, PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::{Config, Runner};

/// Room for the state of one task: futures of a debug build are large.
const STACK_BYTES: usize = 512 * 1024;
/// Schedules that a scenario may have to be tried exhaustively: beyond that it takes minutes.
const MOST_SCHEDULES: usize = 60_000;
/// Schedules of each kind of chance.
const SAMPLES: usize = 1_000;
/// Preemptions of a schedule of the kind that looks for bugs of small depth.
const DEPTH: usize = 3;
/// The environment variable that multiplies the schedules tried by chance.
const FACTOR: &str = "DSH_INTERLEAVINGS";

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    config
}

/// Tries every order there is; fails when there are too many for that.
pub fn all_orders(scenario: impl Fn() + Send + Sync + 'static) {
    let tried = Runner::new(DfsScheduler::new(Some(MOST_SCHEDULES), false), config()).run(scenario);
    assert!(tried < MOST_SCHEDULES, "more than {MOST_SCHEDULES} orders: use `many_orders`");
    println!("all {tried} orders");
}

/// Tries many orders: each step any task, and then few preemptions at any places.
pub fn many_orders(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let factor = std::env::var(FACTOR).ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    let samples = SAMPLES * factor;
    let any = Runner::new(RandomScheduler::new(samples), config()).run(scenario.clone());
    let few = Runner::new(PctScheduler::new(DEPTH, samples), config()).run(scenario);
    println!("{any} random orders, {few} with {DEPTH} preemptions");
}

/// Lets any task go on before the caller does: a task that was just started may run first.
pub fn point() {
    AtomicBool::new(false).load(Ordering::Relaxed);
}
