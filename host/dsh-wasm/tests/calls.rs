//! How guests are called, and what happens to those that misbehave. Each is a few lines of WebAssembly text.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use dsh_seam::plugin::Plugin as _;
use dsh_seam::waterfall::RunError;
use dsh_seam::{FailureKind, Seam};
use dsh_wasm::Limits;
use support::*;

/// What a listener's failure says: its kind and its message.
async fn failure(bytes: &[u8], limits: Limits) -> (FailureKind, String) {
    let engine = engine();
    let (attached, _) = attach(&engine, bytes, dsh_wasm::PluginSpec { limits, ..spec("p") }).await;
    match run_request(&[&attached], draft(1), nothing()).await {
        Err(RunError::Plugin(error)) => {
            assert_eq!((error.plugin.as_str(), error.seam), ("p", Seam::Request));
            (error.kind, error.message)
        }
        other => panic!("the plugin did not fail: {other:?}"),
    }
}

#[tokio::test]
async fn a_listener_reads_and_edits_the_request() {
    let engine = engine();
    // Edits the system prompt if it counts three messages.
    let body = format!(
        "(if (i32.eq (call $count (local.get $request)) (i32.const 3)) (then (call $set_system (local.get $request) (i32.const 64) (i32.const 6) (i32.const 256)))) {PASS}"
    );
    let (attached, _) = attach(&engine, &request_listener("", &body), spec("p")).await;
    let request = draft(3);
    run_request(&[&attached], request.clone(), nothing()).await.expect("no failure");
    assert_eq!(&*request.system(), "edited");
    let request = draft(4);
    run_request(&[&attached], request.clone(), nothing()).await.expect("no failure");
    assert_eq!(&*request.system(), "system");
}

#[tokio::test]
async fn a_trap_is_told_in_words_and_the_next_call_is_fresh() {
    let engine = engine();
    // Traps in every second call of an instance: a discarded instance would forget that it was called.
    let extra = "(global $calls (mut i32) (i32.const 0))";
    let body = format!(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) (if (i32.eq (global.get $calls) (i32.const 2)) (then unreachable)) {DONE}"
    );
    let (attached, _) = attach(&engine, &request_listener(extra, &body), spec("p")).await;
    for round in 0..3 {
        run_request(&[&attached], draft(1), nothing()).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let error = run_request(&[&attached], draft(1), nothing()).await.expect_err("the second call traps");
        assert_eq!(error.to_string(), "plugin `p` failed in `agent/request`: it panicked or aborted");
    }
}

#[tokio::test]
async fn instances_are_kept_for_the_turn_only() {
    let engine = engine();
    let extra = "(global $calls (mut i32) (i32.const 0))";
    let body = format!(
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) (if (i32.eq (global.get $calls) (i32.const 3)) (then unreachable)) {DONE}"
    );
    let (attached, _) = attach(&engine, &request_listener(extra, &body), spec("p")).await;
    for _ in 0..3 {
        run_request(&[&attached], draft(1), nothing()).await.expect("first call of the turn");
        run_request(&[&attached], draft(1), nothing()).await.expect("second call of the turn");
        attached.lifecycle.as_ref().expect("it has one").turn_ended();
    }
}

#[tokio::test]
async fn a_plugin_may_be_inside_itself() {
    let engine = engine();
    let (attached, _) = attach(&engine, &request_listener("", PASS), spec("p")).await;
    run_request(&[&attached, &attached, &attached], draft(1), nothing()).await.expect("three instances");
}

// That it does not hold its thread meanwhile: `fair.rs`.
#[tokio::test]
async fn a_spinning_guest_is_stopped() {
    let limits = Limits { cpu_ms: 200, ..Limits::default() };
    let (kind, message) = failure(&request_listener("", "(loop (br 0)) unreachable"), limits).await;
    assert_eq!(
        (kind, message.as_str()),
        (FailureKind::Limit, "it computed for longer than the limit `cpu-ms` of 200 ms")
    );
}

#[tokio::test]
async fn a_spinning_start_function_is_stopped() {
    let core = request_core("(func $start (loop (br 0))) (start $start)", DONE);
    let (kind, message) = failure(&component(REQUEST_WORLD, &core), Limits { cpu_ms: 50, ..Limits::default() }).await;
    assert_eq!(
        (kind, message.as_str()),
        (FailureKind::Limit, "it computed for longer than the limit `cpu-ms` of 50 ms")
    );
}

#[tokio::test]
async fn a_handle_of_an_earlier_call_is_dead() {
    let engine = engine();
    let extra = "(global $kept (mut i32) (i32.const 0))";
    let body = "(if (i32.eqz (global.get $kept)) (then (global.set $kept (local.get $request))) (else (drop (call $count (global.get $kept))))) (call $ok)";
    let (attached, _) = attach(&engine, &request_listener(extra, body), spec("p")).await;
    run_request(&[&attached], draft(1), nothing()).await.expect("it keeps the handle");
    let error = run_request(&[&attached], draft(1), nothing()).await.expect_err("it uses what it kept");
    let expect = "plugin `p` failed in `agent/request`: a handle of an earlier call was used: a handle is good until the call that got it returns";
    assert_eq!(error.to_string(), expect);
}

#[tokio::test]
async fn a_failure_that_is_answered_carries_its_code() {
    let body = "(i32.store8 (i32.const 128) (i32.const 1)) (i32.store (i32.const 132) (i32.const 64)) (i32.store (i32.const 136) (i32.const 6)) (i32.store (i32.const 140) (i32.const 64)) (i32.store (i32.const 144) (i32.const 4)) (i32.const 128)";
    let (kind, message) = failure(&request_listener("", body), Limits::default()).await;
    assert_eq!((kind, message.as_str()), (FailureKind::Error, "edit (`edited`)"));
}

#[tokio::test]
async fn time_inside_next_is_not_billed() {
    // A real wait: limits are times of the machine. They are long enough for a busy one to stay below them.
    let limits = Limits { wall_ms: 500, cpu_ms: 400, ..Limits::default() };
    let longer = Duration::from_millis(600);
    let (attached, _) =
        attach(&engine(), &request_listener("", PASS), dsh_wasm::PluginSpec { limits, ..spec("p") }).await;
    let slow: dsh_seam::waterfall::Innermost<dsh_seam::waterfalls::Request> = Arc::new(move |_| {
        Box::pin(async move {
            tokio::time::sleep(longer).await;
            let until = Instant::now() + longer;
            while Instant::now() < until {
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    });
    run_request(&[&attached], draft(1), slow).await.expect("what happens inside `next` has limits of its own");
}

#[tokio::test]
async fn more_instances_than_the_pool_has_room_for_are_made_beside_it() {
    const AGENTS: usize = 1_200;
    let engine = engine();
    let plugin = load(&engine, &request_listener("", PASS), spec("p")).await.expect("it fits");
    // All calls are inside `next` at the same moment.
    let together = Arc::new(tokio::sync::Barrier::new(AGENTS + 1));
    let agents: Vec<_> = (0..AGENTS).map(|_| plugin.attach(Agent::new("p"))).collect();
    let calls = futures::future::join_all(agents.iter().map(|attached| {
        let together = together.clone();
        let innermost: dsh_seam::waterfall::Innermost<dsh_seam::waterfalls::Request> = Arc::new(move |_| {
            let together = together.clone();
            Box::pin(async move {
                together.wait().await;
                Ok(())
            })
        });
        async move { run_request(&[attached], draft(1), innermost).await }
    }));
    let looked = async {
        together.wait().await;
        engine.census()
    };
    let (calls, census) = tokio::join!(calls, looked);
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!((census.places, census.instances), (1_200, 512), "the pool is full and the others are beside it");
    drop(agents);
    assert_eq!((engine.census().places, engine.census().instances), (0, 0));
}

#[tokio::test]
async fn a_dropped_call_discards_its_instance() {
    let engine = engine();
    // Counts its calls before it waits in `next`; an instance that survived the drop would trap.
    let extra = "(global $calls (mut i32) (i32.const 0))";
    let body = format!("(if (global.get $calls) (then unreachable)) (global.set $calls (i32.const 1)) {PASS}");
    let (attached, _) = attach(&engine, &request_listener(extra, &body), spec("p")).await;
    let never: dsh_seam::waterfall::Innermost<dsh_seam::waterfalls::Request> =
        Arc::new(|_| Box::pin(std::future::pending()));
    let dropped = tokio::time::timeout(Duration::from_millis(20), run_request(&[&attached], draft(1), never)).await;
    assert!(dropped.is_err(), "it waits");
    run_request(&[&attached], draft(1), nothing()).await.expect("a fresh instance");
}

#[tokio::test]
async fn a_guest_that_runs_the_rest_ten_times_is_stopped_by_the_host_not_by_luck() {
    let body = format!("(call $run (local.get $next) (i32.const 256)) {PASS}");
    let (attached, _) = attach(&engine(), &request_listener("", &body), spec("p")).await;
    let runs = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = runs.clone();
    let innermost: dsh_seam::waterfall::Innermost<dsh_seam::waterfalls::Request> = Arc::new(move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    });
    run_request(&[&attached], draft(1), innermost).await.expect("no failure");
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 2);
}
