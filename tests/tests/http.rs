//! A model behind HTTP: the binary against a server on loopback that does what providers do, and what they should not.
//!
//! Each test's whole outcome is a file in `tests/http/`, written anew with `UPDATE_EXPECT=1`; what the server was asked is asserted
//! here.

use std::collections::BTreeMap;

use dsh_testkit::chat_server::{ChatServer, Received, Reply, delta, finish, usage};
use dsh_tests::case::{Case, Invocation};
use dsh_tests::harness;
use serde_json::json;

const KEY: &str = "test-key-5f3a9c71d2e8";

/// What the system says of a broken connection depends on who notices first.
const BROKEN: &str = r#"(the connection broke|the request could not be sent): [^"\n]*"#;

/// What differs from run to run.
fn replace() -> Vec<(String, String)> {
    vec![(r"127\.0\.0\.1:\d+".to_owned(), "SERVER".to_owned()), (BROKEN.to_owned(), "BROKEN CONNECTION".to_owned())]
}

/// Runs a case against a server with these replies; answers what the server was asked.
fn check(name: &str, replies: Vec<Reply>, exit: i32, more: &[&str]) -> Vec<Received> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = runtime.block_on(ChatServer::start(replies));
    let base_url = server.base_url();
    let args = ["--output", "jsonl", "--model", "compatible/test-model", "--base-url", &base_url]
        .into_iter()
        .chain(more.iter().copied());
    let first = Invocation {
        args: args.map(str::to_owned).collect(),
        exit,
        env: BTreeMap::from([("DSH_API_KEY".to_owned(), KEY.to_owned())]),
        ..Invocation::default()
    };
    let case = Case { about: name.to_owned(), first, replace: replace(), ..Case::default() };
    let expectations = dsh_tests::root().join("tests/tests/http");
    let outcome = harness::run(&case, &expectations, &expectations.join(format!("{name}.txt")), harness::update());
    if let Err(problems) = outcome {
        panic!("{problems}");
    }
    server.received()
}

/// Without the plugin `retry`, that the host adds by itself.
const PLAIN: [&str; 2] = ["--no-default-plugins", "hello"];

#[test]
fn text() {
    let received = check("text", vec![Reply::text("Hello, world.")], 0, &PLAIN);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].path, "/v1/chat/completions");
    assert_eq!(received[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let body = received[0].json();
    assert_eq!((&body["model"], &body["stream"]), (&json!("test-model"), &json!(true)));
    assert_eq!(body["messages"], json!([{"role": "user", "content": "hello"}]));
}

#[test]
fn bytes_in_any_pieces() {
    check("bytes_in_any_pieces", vec![Reply::text("Grüße, 世界.").crlf().bytewise()], 0, &PLAIN);
}

#[test]
fn tool_call() {
    let replies = vec![Reply::tool_call("call_abc", "echo", "{\"text\":\"hi\"}"), Reply::text("done")];
    let received = check("tool_call", replies, 0, &["--plugin", "echo", "--no-default-plugins", "go"]);
    let body = received[1].json();
    let tools = body["tools"].as_array().expect("a list");
    assert_eq!(tools.iter().map(|tool| &tool["function"]["name"]).collect::<Vec<_>>(), ["echo"]);
    let expect = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "call_abc", "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"hi\"}"}}]},
        {"role": "tool", "tool_call_id": "call_abc", "content": "HI"},
    ]);
    assert_eq!(body["messages"], expect);
}

#[test]
fn tool_call_in_pieces() {
    let piece = |value| delta(json!({"tool_calls": [value]}));
    let reply = Reply::events([
        piece(json!({"index": 0, "id": "a", "type": "function", "function": {"name": "echo", "arguments": ""}})),
        piece(json!({"index": 0, "function": {"arguments": "{\"te"}})),
        piece(
            json!({"index": 1, "id": "b", "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"two\"}"}}),
        ),
        piece(json!({"index": 0, "function": {"arguments": "xt\":\"one\"}"}})),
        finish("tool_calls"),
        usage(3, 4),
    ]);
    check(
        "tool_call_in_pieces",
        vec![reply.done(), Reply::text("done")],
        0,
        &["--plugin", "echo", "--no-default-plugins", "go"],
    );
}

#[test]
fn max_tokens() {
    let reply = Reply::events([delta(json!({"content": "as I was say"})), finish("length"), usage(3, 4)]).done();
    check("max_tokens", vec![reply], 6, &PLAIN);
}

#[test]
fn ended_without_finish() {
    check("ended_without_finish", vec![Reply::events([delta(json!({"content": "half an ans"}))])], 3, &PLAIN);
}

#[test]
fn reset_before_the_answer() {
    check("reset_before_the_answer", vec![Reply::reset_before()], 3, &PLAIN);
}

#[test]
fn reset_in_the_answer() {
    check("reset_in_the_answer", vec![Reply::events([delta(json!({"content": "half an ans"}))]).reset()], 3, &PLAIN);
}

#[test]
fn closed_in_the_answer() {
    check("closed_in_the_answer", vec![Reply::events([delta(json!({"content": "half an ans"}))]).close()], 3, &PLAIN);
}

#[test]
fn malformed() {
    check("malformed", vec![Reply::stream().data(["{\"choices\": [{"]).done()], 3, &PLAIN);
}

#[test]
fn empty() {
    check("empty", vec![Reply::stream().done()], 3, &PLAIN);
}

#[test]
fn no_stream_at_all() {
    check("no_stream_at_all", vec![Reply::status(200, "<html>a proxy's page</html>")], 3, &PLAIN);
}

#[test]
fn status_401() {
    let body = format!("{{\"error\":{{\"message\":\"Incorrect API key provided: {KEY}\"}}}}");
    check("status_401", vec![Reply::status(401, &body)], 3, &PLAIN);
}

#[test]
fn status_429() {
    let reply = Reply::status(429, "{\"error\":{\"message\":\"slow down\"}}").header("retry-after", "2");
    check("status_429", vec![reply], 3, &PLAIN);
}

#[test]
fn status_500() {
    check("status_500", vec![Reply::status(500, "{\"error\":{\"message\":\"overloaded\"}}")], 3, &PLAIN);
}

#[test]
fn context_window() {
    let body = "{\"error\":{\"message\":\"This model's maximum context length is 8192 tokens.\",\"code\":\"context_length_exceeded\"}}";
    check("context_window", vec![Reply::status(400, body)], 3, &PLAIN);
}

/// The guest `editor` retries here; that the host adds `retry` by itself is that plugin's test.
#[test]
fn retried() {
    let retry_after = Reply::status(429, "{\"error\":{\"message\":\"slow down\"}}").header("retry-after", "1");
    let retry = ["--plugin", "{guests}/editor.wasm", "--plugin-config", "editor={\"retry-after-ms\":1,\"retries\":3}"];
    let more: Vec<&str> = retry.into_iter().chain(PLAIN).collect();
    let received = check("retried", vec![Reply::status(503, "{}"), retry_after, Reply::text("at last")], 0, &more);
    assert_eq!(received.len(), 3);
}

#[test]
fn never_retried_after_text() {
    let half = Reply::events([delta(json!({"content": "half an ans"}))]).reset();
    let received = check("never_retried_after_text", vec![half, Reply::text("never asked for")], 3, &["hello"]);
    assert_eq!(received.len(), 1);
}

#[test]
fn never_retried_when_refused() {
    let received = check(
        "never_retried_when_refused",
        vec![Reply::status(400, "{\"error\":{\"message\":\"bad request\"}}"), Reply::text("never asked for")],
        3,
        &["hello"],
    );
    assert_eq!(received.len(), 1);
}

#[test]
fn stalled() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = runtime.block_on(ChatServer::start(vec![Reply::events([delta(json!({"content": "half"}))]).stall()]));
    let config = format!(
        "[providers.local]\nkind = \"compatible\"\nbase-url = \"{}\"\nidle-timeout-ms = 300\n",
        server.base_url()
    );
    let args =
        ["--output", "jsonl", "--config", "host.toml", "--model", "local/test-model", "--no-default-plugins", "hello"];
    let first = Invocation { args: args.map(str::to_owned).into(), exit: 3, ..Invocation::default() };
    let case = Case {
        about: "a stream that stalls".into(),
        first,
        files: BTreeMap::from([("host.toml".into(), config)]),
        replace: replace(),
        ..Case::default()
    };
    let expectations = dsh_tests::root().join("tests/tests/http");
    if let Err(problems) = harness::run(&case, &expectations, &expectations.join("stalled.txt"), harness::update()) {
        panic!("{problems}");
    }
    runtime.block_on(server.hung_up(1));
}
