//! Starting the process that compiles, feeding it, and waiting for its answer, but not for ever.

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use super::child::is_about_memory;
use super::frame::{Answer, MAX_FRAME, Order};
use super::{COMPILE_ARGUMENT, CompileFault, CompileLimit, Job, Wanted};

/// Threads of one process that compiles: more gain little, and each costs memory.
const MAX_THREADS: usize = 8;
/// What is kept of the process's standard error, for the message when it breaks off.
const KEPT_STDERR_BYTES: usize = 4_096;
/// How much is read at once: what a pipe holds.
const PIECE_BYTES: usize = 64 * 1024;
/// The stack of the compiler's threads. The usual 2 MiB are enough for what toolchains make; a larger one costs nothing until it is used.
const STACK_BYTES: &str = "8388608";

/// Compiles in a process of its own.
pub(super) fn compile(program: &Path, job: Job<'_>, wanted: &Wanted) -> Result<Vec<u8>, CompileFault> {
    let not_started = |error: io::Error| CompileFault::NotStarted { detail: error.to_string() };
    let mut child = Running::start(program, &job).map_err(not_started)?;
    let heard = child.talk(&job, wanted);
    let (output, errors) = match heard {
        Ok(heard) => heard,
        Err(End::Fault(fault)) => return Err(fault),
        Err(End::System(error)) => return Err(CompileFault::Broken { detail: error.to_string() }),
    };
    let status = child.end().ok();
    let limit = |limit| Err(job.beyond(limit));
    match Answer::read(output) {
        Some(Answer::Code(code)) => return Ok(code),
        Some(Answer::Refused(detail)) => return Err(CompileFault::Component { detail }),
        Some(Answer::Memory) => return limit(CompileLimit::Memory),
        None => {}
    }
    let said = String::from_utf8_lossy(&errors);
    if status.is_some_and(|status| status.signal() == Some(Signal::XCPU.as_raw())) {
        return limit(CompileLimit::Cpu);
    }
    if is_about_memory(&said) {
        return limit(CompileLimit::Memory);
    }
    // It is killed here only when nobody waits for an answer.
    if status.is_some_and(|status| status.signal() == Some(Signal::KILL.as_raw())) {
        return Err(CompileFault::Killed);
    }
    Err(CompileFault::Broken { detail: describe(status, &said) })
}

/// What is known of a process that did not answer.
fn describe(status: Option<ExitStatus>, said: &str) -> String {
    let ended = status.map_or_else(|| "it is gone".to_owned(), |status| status.to_string());
    // The last line is the reason; those above say where.
    match said.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        Some(line) => format!("{ended}: {line}"),
        None => ended,
    }
}

/// Why talking to the process ended before it did.
enum End {
    Fault(CompileFault),
    System(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A process that compiles. Dropping it kills and reaps it.
struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
}

impl Running {
    fn start(program: &Path, job: &Job<'_>) -> io::Result<Self> {
        let order = Order { parent: std::process::id(), target: job.target, budget: job.budget };
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS).to_string();
        let mut command = Command::new(program);
        command.arg(COMPILE_ARGUMENT).args(order.arguments()).env_clear().current_dir("/");
        command.env("RAYON_NUM_THREADS", &threads).env("MALLOC_ARENA_MAX", &threads).env("RUST_MIN_STACK", STACK_BYTES);
        // A group of its own: what is typed at a terminal is for the host.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let stdout = stdout.expect("invariant: it was asked for a pipe");
        Ok(Self { child, stdin, stdout, stderr })
    }

    /// Hands it the component and hears it out: its answer, and the end of what it said on standard error.
    fn talk(&mut self, job: &Job<'_>, wanted: &Wanted) -> Result<(Vec<u8>, Vec<u8>), End> {
        let deadline = Instant::now() + job.budget.wall();
        let mut unsent = job.bytes;
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut piece = vec![0; PIECE_BYTES];
        if let Some(stdin) = &self.stdin {
            rustix::io::ioctl_fionbio(stdin, true).map_err(io::Error::from)?;
        }
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(ready) = self.wait(wanted, left)? else {
                return Err(End::Fault(job.beyond(CompileLimit::Wall)));
            };
            if ready.unwanted {
                return Err(End::Fault(CompileFault::Unwanted));
            }
            if ready.stdin && !feed(&mut self.stdin, &mut unsent)? {
                self.stdin = None;
            }
            if let (true, Some(stderr)) = (ready.stderr, &mut self.stderr) {
                match stderr.read(&mut piece)? {
                    0 => self.stderr = None,
                    count => keep_end(&mut errors, &piece[..count]),
                }
            }
            if ready.stdout {
                let count = self.stdout.read(&mut piece)?;
                if count == 0 {
                    return Ok((output, errors));
                }
                output.extend_from_slice(&piece[..count]);
                if output.len() > MAX_FRAME {
                    return Err(End::Fault(job.beyond(CompileLimit::Code)));
                }
            }
        }
    }

    /// Waits until something can be done; none: the time is over.
    fn wait(&self, wanted: &Wanted, left: Duration) -> io::Result<Option<Ready>> {
        let mut watched = vec![PollFd::new(&wanted.0, PollFlags::IN), PollFd::new(&self.stdout, PollFlags::IN)];
        let stderr = self.stderr.as_ref().map(|stream| watch(&mut watched, PollFd::new(stream, PollFlags::IN)));
        let stdin = self.stdin.as_ref().map(|stream| watch(&mut watched, PollFd::new(stream, PollFlags::OUT)));
        let left = left.try_into().map_err(io::Error::other)?;
        match poll(&mut watched, Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: Option<usize>| at.is_some_and(|at| !watched[at].revents().is_empty());
        Ok(Some(Ready {
            unwanted: is_ready(Some(0)),
            stdout: is_ready(Some(1)),
            stderr: is_ready(stderr),
            stdin: is_ready(stdin),
        }))
    }

    /// Kills and reaps it. One that has ended keeps the status that it ended with.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // Its number is its own until it is reaped here.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.end();
        }
    }
}

/// What can be done without waiting.
struct Ready {
    unwanted: bool,
    stdout: bool,
    stderr: bool,
    stdin: bool,
}

fn watch<'a>(watched: &mut Vec<PollFd<'a>>, one: PollFd<'a>) -> usize {
    watched.push(one);
    watched.len() - 1
}

/// Writes what the pipe takes; whether there is more. One who does not read any more has said, or will say, why.
fn feed(stdin: &mut Option<ChildStdin>, unsent: &mut &[u8]) -> io::Result<bool> {
    let Some(stream) = stdin else { return Ok(false) };
    match stream.write(unsent) {
        Ok(count) => {
            *unsent = &unsent[count..];
            Ok(!unsent.is_empty())
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

fn keep_end(kept: &mut Vec<u8>, piece: &[u8]) {
    kept.extend_from_slice(piece);
    kept.drain(..kept.len().saturating_sub(KEPT_STDERR_BYTES));
}
