//! `dsh:session`: the log of the agent on whose behalf the plugin runs.

use crate::bindings::dsh::llm::llm_types::Failure as WitFailure;
use crate::bindings::dsh::session::{log, session_types};
use crate::clock::Wait;
use crate::convert;
use crate::grants::Grant;
use crate::limits::MIB;
use crate::store::GuestState;
use crate::words::{Entry, Failure};

/// The longest kind of an entry.
const MAX_KIND_BYTES: usize = 128;
/// The data of one entry.
const MAX_ENTRY_BYTES: usize = MIB;
/// Entries that one `read` returns at most.
const MAX_READ_ENTRIES: u32 = 10_000;
/// Text that one `read` returns at most: a part of a guest's memory.
const MAX_READ_BYTES: usize = 4 * MIB;

impl session_types::Host for GuestState {}

impl log::Host for GuestState {
    async fn read(
        &mut self,
        start: u64,
        limit: u32,
    ) -> wasmtime::Result<Result<Vec<session_types::Entry>, WitFailure>> {
        self.enter()?;
        let session = match self.granted(Grant::Session).await {
            Ok(session) => session,
            Err(refused) => return Ok(Err(refused)),
        };
        let limit = limit.min(MAX_READ_ENTRIES);
        let entries = Self::waiting(&self.clock, Wait::Counted, session.read_log(start, limit, MAX_READ_BYTES)).await;
        Ok(entries.map(|entries| entries.iter().map(entry).collect()).map_err(convert::failure))
    }

    async fn append(&mut self, kind: String, data: String) -> wasmtime::Result<Result<u64, WitFailure>> {
        self.enter()?;
        let session = match self.granted(Grant::Session).await {
            Ok(session) => session,
            Err(refused) => return Ok(Err(refused)),
        };
        let bytes = data.len();
        let data = match check_entry(&kind, &data) {
            Ok(data) => data,
            Err(failure) => return Ok(Err(convert::failure(failure))),
        };
        if let Err(limit) = self.hand_over(kind.len() + bytes) {
            return Ok(Err(limit));
        }
        let depth = self.call.depth;
        let appended = Self::waiting(&self.clock, Wait::Counted, session.append_log(&kind, data, depth)).await;
        Ok(appended.map_err(convert::failure))
    }
}

fn check_entry(kind: &str, data: &str) -> Result<serde_json::Value, Failure> {
    let word = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if kind.len() > MAX_KIND_BYTES || kind == "state" || !kind.split('/').all(word) {
        let rule =
            format!("use lower-case words with `-`, joined by `/`, at most {MAX_KIND_BYTES} bytes, and not `state`");
        return Err(Failure::invalid_argument(format!(
            "`{}` is no kind of entry: {rule}",
            crate::fault::shorten(kind)
        )));
    }
    if data.len() > MAX_ENTRY_BYTES {
        return Err(Failure::new(
            "limit",
            format!("the entry's data has {} bytes, an entry may have {MAX_ENTRY_BYTES}", data.len()),
        ));
    }
    serde_json::from_str(data).map_err(|error| Failure::invalid_argument(format!("`data` is not valid JSON: {error}")))
}

/// An entry as a guest sees it.
pub(crate) fn entry(entry: &Entry) -> session_types::Entry {
    let data = serde_json::to_string(&entry.event).expect("our own types have string keys and finite numbers");
    session_types::Entry { seq: entry.seq, time_ms: entry.time_ms, kind: entry.event.kind().to_string(), data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_entries_are_checked() {
        let check = |kind: &str, data: &str, expect: Result<(), &str>| {
            assert_eq!(
                check_entry(kind, data).map(drop).map_err(|failure| failure.code),
                expect.map_err(str::to_owned),
                "{kind} {data}"
            );
        };
        check("note", "{}", Ok(()));
        check("rule/matched-2", "1", Ok(()));
        check("state", "{}", Err("invalid-argument"));
        check("Note", "{}", Err("invalid-argument"));
        check("a//b", "{}", Err("invalid-argument"));
        check("", "{}", Err("invalid-argument"));
        check("note", "{", Err("invalid-argument"));
        check("note", &format!("\"{}\"", "x".repeat(MAX_ENTRY_BYTES)), Err("limit"));
    }
}
