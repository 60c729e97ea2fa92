//! Keeps the handles of its first request beyond the call that got them, and uses them in the next: that has to trap, and must not
//! reach the request of that next call.

use dsh_sdk::bindings::request;
use dsh_sdk::{Failure, LlmRequest, Message, RequestNext, Step};
use std::cell::RefCell;

thread_local! {
    static KEPT: RefCell<Option<(LlmRequest, RequestNext)>> = const { RefCell::new(None) };
}

struct Keeper;

/// By hand instead of by the kit's traits, since those lend the handles only.
impl request::exports::dsh::agent::request::Guest for Keeper {
    fn handle(_at: Step, request: LlmRequest, next: RequestNext) -> Result<(), Failure> {
        if let Some((kept, _next)) = KEPT.take() {
            kept.splice(0, 0, &[Message::user("through a kept handle")])?;
            return kept.set_system("through a kept handle");
        }
        let outcome = next.run();
        KEPT.set(Some((request, next)));
        outcome
    }
}

request::export!(Keeper with_types_in dsh_sdk::bindings::request);
