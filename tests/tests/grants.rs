//! Every refusal names the option that would allow it, in three places, and typing that option makes it work.
//!
//! The option is taken from what the program says, and added to the same command line as it stands there.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};

/// One thing that a guest tries without the grant for it.
struct Attempt {
    guest: &'static str,
    tool: &'static str,
    arguments: Value,
    /// Options that are there from the start.
    with: &'static [&'static str],
    /// What is refused.
    capability: String,
    /// Whether the interface has room for a text to the guest.
    told: bool,
    /// What the tool's answer holds when it works.
    works: &'static str,
}

impl Attempt {
    fn probe(what: &str, capability: &str, works: &'static str) -> Self {
        let arguments = json!({ "what": [what], "path": "docs/a.txt", "command": "echo started" });
        Self { guest: "probe", tool: "probe", arguments, with: &[], capability: capability.into(), told: true, works }
    }

    fn path(what: &str, path: &str, with: &'static [&'static str], capability: &str, works: &'static str) -> Self {
        let arguments = json!({ "what": [what], "path": path });
        let told = false;
        Self { guest: "probe", tool: "probe", arguments, with, capability: capability.into(), told, works }
    }
}

/// Answers every request with `reached`; its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nreached");
        }
    });
    port
}

fn attempts(port: u16) -> Vec<Attempt> {
    let get = |url: String| json!({ "steps": [{ "do": "get", "url": url }] });
    let request = |url: String, capability: String| Attempt {
        guest: "intruder",
        tool: "intrude",
        arguments: get(url),
        with: &[],
        capability,
        told: false,
        works: "reached",
    };
    vec![
        Attempt::probe("llm", "llm", r#"{"llm":{"ok":"#),
        Attempt::probe("session-read", "session", r#"{"session-read":{"ok":"#),
        Attempt::probe("session-append", "session", r#"{"session-append":{"ok":"#),
        Attempt::probe("inbox-send", "inbox", r#"{"inbox-send":{"ok":"#),
        Attempt::probe("inbox-steer", "inbox", r#"{"inbox-steer":{"ok":"#),
        Attempt::probe("inbox-inject", "inbox", r#"{"inbox-inject":{"ok":"#),
        Attempt::probe("approval", "approval", r#"{"approval":{"ok":"#),
        Attempt::probe("process", "process", "started"),
        Attempt {
            guest: "foreman",
            tool: "hire",
            arguments: json!({ "prompt": "work" }),
            with: &[],
            capability: "agents".into(),
            told: true,
            works: "main.1",
        },
        Attempt::path("fs-read", "docs/a.txt", &[], "fs:read:docs", "content of a"),
        Attempt::path("fs-read", "top.txt", &[], "fs:read:.", "content of top"),
        Attempt::path("fs-list", "docs", &[], "fs:read:docs", "a.txt"),
        Attempt::path("fs-read", "docs/../top.txt", &[], "fs:read:.", "content of top"),
        Attempt::path("fs-write", "out/new.txt", &[], "fs:write:out", "written"),
        Attempt::path("fs-write", "docs/new.txt", &["--grant", "probe=fs:read:docs"], "fs:write:docs", "written"),
        Attempt::path("fs-read", "my docs/it's.txt", &[], "fs:read:my docs", "content of it"),
        request(format!("http://127.0.0.1:{port}/"), format!("net:127.0.0.1:{port}")),
        request(format!("http://localhost:{port}/"), format!("net:localhost:{port}")),
        request(format!("http://LOCALHOST.:{port}/"), format!("net:localhost:{port}")),
        request(format!("http://[::ffff:127.0.0.1]:{port}/"), format!("net:127.0.0.1:{port}")),
    ]
}

/// Runs an attempt in a fresh workspace, with the options of `more` typed into a shell behind the command line.
fn run(attempt: &Attempt, more: &str) -> Outcome {
    let sandbox = Sandbox::new().expect("a folder");
    for (path, text) in
        [("docs/a.txt", "content of a"), ("top.txt", "content of top"), ("my docs/it's.txt", "content of it")]
    {
        let path = sandbox.workspace.join(path);
        std::fs::create_dir_all(path.parent().expect("below the workspace")).expect("to make it");
        std::fs::write(path, text).expect("to write it");
    }
    let call = json!({ "toolCalls": [{ "id": "a", "name": attempt.tool, "arguments": attempt.arguments }] });
    let script = format!("{call}\n{}\n{}\n{}\n", json!({"text": "b"}), json!({"text": "c"}), json!({"text": "d"}));
    std::fs::write(sandbox.case.join("script.jsonl"), script).expect("the folder is there");
    let plugin = format!("{{guests}}/{}.wasm", attempt.guest);
    let args =
        ["--output", "jsonl", "--approve", "allow", "--model", "script:{case}/script.jsonl", "--plugin", &plugin];
    let typed = [&args[..], attempt.with].concat().into_iter().map(|arg| sandbox.expand(arg)).collect::<Vec<_>>();
    // A shell reads the option, as it would when a person types it.
    let shell = format!(r#"exec "$0" "$@" {more} go"#);
    let program = host::binary().to_string_lossy().into_owned();
    let args = ["-c".to_owned(), shell, program].into_iter().chain(typed).collect();
    let run = Run { args, env: sandbox.environment(), dir: sandbox.workspace.clone(), ..Run::default() };
    host::run_program("/bin/bash".as_ref(), &run).unwrap_or_else(|problem| panic!("{problem}"))
}

fn events<'a>(outcome: &'a Outcome, kind: &'a str) -> impl Iterator<Item = Value> + 'a {
    let events = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
    events.filter(move |event| event["type"] == kind).map(|mut event| event["data"].take())
}

fn told(outcome: &Outcome) -> String {
    let result = events(outcome, "tool/result").next().unwrap_or_else(|| panic!("{}", outcome.stderr));
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}

#[test]
fn an_option_that_a_refusal_names_makes_it_work() {
    let port = server();
    for attempt in attempts(port) {
        let (capability, about) = (&attempt.capability, format!("{} {}", attempt.guest, attempt.arguments));
        let refused = run(&attempt, "");
        let named: Vec<_> = events(&refused, "plugin/refused").collect();
        let [event] = &named[..] else { panic!("{about}: {named:?}\n{}", refused.stderr) };
        assert_eq!(&event["capability"], capability, "{about}");
        let option = event["grant"].as_str().expect("an option");
        let warned = format!(
            "warning: plugin `{}`: it was refused `{capability}`, which it was not granted; allow it with `{option}`",
            attempt.guest
        );
        assert!(refused.stderr.lines().any(|line| line == warned), "{about}:\n{}\n{warned}", refused.stderr);
        assert_eq!(told(&refused).contains(option), attempt.told, "{about}: {}", told(&refused));
        assert!(!told(&refused).contains(attempt.works), "{about}: {}", told(&refused));

        let granted = run(&attempt, option);
        assert_eq!(events(&granted, "plugin/refused").collect::<Vec<_>>(), [] as [Value; 0], "{about} {option}");
        assert!(told(&granted).contains(attempt.works), "{about} {option}: {}\n{}", told(&granted), granted.stderr);
        assert_eq!(granted.exit, 0, "{about} {option}: {}", granted.stderr);
    }
}
