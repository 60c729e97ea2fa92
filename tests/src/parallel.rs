//! Does one thing for many places at a time, and says what went wrong where.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// After so many problems the rest would only repeat them.
const SHOWN: usize = 8;

/// Whether the tests are to leave nothing out, however long that takes: `DSH_TESTS_LONG=1`.
pub fn long() -> bool {
    std::env::var_os("DSH_TESTS_LONG").is_some_and(|value| value != "0")
}

/// Runs `check` on every item, on all processors. The first problems are the error; after them nothing more is tried.
pub fn each<T: Sync + Display>(items: &[T], check: impl Fn(&T) -> Result<(), String> + Sync) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let problems = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let work = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(problem) = check(item) {
                let mut problems = problems.lock().expect("nobody panics with it");
                problems.push(format!("{item}: {problem}"));
                if problems.len() >= SHOWN {
                    next.store(items.len(), Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let problems = problems.into_inner().expect("nobody panics with it");
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}
