//! Sessions as files in one folder.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::event::Entry;
use dsh_seam::services::Clock;
use dsh_seam::session::{NewSession, OpenSession, SessionError, SessionHeader, SessionSummary, Sessions};
use dsh_seam::{AgentId, SessionId};

use super::buffer::LineBuffer;
use super::ids::{NewIds, nearest};
use super::lines::{self, Bad, Copy, Outline};
use super::writer::{self, FileWriter};

/// What a log's name ends with.
const EXTENSION: &str = "jsonl";
/// How much of a log's end is read at first to find its last line; most lines are far shorter.
const TAIL_BYTES: u64 = 64 * 1024;

/// Sessions in a folder. Cloning shares it.
#[derive(Clone)]
pub struct FileSessions {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    workspace: String,
    ids: NewIds,
}

impl FileSessions {
    /// The sessions in `dir`, which is made when it is first needed.
    pub fn new(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let workspace = std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned();
        Self { inner: Arc::new(Inner { dir: dir.into(), clock, workspace, ids: NewIds::default() }) }
    }

    /// The workspace (an absolute path) for the header of an empty log that is resumed; without it, the working directory.
    #[must_use]
    pub fn with_workspace(self, workspace: impl Into<String>) -> Self {
        let inner = &self.inner;
        let (dir, clock) = (inner.dir.clone(), inner.clock.clone());
        Self { inner: Arc::new(Inner { dir, clock, workspace: workspace.into(), ids: NewIds::default() }) }
    }

    /// Runs `work` where it may block.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let inner = self.inner.clone();
        let work = tokio::task::spawn_blocking(move || work(&inner));
        work.await.unwrap_or_else(|error| Err(failed(&self.inner.dir, io::Error::other(error))))
    }
}

/// What is known of a log before it is read.
pub(super) enum Found {
    /// It holds nothing, and is a new session.
    Empty(SessionHeader),
    /// Bytes, of which the last line may be torn.
    Bytes(Vec<u8>),
}

impl Inner {
    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(super) fn path(&self, id: &SessionId) -> PathBuf {
        self.dir.join(format!("{id}.{EXTENSION}"))
    }

    pub(super) fn next_id(&self) -> SessionId {
        self.ids.next(self.now_ms())
    }

    /// The ids of all logs; none when there is no folder.
    fn ids(&self) -> Result<Vec<SessionId>, SessionError> {
        let names = match fs::read_dir(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&self.dir, error)),
        };
        let mut ids = Vec::new();
        for name in names {
            let name = name.map_err(|error| failed(&self.dir, error))?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".jsonl")).and_then(|id| SessionId::new(id).ok());
            ids.extend(id);
        }
        ids.sort();
        Ok(ids)
    }

    fn unknown(&self, id: &SessionId) -> SessionError {
        let near = self.ids().ok().and_then(|ids| nearest(id.as_str(), ids));
        SessionError::Unknown { id: id.to_string(), near }
    }

    fn missing_or(&self, id: &SessionId, error: io::Error) -> SessionError {
        match error.kind() {
            io::ErrorKind::NotFound => self.unknown(id),
            _ => failed(&self.path(id), error),
        }
    }

    /// The bytes of a log, without locking it.
    pub(super) fn bytes(&self, id: &SessionId) -> Result<Vec<u8>, SessionError> {
        fs::read(self.path(id)).map_err(|error| self.missing_or(id, error))
    }

    fn empty_header(&self, id: &SessionId, agent: &AgentId) -> SessionHeader {
        let new = NewSession {
            id: None,
            agent: agent.clone(),
            workspace: self.workspace.clone(),
            model: None,
            lineage: vec![],
        };
        super::header(id.clone(), new, self.now_ms())
    }

    /// The log of `id` for somebody who does not write it: an empty one is a new session of `agent`.
    pub(super) fn find(&self, id: &SessionId, agent: &AgentId) -> Result<Found, SessionError> {
        let bytes = self.bytes(id)?;
        Ok(match lines::whole(&bytes).is_empty() {
            true => Found::Empty(self.empty_header(id, agent)),
            false => Found::Bytes(bytes),
        })
    }

    fn create(&self, new: NewSession) -> Result<OpenSession, SessionError> {
        let id = new.id.clone().unwrap_or_else(|| self.next_id());
        let path = self.path(&id);
        let replaces = match fs::metadata(&path) {
            Ok(there) if there.len() > 0 => return Err(SessionError::Exists(id)),
            Ok(_) => Some(self.lock(&id)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&path, error)),
        };
        let header = super::header(id, new, self.now_ms());
        let buffer = LineBuffer::new(lines::header_line(&header));
        Ok(fresh(path, header, Vec::new(), buffer, replaces))
    }

    fn lock(&self, id: &SessionId) -> Result<File, SessionError> {
        let locked = writer::lock(&self.path(id)).map_err(|error| self.missing_or(id, error))?;
        locked.ok_or_else(|| SessionError::Locked(id.clone()))
    }

    fn open(&self, id: &SessionId, agent: &AgentId) -> Result<OpenSession, SessionError> {
        let path = self.path(id);
        let mut file = self.lock(id)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| failed(&path, error))?;
        let whole = lines::whole(&bytes).len();
        let torn = &bytes[whole..];
        let log = (whole > 0).then(|| lines::parse(id, &bytes, Bad::Refuse)).transpose()?;
        if let Some(log) = &log {
            lines::owned(&log.header, agent)?;
        }
        let mut notices = Vec::new();
        if !torn.is_empty() {
            let aside =
                writer::set_torn_aside(&path, &file, whole as u64, torn).map_err(|error| failed(&path, error))?;
            notices.push(format!(
                "the last line of {} was not whole: its {} bytes were moved to {}",
                path.display(),
                torn.len(),
                aside.display()
            ));
        }
        let Some(log) = log else {
            let header = self.empty_header(id, agent);
            let buffer = LineBuffer::new(lines::header_line(&header));
            let session = fresh(path, header, Vec::new(), buffer, Some(file));
            return Ok(OpenSession { notices, ..session });
        };
        let writer = Box::new(FileWriter::open(path, file, log.index));
        Ok(OpenSession { header: log.header, entries: log.entries, writer, notices })
    }

    fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
    ) -> Result<OpenSession, SessionError> {
        let bytes = self.bytes(id)?;
        let new = self.next_id();
        let path = self.path(&new);
        let Copy { header, entries, buffer } = lines::copy(id, &bytes, at, (agent, lineage), new, self.now_ms())?;
        Ok(fresh(path, header, entries, buffer, None))
    }

    /// When the last entry of the session was written, if it is one of `agent` and `workspace`.
    fn last_time(&self, id: &SessionId, agent: &AgentId, workspace: &str) -> Result<Option<u64>, SessionError> {
        let path = self.path(id);
        let io_failed = |error| failed(&path, error);
        let mut file = BufReader::new(File::open(&path).map_err(io_failed)?);
        let mut first = Vec::new();
        file.read_until(b'\n', &mut first).map_err(io_failed)?;
        let damaged = |problem| SessionError::Damaged { id: id.clone(), line: 1, problem };
        let header = lines::parse_header(id, &first).map_err(damaged)?;
        if header.agent != *agent || header.workspace != workspace {
            return Ok(None);
        }
        let line = last_line(file.get_mut(), first.len() as u64).map_err(io_failed)?;
        let last = line.and_then(|line| serde_json::from_slice::<Outline<'_>>(&line).ok().map(|outline| outline.time));
        Ok(Some(last.unwrap_or(header.created)))
    }

    fn newest(&self, agent: &AgentId, workspace: &str) -> Result<Option<(u64, SessionId)>, SessionError> {
        let mut newest = None;
        for id in self.ids()? {
            match self.last_time(&id, agent, workspace) {
                Ok(Some(time)) => newest = newest.max(Some((time, id))),
                Ok(None) => {}
                Err(error) => tracing::warn!("left out: {error}"),
            }
        }
        Ok(newest)
    }

    fn list(&self) -> Result<Vec<SessionSummary>, SessionError> {
        let mut list = Vec::new();
        for id in self.ids()? {
            match self.bytes(&id).and_then(|bytes| lines::summarize(&id, &bytes)) {
                Ok(summary) => list.push(summary),
                Err(error) => tracing::warn!("left out: {error}"),
            }
        }
        newest_first(&mut list);
        Ok(list)
    }
}

/// Sorts sessions, the newest last entry first.
pub(super) fn newest_first(list: &mut [SessionSummary]) {
    list.sort_by(|a, b| (b.last_time_ms, &b.header.id).cmp(&(a.last_time_ms, &a.header.id)));
}

/// A session of which nothing is on disk yet.
fn fresh(
    path: PathBuf,
    header: SessionHeader,
    entries: Vec<Entry>,
    buffer: LineBuffer,
    replaces: Option<File>,
) -> OpenSession {
    let writer = Box::new(FileWriter::pending(path, buffer, replaces));
    OpenSession { header, entries, writer, notices: Vec::new() }
}

fn failed(path: &Path, error: io::Error) -> SessionError {
    SessionError::Io { path: path.display().to_string(), error }
}

/// The last whole line after the first `header_bytes`.
fn last_line(file: &mut File, header_bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let end = file.seek(SeekFrom::End(0))?;
    let mut window = TAIL_BYTES;
    loop {
        let start = end.saturating_sub(window).max(header_bytes.min(end));
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.take(end - start).read_to_end(&mut tail)?;
        let whole = lines::whole(&tail);
        let line = whole.split(|byte| *byte == b'\n').rev().nth(1).unwrap_or_default();
        // A line that begins inside of what was read is all there.
        let begins_inside = whole.len() > line.len() + 1;
        if begins_inside || start <= header_bytes {
            return Ok((!line.is_empty()).then(|| line.to_vec()));
        }
        window *= 8;
    }
}

/// The notice for a torn line that stays where it is.
pub(super) fn torn_notice(id: &SessionId, bytes: usize) -> String {
    format!("the last line of session `{id}` is not whole: its {bytes} bytes are left out")
}

#[async_trait]
impl Sessions for FileSessions {
    async fn create(&self, new: NewSession) -> Result<OpenSession, SessionError> {
        self.inner.create(new)
    }

    async fn open(&self, id: &SessionId, agent: &AgentId) -> Result<OpenSession, SessionError> {
        let (id, agent) = (id.clone(), agent.clone());
        self.blocking(move |inner| inner.open(&id, &agent)).await
    }

    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
    ) -> Result<OpenSession, SessionError> {
        let (id, agent, lineage) = (id.clone(), agent.clone(), lineage.to_vec());
        self.blocking(move |inner| inner.fork(&id, at, &agent, &lineage)).await
    }

    async fn newest(&self, agent: &AgentId, workspace: &str) -> Result<SessionId, SessionError> {
        let (asked, workspace) = (agent.clone(), workspace.to_owned());
        let newest = self.blocking(move |inner| inner.newest(&asked, &workspace)).await?;
        newest.map(|(_, id)| id).ok_or_else(|| SessionError::NoneToContinue(agent.clone()))
    }

    async fn list(&self) -> Result<Vec<SessionSummary>, SessionError> {
        self.blocking(Inner::list).await
    }

    async fn read(
        &self,
        id: &SessionId,
        salvage: bool,
    ) -> Result<(SessionHeader, Vec<Entry>, Vec<String>), SessionError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let log = lines::parse(&id, &inner.bytes(&id)?, if salvage { Bad::Skip } else { Bad::Refuse })?;
            let mut notices = log.notices;
            if log.torn > 0 {
                notices.push(torn_notice(&id, log.torn));
            }
            Ok((log.header, log.entries, notices))
        })
        .await
    }
}
