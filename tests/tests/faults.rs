//! What providers should not do, and what comes of it: every behaviour of `dsh_testkit::provider_server::faults`, in every protocol,
//! against the binary.
//!
//! The outcomes stand in `tests/faults/`, one file for each protocol, and as a table in `docs/providers.md`; `UPDATE_EXPECT=1` writes
//! both anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use dsh_testkit::provider_server::faults::{self, Fault, Wait};
use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Reply};
use dsh_tests::harness;
use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::sandbox::Sandbox;
use regex::Regex;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// How many runs are made at once.
const TOGETHER: usize = 4;

/// A time-out that is over soon, where nothing comes before it.
const SHORT_MS: u64 = 150;
/// One that leaves what comes before it the time that a busy machine takes.
const LONG_MS: u64 = 1500;

/// The most memory that a run may have, in KiB: far more than any answer may be, far less than an endless one.
const MAX_MEMORY_KIB: u64 = 600 << 10;

/// The codes of failures of a provider, as the contract has them.
const CODES: [&str; 11] = [
    "auth",
    "rate-limit",
    "quota",
    "server",
    "timeout",
    "transport",
    "invalid-request",
    "context-window-exceeded",
    "empty-response",
    "stream-closed",
    "malformed-response",
];

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn configuration(protocol: Protocol, base_url: &str, wait: Wait) -> String {
    let limit = match wait {
        Wait::No => String::new(),
        Wait::FirstByte => format!("first-byte-timeout-ms = {SHORT_MS}\n"),
        Wait::Idle => format!("idle-timeout-ms = {LONG_MS}\n"),
        Wait::Total => format!("total-timeout-ms = {LONG_MS}\n"),
    };
    format!("[providers.faulty]\nkind = \"{}\"\nbase-url = \"{base_url}\"\n{limit}", protocol.kind())
}

/// One run against one behaviour.
fn run(protocol: Protocol, fault: &Fault, runtime: &Runtime) -> Result<Outcome, String> {
    let next = Reply::answer(protocol, &Answer::new().text("after the tools"));
    let server = runtime.block_on(ProviderServer::start(vec![(fault.reply)(protocol), next]));
    let sandbox = Sandbox::new().map_err(|error| error.to_string())?;
    let configuration = configuration(protocol, &server.base_url(), fault.wait);
    std::fs::write(sandbox.workspace.join("host.toml"), configuration).map_err(|error| error.to_string())?;
    let limited = format!("ulimit -d {MAX_MEMORY_KIB} && exec \"$0\" \"$@\"");
    let host = host::binary().to_string_lossy().into_owned();
    let args = ["-c", &limited, &host, "--config", "host.toml", "--model", "faulty/m", "--output", "jsonl"];
    let more = ["--no-default-plugins", "--no-save", "hello"];
    let run = Run {
        args: args.into_iter().chain(more).map(str::to_owned).collect(),
        env: sandbox.environment(),
        dir: sandbox.workspace.clone(),
        ..Run::default()
    };
    let outcome = host::run_program(&PathBuf::from("/bin/sh"), &run)?;
    Ok(outcome)
}

/// What came of a run, as text, and as a word for the table.
fn shown(outcome: &Outcome) -> Result<(String, String), String> {
    let mut text = String::new();
    let mut word = None;
    let mut open: Option<Pieces> = None;
    for line in outcome.stdout.lines() {
        let event: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        let data = &event["data"];
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "assistant/chunk" {
            Pieces::add(&mut open, &data["chunk"], &mut text);
            continue;
        }
        if kind.starts_with("agent/") {
            continue;
        }
        Pieces::end(&mut open, &mut text);
        match kind {
            "request/failed" | "usage" | "assistant/message" | "tool/result" => {
                let mut data = data.clone();
                for known in ["turn", "step", "attempt"] {
                    data.as_object_mut().map(|object| object.remove(known));
                }
                let _ = writeln!(text, "  {kind} {}", cut(&data.to_string()));
            }
            "turn/end" => {
                let reason = &data["reason"];
                word = Some(match reason["code"].as_str() {
                    Some(code) => format!("`{code}`"),
                    None if reason["type"] == "completed" => "an answer".to_owned(),
                    None => format!("`{}`", reason["type"].as_str().unwrap_or_default()),
                });
                let known = reason["code"].as_str().is_none_or(|code| CODES.contains(&code));
                if !known {
                    return Err(format!("an unknown code: {reason}"));
                }
                let _ = writeln!(text, "  turn/end {} {}", reason["type"], reason["code"]);
            }
            _ => {}
        }
    }
    let _ = writeln!(text, "  exit {}", outcome.exit);
    let text = shortened(&text);
    let word = word.ok_or_else(|| format!("no turn has ended\n{}\n{}", outcome.stdout, outcome.stderr))?;
    Ok((text, word))
}

/// The first and the last lines of what nobody reads.
fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    const KEPT: usize = 4;
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() <= MOST {
        return text.to_owned();
    }
    let (first, last) = (&lines[..KEPT], &lines[lines.len() - KEPT..]);
    format!("{}\n  and so on\n{}\n", first.join("\n"), last.join("\n"))
}

/// Neighbouring pieces of a block, shown as one.
struct Pieces {
    what: String,
    text: String,
    count: usize,
}

impl Pieces {
    fn add(open: &mut Option<Pieces>, chunk: &Value, out: &mut String) {
        let (delta, more) = match chunk["type"].as_str().unwrap_or_default() {
            "text-delta" | "reasoning-delta" => (chunk["type"].as_str().unwrap_or_default(), &chunk["text"]),
            "tool-call-delta" => ("tool-call-delta", &chunk["argumentsDelta"]),
            _ => {
                Self::end(open, out);
                let _ = writeln!(out, "  chunk {}", cut(&chunk.to_string()));
                return;
            }
        };
        let name =
            if chunk["name"].is_string() { format!(" {} {}", chunk["id"], chunk["name"]) } else { String::new() };
        let what = format!("{delta} {}{name}", chunk["index"]);
        if open.as_ref().is_none_or(|pieces| pieces.what != what) {
            Self::end(open, out);
            *open = Some(Pieces { what, text: String::new(), count: 0 });
        }
        if let Some(pieces) = open {
            pieces.text.push_str(more.as_str().unwrap_or_default());
            pieces.count += 1;
        }
    }

    fn end(open: &mut Option<Pieces>, out: &mut String) {
        if let Some(pieces) = open.take() {
            let _ = writeln!(out, "  {} ×{} {}", pieces.what, pieces.count, cut(&Value::from(pieces.text).to_string()));
        }
    }
}

/// The beginning of what is too long to be read.
fn cut(text: &str) -> String {
    const MOST: usize = 400;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// What differs from run to run: the server's place, and what the system calls a broken connection.
fn plain(text: &str) -> String {
    let replace = [
        (r"127\.0\.0\.1:\d+", "SERVER"),
        (r#"(the connection broke|the request could not be sent): [^"\n]*"#, "BROKEN CONNECTION"),
        // How much of an endless answer, and of a slow one, came.
        (r#"(text-delta \d+) ×\d+ ("Hällo, wörld 👍)on and on[^\n]*"#, "$1 ×MANY $2 ENDLESS"),
    ];
    replace.iter().fold(text.to_owned(), |text, (pattern, with)| {
        Regex::new(pattern).expect("a pattern").replace_all(&text, *with).into_owned()
    })
}

/// Every behaviour in one protocol: what came of it as text, and the words for the table.
fn every(protocol: Protocol) -> (String, BTreeMap<&'static str, String>) {
    let all: Vec<&Fault> = faults::groups().iter().flat_map(|(_, faults)| faults.iter()).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let runtime = runtime();
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some(fault) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let came = run(protocol, fault, &runtime).and_then(|outcome| shown(&outcome));
                    done.lock().expect("unpoisoned").insert(fault.name, came);
                }
            });
        }
    });
    let done = done.into_inner().expect("unpoisoned");
    let (mut text, mut words, mut problems) = (String::new(), BTreeMap::new(), Vec::new());
    for fault in all {
        match &done[fault.name] {
            Ok((came, word)) => {
                let _ = writeln!(text, "{}: the server {}\n{}", fault.name, fault.about, plain(came));
                words.insert(fault.name, word.clone());
            }
            Err(problem) => problems.push(format!("{}: {problem}", fault.name)),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    (text, words)
}

/// The table of `docs/providers.md`.
fn table(words: &[BTreeMap<&'static str, String>; 3]) -> String {
    let mut out = String::new();
    for (title, faults) in faults::groups() {
        let _ = writeln!(out, "{title}: the server…\n\n| behaviour | what comes of it |\n|---|---|");
        for fault in faults {
            let each = words.each_ref().map(|words| words[fault.name].as_str());
            let comes = if each.iter().all(|word| *word == each[0]) {
                each[0].to_owned()
            } else {
                let named =
                    Protocol::ALL.iter().zip(each).map(|(protocol, word)| format!("{word} ({})", protocol.name()));
                named.collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(out, "| {} | {comes} |", fault.about);
        }
        out.push('\n');
    }
    out
}

#[test]
fn every_behaviour_in_every_protocol_has_its_outcome() {
    let folder = dsh_tests::root().join("tests/tests/faults");
    let mut problems = Vec::new();
    let words = Protocol::ALL.map(|protocol| {
        let (text, words) = every(protocol);
        let file = folder.join(format!("{}.txt", protocol.kind()));
        problems.extend(harness::compare(&file, &text, harness::update()).expect("the file can be written"));
        words
    });
    problems.extend(documented(&table(&words)));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Compares the table with that of the documentation.
fn documented(table: &str) -> Option<String> {
    const BEGIN: &str = "<!-- what follows is written by tests/tests/faults.rs -->\n\n";
    const END: &str = "<!-- what is above is written by tests/tests/faults.rs -->";
    let page = dsh_tests::root().join("docs/providers.md");
    let text = std::fs::read_to_string(&page).expect("the page is there");
    let begin = text.find(BEGIN).expect("the page has the table") + BEGIN.len();
    let end = begin + text[begin..].find(END).expect("the table has an end");
    let written = format!("{}{table}{}", &text[..begin], &text[end..]);
    harness::compare(&page, &written, harness::update()).expect("the page can be written")
}
