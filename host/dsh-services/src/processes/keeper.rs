//! The keeper: a process between the host and a program, so that nothing the program starts outlives the call.
//!
//! The keeper is the parent of the program and the reaper of its orphans (`PR_SET_CHILD_SUBREAPER`), so that every process the
//! program starts, also one that left its group and session and forked twice, becomes a child of the keeper at the latest when those
//! above it have ended. When the program has ended, the host says so or the host itself is gone, the keeper kills its children until
//! it has none, and ends as the program did.
//!
//! It is the host's own process after a `fork`, so it must do with system calls and its stack: no allocation, no lock, no panic.

use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;

use libc::{c_int, pid_t, sigset_t, timespec};

/// Tells a keeper to kill all it keeps; also what the kernel sends it when the host ends.
pub(super) const END: c_int = libc::SIGUSR1;
/// Tells a keeper to ask the program and its group to end.
pub(super) const ASK: c_int = libc::SIGTERM;

/// How long what a program left may go on, in milliseconds: a shell does not wait for the other end of `>(…)`, whose last output is
/// wanted.
const LINGER_MS: i64 = 200;
/// How long a round of killing waits for the children to be gone, in milliseconds; they usually are at once.
const ROUND_MS: i64 = 10;
/// How many rounds: with `ROUND_MS` two seconds. What is left then cannot be killed: it runs as another user, or hangs in the kernel.
const MAX_ROUNDS: u32 = 200;
/// The most file descriptors that are seen to one by one, on a kernel without `close_range`: a usual limit of a process is far below.
const MAX_DESCRIPTORS: c_int = 65_536;

/// Called between `fork` and `exec`: forks once more. Returns in the child, which is to become the program, with a session of its
/// own; the caller stays behind as the keeper. `host` is the process that the keeper must not outlive.
pub(super) fn split(host: u32) -> io::Result<()> {
    // SAFETY: the calls take numbers and pointers to sets that live until they return, and change nothing but this process. `fork`
    // is called in a process with one thread, itself made by `fork`; neither of the two allocates or takes a lock afterwards.
    unsafe {
        let (mut all, mut before): (sigset_t, sigset_t) = (zeroed(), zeroed());
        libc::sigfillset(&raw mut all);
        // None may be missed between the fork and the wait for it, and none may end the keeper.
        ok(libc::sigprocmask(libc::SIG_BLOCK, &raw const all, &raw mut before))?;
        // What kills the host's group must leave somebody who clears up.
        ok(libc::setsid())?;
        ok(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, END, 0, 0, 0))?;
        // The host may have ended before it was asked for.
        if libc::getppid().unsigned_abs() != host {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let keeper = libc::getpid();
        match libc::fork() {
            0 => begin(keeper, &before),
            program if program > 0 => keep(program),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// In the child: a session and so a group of its own, without a terminal; killed when its keeper is.
///
/// # Safety
/// Between `fork` and `exec` only.
unsafe fn begin(keeper: pid_t, signals: &sigset_t) -> io::Result<()> {
    // SAFETY: as in `split`.
    unsafe {
        ok(libc::setsid())?;
        own_descriptors_only();
        // A host that would rather see a failed write than be killed ignores this one; its children must not.
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        if libc::getppid() != keeper {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        ok(libc::sigprocmask(libc::SIG_SETMASK, signals, null_mut()))
    }
}

fn ok(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The keeper's life.
///
/// # Safety
/// After `fork`, with all signals blocked, in a process that does nothing else.
unsafe fn keep(program: pid_t) -> ! {
    // SAFETY: as in `split`; the file descriptors that are closed belong to nobody else in this process.
    unsafe {
        // The pipes of the program would have no end while the keeper holds them.
        close_all();
        libc::prctl(libc::PR_SET_NAME, c"dsh-keeper".as_ptr(), 0, 0, 0);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let signals = signals();
        let mut status = None;
        loop {
            status = status.or(reap(program).status);
            if status.is_some() {
                linger(program, &signals);
                break;
            }
            match libc::sigwaitinfo(&raw const signals, null_mut()) {
                // The program is not reaped yet, so that its number is its own.
                ASK => {
                    libc::kill(-program, libc::SIGTERM);
                }
                END => break,
                _ => {}
            }
        }
        clear(program, &signals, &mut status);
        match status {
            Some(status) if libc::WIFEXITED(status) => libc::_exit(libc::WEXITSTATUS(status)),
            _ => {}
        }
        // The program had no exit code, so the keeper has none.
        libc::kill(libc::getpid(), libc::SIGKILL);
        libc::_exit(libc::EXIT_FAILURE)
    }
}

/// Leaves the program its three standard streams. What the host was started with, or a library of it opened for itself, would else be
/// a way around every profile: a descriptor that is open needs no right to its file. They are closed by `exec` rather than now, since
/// what applies the sandbox, and what tells the host that a program could not be started, are among them.
///
/// # Safety
/// Between `fork` and `exec` only.
unsafe fn own_descriptors_only() {
    const FIRST: c_int = libc::STDERR_FILENO + 1;
    // SAFETY: the calls take numbers, and close nothing before `exec`.
    unsafe {
        if libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) < 0 {
            for descriptor in FIRST..MAX_DESCRIPTORS {
                // One that is not open is none to close.
                libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

unsafe fn close_all() {
    // SAFETY: as in `keep`.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) < 0 {
            for descriptor in 0..MAX_DESCRIPTORS {
                libc::close(descriptor);
            }
        }
    }
}

/// What a keeper waits for.
unsafe fn signals() -> sigset_t {
    // SAFETY: the pointers are to a set that lives until the calls return.
    unsafe {
        let mut signals: sigset_t = zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in [libc::SIGCHLD, ASK, END] {
            libc::sigaddset(&raw mut signals, signal);
        }
        signals
    }
}

/// What a look at the children that have ended says.
struct Reaped {
    /// How the program ended, if it was among them.
    status: Option<c_int>,
    /// Whether there are other children still.
    left: bool,
}

unsafe fn reap(program: pid_t) -> Reaped {
    let mut reaped = Reaped { status: None, left: false };
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a number that lives until the call returns.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
            0 => reaped.left = true,
            child if child == program => {
                reaped.status = Some(status);
                continue;
            }
            child if child > 0 => continue,
            _ => {}
        }
        return reaped;
    }
}

/// Lets what the program left end by itself, for a while.
unsafe fn linger(program: pid_t, signals: &sigset_t) {
    let end = now_ms() + LINGER_MS;
    // SAFETY: as in `keep`.
    unsafe {
        while reap(program).left {
            let rest = end - now_ms();
            if rest <= 0 || matches!(wait_ms(signals, rest), ASK | END) {
                return;
            }
        }
    }
}

/// Kills children until there are none. Those that are not reaped keep their numbers, so that no stranger is hit, and the children
/// of those that are killed come to the keeper.
unsafe fn clear(program: pid_t, signals: &sigset_t, status: &mut Option<c_int>) {
    // SAFETY: as in `keep`.
    unsafe {
        for _ in 0..MAX_ROUNDS {
            let reaped = reap(program);
            *status = status.or(reaped.status);
            if !reaped.left {
                return;
            }
            if !kill_listed() {
                kill_found();
            }
            wait_ms(signals, ROUND_MS);
        }
    }
}

fn now_ms() -> i64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a time that lives until the call returns.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000)
}

/// Waits for a signal and answers it; -1 when none came.
unsafe fn wait_ms(signals: &sigset_t, ms: i64) -> c_int {
    let time = timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    // SAFETY: the pointers are to values that live until the call returns.
    unsafe { libc::sigtimedwait(signals, null_mut(), &raw const time) }
}

/// Kills the children that the kernel lists; false where it has no such list.
unsafe fn kill_listed() -> bool {
    // SAFETY: as in `keep`; the buffer lives until the calls return.
    unsafe {
        let list = libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if list < 0 {
            return false;
        }
        let mut buffer = [0_u8; 4096];
        let mut child: pid_t = 0;
        loop {
            let read = libc::read(list, buffer.as_mut_ptr().cast(), buffer.len());
            let Some(bytes) = filled(&buffer, read) else { break };
            // `12 345 `, which a read may cut anywhere.
            for byte in bytes {
                if byte.is_ascii_digit() {
                    child = child.wrapping_mul(10).wrapping_add(pid_t::from(byte - b'0'));
                } else {
                    kill_child(child);
                    child = 0;
                }
            }
        }
        kill_child(child);
        libc::close(list);
        true
    }
}

unsafe fn kill_child(child: pid_t) {
    // Of what is not greater than 1 `kill` would take groups, or all.
    if child > 1 {
        // SAFETY: the call takes numbers; a child that is not reaped is still itself.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
}

/// What a read put into a buffer; none at the end and after an error.
fn filled(buffer: &[u8], read: isize) -> Option<&[u8]> {
    usize::try_from(read).ok().filter(|read| *read > 0).and_then(|read| buffer.get(..read))
}

/// A buffer as `getdents64(2)` wants it.
#[repr(C, align(8))]
struct Entries([u8; 8192]);

/// Kills the processes in `/proc` whose parent is this one.
unsafe fn kill_found() {
    // SAFETY: as in `keep`; the buffer lives until the calls return.
    unsafe {
        let folder = libc::open(c"/proc".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        if folder < 0 {
            return;
        }
        let mut entries = Entries([0; 8192]);
        loop {
            let size = entries.0.len();
            let read = libc::syscall(libc::SYS_getdents64, folder, entries.0.as_mut_ptr(), size);
            let Some(mut rest) = isize::try_from(read).ok().and_then(|read| filled(&entries.0, read)) else { break };
            while let Some((name, after)) = first_entry(rest) {
                if let Some(process) = number(name)
                    && parent(name) == Some(libc::getpid())
                {
                    kill_child(process);
                }
                rest = after;
            }
        }
        libc::close(folder);
    }
}

/// The name of the first entry of a `linux_dirent64` list, and the entries after it: 8 bytes inode, 8 offset, 2 length, 1 type, name.
fn first_entry(list: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u16::from_ne_bytes([*list.get(16)?, *list.get(17)?]);
    let name = list.get(19..length.into())?;
    let name = name.split(|byte| *byte == 0).next()?;
    Some((name, list.get(length.into()..)?))
}

fn number(name: &[u8]) -> Option<pid_t> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| pid_t::from(byte - b'0'));
    name.iter().try_fold(0, |number: pid_t, byte| number.checked_mul(10)?.checked_add(digit(byte)?))
}

/// The parent of a process, from `/proc/ID/stat`: `id (name) state parent …`; the name may hold anything.
unsafe fn parent(process: &[u8]) -> Option<pid_t> {
    let mut path = [0_u8; 32];
    let parts = [b"/proc/".as_slice(), process, b"/stat\0"];
    for (to, from) in path.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    let mut buffer = [0_u8; 512];
    // SAFETY: as in `keep`; a name of at most ten digits leaves room for the zero that ends the path.
    let read = unsafe {
        let stat = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        let read = libc::read(stat, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(stat);
        read
    };
    let text = filled(&buffer, read)?;
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    number(text.get(name_end..)?.split(|byte| *byte == b' ').nth(2)?)
}

/// Signals a keeper, also one that was stopped.
pub(super) fn signal(keeper: u32, signal: c_int) {
    if let Ok(keeper) = pid_t::try_from(keeper) {
        // SAFETY: the call takes numbers only. The keeper is our child and not reaped.
        unsafe {
            libc::kill(keeper, signal);
            libc::kill(keeper, libc::SIGCONT);
        }
    }
}
