//! The protocol Messages against servers that nobody here wrote: the binary talks to mock servers of the package registries, and they
//! tell what they were asked and what they think of it.
//!
//! What is the same in every run is a file in `tests/mock_messages/`, written anew with `UPDATE_EXPECT=1`.

use std::collections::BTreeMap;

use dsh_tests::case::{Case, Invocation};
use dsh_tests::harness;
use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::mock_server::{aimock, llmock};
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};

/// A model that thinks by a number of tokens: then the server sees to it that thoughts come back.
const OLDER: &str = "claude-haiku-4-5";

/// A model that thinks as it sees fit.
const NEWER: &str = "claude-opus-4-6";

const THINK: [&str; 2] = ["--sampling", r#"{"reasoningEffort":"high"}"#];

/// A provider at this address, with further keys.
fn config(base_url: &str, more: &str) -> String {
    format!("[providers.mock]\nkind = \"anthropic\"\nbase-url = \"{base_url}\"\n{more}")
}

/// Runs a case with these invocations against a server and compares the whole outcome.
fn check(name: &str, base_url: &str, model: &str, runs: &[(&[&str], i32)]) {
    let model = format!("mock/{model}");
    let invocation = |(args, exit): &(&[&str], i32)| {
        let usual = ["--output", "jsonl", "--config", "host.toml", "--model", &model, "--no-default-plugins"];
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
        files: BTreeMap::from([("host.toml".into(), config(base_url, ""))]),
        replace: vec![(r"127\.0\.0\.1:\d+".to_owned(), "SERVER".to_owned())],
        ..Case::default()
    };
    let folder = dsh_tests::root().join("tests/tests/mock_messages");
    let outcome = harness::run(&case, &folder, &folder.join(format!("{name}.txt")), harness::update());
    if let Err(problems) = outcome {
        panic!("{problems}");
    }
}

#[test]
fn text() {
    let usage = json!({"input_tokens": 21, "output_tokens": 9});
    let fixtures = json!([{
        "match": {"userMessage": "hello", "systemMessage": "be kind"},
        "response": {"content": "Hello, world: the answer comes in pieces.", "usage": usage},
    }]);
    let Some(server) = aimock(&fixtures) else { return };
    check("text", &format!("{}/v1", server.url()), NEWER, &[(&["--system", "be kind", "hello"], 0)]);
}

#[test]
fn tools_and_thoughts() {
    let calls = json!([
        {"id": "toolu_a", "name": "echo", "arguments": "{\"text\":\"paris\"}"},
        {"id": "toolu_b", "name": "echo", "arguments": "{\"text\":\"rome\"}"},
    ]);
    let asked = |result: bool| json!({"userMessage": "weather", "hasToolResult": result});
    let fixtures = json!([
        {"match": asked(false), "response": {"reasoning": "I should ask twice.", "reasoningSignature": "EqQBCkYIBxgC", "toolCalls": calls}},
        {"match": asked(true), "response": {"content": "PARIS and ROME"}},
        {"match": {"userMessage": "secret", "hasToolResult": true, "toolResultContains": "LONDON"}, "response": {"content": "LONDON"}},
        {"match": {"userMessage": "secret"}, "response": {"redactedThinking": ["EmwKAhgB"], "toolCalls": [
            {"id": "toolu_c", "name": "echo", "arguments": "{\"text\":\"london\"}"},
        ]}},
    ]);
    let Some(server) = aimock(&fixtures) else { return };
    // The server refuses an answer to a call whose thoughts, with their proof, did not come back. Its address has no version.
    let args = |prompt| [&["--plugin", "echo"], &THINK[..], &[prompt]].concat();
    check("tools_and_thoughts", &server.url(), OLDER, &[(&args("weather"), 0), (&args("secret"), 0)]);
    let journal = server.get("/__aimock/journal").expect("it keeps a journal");
    let statuses: Vec<&Value> =
        journal.as_array().expect("a list").iter().map(|entry| &entry["response"]["status"]).collect();
    assert_eq!(statuses, [200; 4]);
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "echo", "arguments": arguments}});
    assert_eq!(
        journal[1]["body"]["messages"],
        json!([
            {"role": "user", "content": "weather"},
            {"role": "assistant", "content": null, "tool_calls": [
                call("toolu_a", "{\"text\":\"paris\"}"), call("toolu_b", "{\"text\":\"rome\"}"),
            ]},
            {"role": "tool", "content": "PARIS", "tool_call_id": "toolu_a"},
            {"role": "tool", "content": "ROME", "tool_call_id": "toolu_b"},
        ])
    );
}

#[test]
fn an_answer_that_is_cut() {
    let cut = json!({"content": "as I was say", "finishReason": "length"});
    let Some(server) = aimock(&json!([{"match": {"userMessage": "long"}, "response": cut}])) else { return };
    check("an_answer_that_is_cut", &server.url(), NEWER, &[(&["long"], 6)]);
}

#[test]
fn a_refusal() {
    let refused = json!({"content": "I cannot", "finishReason": "refusal"});
    let Some(server) = aimock(&json!([{"match": {"userMessage": "bad"}, "response": refused}])) else { return };
    check("a_refusal", &server.url(), NEWER, &[(&["bad"], 0)]);
}

/// Where the other server speaks Messages.
fn address(url: &str) -> String {
    format!("{url}/anthropic")
}

/// The binary with this prompt, in a sandbox.
fn run(sandbox: &Sandbox, url: &str, more: &str, args: &[&str]) -> Run {
    std::fs::write(sandbox.place("host.toml"), config(&address(url), more)).expect("written");
    let usual = ["--output", "jsonl", "--config", "host.toml", "--model", "mock/claude-opus-4-6"];
    Run {
        args: usual.iter().chain(args).map(|arg| (*arg).to_owned()).collect(),
        env: sandbox.environment(),
        dir: sandbox.workspace.clone(),
        ..Run::default()
    }
}

fn outcome(url: &str, more: &str, args: &[&str]) -> Outcome {
    let sandbox = Sandbox::new().expect("a sandbox");
    host::run(&run(&sandbox, url, more, args)).expect("it ends")
}

/// The data of all events of a type.
fn events(outcome: &Outcome, kind: &str) -> Vec<Value> {
    let lines = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event is JSON"));
    lines.filter(|event| event["type"] == kind).map(|event| event["data"].clone()).collect()
}

/// What the server finds fault with, by its own names.
fn findings(verdict: Result<Value, String>) -> Vec<String> {
    let verdict = verdict.expect("it judges");
    let findings = verdict["findings"].as_array().expect("a list").iter();
    findings.map(|finding| finding["code"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn an_agent_runs_its_tools() {
    let Some(server) = llmock(&["--tool-mode", "auto"], &json!([])) else { return };
    let outcome = outcome(&server.url(), "", &[&["--plugin", "echo"], &THINK[..], &["please echo a text"]].concat());
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let called = events(&outcome, "tool/call");
    assert_eq!(called.len(), 1, "{}", outcome.stdout);
    let results = events(&outcome, "tool/result");
    assert_eq!((&called[0]["name"], &results[0]["isError"]), (&json!("echo"), &json!(false)));
    let answer = events(&outcome, "assistant/message").pop().expect("it answers");
    assert!(answer["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    let counted = events(&outcome, "usage");
    let all = counted
        .iter()
        .all(|data| data["usage"]["input"].as_u64() > Some(0) && data["usage"]["output"].as_u64() > Some(0));
    assert!(counted.len() == 2 && all, "{counted:?}");
    assert_eq!(findings(server.get("/_llmock/verdict")), [""; 0]);
}

#[test]
fn what_may_pass_is_tried_again() {
    let limits = json!([
        {"type": "fail", "status": 429, "retry_after": 0.3},
        {"type": "fail", "status": 529},
        {"type": "reply", "text": "at last"},
    ]);
    let Some(server) = llmock(&[], &limits) else { return };
    let outcome = outcome(&server.url(), "", &["hello"]);
    let codes: Vec<Value> = events(&outcome, "request/failed").iter().map(|data| data["code"].clone()).collect();
    assert_eq!((outcome.exit, codes), (0, vec![json!("rate-limit"), json!("server")]), "{}", outcome.stderr);
    assert_eq!(events(&outcome, "assistant/message")[0]["content"], json!([{"type": "text", "text": "at last"}]));
    assert_eq!(findings(server.get("/_llmock/verdict")), [""; 0]);
}

#[test]
fn failures_have_codes() {
    let Some(server) = llmock(&["--context-window", "2000", "--stream-chunk-delay-ms", "20"], &json!([])) else {
        return;
    };
    let long = "word ".repeat(4000);
    let check = |behavior: Value, prompt: &str, code: &str| {
        server.post("/_llmock/reset", &json!({})).expect("it forgets");
        if !behavior.is_null() {
            server.post("/_llmock/scenario", &json!({"behaviors": [behavior]})).expect("it does what it is told");
        }
        let outcome = outcome(&server.url(), "idle-timeout-ms = 500\n", &["--no-default-plugins", prompt]);
        let codes: Vec<Value> = events(&outcome, "request/failed").iter().map(|data| data["code"].clone()).collect();
        assert_eq!((outcome.exit, codes), (3, vec![json!(code)]), "{behavior}: {}", outcome.stderr);
        // One attempt is what was asked for, and the server cannot see that the run failed.
        let once = ["gave_up", "truncated_stream_accepted", "malformed_chunk_ignored"];
        let found = findings(server.get("/_llmock/verdict")).into_iter().filter(|code| !once.contains(&code.as_str()));
        assert_eq!(found.collect::<Vec<_>>(), [""; 0], "{behavior}");
        assert_eq!(server.get("/_llmock/requests").expect("it keeps them")["count"], json!(1), "{behavior}");
    };
    let fail = |status: u16| json!({"type": "fail", "status": status});
    let fault = |kind: &str| json!({"type": "stream_fault", "kind": kind, "after_chunks": 6, "stall_seconds": 5});
    check(fail(400), "hello", "invalid-request");
    check(fail(401), "hello", "auth");
    check(fail(403), "hello", "auth");
    check(fail(404), "hello", "invalid-request");
    check(fail(413), "hello", "context-window-exceeded");
    check(fail(429), "hello", "rate-limit");
    check(fail(500), "hello", "server");
    check(fail(529), "hello", "server");
    check(Value::Null, &long, "context-window-exceeded");
    check(fault("disconnect"), "hello", "transport");
    check(fault("truncate"), "hello", "stream-closed");
    check(fault("malformed"), "hello", "malformed-response");
    check(fault("stall"), "hello", "timeout");
}

#[test]
fn broken_calls_are_answered() {
    let Some(server) = llmock(&[], &json!([])) else { return };
    for kind in ["malformed_arguments", "unknown_tool"] {
        server.post("/_llmock/reset", &json!({})).expect("it forgets");
        let fault = json!({"behaviors": [{"type": "tool_fault", "kind": kind}]});
        server.post("/_llmock/scenario", &fault).expect("it does what it is told");
        let outcome = outcome(&server.url(), "", &["--plugin", "echo", "please echo a text"]);
        assert_eq!(outcome.exit, 0, "{kind}: {}", outcome.stderr);
        let results: Vec<Value> =
            events(&outcome, "tool/result").iter().map(|result| result["isError"].clone()).collect();
        assert_eq!(results, [json!(true)], "{kind}: {}", outcome.stdout);
        assert_eq!(findings(server.get("/_llmock/verdict")), [""; 0], "{kind}");
    }
}

#[test]
fn cancelling_hangs_up() {
    let long = json!([{"type": "reply", "text": "word ".repeat(400)}]);
    let Some(server) = llmock(&["--stream-chunk-delay-ms", "50"], &long) else { return };
    let sandbox = Sandbox::new().expect("a sandbox");
    let signal = Some(("INT".to_owned(), "assistant/chunk".to_owned()));
    let outcome = host::run(&Run { signal, ..run(&sandbox, &server.url(), "", &["long"]) }).expect("it ends");
    let reasons: Vec<Value> = events(&outcome, "turn/end").iter().map(|data| data["reason"]["type"].clone()).collect();
    assert_eq!((outcome.exit, reasons), (130, vec![json!("disposed")]), "{}", outcome.stderr);
    // The server answers this once no request is under way any more.
    let request = &server.get("/_llmock/requests").expect("it keeps them")["requests"][0];
    assert_eq!(request["completed"], json!(false), "{request}");
}
