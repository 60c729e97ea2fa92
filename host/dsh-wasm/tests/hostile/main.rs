//! The hostile guests of `tests/guests/hostile`, in process: what each does fails exactly as its header says, and afterwards the host is as
//! it was before: every instance given back, no more memory, no task, no thread, the next turn and the next plugin fine.
//!
//! `DSH_HOSTILE_ROUNDS` is how often each is called (200); a number that is no multiple of ten is as good as any.

mod health;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use dsh_seam::plugin::Plugin as _;
use dsh_text_guests::TextGuest;
use dsh_wasm::{Compiler, Engine, EngineOptions, Grants, Limits, PluginSpec};
use libtest_mimic::{Arguments, Failed, Trial};

use crate::health::{Health, Level};
use crate::support::{PASS, attach, draft, name, nothing, request_listener, round, run_request};

/// How often a guest is called: its memory is compared between the tenth part and the end.
const ROUNDS: u32 = 200;
/// The same for a guest that takes long each time.
const SLOW_ROUNDS: u32 = 20;

fn main() -> ExitCode {
    health::count_panics();
    let mut arguments = Arguments::from_args();
    // Memory, tasks and threads are the whole process's.
    arguments.test_threads = Some(1);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/hostile");
    let guests = dsh_text_guests::find(&folder).unwrap_or_else(|error| panic!("{error}"));
    let engine = engine();
    let trial = |guest: TextGuest| {
        let engine = engine.clone();
        Trial::test(guest.name.clone(), move || check(&engine, &guest).map_err(Failed::from))
    };
    let mut trials: Vec<Trial> = guests.into_iter().map(trial).collect();
    assert!(trials.len() >= 60, "the suite has {} guests", trials.len());
    let engine = engine.clone();
    trials.push(Trial::test("the-clock-thread-parks-afterwards", move || health::parks(&engine).map_err(Failed::from)));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn engine() -> Engine {
    let cache_dir = Some(support::target().join("test-cache"));
    Engine::new(EngineOptions { cache_dir, ..EngineOptions::new(Compiler::InProcess) }).expect("an engine")
}

fn rounds(guest: &TextGuest) -> u32 {
    let most = std::env::var("DSH_HOSTILE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    if guest.slow.is_some() { most.min(SLOW_ROUNDS) } else { most }
}

/// Everything that is asked of one guest.
fn check(engine: &Engine, guest: &TextGuest) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let problems = runtime.block_on(async {
        let panics = health::panics();
        let mut problems = called(engine, guest).await?;
        problems.extend(good_plugin(engine).await);
        if health::panics() != panics {
            problems.push("the host panicked".to_owned());
        }
        Ok::<_, String>(problems)
    })?;
    if problems.is_empty() { Ok(()) } else { Err(format!("{}\n{}", guest.about, problems.join("\n"))) }
}

/// Loads it, and calls it again and again.
async fn called(engine: &Engine, guest: &TextGuest) -> Result<Vec<String>, String> {
    let before = Health::now(engine);
    let spec = spec(guest)?;
    let loaded = engine.load(guest.component()?, spec).await;
    let plugin = match (loaded, &guest.expected.load) {
        (Ok(plugin), None) => plugin,
        (Ok(_), Some(_)) => return Ok(vec!["it was loaded".to_owned()]),
        (Err(error), expected) => {
            let told = error.to_string();
            drop(error);
            let mut problems: Vec<String> =
                Vec::from_iter(differs("load", expected.iter().cloned().collect(), vec![told]));
            problems.extend(before.differs(&Health::now(engine)));
            return Ok(problems);
        }
    };
    let agent = support::Agent::new(guest.name.as_str());
    let attached = plugin.attach(agent.clone());
    let mut problems = Vec::new();
    let (rounds, mut level) = (rounds(guest), Level::default());
    for n in 0..rounds {
        let failed = round::run(&attached, &agent, 1).await;
        problems.extend(differs(&format!("round {n}"), guest.expected.fails.clone(), failed));
        if n == rounds / 10 {
            level = Level::now();
        }
        if !problems.is_empty() {
            return Ok(problems);
        }
    }
    problems.extend(level.risen());
    let again = round::run(&attached, &agent, 2).await;
    let expected = if guest.expected.always.is_some() { guest.expected.fails.clone() } else { vec![] };
    problems.extend(differs("turn 2", expected, again));
    if let Some(lifecycle) = &attached.lifecycle {
        lifecycle.detached();
    }
    drop((attached, plugin));
    if Arc::strong_count(&agent) != 1 {
        problems.push(format!("the agent is still held in {} places", Arc::strong_count(&agent) - 1));
    }
    problems.extend(before.differs(&Health::now(engine)));
    Ok(problems)
}

fn differs(what: &str, expected: Vec<String>, found: Vec<String>) -> Option<String> {
    let lines = |lines: &[String]| lines.iter().map(|line| format!("\n  {line}")).collect::<String>();
    let header = |line: &String| if what == "load" { format!(";; load: {line}") } else { format!(";; fails: {line}") };
    let found: Vec<String> = found.iter().map(header).collect();
    let expected: Vec<String> = expected.iter().map(header).collect();
    (found != expected).then(|| format!("{what}: expected{}\nfound{}", lines(&expected), lines(&found)))
}

fn spec(guest: &TextGuest) -> Result<PluginSpec, String> {
    let grants = guest.grants.iter().map(|grant| grant.parse().map_err(|error| format!("{grant}: {error}")));
    let config = guest.config.as_deref().map(serde_json::from_str).transpose().map_err(|error| error.to_string())?;
    let mut spec = PluginSpec::new(name(&guest.name));
    spec.grants = Grants::new(grants.collect::<Result<Vec<_>, _>>()?);
    spec.config = config.unwrap_or(spec.config);
    spec.limits = limits(&guest.limits)?;
    Ok(spec)
}

fn limits(list: &[(String, u32)]) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for (key, number) in list {
        limits.set(key, i64::from(*number)).map_err(|error| error.to_string())?;
    }
    Ok(limits)
}

/// Another plugin of the same engine, before and after.
async fn good_plugin(engine: &Engine) -> Option<String> {
    let (attached, _agent) = attach(engine, &request_listener("", PASS), support::spec("good")).await;
    run_request(&[&attached], draft(1), nothing()).await.err().map(|error| format!("a good plugin fails: {error}"))
}
