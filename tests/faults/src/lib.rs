//! Counts the calls by which a process changes files below one folder, and fails one of them. It is preloaded into the built binary,
//! so that the real program meets a real fault at a known place; without its variables it does nothing.
//!
//! | variable | says |
//! |---|---|
//! | `DSH_FAULTS_BELOW` | the folder, as an absolute path without links |
//! | `DSH_FAULTS_LOG` | a file, outside of it, that gets a line for each call that was counted: its name, its bytes, its file |
//! | `DSH_FAULT_CALLS` | which calls are counted, by name and separated by commas; without it all |
//! | `DSH_FAULT_AT` | the call that fails, counted from 1; with a `+` all later ones fail too |
//! | `DSH_FAULT` | what happens there, see below |
//! | `DSH_FAULT_RENAME` | `kill`, or the name of an error: what the bare system call `renameat2` comes to, everywhere |
//!
//! | fault | does |
//! |---|---|
//! | `kill` | ends the process by SIGKILL instead of the call |
//! | `killed-after` | ends it when the call is done |
//! | `torn` | ends it when half of the bytes are written; for other calls as `kill` |
//! | `full` | writes half of the bytes and says so, then there is no space, for good |
//! | `broken` | writes half of the bytes and says so, then every call fails with `EIO`, for good |
//! | `hang` | never returns |
//! | `vanish` | does the call, then removes the file |
//! | `ENOSPC`, `EDQUOT`, `EIO`, `EROFS` | the error; the first two only where space is needed |

#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use libc::{mode_t, off_t, size_t, ssize_t};

/// The longest path that is looked at.
const PATH_BYTES: usize = 4096;

/// What the variables say.
struct Plan {
    below: Vec<u8>,
    log: Option<Vec<u8>>,
    calls: Option<Vec<String>>,
    at: u64,
    and_later: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Kill,
    KilledAfter,
    Torn,
    Full,
    Broken,
    Hang,
    Vanish,
    Error(c_int),
}

/// A call, with what it needs to be done in part.
enum Call<'a> {
    /// Writes bytes; at an offset, or where the file stands.
    Write { fd: c_int, bytes: &'a [u8], offset: Option<off_t> },
    /// Anything else.
    Whole { name: &'static str, needs_space: bool },
}

impl Call<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Write { offset: None, .. } => "write",
            Self::Write { .. } => "pwrite",
            Self::Whole { name, .. } => name,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Whole { .. } => 0,
        }
    }

    fn needs_space(&self) -> bool {
        match self {
            Self::Write { .. } => true,
            Self::Whole { needs_space, .. } => *needs_space,
        }
    }

    /// Half of what is to be written, written.
    fn half(&self) -> Option<ssize_t> {
        let Self::Write { fd, bytes, offset } = self else { return None };
        Some(do_write(*fd, &bytes[..bytes.len() / 2], *offset))
    }
}

static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
static COUNT: AtomicU64 = AtomicU64::new(0);
/// What every later call comes to, after a [`Fault::Full`] or [`Fault::Broken`]; 0 is none.
static FOR_GOOD: AtomicI32 = AtomicI32::new(0);

fn plan() -> Option<&'static Plan> {
    PLAN.get_or_init(read_plan).as_ref()
}

fn read_plan() -> Option<Plan> {
    let var = |name: &str| std::env::var_os(name);
    let text = |name: &str| var(name).and_then(|value| value.into_string().ok());
    let at = text("DSH_FAULT_AT").unwrap_or_default();
    Some(Plan {
        below: [var("DSH_FAULTS_BELOW")?.as_bytes(), b"/"].concat(),
        log: var("DSH_FAULTS_LOG").map(|path| [path.as_bytes(), b"\0"].concat()),
        calls: text("DSH_FAULT_CALLS").map(|names| names.split(',').map(str::to_owned).collect()),
        at: at.trim_end_matches('+').parse().unwrap_or(u64::MAX),
        and_later: at.ends_with('+'),
        fault: text("DSH_FAULT").map(|name| match name.as_str() {
            "kill" => Fault::Kill,
            "killed-after" => Fault::KilledAfter,
            "torn" => Fault::Torn,
            "full" => Fault::Full,
            "broken" => Fault::Broken,
            "hang" => Fault::Hang,
            "vanish" => Fault::Vanish,
            // A fault that is misspelled must not look like a run without one.
            name => errno_named(name).map_or_else(|| die(), Fault::Error),
        }),
    })
}

fn errno_named(name: &str) -> Option<c_int> {
    Some(match name {
        "ENOSPC" => libc::ENOSPC,
        "EDQUOT" => libc::EDQUOT,
        "EIO" => libc::EIO,
        "EROFS" => libc::EROFS,
        "EINVAL" => libc::EINVAL,
        _ => return None,
    })
}

/// Does `call`, which changes the file at `path`, or what the plan says instead.
fn faulty(call: Call<'_>, path: &[u8], do_it: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some(plan) = plan() else { return do_it() };
    if !path.starts_with(&plan.below)
        || plan.calls.as_ref().is_some_and(|calls| !calls.iter().any(|name| name == call.name()))
    {
        return do_it();
    }
    let n = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(log) = &plan.log {
        let line = [format!("{} {} ", call.name(), call.bytes()).as_bytes(), &path[plan.below.len()..], b"\n"].concat();
        append(log, &line);
    }
    let for_good = FOR_GOOD.load(Ordering::SeqCst);
    if for_good != 0 {
        return refused(&call, for_good, do_it);
    }
    let due = n == plan.at || plan.and_later && n > plan.at;
    match plan.fault.filter(|_| due) {
        None => do_it(),
        Some(Fault::Kill) => die(),
        Some(Fault::KilledAfter) => {
            do_it();
            die()
        }
        Some(Fault::Torn) => {
            call.half();
            die()
        }
        Some(Fault::Full) => half_and_then(&call, libc::ENOSPC, do_it),
        Some(Fault::Broken) => half_and_then(&call, libc::EIO, do_it),
        Some(Fault::Hang) => hang(),
        Some(Fault::Vanish) => {
            let done = do_it();
            let path = [path, b"\0"].concat();
            // SAFETY: `path` ends with NUL and outlives the call.
            unsafe { libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0) };
            done
        }
        Some(Fault::Error(error)) => refused(&call, error, do_it),
    }
}

/// Half of the call, and `error` for good.
fn half_and_then(call: &Call<'_>, error: c_int, do_it: impl FnOnce() -> ssize_t) -> ssize_t {
    FOR_GOOD.store(error, Ordering::SeqCst);
    call.half().unwrap_or_else(|| refused(call, error, do_it))
}

/// The error; a call that needs no space is done where space is all that lacks.
fn refused(call: &Call<'_>, error: c_int, do_it: impl FnOnce() -> ssize_t) -> ssize_t {
    let lacks_space = error == libc::ENOSPC || error == libc::EDQUOT;
    if lacks_space && !call.needs_space() { do_it() } else { fail(error) }
}

fn fail(error: c_int) -> ssize_t {
    // SAFETY: the place of `errno` is valid for this thread.
    unsafe { *libc::__errno_location() = error };
    -1
}

fn die() -> ! {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    hang()
}

fn hang() -> ! {
    loop {
        // SAFETY: no memory is involved.
        unsafe { libc::pause() };
    }
}

/// Appends a line to the file at `path`, which ends with NUL; by bare system calls, which are not counted.
fn append(path: &[u8], line: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: `path` ends with NUL, `line` is as long as it says, and both outlive the calls.
    unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
        libc::syscall(libc::SYS_write, fd, line.as_ptr(), line.len());
        libc::syscall(libc::SYS_close, fd);
    }
}

/// The path of an open file; empty when it has none.
fn path_of(fd: c_int) -> Vec<u8> {
    if plan().is_none() {
        return Vec::new();
    }
    let link = format!("/proc/self/fd/{fd}\0");
    let mut path = vec![0_u8; PATH_BYTES];
    // SAFETY: `link` ends with NUL and `path` has the room it says.
    let length = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    path.truncate(usize::try_from(length).unwrap_or(0));
    path
}

fn do_write(fd: c_int, bytes: &[u8], offset: Option<off_t>) -> ssize_t {
    // SAFETY: `bytes` is as long as it says.
    let written = unsafe {
        match offset {
            None => libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()),
            Some(offset) => libc::syscall(libc::SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), offset),
        }
    };
    written as ssize_t
}

/// The call `name` on an open file.
fn on_file(fd: c_int, name: &'static str, number: libc::c_long, argument: off_t) -> c_int {
    // SAFETY: these calls take numbers only.
    let do_it = || unsafe { libc::syscall(number, fd, argument) as ssize_t };
    faulty(Call::Whole { name, needs_space: false }, &path_of(fd), do_it) as c_int
}

/// The call `name` on a path.
///
/// # Safety
///
/// `path` points to a text that ends with NUL.
unsafe fn on_path(
    path: *const c_char,
    name: &'static str,
    needs_space: bool,
    do_it: impl FnOnce() -> libc::c_long,
) -> c_int {
    // SAFETY: as for this function.
    let path = unsafe { CStr::from_ptr(path) };
    faulty(Call::Whole { name, needs_space }, path.to_bytes(), || do_it() as ssize_t) as c_int
}

/// As in libc.
///
/// # Safety
///
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller says that so many bytes can be read there.
    let bytes = unsafe { slice(from, length) };
    faulty(Call::Write { fd, bytes, offset: None }, &path_of(fd), || do_write(fd, bytes, None))
}

/// As in libc.
///
/// # Safety
///
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, from: *const c_void, length: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the caller says that so many bytes can be read there.
    let bytes = unsafe { slice(from, length) };
    faulty(Call::Write { fd, bytes, offset: Some(offset) }, &path_of(fd), || do_write(fd, bytes, Some(offset)))
}

/// # Safety
///
/// So many bytes can be read from there, or there are none.
unsafe fn slice<'a>(from: *const c_void, length: size_t) -> &'a [u8] {
    // SAFETY: as for this function.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from.cast(), length) } }
}

/// As in libc.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    on_file(fd, "fdatasync", libc::SYS_fdatasync, 0)
}

/// As in libc.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    on_file(fd, "fsync", libc::SYS_fsync, 0)
}

/// As in libc.
#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: c_int, length: off_t) -> c_int {
    on_file(fd, "ftruncate", libc::SYS_ftruncate, length)
}

/// As in libc; `mode` is only meant when `flags` may make a file.
///
/// # Safety
///
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's path ends with NUL.
    let do_it = || unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) };
    if flags & libc::O_CREAT == 0 {
        return do_it() as c_int;
    }
    // SAFETY: the same.
    unsafe { on_path(path, "create", true, do_it) }
}

/// As in libc.
///
/// # Safety
///
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's path ends with NUL.
    unsafe { on_path(path, "mkdir", true, || libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, path, mode)) }
}

/// As in libc.
///
/// # Safety
///
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's path ends with NUL.
    unsafe { on_path(path, "unlink", false, || libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path, 0)) }
}

/// As in libc.
///
/// # Safety
///
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's paths end with NUL.
    unsafe {
        on_path(to, "rename", true, || libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0))
    }
}

/// As in libc.
///
/// # Safety
///
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's paths end with NUL.
    unsafe { on_path(to, "link", true, || libc::syscall(libc::SYS_linkat, from_dir, from, to_dir, to, flags)) }
}

/// Run by the loader before the program.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = filter_rename;

/// Has the kernel answer `renameat2`, when a variable says how.
extern "C" fn filter_rename() {
    let Some(answer) = std::env::var("DSH_FAULT_RENAME").ok() else { return };
    let answer = match errno_named(&answer) {
        Some(error) => libc::SECCOMP_RET_ERRNO | error.unsigned_abs(),
        None => libc::SECCOMP_RET_KILL_PROCESS,
    };
    let number = u32::try_from(libc::SYS_renameat2).unwrap_or(u32::MAX);
    let step = |code: c_uint, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word of what the filter sees.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the program is as long as it says and outlives the calls.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if done != 0 {
        // A filter that is not in force must not look like a run that stood it.
        die();
    }
}
