//! What the tests of sessions are made of.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dsh_seam::event::{
    Entry, Event, ForeignEvent, ReasonKind, Source, StepMark, Trigger, TurnEnd, TurnReason, TurnStart,
};
use dsh_seam::services::Clock;
use dsh_seam::session::{NewSession, OpenSession, SessionError, SessionHeader, SessionWriter, Sessions};
use dsh_seam::{AgentId, SessionId};

use super::FileSessions;

pub(super) struct FixedClock;

impl Clock for FixedClock {
    fn now_ms(&self) -> u64 {
        1_000
    }
}

pub(super) fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

pub(super) fn agent(text: &str) -> AgentId {
    AgentId::new(text).unwrap()
}

pub(super) fn files(dir: &Path) -> FileSessions {
    FileSessions::new(dir, Arc::new(FixedClock)).with_workspace("/w")
}

pub(super) fn new_session(name: Option<&str>) -> NewSession {
    NewSession {
        id: name.map(id),
        agent: agent("main"),
        workspace: "/w".into(),
        model: Some("echo".into()),
        lineage: vec![],
        parent: None,
    }
}

/// The event that `word` stands for; `start-2` is the start of turn 2.
pub(super) fn event(word: &str) -> Event {
    match word {
        "start" => Event::TurnStart(TurnStart { turn: 1, trigger: Trigger::Message { source: Source::User } }),
        "start-2" => Event::TurnStart(TurnStart { turn: 2, trigger: Trigger::Message { source: Source::User } }),
        "end" => Event::TurnEnd(TurnEnd { turn: 1, reason: TurnReason::plain(ReasonKind::Completed) }),
        "step" => Event::StepStart(StepMark { turn: 1, step: 1 }),
        note => {
            Event::Foreign(ForeignEvent { kind: "plugin/p/note".into(), data: serde_json::json!({ "note": note }) })
        }
    }
}

pub(super) fn entry(session: &SessionId, seq: u64, word: &str) -> Entry {
    Entry { seq, time_ms: 2_000 + seq, session: session.clone(), agent: agent("main"), event: event(word) }
}

/// An open session, with what was shown while it was opened.
pub(super) struct Opened {
    pub(super) header: SessionHeader,
    pub(super) entries: Vec<Entry>,
    pub(super) writer: Box<dyn SessionWriter>,
    pub(super) notices: Vec<String>,
}

impl Opened {
    fn of(session: OpenSession, seen: &Mutex<Vec<Entry>>) -> Self {
        let OpenSession { header, writer, notices } = session;
        Self { header, entries: std::mem::take(&mut seen.lock().unwrap()), writer, notices }
    }
}

/// Opens a session for `main`.
pub(super) async fn opened(sessions: &dyn Sessions, name: &str) -> Result<Opened, SessionError> {
    opened_by(sessions, name, "main").await
}

pub(super) async fn opened_by(sessions: &dyn Sessions, name: &str, who: &str) -> Result<Opened, SessionError> {
    let seen: Arc<Mutex<Vec<Entry>>> = Arc::default();
    let session = sessions.open(&id(name), &agent(who), seen.clone()).await?;
    Ok(Opened::of(session, &seen))
}

/// Forks a session for an agent with a lineage.
pub(super) async fn forked(
    sessions: &dyn Sessions,
    name: &str,
    at: Option<u64>,
    (who, lineage): (&str, &[AgentId]),
) -> Result<Opened, SessionError> {
    let seen: Arc<Mutex<Vec<Entry>>> = Arc::default();
    let session = sessions.fork(&id(name), at, &agent(who), lineage, seen.clone()).await?;
    Ok(Opened::of(session, &seen))
}

/// What can be appended to.
pub(super) trait Writes {
    fn writes(&mut self) -> (&SessionId, &mut dyn SessionWriter);
}

impl Writes for OpenSession {
    fn writes(&mut self) -> (&SessionId, &mut dyn SessionWriter) {
        (&self.header.id, self.writer.as_mut())
    }
}

impl Writes for Opened {
    fn writes(&mut self) -> (&SessionId, &mut dyn SessionWriter) {
        (&self.header.id, self.writer.as_mut())
    }
}

/// Appends one entry for each word.
pub(super) fn append(session: &mut impl Writes, words: &[&str]) {
    let (id, writer) = session.writes();
    let next = writer.read(0, u32::MAX, usize::MAX).unwrap().len() as u64;
    for (seq, word) in (next..).zip(words) {
        writer.append(&entry(id, seq, word)).unwrap();
    }
}

/// Entries as words.
pub(super) fn words(entries: &[Entry]) -> String {
    let word = |entry: &Entry| match &entry.event {
        Event::TurnStart(start) if start.turn == 2 => "start-2".to_owned(),
        Event::TurnStart(_) => "start".to_owned(),
        Event::TurnEnd(_) => "end".to_owned(),
        Event::StepStart(_) => "step".to_owned(),
        Event::Foreign(foreign) => foreign.data["note"].as_str().unwrap_or("?").to_owned(),
        other => format!("{other:?}"),
    };
    entries.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// The names in a folder, sorted.
pub(super) fn names(dir: &Path) -> Vec<String> {
    let Ok(listed) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> = listed.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(super) fn log(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.jsonl"))
}

/// The text of a log with a header and one line for each `(seq, word)`.
pub(super) fn text(name: &str, lines: &[(u64, &str)]) -> String {
    let header = super::header(id(name), new_session(None), 1_000);
    let mut text = serde_json::to_string(&header).unwrap() + "\n";
    for (seq, word) in lines {
        text += &(serde_json::to_string(&entry(&id(name), *seq, word)).unwrap() + "\n");
    }
    text
}
