//! What a process that compiles takes from itself before it reads the component: it computes, and does nothing else.

use std::collections::BTreeMap;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::CompileBudget;
use crate::limits::MIB;

/// Address space beside the memory that counts: the program itself, and what the allocator and stacks reserve without using it.
const RESERVED_BYTES: u64 = 2048 * MIB as u64;
/// The three standard streams; no other file is open, and none can be opened.
const DESCRIPTORS: u64 = 3;

/// Limits this process. Where less than that was allowed before, it stays so.
pub(super) fn limit(budget: CompileBudget) -> io::Result<()> {
    let memory = u64::from(budget.memory_mib) * MIB as u64;
    let seconds = u64::from(budget.cpu_ms).div_ceil(1000);
    lower(Resource::Data, memory, memory)?;
    // Old kernels do not count mapped memory as data.
    lower(Resource::As, memory + RESERVED_BYTES, memory + RESERVED_BYTES)?;
    // The first signal says what happened, the second cannot be overheard.
    lower(Resource::Cpu, seconds, seconds + 1)?;
    lower(Resource::Fsize, 0, 0)?;
    lower(Resource::Core, 0, 0)?;
    lower(Resource::Nofile, DESCRIPTORS, DESCRIPTORS)
}

fn lower(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let before = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let limit = Rlimit { current: Some(soft.min(before)), maximum: Some(hard.min(before)) };
    Ok(setrlimit(resource, limit)?)
}

/// If the machine runs out of memory, this process goes first, and not the host or somebody else's.
pub(super) fn go_first() {
    // A system without that file has other ways.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Keeps other programs of the same user from changing what this process answers.
pub(super) fn hide() {
    // An old kernel that refuses leaves things as they were.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// Closes what the host, or whoever started it, left open.
pub(super) fn close_others() {
    // SAFETY: the numbers name descriptors that nothing in this process owns: it has just begun, and opened none.
    // An old kernel does not know the call; the descriptors are then out of reach but for reading and writing.
    unsafe { libc::syscall(libc::SYS_close_range, DESCRIPTORS, libc::c_uint::MAX, 0) };
}

/// Leaves this process the system calls that computing needs. Nothing can be opened, connected, started or signalled, and no memory
/// made executable.
pub(super) fn filter() -> io::Result<()> {
    // The first is asked last: what it refuses is refused.
    apply(&without_clone3().map_err(io::Error::other)?)?;
    apply(&computing_only().map_err(io::Error::other)?)
}

fn apply(program: &BpfProgram) -> io::Result<()> {
    seccompiler::apply_filter(program).map_err(io::Error::other)
}

/// A filter cannot look at what `clone3` is asked for; told that there is no such call, a library uses `clone`.
fn without_clone3() -> Result<BpfProgram, seccompiler::BackendError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, missing, arch()?)?.try_into()
}

/// Memory, threads, signals of its own, time, chance, and its open streams.
const COMPUTING: [i64; 29] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getrandom,
    // Allowed here, so that the other filter's answer counts.
    libc::SYS_clone3,
    // What it has used so far, which a library may ask; it tells nothing of others.
    libc::SYS_getrusage,
];

fn computing_only() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = COMPUTING.into_iter().map(|call| (call, vec![])).collect();
    let when = |argument, operator, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let exec = SeccompCmpOp::MaskedEq(libc::PROT_EXEC.unsigned_abs().into());
    rules.insert(libc::SYS_mmap, vec![when(2, exec.clone(), 0)?]);
    rules.insert(libc::SYS_mprotect, vec![when(2, exec, 0)?]);
    let thread: u64 = libc::CLONE_THREAD.unsigned_abs().into();
    rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    // A process that aborts signals itself.
    rules.insert(libc::SYS_tgkill, vec![when(0, SeccompCmpOp::Eq, std::process::id().into())?]);
    rules.insert(libc::SYS_prctl, vec![when(0, SeccompCmpOp::Eq, libc::PR_SET_NAME.unsigned_abs().into())?]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch()?)?.try_into()
}

fn arch() -> Result<TargetArch, seccompiler::BackendError> {
    TargetArch::try_from(std::env::consts::ARCH)
}
