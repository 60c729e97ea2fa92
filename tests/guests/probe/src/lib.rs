//! Tries capabilities and tells what came of it, as JSON: what is refused, in which words, and what is there without a grant.

use dsh_sdk::model::GenerateRequest;
use dsh_sdk::{
    Call, ContentBlock, Failure, Message, NoConfig, Outcome, Plugin, Question, Sampling, Tool, ToolProvider, approval,
    inbox, log, model, process, registry, running, runtime, state, tool,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Read;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// What to try; all of it when empty.
    #[serde(default)]
    what: Vec<String>,
    /// For `fs-read`, `fs-list` and `fs-write`.
    path: Option<String>,
    /// For `env`.
    name: Option<String>,
    /// For `socket`.
    address: Option<String>,
    /// For `process`: run by `bash -c`.
    command: Option<String>,
}

/// All that can be tried, in this order.
const ALL: [&str; 20] = [
    "llm",
    "inbox-send",
    "inbox-steer",
    "inbox-inject",
    "session-read",
    "session-append",
    "approval",
    "process",
    "fs-read",
    "fs-list",
    "fs-write",
    "env",
    "args",
    "stdin",
    "socket",
    "clock",
    "state",
    "registry",
    "limits",
    "agent",
];

struct Probe;

impl Plugin for Probe {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl ToolProvider for Probe {
    fn tools(&self) -> Vec<Tool<'_>> {
        vec![tool("probe", "Tries capabilities.").typed(|args: Args, call: &Call| {
            let wanted: Vec<&str> =
                if args.what.is_empty() { ALL.to_vec() } else { args.what.iter().map(String::as_str).collect() };
            let tried = wanted.into_iter().map(|what| (what.to_owned(), attempt(what, &args, call)));
            Ok(Outcome::text(Value::Object(tried.collect()).to_string()))
        })]
    }
}

fn attempt(what: &str, args: &Args, call: &Call) -> Value {
    let content = [ContentBlock::text("from probe")];
    match what {
        "llm" => tell(model::generate(&generate_request()).map(|response| response.message.to_text())),
        "inbox-send" => tell(inbox::send(&content)),
        "inbox-steer" => tell(inbox::steer(&content)),
        "inbox-inject" => tell(inbox::inject(&content)),
        "session-read" => tell(log::read(0, 1_000).map(|entries| entries.into_iter().map(|entry| entry.kind).collect::<Vec<_>>())),
        "session-append" => tell(log::append("probed", "{}")),
        "approval" => tell(approval::ask(&question()).map(|reply| format!("{reply:?}"))),
        "process" => tell(process::run(&command(args)).map(|exit| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            json!({"code": exit.code, "stdout": text(&exit.stdout), "stderr": text(&exit.stderr), "timedOut": exit.timed_out})
        })),
        "fs-read" | "fs-list" | "fs-write" => io(file(what, args.path.as_deref().unwrap_or("."))),
        "env" => variable(args.name.as_deref()),
        "args" => json!(std::env::args().collect::<Vec<_>>()),
        "stdin" => {
            let mut bytes = Vec::new();
            io(std::io::stdin().read_to_end(&mut bytes).map(|_| json!(bytes.len())))
        }
        "socket" => io(std::net::TcpStream::connect(args.address.as_deref().unwrap_or("127.0.0.1:9")).map(|_| json!("connected"))),
        "clock" => json!(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).is_ok_and(|time| time.as_secs() > 0)),
        "state" => tell(state::set("probe", &1).and_then(|()| state::get::<u32>("probe"))),
        "registry" => json!(registry::tools().iter().map(|tool| format!("{}/{}", tool.plugin, tool.name)).collect::<Vec<_>>()),
        "limits" => json!(running::limits().map(|limits| format!("{limits:?}"))),
        "agent" => json!({
            "agent": runtime::agent().map(|agent| agent.agent),
            "turn": call.at.turn,
            "step": call.at.step,
            "cancelled": runtime::cancelled(),
        }),
        other => json!({ "unknown": other }),
    }
}

/// A failure as its code and message, a success under `ok`.
fn tell<T: serde::Serialize>(result: Result<T, Failure>) -> Value {
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(failure) => json!({ "code": failure.code, "message": failure.message }),
    }
}

fn io(result: std::io::Result<Value>) -> Value {
    match result {
        Ok(value) => json!({ "ok": value }),
        Err(error) => json!({ "io": format!("{:?}", error.kind()), "message": error.to_string() }),
    }
}

fn file(what: &str, path: &str) -> std::io::Result<Value> {
    match what {
        "fs-read" => std::fs::read_to_string(path).map(Value::from),
        "fs-write" => std::fs::write(path, "from probe").map(|()| json!("written")),
        _ => {
            let names = std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            let mut names = names.collect::<std::io::Result<Vec<_>>>()?;
            names.sort();
            Ok(json!(names))
        }
    }
}

fn variable(name: Option<&str>) -> Value {
    match name {
        Some(name) => json!(std::env::var(name).ok()),
        None => json!(std::env::vars().map(|(name, _)| name).collect::<Vec<_>>()),
    }
}

fn generate_request() -> GenerateRequest {
    GenerateRequest {
        model: None,
        system: None,
        messages: vec![Message::user("from probe")],
        tools: Vec::new(),
        sampling: Sampling::default(),
    }
}

fn question() -> Question {
    Question { title: "May probe?".to_owned(), detail: "asked by probe".to_owned(), remember: Some("probe".to_owned()) }
}

fn command(args: &Args) -> process::Command {
    process::Command {
        program: "bash".to_owned(),
        args: vec!["-c".to_owned(), args.command.clone().unwrap_or_else(|| "true".to_owned())],
        cwd: None,
        env: Vec::new(),
        stdin: None,
        timeout_ms: None,
    }
}

dsh_sdk::export!(Probe: tools);
