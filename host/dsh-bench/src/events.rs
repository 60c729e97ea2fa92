//! From the append of an entry to whoever observes it, with the log in a file.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use dsh_loop::AgentLoop;
use dsh_seam::event::Entry;
use dsh_seam::failure::{FailureMode, PluginError};
use dsh_seam::ids::PluginName;
use dsh_seam::plugin::{Attached, Plugin, PluginContext};
use dsh_seam::services::SystemClock;
use dsh_seam::session::{Observer, OpenSession, SessionWriter};
use dsh_services::session::FileSessions;
use dsh_testkit::sessions::altered;

use crate::Rows;
use crate::bed::{Marks, agent, native_tool, services, turn};
use crate::measure::Samples;
use crate::report::{Reach, Row};

/// Steps of the turn whose entries are timed.
const STEPS: u32 = 500;

/// When the last append began, and how long after it each subscriber heard of it.
struct Stopwatch {
    zero: Instant,
    began_ns: AtomicU64,
    heard: Mutex<Samples>,
}

impl Stopwatch {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn begin(&self) {
        self.began_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    fn hear(&self) {
        #[expect(clippy::cast_precision_loss, reason = "a duration of microseconds")]
        let us = self.now_ns().saturating_sub(self.began_ns.load(Ordering::Relaxed)) as f64 / 1e3;
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(us);
    }
}

/// A writer that starts the stopwatch.
struct TimedWriter {
    inner: Box<dyn SessionWriter>,
    watch: Arc<Stopwatch>,
}

#[async_trait]
impl SessionWriter for TimedWriter {
    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        self.watch.begin();
        self.inner.append(entry)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().await
    }

    fn read(&mut self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
        self.inner.read(start, limit, max_bytes)
    }
}

/// An observer that stops the stopwatch.
struct Subscriber {
    name: PluginName,
    watch: Arc<Stopwatch>,
}

impl Plugin for Subscriber {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn failure_mode(&self) -> FailureMode {
        FailureMode::Closed
    }

    fn attach(&self, _context: Arc<dyn PluginContext>) -> Attached {
        let observer = Subscriber { name: self.name.clone(), watch: self.watch.clone() };
        Attached { observer: Some(Arc::new(observer)), ..Attached::default() }
    }
}

#[async_trait]
impl Observer for Subscriber {
    fn kinds(&self) -> &[String] {
        &[]
    }

    async fn on_entries(&self, _entries: &[Arc<Entry>], _depth: u32) -> Result<(), PluginError> {
        self.watch.hear();
        Ok(())
    }
}

pub async fn rows() -> Rows {
    let folder = tempfile::tempdir()?;
    let watch = Arc::new(Stopwatch { zero: Instant::now(), began_ns: AtomicU64::new(0), heard: Mutex::default() });
    let files = FileSessions::new(folder.path(), Arc::new(SystemClock));
    let starts = watch.clone();
    let sessions = altered(Arc::new(files), move |open| {
        let writer = Box::new(TimedWriter { inner: open.writer, watch: starts.clone() });
        Ok(OpenSession { writer, ..open })
    });
    let subscriber = Subscriber { name: PluginName::new("subscriber")?, watch: watch.clone() };
    let agents = AgentLoop::new(
        services(STEPS, sessions, Arc::new(Marks::default())),
        vec![native_tool(), Arc::new(subscriber)],
    );
    let agent = agent(&agents, "main").await?;
    turn(&agent).await?;
    agent.dispose("measured").await;
    let heard = watch.heard.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(vec![Row::new("an entry from its append, log in a file, to an observer", Reach::at_most(20.0, "µs"), heard)])
}
