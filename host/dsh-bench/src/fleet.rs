//! Many agents at work at once in one process: steps a second, how late events are, and what an agent weighs meanwhile. Measured in a
//! process of its own with two threads, since memory that was freed once is not given back.

use std::collections::HashMap;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dsh_loop::AgentLoop;
use dsh_seam::event::{Entry, Source};
use dsh_seam::failure::{FailureMode, PluginError};
use dsh_seam::ids::{PluginName, SessionId};
use dsh_seam::message::ContentBlock;
use dsh_seam::plugin::{Attached, Plugin, PluginContext};
use dsh_seam::session::{Observer, OpenSession, SessionWriter};
use dsh_testkit::sessions::altered;
use serde_json::{Value, json};

use crate::bed::{Marks, agent, memory_sessions, native_tool, services_with_latency};
use crate::measure::Samples;
use crate::process::resident_kib;
use crate::report::Row;
use crate::wasm::{engine, noops};
use crate::{FLEET, Fallible, Places, Rows};

/// How many agents work at once, and with how many plugins each.
const AGENTS: u32 = 1_000;
const PLUGINS: usize = 4;
/// Threads of the runtime.
pub const THREADS: usize = 2;
/// Steps of each agent's turn.
const STEPS: u32 = 20;
/// How long a model takes to answer: at once, so that all have work all the time, and as a quick model does.
const LATENCIES_MS: [u64; 2] = [0, 500];

/// When each entry of one session was appended, by its number.
type Times = Arc<Mutex<Vec<Instant>>>;

/// The times of all sessions.
#[derive(Default)]
struct Clock {
    sessions: Mutex<HashMap<SessionId, Times>>,
    delays: Mutex<Samples>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clock {
    fn times(&self, session: &SessionId) -> Times {
        locked(&self.sessions).entry(session.clone()).or_default().clone()
    }
}

/// A writer that notes when each entry is appended.
struct TimedWriter {
    inner: Box<dyn SessionWriter>,
    clock: Arc<Clock>,
    times: OnceLock<Times>,
}

#[async_trait]
impl SessionWriter for TimedWriter {
    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        locked(self.times.get_or_init(|| self.clock.times(&entry.session))).push(Instant::now());
        self.inner.append(entry)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().await
    }

    fn read(&mut self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
        self.inner.read(start, limit, max_bytes)
    }
}

/// A plugin that observes, and says how late it is.
struct Late {
    name: PluginName,
    clock: Arc<Clock>,
}

impl Plugin for Late {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn failure_mode(&self) -> FailureMode {
        FailureMode::Closed
    }

    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached {
        let times = self.clock.times(&context.agent().session);
        Attached { observer: Some(Arc::new(Hears { clock: self.clock.clone(), times })), ..Attached::default() }
    }
}

struct Hears {
    clock: Arc<Clock>,
    times: Times,
}

#[async_trait]
impl Observer for Hears {
    fn kinds(&self) -> &[String] {
        &[]
    }

    async fn on_entries(&self, entries: &[Arc<Entry>], _depth: u32) -> Result<(), PluginError> {
        let now = Instant::now();
        let times = locked(&self.times);
        let mut delays = locked(&self.clock.delays);
        for entry in entries {
            let appended = usize::try_from(entry.seq).ok().and_then(|seq| times.get(seq));
            if let Some(appended) = appended {
                delays.push(now.duration_since(*appended).as_secs_f64() * 1e3);
            }
        }
        Ok(())
    }
}

/// Lets all agents do a turn at once, and prints what came of it.
pub async fn child(places: &Places, latency_ms: u64) -> Fallible<()> {
    let clock = Arc::new(Clock::default());
    let starts = clock.clone();
    let sessions = altered(memory_sessions(), move |open| {
        let writer = TimedWriter { inner: open.writer, clock: starts.clone(), times: OnceLock::new() };
        Ok(OpenSession { writer: Box::new(writer), ..open })
    });
    let mut plugins = noops(&engine()?, places, PLUGINS).await?;
    plugins.push(native_tool());
    plugins.push(Arc::new(Late { name: PluginName::new("late")?, clock: clock.clone() }));
    let marks = Arc::new(Marks::default());
    let latency = Duration::from_millis(latency_ms);
    let agents = AgentLoop::new(services_with_latency(STEPS, latency, sessions, marks.clone()), plugins);
    let mut fleet = Vec::with_capacity(AGENTS as usize);
    let before = resident_kib(std::process::id(), "VmRSS")?;
    for n in 0..AGENTS {
        fleet.push(agent(&agents, &format!("agent-{n}")).await?);
    }
    let start = Instant::now();
    for one in &fleet {
        one.send(vec![ContentBlock::text("go")], Source::User)?;
    }
    for one in &fleet {
        one.idle().await;
    }
    let took = start.elapsed();
    let peak = resident_kib(std::process::id(), "VmHWM")?;
    marks.check()?;
    let delays = locked(&clock.delays);
    println!(
        "{}",
        json!({
            "stepsPerSecond": f64::from(AGENTS * STEPS) / took.as_secs_f64(),
            "p50Ms": delays.quantile(0.5),
            "p99Ms": delays.quantile(0.99),
            "kibEach": (peak.saturating_sub(before)) / u64::from(AGENTS),
        })
    );
    Ok(())
}

fn measured(places: &Places, latency_ms: u64, rounds: usize) -> Fallible<Vec<Value>> {
    let run = |_| {
        let output = Command::new(&places.own).args([FLEET, &latency_ms.to_string()]).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    (0..rounds).map(run).collect()
}

pub async fn rows(places: &Places) -> Rows {
    let mut rows = Vec::new();
    for latency_ms in LATENCIES_MS {
        let measured = measured(places, latency_ms, places.rounds(5))?;
        let samples = |key: &str| measured.iter().filter_map(|value| value[key].as_f64()).collect::<Samples>();
        let what = |what: &str| {
            format!(
                "1,000 agents at work, four plugins each, two threads, a model that answers in {latency_ms} ms: {what}"
            )
        };
        let late = format!("median {:.3} ms", samples("p50Ms").median());
        rows.push(Row::plain(what("steps"), "a second", samples("stepsPerSecond")));
        rows.push(Row::plain(what("event from append to observer, p99"), "ms", samples("p99Ms")).detail(late));
        rows.push(Row::plain(what("memory of an agent at the peak, its log in it"), "KiB", samples("kibEach")));
    }
    Ok(rows)
}
