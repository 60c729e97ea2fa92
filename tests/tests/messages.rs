//! The protocol Messages: the binary against a server on loopback. What every protocol shares is in `http.rs`.
//!
//! Each test's whole outcome is a file in `tests/messages/`, written anew with `UPDATE_EXPECT=1`; what the server was asked is asserted
//! here.

use std::collections::BTreeMap;

use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Received, Reply, Stage, Stopped};
use dsh_tests::case::{Case, Invocation};
use dsh_tests::harness;
use serde_json::{Value, json};

const MODEL: &str = "mine/claude-opus-4-6";

/// Runs a case against a server with these replies, each invocation with its exit status; answers what the server was asked. `keys` are
/// further ones of the provider.
fn check(name: &str, replies: Vec<Reply>, keys: &str, runs: &[(&[&str], i32)]) -> Vec<Received> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = runtime.block_on(ProviderServer::start(replies));
    let config = format!("[providers.mine]\nkind = \"anthropic\"\nbase-url = \"{}\"\n{keys}", server.base_url());
    let invocation = |(args, exit): &(&[&str], i32)| {
        let usual = ["--output", "jsonl", "--config", "host.toml", "--model", MODEL, "--no-default-plugins"];
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
    let expectations = dsh_tests::root().join("tests/tests/messages");
    let outcome = harness::run(&case, &expectations, &expectations.join(format!("{name}.txt")), harness::update());
    if let Err(problems) = outcome {
        panic!("{problems}");
    }
    server.received()
}

fn answer(answer: &Answer) -> Reply {
    Reply::answer(Protocol::Messages, answer)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_conversation() {
    let called =
        Answer::new().reasoning("I ask.", Some("EqQB1")).text("Wait.").call("toolu_1", "echo", r#"{"text":"hi"}"#);
    let replies = vec![
        answer(&called.cut(4)),
        answer(&Answer::new().reasoning("It is HI.", Some("EqQB2")).text("HI")),
        answer(&Answer::new().text("Bye.")),
    ];
    let usual = ["--plugin", "echo", "--system", "be kind", "--sampling", r#"{"reasoningEffort":"low"}"#];
    let first = [&usual[..], &["say hi"]].concat();
    let second = [&usual[..], &["--continue", "thanks"]].concat();
    let received = check("a_conversation", replies, "max-output-tokens = 2000\n", &[(&first, 0), (&second, 0)]);
    assert_eq!(received[0].path, "/v1/messages");
    let mut body = received[2].json();
    let thought = |text: &str, proof: &str| json!({"type": "thinking", "thinking": text, "signature": proof});
    assert_eq!(
        body["messages"].take(),
        json!([
            {"role": "user", "content": [text("say hi")]},
            {"role": "assistant", "content": [
                thought("I ask.", "EqQB1"), text("Wait."),
                {"type": "tool_use", "id": "toolu_1", "name": "echo", "input": {"text": "hi"}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("HI")]}]},
            {"role": "assistant", "content": [thought("It is HI.", "EqQB2"), text("HI")]},
            {"role": "user", "content": [text("thanks")]},
        ])
    );
    assert_eq!(body["tools"][0]["name"].take(), "echo");
    let frame = body.as_object_mut().expect("an object");
    frame.retain(|name, _| name != "tools" && name != "messages");
    assert_eq!(
        body,
        json!({
            "model": "claude-opus-4-6", "max_tokens": 2000, "stream": true,
            "thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"},
            "cache_control": {"type": "ephemeral"},
            "system": [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}],
        })
    );
    for pair in received.windows(2) {
        let prefix = pair[0].body.strip_suffix("]}]}").expect("the last message is that of the user");
        assert!(pair[1].body.starts_with(prefix), "{}\n{}", pair[0].body, pair[1].body);
    }
}

#[test]
fn keys_of_the_configuration() {
    let keys = "prompt-cache = \"off\"\nthinking = \"budget\"\nmax-output-tokens = 5000\nomit = [\"stream\", \"metadata\"]\nextra-body = { metadata = { user_id = \"u\" }, service_tier = \"auto\" }\n";
    let format = r#"{"reasoningEffort":"high","extra":{"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}}}}"#;
    let said = answer(&Answer::new().text("{}"));
    let received = check("keys_of_the_configuration", vec![said], keys, &[(&["--sampling", format, "hello"], 0)]);
    assert_eq!(
        received[0].json(),
        json!({
            "model": "claude-opus-4-6", "max_tokens": 5000, "stream": true, "service_tier": "auto",
            "thinking": {"type": "enabled", "budget_tokens": 3750},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
            "messages": [{"role": "user", "content": [text("hello")]}],
        })
    );
}

#[test]
fn blocks_that_only_the_provider_reads() {
    let start =
        |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let used = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}});
    let found =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "E"}]});
    let events = [
        start(0, used.clone()),
        stop(0),
        start(1, found.clone()),
        stop(1),
        start(2, json!({"type": "text", "text": "Found it."})),
        stop(2),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 7, "output_tokens": 3}}),
        json!({"type": "message_stop"}),
    ];
    let replies = vec![Reply::events(events), answer(&Answer::new().text("Bye."))];
    let runs: [(&[&str], i32); 2] = [(&["search"], 0), (&["--continue", "thanks"], 0)];
    let received = check("blocks_that_only_the_provider_reads", replies, "", &runs);
    assert_eq!(received[1].json()["messages"][1]["content"], json!([used, found, text("Found it.")]));
}

#[test]
fn cut_and_refused() {
    check("cut", vec![answer(&Answer::new().text("as I was say").stopped(Stopped::Length))], "", &[(&["hello"], 6)]);
    check("refused", vec![answer(&Answer::new().text("I can").stopped(Stopped::Filter))], "", &[(&["hello"], 0)]);
}

#[test]
fn a_failure_in_mid_answer() {
    let begun = Reply::until(Protocol::Messages, &Answer::new().text("half an answer"), Stage::Close);
    let failed = begun.and(&[Protocol::Messages.error_event("overloaded_error", "Overloaded")]);
    check("a_failure_in_mid_answer", vec![failed], "", &[(&["hello"], 3)]);
}

#[test]
fn a_window_that_is_full() {
    let long =
        Protocol::Messages.error_body("invalid_request_error", "prompt is too long: 205000 tokens > 200000 maximum");
    check("a_window_that_is_full", vec![Reply::status(400, &long)], "", &[(&["hello"], 3)]);
}
