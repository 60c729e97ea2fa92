//! How a call can fail, in types and in words. The engine's own words ("unreachable") never reach a person: what the guest printed last,
//! or the limit with its number, does.

use dsh_seam::{FailureKind, PluginError, PluginName, Seam};
use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap};

use crate::clock::Overrun;
use crate::convert::IllFormed;
use crate::handles::HandleError;
use crate::limiter::Refused;
use crate::limits::{ABORT_GRACE, Limits, MAX_MESSAGE_BYTES};
use crate::lists::Lists;
use crate::output::{OutputLimit, clean};
use crate::receipt::Verdict;
use crate::words::Failure;

/// A bound of the host that a guest ran into; it traps with this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Bound {
    #[error("it made more calls to the host than the limit `host-calls` of {0}")]
    HostCalls(u32),
    #[error("the process has as many plugin instances as it can have: {0}")]
    Room(u32),
    #[error("it has as many calls under way as the limit `leases` of {0}")]
    Leases(u32),
    #[error("it asked for more questions, programs, model calls and sub-agents than the limit `outside-calls` of {0}")]
    OutsideCalls(u32),
    #[error("it handed over a list of {items} items, more than the limit `list-items` of {limit}")]
    ListItems { items: usize, limit: u32 },
    #[error("it handed more data to the host than the limit `output-mib` of {0} MiB")]
    Output(u32),
    #[error("its calls nest deeper than the limit `stack-kib` of {0} KiB (recursion without end?)")]
    Stack(u32),
    #[error("it is made of more core instances than the limit `instances` of {0}")]
    Instances(u32),
    #[error("it has more memories than the limit `memories` of {0}")]
    Memories(u32),
    #[error("it has more tables than the limit `tables` of {0}")]
    Tables(u32),
}

impl Bound {
    /// Refuses a list in `value` that is too long; otherwise the length of the longest.
    pub(crate) fn check_lists(value: &impl Lists, limits: &Limits) -> Result<usize, Self> {
        let (items, limit) = (value.longest(), limits.list_items);
        if items > limit as usize { Err(Self::ListItems { items, limit }) } else { Ok(items) }
    }

    /// The bound behind an error of the engine.
    fn of(cause: &(dyn std::error::Error + 'static), limits: &Limits) -> Option<Self> {
        if let Some(bound) = cause.downcast_ref::<Self>() {
            return Some(bound.clone());
        }
        if matches!(cause.downcast_ref::<Trap>(), Some(Trap::StackOverflow)) {
            return Some(Self::Stack(limits.stack_kib));
        }
        if cause.downcast_ref::<OutputLimit>().is_some() {
            return Some(Self::Output(limits.output_mib));
        }
        // The engine has no types for these.
        let words = cause.to_string();
        let of_words = [
            ("fuel allocated for hostcalls", Self::Output(limits.output_mib)),
            ("instance count too high", Self::Instances(limits.instances)),
            ("memory count too high", Self::Memories(limits.memories)),
            ("table count too high", Self::Tables(limits.tables)),
        ];
        of_words.into_iter().find_map(|(said, bound)| words.contains(said).then_some(bound))
    }
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The guest broke off.
    Trap(String),
    /// It answered a failure of its own, or something the host cannot take.
    Error { code: Option<String>, message: String },
    /// It passed a limit.
    Limit(String),
    /// Its wall time ran out.
    Overtime(Overrun),
    /// It went on although its turn was aborted.
    Aborted,
}

impl Fault {
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self::Error { code: None, message: message.into() }
    }

    /// The guest answered a failure where that is not an answer but a failing.
    pub(crate) fn answered(failure: &Failure) -> Self {
        let message = if failure.code.is_empty() {
            failure.message.clone()
        } else {
            format!("{} (`{}`)", failure.message, failure.code)
        };
        Self::Error { code: Some(failure.code.clone()), message }
    }

    pub(crate) fn ill_formed(ill: &IllFormed) -> Self {
        Self::error(format!("it returned an ill-formed value: {ill}"))
    }

    /// What kind of failure it is, and in which words: the same wherever it is told.
    fn told(&self) -> (FailureKind, String) {
        let (kind, message) = match self {
            Self::Trap(message) => (FailureKind::Trap, message.clone()),
            Self::Error { message, .. } => (FailureKind::Error, message.clone()),
            Self::Limit(message) => (FailureKind::Limit, message.clone()),
            Self::Overtime(overrun) => (FailureKind::Limit, overrun.to_string()),
            Self::Aborted => {
                let grace = ABORT_GRACE.as_secs();
                let message = format!("it did not return within {grace} s after the turn was aborted and was stopped");
                (FailureKind::Limit, message)
            }
        };
        (kind, shorten(&clean_lines(&message)))
    }

    /// In the words of a receipt.
    pub(crate) fn words(&self) -> (Verdict, String) {
        let (kind, message) = self.told();
        let verdict = match (self, kind) {
            (Self::Aborted, _) => Verdict::Aborted,
            (_, FailureKind::Trap) => Verdict::Trap,
            (_, FailureKind::Limit) => Verdict::Limit,
            (_, FailureKind::Error | FailureKind::Missing) => Verdict::Failed,
        };
        (verdict, message)
    }

    /// In the words of the seam.
    pub(crate) fn into_error(self, plugin: &PluginName, seam: Seam) -> PluginError {
        let (kind, message) = self.told();
        let code = match self {
            Self::Error { code, .. } => code.map(|code| shorten(&clean(code.as_bytes()))),
            Self::Trap(_) | Self::Limit(_) | Self::Overtime(_) | Self::Aborted => None,
        };
        PluginError { plugin: plugin.clone(), seam, kind, message, code }
    }

    /// What an error of the engine means under `limits`. `refused` is what the limiter refused in this call, `lines` the guest's last
    /// lines.
    pub(crate) fn of(error: &wasmtime::Error, limits: &Limits, refused: Option<&Refused>, lines: &[String]) -> Self {
        for cause in error.chain() {
            match cause.downcast_ref::<Overrun>() {
                Some(overrun @ Overrun::Wall { .. }) => return Self::Overtime(*overrun),
                Some(overrun) => return Self::Limit(overrun.to_string()),
                None => {}
            }
            if let Some(bound) = Bound::of(cause, limits) {
                return Self::Limit(bound.to_string());
            }
            match cause.downcast_ref::<HandleError>() {
                Some(HandleError::Dead) => return Self::Trap(HandleError::Dead.to_string()),
                Some(many @ HandleError::TooMany(_)) => return Self::Limit(many.to_string()),
                None => {}
            }
            if matches!(cause.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full)) {
                return Self::Limit(HandleError::TooMany(limits.handles).to_string());
            }
            if let Some(full) = cause.downcast_ref::<PoolConcurrencyLimitError>() {
                return Self::Limit(format!("too many plugin instances at once: {full}"));
            }
        }
        if let Some(refused) = refused {
            return Self::Limit(refused.to_string());
        }
        Self::Trap(with_lines(&trap_words(error), lines))
    }
}

/// What a failure begins with that is the machine's and not the plugin's.
pub(crate) const NO_MEMORY: &str = "this machine gives it no memory";

/// Whether the system has no memory, or no address space, left.
fn is_memory(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::OutOfMemory)
        || cause.downcast_ref::<rustix::io::Errno>() == Some(&rustix::io::Errno::NOMEM)
}

/// A trap in words.
fn trap_words(error: &wasmtime::Error) -> String {
    if let Some(exit) = error.downcast_ref::<wasmtime_wasi::I32Exit>() {
        return format!("it exited with code {} in the middle of a call", exit.0);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::UnreachableCodeReached) => "it panicked or aborted".into(),
        Some(Trap::MemoryOutOfBounds) => "it accessed memory out of bounds".into(),
        Some(Trap::IntegerDivisionByZero) => "it divided by zero".into(),
        Some(Trap::CannotEnterComponent) => "it was called while it was still busy, or after it had failed".into(),
        Some(trap) => format!("it trapped: {trap}"),
        // The innermost cause is what happened; the outer ones say where in the engine.
        None if is_memory(error.root_cause()) => format!("{NO_MEMORY}: {}", error.root_cause()),
        None => format!("it broke off: {}", error.root_cause()),
    }
}

/// What stands between a failure and the guest's last lines.
pub(crate) const LAST_LINES: &str = "; its last lines: ";

fn with_lines(words: &str, lines: &[String]) -> String {
    if lines.is_empty() { words.to_owned() } else { format!("{words}{LAST_LINES}{}", lines.join(" | ")) }
}

fn clean_lines(text: &str) -> String {
    text.lines().map(|line| clean(line.as_bytes())).collect::<Vec<_>>().join(" ")
}

/// At most [`MAX_MESSAGE_BYTES`] of a text.
pub(crate) fn shorten(text: &str) -> String {
    if text.len() <= MAX_MESSAGE_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_MESSAGE_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_engine_become_words() {
        let check = |error: wasmtime::Error, expect: Fault| {
            assert_eq!(Fault::of(&error, &Limits::default(), None, &[]), expect)
        };
        check(Trap::UnreachableCodeReached.into(), Fault::Trap("it panicked or aborted".into()));
        check(
            wasmtime::Error::new(HandleError::Dead).context("error while executing"),
            Fault::Trap(HandleError::Dead.to_string()),
        );
        check(
            wasmtime::Error::new(Overrun::Cpu { name: "cpu-ms", ms: 5 }),
            Fault::Limit("it computed for longer than the limit `cpu-ms` of 5 ms".into()),
        );
        check(
            wasmtime::Error::new(Bound::HostCalls(3)),
            Fault::Limit("it made more calls to the host than the limit `host-calls` of 3".into()),
        );
        check(wasmtime_wasi::I32Exit(3).into(), Fault::Trap("it exited with code 3 in the middle of a call".into()));
    }

    #[test]
    fn the_last_lines_explain_a_trap() {
        let fault = Fault::of(
            &Trap::UnreachableCodeReached.into(),
            &Limits::default(),
            None,
            &["thread panicked at x.rs:1".into(), "no such rule".into()],
        );
        assert_eq!(
            fault,
            Fault::Trap("it panicked or aborted; its last lines: thread panicked at x.rs:1 | no such rule".into())
        );
    }

    #[test]
    fn a_refused_memory_explains_a_trap() {
        let refused = Refused::Memory { limit_mib: 64, wanted_mib: 100 };
        let fault = Fault::of(&Trap::UnreachableCodeReached.into(), &Limits::default(), Some(&refused), &[]);
        assert_eq!(fault, Fault::Limit("memory limit 64 MiB (`memory-mib`): it asked for 100 MiB".into()));
    }

    #[test]
    fn a_receipt_and_an_event_say_the_same() {
        let check = |fault: Fault, verdict: Verdict, kind: FailureKind, message: &str| {
            assert_eq!(fault.words(), (verdict, message.to_owned()));
            let error = fault.into_error(&PluginName::new("p").expect("a name"), Seam::Request);
            assert_eq!((error.kind, error.message.as_str()), (kind, message));
        };
        check(Fault::Trap("it panicked".into()), Verdict::Trap, FailureKind::Trap, "it panicked");
        check(Fault::error("no\nrule"), Verdict::Failed, FailureKind::Error, "no rule");
        check(Fault::Limit("too much".into()), Verdict::Limit, FailureKind::Limit, "too much");
        check(
            Fault::Aborted,
            Verdict::Aborted,
            FailureKind::Limit,
            "it did not return within 1 s after the turn was aborted and was stopped",
        );
    }

    #[test]
    fn messages_of_guests_are_bounded() {
        assert_eq!(shorten(&"ä".repeat(MAX_MESSAGE_BYTES)).len(), MAX_MESSAGE_BYTES + '…'.len_utf8());
    }
}
