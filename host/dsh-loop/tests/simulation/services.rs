//! The services around an agent: a log that breaks, a clock that goes back, a person who may not answer, a reader that is slow.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::event::{ApprovalAnswer, ApprovalAsked, ApprovalBy, Emitted, Entry};
use dsh_seam::ids::AgentInfo;
use dsh_seam::plugin::EventSink;
use dsh_seam::services::{Budget, Clock, OutOfBudget};
use dsh_seam::session::{SessionWriter, Sessions};
use dsh_seam::tools::Approver;
use dsh_services::session::MemorySessions;
use dsh_testkit::sessions::altered;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

use crate::chaos::Chaos;
use crate::plan::Fault;
use crate::record::Record;

/// Longer than any deadline there is.
const FOREVER: Duration = Duration::from_secs(100);

/// A clock that sometimes goes back.
pub struct AnyClock {
    chaos: Arc<Chaos>,
    start: tokio::time::Instant,
}

impl AnyClock {
    pub fn new(chaos: Arc<Chaos>) -> Self {
        Self { chaos, start: tokio::time::Instant::now() }
    }
}

impl Clock for AnyClock {
    fn now_ms(&self) -> u64 {
        let now = 1_000_000 + u64::try_from(self.start.elapsed().as_millis()).expect("short");
        if self.chaos.strikes(Fault::ClockGoesBack, "clock") { now - 10_000 } else { now }
    }
}

/// Sessions whose writer fails.
pub fn any_sessions(inner: MemorySessions, chaos: Arc<Chaos>) -> Arc<dyn Sessions> {
    altered(Arc::new(inner), move |mut session| {
        session.writer = Box::new(AnyWriter { inner: session.writer, chaos: chaos.clone() });
        Ok(session)
    })
}

struct AnyWriter {
    inner: Box<dyn SessionWriter>,
    chaos: Arc<Chaos>,
}

#[async_trait]
impl SessionWriter for AnyWriter {
    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        if self.chaos.strikes(Fault::AppendFails, "append") {
            return Err(io::Error::other("no space left"));
        }
        self.inner.append(entry)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.chaos.note("flush", Value::Null);
        self.chaos.point("flush").await;
        if self.chaos.strikes(Fault::FlushHangs, "flush") {
            std::future::pending::<()>().await;
        }
        if self.chaos.strikes(Fault::FlushFails, "flush") {
            return Err(io::Error::other("the disk is gone"));
        }
        self.inner.flush().await
    }

    fn read(&mut self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
        self.inner.read(start, limit, max_bytes)
    }
}

/// How a budget ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum BudgetEnd {
    #[default]
    NotYet,
    UsedUp,
    Exceeded,
    /// The same, and at once.
    Time,
}

/// A budget that ends when chance says so, and gets no better.
#[derive(Default)]
pub struct AnyBudget(watch::Sender<BudgetEnd>);

impl AnyBudget {
    /// Returns whether it is worse than it was.
    pub fn end(&self, end: BudgetEnd) -> bool {
        self.0.send_if_modified(|now| {
            let worse = end > *now;
            *now = end.max(*now);
            worse
        })
    }

    fn over(&self, least: BudgetEnd) -> Option<OutOfBudget> {
        (*self.0.borrow() >= least).then(|| OutOfBudget { code: "max-cost", message: "it is over".into() })
    }
}

impl Budget for AnyBudget {
    fn used_up(&self) -> Option<OutOfBudget> {
        self.over(BudgetEnd::UsedUp)
    }
    fn exceeded(&self) -> Option<OutOfBudget> {
        self.over(BudgetEnd::Exceeded)
    }
    fn time_is_up(&self) -> BoxFuture<'_, OutOfBudget> {
        let mut end = self.0.subscribe();
        async move {
            // The sender lives as long as `self`, so waiting cannot fail.
            let _ = end.wait_for(|end| *end == BudgetEnd::Time).await;
            OutOfBudget { code: "max-time", message: "it is late".into() }
        }
        .boxed()
    }
}

/// A person who may answer.
pub struct AnyApprover(pub Arc<Chaos>);

#[async_trait]
impl Approver for AnyApprover {
    async fn decide(&self, _: &AgentInfo, _: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
        self.0.point("approver").await;
        if self.0.strikes(Fault::NobodyAnswers, "approver") {
            std::future::pending::<()>().await;
        }
        let answers =
            [ApprovalAnswer::AllowOnce, ApprovalAnswer::AllowOnce, ApprovalAnswer::AllowAlways, ApprovalAnswer::Deny];
        (self.0.pick(&answers), ApprovalBy::Person)
    }
}

/// Writes the transcript; whoever reads it may be slow.
pub struct Sink(pub Arc<Chaos>);

#[async_trait]
impl EventSink for Sink {
    fn emit(&self, emitted: &Emitted) {
        self.0.transcript.add(Record::shown(emitted));
    }

    async fn settled(&self, emitted: &Emitted) {
        let place = format!("settled {}", emitted.kind());
        self.0.point(&place).await;
        if self.0.strikes(Fault::SinkIsSlow, &place) {
            tokio::time::sleep(FOREVER).await;
        }
    }
}
