//! Long sessions: a turn of 10,000 steps, and a session of 1,000,000 events that is opened again.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dsh_loop::{AgentLoop, AgentOptions, SessionChoice};
use dsh_seam::draft::RequestDraft;
use dsh_seam::event::Entry;
use dsh_seam::failure::{Failure, FailureKind, FailureMode, PluginError, Seam};
use dsh_seam::ids::{AgentId, PluginName, SessionId};
use dsh_seam::message::Message;
use dsh_seam::plugin::{Attached, Plugin, PluginContext};
use dsh_seam::services::SystemClock;
use dsh_seam::session::{SessionWriter, Sessions};
use dsh_seam::waterfall::{Listener, Next, RunContext};
use dsh_seam::waterfalls::Request;
use dsh_services::session::FileSessions;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::bed::{memory_sessions, native_tool, services, time_steps, turn};
use crate::logs::{self, Mix, Written};
use crate::measure::{Pair, Samples, micros, millis};
use crate::memory::Unseen;
use crate::process::resident_kib;
use crate::report::{Reach, Row};
use crate::wasm::{engine, five_noops};
use crate::{Fallible, OPEN_SESSION, Places, Rows};

/// Steps of the long turn.
const STEPS: u32 = 10_000;
/// Turns that are measured of each kind.
const TURNS: usize = 3;
/// What a turn is cut into.
const TENTHS: usize = 10;
/// Events of the long session.
const EVENTS: u64 = 1_000_000;
/// Events of the session that is compared with it: far fewer, and still more than a processor's cache holds.
const FEWER_EVENTS: u64 = 100_000;
/// Processes that open each session.
const OPENINGS: usize = 5;
/// Entries that are read and appended for one number.
const ACCESSES: u64 = 2_000;

pub async fn rows(places: &Places) -> Rows {
    let engine = engine()?;
    let plugins = five_noops(&engine, places).await?;
    let mut rows = Vec::new();
    rows.push(growth("no plugins, log in memory", || time_steps(STEPS, memory_sessions(), &[])).await?);
    rows.push(growth("no plugins, log in a file", || in_a_file(&[])).await?);
    rows.push(growth("five plugins, log in a file", || in_a_file(&plugins)).await?);
    let reminder = [Reminder::plugin()];
    let what = "a plugin that adds a message to each request, log in a file";
    rows.push(growth(what, || in_a_file(&reminder)).await?);
    rows.push(growth("the whole program, `--output jsonl`, a component's tool", || program(places)).await?);
    for mix in [Mix::Prose, Mix::Tools, Mix::Compacted] {
        rows.extend(opening(places, mix).await?);
    }
    rows.extend(accesses().await?);
    rows.extend(listing().await?);
    Ok(rows)
}

/// The last tenth of a turn against its first.
async fn growth<F: Future<Output = Fallible<Vec<Duration>>>>(what: &str, one: impl Fn() -> F) -> Fallible<Row> {
    let mut tenths: Vec<Samples> = vec![Samples::default(); TENTHS];
    let mut pair = Pair::default();
    for n in 0..=TURNS {
        let times = one().await?;
        let medians: Vec<f64> = times
            .chunks(times.len().div_ceil(TENTHS))
            .map(|tenth| tenth.iter().copied().map(micros).collect::<Samples>().median())
            .collect();
        if n > 0 {
            pair.push(medians[TENTHS - 1], medians[0]);
            tenths.iter_mut().zip(medians).for_each(|(samples, median)| samples.push(median));
        }
    }
    let tenths: Vec<String> = tenths.iter().map(|samples| format!("{:.1}", samples.median())).collect();
    let what = format!("a turn of 10,000 steps, its last tenth against its first: {what}");
    Ok(Row::new(what, Reach::at_most(1.5, "×"), pair.ratios()).detail(format!("µs a step: {}", tenths.join(" "))))
}

async fn in_a_file(plugins: &[Arc<dyn Plugin>]) -> Fallible<Vec<Duration>> {
    let folder = tempfile::tempdir()?;
    time_steps(STEPS, Arc::new(files(folder.path())), plugins).await
}

fn files(folder: &Path) -> FileSessions {
    FileSessions::new(folder, Arc::new(SystemClock))
}

/// Puts a message at the end of each request.
struct Reminder(PluginName);

impl Reminder {
    fn plugin() -> Arc<dyn Plugin> {
        Arc::new(Self(PluginName::new("reminder").expect("invariant: a valid name")))
    }
}

impl Plugin for Reminder {
    fn name(&self) -> &PluginName {
        &self.0
    }

    fn failure_mode(&self) -> FailureMode {
        FailureMode::Closed
    }

    fn attach(&self, _context: Arc<dyn PluginContext>) -> Attached {
        Attached { request: Some(Arc::new(Self(self.0.clone()))), ..Attached::default() }
    }
}

#[async_trait]
impl Listener<Request> for Reminder {
    async fn handle(
        &self,
        _cx: &RunContext<Request>,
        draft: Arc<RequestDraft>,
        next: Next<Request>,
    ) -> Result<(), PluginError> {
        let failed = |failure: Failure| PluginError {
            plugin: self.0.clone(),
            seam: Seam::Request,
            kind: FailureKind::Error,
            message: failure.message,
            code: None,
        };
        let reminder = vec![Message::user_text("Remember the plan.")];
        draft.splice(&self.0, draft.message_count(), 0, reminder).map_err(failed)?;
        next.run(draft).await.map_err(|error| failed(error.to_failure()))
    }
}

/// The steps of one turn of the program, as whoever reads its output sees them begin.
async fn program(places: &Places) -> Fallible<Vec<Duration>> {
    let home = tempfile::tempdir()?;
    let call = r#"{"toolCalls":[{"name":"list","arguments":{"path":"src"}}]}"#.to_owned() + "\n";
    std::fs::create_dir(home.path().join("src"))?;
    std::fs::write(home.path().join("script.jsonl"), call.repeat(STEPS as usize - 1) + r#"{"text":"done"}"# + "\n")?;
    let mut command = Command::new(&places.host);
    command.args(["--plugin", "files", "--grant", "files=fs:read:.", "--max-steps", "0"]);
    command.args(["--model", "script:script.jsonl", "--output", "jsonl", "go"]);
    command.current_dir(home.path()).env("DSH_HOME", home.path().join("home"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut starts = Vec::new();
    for line in BufReader::new(child.stdout.take().ok_or("no standard output")?).lines() {
        if line?.starts_with(r#"{"type":"step/start""#) {
            starts.push(Instant::now());
        }
    }
    let status = child.wait()?;
    if !status.success() || starts.len() != STEPS as usize {
        return Err(format!("`dsh-host` made {} steps and ended with {status}", starts.len()).into());
    }
    Ok(starts.windows(2).map(|pair| pair[1] - pair[0]).collect())
}

/// One opening of a session, in a process of its own.
struct Opened {
    ms: f64,
    /// Of processor time: other work on this machine does not count.
    cpu_ms: f64,
    /// Beyond what the process had before.
    peak_kib: f64,
    kept_kib: f64,
    turn_ms: f64,
}

/// Opens a session and lets it do one turn; prints what that cost.
pub async fn child(folder: &str, id: &str) -> Fallible<()> {
    let sessions = Arc::new(files(Path::new(folder)));
    let agents = AgentLoop::new(services(2, sessions, Arc::new(Unseen)), vec![native_tool()]);
    let options = AgentOptions {
        model: Some("bench/model".into()),
        max_steps: 0,
        workspace: "/".into(),
        session: SessionChoice::Resume(SessionId::new(id)?),
        ..AgentOptions::default()
    };
    let process = std::process::id();
    let before = resident_kib(process, "VmRSS")?;
    let (start, spent) = (Instant::now(), cpu_ms());
    let agent = agents.create(AgentId::new("main")?, options).await?;
    let (ms, cpu) = (millis(start.elapsed()), cpu_ms() - spent);
    let (peak, kept) = (resident_kib(process, "VmHWM")?, resident_kib(process, "VmRSS")?);
    let start = Instant::now();
    turn(&agent).await?;
    let turn_ms = millis(start.elapsed());
    let (peak, kept) = (peak.saturating_sub(before), kept.saturating_sub(before));
    println!("{}", json!({ "ms": ms, "cpu": cpu, "peak": peak, "kept": kept, "turn": turn_ms }));
    Ok(())
}

fn open(places: &Places, folder: &Path, id: &str) -> Fallible<Opened> {
    let output = Command::new(&places.own).arg(OPEN_SESSION).arg(folder).arg(id).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    let value: Value = serde_json::from_slice(&output.stdout)?;
    let number = |key: &str| value[key].as_f64().ok_or_else(|| format!("the process did not say `{key}`"));
    Ok(Opened {
        ms: number("ms")?,
        cpu_ms: number("cpu")?,
        peak_kib: number("peak")?,
        kept_kib: number("kept")?,
        turn_ms: number("turn")?,
    })
}

/// What this process has spent of processor time.
#[expect(clippy::cast_precision_loss, reason = "a few minutes in nanoseconds")]
fn cpu_ms() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 * 1e3 + spent.tv_nsec as f64 / 1e6
}

/// What opening a session of one kind costs: its speed, and its memory beyond that of a session of one turn.
#[expect(clippy::cast_precision_loss, reason = "sizes and counts are far below 2^52")]
async fn opening(places: &Places, mix: Mix) -> Fallible<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let sessions = files(folder.path());
    let Written { entries, view_bytes } = logs::write(&sessions, mix, "long", EVENTS).await?;
    let fewer = logs::write(&sessions, mix, "fewer", FEWER_EVENTS).await?;
    logs::write(&sessions, mix, "tiny", 1).await?;
    let log_kib = std::fs::metadata(folder.path().join("long.jsonl"))?.len() as f64 / 1024.0;
    let view_kib = view_bytes as f64 / 1024.0;
    let (mut speed, mut walls, mut turns) = (Samples::default(), Samples::default(), Samples::default());
    let (mut of_log, mut of_view, mut kept, mut peaks) =
        (Samples::default(), Samples::default(), Samples::default(), Pair::default());
    for _ in 0..OPENINGS {
        // The turn that is done each time makes the logs longer by a few entries.
        let long = open(places, folder.path(), "long")?;
        let tiny = open(places, folder.path(), "tiny")?;
        let peak_kib = long.peak_kib - tiny.peak_kib;
        speed.push(entries as f64 / long.cpu_ms);
        walls.push(long.ms);
        turns.push(long.turn_ms);
        of_log.push(peak_kib / log_kib * 100.0);
        of_view.push(peak_kib / view_kib);
        kept.push((long.kept_kib - tiny.kept_kib) / 1024.0);
        peaks.push(long.peak_kib, open(places, folder.path(), "fewer")?.peak_kib);
    }
    let name = format!("opening a session of 1,000,000 events ({})", mix.name());
    let log = format!("{:.0} bytes an event, {:.0} MiB", log_kib * 1024.0 / entries as f64, log_kib / 1024.0);
    let log = format!(
        "{log}; {:.0} ms with what else this machine did, then {:.0} ms for the first turn",
        walls.median(),
        turns.median()
    );
    let views = format!("{:.1} MiB are kept, of a view with {:.1} MiB of text", kept.median(), view_kib / 1024.0);
    let mut rows =
        vec![Row::new(format!("{name}, on one core"), Reach::at_least(500.0, "events/ms"), speed).detail(log)];
    if mix == Mix::Compacted {
        let detail =
            format!("{:.1} MiB against {:.1} MiB", peaks.this.median() / 1024.0, peaks.other.median() / 1024.0);
        let what = format!("{name}: memory at the peak against that of {} events with a like view", fewer.entries);
        rows.push(Row::new(what, Reach::at_most(1.2, "×"), peaks.ratios()).detail(detail));
    } else {
        let what = format!("{name}: memory at the peak against the text of the model's view");
        rows.push(Row::new(what, Reach::at_most(3.0, "×"), of_view).detail(views));
    }
    rows.push(Row::plain(format!("{name}: memory at the peak against the log"), "%", of_log));
    Ok(rows)
}

/// Reads and appends late in a long log against the same in a short one.
async fn accesses() -> Fallible<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let sessions = files(folder.path());
    let mut ends = Vec::new();
    for (id, events) in [("long", EVENTS), ("short", FEWER_EVENTS)] {
        let written = logs::write(&sessions, Mix::Tools, id, events).await?;
        let session = sessions.open(&SessionId::new(id)?, &AgentId::new("main")?, Arc::new(Mutex::new(()))).await?;
        ends.push((session.writer, written.entries));
    }
    let (mut reads, mut appends) = (Pair::default(), Pair::default());
    for _ in 0..OPENINGS {
        let mut each = Vec::new();
        for (writer, entries) in &mut ends {
            each.push((read(writer.as_mut(), *entries)?, append(writer.as_mut(), entries)?));
        }
        reads.push(each[0].0, each[1].0);
        appends.push(each[0].1, each[1].1);
    }
    let detail = |pair: &Pair| format!("{:.1} µs against {:.1} µs", pair.this.median(), pair.other.median());
    let row = |what: &str, pair: Pair| {
        let what = format!("{what} in a session of 1,000,000 events against one of 100,000");
        Row::new(what, Reach::at_most(1.5, "×"), pair.ratios()).detail(detail(&pair))
    };
    Ok(vec![row("reading eight entries anywhere", reads), row("appending an entry", appends)])
}

/// Microseconds of one read.
fn read(writer: &mut dyn SessionWriter, entries: u64) -> Fallible<f64> {
    let start = Instant::now();
    for n in 0..ACCESSES {
        // A step that visits the whole log in no order.
        let at = n * 7_919 % entries;
        let read = writer.read(at, 8, usize::MAX)?;
        if read.first().map(|entry| entry.seq) != Some(at) {
            return Err(format!("entry {at} was not found").into());
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    Ok(micros(start.elapsed()) / ACCESSES as f64)
}

/// Microseconds of one append.
fn append(writer: &mut dyn SessionWriter, entries: &mut u64) -> Fallible<f64> {
    let last = writer.read(*entries - 1, 1, usize::MAX)?.pop().ok_or("the last entry is gone")?;
    let start = Instant::now();
    for _ in 0..ACCESSES {
        writer.append(&Entry { seq: *entries, ..last.clone() })?;
        *entries += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    Ok(micros(start.elapsed()) / ACCESSES as f64)
}

/// What is listed, found and copied of a folder with a long session.
async fn listing() -> Fallible<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let sessions = files(folder.path());
    let written = logs::write(&sessions, Mix::Tools, "long", EVENTS).await?;
    let (id, agent) = (SessionId::new("long")?, AgentId::new("main")?);
    let (mut lists, mut newest, mut forks) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..OPENINGS {
        let start = Instant::now();
        let listed = sessions.list().await?;
        lists.push(millis(start.elapsed()));
        if listed.iter().map(|summary| summary.entries).max() != Some(written.entries) {
            return Err("the list does not know how long the session is".into());
        }
        let start = Instant::now();
        sessions.newest(&agent, "/").await?;
        newest.push(millis(start.elapsed()));
        let start = Instant::now();
        let mut fork = sessions.fork(&id, None, &agent, &[], Arc::new(Mutex::new(()))).await?;
        let mut entry = fork.writer.read(written.entries - 1, 1, usize::MAX)?.pop().ok_or("the copy is short")?;
        entry.seq += 1;
        fork.writer.append(&entry)?;
        forks.push(millis(start.elapsed()));
        let copy = folder.path().join(format!("{}.jsonl", fork.header.id));
        drop(fork);
        std::fs::remove_file(copy)?;
    }
    Ok(vec![
        Row::plain("listing a folder with a session of 1,000,000 events", "ms", lists),
        Row::plain("finding the newest session there", "ms", newest),
        Row::plain("a fork of that session, until its first entry is written", "ms", forks),
    ])
}
