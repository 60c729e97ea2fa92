//! The seam to sessions: where logs are kept, and who observes them.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::event::Entry;
use crate::failure::{Failure, PluginError};
use crate::ids::{AgentId, PluginName, SessionId};

/// The first line of a session's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "session/header", rename_all = "camelCase")]
pub struct SessionHeader {
    /// Of the format: 1.
    pub version: u32,
    /// The session's id.
    pub id: SessionId,
    /// Whose it is.
    pub agent: AgentId,
    /// The workspace, an absolute path.
    pub workspace: String,
    /// The model at the time.
    pub model: Option<String>,
    /// `dsh-host` and its version.
    pub host: String,
    /// Unix time in milliseconds.
    pub created: u64,
    /// The session this came from: a copy of it, or, without `forked_at`, made by its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The last sequence number that was copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_at: Option<u64>,
    /// The agent's ancestors, nearest first, when another agent made it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lineage: Vec<AgentId>,
}

/// The version of the format that this host writes.
pub const SESSION_VERSION: u32 = 1;

/// Why a session cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is none with that id.
    #[error("there is no session `{id}`{}", near.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_else(|| "; see `dsh-host session list`".into()))]
    Unknown {
        /// As asked for.
        id: String,
        /// The nearest id there is.
        near: Option<SessionId>,
    },
    /// Another process writes it.
    #[error("session `{0}` is in use by another process")]
    Locked(SessionId),
    /// It belongs to another agent.
    #[error("session `{id}` belongs to agent `{owner}`, not to `{asked}`")]
    OtherAgent {
        /// The session.
        id: SessionId,
        /// Whose it is.
        owner: AgentId,
        /// Who asked.
        asked: AgentId,
    },
    /// A line of the log is no entry, or a sequence number is missing.
    #[error(
        "session `{id}`, line {line}: {problem}; nothing was changed, and `dsh-host session show --salvage {id}` reads on"
    )]
    Damaged {
        /// The session.
        id: SessionId,
        /// From 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// There is none to continue.
    #[error("agent `{0}` has no session of this workspace to continue")]
    NoneToContinue(AgentId),
    /// A fork at a place that is not there.
    #[error("session `{id}` cannot be forked at {at}: {problem}")]
    BadFork {
        /// The session.
        id: SessionId,
        /// The place asked for.
        at: String,
        /// What is wrong.
        problem: String,
    },
    /// The id is taken.
    #[error("there is a session `{0}` already")]
    Exists(SessionId),
    /// It could not be written.
    #[error("{path}: {error}")]
    NotWritten {
        /// Which file.
        path: String,
        /// What the file system said.
        #[source]
        error: io::Error,
    },
    /// The file system refused to read.
    #[error("{path}: {error}")]
    Io {
        /// Which file or folder.
        path: String,
        /// What it said.
        #[source]
        error: io::Error,
    },
}

/// Is shown the entries of a log, in order, while the log is read. What is kept of them is its own affair: a log may be far larger than
/// memory.
///
/// `Vec<Entry>` keeps all of them, `()` none.
pub trait Replay: Send {
    /// The next entry.
    fn entry(&mut self, entry: Entry);
    /// Whether it wants to see more. [`Sessions::replay`] ends when it does not, as if the log ended there; a log that is opened or
    /// copied is read to its end.
    fn wants_more(&self) -> bool {
        true
    }
}

/// A replay that the reader of a log shares with whoever wants to know. What it has seen counts only if the reading was a success.
pub type SharedReplay = Arc<Mutex<dyn Replay>>;

impl Replay for Vec<Entry> {
    fn entry(&mut self, entry: Entry) {
        self.push(entry);
    }
}

impl Replay for () {
    fn entry(&mut self, _entry: Entry) {}
}

/// An open session: what it is and where more goes. What it holds was shown to a [`Replay`].
pub struct OpenSession {
    /// Its first line.
    pub header: SessionHeader,
    /// Where more goes.
    pub writer: Box<dyn SessionWriter>,
    /// What was put right while opening: a torn line set aside, for example. For a person.
    pub notices: Vec<String>,
}

/// Appends to one log. The only writer of it; dropping it releases the lock.
#[async_trait]
pub trait SessionWriter: Send {
    /// Writes one entry as a line; when it returns, the operating system has it. A failed write cuts a torn line of its own back.
    /// [`io::ErrorKind::InvalidInput`] refuses an entry that is too large, which is no failed write: nothing was written and more can be.
    fn append(&mut self, entry: &Entry) -> io::Result<()>;
    /// Makes all that was written durable (`fdatasync`).
    async fn flush(&mut self) -> io::Result<()>;
    /// Reads entries from sequence number `start` on: at most `limit`, and no more than make `max_bytes` of text, but at least one if
    /// there is one.
    fn read(&mut self, start: u64, limit: u32, max_bytes: usize) -> io::Result<Vec<Entry>>;
}

/// What a new session is to be.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id; none: a new one.
    pub id: Option<SessionId>,
    /// Whose.
    pub agent: AgentId,
    /// The workspace, an absolute path.
    pub workspace: String,
    /// The model, if one is set.
    pub model: Option<String>,
    /// The agent's ancestors, nearest first; none for an agent that no agent made.
    pub lineage: Vec<AgentId>,
    /// The session of the agent that made it.
    pub parent: Option<SessionId>,
}

/// What is known of a session without reading all of it.
#[derive(Debug, Clone)]
pub struct SessionSummary {
    /// Its first line.
    pub header: SessionHeader,
    /// When its last entry was written, Unix milliseconds.
    pub last_time_ms: u64,
    /// How many entries.
    pub entries: u64,
    /// How many turns were started.
    pub turns: u32,
}

/// The service `sessions`: keeps logs.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// A new session; nothing is written before the first append.
    async fn create(&self, new: NewSession) -> Result<OpenSession, SessionError>;
    /// An existing session, locked, its torn last line set aside; its entries are shown to `replay`. `agent` must own it.
    async fn open(&self, id: &SessionId, agent: &AgentId, replay: SharedReplay) -> Result<OpenSession, SessionError>;
    /// A copy of a session up to and including sequence number `at` (none: the last `turn/end`), under a new id, open; the copied
    /// entries are shown to `replay`. `agent` must own it, or have its owner in its `lineage`: an agent may go on from where its
    /// ancestor is.
    async fn fork(
        &self,
        id: &SessionId,
        at: Option<u64>,
        agent: &AgentId,
        lineage: &[AgentId],
        replay: SharedReplay,
    ) -> Result<OpenSession, SessionError>;
    /// The session of this agent and workspace whose last entry is the newest.
    async fn newest(&self, agent: &AgentId, workspace: &str) -> Result<SessionId, SessionError>;
    /// All sessions, the newest last entry first.
    async fn list(&self) -> Result<Vec<SessionSummary>, SessionError>;
    /// Shows the entries of a session to `replay`, without locking or repairing; its header and notices. With `salvage`, bad lines are
    /// skipped and reported as notices.
    async fn replay(
        &self,
        id: &SessionId,
        salvage: bool,
        replay: SharedReplay,
    ) -> Result<(SessionHeader, Vec<String>), SessionError>;

    /// The same with all entries at once, for a session that is known to be short.
    async fn read(
        &self,
        id: &SessionId,
        salvage: bool,
    ) -> Result<(SessionHeader, Vec<Entry>, Vec<String>), SessionError> {
        let entries: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let (header, notices) = self.replay(id, salvage, entries.clone()).await?;
        let entries = std::mem::take(&mut *entries.lock().unwrap_or_else(PoisonError::into_inner));
        Ok((header, entries, notices))
    }
}

/// Sees entries after they are in the log; changes nothing. The driver waits for it.
#[async_trait]
pub trait Observer: Send + Sync {
    /// Which kinds it wants, exact or with `*` at the end; empty: all but `assistant/chunk`.
    fn kinds(&self) -> &[String];
    /// Sees one or more entries in order. `depth` is 0 for what the driver does, and one more for an entry that was appended from
    /// inside a notification; an append the observer makes itself has `depth + 1`.
    async fn on_entries(&self, entries: &[Arc<Entry>], depth: u32) -> Result<(), PluginError>;
}

/// Makes durable what was observed. Awaited at the end of each turn, with a deadline.
#[async_trait]
pub trait Flush: Send + Sync {
    /// Flushes; a failure is reported and changes nothing.
    async fn flush(&self) -> Result<(), FlushError>;
}

/// Why a flush failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// The plugin failed.
    #[error(transparent)]
    Plugin(#[from] PluginError),
    /// The plugin said so.
    #[error("plugin `{plugin}` could not flush: {failure}")]
    Refused {
        /// Which plugin.
        plugin: PluginName,
        /// What it said.
        failure: Failure,
    },
}

/// Whether `kind` is one an observer asked for with `kinds`.
pub fn wants(kinds: &[String], kind: &str) -> bool {
    if kinds.is_empty() {
        return kind != "assistant/chunk";
    }
    kinds.iter().any(|wanted| match wanted.strip_suffix('*') {
        Some(prefix) => kind.starts_with(prefix),
        None => kind == wanted,
    })
}

/// Bytes of the kind of a plugin's own entry: a name, not a text.
pub const MAX_OWN_KIND_BYTES: usize = 128;
/// Bytes of its data: an entry is a note, not a store.
pub const MAX_OWN_DATA_BYTES: usize = 1024 * 1024;

/// Checks an entry that a plugin wants to append: its kind is lower-case words with `-`, joined by `/`, and not `state`, which the host
/// writes itself.
pub fn check_own_entry(kind: &str, data_bytes: usize) -> Result<(), Failure> {
    let word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if kind.len() > MAX_OWN_KIND_BYTES || kind == "state" || !kind.split('/').all(word) {
        let shown: String = kind.chars().take(MAX_OWN_KIND_BYTES).collect();
        return Err(Failure::invalid_argument(format!(
            "`{shown}` is no kind of entry: use lower-case words with `-`, joined by `/`, at most {MAX_OWN_KIND_BYTES} bytes, and not `state`"
        )));
    }
    if data_bytes > MAX_OWN_DATA_BYTES {
        return Err(Failure::new(
            "limit",
            format!("the entry's data has {data_bytes} bytes, an entry may have {MAX_OWN_DATA_BYTES}"),
        ));
    }
    Ok(())
}

/// One section of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its place; ascending.
    pub order: i32,
    /// Its text; empty is left out.
    pub text: String,
}

/// Gives sections of the system prompt.
#[async_trait]
pub trait Sections: Send + Sync {
    /// The sections for this step.
    async fn sections(
        &self,
        at: crate::ids::StepRef,
        cancel: &tokio_util::sync::CancellationToken,
    ) -> Result<Vec<Section>, PluginError>;
}

/// The system prompt, put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assembled {
    /// The whole text.
    pub text: String,
    /// What of it plugins gave, in the order of the text.
    pub parts: Vec<PromptPart>,
}

/// One section that has found its place in a system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptPart {
    /// Whose.
    pub plugin: PluginName,
    /// Its name.
    pub name: String,
    /// Where it stands in the text, in bytes.
    pub place: std::ops::Range<usize>,
}

/// The service `system_prompt`: joins sections.
#[async_trait]
pub trait SystemPrompt: Send + Sync {
    /// All sections in ascending `order`, then name, then plugin order, joined by a blank line, then the agent's own `suffix`.
    /// Sections whose plugin's mode is open are left out when it fails, after `report` was told; otherwise the failure is returned.
    async fn assemble(
        &self,
        at: crate::ids::StepRef,
        sections: &[RegisteredSections],
        suffix: &str,
        report: &dyn crate::waterfall::FailureReport,
        cancel: &tokio_util::sync::CancellationToken,
    ) -> Result<Assembled, crate::waterfall::RunError>;
}

/// A source of sections with its name and failure mode.
#[derive(Clone)]
pub struct RegisteredSections {
    /// Whose.
    pub plugin: PluginName,
    /// What its failure does.
    pub mode: crate::failure::FailureMode,
    /// The source.
    pub sections: Arc<dyn Sections>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_get_what_they_asked_for() {
        let check = |kinds: &[&str], kind: &str, expect: bool| {
            let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
            assert_eq!(wants(&kinds, kind), expect, "{kinds:?} {kind}");
        };
        check(&[], "turn/start", true);
        check(&[], "assistant/chunk", false);
        check(&["tool/*"], "tool/call", true);
        check(&["tool/*"], "turn/end", false);
        check(&["assistant/chunk"], "assistant/chunk", true);
        check(&["*"], "assistant/chunk", true);
    }

    #[test]
    fn own_entries_follow_the_rule() {
        let check = |kind: &str, bytes: usize, expect: Result<(), &str>| {
            let got = check_own_entry(kind, bytes).map_err(|failure| failure.code);
            assert_eq!(got, expect.map_err(str::to_owned), "{kind:?} {bytes}");
        };
        check("note", 2, Ok(()));
        check("turn-count/total2", 2, Ok(()));
        check("2fast", 2, Ok(()));
        check("state/x", 2, Ok(()));
        for bad in ["state", "", "a//b", "../x", "Upper", "-a", &"a".repeat(129)] {
            check(bad, 2, Err("invalid-argument"));
        }
        check("note", MAX_OWN_DATA_BYTES, Ok(()));
        check("note", MAX_OWN_DATA_BYTES + 1, Err("limit"));
    }

    #[test]
    fn a_header_has_the_promised_shape() {
        let text = r#"{"type":"session/header","version":1,"id":"s","agent":"main","workspace":"/w","model":"echo","host":"dsh-host 0.1.0","created":5}"#;
        let header: SessionHeader = serde_json::from_str(text).expect("parses");
        assert_eq!(serde_json::to_string(&header).expect("serializes"), text);
    }
}
