//! A run against a live provider, written down with `--record`, is the same run again with `script:`, whatever the provider did.

use std::path::Path;
use std::time::{Duration, Instant};

use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Reply, Stage};
use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};

/// The pace of the server where times are looked at, and how many pieces come at it.
const PACE: Duration = Duration::from_millis(60);
const PIECES: u32 = 5;

struct Recorded {
    sandbox: Sandbox,
    live: Outcome,
    replayed: Outcome,
    /// How long the replay took.
    took: Duration,
}

impl Recorded {
    fn file(&self) -> String {
        std::fs::read_to_string(self.sandbox.workspace.join("rec.jsonl")).expect("it was recorded")
    }
}

/// Runs live and records, then replays. `retry` is named so that both runs have the same plugins.
fn record(protocol: Protocol, replies: Vec<Reply>, more: &[&str], stdin: &str) -> Recorded {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let server = runtime.block_on(ProviderServer::start(replies));
    let sandbox = Sandbox::new().expect("a folder");
    let (kind, base_url) = (protocol.kind(), server.base_url());
    let config = format!("[providers.live]\nkind = \"{kind}\"\nbase-url = \"{base_url}\"\n");
    std::fs::write(sandbox.workspace.join("host.toml"), config).expect("the folder is there");
    let common = ["--config", "host.toml", "--output", "jsonl", "--plugin", "echo", "--plugin", "retry"];
    let retry = ["--plugin-config", "retry={\"first-wait-ms\":1}"];
    let run = |first: &[&str]| {
        let args = first.iter().chain(&common).chain(&retry).chain(more).map(|arg| (*arg).to_owned()).collect();
        let (env, dir) = (sandbox.environment(), sandbox.workspace.clone());
        host::run(&Run { args, env, dir, stdin: stdin.to_owned(), ..Run::default() }).expect("it runs")
    };
    let live = run(&["--model", "live/m", "--record", "rec.jsonl"]);
    let begun = Instant::now();
    let replayed = run(&["--model", "script:rec.jsonl"]);
    let took = begun.elapsed();
    Recorded { sandbox, live, replayed, took }
}

/// The events of a run without what is another run's: times, ids, and who answered.
fn events(outcome: &Outcome) -> Vec<Value> {
    let parse = |line: &str| {
        let mut event: Value = serde_json::from_str(line).expect("an event");
        for other in ["time", "session"] {
            event.as_object_mut().expect("an object").remove(other);
        }
        if let Some(data) = event["data"].as_object_mut() {
            data.remove("model");
            data.remove("hash");
        }
        event
    };
    outcome.stdout.lines().map(parse).collect()
}

fn check(protocol: Protocol, replies: Vec<Reply>, more: &[&str], stdin: &str, exit: i32) -> Recorded {
    let recorded = record(protocol, replies, more, stdin);
    let (live, replayed) = (&recorded.live, &recorded.replayed);
    assert_eq!((live.exit, replayed.exit), (exit, exit), "{}\n{}\n{}", live.stdout, live.stderr, replayed.stderr);
    let (live, replayed) = (events(live), events(replayed));
    for (live, replayed) in live.iter().zip(&replayed) {
        assert_eq!(live, replayed, "{protocol:?}");
    }
    assert_eq!(live.len(), replayed.len());
    recorded
}

fn everything() -> Answer {
    let answer = Answer::new().reasoning("Grüße 👍", Some("proof")).text("so it is");
    answer.call("a", "echo", "{\"text\":\"one\"}").call("b", "echo", "{\"text\":\"two\"}").cut(3)
}

#[test]
fn a_run_with_retries_tools_and_reasoning_is_the_same_again() {
    for protocol in Protocol::ALL {
        let replies = vec![
            Reply::status(429, &protocol.error_body("rate_limit_error", "slow down")).header("retry-after-ms", "2"),
            Reply::answer(protocol, &everything()),
            Reply::reset_before(),
            Reply::status(503, "<html><title>busy</title></html>"),
            Reply::answer(protocol, &Answer::new().text("done")),
        ];
        let recorded = check(protocol, replies, &["go"], "", 0);
        let lines: Vec<Value> = recorded.file().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 5);
        let slow = &lines[0]["error"];
        assert_eq!(
            (&slow["code"], &slow["status"], &slow["retryAfterMs"]),
            (&json!("rate-limit"), &json!(429), &json!(2))
        );
        let mut usage = lines[1]["chunks"].as_array().expect("chunks").iter().filter(|chunk| chunk["type"] == "usage");
        assert_eq!(usage.next_back().map(|chunk| &chunk["usage"]["input"]), Some(&json!(10)), "{protocol:?}");
        assert_eq!(lines[2]["error"]["code"], "transport");
    }
}

#[test]
fn a_failure_in_the_middle_is_the_same_again() {
    for protocol in Protocol::ALL {
        let half = || Reply::until(protocol, &Answer::new().text("half an answer").cut(4), Stage::Close);
        for reply in [
            half().reset(),
            half().until_close(),
            half().and(&[protocol.error_event("overloaded_error", "Overloaded")]),
            half().data(["{nonsense"]),
            Reply::status(400, &protocol.error_body("invalid_request_error", "no")),
        ] {
            check(protocol, vec![reply], &["go"], "", 3);
        }
    }
}

#[test]
fn an_aborted_answer_is_the_same_again_and_keeps_its_place() {
    for protocol in Protocol::ALL {
        let half = Reply::until(protocol, &Answer::new().text("half an answer").cut(4), Stage::Close).stall();
        let replies = vec![half, Reply::answer(protocol, &Answer::new().text("the next one"))];
        let chunks = if protocol == Protocol::Messages { 4 } else { 3 };
        let stdin = format!(
            "{{\"send\":\"go\"}}\n{{\"abort\":\"enough\",\"after\":\"assistant/chunk#{chunks}\"}}\n{{\"send\":\"on\",\"after\":\"turn/end\"}}\n"
        );
        let recorded = check(protocol, replies, &["--input", "jsonl"], &stdin, 130);
        let given_up = recorded.file().lines().next().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        assert_eq!(given_up.expect("a line")["error"]["code"], "aborted");
        assert!(recorded.replayed.stdout.contains("the next one"));
    }
}

#[test]
fn sub_agents_get_their_own_answers_again() {
    for protocol in Protocol::ALL {
        let say = |text: &str| Reply::answer(protocol, &Answer::new().text(text));
        let task = Answer::new().call("t", "task", "{\"prompt\":\"find out\"}");
        let echo = Answer::new().call("e", "echo", "{\"text\":\"found\"}");
        let replies =
            vec![Reply::answer(protocol, &task), Reply::answer(protocol, &echo), say("from the child"), say("done")];
        let plugin = ["--plugin", "task", "--grant", "task=agents", "go"];
        let recorded = check(protocol, replies, &plugin, "", 0);
        let lines = recorded.file();
        let agents: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["agent"].clone()).collect();
        assert_eq!(agents, [Value::Null, json!("main.1"), json!("main.1"), Value::Null]);
    }
}

#[test]
fn times_are_kept() {
    let events = Protocol::Chat.events(&Answer::new().text(&"x".repeat(PIECES as usize)).cut(1));
    let slow = events.iter().fold(Reply::stream(), |reply, event| reply.after(PACE).bytes(&event.bytes()));
    let recorded = check(Protocol::Chat, vec![slow], &["go"], "", 0);
    let line: Value = serde_json::from_str(&recorded.file()).expect("one line");
    let waits: u64 =
        line["chunks"].as_array().expect("chunks").iter().filter_map(|item| item["delayMs"].as_u64()).sum();
    let least = PACE * PIECES;
    assert!(u128::from(waits) >= least.as_millis(), "{line}");
    assert!(recorded.took >= least, "{:?}", recorded.took);
}

/// A disk that is full from the start, and one that fills up later, are a program's own device here.
#[test]
fn a_recording_that_cannot_be_written_decides_the_exit_code() {
    let sandbox = Sandbox::new().expect("a folder");
    std::fs::write(sandbox.workspace.join("s.jsonl"), "{\"text\":\"said\",\"repeat\":2}\n")
        .expect("the folder is there");
    assert!(Path::new("/dev/full").exists());
    let args = ["--model", "script:s.jsonl", "--no-default-plugins", "--output", "json", "--record", "/dev/full", "a"];
    let run = Run {
        args: args.map(str::to_owned).into(),
        env: sandbox.environment(),
        dir: sandbox.workspace.clone(),
        ..Run::default()
    };
    let outcome = host::run(&run).expect("it runs");
    let result: Value = serde_json::from_str(&outcome.stdout).expect("one object");
    assert_eq!((outcome.exit, &result["exit"], &result["result"]), (74, &json!(74), &json!("said")));
    assert_eq!(
        outcome.stderr,
        "error: the recording is not complete: the file of `--record` could not be written: No space left on device (os error 28)\n"
    );
}
