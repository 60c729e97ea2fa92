//! Handles that a guest holds on things of the host: the request being shaped, the rest of a waterfall, an outcome.
//!
//! A handle belongs to the call that got it. Numbers are never used twice in the life of an instance, so a handle that a guest kept is
//! dead: using it traps, and it cannot come to name a thing of the next call.

use std::sync::Arc;

use crate::words::{
    Execution, FailedRequest, Message, Next, Outcome, Profile, Request, RequestDraft, RequestError, StepResult,
    ToolsExecute, TurnContinuation,
};
use wasmtime::component::Resource;

/// `dsh:agent/agent-types.llm-request`.
pub struct LlmRequest(pub(crate) Arc<RequestDraft>);
/// `dsh:agent/agent-types.request-next`.
pub struct RequestNext(pub(crate) Next<Request>, pub(crate) Arc<RequestDraft>);
/// `dsh:agent/agent-types.request-error-next`, with what failed.
pub struct RequestErrorNext(pub(crate) Next<RequestError>, pub(crate) FailedRequest);
/// `dsh:agent/agent-types.step-result-next`, with the message that the listener was given.
pub struct StepResultNext(pub(crate) Next<StepResult>, pub(crate) Arc<Message>);
/// `dsh:agent/agent-types.turn-continuation-next`.
pub struct TurnContinuationNext(pub(crate) Next<TurnContinuation>);
/// `dsh:tools/tool-types.execute-next`, with what the listener was given and the profile that it has narrowed so far.
pub struct ExecuteNext {
    pub(crate) next: Next<ToolsExecute>,
    pub(crate) given: Execution,
    pub(crate) profile: Arc<Profile>,
}
/// `dsh:tools/tool-types.tool-outcome`.
pub struct ToolOutcome(pub(crate) Arc<Outcome>);

/// One of them.
pub(crate) enum Handle {
    Request(LlmRequest),
    RequestNext(RequestNext),
    RequestErrorNext(RequestErrorNext),
    StepResultNext(StepResultNext),
    TurnContinuationNext(TurnContinuationNext),
    ExecuteNext(Box<ExecuteNext>),
    Outcome(ToolOutcome),
}

/// A thing behind a handle.
pub(crate) trait Behind: Sized + 'static {
    fn put(self) -> Handle;
    fn get(handle: &mut Handle) -> Option<&mut Self>;
}

macro_rules! behind {
    ($($ty:ident => $case:ident),* $(,)?) => {$(
        impl Behind for $ty {
            fn put(self) -> Handle {
                Handle::$case(self)
            }
            fn get(handle: &mut Handle) -> Option<&mut Self> {
                match handle {
                    Handle::$case(it) => Some(it),
                    _ => None,
                }
            }
        }
    )*};
}

behind! {
    LlmRequest => Request,
    RequestNext => RequestNext,
    RequestErrorNext => RequestErrorNext,
    StepResultNext => StepResultNext,
    TurnContinuationNext => TurnContinuationNext,
    ToolOutcome => Outcome,
}

impl Behind for ExecuteNext {
    fn put(self) -> Handle {
        Handle::ExecuteNext(Box::new(self))
    }
    fn get(handle: &mut Handle) -> Option<&mut Self> {
        match handle {
            Handle::ExecuteNext(it) => Some(it),
            _ => None,
        }
    }
}

/// A handle was used that the guest may not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandleError {
    #[error("a handle of an earlier call was used: a handle is good until the call that got it returns")]
    Dead,
    #[error("it holds more handles than the limit `handles` of {0}")]
    TooMany(u32),
}

/// The handles of one instance.
pub(crate) struct Handles {
    /// How many may be held at once.
    most: u32,
    /// The number of the first handle of this call.
    base: u32,
    entries: Vec<Option<Handle>>,
    /// Handles that the guest has not dropped, of this and earlier calls.
    held: u32,
}

impl Handles {
    /// None yet, and at most so many at once.
    pub(crate) fn new(most: u32) -> Self {
        Self { most, base: 0, entries: Vec::new(), held: 0 }
    }

    /// Hands a thing to the guest.
    pub(crate) fn give<T: Behind>(&mut self, thing: T) -> Result<Resource<T>, HandleError> {
        let too_many = HandleError::TooMany(self.most);
        let number = self.base.checked_add(u32::try_from(self.entries.len()).unwrap_or(u32::MAX)).ok_or(too_many)?;
        if self.held >= self.most {
            return Err(too_many);
        }
        self.held += 1;
        self.entries.push(Some(thing.put()));
        Ok(Resource::new_own(number))
    }

    fn entry(&mut self, number: u32) -> Option<&mut Option<Handle>> {
        self.entries.get_mut(number.checked_sub(self.base)? as usize)
    }

    /// What a handle of this call stands for.
    pub(crate) fn get<T: Behind>(&mut self, handle: &Resource<T>) -> Result<&mut T, HandleError> {
        self.entry(handle.rep()).and_then(Option::as_mut).and_then(T::get).ok_or(HandleError::Dead)
    }

    /// The guest dropped a handle, or passed it back.
    pub(crate) fn dropped(&mut self, number: u32) {
        self.held = self.held.saturating_sub(1);
        if let Some(entry) = self.entry(number) {
            *entry = None;
        }
    }

    /// The call is over: its handles are dead. False when the numbers run low and the instance should not be used again.
    pub(crate) fn end_call(&mut self) -> bool {
        self.base = self.base.saturating_add(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        self.entries.clear();
        self.base < u32::MAX / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> ToolOutcome {
        ToolOutcome(Arc::new(Outcome::text(text)))
    }

    #[test]
    fn a_kept_handle_is_dead_in_the_next_call() {
        let mut handles = Handles::new(9);
        let first = handles.give(outcome("first")).expect("there is room");
        assert_eq!(handles.get(&first).map(|it| it.0.bytes()), Ok(5));
        assert!(handles.end_call());
        let second = handles.give(outcome("second")).expect("there is room");
        assert_eq!(handles.get(&first).err(), Some(HandleError::Dead));
        assert_eq!(handles.get(&second).map(|it| it.0.bytes()), Ok(6));
    }

    #[test]
    fn a_dropped_handle_is_dead() {
        let mut handles = Handles::new(9);
        let handle = handles.give(outcome("x")).expect("there is room");
        handles.dropped(handle.rep());
        assert_eq!(handles.get(&handle).err(), Some(HandleError::Dead));
    }

    #[test]
    fn handles_that_are_never_dropped_run_out() {
        let mut handles = Handles::new(9);
        for _ in 0..9 {
            handles.give(outcome("x")).expect("there is room");
            handles.end_call();
        }
        assert_eq!(handles.give(outcome("x")).err(), Some(HandleError::TooMany(9)));
    }
}
