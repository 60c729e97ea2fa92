//! Context from outside: logged at once while no step is open, and otherwise held for the step's end, so that nothing ever stands between
//! a call and its result.

use std::collections::VecDeque;
use std::sync::PoisonError;

use dsh_seam::event::{Event, Status, UserMessage};
use dsh_seam::failure::Failure;
use dsh_seam::waterfall::RunError;

use crate::core::Core;
use crate::inbox::{MAX_BYTES, MAX_MESSAGES};
use crate::queued::Queued;
use crate::sync::{Mutex, MutexGuard};
use crate::under_way::{Begun, UnderWay};

impl Core {
    /// Takes context in: held while a step is open, logged at once otherwise, and made durable while no turn is open.
    pub(crate) async fn inject(&self, message: Queued) -> Result<(), Failure> {
        if self.inbox.status() == Status::Disposed {
            return Err(Failure::new("disposed", "the agent is disposed and takes no more messages"));
        }
        let Some(logging) = self.held.enter(&message)? else { return Ok(()) };
        let (content, source) = message.into_parts();
        let event = Event::ContextMessage(UserMessage { content, source });
        self.journal.append_whole(event, 0).await.map_err(|error| error.to_failure())?;
        drop(logging);
        if self.inbox.status() == Status::Idle {
            self.journal.flush().await.map_err(|message| Failure::new("flush-failed", message))?;
        }
        Ok(())
    }

    /// Logs the context that is held for the end of the open step, which closes here.
    pub(crate) async fn log_held(&self) -> Result<(), RunError> {
        while let Some(message) = self.held.next_or_close() {
            let (content, source) = message.into_parts();
            let event = Event::ContextMessage(UserMessage { content, source });
            self.log_message(event, || self.held.taken()).await?;
        }
        Ok(())
    }
}

/// Context that waits for the end of the open step, and the gate that keeps it out of one.
#[derive(Default)]
pub(crate) struct HeldContext {
    gate: Mutex<Gate>,
    /// Context that is being logged outside of a step.
    logging: UnderWay,
}

#[derive(Default)]
struct Gate {
    step_open: bool,
    held: VecDeque<Queued>,
    /// Messages and bytes taken in since the last step closed.
    taken: usize,
    bytes: usize,
}

impl HeldContext {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `message` for the open step's end; otherwise the caller logs it while it holds what this returns, and a step that opens
    /// waits for that. Refused beyond the bounds of the inbox: observers that answer context with context would never end.
    fn enter(&self, message: &Queued) -> Result<Option<Begun>, Failure> {
        let mut gate = self.gate();
        let bytes = gate.bytes + message.bytes();
        if gate.taken >= MAX_MESSAGES || bytes > MAX_BYTES {
            return Err(Failure::new(
                "limit",
                format!(
                    "too much context: at most {MAX_MESSAGES} messages and {MAX_BYTES} bytes are taken until a step ends"
                ),
            ));
        }
        gate.taken += 1;
        gate.bytes = bytes;
        if gate.step_open {
            gate.held.push_back(message.clone());
            return Ok(None);
        }
        // Under the lock: a step that opens either finds it, or is found by it.
        Ok(Some(self.logging.begin()))
    }

    /// A step opens: from here on context is held. Waits for what is being logged.
    pub(crate) async fn step_opens(&self) {
        self.gate().step_open = true;
        self.logging.over().await;
    }

    /// The next one held, or the step's end when there is none.
    fn next_or_close(&self) -> Option<Queued> {
        let mut gate = self.gate();
        let next = gate.held.front().cloned();
        if next.is_none() {
            (gate.step_open, gate.taken, gate.bytes) = (false, 0, 0);
        }
        next
    }

    /// The next one is in the log, or known to be lost.
    fn taken(&self) {
        self.gate().held.pop_front();
    }

    /// How many are held for a step that will not end any more: the log takes no more.
    pub(crate) fn left(&self) -> usize {
        self.gate().held.len()
    }
}
