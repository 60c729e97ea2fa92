//! `--trace-plugins`, read by somebody else: what a viewer of Chrome's trace event format relies on holds for the timeline of a run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use dsh_tests::host::{self, Run};
use dsh_tests::sandbox::Sandbox;
use serde_json::Value;

/// One complete event, its times in nanoseconds.
#[derive(Debug, Clone)]
struct Complete {
    name: String,
    kind: String,
    track: (u64, u64),
    begin: u64,
    end: u64,
    args: Value,
}

/// A timeline as a viewer has it.
#[derive(Debug)]
struct Trace {
    events: Vec<Complete>,
    processes: BTreeMap<u64, String>,
    threads: BTreeMap<(u64, u64), String>,
}

fn nanos(value: &Value) -> u64 {
    let micros = value.as_f64().unwrap_or_else(|| panic!("no time: {value}"));
    assert!(micros >= 0.0 && micros.is_finite(), "no time: {value}");
    (micros * 1_000.0).round() as u64
}

impl Trace {
    /// Reads the JSON array form; `torn` may lack its end, as the format allows.
    fn read(text: &str, torn: bool) -> Self {
        let whole = if torn { format!("{}\n]", text.trim_end().trim_end_matches(',')) } else { text.to_owned() };
        let list: Vec<Value> = serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        let mut trace = Trace { events: Vec::new(), processes: BTreeMap::new(), threads: BTreeMap::new() };
        for event in &list {
            let number = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("no `{key}`: {event}"));
            let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text: {event}")).to_owned();
            let track = (number("pid"), number("tid"));
            match (event["ph"].as_str(), event["name"].as_str()) {
                (Some("M"), Some("process_name")) => {
                    let before = trace.processes.insert(track.0, text(&event["args"]["name"]));
                    assert_eq!(before, None, "a process is named twice: {event}");
                }
                (Some("M"), Some("thread_name")) => {
                    let before = trace.threads.insert(track, text(&event["args"]["name"]));
                    assert_eq!(before, None, "a thread is named twice: {event}");
                }
                (Some("X"), Some(_)) => {
                    assert!(trace.threads.contains_key(&track), "an event on a thread without a name: {event}");
                    let begin = nanos(&event["ts"]);
                    let complete = Complete {
                        name: text(&event["name"]),
                        kind: text(&event["cat"]),
                        track,
                        begin,
                        end: begin + nanos(&event["dur"]),
                        args: event["args"].clone(),
                    };
                    trace.events.push(complete);
                }
                other => panic!("{other:?}: {event}"),
            }
        }
        trace.nests();
        trace
    }

    /// On each track two events are apart, or one holds the other.
    fn nests(&self) {
        let mut tracks: BTreeMap<_, Vec<&Complete>> = BTreeMap::new();
        self.events.iter().for_each(|event| tracks.entry(event.track).or_default().push(event));
        for events in tracks.values_mut() {
            events.sort_by_key(|event| (event.begin, std::cmp::Reverse(event.end)));
            let mut open: Vec<&Complete> = Vec::new();
            for event in events {
                while open.last().is_some_and(|outer| outer.end <= event.begin) {
                    open.pop();
                }
                if let Some(outer) = open.last() {
                    assert!(event.end <= outer.end, "{event:?} crosses {outer:?}");
                }
                open.push(event);
            }
        }
    }

    fn of(&self, kind: &str) -> Vec<&Complete> {
        self.events.iter().filter(|event| event.kind == kind).collect()
    }

    /// The names of one kind in the order of their begins.
    fn names(&self, kind: &str) -> Vec<&str> {
        let mut events = self.of(kind);
        events.sort_by_key(|event| event.begin);
        events.iter().map(|event| event.name.as_str()).collect()
    }

    /// Every call is inside of the one that its receipt says it is nested in, and of the tool call that it is about.
    fn calls_are_inside(&self) {
        let calls = self.of("plugin");
        for call in &calls {
            if let Some(number) = call.args["within"].as_u64() {
                let outer = calls.iter().find(|outer| outer.args["number"] == number).expect("the outer call is there");
                assert!(outer.begin <= call.begin && call.end <= outer.end, "{call:?} is not inside of {outer:?}");
            }
            if let Some(id) = call.args["callId"].as_str() {
                let tool =
                    self.of("tool").into_iter().find(|tool| tool.args["callId"] == id).expect("the tool call is there");
                assert!(tool.begin <= call.begin && call.end <= tool.end, "{call:?} is not inside of {tool:?}");
                assert_eq!(tool.track.0, call.track.0);
            }
        }
    }
}

fn target(name: &str) -> String {
    dsh_tests::target_dir().join(name).display().to_string()
}

/// A run that reads two files side by side under a listener and a guard.
fn run(more: &[&str]) -> (Sandbox, host::Outcome) {
    let sandbox = Sandbox::new().expect("a folder");
    let calls = r#"{"toolCalls":[{"id":"a","name":"read","arguments":{"path":"a.txt"}},{"id":"b","name":"read","arguments":{"path":"b.txt"}}]}"#;
    std::fs::write(sandbox.case.join("script.jsonl"), format!("{calls}\n{{\"text\":\"done\"}}\n"))
        .expect("it can be written");
    for name in ["a.txt", "b.txt"] {
        std::fs::write(sandbox.workspace.join(name), "text").expect("it can be written");
    }
    let model = sandbox.expand("script:{case}/script.jsonl");
    let (faulty, files) = (target("test-guests/faulty.wasm"), target("plugins/files.wasm"));
    let mut args = vec![
        "--model",
        &model,
        "--plugin",
        &faulty,
        "--plugin-config",
        r#"faulty={"seam":"guard","fault":"trap","tool":"none"}"#,
        "--plugin",
        &files,
        "--grant",
        "files=fs:read:.",
        "--trace-plugins",
        "trace.json",
    ];
    args.extend(more);
    args.push("go");
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let outcome =
        host::run(&Run { args, env: sandbox.environment(), dir: sandbox.workspace.clone(), ..Run::default() });
    (sandbox, outcome.expect("it runs"))
}

fn text(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("trace.json")).expect("there is a timeline")
}

#[test]
fn a_timeline_nests_and_names_what_it_shows() {
    let (sandbox, outcome) = run(&[]);
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let trace = Trace::read(&text(&sandbox.workspace), false);
    trace.calls_are_inside();
    assert_eq!(trace.processes.values().collect::<Vec<_>>(), ["loading plugins", "agent main"]);
    assert_eq!(trace.names("turn"), ["turn 1"]);
    assert_eq!(trace.names("step"), ["step 1", "step 2"]);
    assert_eq!(trace.names("tool"), ["tool read", "tool read"]);
    assert_eq!(trace.names("request").len(), 2);
    let tools = trace.of("tool");
    assert_ne!(tools[0].track, tools[1].track, "tool calls that run side by side have threads of their own");
    let threads: Vec<&str> = trace.threads.range((2, 0)..).map(|(_, name)| name.as_str()).collect();
    assert_eq!(threads, ["loop", "beside 1"]);
    let of_b: Vec<_> = trace.of("plugin").into_iter().filter(|call| call.args["callId"] == "b").collect();
    let names: Vec<_> = of_b.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["faulty tools/guard", "files tools/provider", "faulty tools/execute"]);
    let turn = trace.of("turn")[0];
    assert_eq!(turn.args["reason"]["type"], "completed");
}

#[test]
fn a_timeline_that_was_cut_off_is_whole_but_for_its_end() {
    let (sandbox, _) = run(&[]);
    let whole = text(&sandbox.workspace);
    let lines: Vec<&str> = whole.lines().collect();
    for end in [1, lines.len() / 2, lines.len() - 1] {
        Trace::read(&lines[..end].join("\n"), true);
    }
}

#[test]
fn with_v_a_table_has_each_plugin() {
    let (_sandbox, outcome) = run(&["-v"]);
    let table: Vec<&str> = outcome.stderr.lines().skip_while(|line| !line.starts_with("plugin  ")).collect();
    let first_words: Vec<&str> = table.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(first_words, ["plugin", "faulty", "files"], "{}", outcome.stderr);
    assert!(table[0].starts_with("plugin  calls  failed  wall"), "{}", table[0]);
}

#[test]
fn a_full_disk_is_said_once() {
    if !Path::new("/dev/full").exists() {
        // Written past the test harness, which keeps what a good test prints.
        let _ = writeln!(std::io::stderr(), "SKIPPED: `a_full_disk_is_said_once`: this machine has no `/dev/full`");
        return;
    }
    let (_sandbox, outcome) = run(&["--receipts", "/dev/full"]);
    assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    let said = outcome.stderr.lines().filter(|line| line.contains("/dev/full")).collect::<Vec<_>>();
    assert_eq!(
        said,
        ["error: `/dev/full` could not be written and is not complete: No space left on device (os error 28)"]
    );
}

#[test]
#[should_panic(expected = "crosses")]
fn the_reader_notices_what_does_not_nest() {
    let event =
        |ts: u32| format!(r#"{{"name":"x","cat":"plugin","ph":"X","ts":{ts},"dur":10,"pid":1,"tid":0,"args":{{}}}}"#);
    let thread = r#"{"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"loop"}}"#;
    Trace::read(&format!("[{thread},{},{}]", event(0), event(5)), false);
}
