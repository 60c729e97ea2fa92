//! The whole program at work: 20 steps with the tool call `bash -c true`, with and without five no-op plugins, and a turn whose tool
//! answers grow: what can be measured in the same way at any harness, from outside.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::{Pair, Samples, millis};
use crate::process::resident_kib;
use crate::report::{Reach, Row};
use crate::wasm::FIVE;
use crate::{Fallible, Places, Rows};

/// Steps of the short turn, and rounds.
const STEPS: usize = 20;
const ROUNDS: usize = 9;
/// Steps of the turn that grows, and which are compared.
const LONG_STEPS: usize = 50;
const EARLY: usize = 5;
const LATE: usize = 45;
/// A command that prints 20 KB.
const GROWS: &str = "head -c 20000 /dev/zero | tr '\\\\0' x";

/// The folder that the program works in.
const WORKSPACE: &str = "work";

/// What begins a request in the stream of events.
const SENT: &str = r#"{"type":"request/sent""#;

/// When each request of one run went out, and what the program weighed.
struct Run {
    first: Duration,
    requests: Vec<Instant>,
    peak_mib: f64,
}

impl Run {
    /// How long each step took: from its request to the next.
    fn steps(&self) -> Samples {
        self.requests.windows(2).map(|pair| millis(pair[1] - pair[0])).collect()
    }

    /// The steps around this one.
    fn around(&self, step: usize) -> f64 {
        self.requests[step - 3..step + 2].windows(2).map(|pair| millis(pair[1] - pair[0])).collect::<Samples>().median()
    }
}

/// A model that asks for `command` so often, and then says a word.
fn script(command: &str, steps: usize) -> String {
    let arguments = serde_json::json!({ "command": command });
    let call = serde_json::json!({ "toolCalls": [{ "name": "shell", "arguments": arguments }] });
    format!("{}{{\"text\":\"done\"}}\n", format!("{call}\n").repeat(steps))
}

fn run(places: &Places, home: &Path, noops: usize) -> Fallible<Run> {
    let mut command = Command::new(&places.host);
    for n in 1..=noops {
        command.args(["--plugin", &format!("noop-{n}={}", places.guests.join("noop.wasm").display())]);
    }
    command.args(["--plugin", "shell", "--grant", "shell=process", "--approve", "allow", "--max-steps", "0"]);
    command.args(["--model", "script:script.jsonl", "--output", "jsonl", "go"]);
    // Beside the workspace: what a plugin may write is no place for compiled code, and nothing would be kept.
    command.current_dir(home.join(WORKSPACE)).env("DSH_HOME", home.join("home")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn()?;
    let output = child.stdout.take().ok_or("no standard output")?;
    let (mut requests, mut peak_mib) = (Vec::new(), 0.0_f64);
    for line in BufReader::new(output).lines() {
        if line?.starts_with(SENT) {
            requests.push(Instant::now());
            // The program may be gone already when the last one is read.
            let kib = resident_kib(child.id(), "VmHWM").unwrap_or_default();
            #[expect(clippy::cast_precision_loss, reason = "memory of a process in KiB is far below 2^52")]
            let mib = kib as f64 / 1024.0;
            peak_mib = peak_mib.max(mib);
        }
    }
    let ended = child.wait_with_output()?;
    match requests.first() {
        Some(first) if ended.status.success() => Ok(Run { first: *first - start, requests, peak_mib }),
        _ => Err(format!("`dsh-host` ended with {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr)).into()),
    }
}

pub async fn rows(places: &Places) -> Rows {
    let home = tempfile::tempdir()?;
    let script_file = home.path().join(WORKSPACE).join("script.jsonl");
    std::fs::create_dir(home.path().join(WORKSPACE))?;
    std::fs::write(&script_file, script("true", STEPS))?;
    // Compiles the plugins into the cache.
    run(places, home.path(), FIVE)?;
    let (mut first, mut peak, mut steps, mut bash) =
        (Samples::default(), Samples::default(), Pair::default(), Samples::default());
    for _ in 0..places.rounds(ROUNDS) {
        let (with, without) = (run(places, home.path(), FIVE)?, run(places, home.path(), 0)?);
        steps.push(with.steps().median(), without.steps().median());
        first.push(millis(with.first));
        peak.push(with.peak_mib);
        let start = Instant::now();
        Command::new("bash").args(["-c", "true"]).status()?;
        bash.push(millis(start.elapsed()));
    }
    std::fs::write(&script_file, script(GROWS, LONG_STEPS))?;
    let mut growth = Pair::default();
    for _ in 0..places.rounds(ROUNDS) {
        let long = run(places, home.path(), 0)?;
        growth.push(long.around(LATE), long.around(EARLY));
    }
    let late = format!("{:.2} ms at step {EARLY}", growth.other.median());
    let of_it = format!("`bash -c true` alone {:.2} ms", bash.median());
    Ok(vec![
        Row::new("the program, start to first request, five no-op plugins", Reach::at_most(40.0, "ms"), first),
        Row::new("a step with `bash -c true`, log in a file", Reach::at_most(3.0, "ms"), steps.other.clone())
            .detail(of_it),
        Row::new("five no-op plugins, added to such a step", Reach::at_most(0.1, "ms"), steps.differences()),
        Row::new("step 45 of a turn that grows by 20 KB a step", Reach::at_most(6.0, "ms"), growth.this).detail(late),
        Row::new("memory at its peak, five no-op plugins", Reach::at_most(40.0, "MiB"), peak),
    ])
}
