//! Sessions in memory, for as long as the process runs.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dsh_seam::event::Entry;
use dsh_seam::services::Clock;
use dsh_seam::session::{
    NewSession, OpenSession, SessionError, SessionHeader, SessionSummary, SessionWriter, Sessions, SharedReplay,
};
use dsh_seam::{AgentId, SessionId};

use super::buffer::LineBuffer;
use super::files::newest_first;
use super::fork::{Fork, Forked};
use super::ids::{NewIds, nearest};
use super::lines;
use super::scan::{Bad, Scan};
use super::tail::{self, Summing};
use super::{may_block, see, shown};

/// Sessions that are gone with the process. Cloning shares them.
#[derive(Clone)]
pub struct MemorySessions {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Arc<dyn Clock>,
    ids: NewIds,
    logs: Mutex<BTreeMap<SessionId, Arc<Kept>>>,
}

/// One log.
struct Kept {
    buffer: Mutex<LineBuffer>,
    /// Whether there is a writer.
    writing: AtomicBool,
}

impl Kept {
    fn buffer(&self) -> MutexGuard<'_, LineBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemorySessions {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { inner: Arc::new(Inner { clock, ids: NewIds::default(), logs: Mutex::default() }) }
    }

    fn logs(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<Kept>>> {
        self.inner.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn holds(&self, id: &SessionId) -> bool {
        self.logs().contains_key(id)
    }

    pub(super) fn ids(&self) -> Vec<SessionId> {
        self.logs().keys().cloned().collect()
    }

    fn kept(&self, id: &SessionId) -> Result<Arc<Kept>, SessionError> {
        let logs = self.logs();
        let unknown = || SessionError::Unknown { id: id.to_string(), near: nearest(id.as_str(), logs.keys().cloned()) };
        logs.get(id).cloned().ok_or_else(unknown)
    }

    /// Takes a log in and opens it.
    pub(super) fn take_in(&self, header: SessionHeader, buffer: LineBuffer) -> Result<OpenSession, SessionError> {
        let kept = Arc::new(Kept { buffer: Mutex::new(buffer), writing: AtomicBool::new(true) });
        let writer = Box::new(MemoryWriter { kept: kept.clone() });
        let mut logs = self.logs();
        if logs.contains_key(&header.id) {
            return Err(SessionError::Exists(header.id));
        }
        logs.insert(header.id.clone(), kept);
        Ok(OpenSession { header, writer, notices: Vec::new() })
    }

    /// An id that is not used yet, and the time.
    pub(super) fn next_id(&self) -> (SessionId, u64) {
        let now_ms = self.inner.clock.now_ms();
        (self.inner.ids.next(now_ms), now_ms)
    }

    pub(super) fn summaries(&self) -> Result<Vec<SessionSummary>, SessionError> {
        let summary = |(id, kept): (&SessionId, &Arc<Kept>)| {
            let buffer = kept.buffer();
            let damaged = |problem| SessionError::Damaged { id: id.clone(), line: 1, problem };
            let mut summing = Summing::new(lines::parse_header(id, buffer.header_line()).map_err(damaged)?);
            buffer.last(|line| summing.look(line)).map_err(|error| failed(id, error))?;
            Ok(summing.done())
        };
        self.logs().iter().map(summary).collect()
    }
}

fn failed(id: &SessionId, error: io::Error) -> SessionError {
    SessionError::Io { path: id.to_string(), error }
}

/// All of a log in memory.
fn scan<'a>(id: &'a SessionId, buffer: &'a LineBuffer) -> Scan<'a, impl Read + use<'a>> {
    Scan::new(id, Path::new(id.as_str()), buffer.reader(), Bad::Refuse)
}

#[async_trait]
impl Sessions for MemorySessions {
    async fn create(&self, new: NewSession) -> Result<OpenSession, SessionError> {
        let now_ms = self.inner.clock.now_ms();
        let id = new.id.clone().unwrap_or_else(|| self.inner.ids.next(now_ms));
        let header = super::header(id, new, now_ms);
        let buffer = LineBuffer::new(header.id.clone(), lines::header_line(&header), None);
        self.take_in(header, buffer)
    }

    async fn open(&self, id: &SessionId, agent: &AgentId, replay: SharedReplay) -> Result<OpenSession, SessionError> {
        let kept = self.kept(id)?;
        if kept.writing.swap(true, Ordering::AcqRel) {
            return Err(SessionError::Locked(id.clone()));
        }
        let writer = Box::new(MemoryWriter { kept: kept.clone() });
        let seen = may_block(|| {
            let (buffer, mut replay) = (kept.buffer(), shown(&replay));
            scan(id, &buffer).run(|header| lines::owned(header, agent), |entry| replay.entry(entry))
        });
        Ok(OpenSession { header: seen?.header, writer, notices: Vec::new() })
    }

    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
        replay: SharedReplay,
    ) -> Result<OpenSession, SessionError> {
        let (new, now_ms) = self.next_id();
        let fork = Fork { id, at, heir: (agent, lineage), new, now_ms };
        let kept = self.kept(id)?;
        let (header, copy) = may_block(|| {
            let source = kept.buffer();
            let last_turn_end = source.last(tail::turn_end).map_err(|error| failed(id, error))?;
            let Forked { header, count, .. } = fork.run(scan(id, &source), last_turn_end, &replay)?;
            let copy = source.copy(header.id.clone(), lines::header_line(&header), count);
            Ok((header, copy.map_err(|error| failed(id, error))?))
        })?;
        self.take_in(header, copy)
    }

    async fn newest(&self, agent: &AgentId, workspace: &str) -> Result<SessionId, SessionError> {
        newest_of(self.list().await?, agent, workspace)
    }

    async fn list(&self) -> Result<Vec<SessionSummary>, SessionError> {
        let mut list = self.summaries()?;
        newest_first(&mut list);
        Ok(list)
    }

    async fn replay(
        &self,
        id: &SessionId,
        _salvage: bool,
        replay: SharedReplay,
    ) -> Result<(SessionHeader, Vec<String>), SessionError> {
        let kept = self.kept(id)?;
        let seen = may_block(|| {
            let (buffer, mut replay) = (kept.buffer(), shown(&replay));
            scan(id, &buffer).run_while(|_| Ok(()), |entry| see(&mut *replay, entry))
        });
        Ok((seen?.header, Vec::new()))
    }
}

/// The first of `list`, which is sorted, that is one of `agent` and `workspace`.
pub(super) fn newest_of(
    list: Vec<SessionSummary>,
    agent: &AgentId,
    workspace: &str,
) -> Result<SessionId, SessionError> {
    let mine = list.into_iter().find(|summary| summary.header.agent == *agent && summary.header.workspace == workspace);
    mine.map(|summary| summary.header.id).ok_or_else(|| SessionError::NoneToContinue(agent.clone()))
}

struct MemoryWriter {
    kept: Arc<Kept>,
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        self.kept.writing.store(false, Ordering::Release);
    }
}

#[async_trait]
impl SessionWriter for MemoryWriter {
    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        self.kept.buffer().append(entry)
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn read(&mut self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
        self.kept.buffer().read(start, limit, max_bytes)
    }
}
