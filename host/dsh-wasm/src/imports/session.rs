//! `dsh:session`: the log of the agent on whose behalf the plugin runs.

use dsh_seam::session::check_own_entry;

use crate::bindings::dsh::llm::llm_types::Failure as WitFailure;
use crate::bindings::dsh::session::{log, session_types};
use crate::clock::Wait;
use crate::convert;
use crate::grants::Grant;
use crate::limits::MIB;
use crate::store::GuestState;
use crate::words::{Entry, Failure};

/// Entries that one `read` returns at most.
const MAX_READ_ENTRIES: u32 = 10_000;
/// What an entry weighs, about.
const ENTRY_WEIGHT: usize = 4 * 1_024;
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
        let entries = match entries {
            Ok(entries) => entries,
            Err(failure) => return Ok(Err(convert::failure(failure))),
        };
        let weight = entries.len().saturating_mul(ENTRY_WEIGHT);
        let entries = Self::work(&self.clock, weight, move || entries.iter().map(entry).collect()).await;
        Ok(Ok(self.gives(entries)))
    }

    async fn append(&mut self, kind: String, data: String) -> wasmtime::Result<Result<u64, WitFailure>> {
        self.enter()?;
        self.takes(&(kind.as_str(), data.as_str()));
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
    check_own_entry(kind, data.len())?;
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
    fn an_entrys_data_is_json() {
        let code = |data: &str| check_entry("note", data).map_err(|failure| failure.code);
        assert_eq!(code("1"), Ok(serde_json::json!(1)));
        assert_eq!(code("{"), Err("invalid-argument".to_owned()));
        assert_eq!(check_entry("state", "{").map_err(|failure| failure.code), Err("invalid-argument".to_owned()));
    }
}
