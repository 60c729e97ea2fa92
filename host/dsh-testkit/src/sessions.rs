//! Sessions that are those of another provider, except for what a test changes when one is opened.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::event::Entry;
use dsh_seam::ids::{AgentId, SessionId};
use dsh_seam::session::{
    NewSession, OpenSession, SessionError, SessionHeader, SessionSummary, SessionWriter, Sessions, SharedReplay,
};

/// What becomes of a session that was opened.
type Opened = dyn Fn(OpenSession) -> Result<OpenSession, SessionError> + Send + Sync;

struct Altered {
    inner: Arc<dyn Sessions>,
    opened: Box<Opened>,
}

/// The sessions of `inner`; `opened` gets each that is created, opened or forked, and what it makes of it is handed out.
pub fn altered(
    inner: Arc<dyn Sessions>,
    opened: impl Fn(OpenSession) -> Result<OpenSession, SessionError> + Send + Sync + 'static,
) -> Arc<dyn Sessions> {
    Arc::new(Altered { inner, opened: Box::new(opened) })
}

#[async_trait]
impl Sessions for Altered {
    async fn create(&self, new: NewSession) -> Result<OpenSession, SessionError> {
        self.inner.create(new).await.and_then(&self.opened)
    }

    async fn open(&self, id: &SessionId, agent: &AgentId, replay: SharedReplay) -> Result<OpenSession, SessionError> {
        self.inner.open(id, agent, replay).await.and_then(&self.opened)
    }

    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
        replay: SharedReplay,
    ) -> Result<OpenSession, SessionError> {
        self.inner.fork(id, at, agent, lineage, replay).await.and_then(&self.opened)
    }

    async fn newest(&self, agent: &AgentId, workspace: &str) -> Result<SessionId, SessionError> {
        self.inner.newest(agent, workspace).await
    }

    async fn list(&self) -> Result<Vec<SessionSummary>, SessionError> {
        self.inner.list().await
    }

    async fn replay(
        &self,
        id: &SessionId,
        salvage: bool,
        replay: SharedReplay,
    ) -> Result<(SessionHeader, Vec<String>), SessionError> {
        self.inner.replay(id, salvage, replay).await
    }
}

struct Refusing<R> {
    inner: Box<dyn SessionWriter>,
    refuses: R,
}

/// The same session, but its log does not take an entry for which `refuses` has an error.
#[must_use]
pub fn refusing(
    mut session: OpenSession,
    refuses: impl Fn(&Entry) -> io::Result<()> + Send + Sync + 'static,
) -> OpenSession {
    session.writer = Box::new(Refusing { inner: session.writer, refuses });
    session
}

/// The same session, but its log takes no entry from number `seq` on.
#[must_use]
pub fn full_from(session: OpenSession, seq: u64) -> OpenSession {
    refusing(session, move |entry| match entry.seq >= seq {
        true => Err(io::Error::other("no space left")),
        false => Ok(()),
    })
}

#[async_trait]
impl<R: Fn(&Entry) -> io::Result<()> + Send + Sync> SessionWriter for Refusing<R> {
    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        (self.refuses)(entry)?;
        self.inner.append(entry)
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.inner.flush().await
    }

    fn read(&mut self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>> {
        self.inner.read(start, limit, max_bytes)
    }
}
