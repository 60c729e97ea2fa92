//! What model calls behind HTTP cost, and budgets that they use up. What needs no server is in `tests/cases/budget/`.
//!
//! Each test's whole outcome is a file in `tests/budgets/`, written anew with `UPDATE_EXPECT=1`; what the server was asked is asserted
//! here.

use std::collections::BTreeMap;

use dsh_testkit::chat_server::{ChatServer, Received, Reply, delta, finish};
use dsh_tests::case::{Case, Invocation};
use dsh_tests::harness;
use serde_json::json;

/// A token in is a tenth of a cent, read from a cache a hundredth; a token out is a cent.
const PRICE: &str = "price = { input = 1000, output = 10000, cache-read = 100 }";

/// Runs `dsh-host` with `args` against a server with these replies, whose models have the price; answers what the server was asked.
fn check(name: &str, replies: Vec<Reply>, price: &str, exit: i32, args: &[&str]) -> Vec<Received> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = runtime.block_on(ChatServer::start(replies));
    let config = format!("[providers.local]\nkind = \"compatible\"\nbase-url = \"{}\"\n{price}\n", server.base_url());
    let before = ["--config", "{workspace}/local.toml", "--no-default-plugins", "--model", "local/m"];
    let args = before.into_iter().chain(args.iter().copied()).map(str::to_owned).collect();
    let case = Case {
        about: name.to_owned(),
        first: Invocation { args, exit, ..Invocation::default() },
        files: BTreeMap::from([("local.toml".to_owned(), config)]),
        replace: vec![(r"127\.0\.0\.1:\d+".to_owned(), "SERVER".to_owned())],
        ..Case::default()
    };
    let expectations = dsh_tests::root().join("tests/tests/budgets");
    let outcome = harness::run(&case, &expectations, &expectations.join(format!("{name}.txt")), harness::update());
    if let Err(problems) = outcome {
        panic!("{problems}");
    }
    server.received()
}

fn counted(usage: serde_json::Value) -> Reply {
    let counts = json!({"choices": [], "usage": usage});
    Reply::events([delta(json!({"content": "said"})), finish("stop"), counts]).done()
}

#[test]
fn tokens_have_the_price_of_the_table() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}});
    check("price", vec![counted(usage)], PRICE, 6, &["--max-cost", "0.05", "--output", "jsonl", "go"]);
}

#[test]
fn what_a_provider_says_itself_is_taken() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.0125});
    check("own_cost", vec![counted(usage)], PRICE, 0, &["--max-cost", "0.0125", "--output", "json", "go"]);
}

#[test]
fn a_provider_that_does_not_count_is_reckoned_for_and_said_once() {
    let call = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"sixteen letters.\"}"}});
    let calls = || Reply::events([delta(json!({"tool_calls": [call.clone()]})), finish("tool_calls")]).done();
    let last = Reply::events([delta(json!({"content": "done"})), finish("stop")]).done();
    let args = ["--plugin", "echo", "--max-total-tokens", "1000000", "--output", "json", "go"];
    let received = check("estimated", vec![calls(), calls(), last], PRICE, 0, &args);
    assert_eq!(received.len(), 3);
    let received =
        check("estimated_too_much", vec![calls()], PRICE, 6, &["--plugin", "echo", "--max-total-tokens", "1", "go"]);
    assert_eq!(received.len(), 1);
}

#[test]
fn without_a_budget_nothing_is_reckoned() {
    let reply = Reply::events([delta(json!({"content": "done"})), finish("stop")]).done();
    check("uncounted", vec![reply], PRICE, 0, &["--output", "json", "go"]);
}

#[test]
fn a_free_model_needs_a_price_of_nothing() {
    let free = "price = { input = 0, output = 0 }";
    check("free", vec![Reply::text("hello")], free, 0, &["--max-cost", "0.000000001", "--output", "json", "go"]);
    let received = check("no_price", vec![], "", 2, &["--max-cost", "1", "go"]);
    assert_eq!(received.len(), 0);
}

#[test]
fn the_end_of_the_time_hangs_up() {
    let received = check("time", vec![Reply::stall_before()], PRICE, 6, &["--max-time", "1", "--output", "json", "go"]);
    assert_eq!(received.len(), 1);
}
