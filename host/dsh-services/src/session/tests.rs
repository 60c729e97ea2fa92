//! The promises of the session log, one after the other.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use dsh_seam::SessionId;
use dsh_seam::event::Entry;
use dsh_seam::session::{Replay, SessionError, Sessions};

use super::testing::*;
use super::{FileSessions, MemorySessions, Unsaved};

async fn made(dir: &Path, name: &str, words: &[&str]) {
    let mut session = files(dir).create(new_session(Some(name))).await.unwrap();
    append(&mut session, words);
}

async fn open(dir: &Path, name: &str) -> Result<Opened, SessionError> {
    opened(&files(dir), name).await
}

async fn refused(dir: &Path, name: &str) -> String {
    open(dir, name).await.err().expect("is refused").to_string()
}

#[tokio::test]
async fn nothing_is_on_disk_before_the_first_append() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("deep/logs");
    let mut session = files(&logs).create(new_session(Some("s"))).await.unwrap();
    session.writer.flush().await.unwrap();
    assert_eq!(session.writer.read(0, 9, 999).unwrap(), []);
    assert!(!dir.path().join("deep").exists());
    append(&mut session, &["start", "end"]);
    session.writer.flush().await.unwrap();
    assert_eq!(names(&logs), ["s.jsonl"]);
    assert_eq!(fs::read_to_string(log(&logs, "s")).unwrap(), text("s", &[(0, "start"), (1, "end")]));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&log(&logs, "s")), mode(&logs)), (0o600, 0o700));
}

#[tokio::test]
async fn a_session_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), "s", &["start", "end"]).await;
    let mut session = open(dir.path(), "s").await.unwrap();
    assert_eq!(
        (words(&session.entries).as_str(), session.header.created, session.notices.len()),
        ("start end", 1_000, 0)
    );
    append(&mut session, &["more"]);
    drop(session);
    let whole = text("s", &[(0, "start"), (1, "end"), (2, "more")]);
    assert_eq!(fs::read_to_string(log(dir.path(), "s")).unwrap(), whole);
}

#[tokio::test]
async fn a_wrong_number_is_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = files(dir.path()).create(new_session(Some("s"))).await.unwrap();
    assert!(session.writer.append(&entry(&id("s"), 1, "x")).is_err());
    append(&mut session, &["start"]);
    assert!(session.writer.append(&entry(&id("s"), 0, "x")).is_err());
    assert_eq!(fs::read_to_string(log(dir.path(), "s")).unwrap(), text("s", &[(0, "start")]));
}

#[tokio::test]
async fn entries_are_read_in_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let notes: Vec<String> = (0..200).map(|number| format!("n{number}")).collect();
    let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
    made(dir.path(), "s", &notes[..150]).await;
    let mut reopened = open(dir.path(), "s").await.unwrap();
    append(&mut reopened, &notes[150..]);
    let mut kept = MemorySessions::new(Arc::new(FixedClock)).create(new_session(Some("s"))).await.unwrap();
    append(&mut kept, &notes);
    for writer in [&mut reopened.writer, &mut kept.writer] {
        let mut check = |start: u64, limit: u32, max_bytes: usize, expect: &str| {
            assert_eq!(words(&writer.read(start, limit, max_bytes).unwrap()), expect, "{start} {limit} {max_bytes}");
        };
        check(0, 2, usize::MAX, "n0 n1");
        check(63, 3, usize::MAX, "n63 n64 n65");
        check(198, 9, usize::MAX, "n198 n199");
        check(200, 9, usize::MAX, "");
        check(128, 1, usize::MAX, "n128");
        check(5, 9, 1, "n5");
        check(5, 0, usize::MAX, "");
        let line = serde_json::to_string(&entry(&id("s"), 50, "n50")).unwrap().len() + 1;
        check(50, 9, 2 * line, "n50 n51");
    }
}

#[tokio::test]
async fn there_is_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = files(dir.path()).create(new_session(Some("s"))).await.unwrap();
    let mut second = files(dir.path()).create(new_session(Some("s"))).await.unwrap();
    append(&mut first, &["start"]);
    let error = second.writer.append(&entry(&id("s"), 0, "mine")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
    assert_eq!(refused(dir.path(), "s").await, "session `s` is in use by another process");
    assert!(matches!(files(dir.path()).create(new_session(Some("s"))).await.err(), Some(SessionError::Exists(_))));
    assert_eq!(names(dir.path()), ["s.jsonl"]);
    drop(first);
    let again = open(dir.path(), "s").await.unwrap();
    assert!(matches!(open(dir.path(), "s").await.err(), Some(SessionError::Locked(_))));
    drop(again);
    open(dir.path(), "s").await.unwrap();
}

#[tokio::test]
async fn there_is_one_writer_among_processes() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), "s", &["start"]).await;
    let path = log(dir.path(), "s");
    // `flock` of the shell locks the same way; `read` holds it until its input ends.
    let mut holder = Command::new("flock");
    holder.arg(&path).args(["bash", "-c", "echo locked; read -r"]);
    let mut holder = holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(holder.stdout.take().unwrap()), &mut line).unwrap();
    assert!(matches!(open(dir.path(), "s").await.err(), Some(SessionError::Locked(_))));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    open(dir.path(), "s").await.unwrap();
}

#[tokio::test]
async fn a_torn_last_line_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let whole = text("s", &[(0, "start")]);
    for (round, torn) in ["{\"type\":\"turn/e", "{}"].into_iter().enumerate() {
        fs::write(log(dir.path(), "s"), format!("{whole}{torn}")).unwrap();
        let unsaved = opened(&Unsaved::new(files(dir.path())), "s").await.unwrap();
        assert_eq!((words(&unsaved.entries).as_str(), unsaved.notices.len()), ("start", 1));
        assert_eq!(names(dir.path()).len(), 1 + round, "nothing is changed without a writer");
        let mut session = open(dir.path(), "s").await.unwrap();
        assert_eq!((words(&session.entries).as_str(), session.notices.len()), ("start", 1));
        assert!(session.notices[0].contains("s.torn"), "{:?}", session.notices);
        append(&mut session, &["more"]);
        assert_eq!(fs::read_to_string(log(dir.path(), "s")).unwrap(), text("s", &[(0, "start"), (1, "more")]));
    }
    assert_eq!(fs::read_to_string(dir.path().join("s.torn")).unwrap(), "{\"type\":\"turn/e\n{}\n");
}

/// A log of `whole` with an end of so many NUL bytes, which take no room on the disk.
fn with_torn(path: &Path, whole: &str, bytes: u64) {
    fs::write(path, whole).unwrap();
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(whole.len() as u64 + bytes).unwrap();
}

#[tokio::test]
async fn a_torn_last_line_may_be_longer_than_any_line() {
    let dir = tempfile::tempdir().unwrap();
    let most = super::MAX_LINE_BYTES as u64;
    let whole = text("s", &[(0, "start")]);
    for torn in [most - 1, most, most + 1, most + 300_000] {
        with_torn(&log(dir.path(), "s"), &whole, torn);
        assert_eq!(files(dir.path()).list().await.unwrap()[0].entries, 1, "a list reads on before it");
        let unsaved = opened(&Unsaved::new(files(dir.path())), "s").await.unwrap();
        assert_eq!((words(&unsaved.entries).as_str(), unsaved.notices.len()), ("start", 1));
        let session = open(dir.path(), "s").await.unwrap();
        assert!(session.notices[0].contains(&format!("its {torn} bytes were moved")), "{:?}", session.notices);
        assert_eq!(fs::read_to_string(log(dir.path(), "s")).unwrap(), whole);
        let aside = fs::read(dir.path().join("s.torn")).unwrap();
        assert!(aside.len() as u64 == torn + 1 && aside.iter().position(|byte| *byte != 0) == Some(aside.len() - 1));
        fs::remove_file(dir.path().join("s.torn")).unwrap();
    }
    with_torn(&log(dir.path(), "s"), "", most + 1);
    let session = open(dir.path(), "s").await.unwrap();
    assert_eq!((session.entries.len(), session.notices.len()), (0, 1));
    assert_eq!(fs::metadata(dir.path().join("s.torn")).unwrap().len(), most + 2);
}

#[tokio::test]
async fn a_torn_line_that_cannot_be_set_aside_stays() {
    let dir = tempfile::tempdir().unwrap();
    let torn = text("s", &[(0, "start")]) + "torn";
    fs::write(log(dir.path(), "s"), &torn).unwrap();
    fs::create_dir(dir.path().join("s.torn")).unwrap();
    let error = open(dir.path(), "s").await.err().unwrap();
    assert!(matches!(&error, SessionError::NotWritten { path, .. } if path.ends_with("s.jsonl")), "{error}");
    assert!(error.to_string().contains("its last line is not whole and could not be moved to"), "{error}");
    assert_eq!(fs::read_to_string(log(dir.path(), "s")).unwrap(), torn);
}

#[tokio::test]
async fn an_empty_log_is_a_new_session() {
    let dir = tempfile::tempdir().unwrap();
    for (content, notices) in ["", "{\"type\":\"sess"].into_iter().zip([0, 1]) {
        fs::write(log(dir.path(), "s"), content).unwrap();
        let mut session = open(dir.path(), "s").await.unwrap();
        assert_eq!(
            (session.header.workspace.as_str(), session.entries.len(), session.notices.len()),
            ("/w", 0, notices)
        );
        assert!(matches!(open(dir.path(), "s").await.err(), Some(SessionError::Locked(_))));
        append(&mut session, &["start"]);
        assert!(matches!(open(dir.path(), "s").await.err(), Some(SessionError::Locked(_))), "also after the rename");
        drop(session);
        assert_eq!(words(&open(dir.path(), "s").await.unwrap().entries), "start");
    }
    fs::write(log(dir.path(), "named"), "").unwrap();
    made(dir.path(), "named", &["start"]).await;
    assert_eq!(words(&open(dir.path(), "named").await.unwrap().entries), "start");
}

#[tokio::test]
async fn damage_is_refused_with_its_line_and_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    let good = text("s", &[(0, "start"), (1, "end")]);
    let after_header = good.find('\n').unwrap() + 1;
    let check = async |content: String, expect: &str| {
        let content = format!("{content}torn");
        fs::write(log(dir.path(), "s"), &content).unwrap();
        let told = refused(dir.path(), "s").await;
        assert!(told.starts_with(&format!("session `s`, {expect}")), "{told}");
        assert!(told.contains("--salvage"), "{told}");
        assert_eq!(fs::read_to_string(log(dir.path(), "s")).unwrap(), content);
        assert_eq!(names(dir.path()), ["s.jsonl"]);
        assert!(files(dir.path()).read(&id("s"), false).await.is_err());
    };
    check(good[after_header..].to_owned(), "line 1: no header: its `type` is `turn/start`").await;
    check(format!("\n{good}"), "line 1: no header").await;
    check(format!("{good}not json\n"), "line 4: no entry").await;
    check(format!("{good}\n"), "line 4: no entry").await;
    check(good.replacen("\"seq\":1", "\"seq\":2", 1), "line 3: `seq` is 2 where 1 was expected").await;
    check(good.replacen("\"seq\":0", "\"seq\":1", 1), "line 2: `seq` is 1 where 0 was expected").await;
    check(good.replacen("\"turn\":1", "\"turn\":\"x\"", 1), "line 2: no entry").await;
    check(good.replacen("\"version\":1", "\"version\":2", 1), "line 1: its format has version 2").await;
    check(good.replacen("\"id\":\"s\"", "\"id\":\"t\"", 1), "line 1: the header is that of session `t`").await;
}

#[tokio::test]
async fn salvage_reads_on() {
    let dir = tempfile::tempdir().unwrap();
    let good = text("s", &[(0, "start"), (1, "a"), (3, "b")]);
    let check = async |content: String, expect: &str, lines: &[&str]| {
        fs::write(log(dir.path(), "s"), content).unwrap();
        let (header, entries, notices) = files(dir.path()).read(&id("s"), true).await.unwrap();
        assert_eq!((header.id.as_str(), header.agent.as_str(), words(&entries).as_str()), ("s", "main", expect));
        let begins: Vec<&str> = notices.iter().map(|notice| notice.split(':').next().unwrap()).collect();
        assert_eq!(begins, lines);
    };
    check(good.clone(), "start a b", &["line 4"]).await;
    check(good.replacen("\"seq\":1", "\"seq\":x", 1), "start b", &["line 3", "line 4"]).await;
    let headless = good[good.find('\n').unwrap() + 1..].to_owned();
    check(headless, "start a b", &["line 1", "line 3"]).await;
}

#[tokio::test]
async fn an_unknown_event_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let line = r#"{"type":"future/thing","seq":0,"time":5,"session":"s","agent":"main","data":{"z":1,"a":[2]}}"#;
    let content = format!("{}{line}\n", text("s", &[]));
    fs::write(log(dir.path(), "s"), &content).unwrap();
    let mut session = open(dir.path(), "s").await.unwrap();
    assert_eq!(serde_json::to_string(&session.entries[0]).unwrap(), line);
    append(&mut session, &["end"]);
    drop(session);
    let fork = forked(&files(dir.path()), "s", None, ("main", &[])).await.unwrap();
    assert_eq!(
        serde_json::to_string(&fork.entries[0]).unwrap(),
        line.replace("\"s\"", &format!("\"{}\"", fork.header.id))
    );
}

#[tokio::test]
async fn an_agent_may_fork_the_session_of_an_ancestor() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), "s", &["start", "end", "start"]).await;
    let lineage = [agent("main.1"), agent("main")];
    let (saved, unsaved) = (files(dir.path()), Unsaved::new(files(dir.path())));
    for sessions in [&unsaved as &dyn Sessions, &saved] {
        let mut fork = forked(sessions, "s", Some(2), ("main.1.1", &lineage)).await.unwrap();
        assert_eq!((fork.header.agent.as_str(), &*fork.header.lineage), ("main.1.1", &lineage[..]));
        assert!(fork.entries.iter().all(|entry| entry.agent == agent("main")), "who did what stays");
        append(&mut fork, &["more"]);
        let (header, new) = (fork.header.clone(), fork.header.id.clone());
        drop(fork);
        assert_eq!(opened_by(sessions, new.as_str(), "main.1.1").await.unwrap().header, header);
        assert!(opened(sessions, new.as_str()).await.is_err(), "it is the descendant's");
        assert_eq!(sessions.newest(&agent("main"), "/w").await.unwrap(), id("s"));
    }
}

#[tokio::test]
async fn a_fork_is_a_copy_with_lineage() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), "s", &["start", "end", "start", "step"]).await;
    let held = open(dir.path(), "s").await.unwrap();
    let check = async |sessions: &dyn Sessions, at: Option<u64>, expect: Result<(&str, u64), &str>| {
        let forked = forked(sessions, "s", at, ("main", &[])).await;
        let (words_expected, forked_at) = match expect {
            Ok(expect) => expect,
            Err(message) => return assert_eq!(forked.err().unwrap().to_string(), message),
        };
        let mut fork = forked.unwrap();
        assert_eq!((fork.header.parent.clone(), fork.header.forked_at), (Some(id("s")), Some(forked_at)));
        assert_eq!((fork.header.agent.as_str(), fork.header.workspace.as_str()), ("main", "/w"));
        assert_eq!(words(&fork.entries), words_expected);
        assert_eq!(fork.writer.read(0, 99, usize::MAX).unwrap(), fork.entries);
        assert!(fork.entries.iter().all(|entry| entry.session == fork.header.id && entry.time_ms == 2_000 + entry.seq));
        append(&mut fork, &["more"]);
        let (header, id) = (fork.header.clone(), fork.header.id.clone());
        drop(fork);
        let again = opened(sessions, id.as_str()).await.unwrap();
        assert_eq!((again.header, words(&again.entries)), (header, format!("{words_expected} more")));
    };
    let (saved, unsaved) = (files(dir.path()), Unsaved::new(files(dir.path())));
    for sessions in [&unsaved as &dyn Sessions, &saved] {
        check(sessions, None, Ok(("start end", 1))).await;
        check(sessions, Some(2), Ok(("start end start", 2))).await;
        check(sessions, Some(3), Ok(("start end start step", 3))).await;
        check(sessions, Some(4), Err("session `s` cannot be forked at 4: its last entry is 3")).await;
    }
    assert_eq!(names(dir.path()).len(), 4, "the three of the saved ones and the source");
    drop(held);
    made(dir.path(), "open", &["start"]).await;
    let error = forked(&saved, "open", None, ("main", &[])).await.err().unwrap().to_string();
    assert!(error.contains("it has none; name a place"), "{error}");
    let error = forked(&saved, "s", None, ("other", &[agent("main.1")])).await.err().unwrap();
    assert!(matches!(error, SessionError::OtherAgent { .. }), "{error}");
}

#[tokio::test]
async fn what_is_not_there_or_not_ours_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let none = files(&dir.path().join("none"));
    assert_eq!(none.list().await.unwrap().len(), 0);
    let error = none.newest(&agent("main"), "/w").await.unwrap_err().to_string();
    assert_eq!(error, "agent `main` has no session of this workspace to continue");
    made(dir.path(), "notes", &["start"]).await;
    assert_eq!(refused(dir.path(), "note").await, "there is no session `note`; did you mean `notes`?");
    assert_eq!(refused(dir.path(), "xyz").await, "there is no session `xyz`; see `dsh-host session list`");
    let error = opened_by(&files(dir.path()), "notes", "other").await.err().unwrap().to_string();
    assert_eq!(error, "session `notes` belongs to agent `main`, not to `other`");
    open(dir.path(), "notes").await.unwrap();
}

#[tokio::test]
async fn the_newest_is_that_of_the_last_event() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(200_000);
    made(dir.path(), "a", &["start", "end", "start-2", &long]).await;
    made(dir.path(), "b", &["start", "end", "start-2"]).await;
    fs::write(log(dir.path(), "bad"), "nonsense\n").unwrap();
    fs::write(log(dir.path(), "empty"), "").unwrap();
    let elsewhere = text("c", &[(0, "start"), (1, "1"), (2, "2"), (3, "3"), (4, "4")]).replacen("\"/w\"", "\"/v\"", 1);
    fs::write(log(dir.path(), "c"), elsewhere).unwrap();
    let (saved, unsaved) = (files(dir.path()), Unsaved::new(files(dir.path())));
    for sessions in [&saved as &dyn Sessions, &unsaved] {
        assert_eq!(sessions.newest(&agent("main"), "/w").await.unwrap(), id("a"));
        assert_eq!(sessions.newest(&agent("main"), "/v").await.unwrap(), id("c"));
        assert!(sessions.newest(&agent("other"), "/w").await.is_err());
        let list = sessions.list().await.unwrap();
        let rows: Vec<_> =
            list.iter().map(|row| (row.header.id.as_str(), row.entries, row.turns, row.last_time_ms)).collect();
        assert_eq!(rows, [("c", 5, 1, 2_004), ("a", 4, 2, 2_003), ("b", 3, 2, 2_002)]);
    }
}

#[tokio::test]
async fn without_saving_the_files_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    made(dir.path(), "s", &["start", "end"]).await;
    let before = fs::read(log(dir.path(), "s")).unwrap();
    let unsaved = Unsaved::new(files(dir.path()));
    let mut session = opened(&unsaved, "s").await.unwrap();
    append(&mut session, &["more"]);
    assert_eq!(words(&session.writer.read(1, 9, usize::MAX).unwrap()), "end more");
    assert!(matches!(opened(&unsaved, "s").await.err(), Some(SessionError::Locked(_))));
    drop(session);
    assert_eq!(words(&opened(&unsaved, "s").await.unwrap().entries), "start end more");
    assert_eq!(words(&unsaved.read(&id("s"), false).await.unwrap().1), "start end more");
    assert!(matches!(unsaved.create(new_session(Some("s"))).await.err(), Some(SessionError::Exists(_))));
    append(&mut unsaved.create(new_session(None)).await.unwrap(), &["start"]);
    assert_eq!(unsaved.list().await.unwrap().len(), 2);
    assert_eq!((names(dir.path()), fs::read(log(dir.path(), "s")).unwrap()), (vec!["s.jsonl".to_owned()], before));
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let inside = files(&dir.path().join("file/logs"));
    let error = inside.list().await.unwrap_err();
    assert!(matches!(&error, SessionError::Io { path, .. } if path.ends_with("file/logs")), "{error}");
    let error = opened(&inside, "s").await.err().unwrap();
    assert!(matches!(&error, SessionError::Io { path, .. } if path.ends_with("file/logs/s.jsonl")), "{error}");
    assert!(inside.create(new_session(Some("s"))).await.is_err());
    // `/proc` refuses new files to everybody.
    let mut session = files(Path::new("/proc")).create(new_session(Some("s"))).await.unwrap();
    let error = session.writer.append(&entry(&id("s"), 0, "start")).unwrap_err().to_string();
    assert!(error.starts_with("/proc/s.jsonl: "), "{error}");
}

/// Run by the next test in a process of its own whose files may have 2 KiB.
#[tokio::test]
#[ignore = "needs a limit on the size of files, which the next test sets"]
async fn inside_of_a_full_disk() {
    let Some(dir) = std::env::var_os("DSH_TEST_FULL_DISK") else { return };
    let sessions = FileSessions::new(dir, Arc::new(FixedClock)).with_workspace("/w");
    let long = "x".repeat(900);
    let mut session = sessions.create(new_session(Some("s"))).await.unwrap();
    append(&mut session, &["start", &long]);
    let error = session.writer.append(&entry(&id("s"), 2, &long)).unwrap_err().to_string();
    assert!(error.contains("s.jsonl: "), "{error}");
    append(&mut session, &["end"]);
    let mut other = sessions.create(new_session(Some("t"))).await.unwrap();
    assert!(other.writer.append(&entry(&id("t"), 0, &long.repeat(3))).is_err());
}

#[test]
fn a_torn_line_of_our_own_is_cut_back() {
    let dir = tempfile::tempdir().unwrap();
    let script = "ulimit -f 2; trap '' XFSZ; exec \"$0\" --exact session::tests::inside_of_a_full_disk --ignored --test-threads 1";
    let ran = Command::new("bash")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("DSH_TEST_FULL_DISK", dir.path())
        .output();
    let ran = ran.unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&ran.stderr));
    let whole = text("s", &[(0, "start"), (1, &"x".repeat(900)), (2, "end")]);
    assert_eq!(fs::read_to_string(log(dir.path(), "s")).unwrap(), whole);
    assert_eq!(names(dir.path()), ["s.jsonl"], "of the other one nothing is left");
}

#[tokio::test]
async fn a_log_that_is_no_longer_there_is_reported_by_the_flush() {
    async fn check(harm: fn(&Path), expect: &str) {
        let dir = tempfile::tempdir().unwrap();
        let mut session = files(dir.path()).create(new_session(Some("s"))).await.unwrap();
        append(&mut session, &["start"]);
        session.writer.flush().await.unwrap();
        harm(&log(dir.path(), "s"));
        append(&mut session, &["end"]);
        let error = session.writer.flush().await.unwrap_err().to_string();
        let (_, problem) = error.split_once("s.jsonl: ").unwrap_or_default();
        assert_eq!(problem, expect, "{error}");
    }
    check(|log| fs::remove_file(log).unwrap(), "while it was open, it was removed or renamed").await;
    check(|log| fs::remove_dir_all(log.parent().unwrap()).unwrap(), "while it was open, it was removed or renamed")
        .await;
    let replace = |log: &Path| {
        fs::remove_file(log).unwrap();
        fs::write(log, "").unwrap();
    };
    check(replace, "while it was open, another file took its place").await;
    let lengthen = |log: &Path| fs::OpenOptions::new().write(true).open(log).unwrap().set_len(1_000).unwrap();
    let expect = "while it was open, somebody else changed it: it has 1000 bytes where 393 were written";
    check(lengthen, expect).await;
}

#[tokio::test]
async fn a_name_of_ours_that_stayed_behind_is_no_log() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".s.jsonl.01J.tmp"), text("s", &[(0, "start")])).unwrap();
    assert_eq!(files(dir.path()).list().await.unwrap().len(), 0);
    assert!(files(dir.path()).newest(&agent("main"), "/w").await.is_err());
    made(dir.path(), "s", &["start"]).await;
    assert_eq!(files(dir.path()).list().await.unwrap().len(), 1);
}

/// Entries of which a few dozen fill what the index has one place for.
fn long_words(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}{}", "x".repeat(number * 37 % 3_000))).collect()
}

/// Every stretch of a log that is partly in a file and partly not, and of its copies, is what was written.
#[tokio::test]
async fn entries_are_found_wherever_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let all = long_words(150);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    made(dir.path(), "s", &all[..120]).await;
    let (saved, unsaved) = (files(dir.path()), Unsaved::new(files(dir.path())));
    append(&mut opened(&unsaved, "s").await.unwrap(), &all[120..]);
    append(&mut opened(&saved, "s").await.unwrap(), &all[120..]);
    let check = |mut session: Opened, count: usize| {
        assert_eq!(words(&session.entries), all[..count].join(" "));
        for start in 0..=count {
            let (limit, end) = (u32::try_from(1 + start % 40).unwrap(), (start + 1 + start % 40).min(count));
            let read = session.writer.read(start as u64, limit, usize::MAX).unwrap();
            assert_eq!(words(&read), all[start..end].join(" "), "{count} entries, from {start}");
            assert!(read.iter().all(|entry| entry.session == session.header.id));
        }
        append(&mut session, &["more"]);
        assert_eq!(words(&session.writer.read(count as u64, 9, 1).unwrap()), "more");
        session.header.id
    };
    for sessions in [&unsaved as &dyn Sessions, &saved] {
        for at in [0, 1, 20, 41, 42, 43, 80, 118, 119, 120, 121, 149] {
            let copy = forked(sessions, "s", Some(at as u64), ("main", &[])).await.unwrap();
            let id = check(copy, at + 1);
            let again = forked(sessions, id.as_str(), Some(at as u64 / 2), ("main", &[])).await.unwrap();
            check(again, at / 2 + 1);
            assert_eq!(opened(sessions, id.as_str()).await.unwrap().entries.len(), at + 2, "and one more");
        }
    }
    check(opened(&unsaved, "s").await.unwrap(), 150);
    check(opened(&saved, "s").await.unwrap(), 150);
}

#[tokio::test]
async fn a_line_that_no_event_can_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(super::MAX_LINE_BYTES + 1);
    fs::write(log(dir.path(), "s"), text("s", &[(0, "start"), (1, &long)])).unwrap();
    let told = refused(dir.path(), "s").await;
    assert!(told.starts_with("session `s`, line 3: it is longer than 33554432 bytes"), "{told}");
    fs::write(log(dir.path(), "s"), long + "\n").unwrap();
    let told = refused(dir.path(), "s").await;
    assert!(told.starts_with("session `s`, line 1: it is longer than 33554432 bytes"), "{told}");
    assert_eq!(names(dir.path()), ["s.jsonl"]);
}

#[tokio::test]
async fn a_line_that_is_too_long_is_skipped_when_salvaging() {
    let dir = tempfile::tempdir().unwrap();
    let long = "x".repeat(super::MAX_LINE_BYTES + 1);
    let good = text("s", &[(0, "start"), (1, "a"), (2, "end")]);
    let bad = good.replacen("\"a\"", &format!("\"{long}\""), 1);
    fs::write(log(dir.path(), "s"), &bad).unwrap();
    let (_, entries, notices) = files(dir.path()).read(&id("s"), true).await.unwrap();
    assert_eq!(words(&entries), "start end");
    let expect = ["line 3: it is longer than 33554432 bytes; skipped", "line 4: `seq` is 2 where 1 was expected"];
    assert_eq!(notices, expect);
    assert_eq!(files(dir.path()).list().await.unwrap()[0].entries, 3);
    let last = bad.find("{\"type\":\"turn/end\"").unwrap();
    fs::write(log(dir.path(), "s"), &bad[..last]).unwrap();
    assert_eq!(files(dir.path()).list().await.unwrap()[0].entries, 1, "what is too long is no entry");
}

/// Wants so many entries and no more.
struct Wants(Vec<Entry>, usize);

impl Replay for Wants {
    fn entry(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    fn wants_more(&self) -> bool {
        self.0.len() < self.1
    }
}

#[tokio::test]
async fn reading_ends_when_nobody_wants_more() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(log(dir.path(), "s"), text("s", &[(0, "start"), (1, "a"), (2, "end")]) + "damaged\n").unwrap();
    let wants = Arc::new(Mutex::new(Wants(Vec::new(), 2)));
    files(dir.path()).replay(&id("s"), false, wants.clone()).await.unwrap();
    assert_eq!(words(&wants.lock().unwrap().0), "start a");
    let kept = MemorySessions::new(Arc::new(FixedClock));
    append(&mut kept.create(new_session(Some("s"))).await.unwrap(), &["start", "a", "end"]);
    let wants = Arc::new(Mutex::new(Wants(Vec::new(), 2)));
    kept.replay(&id("s"), false, wants.clone()).await.unwrap();
    assert_eq!(words(&wants.lock().unwrap().0), "start a");
    let all = Arc::new(Mutex::new(Wants(Vec::new(), 0)));
    drop(kept.open(&id("s"), &agent("main"), all.clone()).await.unwrap());
    assert_eq!(words(&all.lock().unwrap().0), "start a end", "what is opened is read to its end");
}

/// There is one thread for tasks. While a long log is copied it goes on with another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_copy_does_not_hold_up_other_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let name = id("s");
    let lines: String =
        (0..100_000).map(|seq| serde_json::to_string(&long_entry(&name, seq)).unwrap() + "\n").collect();
    fs::write(log(dir.path(), "s"), text("s", &[]) + &lines).unwrap();
    let mut copy =
        files(dir.path()).fork(&name, Some(99_999), &agent("main"), &[], Arc::new(Mutex::new(()))).await.unwrap();
    let copied = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = copied.clone();
    let tasks = tokio::spawn(async move {
        let other = tokio::spawn(async move { seen.load(std::sync::atomic::Ordering::SeqCst) });
        let next = entry(&copy.header.id, 100_000, "more");
        copy.writer.append(&next).unwrap();
        copied.store(true, std::sync::atomic::Ordering::SeqCst);
        other.await.unwrap()
    });
    assert!(!tasks.await.unwrap(), "the other task waited for the copy");
}

/// Compares what it is shown with what was written, and keeps nothing.
struct Compares {
    id: SessionId,
    next: u64,
}

/// What entry `seq` of the long session is.
fn long_entry(id: &SessionId, seq: u64) -> Entry {
    match seq % 50 {
        0 => entry(id, seq, "start"),
        1 => entry(id, seq, "step"),
        49 => entry(id, seq, "end"),
        _ => entry(id, seq, if seq.is_multiple_of(3) { "\u{e4} \"note\"\n" } else { "note" }),
    }
}

impl Replay for Compares {
    fn entry(&mut self, entry: Entry) {
        assert_eq!(entry, long_entry(&self.id, self.next));
        self.next += 1;
    }
}

#[tokio::test]
async fn a_long_session_is_what_was_written() {
    const ENTRIES: u64 = 200_000;
    let dir = tempfile::tempdir().unwrap();
    let (sessions, name) = (files(dir.path()), id("s"));
    let mut session = sessions.create(new_session(Some("s"))).await.unwrap();
    for seq in 0..ENTRIES {
        session.writer.append(&long_entry(&name, seq)).unwrap();
    }
    drop(session);
    let seen = Arc::new(Mutex::new(Compares { id: name.clone(), next: 0 }));
    let mut session = sessions.open(&name, &agent("main"), seen.clone()).await.unwrap();
    assert_eq!(seen.lock().unwrap().next, ENTRIES);
    for at in (0..ENTRIES).step_by(9_973).chain([ENTRIES - 1]) {
        assert_eq!(session.writer.read(at, 1, usize::MAX).unwrap(), [long_entry(&name, at)]);
    }
    let more = long_entry(&name, ENTRIES);
    session.writer.append(&more).unwrap();
    assert_eq!(session.writer.read(ENTRIES, 9, usize::MAX).unwrap(), [more]);
    let listed = sessions.list().await.unwrap();
    assert_eq!((listed[0].entries, listed[0].last_time_ms), (ENTRIES + 1, 2_000 + ENTRIES));
    let copy = Arc::new(Mutex::new(Compares { id: name.clone(), next: 0 }));
    let error = sessions.fork(&name, Some(ENTRIES + 1), &agent("main"), &[], Arc::new(Mutex::new(()))).await.err();
    assert!(matches!(error, Some(SessionError::BadFork { .. })));
    sessions.replay(&name, false, copy.clone()).await.unwrap();
    assert_eq!(copy.lock().unwrap().next, ENTRIES + 1);
}

#[tokio::test]
async fn a_bad_line_is_found_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let lines: Vec<(u64, &str)> = (0..3_000).map(|seq| (seq, "step")).collect();
    let good = text("s", &lines);
    for at in [1, 1_500, 2_999] {
        let bad = good.replacen(&format!("\"seq\":{at},"), &format!("\"seq\":{at}x,"), 1);
        fs::write(log(dir.path(), "s"), bad).unwrap();
        let told = refused(dir.path(), "s").await;
        assert!(told.starts_with(&format!("session `s`, line {}: no entry", at + 2)), "{told}");
        let error = forked(&files(dir.path()), "s", Some(0), ("main", &[])).await.err().unwrap();
        assert!(matches!(error, SessionError::Damaged { line, .. } if line == at + 2), "also behind what is copied");
        let error = opened(&Unsaved::new(files(dir.path())), "s").await.err().unwrap();
        assert!(matches!(error, SessionError::Damaged { line, .. } if line == at + 2));
    }
}
