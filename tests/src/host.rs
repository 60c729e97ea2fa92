//! Runs the built binary as a user would: arguments, environment, standard input, a deadline, perhaps a signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long one run may take; the first one of a component compiles it on a machine that may be busy.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// How often the end of a run is looked for.
const POLL: Duration = Duration::from_millis(5);

/// One run to make.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The arguments.
    pub args: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// The working directory.
    pub dir: PathBuf,
    /// What standard input holds.
    pub stdin: String,
    /// A signal to send once an event of that type was printed.
    pub signal: Option<(String, String)>,
    /// When to kill the process without a word, counted from its first line of output: how long a machine takes to start one says
    /// nothing.
    pub kill_after: Option<Duration>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// The exit status; 128 and the signal's number when a signal ended it.
    pub exit: i32,
}

/// The binary under test.
pub fn binary() -> PathBuf {
    crate::target_dir().join("release/dsh-host")
}

/// Runs the binary to its end.
pub fn run(run: &Run) -> Result<Outcome, String> {
    run_program(&binary(), run)
}

/// Runs any program to its end.
pub fn run_program(program: &Path, run: &Run) -> Result<Outcome, String> {
    let mut command = Command::new(program);
    command.args(&run.args).env_clear().envs(run.env.iter().cloned()).current_dir(&run.dir);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        format!("{} does not start: {error}; build it with `cargo build --release -p dsh-host`", program.display())
    })?;
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let input = run.stdin.clone();
    // A run that ends before it has read its input closes the pipe, which is its right.
    thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let (lines, printed) = mpsc::channel();
    let stdout = child.stdout.take().expect("standard output is a pipe");
    let stdout = thread::spawn(move || read_lines(stdout, &lines));
    let mut stderr = child.stderr.take().expect("standard error is a pipe");
    let stderr = thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let status = wait(&mut child, run, &printed)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let stdout = text(stdout.join().expect("the reader does not panic").map_err(|error| error.to_string())?);
    let stderr = text(stderr.join().expect("the reader does not panic").map_err(|error| error.to_string())?);
    let status = status.ok_or_else(|| {
        format!("it did not end within {DEADLINE:?}\nstandard output:\n{stdout}\nstandard error:\n{stderr}")
    })?;
    Ok(Outcome { stdout, stderr, exit: code(status) })
}

fn read_lines(from: impl Read, lines: &mpsc::Sender<String>) -> std::io::Result<Vec<u8>> {
    let mut reader = BufReader::new(from);
    let mut all = Vec::new();
    loop {
        let start = all.len();
        if reader.read_until(b'\n', &mut all)? == 0 {
            return Ok(all);
        }
        // Nobody listens any more once the process has ended.
        let _ = lines.send(String::from_utf8_lossy(&all[start..]).into_owned());
    }
}

/// Waits for the end; none when the deadline passed and the process was killed.
fn wait(
    child: &mut Child,
    run: &Run,
    printed: &mpsc::Receiver<String>,
) -> Result<Option<std::process::ExitStatus>, String> {
    let start = Instant::now();
    let mut signal = run.signal.clone();
    let mut first_line = None;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(Some(status));
        }
        if start.elapsed() > DEADLINE {
            child.kill().map_err(|error| error.to_string())?;
            child.wait().map_err(|error| error.to_string())?;
            return Ok(None);
        }
        let running = first_line.map(|first: Instant| first.elapsed());
        if run.kill_after.is_some_and(|after| running.is_some_and(|running| running >= after)) {
            child.kill().map_err(|error| error.to_string())?;
        }
        let mut due = false;
        if let Ok(line) = printed.recv_timeout(POLL) {
            first_line.get_or_insert_with(Instant::now);
            due = signal.as_ref().is_some_and(|(_, after)| line.starts_with(&format!("{{\"type\":\"{after}\"")));
        }
        if due && let Some((name, _)) = signal.take() {
            send(child, &name)?;
        }
    }
}

fn send(child: &Child, name: &str) -> Result<(), String> {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = match name {
        "INT" => Signal::INT,
        "TERM" => Signal::TERM,
        "HUP" => Signal::HUP,
        "KILL" => Signal::KILL,
        other => return Err(format!("unknown signal `{other}`")),
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("the process has no id")?;
    kill_process(pid, signal).map_err(|error| error.to_string())
}

fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
