//! Whether a session that is to go on holds messages that no turn has answered, found out without opening it.

use std::sync::{Arc, Mutex, PoisonError};

use dsh_loop::SessionChoice;
use dsh_seam::SessionId;
use dsh_seam::event::{Entry, Event};
use dsh_seam::session::{Replay, SessionError, Sessions};

use crate::resolve::Plan;

/// Whether the run's session holds any.
pub async fn any(plan: &Plan, sessions: &dyn Sessions) -> Result<bool, SessionError> {
    match &plan.session {
        SessionChoice::New | SessionChoice::Named(_) => Ok(false),
        SessionChoice::Resume(id) => Ok(read(id, None, sessions).await?.now),
        SessionChoice::Continue => {
            let id = sessions.newest(&plan.prompted().id, &plan.workspace.to_string_lossy()).await?;
            Ok(read(&id, None, sessions).await?.now)
        }
        SessionChoice::Fork { id, at: Some(at) } => Ok(read(id, Some(*at), sessions).await?.now),
        SessionChoice::Fork { id, at: None } => Ok(read(id, None, sessions).await?.at_turn_end),
    }
}

async fn read(id: &SessionId, upto: Option<u64>, sessions: &dyn Sessions) -> Result<Unanswered, SessionError> {
    let unanswered = Arc::new(Mutex::new(Unanswered { upto, ..Unanswered::default() }));
    sessions.replay(id, false, unanswered.clone()).await?;
    let unanswered = unanswered.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(*unanswered)
}

/// A message is answered by the turn that starts after it.
#[derive(Clone, Copy, Default)]
struct Unanswered {
    /// The last entry that counts.
    upto: Option<u64>,
    now: bool,
    /// Whether there were any at the last `turn/end`, where a copy ends.
    at_turn_end: bool,
}

impl Replay for Unanswered {
    fn entry(&mut self, entry: Entry) {
        if self.upto.is_some_and(|upto| entry.seq > upto) {
            return;
        }
        match entry.event {
            Event::UserMessage(_) => self.now = true,
            Event::TurnStart(_) => self.now = false,
            Event::TurnEnd(_) => self.at_turn_end = self.now,
            _ => {}
        }
    }
}
