//! The service `sessions`: logs in files ([`FileSessions`]), in memory ([`MemorySessions`]), or from files with the new part in
//! memory ([`Unsaved`]).
//!
//! A log is a header line and one line per entry. `lines` reads and copies them, `buffer` keeps them in memory with an index,
//! `writer` brings them into a file: nothing before the first append, then the whole file under a temporary name, then a rename.
//! There is one writer per log: the lock is on the file itself, for as long as it is open. `requests` rebuilds what the model was shown.

mod buffer;
mod files;
mod ids;
mod lines;
mod memory;
mod requests;
mod unsaved;
mod writer;

pub use files::FileSessions;
pub use lines::MAX_LINE_BYTES;
pub use memory::MemorySessions;
pub use requests::{RebuiltRequest, Requests};
pub use unsaved::Unsaved;

use dsh_seam::SessionId;
use dsh_seam::session::{NewSession, SESSION_VERSION, SessionHeader};

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
        parent: None,
        forked_at: None,
        lineage: new.lineage,
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
