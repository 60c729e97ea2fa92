//! Holds a program to a profile with what the kernel offers: Landlock for the files, seccomp for the network.
//!
//! Everything is made ready before the program starts; between `fork` and `exec` only system calls are made. What is not held:
//! Landlock has no right for the attributes of files (mode, owner, times), and a kernel before Landlock's version 9 does not look at
//! sockets with a path, so that with an open network a program can reach a service of this machine that listens on one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use dsh_seam::Failure;
use dsh_seam::tools::{NetworkPolicy, Profile};
use landlock::{ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::grants::{Grant, Rights};

/// The first version of Landlock that can hold a file to "read only": before it, truncating needs no right.
const NEEDED_LANDLOCK: i64 = 3;
/// The version of Landlock whose rights we handle; on an older kernel those it knows.
const HANDLED: ABI = ABI::V9;
/// What a child says when the kernel did not apply its sandbox; no program can be started with this error otherwise.
pub(super) const NOT_APPLIED: i32 = libc::ENOTRECOVERABLE;
/// `LANDLOCK_CREATE_RULESET_VERSION` of `linux/landlock.h`.
const ASK_VERSION: libc::c_uint = 1;
/// What a program of root keeps of its capabilities, by the numbers of `linux/capability.h`: to own, read and write its files
/// (chown, dac_override, fowner, fsetid), to signal and become its users (kill, setgid, setuid), to listen (net_bind_service).
const KEPT_CAPABILITIES: [libc::c_int; 8] = [0, 1, 3, 4, 5, 6, 7, 10];
/// The bit that marks a system call of the x32 interface, which has numbers of its own on x86_64.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// What this kernel can hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Support {
    /// Landlock's version; 0 without it.
    landlock: i64,
    seccomp: bool,
}

impl Support {
    /// Asks the kernel.
    pub(super) fn probe() -> Self {
        // SAFETY: with this flag the call reads no memory and makes nothing; it returns a number.
        let version = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, ASK_VERSION)
        };
        let action: u32 = libc::SECCOMP_RET_ERRNO;
        // SAFETY: the call reads the one number that it is given a pointer to, which lives until it returns.
        let errno = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
        Self { landlock: version.max(0), seccomp: errno == 0 && TargetArch::try_from(std::env::consts::ARCH).is_ok() }
    }

    /// Whether a program can be held to `profile`.
    pub(super) fn holds(self, profile: &Profile) -> Result<(), Failure> {
        let missing = |what: String| Err(Failure::new("unenforceable", what));
        if self.landlock < NEEDED_LANDLOCK {
            return missing(match self.landlock {
                0 => format!(
                    "this kernel has no Landlock (version {NEEDED_LANDLOCK} or later is needed to hold a program to paths)"
                ),
                old => format!(
                    "this kernel has version {old} of Landlock, and {NEEDED_LANDLOCK} or later is needed to hold a program to paths"
                ),
            });
        }
        match profile.network {
            NetworkPolicy::Open => Ok(()),
            NetworkPolicy::Closed if self.seccomp => Ok(()),
            NetworkPolicy::Closed => {
                missing("this kernel has no seccomp filters, which are needed to close the network to a program".into())
            }
            NetworkPolicy::Hosts(_) => {
                missing("a program can be held to no network or to all of it, not to some hosts".into())
            }
        }
    }
}

/// Ready to be applied to a program.
pub(super) struct Sandbox {
    ruleset: OwnedFd,
    network: Option<BpfProgram>,
}

impl Sandbox {
    /// One with these rights; `closed` closes the network.
    pub(super) fn new(grants: &[Grant], closed: bool) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new("unenforceable", format!("the sandbox could not be made: {error}"))
        };
        let ruleset = ruleset(grants).map_err(|error| failed(&error))?;
        let network = closed.then(no_network).transpose().map_err(|error| failed(&error))?;
        Ok(Self { ruleset: ruleset.ok_or_else(|| failed(&"the kernel has no Landlock"))?, network })
    }
}

fn ruleset(grants: &[Grant]) -> Result<Option<OwnedFd>, landlock::RulesetError> {
    let ruleset = Ruleset::default().handle_access(AccessFs::from_all(HANDLED))?.scope(Scope::from_all(HANDLED))?;
    let mut ruleset = ruleset.create()?;
    for grant in grants {
        // What is not there (any more) needs no right.
        if let Ok(path) = PathFd::new(&grant.path) {
            ruleset = ruleset.add_rule(PathBeneath::new(path, access(grant.rights)))?;
        }
    }
    Ok(ruleset.into())
}

fn access(rights: Rights) -> BitFlags<AccessFs> {
    match rights {
        Rights::List => AccessFs::ReadDir.into(),
        Rights::Read => AccessFs::from_read(HANDLED),
        Rights::Write => AccessFs::from_all(HANDLED),
        Rights::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
    }
}

/// Refuses to make sockets. Not only those of the internet: a socket with a path leads to the services of this machine, some of which
/// do anything for anybody. `socketpair`, which programs use among themselves, is another call and stays. `io_uring` could make
/// sockets without the call, so it is refused too.
fn no_network() -> Result<BpfProgram, seccompiler::BackendError> {
    let calls = [libc::SYS_socket, libc::SYS_io_uring_setup];
    let mut rules = BTreeMap::new();
    for call in calls {
        rules.insert(call, vec![]);
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | X32, vec![]);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()
}

/// Makes the child leave our session, die with us and, with a `sandbox`, lose its rights, before the program begins.
pub(super) fn apply_in_child(program: &mut Command, sandbox: Option<Sandbox>) {
    let host = std::process::id();
    let apply = move || {
        own_session(host)?;
        sandbox.as_ref().map_or(Ok(()), confine)
    };
    // SAFETY: between `fork` and `exec` only async-signal-safe functions may be called. `apply` makes system calls on values that
    // were made before; it allocates nothing and takes no lock.
    unsafe { program.pre_exec(apply) };
}

/// A session and so a group of its own, without a terminal; reaper of its orphans; killed when the host ends.
fn own_session(host: u32) -> io::Result<()> {
    // SAFETY: these calls take numbers only and change nothing but this process.
    unsafe {
        ok(libc::setsid().into())?;
        // A host that would rather see a failed write than be killed ignores this one; its children must not.
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        ok(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0).into())?;
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
        // The host may have ended before it was asked for.
        if libc::getppid().unsigned_abs() != host { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
    }
}

/// What `capset(2)` takes, in its third version.
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Effective, permitted and inheritable, 32 of each.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Takes from a program of root what would lead around the rest: with `CAP_PERFMON`, for example, the environment of the host can be
/// read in `/proc`. Other users have none of these, and cannot get any.
fn drop_capabilities() -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut held = [Capabilities::default(); 2];
    // SAFETY: the calls take numbers, and pointers to a header and two sets that live until they return, as capset(2) wants them.
    unsafe {
        for capability in 0.. {
            match libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) {
                1 if !KEPT_CAPABILITIES.contains(&capability) => {
                    let dropped = libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
                    if dropped < 0 && libc::geteuid() == 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                0 | 1 => {}
                // The first number that is no capability.
                _ => break,
            }
        }
        ok(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0).into())?;
        ok(libc::syscall(libc::SYS_capget, &raw const header, held.as_mut_ptr()))?;
        held.iter_mut().for_each(|set| set.inheritable = 0);
        ok(libc::syscall(libc::SYS_capset, &raw const header, held.as_ptr()))
    }
}

/// First no new privileges, which the others need; then the files; the filter last, because it could refuse what comes after.
fn confine(sandbox: &Sandbox) -> io::Result<()> {
    let not_applied = |_| io::Error::from_raw_os_error(NOT_APPLIED);
    // SAFETY: both calls take numbers only; the file descriptor is open as long as `sandbox` lives.
    unsafe {
        ok(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into()).map_err(not_applied)?;
        drop_capabilities().map_err(not_applied)?;
        ok(libc::syscall(libc::SYS_landlock_restrict_self, sandbox.ruleset.as_raw_fd(), 0)).map_err(not_applied)?;
    }
    match &sandbox.network {
        Some(filter) => seccompiler::apply_filter(filter).map_err(|_| io::Error::from_raw_os_error(NOT_APPLIED)),
        None => Ok(()),
    }
}

fn ok(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_is_said() {
        let check = |landlock: i64, seccomp: bool, network: NetworkPolicy, expect: Option<&str>| {
            let profile = Profile { network, ..Profile::unrestricted() };
            let held = Support { landlock, seccomp }.holds(&profile);
            match (held, expect) {
                (Ok(()), None) => {}
                (Err(failure), Some(part)) => {
                    assert!(failure.code == "unenforceable" && failure.message.contains(part), "{failure:?}")
                }
                (held, expect) => panic!("{held:?}, expected {expect:?}"),
            }
        };
        check(7, true, NetworkPolicy::Closed, None);
        check(3, false, NetworkPolicy::Open, None);
        check(0, true, NetworkPolicy::Open, Some("no Landlock"));
        check(2, true, NetworkPolicy::Open, Some("version 2 of Landlock"));
        check(7, false, NetworkPolicy::Closed, Some("no seccomp"));
        check(7, true, NetworkPolicy::Hosts(vec!["example.com".into()]), Some("not to some hosts"));
    }
}
