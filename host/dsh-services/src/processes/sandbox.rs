//! Holds a program to a profile with what the kernel offers: Landlock for the files, seccomp for the network, for attributes and for the
//! limits of other processes.
//!
//! Everything is made ready before the program starts; between `fork` and `exec` only system calls are made. What is not held:
//! Landlock has no right for the attributes of files (mode, owner, times, extended ones). A filter of system calls cannot look at
//! paths, so it refuses to change any of them when a profile lets nothing be written, and none otherwise. And a kernel before
//! Landlock's version 9 does not look at sockets with a path, so that with an open network a program can reach a service of this
//! machine that listens on one.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use dsh_seam::Failure;
use dsh_seam::tools::{NetworkPolicy, Profile};
use landlock::{ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::grants::{Grant, Rights};
use super::keeper;

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

    /// Whether a program's signals reach only what it started itself.
    #[cfg(test)]
    pub(super) fn scopes_signals(self) -> bool {
        self.landlock >= 6
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
            NetworkPolicy::Open if Refused::by(profile).attributes && !self.seccomp => missing(
                "this kernel has no seccomp filters, which are needed to keep a program from changing the attributes of files".into(),
            ),
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

/// What system calls are refused for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Refused {
    network: bool,
    attributes: bool,
}

impl Refused {
    /// What a profile refuses as a whole.
    pub(super) fn by(profile: &Profile) -> Self {
        Self {
            network: profile.network == NetworkPolicy::Closed,
            attributes: profile.paths.iter().all(|grant| grant.access == dsh_seam::tools::Access::Read),
        }
    }
}

/// Ready to be applied to a program.
pub(super) struct Sandbox {
    ruleset: OwnedFd,
    filter: Option<BpfProgram>,
}

impl Sandbox {
    /// One with these rights, without what is refused; with a filter where the kernel has them, which it does for every profile that
    /// needs one (`Support::holds`).
    pub(super) fn new(grants: &[Grant], refused: Refused, Support { seccomp, .. }: Support) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new("unenforceable", format!("the sandbox could not be made: {error}"))
        };
        let ruleset = ruleset(grants).map_err(|error| failed(&error))?;
        let filter = seccomp.then(|| filter(refused)).transpose().map_err(|error| failed(&error))?;
        Ok(Self { ruleset: ruleset.ok_or_else(|| failed(&"the kernel has no Landlock"))?, filter })
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

/// The calls that change attributes of files, but for `ioctl`. Those with a number are not yet known to `libc`: `setxattrat`,
/// `removexattrat` and `file_setattr`, which have the same on all machines.
const ATTRIBUTES: [i64; 15] = [
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    463,
    466,
    469,
];
/// Older forms of these, which newer machines do not have.
#[cfg(target_arch = "x86_64")]
const OLD_ATTRIBUTES: [i64; 6] =
    [libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const OLD_ATTRIBUTES: [i64; 0] = [];
/// What an `ioctl` changes attributes with: `FS_IOC_SETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC_FSSETXATTR` of `linux/fs.h`.
const ATTRIBUTE_IOCTLS: [u64; 3] = [0x4008_6602, 0x4004_6602, 0x401c_5820];

/// Refuses system calls.
///
/// For the network: to make sockets. Not only those of the internet: a socket with a path leads to the services of this machine, some
/// of which do anything for anybody. `socketpair`, which programs use among themselves, is another call and stays. `io_uring` could do
/// both without the calls, so it is refused too. For all profiles: to set the limits of another process. The host's are among those,
/// and a host that may write no byte more logs no event.
fn filter(refused: Refused) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut calls = Vec::new();
    calls.extend((refused.network || refused.attributes).then_some(libc::SYS_io_uring_setup));
    calls.extend(refused.network.then_some(libc::SYS_socket));
    let mut rules = BTreeMap::new();
    // Zero is the process itself.
    let another = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    add(&mut rules, libc::SYS_prlimit64, &[SeccompRule::new(vec![another])?]);
    if refused.attributes {
        calls.extend(ATTRIBUTES.into_iter().chain(OLD_ATTRIBUTES));
        let request = |request| {
            SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request)?])
        };
        add(&mut rules, libc::SYS_ioctl, &ATTRIBUTE_IOCTLS.map(request).into_iter().collect::<Result<Vec<_>, _>>()?);
    }
    calls.into_iter().for_each(|call| add(&mut rules, call, &[]));
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()
}

fn add(rules: &mut BTreeMap<i64, Vec<SeccompRule>>, call: i64, conditions: &[SeccompRule]) {
    rules.insert(call, conditions.to_vec());
    #[cfg(target_arch = "x86_64")]
    rules.insert(call | X32, conditions.to_vec());
}

/// Puts a keeper between us and the program and, with a `sandbox`, takes the program's rights, before it begins.
pub(super) fn apply_in_child(program: &mut Command, sandbox: Option<Sandbox>) {
    let host = std::process::id();
    let apply = move || {
        keeper::split(host)?;
        sandbox.as_ref().map_or(Ok(()), confine)
    };
    // SAFETY: between `fork` and `exec` only async-signal-safe functions may be called. `apply` makes system calls on values that
    // were made before; it allocates nothing and takes no lock.
    unsafe { program.pre_exec(apply) };
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
    match &sandbox.filter {
        Some(filter) => seccompiler::apply_filter(filter).map_err(|_| io::Error::from_raw_os_error(NOT_APPLIED)),
        None => Ok(()),
    }
}

fn ok(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use dsh_seam::tools::{Access, PathGrant};

    use super::{NetworkPolicy, Profile, Support};

    #[test]
    fn what_the_kernel_lacks_is_said() {
        let check_at = |access, landlock: i64, seccomp: bool, network: NetworkPolicy, expect: Option<&str>| {
            let paths = vec![PathGrant { path: ".".into(), access }];
            let profile = Profile { network, paths, ..Profile::unrestricted() };
            let held = Support { landlock, seccomp }.holds(&profile);
            match (held, expect) {
                (Ok(()), None) => {}
                (Err(failure), Some(part)) => {
                    assert!(failure.code == "unenforceable" && failure.message.contains(part), "{failure:?}")
                }
                (held, expect) => panic!("{held:?}, expected {expect:?}"),
            }
        };
        let check = |landlock, seccomp, network, expect| check_at(Access::Write, landlock, seccomp, network, expect);
        check(7, true, NetworkPolicy::Closed, None);
        check(3, false, NetworkPolicy::Open, None);
        check(0, true, NetworkPolicy::Open, Some("no Landlock"));
        check(2, true, NetworkPolicy::Open, Some("version 2 of Landlock"));
        check(7, false, NetworkPolicy::Closed, Some("no seccomp"));
        check(7, true, NetworkPolicy::Hosts(vec!["example.com".into()]), Some("not to some hosts"));
        check_at(Access::Read, 3, true, NetworkPolicy::Open, None);
        check_at(Access::Read, 3, false, NetworkPolicy::Open, Some("attributes of files"));
    }
}
