//! Why a component could not be compiled.

use std::fmt;

use super::{CompileBudget, MAX_CODE_BYTES, WALL_FACTOR};
use crate::limits::MIB;

/// Why a component could not be compiled. `Display` says what happened, [`CompileFault::hint`] what to try.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileFault {
    /// Compiling took too much, and was stopped.
    Limit {
        /// What there was too much of.
        limit: CompileLimit,
        /// What it was given.
        budget: CompileBudget,
        /// What it is given by default.
        usual: CompileBudget,
    },
    /// The compiler refuses the component.
    Component {
        /// What it said.
        detail: String,
    },
    /// The process that compiles ended without an answer, or with a wrong one.
    Broken {
        /// What is known of it.
        detail: String,
    },
    /// The process that compiles was killed, and not by this host.
    Killed,
    /// The process that compiles cannot be started.
    NotStarted {
        /// What the system said.
        detail: String,
    },
    /// Nobody waits for the result any more.
    Unwanted,
}

/// What compiling may take too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileLimit {
    /// Memory.
    Memory,
    /// Processor time.
    Cpu,
    /// Time.
    Wall,
    /// Machine code, the result.
    Code,
}

impl fmt::Display for CompileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { limit, budget, .. } => {
                write!(f, "it takes too much to compile: more than ")?;
                let CompileBudget { memory_mib, cpu_ms } = budget;
                match limit {
                    CompileLimit::Memory => write!(f, "{memory_mib} MiB of memory (`compile-memory-mib`)"),
                    CompileLimit::Cpu => write!(f, "{cpu_ms} ms of processor time (`compile-ms`)"),
                    CompileLimit::Wall => write!(
                        f,
                        "{} ms on the clock ({WALL_FACTOR} times `compile-ms`)",
                        u64::from(*cpu_ms) * u64::from(WALL_FACTOR)
                    ),
                    CompileLimit::Code => write!(f, "{} MiB of machine code", MAX_CODE_BYTES / MIB),
                }
            }
            Self::Component { detail } => write!(f, "the compiler refuses it: {detail}"),
            Self::Broken { detail } => write!(f, "the process that compiles it broke off: {detail}"),
            Self::Killed => write!(f, "the process that compiles it was killed"),
            Self::NotStarted { detail } => write!(f, "the process that compiles it cannot be started: {detail}"),
            Self::Unwanted => write!(f, "compiling it was given up"),
        }
    }
}

impl CompileFault {
    /// What to try, in one sentence.
    #[must_use]
    pub fn hint(&self) -> String {
        let most = |option: &str, now: u32, usual: u32| {
            let more = now.saturating_mul(4);
            if now < usual {
                return format!(
                    "this limit is lower than the default: leave `{option}` out, or allow more: `{option} {more}`"
                );
            }
            format!(
                "components of its size need far less, so it may be made to harm; if you trust it, allow more: `{option} {more}`"
            )
        };
        match self {
            Self::Limit { limit: CompileLimit::Memory, budget, usual } => {
                most("--compile-memory-mib", budget.memory_mib, usual.memory_mib)
            }
            Self::Limit { limit: CompileLimit::Cpu, budget, usual } => most("--compile-ms", budget.cpu_ms, usual.cpu_ms),
            Self::Limit { limit: CompileLimit::Wall, budget, .. } => format!(
                "if this machine is busy, try again or allow more time: `--compile-ms {}`",
                budget.cpu_ms.saturating_mul(4)
            ),
            Self::Limit { limit: CompileLimit::Code, .. } => "make the component smaller".into(),
            Self::Component { .. } => "build it again with current tools and against the WIT of this host".into(),
            Self::Broken { .. } => {
                "try again; if it happens again, the component sets off a fault of the compiler: do not use it, and report it".into()
            }
            Self::Killed => "if this machine ran out of memory (`dmesg` says so), free some and try again, or compile the plugin on a larger one with `dsh-host plugin compile`; else look at `ulimit -t`".into(),
            Self::NotStarted { .. } => "this program starts itself to compile: look at `ulimit -u`, `ulimit -n` and whether `/proc` is mounted".into(),
            Self::Unwanted => "try again".into(),
        }
    }
}
