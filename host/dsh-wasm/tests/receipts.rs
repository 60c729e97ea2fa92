//! What a call costs and came to, and what is told of one that failed.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dsh_wasm::{Compiler, Engine, EngineOptions, Limits, Receipt, ReceiptSink, Verdict};
use support::*;

/// The receipts of an engine.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Receipt>>>);

impl Kept {
    fn engine(&self) -> Engine {
        let kept = self.0.clone();
        let take = Arc::new(move |receipt| kept.lock().expect("not poisoned").push(receipt));
        let receipts = Some(ReceiptSink { begun: Instant::now(), take });
        Engine::new(EngineOptions { receipts, ..EngineOptions::new(Compiler::InProcess) }).expect("an engine")
    }

    fn take(&self) -> Vec<Receipt> {
        std::mem::take(&mut *self.0.lock().expect("not poisoned"))
    }
}

/// Number, number of the call around it, plugin, verdict.
fn outline(receipts: &[Receipt]) -> Vec<(u64, Option<u64>, &str, Verdict)> {
    receipts.iter().map(|it| (it.number, it.within, it.plugin.as_str(), it.verdict)).collect()
}

#[tokio::test]
async fn a_nested_call_is_within_the_one_that_waits_for_it() {
    let kept = Kept::default();
    let engine = kept.engine();
    let (outer, _) = attach(&engine, &request_listener("", PASS), spec("outer")).await;
    let (inner, _) = attach(&engine, &request_listener("", PASS), spec("inner")).await;
    let (last, _) = attach(&engine, &request_listener("", DONE), spec("last")).await;
    run_request(&[&outer, &inner, &last], draft(1), nothing()).await.expect("no failure");
    let receipts = kept.take();
    assert_eq!(
        outline(&receipts),
        [(3, Some(2), "last", Verdict::Ok), (2, Some(1), "inner", Verdict::Ok), (1, None, "outer", Verdict::Ok),]
    );
    for receipt in &receipts {
        assert_eq!(receipt.wall, receipt.instance + receipt.guest + receipt.host + receipt.excluded, "{receipt:?}");
        assert!(receipt.instance > Duration::ZERO, "each had an instance made: {receipt:?}");
        assert_eq!((receipt.peak_memory, receipt.turn, receipt.step), (2 * 65_536, 1, 1));
    }
    let end = |receipt: &Receipt| receipt.begin + receipt.wall;
    for (inner, outer) in [(0, 1), (1, 2)] {
        let (inner, outer) = (&receipts[inner], &receipts[outer]);
        assert!(outer.begin <= inner.begin && end(inner) <= end(outer), "{inner:?} is not inside of {outer:?}");
        assert!(outer.excluded >= inner.wall, "the time in `next` is not the listener's: {outer:?}");
    }
}

#[tokio::test]
async fn an_instance_is_paid_for_once_and_what_crosses_is_counted() {
    let kept = Kept::default();
    let engine = kept.engine();
    let body = format!(
        "(call $set_system (local.get $request) (i32.const 64) (i32.const 6) (i32.const 256)) (drop (call $count (local.get $request))) {DONE}"
    );
    let (attached, _) = attach(&engine, &request_listener("", &body), spec("p")).await;
    for _ in 0..2 {
        run_request(&[&attached], draft(1), nothing()).await.expect("no failure");
    }
    let receipts = kept.take();
    assert_eq!(receipts.iter().map(|it| it.instance > Duration::ZERO).collect::<Vec<_>>(), [true, false]);
    for receipt in &receipts {
        assert_eq!((receipt.bytes_in, receipt.bytes_out, receipt.host_calls), (0, 6, 2), "{receipt:?}");
    }
}

#[tokio::test]
async fn a_trap_a_limit_and_a_start_function_that_traps_have_receipts() {
    let check = async |bytes: Vec<u8>, limits: Limits, expect: Verdict, message: &str| {
        let kept = Kept::default();
        let engine = kept.engine();
        let (attached, _) = attach(&engine, &bytes, dsh_wasm::PluginSpec { limits, ..spec("p") }).await;
        run_request(&[&attached], draft(1), nothing()).await.expect_err("it fails");
        let receipts = kept.take();
        assert_eq!(outline(&receipts), [(1, None, "p", expect)]);
        assert_eq!(receipts[0].message.as_deref(), Some(message));
    };
    let usual = Limits::default();
    check(request_listener("", "unreachable"), usual, Verdict::Trap, "it panicked or aborted").await;
    let start = "(func $begin unreachable) (start $begin)";
    check(request_listener(start, DONE), usual, Verdict::Trap, "it panicked or aborted").await;
    let limits = Limits { cpu_ms: 10, ..usual };
    let message = "it computed for longer than the limit `cpu-ms` of 10 ms";
    check(request_listener("", "(loop $on (br $on)) unreachable"), limits, Verdict::Limit, message).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_was_aborted_and_keeps_what_it_cost() {
    let kept = Kept::default();
    let engine = kept.engine();
    let body = format!("(drop (call $count (local.get $request))) {PASS}");
    let (attached, _) = attach(&engine, &request_listener("", &body), spec("p")).await;
    let never: dsh_seam::waterfall::Innermost<dsh_seam::waterfalls::Request> =
        Arc::new(|_| Box::pin(std::future::pending()));
    {
        let draft = draft(1);
        let listeners = [&attached];
        let run = run_request(&listeners, draft, never);
        let mut run = std::pin::pin!(run);
        assert!(futures::poll!(&mut run).is_pending(), "it waits for the rest");
    }
    let receipts = kept.take();
    assert_eq!(outline(&receipts), [(1, None, "p", Verdict::Aborted)]);
    assert_eq!((receipts[0].host_calls, receipts[0].peak_memory), (2, 2 * 65_536));
    assert!(receipts[0].excluded > Duration::ZERO);
}

#[tokio::test]
async fn a_call_that_gets_no_lease_has_a_receipt() {
    let kept = Kept::default();
    let engine = kept.engine();
    let limits = Limits { leases: 1, ..Limits::default() };
    let spec = dsh_wasm::PluginSpec { limits, ..spec("p") };
    let (attached, _) = attach(&engine, &request_listener("", PASS), spec).await;
    run_request(&[&attached, &attached], draft(1), nothing()).await.expect_err("two are too many");
    let receipts = kept.take();
    let refused = &receipts[0];
    assert_eq!((refused.number, refused.within, refused.verdict), (2, Some(1), Verdict::Limit));
    assert_eq!(refused.message.as_deref(), Some("it has as many calls under way as the limit `leases` of 1"));
    assert_eq!(refused.wall, refused.instance, "it got no further");
    assert_eq!((refused.host_calls, refused.bytes_in, refused.peak_memory), (0, 0, 0));
}
