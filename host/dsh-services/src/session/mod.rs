//! The service `sessions`: logs in files ([`FileSessions`]), in memory ([`MemorySessions`]), or from files with the new part in
//! memory ([`Unsaved`]).
//!
//! A log is a header line and one line per entry. `lines` writes them, `scan` reads a whole log in pieces and shows it entry by entry,
//! `tail` reads its end, `buffer` keeps what is not in a file and the index by which entries are found, `fork` copies, `writer` brings
//! lines into a file: nothing before the first append, then the whole file under a temporary name, then a rename.
//! There is one writer per log: the lock is on the file itself, for as long as it is open. `requests` rebuilds what the model was shown,
//! `prefixes` compares each request with the one before.

mod buffer;
mod files;
mod fork;
mod ids;
mod lines;
mod memory;
mod prefixes;
mod requests;
mod scan;
mod tail;
mod unsaved;
mod writer;

pub use files::FileSessions;
pub use lines::MAX_LINE_BYTES;
pub use memory::MemorySessions;
pub use prefixes::{
    Break, Breaks, Change, Culprit, FORGOTTEN_AFTER_MS, Kind, Place, Prefixes, RequestPrefix, SamplingChange,
    SectionChange, Size, Summary,
};
pub use requests::{RebuiltRequest, Requests};
pub use unsaved::Unsaved;

use std::ops::ControlFlow;
use std::sync::{MutexGuard, PoisonError};

use dsh_seam::SessionId;
use dsh_seam::event::Entry;
use dsh_seam::session::{NewSession, Replay, SESSION_VERSION, SessionHeader, SharedReplay};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// The replay, for as long as a log is read.
fn shown(replay: &SharedReplay) -> MutexGuard<'_, dyn Replay + 'static> {
    replay.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows it an entry; whether it wants more.
fn see(replay: &mut dyn Replay, entry: Entry) -> ControlFlow<()> {
    replay.entry(entry);
    if replay.wants_more() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Does `work`, which reads or writes a whole log, without holding up what else runs on this thread.
fn may_block<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(work),
        // There is nobody to take over.
        _ => work(),
    }
}

/// Who writes a log.
fn this_host() -> String {
    concat!("dsh-host ", env!("CARGO_PKG_VERSION")).into()
}

/// The header of a session that begins now.
fn header(id: SessionId, new: NewSession, now_ms: u64) -> SessionHeader {
    SessionHeader {
        version: SESSION_VERSION,
        id,
        agent: new.agent,
        workspace: new.workspace,
        model: new.model,
        host: this_host(),
        created: now_ms,
        parent: new.parent,
        forked_at: None,
        lineage: new.lineage,
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
