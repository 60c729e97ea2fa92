//! The protocol Responses: the binary against a server on loopback. What every protocol shares is in `http.rs`.
//!
//! Each test's whole outcome is a file in `tests/responses/`, written anew with `UPDATE_EXPECT=1`; what the server was asked is
//! asserted here.

use std::collections::BTreeMap;

use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Received, Reply, Stopped};
use dsh_tests::case::{Case, Invocation};
use dsh_tests::harness;
use serde_json::{Value, json};

/// Runs a case against a server with these replies, each invocation with its exit status; answers what the server was asked.
fn check(name: &str, replies: Vec<Reply>, runs: &[(&[&str], i32)]) -> Vec<Received> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = runtime.block_on(ProviderServer::start(replies));
    let config = format!("[providers.mine]\nkind = \"openai-responses\"\nbase-url = \"{}\"\n", server.base_url());
    let invocation = |(args, exit): &(&[&str], i32)| {
        let usual = ["--output", "jsonl", "--config", "host.toml", "--model", "mine/test-model"];
        let args = usual.iter().chain(*args).map(|arg| (*arg).to_owned()).collect();
        Invocation { args, exit: *exit, ..Invocation::default() }
    };
    let case = Case {
        about: name.to_owned(),
        first: invocation(&runs[0]),
        then: runs[1..].iter().map(invocation).collect(),
        files: BTreeMap::from([("host.toml".into(), config)]),
        ..Case::default()
    };
    let expectations = dsh_tests::root().join("tests/tests/responses");
    let outcome = harness::run(&case, &expectations, &expectations.join(format!("{name}.txt")), harness::update());
    if let Err(problems) = outcome {
        panic!("{problems}");
    }
    server.received()
}

fn answer(answer: &Answer) -> Reply {
    Reply::answer(Protocol::Responses, answer)
}

/// Without the plugin `retry`, that the host adds by itself.
const PLAIN: [&str; 2] = ["--no-default-plugins", "hello"];

#[test]
fn a_conversation() {
    let replies = vec![
        answer(
            &Answer::new()
                .reasoning("I ask.", Some("gAAA1"))
                .text("Wait.")
                .call("call_1", "echo", r#"{"text":"hi"}"#)
                .cut(4),
        ),
        answer(&Answer::new().reasoning("It is HI.", Some("gAAA2")).text("HI")),
        answer(&Answer::new().text("Bye.")),
    ];
    let plugin = ["--plugin", "echo", "--no-default-plugins"];
    let first = [&plugin[..], &["--system", "be kind", "say hi"]].concat();
    let second = [&plugin[..], &["--system", "be kind", "--continue", "thanks"]].concat();
    let received = check("a_conversation", replies, &[(&first, 0), (&second, 0)]);
    assert_eq!(received[0].path, "/v1/responses");
    let bodies: Vec<Value> = received.iter().map(Received::json).collect();
    assert_eq!((&bodies[0]["instructions"], &bodies[0]["store"]), (&json!("be kind"), &json!(false)));
    assert_eq!(bodies[0]["tools"][0]["strict"], json!(false));
    let reasoning = |id: &str, text: &str, secret: &str| json!({"id": id, "type": "reasoning", "summary": [{"type": "summary_text", "text": text}], "encrypted_content": secret});
    let said = |role: &str, text: &str| json!({"type": "message", "role": role, "content": text});
    assert_eq!(
        bodies[2]["input"],
        json!([
            said("user", "say hi"),
            reasoning("rs_0", "I ask.", "gAAA1"),
            said("assistant", "Wait."),
            {"type": "function_call", "call_id": "call_1", "name": "echo", "arguments": r#"{"text":"hi"}"#},
            {"type": "function_call_output", "call_id": "call_1", "output": "HI"},
            reasoning("rs_0", "It is HI.", "gAAA2"),
            said("assistant", "HI"),
            said("user", "thanks"),
        ])
    );
    for pair in received.windows(2) {
        let prefix = pair[0].body.strip_suffix("]}").expect("the input is last");
        assert!(pair[1].body.starts_with(prefix), "{}\n{}", pair[0].body, pair[1].body);
    }
}

#[test]
fn two_calls_at_once() {
    let calls = Answer::new().call("a", "echo", r#"{"text":"one"}"#).call("b", "echo", r#"{"text":"two"}"#);
    let replies = vec![answer(&calls.cut(5).interleaved()), answer(&Answer::new().text("done"))];
    let received = check("two_calls_at_once", replies, &[(&["--plugin", "echo", "--no-default-plugins", "go"], 0)]);
    let input = received[1].json()["input"].clone();
    let outputs: Vec<&Value> = input.as_array().expect("a list").iter().filter_map(|item| item.get("output")).collect();
    assert_eq!(outputs, ["ONE", "TWO"]);
}

#[test]
fn cut_and_refused() {
    check("cut", vec![answer(&Answer::new().text("as I was say").stopped(Stopped::Length))], &[(&PLAIN, 6)]);
    check("filtered", vec![answer(&Answer::new().text("I can").stopped(Stopped::Filter))], &[(&PLAIN, 0)]);
}

#[test]
fn a_failure_in_mid_answer() {
    let text = json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "half an ans"});
    let error = json!({"code": "server_error", "message": "The server had an error."});
    let usage = json!({"input_tokens": 12, "output_tokens": 3});
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": error, "usage": usage}});
    check("a_failure_in_mid_answer", vec![Reply::events([text, failed])], &[(&PLAIN, 3)]);
}

#[test]
fn an_answer_that_is_not_streamed() {
    let whole = Protocol::Responses.whole(&Answer::new().text("all at once")).to_string();
    check("an_answer_that_is_not_streamed", vec![Reply::status(200, &whole)], &[(&PLAIN, 0)]);
}

#[test]
fn thought_and_form_are_asked_for() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    let form = json!({"type": "json_schema", "json_schema": {"name": "count", "schema": schema, "strict": true}});
    let sampling = json!({"reasoningEffort": "low", "maxTokens": 50, "extra": {"response_format": form}}).to_string();
    let said = Answer::new().reasoning("One.", Some("gAAA")).text(r#"{"n":1}"#);
    let args = ["--no-default-plugins", "--sampling", &sampling, "count"];
    let received = check("thought_and_form_are_asked_for", vec![answer(&said)], &[(&args, 0)]);
    let body = received[0].json();
    assert_eq!(body["reasoning"], json!({"effort": "low", "summary": "auto"}));
    assert_eq!(body["include"], json!(["reasoning.encrypted_content"]));
    let format = json!({"type": "json_schema", "name": "count", "schema": schema, "strict": true});
    assert_eq!((&body["text"], &body["max_output_tokens"]), (&json!({"format": format}), &json!(50)));
    assert_eq!(body.get("response_format"), None);
}

#[test]
fn texts_to_stop_at_fail_before_anything_is_sent() {
    let args = ["--no-default-plugins", "--sampling", r#"{"stop":["END"]}"#, "hello"];
    let received = check("texts_to_stop_at_fail_before_anything_is_sent", vec![], &[(&args, 3)]);
    assert_eq!(received.len(), 0);
}
