//! Measures what dsh-host costs and prints it beside what it should cost. `cargo xtask bench` runs it.

mod bed;
mod body;
mod calls;
mod events;
mod logs;
mod long;
mod measure;
mod memory;
mod policy;
mod process;
mod report;
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
/// The argument, before a folder and an id, that makes it the one that opens a session.
const OPEN_SESSION: &str = "open-session";

/// The argument, before one of [`LOOPS`], that does one thing over and over, for a profiler.
const PROFILE: &str = "profile";
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
}

impl Places {
    /// Beside this binary, which is `target/release/dsh-bench`.
    fn find() -> Fallible<Self> {
        let own = std::env::current_exe()?;
        let release = own.parent().ok_or("this binary is in no folder")?;
        let target = release.parent().ok_or("this binary is in no build directory")?;
        Ok(Self {
            host: release.join("dsh-host"),
            plugins: target.join("plugins"),
            guests: target.join("test-guests"),
            out: target.join("bench.json"),
            own,
        })
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
const GROUPS: [&str; 8] = ["calls", "policy", "steps", "events", "long", "body", "process", "memory"];

fn run() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let places = Places::find()?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => runtime.block_on(all(&places, None)),
        [IDLE_AGENTS] => runtime.block_on(memory::child(&places)),
        [OPEN_SESSION, folder, id] => runtime.block_on(long::child(folder, id)),
        [only] if GROUPS.contains(&only) => runtime.block_on(all(&places, Some(only))),
        [PROFILE, what] if LOOPS.contains(&what) => runtime.block_on(profile(&places, what)),
        _ => Err(format!(
            "usage: dsh-bench [GROUP], one of {}; or dsh-bench {PROFILE} LOOP, one of {}",
            GROUPS.join(", "),
            LOOPS.join(", ")
        )
        .into()),
    }
}

/// One thing over and over.
async fn profile(places: &Places, what: &str) -> Fallible<()> {
    match what {
        "listener" => calls::profile(places, PROFILE_TIME).await,
        "policy" => policy::profile(places, PROFILE_TIME).await,
        _ => steps::profile(places, what == "plugins", PROFILE_TIME).await,
    }
}

/// All rows, or those of one group.
async fn all(places: &Places, only: Option<&str>) -> Fallible<()> {
    let mut report = Report::new(only);
    report.group("calls", || calls::rows(places)).await;
    report.group("policy", || policy::rows(places)).await;
    report.group("steps", || steps::rows(places)).await;
    report.group("events", events::rows).await;
    report.group("long", || long::rows(places)).await;
    report.group("body", body::rows).await;
    report.group("process", || process::rows(places)).await;
    report.group("memory", || memory::rows(places)).await;
    print!("{report}");
    if only.is_none() {
        std::fs::write(&places.out, report.json())?;
        eprintln!("written to {}", places.out.display());
    }
    Ok(())
}

/// The rows of one group.
type Rows = Fallible<Vec<Row>>;
