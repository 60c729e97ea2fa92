//! A process killed at any moment leaves a session that resumes: nothing is truncated, every call gets its result, the turn is closed.

use std::path::Path;
use std::time::Duration;

use dsh_tests::checks::{requests, shape};
use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::log::{self, Log};
use dsh_tests::sandbox::Sandbox;

/// Sessions, and how often each is killed before it may come to its end.
const SESSIONS: u64 = 6;
const KILLS: u64 = 6;
/// A run is killed within this time; a whole one takes longer.
const WITHIN_MS: u64 = 350;
/// The end of the killed process: 128 and SIGKILL.
const KILLED: i32 = 137;

/// Eighty steps that stream text in small pieces and call tools, some of them slow.
fn long_script() -> String {
    let text = "Something to say, in small pieces. ".repeat(4);
    let calls = r#"[{"name":"say","arguments":{"text":"a"}},{"name":"wait","arguments":{"ms":5}},{"name":"change","arguments":{"text":"b"}}]"#;
    format!("{{\"text\":\"{text}\",\"chunkSize\":3,\"toolCalls\":{calls},\"repeat\":80}}\n{{\"text\":\"done\"}}\n")
}

fn invoke(sandbox: &Sandbox, args: &[&str], kill_after: Option<Duration>) -> Outcome {
    let toolbox = sandbox.expand("{guests}/toolbox.wasm");
    let all = ["--output", "jsonl", "--plugin", &toolbox].iter().chain(args).map(ToString::to_string).collect();
    host::run(&Run {
        args: all,
        env: sandbox.environment(),
        dir: sandbox.workspace.clone(),
        kill_after,
        ..Run::default()
    })
    .expect("it runs")
}

/// Pseudo-random, the same in every run: which moments are hit still differs, since the machine's speed does.
fn moment(seed: u64) -> Duration {
    let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Duration::from_millis(mixed % WITHIN_MS)
}

/// The whole lines of the session's log, if there is one; checks that they are a good beginning.
fn kept(sandbox: &Sandbox) -> Option<(String, String)> {
    let (id, text) = log::texts_in(&sandbox.sessions()).into_iter().next()?;
    let whole = text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned();
    let log = Log::parse(&id, &whole).expect("whole lines are good lines");
    assert_eq!(shape::check(&log, true), Vec::<String>::new());
    Some((id, whole))
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("the folder is there");
}

#[test]
fn a_killed_session_always_resumes() {
    let mut open_ends = 0;
    for number in 0..SESSIONS {
        let sandbox = Sandbox::new().expect("a folder");
        write(&sandbox.case.join("long.jsonl"), &long_script());
        write(&sandbox.case.join("short.jsonl"), "{\"text\":\"all is well\"}\n");
        let long = sandbox.expand("script:{case}/long.jsonl");
        let mut before = None;
        for kill in 0..KILLS {
            let resume = before.as_ref().map(|(id, _): &(String, String)| id.clone());
            let mut args = vec!["--model", long.as_str()];
            args.extend(resume.iter().flat_map(|id| ["--resume", id.as_str()]));
            args.push("go on");
            let outcome = invoke(&sandbox, &args, Some(moment(number * KILLS + kill + 1)));
            assert_eq!(outcome.exit, KILLED, "{}", outcome.stderr);
            let now = kept(&sandbox);
            if let (Some((_, before)), Some((_, now))) = (&before, &now) {
                assert!(now.starts_with(before.as_str()), "what was in the log has changed");
            }
            open_ends +=
                u64::from(now.as_ref().is_some_and(|(id, text)| {
                    !shape::check(&Log::parse(id, text).expect("checked"), false).is_empty()
                }));
            before = now.or(before);
        }
        let Some((id, text)) = before else { continue };
        let short = sandbox.expand("script:{case}/short.jsonl");
        let outcome = invoke(&sandbox, &["--model", &short, "--resume", &id, "and now?"], None);
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
        let (_, now) = kept(&sandbox).expect("the session is there");
        assert!(now.starts_with(&text), "what was in the log has changed");
        let log = Log::parse(&id, &now).expect("a good log");
        assert_eq!(shape::check(&log, false), Vec::<String>::new());
        assert_eq!(requests::check(&log, usize::MAX, &[]), Vec::<String>::new());
        assert_eq!(log.entries.last().map(|entry| entry["data"]["reason"]["type"].clone()), Some("completed".into()));
    }
    assert!(open_ends >= SESSIONS * KILLS / 3, "only {open_ends} kills hit an open turn: this test shows nothing");
}
