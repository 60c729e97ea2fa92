//! Over long runs each request begins with all that the one before had, to the byte, so that a provider's prompt cache is of use; where
//! it does not, `session cache` says so. `--nocapture` prints the longest common prefix of every request.

use std::collections::BTreeMap;

use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Reply};
use dsh_tests::host::{self, Run};
use dsh_tests::sandbox::Sandbox;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// How long the file is that is read again and again.
const FILE_LINES: usize = 60;

/// What a long conversation is held with.
const PLUGINS: &[&str] = &[
    "--plugin",
    "permission",
    "--plugin-config",
    r#"permission={"default":"allow"}"#,
    "--plugin",
    "plan-mode",
    "--plugin-config",
    r#"plan-mode={"active":false}"#,
    "--plugin",
    "files",
    "--grant",
    "files=fs:read:.",
    "--plugin",
    "echo",
    "--plugin",
    "task",
    "--grant",
    "task=agents",
    "--plugin",
    "{guests}/editor.wasm",
    "--plugin-config",
    r#"editor={"retry-after-ms":1,"retries":3}"#,
];

/// The steps of the three turns of a long conversation, and of one in which something else is looked at.
const LONG: [usize; 3] = [110, 60, 60];
const SHORT: [usize; 3] = [50, 20, 20];

/// A provider and a place to work, for one test.
struct Stage {
    /// The word in `kind = "…"`.
    kind: &'static str,
    protocol: Protocol,
    runtime: tokio::runtime::Runtime,
    sandbox: Sandbox,
}

impl Stage {
    fn new(kind: &'static str) -> Self {
        // Several kinds speak Chat Completions.
        let protocol = Protocol::ALL.into_iter().find(|protocol| protocol.kind() == kind).unwrap_or(Protocol::Chat);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let sandbox = Sandbox::new().expect("folders");
        let line = "what is in this line does not matter, only that it is long\n";
        std::fs::write(sandbox.workspace.join("file.txt"), line.repeat(FILE_LINES)).expect("written");
        Self { kind, protocol, runtime, sandbox }
    }

    /// Runs the binary once against a server that gives these answers: the bodies of the requests, and the events.
    fn act(&self, replies: Vec<Reply>, stdin: &str, more: &[&str]) -> (Vec<String>, Vec<Value>) {
        let server = self.runtime.block_on(ProviderServer::start(replies));
        let config = format!("[providers.remote]\nkind = \"{}\"\nbase-url = \"{}\"\n", self.kind, server.base_url());
        std::fs::write(self.sandbox.workspace.join("host.toml"), config).expect("written");
        let common = [
            "--config",
            "host.toml",
            "--model",
            "remote/main",
            "--output",
            "jsonl",
            "--input",
            "jsonl",
            "--max-steps",
            "0",
        ];
        let args = common.iter().chain(more).map(|arg| self.sandbox.expand(arg)).collect();
        let outcome = self.host(args, stdin);
        let events = outcome.lines().map(|line| serde_json::from_str(line).expect("an event is JSON")).collect();
        (server.received().into_iter().map(|received| received.body).collect(), events)
    }

    fn host(&self, args: Vec<String>, stdin: &str) -> String {
        let (env, dir) = (self.sandbox.environment(), self.sandbox.workspace.clone());
        let outcome = host::run(&Run { args, env, dir, stdin: stdin.to_owned(), ..Run::default() }).expect("it runs");
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
        outcome.stdout
    }

    /// What `session cache` tells of the requests of a session.
    fn told(&self, session: &str) -> Vec<Value> {
        let args = ["session", "cache", session, "--output", "json"].map(str::to_owned).to_vec();
        let lines = self.host(args, "");
        let mut told: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let summary = told.pop().expect("a summary");
        assert_eq!(summary["summary"]["requests"], told.len());
        assert_eq!(summary["summary"]["breaks"], told.iter().filter(|told| told.get("broken").is_some()).count());
        told
    }

    fn answer(&self, answer: &Answer) -> Reply {
        Reply::answer(self.protocol, answer)
    }

    fn says(&self, text: &str) -> Reply {
        self.answer(&Answer::new().text(text))
    }

    /// The answers of a turn with so many steps of every sort, and how many requests of the first agent they answer.
    fn turn(&self, turn: usize, steps: usize) -> (Vec<Reply>, usize) {
        let mut replies = Vec::new();
        let mut asked = steps + 1;
        for step in 0..steps {
            let id = |n: usize| format!("call_t{turn}s{step}n{n}");
            let read = r#"{"path":"file.txt"}"#;
            let reply = match step % 10 {
                0 => self.answer(&Answer::new().text("first\nthis").call(&id(0), "echo", r#"{"text":"ä \"x\""}"#)),
                1 => self.answer(&Answer::new().call(&id(0), "read", read).call(&id(1), "list", "{}").call(
                    &id(2),
                    "read",
                    read,
                )),
                2 => self.answer(&Answer::new().reasoning("hm", Some("proof")).call(&id(0), "echo", r#"{"text":"y"}"#)),
                3 => self.answer(&Answer::new().call(&id(0), "no-such-tool", "{}").call(&id(1), "echo", "not json")),
                4 => {
                    let model = format!("remote/sub-{turn}-{step}");
                    let arguments = json!({"prompt": "a part of it", "model": model}).to_string();
                    replies.push(self.answer(&Answer::new().call(&id(0), "task", &arguments)));
                    replies.push(self.answer(&Answer::new().call("call_sub", "read", read)));
                    self.says("the part is done")
                }
                5 => {
                    asked += 1;
                    replies.push(Reply::status(503, "{}"));
                    self.answer(&Answer::new().call(&id(0), "echo", r#"{"text":"after a failure"}"#))
                }
                _ => self.answer(&Answer::new().call(&id(0), "read", read)),
            };
            replies.push(reply);
        }
        replies.push(self.says("that was it"));
        (replies, asked)
    }
}

/// A request, as far as it is compared.
struct Asked {
    /// The model, in the provider's words.
    model: String,
    /// The body up to the end of the list of messages, without its bracket, and without hints where to cache, which may move.
    head: String,
}

impl Asked {
    fn new(body: &str) -> Self {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(body).expect("the body is an object");
        let model = serde_json::from_str(members["model"].get()).expect("the model has a name");
        let list = members.get("messages").or_else(|| members.get("input")).expect("there are messages").get();
        let end = list.as_ptr() as usize - body.as_ptr() as usize + list.len() - 1;
        Self { model, head: body[..end].replace(r#","cache_control":{"type":"ephemeral"}"#, "") }
    }
}

fn common(left: &str, right: &str) -> usize {
    if right.starts_with(left) {
        return left.len();
    }
    left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count()
}

/// The places of the requests to a model that do not begin with all that the one before had.
fn broken(kind: &str, model: &str, asked: &[Asked]) -> Vec<usize> {
    let mut last: Option<&str> = None;
    let mut broken = Vec::new();
    for (at, Asked { head, .. }) in asked.iter().filter(|asked| asked.model == model).enumerate() {
        if let Some(last) = last {
            let common = common(last, head);
            println!("{kind} {model} {at}: {common} of {} bytes, of {} before", head.len(), last.len());
            if common < last.len() {
                broken.push(at);
            }
        }
        last = Some(head);
    }
    broken
}

/// The places of the requests that `session cache` tells of as broken.
fn told_broken(told: &[Value]) -> Vec<usize> {
    told.iter().enumerate().filter(|(_, told)| told.get("broken").is_some()).map(|(at, _)| at).collect()
}

fn session(events: &[Value], agent: &str) -> String {
    let event = events.iter().find(|event| event["agent"] == agent).expect("there is such an agent");
    event["session"].as_str().expect("a session").to_owned()
}

fn input(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Two turns with steering and pictures in one process, a third in another.
fn act_long(stage: &Stage, steps: [usize; 3], more: &[&str]) -> (Vec<Asked>, Vec<Value>, usize) {
    let args: Vec<&str> = PLUGINS.iter().chain(more).copied().collect();
    let (mut replies, first) = stage.turn(1, steps[0]);
    let (second_replies, second) = stage.turn(2, steps[1]);
    replies.extend(second_replies);
    let picture =
        json!([{"type": "text", "text": "and this"}, {"type": "image", "mimeType": "image/png", "data": "AAAA"}]);
    let lines = [
        json!({"send": "do it"}),
        json!({"steer": "not so fast", "after": "tool/result#9"}),
        json!({"steer": "now faster", "after": "tool/result#40"}),
        json!({"send": picture, "after": "turn/end#1"}),
        json!({"inject": "it is late", "after": "tool/result#80"}),
    ];
    let (mut bodies, mut events) = stage.act(replies, &input(&lines), &args);
    let id = session(&events, "main");
    let (replies, third) = stage.turn(3, steps[2]);
    let resume: Vec<&str> = args.iter().copied().chain(["--resume", &id]).collect();
    let (more_bodies, more_events) = stage.act(replies, &input(&[json!({"send": "once more"})]), &resume);
    bodies.extend(more_bodies);
    events.extend(more_events);
    (bodies.iter().map(|body| Asked::new(body)).collect(), events, first + second + third)
}

fn check_long(kind: &'static str) {
    let stage = Stage::new(kind);
    let (asked, events, count) = act_long(&stage, LONG, &[]);
    let of_main = asked.iter().filter(|asked| asked.model == "main").count();
    assert_eq!(of_main, count, "all was asked that was to be asked");
    assert!(count > 230, "it is long: {count}");
    assert_eq!(broken(kind, "main", &asked), [] as [usize; 0]);
    let told = stage.told(&session(&events, "main"));
    assert_eq!((told.len(), told_broken(&told)), (count, vec![]));
    let mut others: Vec<&str> = asked.iter().map(|asked| asked.model.as_str()).filter(|name| *name != "main").collect();
    others.dedup();
    assert_eq!(others.len(), 23);
    for name in others {
        assert_eq!(broken(kind, name, &asked), [] as [usize; 0]);
    }
}

fn check_compaction(kind: &'static str) {
    let stage = Stage::new(kind);
    let compaction = r#"compaction={"trigger-tokens":15000,"keep-tokens":5000}"#;
    let (asked, events, count) = act_long(&stage, SHORT, &["--plugin", "compaction", "--plugin-config", compaction]);
    let told = stage.told(&session(&events, "main"));
    assert_eq!(told.len(), count);
    let broken = broken(kind, "main", &asked);
    assert!(broken.len() > 3, "it was compacted often enough: {broken:?}");
    assert_eq!(told_broken(&told), broken, "`session cache` tells of the requests that broke on the wire");
    let compactions =
        events.iter().filter(|event| event["type"] == "compaction/applied" && event["agent"] == "main").count();
    assert_eq!(broken.len(), compactions, "nothing but a compaction breaks, and it does so once");
    for at in broken {
        let told = &told[at]["broken"];
        assert_eq!(told["by"], json!([{"type": "plugin", "plugin": "compaction"}]));
        assert_eq!((&told["at"], &told["after"]["origin"]), (&json!("messages"), &json!("summary")));
    }
}

/// However the plugins come to be loaded, the first request is the same.
fn check_order(kind: &'static str) {
    let stage = Stage::new(kind);
    let first = |_| {
        let (bodies, _) = stage.act(vec![stage.says("hello")], &input(&[json!({"send": "hello"})]), PLUGINS);
        let mut body: serde_json::Map<String, Value> = serde_json::from_str(&bodies[0]).expect("an object");
        // It is another session each time.
        body.remove("prompt_cache_key");
        Value::Object(body).to_string()
    };
    let bodies: Vec<String> = (0..5).map(first).collect();
    assert!(bodies[0].contains(r#""exit-plan""#) && bodies[0].contains(r#""grep""#), "{}", bodies[0]);
    for body in &bodies {
        assert_eq!(*body, bodies[0]);
    }
}

macro_rules! for_every_kind {
    ($($name:ident $kind:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn a_long_run_keeps_its_prefix() {
                check_long($kind);
            }

            #[test]
            fn after_a_compaction_it_holds_again() {
                check_compaction($kind);
            }

            #[test]
            fn the_first_request_is_always_the_same() {
                check_order($kind);
            }
        })*
    };
}

for_every_kind! {
    chat "compatible";
    deepseek "deepseek";
    responses "openai-responses";
    messages "anthropic";
}
