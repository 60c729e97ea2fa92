//! What data cases cannot show: an output that closes, an input that stays open, two processes on one session, a disk that is full.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use dsh_testkit::transcript::{Frame, transcript};
use dsh_tests::checks::shape;
use dsh_tests::host::{self, Run};
use dsh_tests::log::{self, Log};
use dsh_tests::sandbox::Sandbox;

fn sandbox(script: &str) -> (Sandbox, String) {
    let sandbox = Sandbox::new().expect("a folder");
    std::fs::write(sandbox.case.join("script.jsonl"), script).expect("the folder is there");
    let model = sandbox.expand("script:{case}/script.jsonl");
    (sandbox, model)
}

/// The one session of a sandbox; its log is well-formed.
fn session(sandbox: &Sandbox, open_end: bool) -> Log {
    let (id, text) = log::texts_in(&sandbox.sessions()).into_iter().next().expect("there is a session");
    let log = Log::parse(&id, &text).expect("good lines");
    assert_eq!(shape::check(&log, open_end), Vec::<String>::new());
    log
}

fn reason(log: &Log) -> &serde_json::Value {
    &log.entries.iter().rfind(|entry| entry["type"] == "turn/end").expect("a turn has ended")["data"]["reason"]
}

/// The binary in the hands of the test: its input stays open, its output is read line by line.
struct Live {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<std::process::ChildStdout>,
    lines: Vec<String>,
}

impl Live {
    fn start(sandbox: &Sandbox, args: &[&str]) -> Live {
        let mut command = Command::new(host::binary());
        command
            .args(["--output", "jsonl"])
            .args(args)
            .env_clear()
            .envs(sandbox.environment())
            .current_dir(&sandbox.workspace);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Live { child, stdin, stdout, lines: Vec::new() }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("the input is open"), "{line}").expect("it reads");
    }

    /// Reads until an event of that type was printed.
    fn until(&mut self, kind: &str) {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).expect("it prints"),
                0,
                "no `{kind}` came:\n{}",
                self.lines.join("\n")
            );
            self.lines.push(line.trim_end().to_owned());
            if self.lines.last().is_some_and(|line| line.starts_with(&format!("{{\"type\":\"{kind}\""))) {
                return;
            }
        }
    }

    /// Closes the input and reads to the end.
    fn end(mut self) -> (String, Option<i32>) {
        drop(self.stdin.take());
        self.lines.extend(self.stdout.by_ref().lines().map(|line| line.expect("text")));
        let code = self.child.wait().expect("it ends").code();
        (transcript(self.lines.iter().map(String::as_str), Frame::Names), code)
    }
}

#[test]
fn an_input_that_stays_open_is_served_while_the_agent_works() {
    let (sandbox, model) =
        sandbox("{\"text\":\"first\"}\n{\"text\":\"second\",\"expect\":{\"lastUser\":\"more\",\"messages\":3}}\n");
    let mut live = Live::start(&sandbox, &["--model", &model, "--input", "jsonl"]);
    live.say("{\"send\":\"go\"}");
    live.until("turn/end");
    // Idle again.
    live.until("agent/status");
    live.say("{\"send\":\"more\"}");
    live.until("turn/end");
    let (transcript, code) = live.end();
    assert_eq!(code, Some(0), "{transcript}");
    assert_eq!(reason(&session(&sandbox, false))["type"], "completed");
    assert_eq!(transcript.matches("turn/end {").count(), 2, "{transcript}");
    assert_eq!(transcript.matches("{\"status\":\"idle\"}").count(), 2, "{transcript}");
}

#[test]
fn a_closed_output_is_dispose() {
    let (sandbox, model) = sandbox("{\"text\":\"never\",\"delayMs\":30000}\n");
    // The sixth line is the turn's start: an output that closes before it leaves no turn.
    let script = format!(
        "'{}' --output jsonl --model '{model}' go | head -n 6 >/dev/null; exit ${{PIPESTATUS[0]}}",
        host::binary().display()
    );
    let outcome = bash(&sandbox, &script);
    assert_eq!(outcome.exit, 130, "{}", outcome.stderr);
    let log = session(&sandbox, false);
    assert_eq!(*reason(&log), serde_json::json!({"type": "disposed", "reason": "output-closed"}));
}

#[test]
fn a_session_has_one_writer() {
    let (sandbox, model) = sandbox("{\"text\":\"never\",\"delayMs\":30000}\n");
    let mut live = Live::start(&sandbox, &["--model", &model, "go"]);
    live.until("request/sent");
    let id = session(&sandbox, true).id;
    let args = ["--output", "jsonl", "--model", "echo", "--resume", &id, "more"].map(str::to_owned).into();
    let second = host::run(&Run { args, env: sandbox.environment(), dir: sandbox.workspace.clone(), ..Run::default() })
        .expect("it runs");
    assert_eq!((second.exit, second.stdout.as_str()), (2, ""), "{}", second.stderr);
    assert!(second.stderr.contains(&id), "{}", second.stderr);
    live.child.kill().expect("it runs");
    live.child.wait().expect("it ends");
}

#[test]
fn a_full_disk_is_final_for_the_session() {
    let long = "x".repeat(3_000);
    let (sandbox, model) = sandbox(&format!("{{\"text\":\"{long}\"}}\n{{\"text\":\"never\"}}\n"));
    let script = format!("ulimit -f 4; exec '{}' --output jsonl --model '{model}' go", host::binary().display());
    let outcome = bash(&sandbox, &script);
    assert_eq!(outcome.exit, 74, "{}\n{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains("\"session-write-failed\""), "{}", outcome.stdout);
    let last = outcome.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("{\"type\":\"agent/disposed\""), "{last}");
    // What is in the log is whole, and the session resumes.
    let log = session(&sandbox, true);
    let args = ["--output", "jsonl", "--model", "echo", "--resume", &log.id, "more"].map(str::to_owned).into();
    let resumed =
        host::run(&Run { args, env: sandbox.environment(), dir: sandbox.workspace.clone(), ..Run::default() })
            .expect("it runs");
    assert_eq!(resumed.exit, 0, "{}", resumed.stderr);
    session(&sandbox, false);
}

/// Blocks of more than 4 MiB, whatever it is that is so large, are refused; the run goes on with the next line.
#[test]
fn a_message_of_any_kind_has_a_bound() {
    let long = "x".repeat(5 * 1024 * 1024);
    let many = vec![serde_json::json!({"type": "text", "text": "a"}); 200_000];
    let (sandbox, model) = sandbox("{\"text\":\"hello\",\"repeat\":6}\n");
    for blocks in [
        serde_json::json!([{"type": "text", "text": long}]),
        serde_json::json!([{"type": "text", "text": "a", "opaque": long}]),
        serde_json::json!([{"type": "image", "data": long}]),
        serde_json::json!([{"type": "image", "url": "u:", "mimeType": long}]),
        serde_json::json!([{"type": "new", "value": long}]),
        many.into(),
    ] {
        let stdin = format!("{}\n{{\"send\":\"go\"}}\n", serde_json::json!({"send": blocks}));
        let args = ["--output", "jsonl", "--input", "jsonl", "--no-save", "--model", &model].map(str::to_owned).into();
        let run = Run { args, env: sandbox.environment(), dir: sandbox.workspace.clone(), stdin, ..Run::default() };
        let outcome = host::run(&run).expect("it runs");
        assert!(outcome.stdout.contains("{\"type\":\"completed\"}"), "{}", outcome.stderr);
        assert_eq!(outcome.stdout.matches("\"type\":\"user/message\"").count(), 1);
        assert_eq!(outcome.exit, 2, "{}", outcome.stderr);
        let refused = outcome.stderr.starts_with("error: standard input, line 1: the message has ");
        assert!(refused && outcome.stderr.ends_with(" bytes; at most 4194304 are taken\n"), "{}", outcome.stderr);
    }
}

fn bash(sandbox: &Sandbox, script: &str) -> host::Outcome {
    let args = vec!["-c".to_owned(), script.to_owned()];
    let run = Run { args, env: sandbox.environment(), dir: sandbox.workspace.clone(), ..Run::default() };
    host::run_program(Path::new("/bin/bash"), &run).expect("it runs")
}

#[test]
fn a_second_signal_ends_the_process_at_once() {
    let script = "{\"toolCalls\":[{\"name\":\"wait\",\"arguments\":{\"ms\":30000}}]}\n";
    let (sandbox, model) = sandbox(script);
    let toolbox = sandbox.expand("{guests}/toolbox.wasm");
    let mut live = Live::start(&sandbox, &["--model", &model, "--plugin", &toolbox, "go"]);
    live.until("tool/progress");
    let pid = live.child.id().to_string();
    let kill = || assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
    kill();
    live.until("agent/status");
    let start = std::time::Instant::now();
    kill();
    assert_eq!(live.child.wait().expect("it ends").code(), Some(130));
    // Far less than the grace that a running guest has.
    assert!(start.elapsed() < Duration::from_millis(900), "it took {:?}", start.elapsed());
}

#[test]
fn a_first_signal_while_the_run_ends_by_itself_lets_it_end() {
    let long = "x".repeat(200_000);
    let (sandbox, model) = sandbox(&format!("{{\"text\": \"{long}\"}}"));
    let mut live = Live::start(&sandbox, &["--model", &model, "go"]);
    live.until("agent/created");
    // Nobody reads: what is left of the output does not fit a pipe. The signal comes when the log shows the turn ended.
    let ended = || log::texts_in(&sandbox.sessions()).values().any(|text| text.contains("turn/end"));
    while !ended() {
        std::thread::yield_now();
    }
    let pid = i32::try_from(live.child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("it runs");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    live.until("agent/disposed");
    let (_, code) = live.end();
    assert_eq!(code, Some(130));
    assert_eq!(reason(&session(&sandbox, false))["type"], "completed");
}

#[test]
fn a_question_is_open_as_soon_as_it_is_read() {
    const QUESTIONS: usize = 100;
    let call = "{\"toolCalls\":[{\"name\":\"change\",\"arguments\":{}}],\"repeat\":100}\n{\"text\":\"done\"}";
    let (sandbox, model) = sandbox(call);
    let [toolbox, asker] = ["toolbox", "asker"].map(|guest| sandbox.expand(&format!("{{guests}}/{guest}.wasm")));
    let ask = "asker={\"verdict\":\"ask\",\"tool\":\"change\"}";
    let args = ["--model", &model, "--plugin", &toolbox, "--plugin", &asker, "--plugin-config", ask];
    let mut live = Live::start(&sandbox, &[&args[..], &["--input", "jsonl", "go"]].concat());
    for _ in 0..QUESTIONS {
        live.until("approval/asked");
        live.say("{\"approve\": {\"answer\": \"allow-once\"}}");
    }
    let (_, code) = live.end();
    assert_eq!(code, Some(0));
    let by_input = |entry: &&serde_json::Value| entry["data"]["by"] == "input";
    assert_eq!(session(&sandbox, false).entries.iter().filter(by_input).count(), QUESTIONS);
}
