//! Watches a running program to its end.

use std::time::Duration;

use dsh_seam::Failure;
use dsh_seam::tools::ProcessExit;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::capture::Capture;
use super::keeper;
use super::launcher::Started;

/// How long a program may take to end after SIGTERM: enough to remove a lock file, shorter than a guest's grace after an abort.
const TERM_GRACE: Duration = Duration::from_millis(500);
/// How long a keeper may take to kill all it keeps: more than it ever tries.
const END_GRACE: Duration = Duration::from_secs(5);
/// How long to wait for the end of the output once all is over: what was written is in the pipe by then; only a process that could not
/// be killed keeps the pipe open.
const EOF_WAIT: Duration = Duration::from_millis(200);

/// What a program may take.
pub(super) struct Limits {
    pub(super) timeout: Duration,
    /// Of each stream.
    pub(super) output_bytes: usize,
}

enum Ended {
    Itself,
    TimedOut,
    Cancelled,
}

/// Waits for the end of a program, or makes one. Dropping the future kills the program and all it started.
pub(super) async fn run(
    mut started: Started,
    stdin: Option<Vec<u8>>,
    limits: Limits,
    cancel: &CancellationToken,
) -> Result<ProcessExit, Failure> {
    let mut stdout = Capture::start(started.child.stdout.take(), limits.output_bytes);
    let mut stderr = Capture::start(started.child.stderr.take(), limits.output_bytes);
    let _feeding = AbortOnDropHandle::new(tokio::spawn(feed(started.child.stdin.take(), stdin)));
    let ended = tokio::select! {
        biased;
        () = cancel.cancelled() => Ended::Cancelled,
        _ = started.child.wait() => Ended::Itself,
        () = tokio::time::sleep(limits.timeout) => Ended::TimedOut,
    };
    if !matches!(ended, Ended::Itself) {
        terminate(&mut started).await;
    }
    if matches!(ended, Ended::Cancelled) {
        return Err(Failure::aborted());
    }
    let status = started.child.wait().await;
    let status =
        status.map_err(|error| Failure::new("not-available", format!("the program's end is not known: {error}")))?;
    let both = async |out: &mut Capture, err: &mut Capture| {
        out.ended().await;
        err.ended().await;
    };
    let _ = timeout(EOF_WAIT, both(&mut stdout, &mut stderr)).await;
    let ((stdout, cut_out), (stderr, cut_err)) = (stdout.take(), stderr.take());
    Ok(ProcessExit {
        code: status.code(),
        stdout,
        stderr,
        timed_out: matches!(ended, Ended::TimedOut),
        truncated: cut_out || cut_err,
    })
}

/// Gives a program its input. One that does not read it is none the worse.
async fn feed(stdin: Option<ChildStdin>, bytes: Option<Vec<u8>>) {
    if let (Some(mut stdin), Some(bytes)) = (stdin, bytes) {
        let _ = stdin.write_all(&bytes).await;
    }
}

/// Asks the program to end, and then ends it and all it started.
async fn terminate(started: &mut Started) {
    started.signal(keeper::ASK);
    if timeout(TERM_GRACE, started.child.wait()).await.is_err() {
        started.signal(keeper::END);
        if timeout(END_GRACE, started.child.wait()).await.is_err() {
            // A keeper that does not answer is of no use any more.
            let _ = started.child.start_kill();
        }
    }
}
