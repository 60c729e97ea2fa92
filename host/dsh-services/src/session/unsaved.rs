//! Sessions that are read from files and go on in memory: `--no-save`.

use async_trait::async_trait;
use dsh_seam::event::Entry;
use dsh_seam::session::{NewSession, OpenSession, SessionError, SessionHeader, SessionSummary, Sessions};
use dsh_seam::{AgentId, SessionId};

use super::buffer::LineBuffer;
use super::files::{FileSessions, Found, newest_first, torn_notice};
use super::lines::{self, Bad};
use super::memory::{MemorySessions, newest_of};

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
            && self.files.inner.bytes(id).is_ok_and(|bytes| !bytes.is_empty())
        {
            return Err(SessionError::Exists(id.clone()));
        }
        self.memory.create(new).await
    }

    async fn open(&self, id: &SessionId, agent: &AgentId) -> Result<OpenSession, SessionError> {
        if self.memory.holds(id) {
            return self.memory.open(id, agent).await;
        }
        let (memory, id, agent) = (self.memory.clone(), id.clone(), agent.clone());
        let bring = move |inner: &super::files::Inner| match inner.find(&id, &agent)? {
            Found::Empty(header) => {
                let buffer = LineBuffer::new(lines::header_line(&header));
                memory.take_in(header, Vec::new(), buffer)
            }
            Found::Bytes(mut bytes) => {
                let log = lines::parse(&id, &bytes, Bad::Refuse)?;
                lines::owned(&log.header, &agent)?;
                bytes.truncate(bytes.len() - log.torn);
                let session = memory.take_in(log.header, log.entries, LineBuffer { bytes, index: log.index })?;
                let notices = (log.torn > 0).then(|| torn_notice(&id, log.torn)).into_iter().collect();
                Ok(OpenSession { notices, ..session })
            }
        };
        self.files.blocking(bring).await
    }

    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
    ) -> Result<OpenSession, SessionError> {
        if self.memory.holds(id) {
            return self.memory.fork(id, at, agent, lineage).await;
        }
        let (memory, id, agent, lineage) = (self.memory.clone(), id.clone(), agent.clone(), lineage.to_vec());
        let fork = move |inner: &super::files::Inner| memory.fork_from(&id, &inner.bytes(&id)?, at, (&agent, &lineage));
        self.files.blocking(fork).await
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

    async fn read(
        &self,
        id: &SessionId,
        salvage: bool,
    ) -> Result<(SessionHeader, Vec<Entry>, Vec<String>), SessionError> {
        match self.memory.holds(id) {
            true => self.memory.read(id, salvage).await,
            false => self.files.read(id, salvage).await,
        }
    }
}
