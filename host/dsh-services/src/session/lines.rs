//! The lines of a log as they are written, and its first line as it is read.

use std::borrow::Cow;
use std::io;

use dsh_seam::event::Entry;
use dsh_seam::session::{SESSION_VERSION, SessionError, SessionHeader};
use dsh_seam::{AgentId, SessionId};
use serde::Deserialize;

/// The longest line of a log, in bytes: no event is larger, and a reader may rely on it.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// The line of `entry`, with its newline; `seq` is the number it must have. [`io::ErrorKind::InvalidInput`]: it is too long.
pub(super) fn line_of(entry: &Entry, seq: u64) -> io::Result<Vec<u8>> {
    if entry.seq != seq {
        return Err(io::Error::other(format!("entry {} cannot be appended where {seq} is next", entry.seq)));
    }
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    if line.len() > MAX_LINE_BYTES {
        let problem = format!("an event of {} bytes is over the limit of {MAX_LINE_BYTES}", line.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(line)
}

/// The line of a header, without its newline.
pub(super) fn header_line(header: &SessionHeader) -> Vec<u8> {
    serde_json::to_vec(header).expect("invariant: a header is plain data and serializes")
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// Reads the first line of a log.
pub(super) fn parse_header(id: &SessionId, line: &[u8]) -> Result<SessionHeader, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("no header: not UTF-8: {error}"))?;
    let kind: Kind<'_> = serde_json::from_str(text).map_err(|error| format!("no header: {error}"))?;
    if kind.kind != "session/header" {
        return Err(format!("no header: its `type` is `{}`, not `session/header`", kind.kind));
    }
    let header: SessionHeader = serde_json::from_str(text).map_err(|error| format!("no header: {error}"))?;
    if header.version != SESSION_VERSION {
        return Err(format!("its format has version {}, this host reads version {SESSION_VERSION}", header.version));
    }
    if header.id != *id {
        return Err(format!("the header is that of session `{}`", header.id));
    }
    Ok(header)
}

/// Refuses another agent's session.
pub(super) fn owned(header: &SessionHeader, agent: &AgentId) -> Result<(), SessionError> {
    if header.agent == *agent {
        return Ok(());
    }
    Err(SessionError::OtherAgent { id: header.id.clone(), owner: header.agent.clone(), asked: agent.clone() })
}
