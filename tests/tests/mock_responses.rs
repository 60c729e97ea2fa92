//! The protocol Responses against servers that nobody here wrote: the binary talks to mock servers of the package registries, and they
//! tell what they were asked and what they think of it.
//!
//! What is the same in every run is a file in `tests/mock_responses/`, written anew with `UPDATE_EXPECT=1`.

use std::collections::BTreeMap;

use dsh_tests::case::{Case, Invocation};
use dsh_tests::harness;
use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::mock_server::{MockServer, aimock, llmock};
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};

/// Ids are made anew in every run, and so is what stands for encrypted thoughts.
const RANDOM: [(&str, &str); 3] = [
    (r"\b(rs|ws)-[A-Za-z0-9_-]{16}", "ID"),
    (r#""encrypted_content":"[A-Za-z0-9+/=]+""#, r#""encrypted_content":"ENCRYPTED""#),
    (r"127\.0\.0\.1:\d+", "SERVER"),
];

/// A provider of this kind at the server, with further keys.
fn config(server: &MockServer, more: &str) -> String {
    format!("[providers.mock]\nkind = \"openai-responses\"\nbase-url = \"{}/v1\"\n{more}", server.url())
}

/// Runs a case with these invocations against `server` and compares the whole outcome.
fn check(name: &str, server: &MockServer, runs: &[(&[&str], i32)]) {
    let invocation = |(args, exit): &(&[&str], i32)| {
        let usual = ["--output", "jsonl", "--config", "host.toml", "--model", "mock/gpt-5", "--no-default-plugins"];
        Invocation {
            args: usual.iter().chain(*args).map(|arg| (*arg).to_owned()).collect(),
            exit: *exit,
            ..Invocation::default()
        }
    };
    let case = Case {
        about: name.to_owned(),
        first: invocation(&runs[0]),
        then: runs[1..].iter().map(invocation).collect(),
        files: BTreeMap::from([("host.toml".into(), config(server, ""))]),
        replace: RANDOM.map(|(pattern, text)| (pattern.to_owned(), text.to_owned())).into(),
        ..Case::default()
    };
    let folder = dsh_tests::root().join("tests/tests/mock_responses");
    let outcome = harness::run(&case, &folder, &folder.join(format!("{name}.txt")), harness::update());
    if let Err(problems) = outcome {
        panic!("{problems}");
    }
}

/// How aimock understood the requests that it got: as messages of Chat Completions.
fn understood(server: &MockServer) -> Vec<Value> {
    let entries = server.get("/__aimock/journal").expect("it keeps a journal");
    entries.as_array().expect("a list").iter().map(|entry| entry["body"]["messages"].clone()).collect()
}

#[test]
fn text() {
    let usage = json!({"input_tokens": 21, "output_tokens": 9});
    let fixtures = json!([{"match": {"userMessage": "hello"}, "response": {"content": "Hello, world: the answer comes in pieces.", "usage": usage}}]);
    let Some(server) = aimock(&fixtures) else { return };
    check("text", &server, &[(&["--system", "be kind", "hello"], 0)]);
}

#[test]
fn tools_and_reasoning() {
    let calls = json!([
        {"id": "call_a", "name": "echo", "arguments": "{\"text\":\"paris\"}"},
        {"id": "call_b", "name": "echo", "arguments": "{\"text\":\"rome\"}"},
    ]);
    let fixtures = json!([
        {"match": {"userMessage": "weather", "hasToolResult": false}, "response": {"reasoning": "I should ask twice.", "toolCalls": calls}},
        {"match": {"userMessage": "weather", "hasToolResult": true}, "response": {"content": "PARIS and ROME"}},
    ]);
    let Some(server) = aimock(&fixtures) else { return };
    check("tools_and_reasoning", &server, &[(&["--plugin", "echo", "weather"], 0)]);
    let call = |id: &str, arguments: &str| {
        let function = json!({"name": "echo", "arguments": arguments});
        json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
    };
    assert_eq!(
        understood(&server)[1],
        json!([
            {"role": "user", "content": "weather"},
            call("call_a", "{\"text\":\"paris\"}"),
            call("call_b", "{\"text\":\"rome\"}"),
            {"role": "tool", "content": "PARIS", "tool_call_id": "call_a"},
            {"role": "tool", "content": "ROME", "tool_call_id": "call_b"},
        ])
    );
}

#[test]
fn an_item_of_another_kind() {
    let fixtures = json!([
        {"match": {"userMessage": "search"}, "response": {"reasoning": "Where?", "webSearches": ["dsh"], "content": "Found it."}},
        {"match": {"userMessage": "thanks"}, "response": {"content": "You are welcome."}},
    ]);
    let Some(server) = aimock(&fixtures) else { return };
    check("an_item_of_another_kind", &server, &[(&["search"], 0), (&["--continue", "thanks"], 0)]);
    assert_eq!(
        understood(&server)[1],
        json!([
            {"role": "user", "content": "search"},
            {"role": "assistant", "content": "Found it."},
            {"role": "user", "content": "thanks"},
        ])
    );
}

#[test]
fn an_answer_that_is_cut() {
    let fixtures =
        json!([{"match": {"userMessage": "long"}, "response": {"content": "as I was say", "finishReason": "length"}}]);
    let Some(server) = aimock(&fixtures) else { return };
    check("an_answer_that_is_cut", &server, &[(&["long"], 6)]);
}

#[test]
fn cancelling_hangs_up() {
    let long = json!([{"type": "reply", "text": "word ".repeat(400)}]);
    let Some(server) = llmock(&["--stream-chunk-delay-ms", "50"], &long) else { return };
    let sandbox = Sandbox::new().expect("a sandbox");
    let signal = Some(("INT".to_owned(), "assistant/chunk".to_owned()));
    let outcome = host::run(&Run { signal, ..run(&sandbox, &server, "", &["long"]) }).expect("it ends");
    let reasons: Vec<Value> = events(&outcome, "turn/end").iter().map(|data| data["reason"]["type"].clone()).collect();
    assert_eq!((outcome.exit, reasons), (130, vec![json!("disposed")]), "{}", outcome.stderr);
    // The server answers this once no request is under way any more.
    let request = &server.get("/_llmock/requests").expect("it keeps them")["requests"][0];
    assert_eq!(request["completed"], json!(false), "{request}");
}

/// The binary with this prompt, in a sandbox.
fn run(sandbox: &Sandbox, server: &MockServer, more: &str, args: &[&str]) -> Run {
    std::fs::write(sandbox.place("host.toml"), config(server, more)).expect("written");
    let usual = ["--output", "jsonl", "--config", "host.toml", "--model", "mock/gpt-5"];
    Run {
        args: usual.iter().chain(args).map(|arg| (*arg).to_owned()).collect(),
        env: sandbox.environment(),
        dir: sandbox.workspace.clone(),
        ..Run::default()
    }
}

fn outcome(server: &MockServer, more: &str, args: &[&str]) -> Outcome {
    let sandbox = Sandbox::new().expect("a sandbox");
    host::run(&run(&sandbox, server, more, args)).expect("it ends")
}

/// The data of all events of a type.
fn events(outcome: &Outcome, kind: &str) -> Vec<Value> {
    let lines = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event is JSON"));
    lines.filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

/// What the server finds fault with, by its own names.
fn findings(server: &MockServer) -> Vec<String> {
    let verdict = server.get("/_llmock/verdict").expect("it judges");
    let findings = verdict["findings"].as_array().expect("a list").iter();
    findings.map(|finding| finding["code"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn an_agent_runs_its_tools() {
    let Some(server) = llmock(&["--tool-mode", "auto"], &json!([])) else { return };
    let outcome = outcome(&server, "", &["--plugin", "echo", "please echo a text"]);
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let called = events(&outcome, "tool/call");
    assert_eq!(called.len(), 1, "{}", outcome.stdout);
    assert_eq!(
        (&called[0]["name"], events(&outcome, "tool/result")[0]["isError"].clone()),
        (&json!("echo"), json!(false))
    );
    let answer = events(&outcome, "assistant/message").pop().expect("it answers");
    assert!(answer["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    assert_eq!(findings(&server), [""; 0]);
}

#[test]
fn what_may_pass_is_tried_again() {
    let limits = json!([
        {"type": "fail", "status": 429, "retry_after": 0.3},
        {"type": "fail", "status": 503},
        {"type": "reply", "text": "at last"},
    ]);
    let Some(server) = llmock(&[], &limits) else { return };
    let outcome = outcome(&server, "", &["hello"]);
    let codes: Vec<Value> = events(&outcome, "request/failed").iter().map(|data| data["code"].clone()).collect();
    assert_eq!((outcome.exit, codes), (0, vec![json!("rate-limit"), json!("server")]), "{}", outcome.stderr);
    assert_eq!(events(&outcome, "assistant/message")[0]["content"], json!([{"type": "text", "text": "at last"}]));
    assert_eq!(findings(&server), [""; 0]);
}

#[test]
fn failures_have_codes() {
    let Some(server) = llmock(&["--context-window", "2000", "--stream-chunk-delay-ms", "20"], &json!([])) else {
        return;
    };
    let long = "word ".repeat(4000);
    let check = |behavior: Value, prompt: &str, exit: i32, code: &str| {
        server.post("/_llmock/reset", &json!({})).expect("it forgets");
        if !behavior.is_null() {
            server.post("/_llmock/scenario", &json!({"behaviors": [behavior]})).expect("it does what it is told");
        }
        let outcome = outcome(&server, "idle-timeout-ms = 500\n", &["--no-default-plugins", prompt]);
        let codes: Vec<Value> = events(&outcome, "request/failed").iter().map(|data| data["code"].clone()).collect();
        assert_eq!((outcome.exit, codes), (exit, vec![json!(code)]), "{behavior}: {}", outcome.stderr);
        // One attempt is what was asked for, and the server cannot see that the run failed.
        let once = ["gave_up", "truncated_stream_accepted", "malformed_chunk_ignored"];
        let found: Vec<String> = findings(&server).into_iter().filter(|code| !once.contains(&code.as_str())).collect();
        assert_eq!(found, [""; 0], "{behavior}");
        assert_eq!(server.get("/_llmock/requests").expect("it keeps them")["count"], json!(1), "{behavior}");
    };
    let fail = |status: u16| json!({"type": "fail", "status": status});
    let fault = |kind: &str| json!({"type": "stream_fault", "kind": kind, "after_chunks": 6, "stall_seconds": 5});
    check(fail(400), "hello", 3, "invalid-request");
    check(fail(401), "hello", 3, "auth");
    check(fail(404), "hello", 3, "invalid-request");
    check(fail(429), "hello", 3, "rate-limit");
    check(fail(500), "hello", 3, "server");
    check(fail(503), "hello", 3, "server");
    check(Value::Null, &long, 3, "context-window-exceeded");
    check(fault("disconnect"), "hello", 3, "transport");
    check(fault("truncate"), "hello", 3, "stream-closed");
    check(fault("malformed"), "hello", 3, "malformed-response");
    check(fault("stall"), "hello", 3, "timeout");
}

#[test]
fn broken_calls_are_answered() {
    let Some(server) = llmock(&[], &json!([])) else { return };
    for kind in ["malformed_arguments", "unknown_tool"] {
        server.post("/_llmock/reset", &json!({})).expect("it forgets");
        let fault = json!({"behaviors": [{"type": "tool_fault", "kind": kind}]});
        server.post("/_llmock/scenario", &fault).expect("it does what it is told");
        let outcome = outcome(&server, "", &["--plugin", "echo", "please echo a text"]);
        assert_eq!(outcome.exit, 0, "{kind}: {}", outcome.stderr);
        let results: Vec<Value> =
            events(&outcome, "tool/result").iter().map(|result| result["isError"].clone()).collect();
        assert_eq!(results, [json!(true)], "{kind}: {}", outcome.stdout);
        assert_eq!(findings(&server), [""; 0], "{kind}");
    }
}
