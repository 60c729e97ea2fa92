//! How long an event of another agent waits beside a busy guest when both have one thread: the guest must give way at every tick of the
//! epoch, whatever it does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use dsh_seam::view::History;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::calls::{Onion, request};
use crate::measure::{Samples, millis};
use crate::report::{Reach, Row};
use crate::wasm::{engine, load};
use crate::{Fallible, Places, Rows};

/// Calls of a guest, each of which computes until its limit of half a second.
const ROUNDS: usize = 5;
/// What a guest does all the time, and the fault of the guest `faulty` that does it.
const BUSY: [(&str, &str); 2] = [("computes", "loop"), ("calls the host", "host-calls")];
/// Longer, and a person sees it.
const MOST_MS: f64 = 20.0;

/// How long another task waited in one call of the guest, in milliseconds.
struct Waits {
    p99: f64,
    most: f64,
}

/// The rows.
pub async fn rows(places: &Places) -> Rows {
    let mut rows = Vec::new();
    for (what, fault) in BUSY {
        let (guests, rounds) = (places.guests.clone(), places.rounds(ROUNDS));
        let waits = tokio::task::spawn_blocking(move || on_one_thread(guests, fault, rounds)).await??;
        let most: Samples = waits.iter().map(|waits| waits.most).collect();
        let p99: Samples = waits.iter().map(|waits| waits.p99).collect();
        let name = format!("an event's wait beside a guest that {what}, one thread: the longest");
        rows.push(
            Row::new(name, Reach::at_most(MOST_MS, "ms"), most)
                .detail(format!("99th percentile {:.1} ms", p99.median())),
        );
    }
    Ok(rows)
}

fn on_one_thread(guests: PathBuf, fault: &str, rounds: usize) -> Fallible<Vec<Waits>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = json!({"seam": "request", "fault": fault});
        let plugin = load(&engine()?, &guests, "faulty", "faulty", config).await?;
        let onion = Arc::new(Onion::new(&plugin)?);
        let mut waits = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            waits.push(beside(&onion).await);
        }
        Ok(waits)
    })
}

/// Calls the guest beside a task that wants its turn all the time.
async fn beside(onion: &Onion) -> Waits {
    let (draft, cancel) = (request(History::default()), CancellationToken::new());
    let mut waits = Samples::default();
    let other = async {
        let mut last = Instant::now();
        loop {
            tokio::task::yield_now().await;
            waits.push(millis(last.elapsed()));
            last = Instant::now();
        }
    };
    tokio::select! {
        biased;
        () = other => {}
        // It ends in its limit.
        _ = onion.run(&draft, &cancel) => {}
    }
    Waits { p99: waits.quantile(0.99), most: waits.quantile(1.0) }
}
