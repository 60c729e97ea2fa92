//! A guest does not hold its thread: whatever it does, the other tasks of the thread get their turn every few milliseconds.
//!
//! Times would fail on a busy machine, so the tests count turns. With `DSH_FAIR=1` they print times: how long another task of the same
//! thread had to wait at most, and at the 99th percentile.

mod support;

use std::sync::Arc;
use std::time::Instant;

use dsh_seam::draft::RequestDraft;
use dsh_wasm::{Limits, PluginSpec};
use support::*;

/// How often another task must have had its turn while a guest computed for 300 ms, which are sixty ticks, or while the host worked on a
/// large value elsewhere: without giving way it is none or one.
const ENOUGH: usize = 10;

/// Runs `call` beside a task that wants its turn all the time; how often it got it.
async fn beside<T>(name: &str, call: impl Future<Output = T>) -> (T, usize) {
    let began = Instant::now();
    let mut waits = Vec::new();
    let other = async {
        let mut last = Instant::now();
        loop {
            tokio::task::yield_now().await;
            waits.push(last.elapsed());
            last = Instant::now();
        }
    };
    let outcome = tokio::select! {
        biased;
        () = other => unreachable!("it never ends"),
        outcome = call => outcome,
    };
    waits.sort_unstable();
    let turns = waits.len();
    if std::env::var_os("DSH_FAIR").is_some() {
        let at = |share: f64| {
            waits.get(((turns as f64 * share) as usize).min(turns.saturating_sub(1))).copied().unwrap_or_default()
        };
        println!(
            "{name:<28} {:>8.1?} in all, {turns:>6} turns, waits: p50 {:>8.1?} p99 {:>8.1?} most {:>8.1?}",
            began.elapsed(),
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    (outcome, turns)
}

fn patient() -> Limits {
    Limits { cpu_ms: 300, wall_ms: 60_000, host_calls: 1_000_000_000, ..Limits::default() }
}

const IMPORTS: &str = r#"
    (import "dsh:agent/agent-types@0.1.0" "[method]llm-request.splice" (func $splice (param i32 i32 i32 i32 i32 i32)))
    (import "dsh:agent/agent-types@0.1.0" "[method]llm-request.messages" (func $messages (param i32 i32 i32 i32)))
    (import "dsh:plugin/state@0.1.0" "set" (func $set (param i32 i32 i32 i32 i32)))
"#;

/// A listener with 62 MiB of memory, of which all above 128 KiB is free; what the host hands over lies there.
fn guest(locals: &str, body: &str) -> Vec<u8> {
    let core = request_core("", &format!("{locals} (drop (memory.grow (i32.const 990))) {body}"))
        .replace("(module", &format!("(module {IMPORTS}"))
        .replace("(result i32) (i32.const 4096))", "(result i32) (i32.const 131072))");
    component(&format!("import dsh:plugin/state@0.1.0; {REQUEST_WORLD}"), &core)
}

async fn run(name: &str, guest: &[u8], limits: Limits, draft: Arc<RequestDraft>) -> (Result<(), String>, usize) {
    let engine = engine();
    let spec = PluginSpec { limits, ..spec("p") };
    let (attached, _) = attach(&engine, guest, spec).await;
    let listeners = [&attached];
    let (outcome, turns) = beside(name, run_request(&listeners, draft, nothing())).await;
    (outcome.map_err(|error| error.to_string()), turns)
}

/// A loop over `body`, which never ends.
fn endless(body: &str) -> Vec<u8> {
    guest("", &format!("(loop $again {body} (br $again)) unreachable"))
}

#[tokio::test]
async fn busy_guests_yield() {
    for (name, body) in [
        ("computing", ""),
        ("calling the host", "(drop (call $count (local.get $request)))"),
        ("memory.fill of 62 MiB", "(memory.fill (i32.const 0) (i32.const 1) (i32.const 65011712))"),
        ("memory.copy of 31 MiB", "(memory.copy (i32.const 32505856) (i32.const 0) (i32.const 32505856))"),
    ] {
        let (outcome, turns) = run(name, &endless(body), patient(), draft(1)).await;
        let expect = "plugin `p` failed in `agent/request`: it computed for longer than the limit `cpu-ms` of 300 ms";
        assert_eq!(outcome, Err(expect.to_owned()), "{name}");
        assert!(turns >= ENOUGH, "{name}: {turns} turns");
    }
}

/// Writes `0,0,…` from 1 MiB up to END.
const ZEROS: &str = "(local.set $at (i32.const 1048576)) (loop $more (i32.store16 (local.get $at) (i32.const 0x2c30)) (local.set $at (i32.add (local.get $at) (i32.const 2))) (br_if $more (i32.lt_u (local.get $at) (i32.const END))))";

#[tokio::test]
async fn large_values_are_taken_elsewhere() {
    // A message whose one block is JSON of a kind that the host does not know.
    let one_message = |at: u32, bytes: u32| {
        format!(
            "(i32.store8 (i32.const 256) (i32.const 1)) (i32.store (i32.const 260) (i32.const 512)) (i32.store (i32.const 264) (i32.const 1)) (i32.store8 (i32.const 512) (i32.const 5)) (i32.store (i32.const 516) (i32.const {at})) (i32.store (i32.const 520) (i32.const {bytes})) (call $splice (local.get $request) (i32.const 0) (i32.const 0) (i32.const 256) (i32.const 1) (i32.const 1024))"
        )
    };
    let zeros = |end: u32| ZEROS.replace("END", &end.to_string());
    let mib = 1_048_576_u32;
    let array = |bytes: u32| {
        // No block, but it is parsed before that is known.
        format!(
            "{} (i32.store8 (i32.const {}) (i32.const 0x5b)) (i32.store16 (i32.const {}) (i32.const 0x5d30))",
            zeros(mib + bytes),
            mib - 1,
            mib + bytes
        )
    };
    let limits = Limits { cpu_ms: 60_000, memory_mib: 64, ..patient() };
    for (name, body) in [
        ("4 MiB of JSON", format!("{}{}", array(4 * mib - 4), one_message(mib - 1, 4 * mib - 1))),
        ("100,000 messages", "(call $splice (local.get $request) (i32.const 0) (i32.const 0) (i32.const 1048576) (i32.const 100000) (i32.const 1024))".into()),
        ("state.set of 1 MiB of JSON", format!("{}(call $set (i32.const 64) (i32.const 1) (i32.const {}) (i32.const {}) (i32.const 1024))", array(mib - 3), mib - 1, mib)),
    ] {
        let guest = guest("(local $at i32)", &format!("{body} {DONE}"));
        let (outcome, turns) = run(name, &guest, limits, draft(1)).await;
        assert_eq!(outcome, Ok(()), "{name}");
        assert!(turns >= ENOUGH, "{name}: {turns} turns");
    }
}

#[tokio::test]
async fn large_values_are_given_elsewhere() {
    let limits = Limits { cpu_ms: 60_000, memory_mib: 64, ..patient() };
    let read = |count: u32| {
        format!("(call $messages (local.get $request) (i32.const 0) (i32.const {count}) (i32.const 1024)) {DONE}")
    };
    for (name, messages, bytes) in [("50 messages of 1 MiB", 50, 1_048_576), ("100,000 small messages", 100_000, 10)] {
        let (outcome, turns) = run(name, &guest("", &read(messages)), limits, long_draft(messages, bytes)).await;
        assert_eq!(outcome, Ok(()), "{name}");
        assert!(turns >= ENOUGH, "{name}: {turns} turns");
    }
}
