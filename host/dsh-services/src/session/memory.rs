//! Sessions in memory, for as long as the process runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dsh_seam::event::Entry;
use dsh_seam::services::Clock;
use dsh_seam::session::{
    NewSession, OpenSession, SessionError, SessionHeader, SessionSummary, SessionWriter, Sessions,
};
use dsh_seam::{AgentId, SessionId};

use super::buffer::LineBuffer;
use super::files::newest_first;
use super::ids::{NewIds, nearest};
use super::lines::{self, Bad, Copy};

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
    pub(super) fn take_in(
        &self,
        header: SessionHeader,
        entries: Vec<Entry>,
        buffer: LineBuffer,
    ) -> Result<OpenSession, SessionError> {
        let kept = Arc::new(Kept { buffer: Mutex::new(buffer), writing: AtomicBool::new(true) });
        let writer = Box::new(MemoryWriter { kept: kept.clone() });
        let mut logs = self.logs();
        if logs.contains_key(&header.id) {
            return Err(SessionError::Exists(header.id));
        }
        logs.insert(header.id.clone(), kept);
        Ok(OpenSession { header, entries, writer, notices: Vec::new() })
    }

    /// A copy of the log in `bytes`, taken in under a new id and open.
    pub(super) fn fork_from(
        &self,
        id: &SessionId,
        bytes: &[u8],
        at: Option<u64>,
        heir: (&AgentId, &[AgentId]),
    ) -> Result<OpenSession, SessionError> {
        let now_ms = self.inner.clock.now_ms();
        let new = self.inner.ids.next(now_ms);
        let Copy { header, entries, buffer } = lines::copy(id, bytes, at, heir, new, now_ms)?;
        self.take_in(header, entries, buffer)
    }

    pub(super) fn summaries(&self) -> Result<Vec<SessionSummary>, SessionError> {
        let logs = self.logs();
        logs.iter().map(|(id, kept)| lines::summarize(id, &kept.buffer().bytes)).collect()
    }
}

#[async_trait]
impl Sessions for MemorySessions {
    async fn create(&self, new: NewSession) -> Result<OpenSession, SessionError> {
        let now_ms = self.inner.clock.now_ms();
        let id = new.id.clone().unwrap_or_else(|| self.inner.ids.next(now_ms));
        let header = super::header(id, new, now_ms);
        let buffer = LineBuffer::new(lines::header_line(&header));
        self.take_in(header, Vec::new(), buffer)
    }

    async fn open(&self, id: &SessionId, agent: &AgentId) -> Result<OpenSession, SessionError> {
        let kept = self.kept(id)?;
        if kept.writing.swap(true, Ordering::AcqRel) {
            return Err(SessionError::Locked(id.clone()));
        }
        let writer = Box::new(MemoryWriter { kept: kept.clone() });
        let log = lines::parse(id, &kept.buffer().bytes, Bad::Refuse)?;
        lines::owned(&log.header, agent)?;
        Ok(OpenSession { header: log.header, entries: log.entries, writer, notices: Vec::new() })
    }

    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
    ) -> Result<OpenSession, SessionError> {
        let bytes = self.kept(id)?.buffer().bytes.clone();
        self.fork_from(id, &bytes, at, (agent, lineage))
    }

    async fn newest(&self, agent: &AgentId, workspace: &str) -> Result<SessionId, SessionError> {
        newest_of(self.list().await?, agent, workspace)
    }

    async fn list(&self) -> Result<Vec<SessionSummary>, SessionError> {
        let mut list = self.summaries()?;
        newest_first(&mut list);
        Ok(list)
    }

    async fn read(
        &self,
        id: &SessionId,
        _salvage: bool,
    ) -> Result<(SessionHeader, Vec<Entry>, Vec<String>), SessionError> {
        let log = lines::parse(id, &self.kept(id)?.buffer().bytes, Bad::Refuse)?;
        Ok((log.header, log.entries, Vec::new()))
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
