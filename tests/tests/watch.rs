//! `--watch`: files of plugins that change while a run lives. A test waits for what is said or logged, never for time to pass.
//!
//! A version of a guest is its file with a custom section more: it does the same and has another hash.
//!
//! `DSH_TESTS_SWAPS=200` sets how often a plugin is swapped in one process.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use dsh_tests::host::{self, Run};
use dsh_tests::live::{Ended, Live};
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Swaps in one process, unless a variable says otherwise.
const SWAPS: usize = 12;

/// Folders, and the run that is made in them.
struct Stage {
    sandbox: Sandbox,
    args: Vec<String>,
}

impl Stage {
    /// A run with `--watch` and the plugin `p`, whose file is `p.wasm`; `script` is what the model says.
    fn new(p: &[u8], script: &str) -> Self {
        let sandbox = Sandbox::new().expect("a folder");
        fs::write(sandbox.case.join("script.jsonl"), script).expect("written");
        let model = sandbox.expand("script:{case}/script.jsonl");
        let args = ["--watch", "--no-save", "--output", "jsonl", "--input", "jsonl", "--model", &model];
        let stage = Self { sandbox, args: args.map(str::to_owned).to_vec() };
        stage.put("p.wasm", p);
        stage.with(&["--plugin", "p=./p.wasm"])
    }

    fn with(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| self.sandbox.expand(arg)));
        self
    }

    fn path(&self, file: &str) -> PathBuf {
        self.sandbox.workspace.join(file)
    }

    /// Puts a file in place as an editor does: written beside it, then renamed.
    fn put(&self, file: &str, bytes: &[u8]) {
        let temporary = self.path("temporary");
        fs::write(&temporary, bytes).expect("written");
        fs::rename(&temporary, self.path(file)).expect("renamed");
    }

    /// Another command in the same folder.
    fn run(&self, args: &[&str]) -> host::Outcome {
        let (args, env) = (args.iter().map(|arg| (*arg).to_owned()).collect(), self.sandbox.environment());
        host::run(&Run { args, env, dir: self.sandbox.workspace.clone(), ..Run::default() }).expect("it runs")
    }

    fn start(&self) -> Live {
        let (args, env) = (self.args.clone(), self.sandbox.environment());
        Live::start(&Run { args, env, dir: self.sandbox.workspace.clone(), ..Run::default() })
    }
}

/// A built guest.
fn guest(name: &str) -> Vec<u8> {
    let path = dsh_tests::target_dir().join(format!("test-guests/{name}.wasm"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; build it with `cargo xtask guests`", path.display()))
}

/// A guest with another hash.
fn version(name: &str, label: &str) -> Vec<u8> {
    let mut bytes = guest(name);
    let section = [&[u8::try_from(label.len()).expect("short")], label.as_bytes()].concat();
    bytes.extend([0, u8::try_from(section.len()).expect("short")]);
    bytes.extend(section);
    bytes
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As messages show it.
fn short(bytes: &[u8]) -> String {
    format!("{}…", &hash(bytes)[..12])
}

fn texts(count: usize) -> String {
    "{\"text\":\"ok\"}\n".repeat(count)
}

/// One turn, from the message to its end.
fn turn(live: &mut Live, message: &str) {
    live.send(&json!({ "send": message }).to_string());
    live.event("turn/end");
}

/// What was said, without what is said when something is compiled for the first time.
fn said(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter(|line| !line.starts_with("note: compil")).collect()
}

const READY: &str = "takes over at the next turn";

fn ready(name: &str, bytes: &[u8]) -> String {
    format!("note: plugin `{name}` changed; the new version {READY} (SHA-256 {})", short(bytes))
}

fn reloaded(name: &str, turn: u32, bytes: &[u8]) -> String {
    format!("note: reloaded plugin `{name}` at turn {turn} (SHA-256 {})", short(bytes))
}

/// The events of the run in order, as far as they are about plugins and turns.
fn outline(ended: &Ended) -> Vec<String> {
    let line = |event: &Value| match event["type"].as_str().unwrap_or_default() {
        kind @ ("turn/start" | "turn/end") => Some(format!("{kind} {}", event["data"]["turn"])),
        "plugin/reloaded" => Some(format!("plugin/reloaded {}", event["data"]["plugin"].as_str().unwrap_or("?"))),
        "tool/result" => Some(format!("tool/result {}", event["data"]["content"][0]["text"].as_str().unwrap_or("?"))),
        _ => None,
    };
    ended.events.iter().filter_map(line).collect()
}

#[test]
fn a_changed_plugin_serves_the_next_turn_and_keeps_its_state() {
    let (old, new) = (guest("counter"), version("counter", "two"));
    let stage = Stage::new(&old, &texts(2));
    let mut live = stage.start();
    turn(&mut live, "one");
    stage.put("p.wasm", &new);
    live.said(READY);
    turn(&mut live, "two");
    let ended = live.end();
    assert_eq!(
        ended.all("plugin/reloaded"),
        [&json!({"turn": 2, "plugin": "p", "sha256": hash(&new), "previous": hash(&old)})]
    );
    assert_eq!(outline(&ended), ["turn/start 1", "turn/end 1", "plugin/reloaded p", "turn/start 2", "turn/end 2"]);
    let systems: Vec<_> = ended.all("request/sent").iter().map(|sent| sent["system"].clone()).collect();
    assert_eq!(systems, ["requests before this one: 0", "requests before this one: 1"]);
    assert_eq!(said(&ended), [ready("p", &new), reloaded("p", 2, &new)]);
    assert_eq!(ended.exit, 0);
}

#[test]
fn a_new_version_may_have_other_tools_and_other_seams() {
    let call = r#"{"toolCalls":[{"name":"say","arguments":{"text":"hello"}}]}"#;
    let stage = Stage::new(&guest("counter"), &format!("{{\"text\":\"ok\"}}\n{call}\n{}", texts(1)));
    let mut live = stage.start();
    turn(&mut live, "one");
    stage.put("p.wasm", &guest("toolbox"));
    live.said(READY);
    turn(&mut live, "two");
    let ended = live.end();
    let sent = ended.all("request/sent");
    assert_eq!((&sent[0]["tools"], &sent[0]["system"]), (&json!([]), &json!("requests before this one: 0")));
    assert_eq!(sent[1]["tools"].as_array().map(Vec::len), Some(9));
    assert_eq!(sent[1]["system"], "", "its section is gone");
    assert_eq!(sent[2].get("tools"), None, "they are logged when they change");
    assert_eq!(
        outline(&ended),
        ["turn/start 1", "turn/end 1", "plugin/reloaded p", "turn/start 2", "tool/result hello", "turn/end 2"]
    );
    assert_eq!(ended.exit, 0);
}

/// A file that cannot take over, put in place of a good one: what is said, and that the old version goes on.
fn refused(stage: &Stage, put: impl FnOnce(), expect: &[String]) {
    let mut live = stage.start();
    turn(&mut live, "one");
    put();
    live.said("the version loaded before goes on");
    turn(&mut live, "two");
    let ended = live.end();
    assert_eq!(errors(said(&ended).into_iter()), expect);
    assert_eq!(outline(&ended), ["turn/start 1", "turn/end 1", "turn/start 2", "turn/end 2"]);
    let systems: Vec<_> = ended.all("request/sent").iter().map(|sent| sent["system"].clone()).collect();
    assert_eq!(systems, ["requests before this one: 0", "requests before this one: 1"]);
    assert_eq!(ended.exit, 0);
}

/// Without what a plugin itself says on its way down.
fn errors<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    lines.filter(|line| !line.starts_with("warning: plugin ") && !line.starts_with("note: compil")).collect()
}

/// The lines that are said of a version that cannot be loaded.
fn complaint(why: &str, hint: &str) -> Vec<String> {
    let mut lines =
        vec![format!("error: plugin `p` changed but cannot be loaded: {why}; the version loaded before goes on")];
    lines.extend((!hint.is_empty()).then(|| format!("hint: {hint}")));
    lines
}

#[test]
fn what_is_no_plugin_leaves_the_old_one_in_place() {
    let counter = guest("counter");
    for bytes in [
        b"".as_slice(),
        b"export const x = 1;\n",
        &counter[..counter.len() / 2],
        &guest("seamless"),
        &guest("wrong-version"),
        &guest("wrong-shape"),
    ] {
        let stage = Stage::new(&counter, &texts(2));
        fs::write(stage.path("bad.wasm"), bytes).expect("written");
        // The same words as those of the check, each problem a line.
        let checked = stage.run(&["plugin", "check", "./bad.wasm"]).stderr;
        assert!(checked.starts_with("error: `./bad.wasm`: "), "{checked}");
        let told = checked.replace("error: `./bad.wasm`: ", "error: plugin `p` changed but cannot be loaded: ");
        let mut expect: Vec<String> = told.lines().map(str::to_owned).collect();
        expect[0].push_str("; the version loaded before goes on");
        refused(&stage, || stage.put("p.wasm", bytes), &expect);
    }
}

#[test]
fn what_does_not_start_leaves_the_old_one_in_place() {
    let counter = guest("counter");
    let stage = Stage::new(&counter, &texts(2));
    let file = stage.path("p.wasm");
    let hint = format!("see `dsh-host plugin inspect {}` for the plugin's configuration schema", file.display());
    let why = "the plugin rejects its configuration: missing field `seam`";
    refused(&stage, || stage.put("p.wasm", &guest("faulty")), &complaint(why, &hint));
}

/// A component whose start function is `start`.
fn starting(start: &str) -> Vec<u8> {
    let observer = "dsh:session/observer@0.1.0";
    let core = format!(
        r#"(module
            (memory (export "memory") 1)
            (func (export "{observer}#kinds") (result i32) (i32.const 16))
            (func (export "{observer}#on-entries") (param i32 i32))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
            (func $start {start})
            (start $start))"#
    );
    dsh_text_guests::component(&format!("export {observer};"), &core)
}

#[test]
fn what_fails_while_it_starts_leaves_the_old_one_in_place() {
    for start in ["unreachable", "(loop (br 0))", "(drop (memory.grow (i32.const 65000))) unreachable"] {
        let stage = Stage::new(&guest("counter"), &texts(2));
        let bytes = starting(start);
        fs::write(stage.path("bad.wasm"), &bytes).expect("written");
        let loaded = stage.run(&["tool", "list", "--plugin", "p=./bad.wasm"]);
        let told = errors(loaded.stderr.lines()).join("\n");
        let (why, hint) = told.split_once("\nhint: ").unwrap_or_else(|| panic!("{start}: {told}"));
        let loading = format!("error: plugin `p` (`{}`): ", stage.path("bad.wasm").display());
        let why = why.strip_prefix(&loading).unwrap_or_else(|| panic!("{start}: {told}"));
        refused(&stage, || stage.put("p.wasm", &bytes), &complaint(why, hint));
    }
}

#[test]
fn quiet_is_quiet_but_for_what_went_wrong() {
    let stage = Stage::new(&guest("counter"), &texts(2)).with(&["-q"]);
    let why = "the file is empty; this host takes WebAssembly components";
    let hint = "build the plugin again, or fetch it again if it was downloaded";
    refused(&stage, || stage.put("p.wasm", b""), &complaint(why, hint));
}

#[test]
fn a_lock_holds_for_every_version() {
    let (old, new) = (guest("counter"), version("counter", "two"));
    let mut stage = Stage::new(&old, &texts(3));
    let locked = stage.run(&["plugin", "lock", "--plugin", "p=./p.wasm"]);
    assert_eq!(locked.exit, 0, "{}", locked.stderr);
    stage = stage.with(&["--locked"]);
    let check = format!("dsh-host plugin check {}", stage.path("p.wasm").display());
    let why = format!(
        "plugin `p` (`{}`) has changed: `dsh.lock` has SHA-256 {}, the file has {}",
        stage.path("p.wasm").display(),
        short(&old),
        short(&new)
    );
    let hint = format!(
        "put back the file that was locked, or look at this one with `{check}` and accept it with `dsh-host plugin lock --plugin p=./p.wasm`"
    );
    refused(&stage, || stage.put("p.wasm", &new), &complaint(&why, &hint));
}

#[test]
fn what_is_trusted_as_it_is_stays_as_it_is() {
    let stage = Stage::new(&guest("counter"), &texts(2));
    let mut stage = stage;
    stage.args.truncate(stage.args.len() - 2);
    stage.args.remove(0);
    fs::write(stage.path("dsh.toml"), "watch = true\n[[plugins]]\nsource = \"./p.wasm\"\n").expect("written");
    assert_eq!(stage.run(&["config", "trust"]).exit, 0);
    let why = "its `dsh.toml` is trusted with the file that was loaded before";
    let hint = "name the configuration with `--config` to take whatever its plugins become";
    refused(&stage, || stage.put("p.wasm", &version("counter", "two")), &complaint(why, hint));
    // Named, it may become what it will.
    let new = version("counter", "three");
    let stage = stage.with(&["--config", "dsh.toml"]);
    let mut live = stage.start();
    turn(&mut live, "one");
    stage.put("p.wasm", &new);
    live.said(READY);
    turn(&mut live, "two");
    assert_eq!(said(&live.end()), [ready("p", &new), reloaded("p", 2, &new)]);
}

#[test]
fn a_file_that_is_gone_leaves_the_old_one_in_place() {
    let stage = Stage::new(&guest("counter"), &texts(2));
    let path = stage.path("p.wasm");
    refused(
        &stage,
        || fs::remove_file(&path).expect("removed"),
        &complaint(&format!("`{}`: no such file or directory (os error 2)", path.display()), ""),
    );
}

#[test]
fn a_file_that_is_back_as_it_was_changes_nothing() {
    let counter = guest("counter");
    let stage = Stage::new(&counter, &texts(3));
    let mut live = stage.start();
    turn(&mut live, "one");
    // Another file with the same bytes, then another version that is taken back before the next turn.
    stage.put("p.wasm", &counter);
    stage.put("p.wasm", &version("counter", "two"));
    live.said(READY);
    stage.put("p.wasm", &counter);
    live.said("changed back");
    turn(&mut live, "two");
    let ended = live.end();
    assert_eq!(outline(&ended), ["turn/start 1", "turn/end 1", "turn/start 2", "turn/end 2"]);
    let back =
        format!("note: plugin `p` changed back; the version loaded before goes on (SHA-256 {})", short(&counter));
    assert_eq!(said(&ended), [ready("p", &version("counter", "two")), back]);
}

#[test]
fn of_two_changes_before_a_turn_the_last_counts() {
    let (old, last) = (guest("counter"), version("counter", "three"));
    let stage = Stage::new(&old, &texts(2));
    let mut live = stage.start();
    turn(&mut live, "one");
    for bytes in [&version("counter", "two"), &last] {
        stage.put("p.wasm", bytes);
        live.said(READY);
    }
    turn(&mut live, "two");
    let ended = live.end();
    assert_eq!(
        ended.all("plugin/reloaded"),
        [&json!({"turn": 2, "plugin": "p", "sha256": hash(&last), "previous": hash(&old)})]
    );
}

#[test]
fn a_turn_under_way_and_its_sub_agents_keep_what_they_began_with() {
    let hire = r#"{"toolCalls":[{"name":"hire","arguments":{"prompt":"say it"}}]}"#;
    let say = r#"{"toolCalls":[{"name":"say","arguments":{"text":"hello"}}]}"#;
    let stage = Stage::new(&guest("counter"), &format!("{hire}\n{}", texts(2)));
    fs::write(stage.sandbox.case.join("child.jsonl"), format!("{say}\n{}", texts(1))).expect("written");
    let hire = hire.replace(r#""prompt""#, &stage.sandbox.expand(r#""model":"script:{case}/child.jsonl","prompt""#));
    fs::write(stage.sandbox.case.join("script.jsonl"), format!("{hire}\n{}", texts(2))).expect("written");
    let stage = stage.with(&["--plugin", "{guests}/foreman.wasm", "--grant", "foreman=agents"]).with(&[
        "--plugin",
        "{guests}/toolbox.wasm",
        "--plugin",
        "{guests}/asker.wasm",
        "--plugin-config",
        r#"asker={"verdict":"ask","tool":"say"}"#,
    ]);
    let mut live = stage.start();
    live.send(r#"{"send":"one"}"#);
    let asked = live.event("approval/asked");
    assert_eq!(asked["agent"], "main.1");
    let new = version("counter", "two");
    stage.put("p.wasm", &new);
    live.said(READY);
    live.send(r#"{"approve":{"agent":"main.1","answer":"allow-once"}}"#);
    live.event("agent/disposed");
    turn(&mut live, "two");
    let ended = live.end();
    let of = |agent: &str, kind: &str| {
        let found = ended.events.iter().filter(|event| event["type"] == kind && event["agent"] == agent);
        found.map(|event| event["data"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("main.1", "plugin/reloaded"), Vec::<Value>::new());
    assert_eq!(of("main.1", "request/sent").len(), 2, "{}", ended.stderr);
    assert_eq!(of("main", "plugin/reloaded")[0]["turn"], 2);
    let turns: Vec<_> = of("main", "turn/end").iter().map(|end| end["turn"].clone()).collect();
    assert_eq!(turns, [1, 2]);
    assert_eq!(ended.exit, 0);
}

#[test]
fn several_plugins_and_one_file_under_two_names() {
    let (echo, counter) = (version("toolbox", "two"), version("counter", "two"));
    let stage = Stage::new(&guest("counter"), &texts(2)).with(&["--plugin", "q=./p.wasm", "--plugin", "./t.wasm"]);
    stage.put("t.wasm", &guest("toolbox"));
    let mut live = stage.start();
    turn(&mut live, "one");
    stage.put("t.wasm", &echo);
    stage.put("p.wasm", &counter);
    for _ in 0..3 {
        live.said(READY);
    }
    turn(&mut live, "two");
    let ended = live.end();
    assert_eq!(
        outline(&ended),
        [
            "turn/start 1",
            "turn/end 1",
            "plugin/reloaded p",
            "plugin/reloaded q",
            "plugin/reloaded t",
            "turn/start 2",
            "turn/end 2"
        ]
    );
    assert_eq!(ended.exit, 0);
}

#[test]
fn tools_that_clash_wait_until_there_is_room() {
    let stage = Stage::new(&guest("counter"), &texts(3)).with(&["--plugin", "q=./q.wasm"]);
    stage.put("q.wasm", &guest("toolbox"));
    let mut live = stage.start();
    turn(&mut live, "one");
    let clashing = version("toolbox", "two");
    stage.put("p.wasm", &clashing);
    live.said("the version loaded before goes on");
    turn(&mut live, "two");
    stage.put("q.wasm", &guest("counter"));
    live.said(READY);
    live.said(READY);
    turn(&mut live, "three");
    let ended = live.end();
    let clash = "the tool `say` is there twice: plugins `p` and `q` both have it";
    let mut expect = complaint(clash, "");
    expect.extend([
        ready("p", &clashing),
        ready("q", &guest("counter")),
        reloaded("p", 3, &clashing),
        reloaded("q", 3, &guest("counter")),
    ]);
    assert_eq!(said(&ended), expect);
    assert_eq!(ended.exit, 0);
}

#[test]
fn a_file_that_is_written_in_pieces_is_not_called_broken() {
    let new = version("counter", "two");
    let stage = Stage::new(&guest("counter"), &texts(2)).with(&["-v"]);
    let mut live = stage.start();
    turn(&mut live, "one");
    // Whoever writes it is slow: the half is read, and not complained about before the whole is there.
    fs::write(stage.path("p.wasm"), &new[..new.len() / 2]).expect("written");
    live.said("its file changed and cannot be loaded as it is now");
    fs::write(stage.path("p.wasm"), &new).expect("written");
    live.said(READY);
    turn(&mut live, "two");
    let ended = live.end();
    let told: Vec<_> = said(&ended).into_iter().filter(|line| !line.starts_with("info: ")).collect();
    assert_eq!(told[..2], [ready("p", &new), reloaded("p", 2, &new)]);
    assert!(!ended.stderr.contains("error: "), "{}", ended.stderr);
}

#[test]
fn behind_a_link_is_the_file_that_it_leads_to() {
    let new = version("counter", "two");
    let stage = Stage::new(&guest("counter"), &texts(2));
    fs::rename(stage.path("p.wasm"), stage.path("one.wasm")).expect("renamed");
    fs::write(stage.path("two.wasm"), &new).expect("written");
    symlink("one.wasm", stage.path("p.wasm")).expect("linked");
    let mut live = stage.start();
    turn(&mut live, "one");
    symlink("two.wasm", stage.path("link")).expect("linked");
    fs::rename(stage.path("link"), stage.path("p.wasm")).expect("renamed");
    live.said(READY);
    turn(&mut live, "two");
    let ended = live.end();
    assert_eq!(said(&ended), [ready("p", &new), reloaded("p", 2, &new)]);
}

#[test]
fn a_resumed_session_shows_which_version_served_which_turn() {
    let (old, new) = (guest("counter"), version("counter", "two"));
    let mut stage = Stage::new(&old, &texts(3));
    stage.args.retain(|arg| arg != "--no-save");
    let mut live = stage.start();
    turn(&mut live, "one");
    stage.put("p.wasm", &new);
    live.said(READY);
    turn(&mut live, "two");
    assert_eq!(live.end().exit, 0);
    let stage = stage.with(&["--continue"]);
    let mut live = stage.start();
    turn(&mut live, "three");
    let ended = live.end();
    let sent = ended.all("request/sent");
    assert_eq!((&sent[0]["system"], sent[0]["messages"].as_u64()), (&json!("requests before this one: 2"), Some(5)));
    assert_eq!(ended.exit, 0);
}

#[test]
fn without_a_plugin_nothing_is_watched() {
    let mut stage = Stage::new(&guest("counter"), &texts(1));
    stage.args.truncate(stage.args.len() - 2);
    let mut live = stage.start();
    turn(&mut live, "one");
    assert_eq!(said(&live.end()), ["note: `--watch`: no plugin is loaded, so nothing is watched"]);
}

/// What a process has: open files, threads, and resident memory in KiB.
fn holds(id: u32) -> (usize, usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/{id}/{what}")).map_or(0, Iterator::count);
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    (count("fd"), count("task"), kib.trim().trim_end_matches(" kB").parse().expect("a number"))
}

/// The same once it has so many files open, or at last: a file that is looked at is open for a moment.
fn settled(id: u32, files: usize) -> (usize, usize, usize) {
    let start = std::time::Instant::now();
    loop {
        let held = holds(id);
        if held.0 <= files || start.elapsed() > dsh_tests::host::DEADLINE {
            return held;
        }
        std::thread::yield_now();
    }
}

#[test]
fn swap_after_swap_nothing_piles_up() {
    let swaps = std::env::var("DSH_TESTS_SWAPS").map_or(SWAPS, |text| text.parse().expect("a number"));
    let stage = Stage::new(&guest("counter"), &texts(swaps + 4)).with(&["--grant", "p=fs:read:."]);
    let mut live = stage.start();
    turn(&mut live, "first");
    let swap = |live: &mut Live, n: usize| {
        stage.put("p.wasm", &version("counter", &format!("swap {n}")));
        live.said(READY);
        turn(live, "next");
    };
    (0..3).for_each(|n| swap(&mut live, n));
    let before = holds(live.id());
    (3..3 + swaps).for_each(|n| swap(&mut live, n));
    let after = settled(live.id(), before.0);
    let ended = live.end();
    assert_eq!(ended.all("plugin/reloaded").len(), swaps + 3, "{}", ended.stderr);
    assert_eq!(after.0, before.0, "open files");
    assert!(after.1 <= before.1 + 2, "threads: {before:?} {after:?}");
    assert!(after.2 < before.2 + 16 * 1024 + 64 * swaps, "resident memory: {before:?} {after:?}");
    eprintln!("{swaps} swaps: {before:?} {after:?}");
    assert_eq!(ended.exit, 0);
}

#[test]
fn permissions_are_looked_at_again_when_they_change() {
    let new = version("counter", "two");
    let stage = Stage::new(&guest("counter"), &texts(2));
    let path = stage.path("p.wasm");
    let mut live = stage.start();
    turn(&mut live, "one");
    stage.put("p.wasm", b"nothing");
    live.said("the version loaded before goes on");
    fs::write(&path, &new).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
    live.said(READY);
    turn(&mut live, "two");
    assert_eq!(live.end().all("plugin/reloaded").len(), 1);
}
