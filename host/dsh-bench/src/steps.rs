//! Steps of the loop: request, answer, one tool call, its result.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dsh_seam::plugin::Plugin;
use dsh_seam::services::SystemClock;
use dsh_services::session::FileSessions;

use crate::bed::{memory_sessions, time_steps};
use crate::measure::{Pair, Samples, micros};
use crate::report::{Reach, Row};
use crate::wasm::{engine, five_noops};
use crate::{Fallible, Places, Rows};

/// Steps of a turn that is measured with and without plugins.
const STEPS: u32 = 200;
/// How often each is measured.
const ROUNDS: usize = 15;
/// A turn that is long enough for a step 1,000, and what is compared: the steps around 10 and around 1,000.
const LONG_STEPS: u32 = 1_010;
const EARLY: std::ops::Range<usize> = 5..15;
const LATE: std::ops::Range<usize> = 995..1_005;

fn median(times: &[Duration]) -> f64 {
    times.iter().copied().map(micros).collect::<Samples>().median()
}

/// Microseconds of the middle step of one turn.
async fn middle(plugins: &[Arc<dyn Plugin>]) -> Fallible<f64> {
    Ok(median(&time_steps(STEPS, memory_sessions(), plugins).await?))
}

pub async fn rows(places: &Places) -> Rows {
    let mut rows = Vec::new();
    let mut growth = Pair::default();
    let mut bare = Samples::default();
    for n in 0..=places.rounds(ROUNDS) {
        let times = time_steps(LONG_STEPS, memory_sessions(), &[]).await?;
        if n > 0 {
            growth.push(median(&times[LATE]), median(&times[EARLY]));
            bare.push(median(&times));
        }
    }
    let steps = format!("{:.1} µs against {:.1} µs", growth.this.median(), growth.other.median());
    rows.push(
        Row::new("step 1,000 against step 10 of one turn, no plugins", Reach::at_most(1.5, "×"), growth.ratios())
            .detail(steps),
    );
    rows.push(Row::new("a step with one tool call, no plugins, log in memory", Reach::at_most(25.0, "µs"), bare));
    rows.push(Row::plain("the same with the log in a file", "µs", in_a_file(places.rounds(ROUNDS)).await?));
    rows.push(five(places).await?);
    Ok(rows)
}

async fn in_a_file(rounds: usize) -> Fallible<Samples> {
    let mut samples = Samples::default();
    for _ in 0..rounds {
        let folder = tempfile::tempdir()?;
        let sessions = Arc::new(FileSessions::new(folder.path(), Arc::new(SystemClock)));
        samples.push(median(&time_steps(STEPS, sessions, &[]).await?));
    }
    Ok(samples)
}

/// What five plugins add, measured in turns with none.
async fn five(places: &Places) -> Fallible<Row> {
    let engine = engine()?;
    let plugins = five_noops(&engine, places).await?;
    let mut added = Pair::default();
    for n in 0..=places.rounds(ROUNDS) {
        let (with, without) = (middle(&plugins).await?, middle(&[]).await?);
        if n > 0 {
            added.push(with, without);
        }
    }
    let detail = format!("{:.1} µs a step against {:.1} µs", added.this.median(), added.other.median());
    Ok(Row::new(
        "five plugins on each of the four waterfalls, added to a step",
        Reach::at_most(60.0, "µs"),
        added.differences(),
    )
    .detail(detail))
}

/// Makes steps for `time`, with five plugins or with none, for a profiler.
pub async fn profile(places: &Places, with_plugins: bool, time: Duration) -> Fallible<()> {
    let plugins = if with_plugins { five_noops(&engine()?, places).await? } else { Vec::new() };
    let start = Instant::now();
    while start.elapsed() < time {
        middle(&plugins).await?;
    }
    Ok(())
}
