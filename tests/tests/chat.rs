//! What goes back to a provider of Chat Completions over the turns of a session, from outside: the binary against a server of our own,
//! which keeps what it was asked.

use std::fs;

use dsh_testkit::chat_server::{ChatServer, Received, Reply, delta, finish};
use dsh_tests::host::{self, Run};
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};

/// The server, and a place to run in.
struct Bed {
    runtime: tokio::runtime::Runtime,
    server: ChatServer,
    sandbox: Sandbox,
}

impl Bed {
    fn new(replies: Vec<Reply>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let server = runtime.block_on(ChatServer::start(replies));
        let sandbox = Sandbox::new().expect("a folder");
        let url = server.base_url();
        let config = format!(
            "[providers.deep]\nkind = \"deepseek\"\nbase-url = \"{url}\"\n[providers.one]\nkind = \"compatible\"\nbase-url = \"{url}\"\n[providers.other]\nkind = \"compatible\"\nbase-url = \"{url}\"\n"
        );
        fs::write(sandbox.case.join("host.toml"), config).expect("the folder is there");
        Self { runtime, server, sandbox }
    }

    /// Runs the binary; it must end well.
    fn run(&self, args: &[&str]) {
        let usual = ["--config", "{case}/host.toml", "--no-default-plugins"];
        let run = Run {
            args: usual.iter().chain(args).map(|arg| self.sandbox.expand(arg)).collect(),
            env: self.sandbox.environment(),
            dir: self.sandbox.workspace.clone(),
            ..Run::default()
        };
        let outcome = host::run(&run).unwrap_or_else(|problem| panic!("{problem}"));
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    }

    /// The model's messages in each request.
    fn said(self) -> Vec<Vec<Value>> {
        let Bed { runtime, server, .. } = self;
        let of = |received: &Received| {
            let body = received.json();
            let messages = body["messages"].as_array().expect("a list").iter();
            messages.filter(|message| message["role"] == "assistant").cloned().collect()
        };
        let said = server.received().iter().map(of).collect();
        drop(server);
        drop(runtime);
        said
    }
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "echo", "arguments": "{\"text\":\"a\"}"}})
}

/// An answer that thinks, and then says something or calls a tool.
fn thinking(thought: &str, then: Value, reason: &str) -> Reply {
    Reply::events([delta(json!({"role": "assistant", "reasoning_content": thought})), delta(then), finish(reason)])
        .done()
}

fn calling(thought: &str, id: &str) -> Reply {
    let mut piece = call(id);
    piece["index"] = json!(0);
    thinking(thought, json!({"tool_calls": [piece]}), "tool_calls")
}

fn answering(thought: &str, text: &str) -> Reply {
    thinking(thought, json!({"content": text}), "stop")
}

#[test]
fn deepseek_thinks_on_where_it_stopped() {
    let replies =
        vec![calling("I call.", "1"), answering("It said A.", "A"), answering("Easy.", "yes"), answering("", "bye")];
    let bed = Bed::new(replies);
    let model = ["--model", "deep/deepseek-reasoner"];
    let tools = [&model[..], &["--plugin", "echo"]].concat();
    bed.run(&[&tools[..], &["shout"]].concat());
    bed.run(&[&tools[..], &["--continue", "sure?"]].concat());
    // Without tools on offer nothing is demanded.
    bed.run(&[&model[..], &["--continue", "bye"]].concat());
    let message = |content: Value, reasoning: Option<&str>, calls: Option<Value>| {
        let mut message = json!({"role": "assistant", "content": content});
        let members = message.as_object_mut().expect("an object");
        members.extend(reasoning.map(|text| ("reasoning_content".to_owned(), json!(text))));
        members.extend(calls.map(|calls| ("tool_calls".to_owned(), calls)));
        message
    };
    let called = |reasoning| message(json!(null), reasoning, Some(json!([call("1")])));
    let said = |reasoning| message(json!("A"), reasoning, None);
    assert_eq!(
        bed.said(),
        [
            vec![],
            vec![called(Some("I call."))],
            vec![called(Some("I call.")), said(Some("It said A."))],
            vec![called(None), said(None), message(json!("yes"), None, None)],
        ]
    );
}

#[test]
fn what_a_provider_wants_back_goes_to_it_alone() {
    let details = json!([{"type": "reasoning.encrypted", "data": "e", "index": 0}]);
    let signature = json!({"google": {"thought_signature": "s"}});
    let mut piece = call("1");
    piece["index"] = json!(0);
    piece["extra_content"] = signature.clone();
    let first = Reply::events([
        delta(json!({"reasoning_details": details})),
        delta(json!({"tool_calls": [piece]})),
        finish("tool_calls"),
    ])
    .done();
    let bed = Bed::new(vec![first, Reply::text("A"), Reply::text("B"), Reply::text("C")]);
    bed.run(&["--plugin", "echo", "--model", "one/m", "shout"]);
    bed.run(&["--plugin", "echo", "--model", "other/m", "--continue", "again"]);
    bed.run(&["--plugin", "echo", "--model", "one/m", "--continue", "and again"]);
    let plain = json!({"role": "assistant", "content": null, "tool_calls": [call("1")]});
    let mut signed = call("1");
    signed["extra_content"] = signature;
    let kept = json!({"role": "assistant", "content": null, "reasoning_details": details, "tool_calls": [signed]});
    let text = |text: &str| json!({"role": "assistant", "content": text});
    assert_eq!(bed.said(), [vec![], vec![kept.clone()], vec![plain, text("A")], vec![kept, text("A"), text("B")],]);
}
