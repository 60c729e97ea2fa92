//! What a plugin may use: the limits an operator can set, all in one table, and the host's own bounds beside them.

use std::time::Duration;

/// Core instances that a component may be made of at most; a larger one does not fit into the pool.
pub(crate) const MOST_INSTANCES: u32 = 1_000;
/// Linear memories that an instance may have at most: each takes one of the pool's places, of which there are [`MAX_POOLED`].
pub(crate) const MOST_MEMORIES: u32 = 64;
/// Tables that an instance may have at most; a larger number does not fit into the pool.
pub(crate) const MOST_TABLES: u32 = 256;
/// Elements that a table may have at most: eight bytes each, and the pool reserves address space for as many in each of its tables.
pub(crate) const MOST_TABLE_ELEMENTS: u32 = 1_000_000;

/// One limit: its key, what it bounds and which values can be enforced.
#[derive(Debug)]
pub struct Limit {
    /// As in `limits = { … }` and in `--limit NAME=KEY=VALUE`.
    pub key: &'static str,
    /// What it bounds, in one line.
    pub about: &'static str,
    /// What holds when nothing is said.
    pub default: u32,
    /// The least that can be enforced.
    pub least: u32,
    /// The most that can be enforced.
    pub most: u32,
    /// Why it is no less and no more.
    pub why: &'static str,
    field: fn(&mut Limits) -> &mut u32,
}

macro_rules! limits {
    ($($field:ident = $key:literal, $default:literal, $least:literal..=$most:expr, $about:literal, $why:literal;)*) => {
        /// The limits of one plugin. Each is for one call, except where it says something else.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Limits {
            $(#[doc = concat!("`", $key, "`: ", $about, ".")] pub $field: u32,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Limits {
            /// Every limit, in the order of the documentation.
            pub const ALL: &'static [Limit] = &[$(Limit {
                key: $key,
                about: $about,
                default: $default,
                least: $least,
                most: $most,
                why: $why,
                field: |limits| &mut limits.$field,
            },)*];
            /// The keys of [`Limits::ALL`].
            pub const KEYS: &'static [&'static str] = &[$($key,)*];
        }
    };
}

limits! {
    memory_mib = "memory-mib", 64, 1..=4_096,
        "linear memory of an instance, all its memories together",
        "a guest has 32-bit addresses and cannot use more than 4 GiB";
    memories = "memories", 8, 1..=MOST_MEMORIES,
        "linear memories of an instance",
        "every guest has one, and each takes a place of the engine's pool";
    table_elements = "table-elements", 100_000, 1..=MOST_TABLE_ELEMENTS,
        "elements of an instance's tables, all together",
        "the engine's pool has room for so many";
    tables = "tables", 32, 1..=MOST_TABLES,
        "tables of an instance",
        "the engine's pool has room for so many";
    instances = "instances", 100, 1..=MOST_INSTANCES,
        "core instances that an instance is made of",
        "every component has one, and the engine's pool has room for so many";
    stack_kib = "stack-kib", 512, 16..=16_384,
        "the guest's call stack",
        "with less no guest starts, and more address space than this is not reserved for each call";
    cpu_ms = "cpu-ms", 500, 5..=86_400_000,
        "time that the guest itself computes",
        "the clock of a computing guest is looked at every 5 ms, and no call may take more than a day";
    wall_ms = "wall-ms", 30_000, 5..=86_400_000,
        "time from call to return, except inside `next`, an approval, a process, a model call and a sub-agent",
        "the clock of a computing guest is looked at every 5 ms, and no call may take more than a day";
    tool_cpu_ms = "tool-cpu-ms", 60_000, 5..=86_400_000,
        "`cpu-ms` inside `call-tool`",
        "the clock of a computing guest is looked at every 5 ms, and no call may take more than a day";
    tool_wall_ms = "tool-wall-ms", 600_000, 5..=86_400_000,
        "`wall-ms` inside `call-tool`",
        "the clock of a computing guest is looked at every 5 ms, and no call may take more than a day";
    output_mib = "output-mib", 16, 1..=4_096,
        "what the guest hands to the host: its answer, the arguments of one import, its log entries and messages together, its output streams together",
        "a guest has 32-bit addresses and cannot hand over more than 4 GiB";
    list_items = "list-items", 100_000, 1..=10_000_000,
        "items of one list that the guest hands to the host",
        "a longer list would hold its thread for longer than the other agents may wait";
    state_mib = "state-mib", 16, 1..=4_096,
        "all that the plugin keeps in `state` in one session, keys and values together",
        "what is kept is in memory";
    host_calls = "host-calls", 1_000_000, 1..=1_000_000_000,
        "calls to the host",
        "at 100 ns each, more take minutes, and `cpu-ms` bounds them";
    handles = "handles", 4_096, 2..=1_000_000,
        "handles that an instance holds at once: of this host, and as many of WASI",
        "a listener is given two, and each costs the host memory";
    log_lines = "log-lines", 1_000, 1..=1_000_000,
        "lines that go to the diagnostics, by `log` and by the output streams; what is over is dropped and counted",
        "to hear nothing of a plugin, use a filter in `DSH_LOG`";
    log_kib = "log-kib", 1_024, 1..=1_048_576,
        "bytes of those lines; what is over is dropped and counted",
        "to hear nothing of a plugin, use a filter in `DSH_LOG`";
    progress_reports = "progress-reports", 10_000, 1..=1_000_000,
        "reports of progress; what is over is dropped",
        "each is an event";
    requests = "requests", 1_000, 1..=1_000_000,
        "outgoing HTTP requests, redirects that the guest follows included",
        "to allow none, grant no `net:`";
    outside_calls = "outside-calls", 1_000, 1..=1_000_000,
        "questions to the person, programs, model calls and sub-agents, all together",
        "to allow none, grant none of `approval`, `process`, `llm` and `agents`";
    leases = "leases", 32, 1..=MAX_CALLS,
        "calls of the plugin that are under way at once for one agent: nested ones, and tools that run in parallel",
        "one plugin of one agent may take half of the engine's pool, which has room for 512 instances";
}

/// Two limits of which the first never bites when it is more than `times` the second.
struct Beside {
    key: &'static str,
    other: &'static str,
    times: u32,
    why: &'static str,
}

const BESIDE: [Beside; 6] = [
    Beside { key: "cpu-ms", other: "wall-ms", times: 1, why: "computing is part of the time from call to return" },
    Beside {
        key: "tool-cpu-ms",
        other: "tool-wall-ms",
        times: 1,
        why: "computing is part of the time from call to return",
    },
    Beside {
        key: "log-kib",
        other: "log-lines",
        times: (MAX_LOG_LINE_BYTES / 1024) as u32,
        why: "a line keeps 4 KiB at most",
    },
    Beside { key: "progress-reports", other: "host-calls", times: 1, why: "each report is a call to the host" },
    Beside { key: "requests", other: "host-calls", times: 1, why: "each request takes calls to the host" },
    Beside { key: "outside-calls", other: "host-calls", times: 1, why: "each request takes calls to the host" },
];

/// A limit that cannot be enforced. `Display` says what is wrong, [`LimitError::hint`] why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitError {
    /// There is no such limit.
    Unknown(String),
    /// It is too small or too large.
    Range {
        /// Which.
        key: &'static str,
        /// As written.
        value: i64,
        /// The least that can be enforced.
        least: u32,
        /// The most that can be enforced.
        most: u32,
        /// Why.
        why: &'static str,
    },
    /// Another limit is reached before it in every case.
    NeverBites {
        /// Which.
        key: &'static str,
        /// Its value.
        value: u32,
        /// The other one.
        other: &'static str,
        /// The other one's value.
        other_value: u32,
        /// The most that it can be beside the other one.
        most: u32,
        /// Why.
        why: &'static str,
    },
}

impl LimitError {
    /// Which limit it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Unknown(key) => key,
            Self::Range { key, .. } | Self::NeverBites { key, .. } => key,
        }
    }

    /// Why, and what to do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown(_) => "`dsh-host config schema` lists the limits".into(),
            Self::Range { why, .. } => (*why).into(),
            Self::NeverBites { key, other, why, most, .. } => {
                format!("{why}: set `{key}` to {most} or less, or raise `{other}`")
            }
        }
    }
}

impl std::fmt::Display for LimitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(key) => write!(f, "unknown limit `{key}`"),
            Self::Range { key, value, least, most, .. } => {
                write!(f, "the limit `{key}` cannot be {value}: it takes {least} to {most}")
            }
            Self::NeverBites { key, value, other, other_value, .. } => {
                write!(f, "the limit `{key}` of {value} can never bite beside `{other}` of {other_value}")
            }
        }
    }
}

impl std::error::Error for LimitError {}

impl Limits {
    /// Sets the limit `key`.
    ///
    /// # Errors
    /// When there is no such limit, or it could not be enforced.
    pub fn set(&mut self, key: &str, value: i64) -> Result<(), LimitError> {
        let Some(limit) = Self::ALL.iter().find(|limit| limit.key == key) else {
            return Err(LimitError::Unknown(key.to_owned()));
        };
        *(limit.field)(self) = limit.checked(value)?;
        Ok(())
    }

    /// Whether each of the limits in `declared` can bite beside the others.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check_beside(mut self, declared: &[&str]) -> Result<(), LimitError> {
        for Beside { key, other, times, why } in BESIDE {
            let (value, other_value) = (self.value(key), self.value(other));
            let most = other_value.saturating_mul(times);
            if declared.contains(&key) && value > most {
                return Err(LimitError::NeverBites { key, value, other, other_value, most, why });
            }
        }
        Ok(())
    }

    /// Whether every limit can be enforced.
    pub(crate) fn check(mut self) -> Result<(), LimitError> {
        Self::ALL.iter().try_for_each(|limit| limit.checked((*(limit.field)(&mut self)).into()).map(|_| ()))
    }

    fn value(&mut self, key: &str) -> u32 {
        let limit = Self::ALL.iter().find(|limit| limit.key == key);
        *(limit.expect("invariant: a test looks every key up").field)(self)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_mib as usize * MIB
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output_mib as usize * MIB
    }

    pub(crate) fn state_bytes(&self) -> usize {
        self.state_mib as usize * MIB
    }

    /// The two clocks of a call: of a tool's, or of any other.
    pub(crate) fn budget(&self, tool: bool) -> Budget {
        let (cpu_ms, wall_ms) = if tool { (self.tool_cpu_ms, self.tool_wall_ms) } else { (self.cpu_ms, self.wall_ms) };
        Budget { cpu: Duration::from_millis(cpu_ms.into()), wall: Duration::from_millis(wall_ms.into()) }
    }
}

impl Limit {
    fn checked(&self, value: i64) -> Result<u32, LimitError> {
        let Self { key, least, most, why, .. } = *self;
        u32::try_from(value).ok().filter(|value| (least..=most).contains(value)).ok_or(LimitError::Range {
            key,
            value,
            least,
            most,
            why,
        })
    }
}

/// The clocks of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub cpu: Duration,
    pub wall: Duration,
}

pub(crate) const MIB: usize = 1024 * 1024;

/// How often the epoch moves: how soon a spinning guest yields to the other tasks of its thread, and how exact `cpu-ms` is.
pub(crate) const TICK: Duration = Duration::from_millis(5);

/// How long a guest that is running a tool may go on after its turn was aborted.
pub(crate) const ABORT_GRACE: Duration = Duration::from_secs(1);

/// Instances alive at once in the pool of an engine, each with a memory and a stack. The pool reserves 4 GiB of address space for the
/// memory of each, 2 TiB in all, well inside 47 bits, and each stack costs a system call when the pool is made.
pub(crate) const MAX_POOLED: u32 = 512;
/// Instances alive at once beside the pool, which are made one by one. Each takes about six of a process's mappings, of which Linux
/// gives 65,530.
pub(crate) const MAX_BESIDE: u32 = 7_680;
/// Calls of one plugin under way at once for one agent, whatever `leases` says: half of the pool.
pub(crate) const MAX_CALLS: u32 = 256;

/// Bytes of one line in the diagnostics; the rest of the line is dropped.
pub(crate) const MAX_LOG_LINE_BYTES: usize = 4_096;
/// Lines of the guest's standard error that are kept for the message of a trap.
pub(crate) const KEPT_STDERR_LINES: usize = 8;
/// One piece of randomness that WASI hands out.
pub(crate) const MAX_RANDOM_BYTES: u64 = 1024 * 1024;

/// A key of `dsh:plugin/state`.
pub(crate) const MAX_STATE_KEY_BYTES: usize = 256;
/// A value of `dsh:plugin/state`.
pub(crate) const MAX_STATE_VALUE_BYTES: usize = MIB;

/// One JSON text of a guest, as large as a whole message may be: parsed, small values take sixteen times as much.
pub(crate) const MAX_JSON_BYTES: usize = 4 * MIB;

/// The longest message of a guest that goes into an event or an error.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4_096;
/// A component's file. The largest known (a Python program with its interpreter) have 40 MiB.
pub const MAX_COMPONENT_BYTES: usize = 256 * MIB;
/// Tools of one plugin.
pub(crate) const MAX_TOOLS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_makes_sense() {
        for (n, limit) in Limits::ALL.iter().enumerate() {
            assert!((limit.least..=limit.most).contains(&limit.default), "{}", limit.key);
            assert_eq!(Limits::KEYS[n], limit.key);
        }
        let mut limits = Limits::default();
        for Beside { key, other, .. } in BESIDE {
            let _ = (limits.value(key), limits.value(other));
        }
        assert_eq!(limits.check(), Ok(()));
        assert_eq!(limits.check_beside(Limits::KEYS), Ok(()));
        let leases = Limits::ALL.iter().find(|limit| limit.key == "leases").expect("it is in the table");
        assert_eq!(leases.most * 2, MAX_POOLED, "half of the pool, as its reason says");
        assert!(leases.why.contains(&MAX_POOLED.to_string()), "{}", leases.why);
    }

    #[test]
    fn what_cannot_be_enforced_is_refused() {
        let check = |key: &str, value: i64, expect: &str| {
            let error = Limits::default().set(key, value).expect_err("cannot be enforced");
            assert_eq!(format!("{error}; {}", error.hint()), expect);
        };
        check(
            "memory-mib",
            0,
            "the limit `memory-mib` cannot be 0: it takes 1 to 4096; a guest has 32-bit addresses and cannot use more than 4 GiB",
        );
        check(
            "leases",
            257,
            "the limit `leases` cannot be 257: it takes 1 to 256; one plugin of one agent may take half of the engine's pool, which has room for 512 instances",
        );
        check(
            "stack-kib",
            -1,
            "the limit `stack-kib` cannot be -1: it takes 16 to 16384; with less no guest starts, and more address space than this is not reserved for each call",
        );
        check("memory", 1, "unknown limit `memory`; `dsh-host config schema` lists the limits");
        assert!(Limits { log_lines: 0, ..Limits::default() }.check().is_err());
    }

    #[test]
    fn a_limit_that_never_bites_is_refused_when_it_was_declared() {
        let limits = Limits { cpu_ms: 200, wall_ms: 100, ..Limits::default() };
        let error = limits.check_beside(&["cpu-ms"]).expect_err("never bites");
        assert_eq!(
            format!("{error}; {}", error.hint()),
            "the limit `cpu-ms` of 200 can never bite beside `wall-ms` of 100; computing is part of the time from call to return: set `cpu-ms` to 100 or less, or raise `wall-ms`"
        );
        assert_eq!(limits.check_beside(&["wall-ms"]), Ok(()), "the default of `cpu-ms` was not declared");
        let limits = Limits { log_lines: 100, log_kib: 401, ..Limits::default() };
        assert!(limits.check_beside(&["log-kib"]).is_err());
        assert_eq!(Limits { log_kib: 400, ..limits }.check_beside(&["log-kib"]), Ok(()));
    }
}
