//! Logs that were damaged, places that cannot be written, files that change under the hands of a run: a clear error or a repair, and
//! never a loss without a word.

use std::fs;
use std::path::{Path, PathBuf};

use dsh_tests::aftermath::Left;
use dsh_tests::conversation::{Act, Acted, Conversation, Stage, Turn, send};
use dsh_tests::{faults, log};

/// A conversation of one turn, of one message, with what the model answers.
fn conversation(script: &str) -> Conversation {
    let turn =
        Turn { prompt: "go".to_owned(), script: script.to_owned(), input: String::new(), exit: 0, matters: false };
    Conversation { about: String::new(), args: Vec::new(), crash: false, turns: vec![turn], files: Default::default() }
}

fn resume(stage: &Stage<'_>, id: &str) -> Acted {
    let args = ["--resume", id].map(str::to_owned).into();
    stage.act(&Act { args, input: vec![send("more", None)], taken: 1, ..Act::default() }).expect("it runs")
}

/// Every file of a folder, by name.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = fs::read_dir(dir)
        .expect("the folder is there")
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap_or_default()))
        .collect();
    found.sort();
    found
}

/// Damages the log of a whole conversation and resumes it; returns the stage, the session's id, what was there, and what came of it.
fn damaged<'a>(
    conversation: &'a Conversation,
    damage: impl Fn(&str, Vec<u8>) -> Vec<u8>,
) -> (Stage<'a>, String, Acted) {
    let stage = Stage::new(conversation).expect("a folder");
    stage.act_apart().expect("it runs");
    let (id, text) = stage.log().expect("one log").expect("a log");
    fs::write(path(&stage, &id), damage(&id, text.into_bytes())).expect("it can be written");
    let acted = resume(&stage, &id);
    (stage, id, acted)
}

fn path(stage: &Stage<'_>, id: &str) -> PathBuf {
    stage.sandbox.sessions().join(format!("{id}.jsonl"))
}

/// The `n`-th line, from 1, replaced.
fn line(bytes: &[u8], n: usize, change: impl Fn(&str) -> String) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).expect("a log is text");
    let lines = (1..).zip(text.split_inclusive('\n'));
    lines.map(|(at, line)| if at == n { change(line) } else { line.to_owned() }).collect::<String>().into_bytes()
}

#[test]
fn a_line_that_is_not_whole_is_set_aside() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let check = |what: &str, damage: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let before = std::cell::RefCell::new(Vec::new());
        let (stage, id, acted) = damaged(&conversation, |_, bytes| {
            *before.borrow_mut() = damage(bytes);
            before.borrow().clone()
        });
        let before = String::from_utf8(before.into_inner()).expect("text");
        assert_eq!(acted.outcome.exit, 0, "{what}: {}", acted.outcome.stderr);
        assert!(acted.outcome.stderr.contains("was not whole"), "{what}: {}", acted.outcome.stderr);
        let (whole, torn) = before.split_at(before.rfind('\n').map_or(0, |end| end + 1));
        let aside = fs::read_to_string(path(&stage, &id).with_extension("torn")).unwrap_or_default();
        assert_eq!(aside, format!("{torn}\n"), "{what}");
        let (_, after) = stage.log().expect("one log").expect("a log");
        if !whole.is_empty() {
            let left = Left::parse(&id, whole).expect("good lines");
            left.gone_on(&after, &acted).unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        assert!(after.ends_with('\n') && after.starts_with("{\"type\":\"session/header\""), "{what}: {after}");
    };
    check("cut in the last line", &|bytes| bytes[..bytes.len() - 20].to_vec());
    check("all but the newline", &|bytes| bytes[..bytes.len() - 1].to_vec());
    check("cut in the header", &|bytes| bytes[..40].to_vec());
    check("NUL bytes, as after a power failure", &|bytes| [bytes, vec![0; 3000]].concat());
    check("NUL bytes in place of the last line", &|bytes| {
        let end = bytes[..bytes.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("two lines") + 1;
        let length = bytes.len();
        [bytes[..end].to_vec(), vec![0; length - end]].concat()
    });
    check("one byte", &|bytes| [bytes, b"x".to_vec()].concat());
    check("a megabyte without a newline", &|bytes| [bytes, vec![b'y'; 1 << 20]].concat());
    // Longer than a line may be.
    check("33 MiB without a newline", &|bytes| [bytes, vec![b'y'; 33 << 20]].concat());
    check("33 MiB of a header", &|bytes| [bytes[..40].to_vec(), vec![b'y'; 33 << 20]].concat());
}

#[test]
fn any_other_bad_line_is_refused_and_nothing_changes() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let check = |what: &str, number: usize, damage: &dyn Fn(&str, Vec<u8>) -> Vec<u8>| {
        let there = std::cell::RefCell::new(Vec::new());
        let (stage, id, acted) = damaged(&conversation, |id, bytes| {
            *there.borrow_mut() = damage(id, bytes);
            there.borrow().clone()
        });
        let stderr = &acted.outcome.stderr;
        assert_eq!((acted.outcome.exit, acted.outcome.stdout.as_str()), (2, ""), "{what}: {stderr}");
        assert!(stderr.contains(&format!("`{id}`, line {number}: ")), "{what}: {stderr}");
        assert!(stderr.contains("nothing was changed"), "{what}: {stderr}");
        assert_eq!(files(&stage.sandbox.sessions()), [(format!("{id}.jsonl"), there.into_inner())], "{what}");
    };
    check("no header", 1, &|_, bytes| line(&bytes, 1, |_| String::new()));
    check("the header of another session", 1, &|id, bytes| line(&bytes, 1, |line| line.replace(id, "other")));
    check("a later version", 1, &|_, bytes| line(&bytes, 1, |line| line.replace("\"version\":1", "\"version\":2")));
    check("a byte order mark", 1, &|_, bytes| [b"\xef\xbb\xbf".to_vec(), bytes].concat());
    check("a hole", 4, &|_, bytes| line(&bytes, 4, |_| String::new()));
    check("a line twice", 5, &|_, bytes| line(&bytes, 4, |line| line.repeat(2)));
    check("an empty line", 3, &|_, bytes| line(&bytes, 3, |line| format!("\n{line}")));
    check("garbage", 3, &|_, bytes| line(&bytes, 3, |line| line.replace(':', ";")));
    check("NUL bytes in the middle", 3, &|_, bytes| line(&bytes, 3, |line| "\0".repeat(line.len() - 1) + "\n"));
    check("bytes that are no text", 3, &|_, bytes| {
        let mut bytes = bytes;
        let at = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).expect("two lines").0;
        bytes[at + 30] = 0xff;
        bytes
    });
    check("NUL bytes and then a newline", 13, &|_, bytes| [bytes, vec![0; 30], b"\n".to_vec()].concat());
    check("a line of 33 MiB", 4, &|_, bytes| {
        line(&bytes, 4, |line| line.replace("\"turn\":", &format!("\"x\":\"{}\",\"turn\":", "x".repeat(33 << 20))))
    });
}

#[test]
fn what_looks_odd_and_is_whole_goes_on() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let check = |what: &str, damage: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let (stage, id, acted) = damaged(&conversation, |_, bytes| damage(bytes));
        assert_eq!((acted.outcome.exit, acted.outcome.stderr.as_str()), (0, ""), "{what}");
        assert_eq!(files(&stage.sandbox.sessions()).len(), 1, "{what}");
        let (_, after) = stage.log().expect("one log").expect("a log");
        let log = log::Log::parse(&id, &after).expect("good lines");
        assert_eq!(dsh_tests::checks::shape::check(&log, false), Vec::<String>::new(), "{what}");
    };
    check("nothing", &|_| Vec::new());
    check("line ends of another system", &|bytes| {
        String::from_utf8(bytes).expect("text").replace('\n', "\r\n").into_bytes()
    });
    check("a clock that was set back", &|bytes| {
        // The last entry is of the year 2100.
        let count = bytes.iter().filter(|byte| **byte == b'\n').count();
        line(&bytes, count, |line| {
            let (before, rest) = line.split_once("\"time\":").expect("a time");
            format!("{before}\"time\":4102444800000{}", rest.trim_start_matches(|c: char| c.is_ascii_digit()))
        })
    });
}

#[test]
fn a_torn_line_that_cannot_be_set_aside_stays_and_the_session_was_not_written() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let check = |what: &str, before: &dyn Fn(&Path), env: &[(String, String)]| {
        let stage = Stage::new(&conversation).expect("a folder");
        stage.act_apart().expect("it runs");
        let (id, text) = stage.log().expect("one log").expect("a log");
        let torn = text + "{\"type\":\"turn/st";
        fs::write(path(&stage, &id), &torn).expect("it can be written");
        before(&path(&stage, &id).with_extension("torn"));
        let mut env = env.to_vec();
        if !env.is_empty() {
            env.extend(faults::counted(&stage.sandbox.data, &stage.sandbox.root().join("calls")));
        }
        let args = ["--resume", &id].map(str::to_owned).into();
        let act = Act { args, input: vec![send("more", None)], taken: 1, env, ..Act::default() };
        let acted = stage.act(&act).expect("it runs");
        let stderr = &acted.outcome.stderr;
        assert_eq!((acted.outcome.exit, acted.outcome.stdout.as_str()), (74, ""), "{what}: {stderr}");
        assert!(stderr.contains("its last line is not whole and could not be moved to"), "{what}: {stderr}");
        assert_eq!(fs::read_to_string(path(&stage, &id)).expect("it is there"), torn, "{what}");
        let aside = fs::read_to_string(path(&stage, &id).with_extension("torn")).unwrap_or_default();
        assert!(["", "{\"type\":\"turn/st\n"].contains(&aside.as_str()), "{what}: {aside}");
    };
    check("a folder has its name", &|aside| fs::create_dir(aside).expect("made"), &[]);
    for error in ["EIO", "EROFS"] {
        // It is made, written, made durable, its folder too, and then the log is cut.
        for at in 1..=5 {
            check(&format!("{error} at call {at}"), &|_| (), &faults::at(error, at));
        }
    }
    check("half of it is written", &|_| (), &faults::at("full", 2));
}

#[test]
fn without_a_message_a_session_stays_as_it_is() {
    use dsh_tests::host::{self, Run};
    let conversation = conversation("{\"text\":\"hello\"}");
    let check = |what: &str, damage: &dyn Fn(&str) -> String| {
        let stage = Stage::new(&conversation).expect("a folder");
        stage.act_apart().expect("it runs");
        let (id, text) = stage.log().expect("one log").expect("a log");
        let damaged = damage(&text);
        fs::write(path(&stage, &id), &damaged).expect("it can be written");
        let seq = damaged.lines().count() - 2;
        let fork = format!("{id}@{seq}");
        for which in [["--resume", &id].as_slice(), &["--continue"], &["--fork", &id], &["--fork", &fork]] {
            for input in ["text", "jsonl"] {
                let args = [&["--model", "echo", "--output", "jsonl", "--input", input], which].concat();
                let run = Run {
                    args: args.into_iter().map(str::to_owned).collect(),
                    env: stage.sandbox.environment(),
                    dir: stage.sandbox.workspace.clone(),
                    stdin: " \n".to_owned(),
                    ..Run::default()
                };
                let outcome = host::run(&run).expect("it runs");
                assert_eq!((outcome.exit, outcome.stdout.as_str()), (2, ""), "{what}, {which:?}: {}", outcome.stderr);
                assert!(outcome.stderr.starts_with("error: there is no message"), "{what}: {}", outcome.stderr);
                let there = files(&stage.sandbox.sessions());
                assert_eq!(there, [(format!("{id}.jsonl"), damaged.clone().into_bytes())], "{what}, {which:?}");
            }
        }
    };
    let up_to = |text: &str, kind: &str| {
        let end = text.find(&format!("{{\"type\":\"{kind}\"")).expect("it is there");
        text[..end].to_owned()
    };
    check("a whole one", &str::to_owned);
    check("a torn line", &|text| format!("{text}{{\"type\":\"turn/st"));
    check("a turn that is to be ended, after another one", &|text| {
        let (header, entries) = text.split_once('\n').expect("a header");
        let count = entries.lines().count();
        let again = entries.lines().enumerate().map(|(at, line)| {
            let line = line.replace("\"turn\":1", "\"turn\":2");
            line.replace(&format!("\"seq\":{at},"), &format!("\"seq\":{},", at + count)) + "\n"
        });
        let again: String = again.collect();
        format!("{header}\n{entries}{}", up_to(&again, "step/end"))
    });
}

#[test]
fn the_folder_is_made_durable_by_whoever_goes_on() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let stage = Stage::new(&conversation).expect("a folder");
    stage.act_apart().expect("it runs");
    let (id, _) = stage.log().expect("one log").expect("a log");
    let record = stage.sandbox.root().join("calls");
    let env = faults::counted(&stage.sandbox.data, &record);
    let args = ["--resume", &id].map(str::to_owned).into();
    let act = Act { args, input: vec![send("more", None)], taken: 1, env, ..Act::default() };
    let acted = stage.act(&act).expect("it runs");
    assert_eq!(acted.outcome.exit, 0, "{}", acted.outcome.stderr);
    let synced: Vec<String> =
        faults::calls(&record).into_iter().filter(|call| call.name == "fsync").map(|call| call.file).collect();
    assert_eq!(synced, ["sessions"], "once a process");
}

#[test]
fn a_log_behind_a_link_is_written_where_it_is() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let stage = Stage::new(&conversation).expect("a folder");
    stage.act_apart().expect("it runs");
    let (id, before) = stage.log().expect("one log").expect("a log");
    let real = stage.sandbox.root().join("real");
    fs::rename(path(&stage, &id), &real).expect("renamed");
    std::os::unix::fs::symlink(&real, path(&stage, &id)).expect("linked");
    let acted = resume(&stage, &id);
    assert_eq!((acted.outcome.exit, acted.outcome.stderr.as_str()), (0, ""));
    assert!(fs::symlink_metadata(path(&stage, &id)).expect("it is there").is_symlink());
    let after = fs::read_to_string(real).expect("it is there");
    Left::parse(&id, &before).expect("good lines").gone_on(&after, &acted).expect("it went on");
}

#[test]
fn a_place_that_cannot_be_written_is_an_error() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let check = |dir: &str, exit: i32, expect: &str| {
        let stage = Stage::new(&conversation).expect("a folder");
        fs::write(stage.sandbox.workspace.join("file"), "mine").expect("written");
        let args = ["--session", dir].map(str::to_owned).into();
        let acted = stage.act(&Act { args, input: vec![send("go", None)], ..Act::default() }).expect("it runs");
        assert_eq!(acted.outcome.exit, exit, "{dir}: {}", acted.outcome.stderr);
        assert!(acted.outcome.stderr.contains(expect), "{dir}: {}", acted.outcome.stderr);
        assert!(!acted.outcome.stdout.contains("\"seq\":"), "{dir}: {}", acted.outcome.stdout);
        assert_eq!(fs::read_to_string(stage.sandbox.workspace.join("file")).expect("there"), "mine");
    };
    check("file", 2, "Not a directory");
    check("file/below", 2, "Not a directory");
    // Nobody makes files there, root neither.
    check("/proc/sessions", 74, "session-write-failed");
}

#[test]
fn a_log_that_may_not_be_read_or_written_is_an_error() {
    use std::os::unix::fs::PermissionsExt;
    let conversation = conversation("{\"text\":\"hello\"}");
    let stage = Stage::new(&conversation).expect("a folder");
    stage.act_apart().expect("it runs");
    let (id, _) = stage.log().expect("one log").expect("a log");
    // Root may do everything.
    let root = rustix::process::geteuid().is_root();
    for (mode, exit, problem) in [(0o000, 2, ": Permission denied"), (0o400, 74, "it may not be written")] {
        fs::set_permissions(path(&stage, &id), fs::Permissions::from_mode(mode)).expect("set");
        let acted = resume(&stage, &id);
        assert_eq!(acted.outcome.exit, if root { 0 } else { exit }, "{}", acted.outcome.stderr);
        assert!(root || acted.outcome.stderr.contains(problem), "{}", acted.outcome.stderr);
    }
}

/// Runs two turns; `harm` is done to the log while the second answers, by a command that the model's tool runs.
fn harmed(harm: &str, expect: &str) {
    let call = serde_json::json!({"toolCalls": [{"name": "shell", "arguments": {"command": harm}}]});
    let mut conversation = conversation(&format!("{call}\n{{\"text\":\"done\"}}"));
    conversation.args = ["--plugin", "shell", "--grant", "shell=process"].map(str::to_owned).into();
    let stage = Stage::new(&conversation).expect("a folder");
    let sessions = stage.sandbox.workspace.join("sessions");
    let args = ["--session", "sessions"].map(str::to_owned).into();
    let acted = stage.act(&Act { args, input: vec![send("go", None)], ..Act::default() }).expect("it runs");
    assert_eq!(acted.outcome.exit, 74, "{harm}: {}\n{}", acted.outcome.stdout, acted.outcome.stderr);
    assert!(acted.outcome.stderr.contains(expect), "{harm}: {}", acted.outcome.stderr);
    assert!(acted.outcome.stdout.contains("\"code\":\"flush-failed\""), "{harm}: {}", acted.outcome.stdout);
    // The turn went on, and what it did can be read from its output.
    assert!(acted.outcome.stdout.contains("{\"type\":\"completed\"}"), "{harm}: {}", acted.outcome.stdout);
    let _ = fs::remove_dir_all(sessions);
}

#[test]
fn a_log_that_somebody_takes_away_is_reported() {
    harmed("rm sessions/*.jsonl", "it was removed or renamed");
    harmed("rm -r sessions", "it was removed or renamed");
    harmed("mv sessions elsewhere", "it was removed or renamed");
    harmed("cd sessions && cp *.jsonl copy && mv copy *.jsonl", "another file took its place");
    harmed("cd sessions && head -c 100 /dev/zero >> *.jsonl && truncate -s +1M *.jsonl", "somebody else changed it");
}

#[test]
fn a_header_that_cannot_be_written_leaves_nothing_behind() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let check = |env: Vec<(String, String)>, what: &str| {
        let stage = Stage::new(&conversation).expect("a folder");
        let counted = faults::counted(&stage.sandbox.data, &stage.sandbox.root().join("calls"));
        let act = Act { input: vec![send("go", None)], env: [counted, env].concat(), ..Act::default() };
        let acted = stage.act(&act).expect("it runs");
        assert_eq!(acted.outcome.exit, 74, "{what}: {}", acted.outcome.stderr);
        assert!(acted.outcome.stderr.contains("session-write-failed"), "{what}: {}", acted.outcome.stderr);
        let left = if stage.sandbox.sessions().is_dir() { files(&stage.sandbox.sessions()) } else { Vec::new() };
        assert_eq!(left, [], "{what}");
        // Once there is space, the same works.
        let again = stage.act(&Act { input: vec![send("go", None)], ..Act::default() }).expect("it runs");
        assert_eq!(again.outcome.exit, 0, "{what}: {}", again.outcome.stderr);
    };
    for (at, call) in ["mkdir", "create", "write"].iter().enumerate() {
        check(faults::at("ENOSPC", format!("{}+", at + 1)), call);
        check(faults::at("full", at + 1), call);
    }
    check(vec![("DSH_FAULT_RENAME".to_owned(), "ENOSPC".to_owned())], "rename");
    check(faults::at("vanish", 3), "a temporary file that vanishes");
}

#[test]
fn a_file_system_that_cannot_rename_in_one_step_is_served() {
    let conversation = conversation("{\"text\":\"hello\"}");
    let stage = Stage::new(&conversation).expect("a folder");
    let mut env = faults::counted(&stage.sandbox.data, &stage.sandbox.root().join("calls"));
    env.push(("DSH_FAULT_RENAME".to_owned(), "EINVAL".to_owned()));
    let acted = stage.act(&Act { input: vec![send("go", None)], env, ..Act::default() }).expect("it runs");
    assert_eq!((acted.outcome.exit, acted.outcome.stderr.as_str()), (0, ""));
    let (id, text) = stage.log().expect("one log").expect("a log");
    assert_eq!(files(&stage.sandbox.sessions()), [(format!("{id}.jsonl"), text.into_bytes())]);
}

#[test]
fn the_lock_is_free_once_its_holder_is_killed() {
    use dsh_tests::host::{self, Run};
    let conversation = conversation("{\"text\":\"never heard\",\"delayMs\":60000}");
    let stage = Stage::new(&conversation).expect("a folder");
    let script = stage.sandbox.case.join("never.jsonl");
    fs::write(&script, "{\"text\":\"never heard\",\"delayMs\":60000}\n").expect("written");
    let model = format!("script:{}", script.display());
    let run = |args: &[&str], signal: Option<&str>| Run {
        args: args.iter().map(ToString::to_string).collect(),
        env: stage.sandbox.environment(),
        dir: stage.sandbox.workspace.clone(),
        signal: signal.map(|after| ("KILL".to_owned(), after.to_owned())),
        ..Run::default()
    };
    let holder = run(&["--output", "jsonl", "--model", &model, "go"], Some("request/sent"));
    let first = host::run(&holder).expect("it runs");
    assert_eq!(first.exit, 137, "{}", first.stderr);
    let (id, _) = stage.log().expect("one log").expect("a log");
    let second = host::run(&run(&["--model", "echo", "--resume", &id, "more"], None)).expect("it runs");
    assert_eq!((second.exit, second.stdout.as_str()), (0, "more\n"), "{}", second.stderr);
}

/// What reached the disk when: the events of a run in order, with `flush` where its log was made durable.
fn written(durability: &str) -> Vec<String> {
    let call = |id: &str, name: &str| serde_json::json!({"id": id, "name": name, "arguments": {"text": id}});
    let calls = [call("a", "say"), call("b", "say"), call("c", "change"), call("d", "echo")];
    let script = format!("{}\n{{\"finish\":\"stop\"}}", serde_json::json!({"toolCalls": calls}));
    let mut conversation = conversation(&script);
    let args = ["--plugin", "echo", "--plugin", "{guests}/toolbox.wasm", "--durability", durability];
    conversation.args = args.map(str::to_owned).into();
    let stage = Stage::new(&conversation).expect("a folder");
    let record = stage.sandbox.root().join("calls");
    let env = faults::counted(&stage.sandbox.sessions(), &record);
    let acted = stage.act(&Act { input: vec![send("go", None)], env, ..Act::default() }).expect("it runs");
    assert_eq!(acted.outcome.exit, 0, "{}", acted.outcome.stderr);
    let (id, text) = stage.log().expect("one log").expect("a log");
    let log = log::Log::parse(&id, &text).expect("good lines");
    let mut kinds = (0..log.entries.len()).map(|at| log.kind(at).to_owned());
    let what = |call: faults::Call| match call.name.as_str() {
        // The first write holds the header and the first event.
        "write" | "pwrite" => kinds.next(),
        "fdatasync" => Some("flush".to_owned()),
        _ => None,
    };
    faults::calls(&record).into_iter().filter_map(what).filter(|kind| kind != "assistant/chunk").collect()
}

#[test]
fn the_log_is_durable_at_the_end_of_a_turn_or_before_each_tool_that_may_change_something() {
    let flushed = |durability| {
        let events = written(durability);
        let tools = events.iter().skip_while(|kind| *kind != "assistant/message").skip(1);
        tools.take_while(|kind| *kind != "step/end").cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        flushed("turn"),
        "tool/call tool/call tool/result tool/result tool/call tool/result tool/call tool/result"
    );
    assert_eq!(
        flushed("tool"),
        "tool/call tool/call tool/result tool/result tool/call flush tool/result tool/call tool/result"
    );
    let end: Vec<String> = written("turn").into_iter().skip_while(|kind| kind != "turn/end").take(2).collect();
    assert_eq!(end, ["turn/end", "flush"]);
}

#[test]
fn a_fork_that_is_killed_leaves_the_original_and_no_half_copy() {
    let conversation = conversation("{\"text\":\"hello\"}");
    for fault in ["kill", "torn", "full"] {
        for at in 1..12 {
            let stage = Stage::new(&conversation).expect("a folder");
            stage.act_apart().expect("it runs");
            let (id, before) = stage.log().expect("one log").expect("a log");
            let counted = faults::counted(&stage.sandbox.data, &stage.sandbox.root().join("calls"));
            let env = [counted, faults::at(fault, at)].concat();
            let args = ["--fork", &id].map(str::to_owned).into();
            let act = Act { args, input: vec![send("more", None)], taken: 1, env, same_model: false };
            let acted = stage.act(&act).expect("it runs");
            assert_ne!(acted.outcome.exit, 0, "`{fault}` at call {at}");
            let mut logs = log::texts_in(&stage.sandbox.sessions());
            assert_eq!(logs.remove(&id), Some(before), "`{fault}` at call {at}");
            for (copy, text) in logs {
                let left = Left::parse(&copy, &text).unwrap_or_else(|error| panic!("`{fault}` at call {at}: {error}"));
                let acted = resume(&stage, &copy);
                let after = fs::read_to_string(path(&stage, &copy)).expect("it is there");
                left.gone_on(&after, &acted).unwrap_or_else(|error| panic!("`{fault}` at call {at}: {error}"));
            }
        }
    }
}

#[test]
fn what_cannot_be_printed_whole_is_an_error() {
    use dsh_tests::host::{self, Run};
    let conversation = conversation("{\"text\":\"hello\"}");
    let stage = Stage::new(&conversation).expect("a folder");
    stage.act_apart().expect("it runs");
    let (id, _) = stage.log().expect("one log").expect("a log");
    let of_session = ["show", "export", "requests"].map(|command| format!("session {command} {id}"));
    let others = ["session list", "config schema", "doctor", "completions bash"].map(str::to_owned);
    for command in of_session.into_iter().chain(others) {
        let script = format!("'{}' {command} >/dev/full", host::binary().display());
        let args = vec!["-c".to_owned(), script];
        let run =
            Run { args, env: stage.sandbox.environment(), dir: stage.sandbox.workspace.clone(), ..Run::default() };
        let outcome = host::run_program(Path::new("/bin/bash"), &run).expect("it runs");
        assert_eq!(outcome.exit, 130, "{command}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("standard output could not be written"), "{command}: {}", outcome.stderr);
    }
}

#[test]
fn requests_of_a_session_that_was_changed_are_named_and_counted() {
    use dsh_tests::host::{self, Run};
    const STEPS: usize = 150;
    let call = "{\"toolCalls\":[{\"name\":\"echo\",\"arguments\":{\"text\":\"on\"}}]}\n";
    let mut conversation = conversation(&(call.repeat(STEPS - 1) + "{\"text\":\"done\"}"));
    conversation.args = ["--plugin", "echo"].map(str::to_owned).into();
    let stage = Stage::new(&conversation).expect("a folder");
    stage.act_apart().expect("it runs");
    let (id, text) = stage.log().expect("one log").expect("a log");
    fs::write(path(&stage, &id), text.replacen("\"text\":\"go\"", "\"text\":\"no\"", 1)).expect("written");
    let requests = |filter: &str| {
        let script = format!("set -o pipefail; '{}' session requests {id} {filter}", host::binary().display());
        let args = vec!["-c".to_owned(), script];
        let run =
            Run { args, env: stage.sandbox.environment(), dir: stage.sandbox.workspace.clone(), ..Run::default() };
        let outcome = host::run_program(Path::new("/bin/bash"), &run).expect("it runs");
        assert_eq!(outcome.exit, 2, "{}", outcome.stderr);
        let names = outcome.stderr.matches("(turn 1, step ").count();
        let more = outcome.stderr.trim_end().rsplit_once(" and ").and_then(|(_, more)| more.strip_suffix(" more"));
        (outcome.stdout.lines().count(), names, more.map_or(0, |more| more.parse().expect("a number")))
    };
    assert_eq!(requests(""), (STEPS, 10, STEPS - 10));
    // Nobody reads more than one line, and no more are rebuilt than a pipe holds.
    let (lines, names, more) = requests("| head -n 1");
    assert_eq!((lines, names), (1, 10));
    assert!(more < STEPS / 2, "{more} more were rebuilt");
}
