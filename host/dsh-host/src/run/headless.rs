//! A run that nobody watches: it ends, with dispose, when the agent is idle.

use std::sync::Arc;
use std::time::Duration;

use dsh_loop::LoopAgent;
use dsh_seam::event::Status;
use dsh_seam::session::Sessions;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{DONE, End, Running, signals, unanswered};
use crate::approve::InputApprover;
use crate::diagnostics;
use crate::exit::{Code, Stop};
use crate::input::desk::Desk;
use crate::input::stdin::{self, Lines, Stdin};
use crate::resolve::Plan;

/// How long the input must be silent before the driver takes its first message: a file, or a pipe that is filled at once, is read
/// whole first.
const SILENCE: Duration = Duration::from_millis(50);

/// Runs to the end.
pub async fn run(mut run: Running, mut end: End) -> Result<Code, Stop> {
    if let Err(stop) = run.send_prompts() {
        return Err(run.give_up(stop).await);
    }
    let agent = run.prompted().agent();
    let mut input = run.commands.take().map(|(desk, approver, stdin)| Commands::new(desk, approver, stdin, &run));
    run.pump.open();
    let asked = tokio::select! {
        () = work(&agent, input.as_mut()) => None,
        asked = end.signals.next() => Some(asked),
    };
    if asked.is_some() {
        run.watch.earn(Code::Interrupted);
    }
    if input.is_some_and(|commands| commands.report()) {
        run.watch.earn(Code::Usage);
    }
    let reason = asked.map_or_else(|| DONE.to_owned(), |asked| format!("interrupted by {}", asked.name()));
    let watch = run.watch.clone();
    let mut finished = std::pin::pin!(run.finish(&reason));
    if asked.is_none() {
        // The first signal may come while the run ends by itself, and the end goes on.
        tokio::select! {
            code = &mut finished => return Ok(code),
            _ = end.signals.next() => watch.earn(Code::Interrupted),
        }
    }
    // A second one ends the process at once.
    tokio::select! {
        code = finished => Ok(code),
        _ = end.signals.next() => signals::exit_now(),
    }
}

/// Returns when the run is over.
async fn work(agent: &LoopAgent, input: Option<&mut Commands>) {
    match input {
        Some(commands) => commands.serve().await,
        None => {
            agent.release();
            agent.idle().await;
        }
    }
}

/// A run without any message is a usage error, unless a resumed session holds unanswered ones. This is known before the session is
/// opened, which may change it: then it stays as it is.
pub async fn some_message(
    prompts: &[String],
    stdin: Option<&mut Stdin>,
    plan: &Plan,
    sessions: &dyn Sessions,
) -> Result<(), Stop> {
    if !prompts.is_empty() {
        return Ok(());
    }
    let nothing = "there is no message";
    let stop = match stdin {
        None => Stop::usage(nothing).hint("write a prompt, `dsh-host \"…\"`, or give one on standard input"),
        Some(stdin) => {
            // An input that is at its end already will never bring one; one that is open may.
            if !stdin.is_empty(SILENCE).await {
                return Ok(());
            }
            Stop::usage(format!("{nothing}: standard input was empty")).hint("write lines like `{\"send\": \"…\"}`")
        }
    };
    if unanswered::any(plan, sessions).await? { Ok(()) } else { Err(stop) }
}

/// Commands on standard input, applied while the agent works.
struct Commands {
    desk: Arc<Desk>,
    approver: Arc<InputApprover>,
    stdin: Stdin,
    lines: Lines,
    agent: Arc<LoopAgent>,
    status: watch::Receiver<Status>,
    had_message: bool,
    seen_line: bool,
    ended: bool,
}

impl Commands {
    fn new(desk: Arc<Desk>, approver: Arc<InputApprover>, stdin: Stdin, run: &Running) -> Self {
        let agent = run.prompted().agent();
        desk.attach(agent.clone());
        let had_message = agent.has_pending();
        Self {
            desk,
            approver,
            stdin,
            lines: Lines::default(),
            agent,
            status: run.watch.status(),
            had_message,
            seen_line: had_message,
            ended: false,
        }
    }

    /// Reads, applies and waits until the run is over.
    async fn serve(&mut self) {
        self.read_until_released().await;
        self.agent.release();
        let mut status = self.status.clone();
        while !self.ended {
            tokio::select! {
                biased;
                piece = self.stdin.next() => self.take(piece).await,
                _ = status.wait_for(|status| *status == Status::Disposed) => break,
            }
        }
        self.take_what_is_there().await;
        self.quiet().await;
    }

    /// Returns when the driver may take its first message: the input has ended, or there is something to do and the input is silent.
    async fn read_until_released(&mut self) {
        let mut silent_at = Instant::now() + SILENCE;
        while !self.ended && self.agent.status() != Status::Disposed {
            tokio::select! {
                biased;
                piece = self.stdin.next() => self.take(piece).await,
                () = sleep_until(silent_at), if self.seen_line => {
                    // The reading thread may be late; what waits for it counts as read.
                    if !stdin::is_readable() {
                        return;
                    }
                }
            }
            silent_at = Instant::now() + SILENCE;
        }
    }

    /// After a dispose: lines that are there already are taken, so that each is refused and reported.
    async fn take_what_is_there(&mut self) {
        while !self.ended {
            let piece = match self.stdin.try_next() {
                Some(piece) => Some(piece),
                None if stdin::is_readable() => self.stdin.next().await,
                None => return,
            };
            self.take(piece).await;
        }
    }

    async fn take(&mut self, piece: Option<std::io::Result<Vec<u8>>>) {
        match piece {
            Some(Ok(piece)) => self.piece(&piece).await,
            Some(Err(_)) | None => {
                if let Some(line) = self.lines.end() {
                    self.seen_line |= self.desk.line(line).await;
                }
                self.ended = true;
                self.approver.end();
            }
        }
    }

    async fn piece(&mut self, piece: &[u8]) {
        for line in self.lines.feed(piece) {
            self.seen_line |= self.desk.line(line).await;
        }
    }

    /// Returns when the agent is idle and every command whose event was that idleness has been applied, or it is gone.
    async fn quiet(&self) {
        let mut status = self.status.clone();
        loop {
            self.agent.idle().await;
            tokio::select! {
                () = self.desk.quiet() => {}
                _ = status.wait_for(|status| *status == Status::Disposed) => {}
            }
            match self.agent.status() {
                Status::Idle if !self.agent.has_pending() => return,
                Status::Idle | Status::Running => {}
                // The end of the agent has events of its own.
                Status::Disposed => return self.agent.dispose(DONE).await,
            }
        }
    }

    /// Reports what was left over. Returns whether the input earned a code.
    fn report(&self) -> bool {
        self.desk.report_left();
        let nothing = !self.had_message && self.desk.messages() == 0;
        if nothing {
            diagnostics::complain("standard input: there was no message");
        }
        nothing || self.desk.complained()
    }
}
