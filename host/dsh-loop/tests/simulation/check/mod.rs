//! What must hold for every life of an agent, written from the specification of the lifecycle: it reads what the agent showed and
//! what was done to it, and knows nothing of the loop's own code.

mod calls;
mod endings;
mod live;
mod messages;
mod reasons;
mod sequence;
mod structure;
mod view;

use crate::record::Record;
use crate::run::Life;

pub use view::brief;

/// Whether an invariant holds; an error says where it does not.
pub type Verdict = Result<(), String>;

/// Looks at a life.
type Invariant = fn(&Life) -> Verdict;

/// All invariants, each with the name under which a violation is reported.
pub const INVARIANTS: &[(&str, Invariant)] = &[
    ("it comes to its end", endings::comes_to_its_end),
    ("nothing is left", endings::nothing_is_left),
    ("the log is contiguous and its time never goes back", sequence::contiguous),
    ("what is shown is what is logged, and nothing is cut off", sequence::shown_and_logged),
    ("turns and steps are opened and closed once, in order", structure::turns_and_steps),
    ("every call has one result, directly after its batch", calls::answered_in_order),
    ("what was not started did not run", calls::not_started),
    ("every question is decided, one at a time", endings::questions_are_decided),
    ("no message is lost or doubled", messages::accounted),
    ("steering is read in its turn", messages::steering_in_its_turn),
    ("steering waits when no step can follow", messages::no_steering_in_the_last_step),
    ("a live twin follows its event", live::twins),
    ("the life begins with `agent/created` and ends with `agent/disposed`", live::first_and_last),
    ("the status changes as it may, and idle means idle", live::statuses),
    ("an error is shown once", live::errors),
    ("the reason of a turn is the strongest", reasons::strongest),
    ("nothing is sent without a budget", reasons::budget_holds),
    ("nothing is read after an abort", reasons::abort_reads_nothing),
    ("no waterfall begins after the end", endings::no_waterfall_after_the_end),
    ("a turn is flushed before the next", endings::flushed),
    ("plugins hear of the end once", endings::detached),
    ("the model is sent what the log says", view::requests),
];

/// All that does not hold for a life.
pub fn violations(life: &Life) -> Vec<String> {
    INVARIANTS
        .iter()
        .filter_map(|(name, invariant)| invariant(life).err().map(|found| format!("{name}: {found}")))
        .collect()
}

/// Whether the session could not be written any more.
fn died(life: &Life) -> bool {
    life.records.iter().any(|record| record.is("agent/error") && record.text("code") == "session-write-failed")
}

/// Fails with `what` unless it holds.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// The place of the line that says that the agent is there: what is logged before it is a repair.
fn made_at(life: &Life) -> usize {
    life.records.iter().position(|record| record.is("made")).unwrap_or(life.records.len())
}

/// A record as it is named in a violation.
fn at(place: usize, record: &Record) -> String {
    format!("line {place}: {record}")
}
