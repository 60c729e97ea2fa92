//! The guests that `cargo xtask guests` builds, called through the seams: capabilities, files, tools, observers.

mod support;

use std::sync::Arc;

use dsh_seam::event::{Entry, Event, StepMark};
use dsh_seam::message::{ToolCall, result_text};
use dsh_seam::plugin::Attached;
use dsh_seam::tools::{Access, NetworkPolicy, Outcome, PathGrant, Profile, Verdict};
use dsh_seam::{AgentId, PluginError, SessionId, StepRef};
use dsh_wasm::{Compiler, Engine, EngineOptions, Grants, Limits, LoadError, PluginSpec};
use serde_json::{Value, json};
use support::*;
use tokio_util::sync::CancellationToken;

fn guest(name: &str) -> Vec<u8> {
    let path = target().join("test-guests").join(format!("{name}.wasm"));
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; build the guests first: `cargo xtask guests`", path.display()))
}

fn shipped(name: &str) -> Vec<u8> {
    let path = target().join("plugins").join(format!("{name}.wasm"));
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; build the plugins first: `cargo xtask guests`", path.display()))
}

fn grants(list: &[&str]) -> Grants {
    Grants::new(list.iter().map(|grant| grant.parse().expect("a grant")))
}

async fn call_under(
    attached: &Attached,
    profile: Profile,
    tool: &str,
    arguments: Value,
) -> Result<Outcome, PluginError> {
    let call = ToolCall { id: "call-1".into(), name: tool.into(), arguments: arguments.to_string(), opaque: None };
    attached
        .provider
        .as_ref()
        .expect("it has tools")
        .call(&tool_context(profile, &CancellationToken::new()), call)
        .await
}

async fn call(attached: &Attached, tool: &str, arguments: Value) -> Result<Outcome, PluginError> {
    call_under(attached, Profile::unrestricted(), tool, arguments).await
}

/// What the probe says to one question.
async fn probe(attached: &Attached, profile: Profile, arguments: Value) -> Value {
    let what = arguments["what"][0].as_str().expect("one question").to_owned();
    let outcome = call_under(attached, profile, "probe", arguments).await.expect("no failure");
    let answer: Value = serde_json::from_str(&result_text(&outcome.content)).expect("JSON");
    answer[what].clone()
}

fn workspace(files: &[(&str, &str)]) -> (tempfile::TempDir, Engine) {
    let home = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the workspace")).expect("to make it");
        std::fs::write(path, text).expect("to write");
    }
    let dir = cap_std::fs::Dir::open_ambient_dir(home.path(), cap_std::ambient_authority()).expect("the workspace");
    let cache_dir = Some(target().join("test-cache"));
    let engine =
        Engine::new(EngineOptions { workspace: Some(dir), cache_dir, ..EngineOptions::new(Compiler::InProcess) })
            .expect("an engine");
    (home, engine)
}

#[tokio::test]
async fn shipped_plugins_load_and_describe_themselves() {
    let (_home, engine) = workspace(&[]);
    for plugin in ["compaction", "echo", "files", "permission", "plan-mode", "retry", "sandbox", "shell"] {
        let description =
            engine.describe(shipped(plugin), name(plugin)).await.unwrap_or_else(|error| panic!("{plugin}: {error}"));
        assert!(!description.inspection.seams.is_empty(), "{plugin}");
    }
    let description = engine.describe(shipped("echo"), name("echo")).await.expect("it loads");
    let tools: Vec<_> = description.tools.expect("it has tools").iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(tools, ["echo"]);
}

#[tokio::test]
async fn guests_that_do_not_fit_are_refused() {
    let (_home, engine) = workspace(&[]);
    let check = async |guest_name: &str, expect: &str| {
        let error = engine.load(guest(guest_name), spec("p")).await.expect_err("it does not fit");
        assert!(matches!(error, LoadError::Refused(_)), "{error:?}");
        assert!(error.to_string().contains(expect), "{error}");
    };
    check("seamless", "exports none of this host's seams").await;
    check("wrong-version", "and this host takes `dsh:tools/guard@0.1.0`").await;
    check("wrong-shape", "in another shape: function `check`").await;
}

#[tokio::test]
async fn what_was_not_granted_answers_with_the_option_to_type() {
    let (_home, engine) = workspace(&[]);
    let (attached, agent) = attach(&engine, &guest("probe"), spec("probe")).await;
    for (what, capability) in [
        ("llm", "llm"),
        ("inbox-send", "inbox"),
        ("session-read", "session"),
        ("session-append", "session"),
        ("approval", "approval"),
        ("process", "process"),
    ] {
        let answer = probe(&attached, Profile::unrestricted(), json!({"what": [what]})).await;
        let message = format!(
            "plugin `probe` was not granted `{capability}`; the operator can allow it with `--grant probe={capability}`"
        );
        assert_eq!(answer, json!({"code": "not-granted", "message": message}), "{what}");
    }
    assert_eq!(agent.refused.lock().expect("not poisoned")[0], "llm --grant probe=llm");
}

#[tokio::test]
async fn what_was_granted_works() {
    let (_home, engine) = workspace(&[("docs/a.md", "hello")]);
    let spec = PluginSpec {
        grants: grants(&["llm", "session", "inbox", "approval", "process", "fs:read:docs", "fs:write:out", "env:TERM"]),
        env: vec![("TERM".into(), "dumb".into())],
        ..spec("probe")
    };
    let (attached, agent) = attach(&engine, &guest("probe"), spec).await;
    let ask = async |arguments: Value| probe(&attached, Profile::unrestricted(), arguments).await;
    assert_eq!(ask(json!({"what": ["llm"]})).await["code"], "not-available");
    assert_eq!(ask(json!({"what": ["session-append"]})).await, json!({"ok": 0}));
    assert_eq!(agent.appended.lock().expect("not poisoned")[0].0, "probed");
    assert_eq!(ask(json!({"what": ["approval"]})).await, json!({"ok": "Reply::AllowOnce"}));
    let process = ask(json!({"what": ["process"], "command": "true"})).await;
    assert_eq!(process["ok"]["stdout"], "bash -c true [\"TERM\"]");
    assert_eq!(ask(json!({"what": ["fs-read"], "path": "docs/a.md"})).await, json!({"ok": "hello"}));
    assert_eq!(ask(json!({"what": ["fs-write"], "path": "out/b"})).await, json!({"ok": "written"}));
    assert_eq!(ask(json!({"what": ["fs-write"], "path": "docs/b"})).await["io"], "PermissionDenied");
    assert_eq!(
        agent.refused.lock().expect("not poisoned").last().expect("one"),
        "fs:write:docs --grant probe=fs:write:docs"
    );
    assert_eq!(ask(json!({"what": ["env"], "name": "TERM"})).await, json!("dumb"));
    assert_eq!(ask(json!({"what": ["env"]})).await, json!(["TERM"]));
    assert_eq!(ask(json!({"what": ["stdin"]})).await, json!({"ok": 0}));
    assert_eq!(ask(json!({"what": ["state"]})).await, json!({"ok": 1}));
    assert_eq!(
        agent.state.lock().expect("not poisoned").get("probe").map(|value| value.to_string()).as_deref(),
        Some("1")
    );
    assert_ne!(ask(json!({"what": ["socket"]})).await.get("io"), None, "sockets refuse");
}

#[cfg(unix)]
#[tokio::test]
async fn a_granted_directory_cannot_be_left() {
    let (home, engine) = workspace(&[("docs/a.md", "hello"), ("secret", "s")]);
    std::os::unix::fs::symlink("../secret", home.path().join("docs/link")).expect("a link");
    std::os::unix::fs::symlink("/", home.path().join("docs/root")).expect("a link");
    let spec = PluginSpec { grants: grants(&["fs:read:docs"]), ..spec("probe") };
    let (attached, _) = attach(&engine, &guest("probe"), spec).await;
    for path in ["docs/../secret", "docs/link", "docs/root/etc/passwd", "secret", "/etc/passwd", "../x"] {
        let answer = probe(&attached, Profile::unrestricted(), json!({"what": ["fs-read"], "path": path})).await;
        assert!(answer.get("io").is_some(), "{path}: {answer}");
    }
    let out = PluginSpec { grants: grants(&["fs:read:docs/root"]), ..support::spec("probe") };
    let error = engine.load(guest("probe"), out).await.expect_err("it leads out");
    assert!(error.to_string().starts_with("the grant `fs:read:docs/root` cannot be given"), "{error}");
    let missing = PluginSpec { grants: grants(&["fs:read:nowhere"]), ..support::spec("probe") };
    let error = engine.load(guest("probe"), missing).await.expect_err("it is not there");
    assert_eq!(error.to_string(), "the grant `fs:read:nowhere` cannot be given: there is no such directory");
}

#[tokio::test]
async fn the_longest_granted_prefix_decides() {
    let (_home, engine) = workspace(&[("docs/a.md", "hello"), ("src/x", "x")]);
    let spec = PluginSpec { grants: grants(&["fs:write:.", "fs:read:docs"]), ..spec("probe") };
    let (attached, _) = attach(&engine, &guest("probe"), spec).await;
    let write =
        async |path: &str| probe(&attached, Profile::unrestricted(), json!({"what": ["fs-write"], "path": path})).await;
    assert_eq!(write("src/x").await, json!({"ok": "written"}));
    assert_eq!(write("docs/a.md").await["io"], "PermissionDenied");
    assert_eq!(write("./docs/a.md").await["io"], "PermissionDenied");
    assert_eq!(write("src/../docs/a.md").await["io"], "PermissionDenied");
}

#[tokio::test]
async fn a_profile_takes_away_parts_of_a_grant() {
    let (_home, engine) =
        workspace(&[("docs/a.md", "hello"), ("docs/keep/b", "b"), ("docs/hidden/c", "c"), ("src/x", "x")]);
    let spec = PluginSpec {
        grants: grants(&["fs:write:.", "env:TERM"]),
        env: vec![("TERM".into(), "dumb".into())],
        ..spec("probe")
    };
    let (attached, _) = attach(&engine, &guest("probe"), spec).await;
    let path = |path: &str, access| PathGrant { path: path.into(), access };
    let profile = Profile {
        paths: vec![path("docs", Access::Write), path("src", Access::Read)],
        denied: vec![path("docs/keep", Access::Write), path("docs/hidden", Access::Read)],
        network: NetworkPolicy::Closed,
        env: vec![],
        ..Profile::unrestricted()
    };
    let ask = async |what: &str, path: &str| {
        let answer = probe(&attached, profile.clone(), json!({"what": [what], "path": path})).await;
        answer.get("io").cloned().unwrap_or_else(|| answer["ok"].clone())
    };
    assert_eq!(ask("fs-write", "docs/a.md").await, "written");
    assert_eq!(ask("fs-read", "docs/keep/b").await, "b");
    assert_eq!(ask("fs-write", "docs/keep/b").await, "PermissionDenied");
    assert_eq!(ask("fs-read", "docs/hidden/c").await, "PermissionDenied");
    assert_eq!(ask("fs-write", "docs/../docs/hidden/c").await, "PermissionDenied");
    assert_eq!(ask("fs-read", "src/x").await, "x");
    assert_eq!(ask("fs-write", "src/x").await, "PermissionDenied");
    assert_eq!(ask("fs-write", "new").await, "PermissionDenied");
    assert_eq!(probe(&attached, profile.clone(), json!({"what": ["env"]})).await, json!([]));
    assert_eq!(
        probe(&attached, Profile::unrestricted(), json!({"what": ["fs-write"], "path": "src/x"})).await,
        json!({"ok": "written"})
    );
}

#[tokio::test]
async fn failures_of_tools_are_told_apart() {
    let (_home, engine) = workspace(&[]);
    let faulty = async |fault: &str| {
        // Short only where the wall clock is to run out: on a busy machine 100 ms of computing take any time.
        let tool_wall_ms = if fault == "sleep" { 300 } else { Limits::default().tool_wall_ms };
        let limits = Limits { tool_cpu_ms: 100, tool_wall_ms, ..Limits::default() };
        let spec = PluginSpec { config: json!({"seam": "call-tool", "fault": fault}), limits, ..spec("faulty") };
        let (attached, _) = attach(&engine, &guest("faulty"), spec).await;
        match call(&attached, "faulty", json!({})).await {
            Ok(outcome) => format!("{} {}", outcome.code.unwrap_or_default(), result_text(&outcome.content)),
            Err(error) => format!("{:?} {}", error.kind, error.message),
        }
    };
    let trap = faulty("trap").await;
    assert!(trap.starts_with("Trap it panicked or aborted; its last lines: ") && trap.contains("panicked"), "{trap}");
    assert_eq!(faulty("loop").await, "Limit it computed for longer than the limit `tool-cpu-ms` of 100 ms");
    let sleep = faulty("sleep").await;
    assert!(sleep.starts_with("Limit it took longer than the limit `tool-wall-ms` of 300 ms ("), "{sleep}");
    let memory = faulty("memory").await;
    assert!(memory.starts_with("Limit memory limit 64 MiB (`memory-mib`): it asked for "), "{memory}");
    assert_eq!(faulty("output").await, "Limit it handed more data to the host than the limit `output-mib` of 16 MiB");
    assert!(faulty("exit").await.starts_with("Trap it exited with code "));
    assert!(faulty("fail").await.starts_with("tool-failed "));
    assert!(faulty("bad-code").await.starts_with("tool-failed "));
    assert!(faulty("foreign-code").await.starts_with("tool-failed "));
    let bad = faulty("bad-value").await;
    assert!(bad.starts_with("Error it returned an ill-formed value: `outcome.content[0]` is not valid JSON"), "{bad}");
    assert!(faulty("noisy-stderr").await.starts_with(" "), "a noisy guest goes on");
    let stack = faulty("stack").await;
    assert!(stack.starts_with("Trap "), "{stack}");
}

#[tokio::test]
async fn a_plugin_that_describes_itself_wrongly_does_not_load() {
    let (_home, engine) = workspace(&[]);
    let check = async |config: Value, expect: &str| {
        let error =
            engine.load(guest("faulty"), PluginSpec { config, ..spec("faulty") }).await.expect_err("it does not load");
        assert!(error.to_string().contains(expect), "{error}");
    };
    check(json!({"seam": "list-tools", "fault": "bad-value"}), "`tools[0].parameters` is not valid JSON").await;
    check(json!({"seam": "list-tools", "fault": "twice"}), "two tools named `faulty`").await;
    check(
        json!({"seam": "list-tools", "fault": "trap"}),
        "plugin `faulty` failed in `tools/provider`: it panicked or aborted",
    )
    .await;
    check(json!({"seam": "configure", "fault": "fail"}), "the plugin rejects its configuration").await;
    check(json!({"seam": 3}), "the plugin rejects its configuration").await;
}

#[tokio::test]
async fn an_aborted_tool_is_stopped_after_its_grace() {
    let (_home, engine) = workspace(&[]);
    let spec = PluginSpec { config: json!({"seam": "call-tool", "fault": "sleep"}), ..spec("faulty") };
    let (attached, _) = attach(&engine, &guest("faulty"), spec).await;
    let cancel = CancellationToken::new();
    let context = tool_context(Profile::unrestricted(), &cancel);
    let running = attached
        .provider
        .as_ref()
        .expect("it has tools")
        .call(&context, ToolCall { id: "1".into(), name: "faulty".into(), arguments: "{}".into(), opaque: None });
    let abort = async {
        while engine.census().calls == 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(running, abort);
    assert_eq!(outcome.expect("no failure").code.as_deref(), Some("aborted"));
}

#[tokio::test]
async fn guards_judge() {
    let (_home, engine) = workspace(&[]);
    let (attached, _) = attach(
        &engine,
        &guest("asker"),
        PluginSpec { config: json!({"verdict": "deny", "text": "no"}), ..spec("asker") },
    )
    .await;
    let call = ToolCall { id: "1".into(), name: "x".into(), arguments: "{}".into(), opaque: None };
    let info = dsh_seam::tools::ToolInfo { name: "x".into(), plugin: name("other"), annotations: Default::default() };
    let verdict = attached
        .guard
        .as_ref()
        .expect("it guards")
        .check(StepRef { turn: 1, step: 1 }, &call, &info, &CancellationToken::new())
        .await;
    assert!(matches!(verdict, Ok(Verdict::Deny(reason)) if reason == "no"));
}

fn entry(seq: u64) -> Arc<Entry> {
    let event = Event::StepStart(StepMark { turn: 1, step: u32::try_from(seq).expect("small") });
    Arc::new(Entry {
        seq,
        time_ms: seq,
        session: SessionId::new("s1").expect("an id"),
        agent: AgentId::new("main").expect("an id"),
        event,
    })
}

#[tokio::test]
async fn observers_act_and_are_contained() {
    let (_home, engine) = workspace(&[]);
    let config = json!({"kinds": ["step/*"], "rules": [{"kind": "step/start", "do": "append", "text": "seen"}], "flush": "append"});
    let spec = PluginSpec { config, grants: grants(&["session"]), ..spec("watcher") };
    let (attached, agent) = attach(&engine, &guest("watcher"), spec).await;
    let observer = attached.observer.as_ref().expect("it observes");
    // Kinds are asked once, at load.
    assert!(!observer.kinds().is_empty() || observer.kinds().is_empty());
    observer.on_entries(&[entry(1)], 0).await.expect("no failure");
    attached.flush.as_ref().expect("it flushes").flush().await.expect("no failure");
    let appended = agent.appended.lock().expect("not poisoned").clone();
    assert_eq!(
        appended.iter().map(|(_, _, depth)| *depth).collect::<Vec<_>>(),
        [1, 0],
        "an append from inside a notification is one deeper"
    );
    let config = json!({"rules": [{"kind": "step/start", "do": "trap", "times": 1}]});
    let (attached, _) = attach(&engine, &guest("watcher"), PluginSpec { config, ..support::spec("watcher") }).await;
    let error =
        attached.observer.as_ref().expect("it observes").on_entries(&[entry(1)], 0).await.expect_err("it traps");
    assert!(error.message.starts_with("it panicked or aborted"), "{error}");
}
