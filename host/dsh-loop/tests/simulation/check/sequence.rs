//! The log as a sequence.

use super::{Verdict, at, ensure};
use crate::record::From;
use crate::run::Life;

/// Sequence numbers count from 0, time never goes back.
pub fn contiguous(life: &Life) -> Verdict {
    let mut last = 0;
    for (place, record) in life.log.iter().enumerate() {
        let From::Log { seq, time } = record.from else { return Err(at(place, record)) };
        ensure(seq == place as u64, || format!("a gap at {}", at(place, record)))?;
        ensure(time >= last, || format!("time goes back at {}", at(place, record)))?;
        last = time;
    }
    Ok(())
}

/// What was there when the agent took the log over is still there; what it logged since is what it showed.
pub fn shown_and_logged(life: &Life) -> Verdict {
    ensure(life.log.starts_with(&life.before), || "the log does not go on from where it was".into())?;
    let shown: Vec<_> = life.records.iter().filter(|record| record.is_logged()).collect();
    let logged: Vec<_> = life.log[life.before.len()..].iter().collect();
    match shown.iter().zip(&logged).position(|(shown, logged)| shown != logged) {
        Some(place) => Err(format!("shown {}, logged {}", shown[place], logged[place])),
        None => ensure(shown.len() == logged.len(), || format!("{} shown, {} logged", shown.len(), logged.len())),
    }
}
