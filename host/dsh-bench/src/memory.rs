//! What an idle agent costs. Measured in a process of its own, since memory that was freed once is not given back.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dsh_loop::AgentLoop;
use dsh_seam::event::Emitted;
use dsh_seam::plugin::EventSink;
use serde_json::{Value, json};

use crate::bed::{agent, memory_sessions, native_tool, services, turn};
use crate::measure::Samples;
use crate::process::resident_kib;
use crate::report::{Reach, Row};
use crate::wasm::{engine, five_noops};
use crate::{Fallible, IDLE_AGENTS, Places, Rows};

/// How many agents are idle at once.
const AGENTS: u32 = 10_000;
/// Processes that are measured.
const ROUNDS: usize = 3;

/// Counts the bytes of the logs.
#[derive(Default)]
struct LogBytes(AtomicUsize);

#[async_trait]
impl EventSink for LogBytes {
    fn emit(&self, emitted: &Emitted) {
        if let Emitted::Durable(entry) = emitted {
            let bytes = serde_json::to_vec(entry).map_or(0, |line| line.len() + 1);
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    async fn settled(&self, _emitted: &Emitted) {}
}

/// Makes the agents, lets each do one turn, and prints what they weigh.
pub async fn child(places: &Places) -> Fallible<()> {
    let engine = engine()?;
    let mut plugins = five_noops(&engine, places).await?;
    plugins.push(native_tool());
    let logs = Arc::new(LogBytes::default());
    let agents = AgentLoop::new(services(2, memory_sessions(), logs.clone()), plugins);
    // The first one fills what all of them share.
    let first = agent(&agents, "first").await?;
    turn(&first).await?;
    logs.0.store(0, Ordering::Relaxed);
    let before = resident_kib(std::process::id(), "VmRSS")?;
    let mut idle = Vec::with_capacity(AGENTS as usize);
    for n in 0..AGENTS {
        let one = agent(&agents, &format!("agent-{n}")).await?;
        turn(&one).await?;
        idle.push(one);
    }
    let after = resident_kib(std::process::id(), "VmRSS")?;
    let log_kib = logs.0.load(Ordering::Relaxed) / 1024;
    println!("{}", json!({ "kib": after - before, "logKib": log_kib }));
    Ok(())
}

pub async fn rows(places: &Places) -> Rows {
    let (mut each, mut log) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let output = Command::new(&places.own).arg(IDLE_AGENTS).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
        }
        let value: Value = serde_json::from_slice(&output.stdout)?;
        let number = |key: &str| value[key].as_f64().ok_or_else(|| format!("the process did not say `{key}`"));
        each.push((number("kib")? - number("logKib")?) / f64::from(AGENTS));
        log.push(number("logKib")? / f64::from(AGENTS));
    }
    let detail = format!("after one turn of two steps each, five plugins; their logs are {:.1} KiB each", log.median());
    Ok(vec![Row::new("an idle agent beyond its log, at 10,000", Reach::at_most(16.0, "KiB"), each).detail(detail)])
}
