//! New session ids, and the nearest one to an id that is not there.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use dsh_seam::SessionId;

/// How many letters of an id may be wrong for it to be suggested; more would suggest any id for any other.
const MAX_TYPOS: usize = 3;

/// Makes ULIDs, each larger than the one before.
#[derive(Debug, Default)]
pub(super) struct NewIds(Mutex<ulid::Generator>);

impl NewIds {
    pub(super) fn next(&self, now_ms: u64) -> SessionId {
        let mut generator = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ulid = match generator.generate_from_datetime(UNIX_EPOCH + Duration::from_millis(now_ms)) {
            Ok(ulid) => ulid,
            Err(overflow) => overflow.commit_overflow_increment(),
        };
        SessionId::new(ulid.to_string()).expect("invariant: a ULID is letters and digits")
    }
}

/// The id of `known` that was probably meant: the only one that begins so, else the one with the fewest letters wrong.
pub(super) fn nearest(asked: &str, known: impl IntoIterator<Item = SessionId>) -> Option<SessionId> {
    let mut begins: Vec<SessionId> = Vec::new();
    let mut best: Option<(usize, SessionId)> = None;
    let lower = asked.to_ascii_lowercase();
    for id in known {
        let candidate = id.as_str().to_ascii_lowercase();
        let typos = strsim::damerau_levenshtein(&lower, &candidate);
        if typos <= MAX_TYPOS.min(candidate.len() / 2) && best.as_ref().is_none_or(|(least, _)| typos < *least) {
            best = Some((typos, id.clone()));
        }
        if candidate.starts_with(&lower) {
            begins.push(id);
        }
    }
    match begins.len() {
        1 => begins.pop(),
        _ => best.map(|(_, id)| id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_id_is_suggested() {
        let known = ["01JAAAAAAA", "01JBBBBBBB", "notes"];
        let check = |asked: &str, expect: Option<&str>| {
            let ids = known.iter().map(|id| SessionId::new(id).unwrap());
            assert_eq!(nearest(asked, ids).as_ref().map(SessionId::as_str), expect, "{asked}");
        };
        check("01JAAAAAAB", Some("01JAAAAAAA"));
        check("01jbbbbbbb", Some("01JBBBBBBB"));
        check("01JB", Some("01JBBBBBBB"));
        check("ntoes", Some("notes"));
        check("01J", None);
        check("something-else", None);
    }

    #[test]
    fn ids_grow() {
        let ids = NewIds::default();
        let made: Vec<SessionId> = [5, 5, 4, 9].into_iter().map(|now_ms| ids.next(now_ms)).collect();
        assert!(made.is_sorted_by(|a, b| a < b), "{made:?}");
    }
}
