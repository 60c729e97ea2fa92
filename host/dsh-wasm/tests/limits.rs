//! Every limit of a plugin has a guest here that passes it. What the failure says is asserted word for word; the same guest goes through
//! when the limit is raised; and afterwards the host serves the next plugin as if nothing had been.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dsh_seam::message::ToolCall;
use dsh_seam::tools::{Outcome, Profile, Progress, ToolContext};
use dsh_seam::waterfall::RunError;
use dsh_seam::{FailureKind, PluginError, Seam};
use dsh_wasm::{Engine, Limits, LoadError, PluginSpec};
use support::*;
use tokio_util::sync::CancellationToken;

fn with(limits: Limits) -> PluginSpec {
    PluginSpec { limits, ..spec("p") }
}

fn usual() -> Limits {
    Limits::default()
}

/// The rest of an allocator that never frees.
const BUMP: &str = "(result i32) (global.get $heap) (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))) (global $heap (mut i32) (i32.const 4096))";

/// A listener of `agent/request` whose world has more imports.
fn listener_with(world: &str, imports: &str, extra: &str, body: &str) -> Vec<u8> {
    let core = request_core(extra, body)
        .replace("(module", &format!("(module {imports}"))
        .replace("(result i32) (i32.const 4096))", BUMP);
    component_with(wasi(), &format!("{world} {REQUEST_WORLD}"), &core)
}

/// The contract, and what these guests use of WASI.
fn wasi() -> dsh_text_guests::Resolve {
    let mut resolve = dsh_text_guests::contract();
    for (name, text) in [
        (
            "clocks",
            "package wasi:clocks@0.2.6; interface monotonic-clock { type instant = u64; now: func() -> instant; }",
        ),
        ("io", "package wasi:io@0.2.6; interface streams { resource output-stream; }"),
        (
            "cli",
            "package wasi:cli@0.2.6; interface stdout { use wasi:io/streams@0.2.6.{output-stream}; get-stdout: func() -> output-stream; }",
        ),
    ] {
        resolve.push_str(format!("{name}.wit"), text).expect("WASI parses");
    }
    resolve
}

/// A provider whose `call-tool` is `body`: it leaves the address of its result, `(call $ok)` for one without content.
fn tool(world: &str, imports: &str, body: &str) -> Vec<u8> {
    let core = format!(
        r#"(module
            {imports}
            (memory (export "memory") 2)
            (func $ok (result i32) (memory.fill (i32.const 128) (i32.const 0) (i32.const 64)) (i32.const 128))
            (func (export "dsh:tools/provider@0.1.0#list-tools") (result i32) (call $ok))
            (func (export "dsh:tools/provider@0.1.0#call-tool") (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) {body})
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
        )"#
    );
    component(&format!("{world} export dsh:tools/provider@0.1.0;"), &core)
}

/// Runs the listener once; its failure, if it failed.
async fn request(engine: &Engine, guest: &[u8], limits: Limits) -> Result<(), PluginError> {
    let (attached, _) = attach(engine, guest, with(limits)).await;
    plugin_error(run_request(&[&attached], draft(1), nothing()).await)
}

fn plugin_error(outcome: Result<(), RunError>) -> Result<(), PluginError> {
    match outcome {
        Ok(()) => Ok(()),
        Err(RunError::Plugin(error)) => Err(error),
        Err(other) => panic!("no failure of the plugin: {other}"),
    }
}

struct Reports(AtomicU32);

impl Progress for Reports {
    fn report(&self, _text: &str, _fraction: Option<f32>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Calls the tool once; how many reports of progress it made.
async fn call_tool(engine: &Engine, guest: &[u8], limits: Limits) -> (Result<Outcome, PluginError>, u32) {
    let (attached, _) = attach(engine, guest, with(limits)).await;
    let reports = Arc::new(Reports(AtomicU32::new(0)));
    let cx =
        ToolContext { progress: reports.clone(), ..tool_context(Profile::unrestricted(), &CancellationToken::new()) };
    let call = ToolCall { id: "1".into(), name: "t".into(), arguments: "{}".into(), opaque: None };
    let outcome = attached.provider.expect("it provides tools").call(&cx, call).await;
    (outcome, reports.0.load(Ordering::Relaxed))
}

/// The host serves a plugin that does nothing wrong.
async fn healthy(engine: &Engine) {
    let (attached, _) = attach(engine, &request_listener("", PASS), spec("good")).await;
    run_request(&[&attached], draft(1), nothing()).await.expect("a good plugin");
}

/// `guest` fails with `message` under the limits `low`, and not under `high`.
async fn bites(guest: &[u8], low: Limits, message: &str, high: Limits) {
    let engine = engine();
    let error = request(&engine, guest, low).await.expect_err(message);
    assert_eq!(
        (error.kind, error.seam, without_waits(&error.message).as_str()),
        (FailureKind::Limit, Seam::Request, message)
    );
    healthy(&engine).await;
    request(&engine, guest, high).await.unwrap_or_else(|error| panic!("with a higher limit: {error}"));
}

/// How long it waited for the host depends on the machine.
fn without_waits(message: &str) -> String {
    match message.split_once(" (").filter(|(_, rest)| rest.ends_with(" ms of it waiting for the host)")) {
        Some((before, _)) => format!("{before} (… waiting for the host)"),
        None => message.to_owned(),
    }
}

#[tokio::test]
async fn memory_mib() {
    // 100 pages are 6.25 MiB, and two are there.
    let grow = format!("(if (i32.eq (memory.grow (i32.const 100)) (i32.const -1)) (then unreachable)) {DONE}");
    let message = "memory limit 6 MiB (`memory-mib`): it asked for 7 MiB";
    bites(
        &request_listener("", &grow),
        Limits { memory_mib: 6, ..usual() },
        message,
        Limits { memory_mib: 7, ..usual() },
    )
    .await;
    // All memories of the instance together, and those that it begins with.
    let second = request_listener("(memory $second 100)", DONE);
    bites(&second, Limits { memory_mib: 6, ..usual() }, message, Limits { memory_mib: 7, ..usual() }).await;
}

#[tokio::test]
async fn memories() {
    let guest = request_listener("(memory $second 1)", DONE);
    let message = "it has more memories than the limit `memories` of 1";
    bites(&guest, Limits { memories: 1, ..usual() }, message, Limits { memories: 2, ..usual() }).await;
}

#[tokio::test]
async fn table_elements() {
    let extra = "(table $a 600 funcref) (table $b 1 funcref)";
    let grow = format!(
        "(if (i32.eq (table.grow $b (ref.null func) (i32.const 399)) (i32.const -1)) (then unreachable)) {DONE}"
    );
    // The two tables have 1,000 elements, and the table that wit-component makes for imports has some.
    let message = "table limit 1000 elements (`table-elements`): it asked for 1002";
    bites(
        &request_listener(extra, &grow),
        Limits { table_elements: 1_000, ..usual() },
        message,
        Limits { table_elements: 1_002, ..usual() },
    )
    .await;
}

#[tokio::test]
async fn tables() {
    // The second is the one that wit-component makes for imports.
    let guest = request_listener("(table $a 1 funcref)", DONE);
    let message = "it has more tables than the limit `tables` of 1";
    bites(&guest, Limits { tables: 1, ..usual() }, message, Limits { tables: 2, ..usual() }).await;
}

#[tokio::test]
async fn instances() {
    // Its own module, and two that wit-component makes for imports.
    let message = "it is made of more core instances than the limit `instances` of 2";
    bites(&request_listener("", DONE), Limits { instances: 2, ..usual() }, message, Limits { instances: 3, ..usual() })
        .await;
}

#[tokio::test]
async fn stack_kib() {
    let extra = "(func $deep (param i32) (result i32) (if (result i32) (i32.eqz (local.get 0)) (then (i32.const 0)) (else (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))))";
    let body = |depth: u32| format!("(drop (call $deep (i32.const {depth}))) {DONE}");
    let message = "its calls nest deeper than the limit `stack-kib` of 64 KiB (recursion without end?)";
    bites(&request_listener(extra, &body(4_000)), Limits { stack_kib: 64, ..usual() }, message, usual()).await;
    let message = "its calls nest deeper than the limit `stack-kib` of 512 KiB (recursion without end?)";
    bites(&request_listener(extra, &body(100_000)), usual(), message, Limits { stack_kib: 16_384, ..usual() }).await;
}

#[tokio::test]
async fn classes_of_stacks_live_side_by_side() {
    let extra = "(func $deep (param i32) (result i32) (if (result i32) (i32.eqz (local.get 0)) (then (i32.const 0)) (else (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))))";
    let guest = request_listener(extra, &format!("(drop (call $deep (i32.const 4000))) {PASS}"));
    let engine = engine();
    let (deep, _) = attach(&engine, &guest, with(Limits { stack_kib: 4_096, ..usual() })).await;
    let (flat, _) = attach(&engine, &guest, with(Limits { stack_kib: 16, ..usual() })).await;
    // The deep one calls the flat one, on one stack each.
    let outcome = plugin_error(run_request(&[&deep, &flat], draft(1), nothing()).await);
    assert_eq!(
        outcome.map_err(|error| error.message),
        Err("its calls nest deeper than the limit `stack-kib` of 16 KiB (recursion without end?)".to_owned())
    );
    run_request(&[&deep, &deep], draft(1), nothing()).await.expect("deep enough");
    healthy(&engine).await;
}

const COMPUTE: &str = "(local $n i32) (local.set $n (i32.const 200000000)) (loop $again (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n)))";

#[tokio::test]
async fn cpu_ms() {
    let message = "it computed for longer than the limit `cpu-ms` of 5 ms";
    bites(
        &request_listener("", &format!("{COMPUTE} {DONE}")),
        Limits { cpu_ms: 5, ..usual() },
        message,
        Limits { cpu_ms: 60_000, wall_ms: 600_000, ..usual() },
    )
    .await;
}

#[tokio::test]
async fn wall_ms() {
    let message = "it took longer than the limit `wall-ms` of 5 ms (… waiting for the host)";
    bites(
        &request_listener("", &format!("{COMPUTE} {DONE}")),
        Limits { cpu_ms: 60_000, wall_ms: 5, ..usual() },
        message,
        Limits { cpu_ms: 60_000, wall_ms: 600_000, ..usual() },
    )
    .await;
}

#[tokio::test]
async fn tool_cpu_ms_and_tool_wall_ms() {
    let engine = engine();
    let guest = tool("", "", &format!("{COMPUTE} (call $ok)"));
    // What holds for other calls does not hold here.
    let others = Limits { cpu_ms: 5, wall_ms: 5, tool_cpu_ms: 60_000, tool_wall_ms: 600_000, ..usual() };
    assert_eq!(
        call_tool(&engine, &guest, others).await.0,
        Ok(Outcome { content: vec![], is_error: false, code: None, plugin: None })
    );
    for (limits, expect) in [
        (Limits { tool_cpu_ms: 5, ..usual() }, "it computed for longer than the limit `tool-cpu-ms` of 5 ms"),
        (
            Limits { tool_wall_ms: 5, ..usual() },
            "it took longer than the limit `tool-wall-ms` of 5 ms (… waiting for the host)",
        ),
    ] {
        let error = call_tool(&engine, &guest, limits).await.0.expect_err(expect);
        assert_eq!(
            (error.kind, error.seam, without_waits(&error.message).as_str()),
            (FailureKind::Limit, Seam::Provider, expect)
        );
    }
    healthy(&engine).await;
}

/// A failure whose message has so many pages of the guest's own memory.
fn answers_pages(pages: u32) -> Vec<u8> {
    let bytes = pages * 65_536;
    let body = format!(
        "(drop (memory.grow (i32.const {pages}))) (i32.store8 (i32.const 128) (i32.const 1)) (i32.store (i32.const 132) (i32.const 64)) (i32.store (i32.const 136) (i32.const 1)) (i32.store (i32.const 140) (i32.const 64)) (i32.store (i32.const 144) (i32.const {bytes})) (i32.const 128)"
    );
    request_listener("", &body)
}

#[tokio::test]
async fn output_mib() {
    let engine = engine();
    let guest = answers_pages(32);
    let kind = async |output_mib: u32| {
        let error = request(&engine, &guest, Limits { output_mib, ..usual() }).await.expect_err("it answers a failure");
        (error.kind, error.message)
    };
    let message = "it handed more data to the host than the limit `output-mib` of 1 MiB".to_owned();
    assert_eq!(kind(1).await, (FailureKind::Limit, message));
    // The failure itself arrives, and its message is cut.
    assert_eq!(kind(3).await.0, FailureKind::Error);
    healthy(&engine).await;
}

const SPLICE: &str = r#"(import "dsh:agent/agent-types@0.1.0" "[method]llm-request.splice" (func $splice (param i32 i32 i32 i32 i32 i32)))"#;

#[tokio::test]
async fn list_items() {
    // Messages without content, each twelve bytes of zeros.
    let guest = |items: u32| {
        let pages = items * 12 / 65_536 + 1;
        let body = format!(
            "(drop (memory.grow (i32.const {pages}))) (call $splice (local.get $request) (i32.const 0) (i32.const 0) (i32.const 131072) (i32.const {items}) (i32.const 256)) {DONE}"
        );
        listener_with("", SPLICE, "", &body)
    };
    let message = "it handed over a list of 11 items, more than the limit `list-items` of 10";
    bites(&guest(11), Limits { list_items: 10, ..usual() }, message, Limits { list_items: 11, ..usual() }).await;
    let message = "it handed over a list of 100001 items, more than the limit `list-items` of 100000";
    bites(&guest(100_001), usual(), message, Limits { list_items: 1_000_000, ..usual() }).await;
    // Long before a list is too long in bytes of the guest it is in bytes of the host: 32 for each of these.
    let message = "it handed more data to the host than the limit `output-mib` of 16 MiB";
    let long = Limits { list_items: 10_000_000, memory_mib: 128, ..usual() };
    bites(&guest(600_000), long, message, Limits { output_mib: 64, cpu_ms: 60_000, wall_ms: 600_000, ..long }).await;
}

#[tokio::test]
async fn host_calls() {
    let calls = |count: u32| {
        format!(
            "(local $n i32) (local.set $n (i32.const {count})) (loop $again (drop (call $count (local.get $request))) (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n)))"
        )
    };
    // A listener's two handles are dropped without a call being counted.
    let message = "it made more calls to the host than the limit `host-calls` of 10";
    let guest = request_listener("", &format!("{} {DONE}", calls(11)));
    bites(&guest, Limits { host_calls: 10, ..usual() }, message, Limits { host_calls: 11, ..usual() }).await;
}

#[tokio::test]
async fn host_calls_of_wasi_count_too() {
    let world = "import wasi:clocks/monotonic-clock@0.2.6;";
    let imports = r#"(import "wasi:clocks/monotonic-clock@0.2.6" "now" (func $now (result i64)))"#;
    let body = format!(
        "(local $n i32) (local.set $n (i32.const 11)) (loop $again (drop (call $now)) (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n))) {DONE}"
    );
    let message = "it made more calls to the host than the limit `host-calls` of 10";
    let guest = listener_with(world, imports, "", &body);
    bites(&guest, Limits { host_calls: 10, ..usual() }, message, Limits { host_calls: 11, ..usual() }).await;
    // One that never returns is found when the epoch moves.
    let endless = listener_with(world, imports, "", "(loop $again (drop (call $now)) (br $again)) unreachable");
    let error = request(&engine(), &endless, Limits { host_calls: 10, cpu_ms: 60_000, wall_ms: 600_000, ..usual() })
        .await
        .expect_err("it loops");
    assert_eq!((error.kind, error.message.as_str()), (FailureKind::Limit, message));
}

#[tokio::test]
async fn handles() {
    let engine = engine();
    // Never drops the two handles that each call gives it.
    let guest = request_listener("", "(call $ok)");
    let twice = async |handles: u32| {
        let (attached, _) = attach(&engine, &guest, with(Limits { handles, ..usual() })).await;
        run_request(&[&attached], draft(1), nothing()).await.expect("two handles fit");
        plugin_error(run_request(&[&attached], draft(1), nothing()).await)
    };
    let error = twice(3).await.expect_err("four do not");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (FailureKind::Limit, "it holds more handles than the limit `handles` of 3")
    );
    healthy(&engine).await;
    twice(4).await.expect("four fit");
}

#[tokio::test]
async fn handles_of_wasi() {
    let world = "import wasi:cli/stdout@0.2.6;";
    let imports = r#"(import "wasi:cli/stdout@0.2.6" "get-stdout" (func $stdout (result i32)))"#;
    let body = format!(
        "(local $n i32) (local.set $n (i32.const 10)) (loop $again (drop (call $stdout)) (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n))) {DONE}"
    );
    let message = "it holds more handles than the limit `handles` of 9";
    bites(
        &listener_with(world, imports, "", &body),
        Limits { handles: 9, ..usual() },
        message,
        Limits { handles: 10, ..usual() },
    )
    .await;
}

#[tokio::test]
async fn leases() {
    let engine = engine();
    let guest = request_listener("", PASS);
    let nested = async |leases: u32| {
        let (attached, _) = attach(&engine, &guest, with(Limits { leases, ..usual() })).await;
        plugin_error(run_request(&[&attached, &attached, &attached], draft(1), nothing()).await)
    };
    let error = nested(2).await.expect_err("three are too many");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (FailureKind::Limit, "it has as many calls under way as the limit `leases` of 2")
    );
    healthy(&engine).await;
    nested(3).await.expect("three fit");
}

#[tokio::test]
async fn outside_calls() {
    // Three questions to the person.
    let imports = r#"(import "dsh:tools/approval@0.1.0" "ask" (func $ask (param i32 i32 i32 i32 i32 i32 i32 i32)))"#;
    let ask = "(call $ask (i32.const 64) (i32.const 5) (i32.const 64) (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 512))";
    let body = format!("{ask} {ask} {ask} {PASS}");
    let guest = listener_with("import dsh:tools/approval@0.1.0;", imports, "", &body);
    let engine = engine();
    let ask = async |outside_calls| {
        let grants = dsh_wasm::Grants::new(["approval".parse().expect("a grant")]);
        let spec = PluginSpec { grants, ..with(Limits { outside_calls, ..usual() }) };
        let (attached, _) = attach(&engine, &guest, spec).await;
        plugin_error(run_request(&[&attached], draft(1), nothing()).await).map_err(|error| (error.kind, error.message))
    };
    let message =
        "it asked for more questions, programs, model calls and sub-agents than the limit `outside-calls` of 2";
    assert_eq!(ask(2).await, Err((FailureKind::Limit, message.to_owned())));
    healthy(&engine).await;
    assert_eq!(ask(3).await, Ok(()));
}

#[tokio::test]
async fn progress_reports() {
    let imports = r#"(import "dsh:tools/running@0.1.0" "progress" (func $progress (param i32 i32 i32 f32)))"#;
    let body = "(local $n i32) (local.set $n (i32.const 9)) (loop $again (call $progress (i32.const 64) (i32.const 0) (i32.const 0) (f32.const 0)) (local.set $n (i32.sub (local.get $n) (i32.const 1))) (br_if $again (local.get $n))) (call $ok)";
    let guest = tool("import dsh:tools/running@0.1.0;", imports, body);
    let engine = engine();
    for (progress_reports, expect) in [(4, 4), (9, 9), (10, 9)] {
        let (outcome, reports) = call_tool(&engine, &guest, Limits { progress_reports, ..usual() }).await;
        assert_eq!((outcome.map(|outcome| outcome.is_error), reports), (Ok(false), expect));
    }
    healthy(&engine).await;
}

#[tokio::test]
async fn state_mib() {
    // Two values of 600,000 spaces between quotes; the answer is that of the second `set`.
    let imports = r#"(import "dsh:plugin/state@0.1.0" "set" (func $set (param i32 i32 i32 i32 i32)))"#;
    let body = r#"(drop (memory.grow (i32.const 10)))
        (memory.fill (i32.const 65536) (i32.const 32) (i32.const 600000))
        (i32.store8 (i32.const 65536) (i32.const 34)) (i32.store8 (i32.const 665535) (i32.const 34))
        (call $set (i32.const 64) (i32.const 1) (i32.const 65536) (i32.const 600000) (i32.const 128))
        (call $set (i32.const 65) (i32.const 1) (i32.const 65536) (i32.const 600000) (i32.const 128))
        (i32.const 128)"#;
    let guest = listener_with("import dsh:plugin/state@0.1.0;", imports, "", body);
    let engine = engine();
    let error = request(&engine, &guest, Limits { state_mib: 1, ..usual() }).await.expect_err("it answers the failure");
    assert_eq!(
        (error.kind, error.message.as_str(), error.code.as_deref()),
        (
            FailureKind::Error,
            "with `d` the plugin's state would pass its limit of 1 MiB (`state-mib`) (`limit`)",
            Some("limit")
        )
    );
    healthy(&engine).await;
    request(&engine, &guest, Limits { state_mib: 2, ..usual() }).await.expect("a higher limit");
}

#[tokio::test]
async fn a_limit_that_cannot_be_enforced_is_an_error_at_load() {
    let engine = engine();
    let load = load(&engine, &request_listener("", PASS), with(Limits { leases: 257, ..usual() })).await;
    let error = load.map(|_| ()).expect_err("the pool has not so many stacks");
    assert!(matches!(error, LoadError::Limit(_)), "{error:?}");
    assert_eq!(
        format!("{error}; {}", error.hint()),
        "the limit `leases` cannot be 257: it takes 1 to 256; one plugin of one agent may take half of the engine's pool, which has room for 512 instances"
    );
}
