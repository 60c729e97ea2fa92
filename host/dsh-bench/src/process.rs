//! The whole program: from its start to the first request, and what it weighs.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::measure::{Samples, millis};
use crate::report::{Reach, Row};
use crate::{Fallible, Places, Rows};

/// How often the program is started.
const STARTS: usize = 21;

/// One tool call, then a pause in which the process can be looked at.
const SCRIPT: &str = concat!(
    r#"{"toolCalls":[{"name":"list","arguments":{"path":"."}}]}"#,
    "\n",
    r#"{"text":"done","delayMs":200}"#,
    "\n"
);

/// What begins a request in the stream of events.
const SENT: &str = r#"{"type":"request/sent""#;

/// One run of the program.
struct Run {
    first_request_ms: f64,
    /// The most it ever had in memory, taken in its second step.
    peak_mib: f64,
    /// What it had then.
    resident_mib: f64,
}

/// The program with five plugins, as it is typed.
fn command(places: &Places, home: &Path) -> Command {
    let mut command = Command::new(&places.host);
    command.args(["--plugin", "permission", "--plugin-config", r#"permission={"default":"allow"}"#]);
    command.args(["--plugin", "sandbox", "--plugin-config", r#"sandbox={"profile":"full"}"#]);
    command.args([
        "--plugin",
        "compaction",
        "--plugin",
        "plan-mode",
        "--plugin",
        "files",
        "--grant",
        "files=fs:read:.",
    ]);
    command.args(["--model", "script:script.jsonl", "--output", "jsonl", "go"]);
    command.current_dir(home).env("DSH_HOME", home.join("home")).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn run(places: &Places, home: &Path) -> Fallible<Run> {
    let mut command = command(places, home);
    let start = Instant::now();
    let mut child = command.spawn()?;
    let output = child.stdout.take().ok_or("no standard output")?;
    let (mut first_request_ms, mut memory) = (None, None);
    for line in BufReader::new(output).lines() {
        if !line?.starts_with(SENT) {
            continue;
        }
        if first_request_ms.is_none() {
            first_request_ms = Some(millis(start.elapsed()));
        } else {
            memory = Some((mib(child.id(), "VmHWM")?, mib(child.id(), "VmRSS")?));
        }
    }
    let status = child.wait()?;
    match (status.success(), first_request_ms, memory) {
        (true, Some(first_request_ms), Some((peak_mib, resident_mib))) => {
            Ok(Run { first_request_ms, peak_mib, resident_mib })
        }
        _ => Err(format!("`dsh-host` ended with {status}, and did not make two requests").into()),
    }
}

/// A line of `/proc/PID/status`, in KiB.
pub fn resident_kib(pid: u32, key: &str) -> Fallible<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()).ok_or_else(|| format!("no `{key}` in /proc"))?;
    Ok(number.parse()?)
}

fn mib(pid: u32, key: &str) -> Fallible<f64> {
    #[expect(clippy::cast_precision_loss, reason = "memory of a process in KiB is far below 2^52")]
    let kib = resident_kib(pid, key)? as f64;
    Ok(kib / 1024.0)
}

/// Milliseconds to start a program that does nothing, for comparison.
fn start_true() -> Fallible<f64> {
    let start = Instant::now();
    Command::new("true").status()?;
    Ok(millis(start.elapsed()))
}

pub async fn rows(places: &Places) -> Rows {
    let home = tempfile::tempdir()?;
    std::fs::write(home.path().join("script.jsonl"), SCRIPT)?;
    // Compiles the plugins into the cache.
    run(places, home.path())?;
    let (mut first, mut peak, mut resident, mut noise) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    for _ in 0..places.rounds(STARTS) {
        let measured = run(places, home.path())?;
        first.push(measured.first_request_ms);
        peak.push(measured.peak_mib);
        resident.push(measured.resident_mib);
        noise.push(start_true()?);
    }
    let now = format!("at its peak; {:.1} MiB in the second step", resident.median());
    Ok(vec![
        Row::new("start to the first request, five plugins, warm cache", Reach::at_most(40.0, "ms"), first),
        Row::plain("starting `true`, for comparison", "ms", noise),
        Row::new("resident memory, five plugins, one agent", Reach::at_most(40.0, "MiB"), peak).detail(now),
    ])
}
