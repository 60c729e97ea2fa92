//! The plugin `retry` as the host adds it by itself, for a model behind a network: when it is there, when not, and what reaches it.
//!
//! What each policy decides is in `../cases/retry/`. Each test's whole outcome is a file in `retry/`, written anew with
//! `UPDATE_EXPECT=1`; how often the server was asked is asserted here.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use dsh_testkit::chat_server::{ChatServer, Reply, delta};
use dsh_tests::case::{Case, Invocation};
use dsh_tests::{harness, host};
use serde_json::json;
use tokio::runtime::Runtime;

/// No wait of its own, so that nothing here takes time.
const AT_ONCE: [&str; 2] = ["--plugin-config", r#"retry={"first-wait-ms":0}"#];

fn server(replies: Vec<Reply>) -> (Runtime, ChatServer) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = runtime.block_on(ChatServer::start(replies));
    (runtime, server)
}

/// Runs a case against a server with these replies, of which `asked` are asked for.
fn check(name: &str, replies: Vec<Reply>, asked: usize, exit: i32, options: &[&str]) {
    let (_runtime, server) = server(replies);
    let base_url = server.base_url();
    let args = ["--output", "jsonl", "--model", "compatible/test-model", "--base-url", &base_url];
    let args = args.into_iter().chain(options.iter().copied()).chain(["hello"]);
    let first = Invocation { args: args.map(str::to_owned).collect(), exit, ..Invocation::default() };
    let replace = vec![(r"127\.0\.0\.1:\d+".to_owned(), "SERVER".to_owned())];
    let case = Case { about: name.to_owned(), first, replace, ..Case::default() };
    let expectations = dsh_tests::root().join("tests/tests/retry");
    let outcome = harness::run(&case, &expectations, &expectations.join(format!("{name}.txt")), harness::update());
    if let Err(problems) = outcome {
        panic!("{problems}");
    }
    assert_eq!(server.received().len(), asked, "{name}");
}

fn down() -> Reply {
    Reply::status(503, "{\"error\":{\"message\":\"overloaded\"}}")
}

fn slow_down(wait: &str) -> Reply {
    Reply::status(429, "{\"error\":{\"message\":\"slow down\"}}").header("retry-after-ms", wait)
}

fn never() -> Reply {
    Reply::text("never asked for")
}

#[test]
fn added() {
    check("added", vec![down(), slow_down("3"), Reply::text("at last")], 3, 0, &AT_ONCE);
}

#[test]
fn the_first_wait_is_half_a_second_and_up_to_half_of_it_more() {
    let (_runtime, server) = server(vec![down(), Reply::text("at last")]);
    let begin = Instant::now();
    let run = |options: &[&str]| {
        let base_url = server.base_url();
        let mut command = Command::new(host::binary());
        command.args(["--no-save", "--model", "compatible/m", "--base-url", &base_url]).args(options).arg("hello");
        command.env_remove("DSH_LOG").output().expect("the binary runs")
    };
    let output = run(&["-v"]);
    assert!(begin.elapsed() >= Duration::from_millis(500), "{output:?}");
    assert_eq!(output.stdout, b"at last\n", "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    let wait = told.split_once("attempt 2 in ").and_then(|(_, rest)| rest.split_once(" ms, after `server`"));
    let wait: u32 = wait.expect(&told).0.parse().expect("a number");
    assert!((500..=750).contains(&wait), "{told}");
}

#[test]
fn not_with_no_default_plugins() {
    check("not_with_no_default_plugins", vec![down(), never()], 1, 3, &["--no-default-plugins"]);
}

#[test]
fn not_beside_a_plugin_of_that_name() {
    check("not_beside_a_plugin_of_that_name", vec![down(), never()], 1, 3, &["--plugin", "retry={guests}/noop.wasm"]);
}

#[test]
fn never_after_text() {
    let half = Reply::events([delta(json!({"content": "half an ans"}))]).close();
    check("never_after_text", vec![half, never()], 1, 3, &AT_ONCE);
}

#[test]
fn never_after_reasoning() {
    let half = Reply::events([delta(json!({"reasoning_content": "hm"}))]).close();
    check("never_after_reasoning", vec![half, never()], 1, 3, &AT_ONCE);
}

#[test]
fn again_after_pieces_of_a_call() {
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "echo", "arguments": "{\"te"}}]});
    let half = Reply::events([delta(call)]).close();
    let options: Vec<&str> = ["--plugin", "echo"].into_iter().chain(AT_ONCE).collect();
    check("again_after_pieces_of_a_call", vec![half, Reply::text("done")], 2, 0, &options);
}

#[test]
fn again_after_an_empty_answer() {
    check("again_after_an_empty_answer", vec![Reply::stream().done(), Reply::text("done")], 2, 0, &AT_ONCE);
}

#[test]
fn given_up_when_the_wait_would_be_too_long() {
    check("given_up_when_the_wait_would_be_too_long", vec![slow_down("10001"), never()], 1, 3, &[]);
}

#[test]
fn four_attempts() {
    check("four_attempts", (0..10).map(|_| down()).collect(), 4, 3, &AT_ONCE);
}

#[test]
fn options_reach_it() {
    let options = ["--plugin-config", r#"retry={"retries":1,"first-wait-ms":0}"#, "--limit", "retry=cpu-ms=900"];
    let more = ["--grant", "retry=env:TERM", "--on-failure", "retry=open"];
    check("options_reach_it", vec![down(), down(), never()], 2, 3, &[options, more].concat());
}

#[test]
fn innermost() {
    // The listener around it decides first, and asks it only when it does not know any more.
    let outer = ["--plugin", "{guests}/editor.wasm", "--plugin-config", r#"editor={"retry-after-ms":0,"retries":1}"#];
    check("innermost", vec![down(), down(), Reply::text("done")], 3, 0, &[&outer[..], &AT_ONCE].concat());
}

/// An executable without its plugins works, and it is said what it works without.
#[test]
fn missing() {
    let (_runtime, server) = server(vec![down(), never()]);
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("alone/dsh-host");
    std::fs::create_dir(folder.path().join("alone")).expect("a folder");
    place(&host::binary(), &alone);
    let run = |options: &[&str]| {
        let base_url = server.base_url();
        let mut command = Command::new(&alone);
        command.args(["--no-save", "--model", "compatible/m", "--base-url", &base_url]).args(options).arg("hello");
        let output = command.env_remove("DSH_LOG").output().expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (exit, told) = run(&[]);
    assert_eq!(exit, Some(3), "{told}");
    assert!(
        told.contains("the shipped plugin `retry` is not there") && told.contains("--no-default-plugins"),
        "{told}"
    );
    let (exit, told) = run(&["--no-default-plugins"]);
    assert!(exit == Some(0) && told.is_empty(), "{told}");
    let (exit, told) = run(&["--plugin-config", "retry={}"]);
    assert!(exit == Some(2) && told.contains("no plugin `retry` is loaded"), "{told}");
}

/// A link costs nothing; across file systems there is none.
fn place(from: &Path, to: &Path) {
    if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).expect("a copy");
    }
}

/// What reaches the provider of a request that was compacted after it was refused: less, and no second time the same.
#[test]
fn with_compaction() {
    let refused = || {
        let error = json!({"error": {"message": "prompt is too long", "code": "context_length_exceeded"}});
        Reply::status(400, &error.to_string())
    };
    let long = "word ".repeat(200);
    let replies = vec![Reply::text(&long), Reply::text(&long), refused(), down(), Reply::text("done")];
    let (_runtime, server) = server(replies);
    let config = "[[agents]]\nid = \"main\"\nqueue-mode = \"one\"\n";
    let base_url = server.base_url();
    let args = ["--config", "host.toml", "--output", "jsonl", "--model", "compatible/m", "--base-url", &base_url];
    let args = args.into_iter().chain(["--plugin", "compaction"]).chain(AT_ONCE).chain(["one", "two", "three"]);
    let first = Invocation { args: args.map(str::to_owned).collect(), exit: 0, ..Invocation::default() };
    let case = Case {
        about: "compaction and retry".to_owned(),
        first,
        files: BTreeMap::from([("host.toml".to_owned(), config.to_owned())]),
        replace: vec![(r"127\.0\.0\.1:\d+".to_owned(), "SERVER".to_owned())],
        ..Case::default()
    };
    let expectations = dsh_tests::root().join("tests/tests/retry");
    let file = expectations.join("with_compaction.txt");
    if let Err(problems) = harness::run(&case, &expectations, &file, harness::update()) {
        panic!("{problems}");
    }
    let sizes: Vec<usize> = server.received().iter().map(|request| request.body.len()).collect();
    assert!(sizes.len() == 5 && sizes[3] < sizes[2] && sizes[4] == sizes[3], "{sizes:?}");
}
