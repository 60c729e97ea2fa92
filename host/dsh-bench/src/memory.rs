//! What an idle agent costs. Measured in a process of its own, since memory that was freed once is not given back.

use std::io;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use dsh_loop::AgentLoop;
use dsh_seam::event::{Emitted, Entry};
use dsh_seam::plugin::EventSink;
use dsh_seam::session::{OpenSession, SessionWriter};
use dsh_testkit::sessions::altered;
use serde_json::{Value, json};

use crate::bed::{agent, memory_sessions, native_tool, services, turn};
use crate::measure::Samples;
use crate::process::resident_kib;
use crate::report::{Reach, Row};
use crate::wasm::{engine, five_noops};
use crate::{Fallible, IDLE_AGENTS, Places, Rows};

/// How many agents are idle at once.
const AGENTS: u32 = 10_000;
/// The same in a quick run.
const QUICK_AGENTS: u32 = 500;
/// Processes that are measured.
const ROUNDS: usize = 3;

/// Nobody looks on.
pub struct Unseen;

#[async_trait]
impl EventSink for Unseen {
    fn emit(&self, _emitted: &Emitted) {}

    async fn settled(&self, _emitted: &Emitted) {}
}

/// A writer whose entries go nowhere: with a log in a file they are not in memory either.
struct Nowhere;

#[async_trait]
impl SessionWriter for Nowhere {
    fn append(&mut self, _entry: &Entry) -> io::Result<()> {
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, _start: u64, _limit: u32, _max_bytes: usize) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }
}

/// Makes the agents, lets each do one turn, and prints what they weigh.
pub async fn child(places: &Places, count: u32) -> Fallible<()> {
    let engine = engine()?;
    let mut plugins = five_noops(&engine, places).await?;
    plugins.push(native_tool());
    let sessions = altered(memory_sessions(), |open| Ok(OpenSession { writer: Box::new(Nowhere), ..open }));
    let agents = AgentLoop::new(services(2, sessions, Arc::new(Unseen)), plugins);
    // The first one fills what all of them share.
    let first = agent(&agents, "first").await?;
    turn(&first).await?;
    let before = resident_kib(std::process::id(), "VmRSS")?;
    let mut idle = Vec::with_capacity(count as usize);
    for n in 0..count {
        let one = agent(&agents, &format!("agent-{n}")).await?;
        turn(&one).await?;
        idle.push(one);
    }
    let after = resident_kib(std::process::id(), "VmRSS")?;
    println!("{}", json!({ "kib": after - before }));
    Ok(())
}

pub async fn rows(places: &Places) -> Rows {
    let mut each = Samples::default();
    let count = if places.quick { QUICK_AGENTS } else { AGENTS };
    for _ in 0..places.rounds(ROUNDS) {
        let output = Command::new(&places.own).args([IDLE_AGENTS, &count.to_string()]).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
        }
        let value: Value = serde_json::from_slice(&output.stdout)?;
        each.push(value["kib"].as_f64().ok_or("the process did not say `kib`")? / f64::from(count));
    }
    let detail = "after one turn of two steps each, with six plugins and the conversation; the log is not in memory";
    Ok(vec![
        Row::new(format!("an idle agent beyond its log, at {count}"), Reach::at_most(16.0, "KiB"), each).detail(detail),
    ])
}
