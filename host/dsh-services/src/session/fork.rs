//! A copy of a session under another id: what is copied, and for whom.

use std::io::Read;

use dsh_seam::session::{SessionError, SessionHeader, SharedReplay};
use dsh_seam::{AgentId, SessionId};

use super::buffer::LineIndex;
use super::scan::{Scan, Scanned};
use super::{lines, shown};

/// A fork that was asked for.
pub(super) struct Fork<'a> {
    pub(super) id: &'a SessionId,
    /// The last entry that is copied; none: the last `turn/end`.
    pub(super) at: Option<u64>,
    /// Who goes on, with its lineage: the log must be its own, or one of an ancestor.
    pub(super) heir: (&'a AgentId, &'a [AgentId]),
    pub(super) new: SessionId,
    pub(super) now_ms: u64,
}

/// What the copy is.
pub(super) struct Forked {
    pub(super) header: SessionHeader,
    /// Of the source, all of it.
    pub(super) index: LineIndex,
    /// How many entries are copied.
    pub(super) count: u64,
}

impl Fork<'_> {
    /// Reads all of the source, whose last `turn/end` is given, and shows what is copied to `replay`.
    pub(super) fn run(
        &self,
        scan: Scan<'_, impl Read>,
        last_turn_end: Option<u64>,
        replay: &SharedReplay,
    ) -> Result<Forked, SessionError> {
        let upto = self.at.or(last_turn_end);
        let mut replay = shown(replay);
        let Scanned { header, index, .. } = scan.run(
            |header| self.inherits(header),
            |mut entry| {
                if upto.is_some_and(|at| entry.seq <= at) {
                    entry.session = self.new.clone();
                    replay.entry(entry);
                }
            },
        )?;
        let at = self.place(upto, index.entries())?;
        let (agent, lineage) = self.heir;
        let header = SessionHeader {
            id: self.new.clone(),
            agent: agent.clone(),
            lineage: lineage.to_vec(),
            created: self.now_ms,
            parent: Some(self.id.clone()),
            forked_at: Some(at),
            host: super::this_host(),
            ..header
        };
        Ok(Forked { header, index, count: at + 1 })
    }

    fn inherits(&self, header: &SessionHeader) -> Result<(), SessionError> {
        let (agent, lineage) = self.heir;
        if lineage.contains(&header.agent) { Ok(()) } else { lines::owned(header, agent) }
    }

    fn place(&self, upto: Option<u64>, entries: u64) -> Result<u64, SessionError> {
        let bad = |at: String, problem: String| SessionError::BadFork { id: self.id.clone(), at, problem };
        match upto {
            Some(at) if at < entries => Ok(at),
            Some(at) => {
                let there = entries.checked_sub(1).map(|last| format!("its last entry is {last}"));
                Err(bad(at.to_string(), there.unwrap_or_else(|| "it has no entry".into())))
            }
            None => Err(bad(
                "its last `turn/end`".into(),
                format!("it has none; name a place with `--fork {}@SEQ`", self.id),
            )),
        }
    }
}
