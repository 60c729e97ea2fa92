//! Sessions as files in one folder.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::services::Clock;
use dsh_seam::session::{NewSession, OpenSession, SessionError, SessionHeader, SessionSummary, Sessions, SharedReplay};
use dsh_seam::{AgentId, SessionId};

use super::buffer::{Base, LineBuffer, Part};
use super::fork::{Fork, Forked};
use super::ids::{NewIds, nearest};
use super::lines::{self, MAX_LINE_BYTES};
use super::scan::{Bad, Scan, Scanned};
use super::tail::{self, Summing};
use super::writer::{self, FileWriter};
use super::{see, shown};

/// What a log's name ends with.
const EXTENSION: &str = "jsonl";

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

/// A log that is read by somebody who does not write it, as long as it was when it was opened.
pub(super) struct Found {
    pub(super) file: File,
    pub(super) path: PathBuf,
    bytes: u64,
}

impl Found {
    fn failed(&self, error: io::Error) -> SessionError {
        failed(&self.path, error)
    }

    /// Whether it has not even one whole line.
    pub(super) fn is_empty(&self) -> Result<bool, SessionError> {
        Ok(tail::last_end(&self.file, 0, self.bytes).map_err(|error| self.failed(error))? == 0)
    }

    pub(super) fn scan<'a>(&'a self, id: &'a SessionId, bad: Bad) -> Scan<'a, Part<'a>> {
        Scan::new(id, &self.path, Part::new(&self.file, 0, self.bytes), bad)
    }

    /// Its header, and how long that is.
    fn header(&self, id: &SessionId) -> Result<(SessionHeader, u64), SessionError> {
        let mut first = Vec::new();
        let mut start = BufReader::new(Part::new(&self.file, 0, self.bytes.min(MAX_LINE_BYTES as u64)));
        start.read_until(b'\n', &mut first).map_err(|error| self.failed(error))?;
        let damaged = |problem| SessionError::Damaged { id: id.clone(), line: 1, problem };
        Ok((lines::parse_header(id, &first).map_err(damaged)?, first.len() as u64))
    }

    /// What its first line and its last ones say.
    fn summary(&self, header: SessionHeader, header_bytes: u64) -> Result<SessionSummary, SessionError> {
        let mut summing = Summing::new(header);
        tail::last(&self.file, header_bytes, self.bytes, |line| summing.look(line))
            .map_err(|error| self.failed(error))?;
        Ok(summing.done())
    }
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
        let near = self.ids().ok().and_then(|ids| nearest(id.as_str(), ids.into_iter().filter(|other| other != id)));
        SessionError::Unknown { id: id.to_string(), near }
    }

    fn missing_or(&self, id: &SessionId, error: io::Error) -> SessionError {
        match error.kind() {
            io::ErrorKind::NotFound => self.unknown(id),
            _ => failed(&self.path(id), error),
        }
    }

    /// The log of `id`, without locking it.
    pub(super) fn find(&self, id: &SessionId) -> Result<Found, SessionError> {
        let path = self.path(id);
        let file = regular(&path).and_then(|()| File::open(&path)).map_err(|error| self.missing_or(id, error))?;
        found(path, file)
    }

    /// Whether there is a log of `id` that holds anything.
    pub(super) fn holds(&self, id: &SessionId) -> bool {
        fs::metadata(self.path(id)).is_ok_and(|there| there.len() > 0)
    }

    pub(super) fn empty_header(&self, id: &SessionId, agent: &AgentId) -> SessionHeader {
        let new = NewSession {
            id: None,
            agent: agent.clone(),
            workspace: self.workspace.clone(),
            model: None,
            lineage: vec![],
            parent: None,
        };
        super::header(id.clone(), new, self.now_ms())
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
        Ok(fresh(path, header, None, replaces))
    }

    fn lock(&self, id: &SessionId) -> Result<File, SessionError> {
        let path = self.path(id);
        match regular(&path).and_then(|()| writer::lock(&path)) {
            Ok(locked) => locked.ok_or_else(|| SessionError::Locked(id.clone())),
            // What can be read is only refused to a writer.
            Err(error) if self.find(id).is_ok() => {
                let problem = format!("it may not be written: {error}");
                Err(not_written(&path, io::Error::new(error.kind(), problem)))
            }
            Err(error) => Err(self.missing_or(id, error)),
        }
    }

    fn open(&self, id: &SessionId, agent: &AgentId, replay: &SharedReplay) -> Result<OpenSession, SessionError> {
        let log = found(self.path(id), self.lock(id)?)?;
        if log.is_empty()? {
            let notices = log.set_aside(log.bytes)?;
            let session = fresh(log.path, self.empty_header(id, agent), None, Some(log.file));
            return Ok(OpenSession { notices, ..session });
        }
        let mut replay = shown(replay);
        let scan = log.scan(id, Bad::Refuse);
        let Scanned { header, index, torn, .. } =
            scan.run(|header| lines::owned(header, agent), |entry| replay.entry(entry))?;
        let notices = log.set_aside(torn)?;
        let writer = Box::new(FileWriter::open(log.path, log.file, index));
        Ok(OpenSession { header, writer, notices })
    }

    /// The copy's header, and where its entries are.
    pub(super) fn copy(&self, fork: &Fork<'_>, replay: &SharedReplay) -> Result<(SessionHeader, Base), SessionError> {
        let log = self.find(fork.id)?;
        let last_turn_end = tail::last(&log.file, 0, log.bytes, tail::turn_end).map_err(|error| log.failed(error))?;
        let Forked { header, index, count } = fork.run(log.scan(fork.id, Bad::Refuse), last_turn_end, replay)?;
        let base = Base { file: Arc::new(log.file), index };
        let base = base.cut(count).map_err(|error| failed(&log.path, error))?;
        Ok((header, base))
    }

    fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        heir: (&AgentId, &[AgentId]),
        replay: &SharedReplay,
    ) -> Result<OpenSession, SessionError> {
        let fork = Fork { id, at, heir, new: self.next_id(), now_ms: self.now_ms() };
        let (header, base) = self.copy(&fork, replay)?;
        Ok(fresh(self.path(&header.id), header, Some(base), None))
    }

    /// What is known of those sessions that are wanted; one that cannot be read is said and left out.
    fn summaries(&self, wanted: impl Fn(&SessionHeader) -> bool) -> Result<Vec<SessionSummary>, SessionError> {
        let summary = |id: &SessionId| {
            let log = self.find(id)?;
            let (header, header_bytes) = log.header(id)?;
            if wanted(&header) { log.summary(header, header_bytes).map(Some) } else { Ok(None) }
        };
        let mut list = Vec::new();
        for id in self.ids()? {
            match summary(&id) {
                Ok(summary) => list.extend(summary),
                Err(error) => tracing::warn!("left out: {error}"),
            }
        }
        newest_first(&mut list);
        Ok(list)
    }
}

impl Found {
    /// Moves a torn last line of so many bytes to a file beside the log; what to tell of it.
    fn set_aside(&self, torn: u64) -> Result<Vec<String>, SessionError> {
        if torn == 0 {
            return Ok(Vec::new());
        }
        let aside = writer::set_torn_aside(&self.path, &self.file, self.bytes - torn..self.bytes)
            .map_err(|error| not_written(&self.path, error))?;
        Ok(vec![format!(
            "the last line of {} was not whole: its {torn} bytes were moved to {}",
            self.path.display(),
            aside.display()
        )])
    }
}

/// Opening a pipe waits until somebody writes into it, and a device never ends.
fn regular(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_file() { Ok(()) } else { Err(io::Error::other("it is no regular file")) }
}

fn found(path: PathBuf, file: File) -> Result<Found, SessionError> {
    let bytes = file.metadata().map_err(|error| failed(&path, error))?.len();
    Ok(Found { file, path, bytes })
}

/// Sorts sessions, the newest last entry first.
pub(super) fn newest_first(list: &mut [SessionSummary]) {
    list.sort_by(|a, b| (b.last_time_ms, &b.header.id).cmp(&(a.last_time_ms, &a.header.id)));
}

/// A session of which nothing is on disk yet; it begins with the entries of `base`.
fn fresh(path: PathBuf, header: SessionHeader, base: Option<Base>, replaces: Option<File>) -> OpenSession {
    let buffer = LineBuffer::new(header.id.clone(), lines::header_line(&header), base);
    let writer = Box::new(FileWriter::pending(path, buffer, replaces));
    OpenSession { header, writer, notices: Vec::new() }
}

fn failed(path: &Path, error: io::Error) -> SessionError {
    SessionError::Io { path: path.display().to_string(), error }
}

fn not_written(path: &Path, error: io::Error) -> SessionError {
    SessionError::NotWritten { path: path.display().to_string(), error }
}

/// The notice for a torn line of so many bytes that stays where it is; none for none.
pub(super) fn torn_notice(id: &SessionId, bytes: u64) -> Option<String> {
    (bytes > 0).then(|| format!("the last line of session `{id}` is not whole: its {bytes} bytes are left out"))
}

#[async_trait]
impl Sessions for FileSessions {
    async fn create(&self, new: NewSession) -> Result<OpenSession, SessionError> {
        self.blocking(move |inner| inner.create(new)).await
    }

    async fn open(&self, id: &SessionId, agent: &AgentId, replay: SharedReplay) -> Result<OpenSession, SessionError> {
        let (id, agent) = (id.clone(), agent.clone());
        self.blocking(move |inner| inner.open(&id, &agent, &replay)).await
    }

    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
        replay: SharedReplay,
    ) -> Result<OpenSession, SessionError> {
        let (id, agent, lineage) = (id.clone(), agent.clone(), lineage.to_vec());
        self.blocking(move |inner| inner.fork(&id, at, (&agent, &lineage), &replay)).await
    }

    async fn newest(&self, agent: &AgentId, workspace: &str) -> Result<SessionId, SessionError> {
        let (asked, workspace) = (agent.clone(), workspace.to_owned());
        let wanted = move |header: &SessionHeader| header.agent == asked && header.workspace == workspace;
        let newest = self.blocking(move |inner| inner.summaries(wanted)).await?.into_iter().next();
        newest.map(|summary| summary.header.id).ok_or_else(|| SessionError::NoneToContinue(agent.clone()))
    }

    async fn list(&self) -> Result<Vec<SessionSummary>, SessionError> {
        self.blocking(|inner| inner.summaries(|_| true)).await
    }

    async fn replay(
        &self,
        id: &SessionId,
        salvage: bool,
        replay: SharedReplay,
    ) -> Result<(SessionHeader, Vec<String>), SessionError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let log = inner.find(&id)?;
            let mut replay = shown(&replay);
            let scan = log.scan(&id, if salvage { Bad::Skip } else { Bad::Refuse });
            let Scanned { header, torn, mut notices, .. } =
                scan.run_while(|_| Ok(()), |entry| see(&mut *replay, entry))?;
            notices.extend(torn_notice(&id, torn));
            Ok((header, notices))
        })
        .await
    }
}
