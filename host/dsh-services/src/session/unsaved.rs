//! Sessions that are read from files and go on in memory: `--no-save`. What is in a file stays there and is read from it.

use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::session::{NewSession, OpenSession, SessionError, SessionHeader, SessionSummary, Sessions, SharedReplay};
use dsh_seam::{AgentId, SessionId};

use super::buffer::{Base, LineBuffer};
use super::files::{FileSessions, Inner, newest_first, torn_notice};
use super::fork::Fork;
use super::memory::{MemorySessions, newest_of};
use super::scan::{Bad, Scanned};
use super::{lines, shown};

/// Finds the sessions of a folder and changes nothing there; what is new stays in memory.
#[derive(Clone)]
pub struct Unsaved {
    files: FileSessions,
    memory: MemorySessions,
}

impl Unsaved {
    /// `files` are read, never written or locked.
    pub fn new(files: FileSessions) -> Self {
        let clock = files.inner.clock();
        Self { files, memory: MemorySessions::new(clock) }
    }
}

#[async_trait]
impl Sessions for Unsaved {
    async fn create(&self, new: NewSession) -> Result<OpenSession, SessionError> {
        if let Some(id) = &new.id
            && self.files.inner.holds(id)
        {
            return Err(SessionError::Exists(id.clone()));
        }
        self.memory.create(new).await
    }

    async fn open(&self, id: &SessionId, agent: &AgentId, replay: SharedReplay) -> Result<OpenSession, SessionError> {
        if self.memory.holds(id) {
            return self.memory.open(id, agent, replay).await;
        }
        let (memory, id, agent) = (self.memory.clone(), id.clone(), agent.clone());
        self.files.blocking(move |inner| bring(inner, &memory, &id, &agent, &replay)).await
    }

    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
        replay: SharedReplay,
    ) -> Result<OpenSession, SessionError> {
        if self.memory.holds(id) {
            return self.memory.fork(id, at, agent, lineage, replay).await;
        }
        let (memory, id, agent, lineage) = (self.memory.clone(), id.clone(), agent.clone(), lineage.to_vec());
        let copy = move |inner: &Inner| {
            let (new, now_ms) = memory.next_id();
            let fork = Fork { id: &id, at, heir: (&agent, &lineage), new, now_ms };
            let (header, base) = inner.copy(&fork, &replay)?;
            take_in(&memory, header, Some(base))
        };
        self.files.blocking(copy).await
    }

    async fn newest(&self, agent: &AgentId, workspace: &str) -> Result<SessionId, SessionError> {
        newest_of(self.list().await?, agent, workspace)
    }

    async fn list(&self) -> Result<Vec<SessionSummary>, SessionError> {
        let mut list = self.memory.summaries()?;
        let known = self.memory.ids();
        list.extend(self.files.list().await?.into_iter().filter(|summary| !known.contains(&summary.header.id)));
        newest_first(&mut list);
        Ok(list)
    }

    async fn replay(
        &self,
        id: &SessionId,
        salvage: bool,
        replay: SharedReplay,
    ) -> Result<(SessionHeader, Vec<String>), SessionError> {
        match self.memory.holds(id) {
            true => self.memory.replay(id, salvage, replay).await,
            false => self.files.replay(id, salvage, replay).await,
        }
    }
}

/// Opens the log of a file in memory.
fn bring(
    inner: &Inner,
    memory: &MemorySessions,
    id: &SessionId,
    agent: &AgentId,
    replay: &SharedReplay,
) -> Result<OpenSession, SessionError> {
    let log = inner.find(id)?;
    if log.is_empty()? {
        return take_in(memory, inner.empty_header(id, agent), None);
    }
    let mut replay = shown(replay);
    let scan = log.scan(id, Bad::Refuse);
    let Scanned { header, index, torn, .. } =
        scan.run(|header| lines::owned(header, agent), |entry| replay.entry(entry))?;
    let session = take_in(memory, header, Some(Base { file: Arc::new(log.file), index }))?;
    let notices = torn_notice(id, torn).into_iter().collect();
    Ok(OpenSession { notices, ..session })
}

fn take_in(memory: &MemorySessions, header: SessionHeader, base: Option<Base>) -> Result<OpenSession, SessionError> {
    let buffer = LineBuffer::new(header.id.clone(), lines::header_line(&header), base);
    memory.take_in(header, buffer)
}
