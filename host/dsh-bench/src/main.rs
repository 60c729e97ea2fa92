//! Measures what dsh-host costs and prints it beside what it should cost. `cargo xtask bench` runs it.

mod bed;
mod body;
mod calls;
mod events;
mod fair;
mod fleet;
mod harness;
mod logs;
mod long;
mod measure;
mod memory;
mod normalised;
mod policy;
mod process;
mod report;
mod rivals;
mod steps;
mod wasm;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use report::{Report, Row};

/// What anything here may fail with; a row that fails is a line of the table.
pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The argument that makes this program the process whose memory is measured.
const IDLE_AGENTS: &str = "idle-agents";
/// The argument, before a number of milliseconds, that makes it the process in which many agents work at once.
const FLEET: &str = "fleet-of-agents";
/// The argument, before a folder and an id, that makes it the one that opens a session.
const OPEN_SESSION: &str = "open-session";

/// The argument, before one of [`LOOPS`], that does one thing over and over, for a profiler.
const PROFILE: &str = "profile";
/// The argument for a rough idea in some seconds.
const QUICK: &str = "--quick";
/// What can be done over and over: a listener's call, a policy's verdict, steps without and with five plugins.
const LOOPS: [&str; 4] = ["listener", "policy", "steps", "plugins"];
/// For how long.
const PROFILE_TIME: Duration = Duration::from_secs(5);

/// Where the things are that are measured.
pub struct Places {
    /// The binary `dsh-host`.
    pub host: PathBuf,
    /// This binary and its neighbours.
    pub own: PathBuf,
    /// The shipped plugins.
    pub plugins: PathBuf,
    /// The tests' guests.
    pub guests: PathBuf,
    /// Where the numbers go.
    pub out: PathBuf,
    /// Whether a rough idea in some seconds is enough.
    pub quick: bool,
}

/// What a quick run leaves out: what takes many seconds, or needs engines that only `cargo xtask bench rivals` builds.
const NOT_QUICK: [&str; 3] = ["long", "fleet", "rivals"];
/// Rounds of a quick run.
const QUICK_ROUNDS: usize = 3;

impl Places {
    /// Beside this binary, which is `target/release/dsh-bench`.
    fn find(quick: bool) -> Fallible<Self> {
        let own = std::env::current_exe()?;
        let release = own.parent().ok_or("this binary is in no folder")?;
        let target = release.parent().ok_or("this binary is in no build directory")?;
        Ok(Self {
            host: release.join("dsh-host"),
            plugins: target.join("plugins"),
            guests: target.join("test-guests"),
            out: target.join("bench.json"),
            quick,
            own,
        })
    }

    /// How many rounds to measure, where a full run makes so many.
    pub fn rounds(&self, full: usize) -> usize {
        if self.quick { full.min(QUICK_ROUNDS) } else { full }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is measured, in this order.
const GROUPS: [&str; 12] =
    ["calls", "policy", "steps", "events", "fair", "long", "body", "process", "harness", "memory", "fleet", "rivals"];

fn run() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let places = Places::find(arguments.first().is_some_and(|first| first == QUICK))?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | [QUICK] => runtime.block_on(all(&places, None)),
        [IDLE_AGENTS, count] => runtime.block_on(memory::child(&places, count.parse()?)),
        [FLEET, latency_ms] => fleet_runtime()?.block_on(fleet::child(&places, latency_ms.parse()?)),
        [OPEN_SESSION, folder, id] => runtime.block_on(long::child(folder, id)),
        [PROFILE, what] if LOOPS.contains(&what) => runtime.block_on(profile(&places, what)),
        [only] | [QUICK, only] if GROUPS.contains(&only) => runtime.block_on(all(&places, Some(only))),
        _ => Err(format!(
            "usage: dsh-bench [{QUICK}] [GROUP], one of {}; or dsh-bench {PROFILE} LOOP, one of {}",
            GROUPS.join(", "),
            LOOPS.join(", ")
        )
        .into()),
    }
}

fn fleet_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(fleet::THREADS).enable_all().build()
}

/// One thing over and over.
async fn profile(places: &Places, what: &str) -> Fallible<()> {
    match what {
        "listener" => calls::profile(places, PROFILE_TIME).await,
        "policy" => policy::profile(places, PROFILE_TIME).await,
        _ => steps::profile(places, what == "plugins", PROFILE_TIME).await,
    }
}

async fn rows_of(group: &str, places: &Places) -> Rows {
    match group {
        "calls" => calls::rows(places).await,
        "policy" => policy::rows(places).await,
        "steps" => steps::rows(places).await,
        "events" => events::rows().await,
        "fair" => fair::rows(places).await,
        "long" => long::rows(places).await,
        "body" => body::rows().await,
        "process" => process::rows(places).await,
        "harness" => harness::rows(places).await,
        "memory" => memory::rows(places).await,
        "fleet" => fleet::rows(places).await,
        "rivals" => rivals::rows(places).await,
        other => Err(format!("the group `{other}` has no rows").into()),
    }
}

/// All rows, or those of one group.
async fn all(places: &Places, only: Option<&str>) -> Fallible<()> {
    let left_out = if places.quick { NOT_QUICK.to_vec() } else { Vec::new() };
    let mut report = Report::new(only, left_out);
    for group in GROUPS {
        report.group(group, || rows_of(group, places)).await;
    }
    print!("{report}");
    let before = std::fs::read(&places.out).ok().and_then(|text| serde_json::from_slice(&text).ok());
    std::fs::write(&places.out, report.json(places.quick, &before.unwrap_or_default()))?;
    eprintln!("written to {}", places.out.display());
    Ok(())
}

/// The rows of one group.
type Rows = Fallible<Vec<Row>>;
