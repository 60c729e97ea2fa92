//! What a plugin may use: the limits an operator can set, and the host's own bounds beside them.

use std::time::Duration;

/// The limits of one plugin, per call, as `limits = { … }` in `dsh.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory of one instance, all its memories together, in MiB.
    pub memory_mib: u32,
    /// Time the guest itself may compute, in milliseconds; time parked in host imports does not count.
    pub cpu_ms: u32,
    /// Time from call to return, in milliseconds, except inside `next`, an approval, a process and a model call.
    pub wall_ms: u32,
    /// `cpu_ms` inside `call-tool`.
    pub tool_cpu_ms: u32,
    /// `wall_ms` inside `call-tool`.
    pub tool_wall_ms: u32,
    /// What one call may hand to the host: arguments of imports, its result, and its output streams, in MiB.
    pub output_mib: u32,
    /// All keys and values of `dsh:plugin/state` together, in MiB.
    pub state_mib: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_mib: 64,
            cpu_ms: 500,
            wall_ms: 30_000,
            tool_cpu_ms: 60_000,
            tool_wall_ms: 600_000,
            output_mib: 16,
            state_mib: 16,
        }
    }
}

impl Limits {
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

/// Core instances in one component instance. Components of the common toolchains have three to ten.
pub(crate) const MAX_CORE_INSTANCES: usize = 100;
/// Linear memories in one component instance; `memory-mib` bounds their sum, this their number (each costs address space).
pub(crate) const MAX_MEMORIES: usize = 8;
/// Tables in one component instance.
pub(crate) const MAX_TABLES: usize = 32;
/// Elements of one table: C# and large Python programs need up to 100,000.
pub(crate) const MAX_TABLE_ELEMENTS: usize = 100_000;

/// Component instances alive at once in the process, over all plugins and agents. The pool reserves 4 GiB of address space for the
/// memory of each, 2 TiB in all, well inside 47 bits.
pub(crate) const MAX_INSTANCES: u32 = 512;
/// Calls under way at once in the process: each has a fiber stack.
pub(crate) const MAX_CALLS: u32 = 256;
/// Instances of one plugin that one agent may have at once: parallel tools (8) times the depth at which a plugin can meet itself.
pub(crate) const MAX_LEASES: usize = 32;

/// Calls to host imports in one call. At about 100 ns each they are a tenth of a second; a guest that needs more is in a loop.
pub(crate) const MAX_HOST_CALLS: u32 = 1_000_000;
/// Handles (requests, nexts, outcomes) that one instance may hold at once.
pub(crate) const MAX_HANDLES: u32 = 4_096;
/// WASI handles (files, streams, pollables) that one instance may hold at once.
pub(crate) const MAX_WASI_HANDLES: usize = 4_096;
/// Lines that one call may write to the diagnostics, by `log` and by its output streams; what is over is counted and dropped.
pub(crate) const MAX_LOG_LINES: u32 = 1_000;
/// Reports of progress that one call may make; what is over is dropped. A person sees a few a second at most.
pub(crate) const MAX_PROGRESS_REPORTS: u32 = 10_000;
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

/// The longest message of a guest that goes into an event or an error.
pub(crate) const MAX_MESSAGE_BYTES: usize = 4_096;
/// A component's file. The largest known (a Python program with its interpreter) have 40 MiB.
pub(crate) const MAX_COMPONENT_BYTES: usize = 256 * MIB;
/// Tools of one plugin.
pub(crate) const MAX_TOOLS: usize = 1_000;
