//! Arbitrary guests: whatever bytes a file has, whatever module a component holds, whatever a guest calls and answers, the host refuses it or
//! goes on, does not panic, takes no longer than the limits allow, and holds nothing afterwards.
//!
//! Each input is made from a number. `DSH_FUZZ=n` tries n of them instead of a few seconds' worth, from `DSH_FUZZ_FROM` on; a failure says
//! the number, and a number that once failed stands in `REGRESSIONS`.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dsh_seam::plugin::Plugin as _;
use dsh_testkit::Chance;
use dsh_text_guests::{TextGuest, WORDS, WORDS_BYTES};
use dsh_wasm::{Compiler, Engine, EngineOptions, Grants, Limits, PluginSpec, inspect};
use support::*;

/// How many inputs each test tries: a few seconds' worth.
const INPUTS: u64 = 300;

/// Numbers of inputs that once failed.
const REGRESSIONS: [u64; 0] = [];

/// How long a turn of such a guest may take: eleven calls of at most 200 ms each, on a machine that does other things too.
const TURN: Duration = Duration::from_secs(20);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn inputs() -> impl Iterator<Item = u64> {
    let from = number("DSH_FUZZ_FROM", 0);
    REGRESSIONS.into_iter().chain(from..from + number("DSH_FUZZ", INPUTS))
}

/// Says which input it was when the test goes no further.
struct Trying(&'static str, u64);

impl Drop for Trying {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: input {} fails; try it alone with DSH_FUZZ_FROM={} DSH_FUZZ=1", self.0, self.1, self.1);
        }
    }
}

fn hostile(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/hostile").join(name);
    TextGuest::read(&path.with_extension("wat"))
        .and_then(|guest| guest.component())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Changes a whole component: bytes, cuts, parts that are doubled, moved or left out.
fn mutate(bytes: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=chance.below(6) {
        if bytes.is_empty() {
            break;
        }
        let (at, other) = (chance.index(bytes.len()), chance.index(bytes.len()));
        let (start, end) = (at.min(other), at.max(other));
        match chance.below(7) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = u8::try_from(chance.below(256)).expect("it is a byte"),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(start..end)),
            4 => bytes.extend_from_within(start..end),
            5 => bytes.swap(at, other),
            _ => drop(bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f])),
        }
    }
    bytes
}

#[test]
fn any_file_is_looked_at_and_refused_or_taken() {
    let whole = ["next-never", "loop-destructor", "memory-many"].map(hostile);
    for input in inputs().flat_map(|input| (0..20).map(move |n| input * 20 + n)) {
        let _trying = Trying("a changed file", input);
        let mut chance = Chance::new(input);
        let bytes = match chance.below(10) {
            0 => (0..chance.below(400)).map(|_| u8::try_from(chance.below(256)).expect("it is a byte")).collect(),
            _ => mutate(&whole[chance.index(whole.len())], &mut chance),
        };
        let start = Instant::now();
        if let Err(refusal) = inspect(&bytes) {
            assert!(!refusal.to_string().is_empty() && !refusal.hint().is_empty());
        }
        assert!(start.elapsed() < TURN, "it took {:?}", start.elapsed());
    }
}

fn engine() -> Engine {
    Engine::new(EngineOptions::new(Compiler::InProcess)).expect("an engine")
}

fn short() -> Limits {
    Limits { memory_mib: 16, cpu_ms: 20, wall_ms: 200, tool_cpu_ms: 20, tool_wall_ms: 200, ..Limits::default() }
}

/// Plays two turns with a plugin, if it loads, and looks at what is left of it.
async fn play(engine: &Engine, bytes: &[u8], spec: PluginSpec) {
    let start = Instant::now();
    let (name, before) = (spec.name.clone(), engine.census());
    if let Ok(plugin) = engine.load(bytes.to_vec(), spec).await {
        let agent = Agent::new(name.as_str());
        let attached = plugin.attach(agent.clone());
        for turn in 1..=2 {
            let _ = round::run(&attached, &agent, turn).await;
        }
        attached.lifecycle.as_ref().expect("it has one").detached();
        drop((attached, plugin));
        assert_eq!(Arc::strong_count(&agent), 1, "somebody still holds the agent");
    }
    let after = engine.census();
    assert_eq!((before.calls, before.instances, before.stacks), (after.calls, after.instances, after.stacks));
    assert!(start.elapsed() < TURN, "it took {:?}", start.elapsed());
}

#[tokio::test]
async fn a_changed_component_is_refused_or_does_its_worst() {
    let (engine, whole) = (engine(), hostile("next-never"));
    for input in inputs() {
        let _trying = Trying("a changed component", input);
        let mut bytes = whole.clone();
        let mut chance = Chance::new(input);
        // One byte: many of these are valid and do something else.
        let at = chance.index(bytes.len());
        bytes[at] = bytes[at].wrapping_add(1 << chance.below(8));
        play(&engine, &bytes, PluginSpec { limits: short(), ..spec("changed") }).await;
    }
}

/// A word that is likely to mean something: a small number, an address among the words, or anything.
fn word(chance: &mut Chance) -> u32 {
    let any = chance.word();
    match chance.below(8) {
        0..=2 => any % 8,
        3 => any % 80,
        4 | 5 => WORDS + ((any % WORDS_BYTES) & !7),
        6 => chance.pick(&[u32::MAX, 0x7fff_ffff, 0x8000_0000, 0x1_0000, 0x10_0000, 65_535]),
        _ => any,
    }
}

#[tokio::test]
async fn a_guest_calls_anything_and_answers_anything() {
    let engine = engine();
    let guests = [true, false].map(|loads| dsh_text_guests::chaos(loads).expect("it fits the contract"));
    let grants = ["session", "inbox", "agents", "approval", "process", "llm"];
    for input in inputs() {
        let _trying = Trying("a guest of chaos", input);
        let mut chance = Chance::new(input);
        let mut hex = String::new();
        for _ in 0..chance.below(WORDS_BYTES / 4) {
            hex.extend(word(&mut chance).to_le_bytes().iter().map(|byte| format!("{byte:02x}")));
        }
        let granted = grants.iter().filter(|_| chance.below(2) == 0).map(|grant| grant.parse().expect("a grant"));
        let spec = PluginSpec {
            config: serde_json::json!({ "words": hex }),
            grants: Grants::new(granted.collect::<Vec<_>>()),
            limits: short(),
            ..spec("chaos")
        };
        play(&engine, &guests[usize::from(chance.below(8) == 0)], spec).await;
    }
}
