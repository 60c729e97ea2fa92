//! A log that is opened stands for what all its entries stand for, read one by one: whole logs, and logs that stop at any entry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dsh_seam::ids::{AgentId, SessionId};
use dsh_seam::services::SystemClock;
use dsh_seam::session::{NewSession, SessionWriter, Sessions};
use dsh_seam::view::{MessageList, hex};
use dsh_services::session::{FileSessions, MemorySessions};
use serde_json::{Value, json};

use super::*;
use crate::repair::{Cut, owed};

/// All that a state is, in an order that does not depend on hashing.
fn portrait(state: &LogState) -> String {
    let view = MessageList::new(state.history.clone());
    let owed = json!(owed(state, Cut::Process)).to_string();
    let kept: BTreeMap<_, _> = state.plugin_state.iter().collect();
    let remembered: BTreeSet<_> = state.remembered.iter().collect();
    let ids: BTreeSet<_> = state.call_ids.iter().collect();
    let mut out = String::new();
    for part in [
        format!("next {} at {}, turn {}", state.next_seq, state.last_time_ms, state.last_turn),
        format!("view {} {} {}", json!(view), view.tokens(), hex(&view.chain())),
        format!("pairs {:?}, open {:?}", state.history.check_pairs(), state.open),
        format!("unanswered {:?}", state.unanswered),
        format!("usage {:?} {:?}, frame {:?}", state.session_usage, state.last_usage, state.frame),
        format!("sections {:?}", state.sections),
        format!("kept {kept:?}, remembered {remembered:?}, asked {:?}, ids {ids:?}", state.asked),
        format!("last by {:?}, by others {}", state.last_author, state.by_others),
        format!("owed {owed}"),
    ] {
        writeln!(out, "{part}").expect("a text takes all");
    }
    out
}

const HEADER: &str = r#"{"type":"session/header","version":1,"id":"s","agent":"main","workspace":"/w","model":null,"host":"h","created":1}"#;

fn ids() -> (SessionId, AgentId) {
    (SessionId::new("s").expect("valid"), AgentId::new("main").expect("valid"))
}

/// The state of a log that is opened, and where more goes.
async fn opened(sessions: &dyn Sessions) -> (LogState, Box<dyn SessionWriter>) {
    let state: Arc<Mutex<LogState>> = Arc::default();
    let (id, agent) = ids();
    let session = sessions.open(&id, &agent, state.clone()).await.expect("opens");
    let state = std::mem::take(&mut *state.lock().expect("unpoisoned"));
    (state, session.writer)
}

async fn opened_from_a_file(lines: &[String]) -> LogState {
    let folder = tempfile::tempdir().expect("a folder");
    let text = [HEADER].into_iter().chain(lines.iter().map(String::as_str)).flat_map(|line| [line, "\n"]);
    std::fs::write(folder.path().join("s.jsonl"), text.collect::<String>()).expect("a file");
    opened(&FileSessions::new(folder.path(), Arc::new(SystemClock))).await.0
}

/// Opens the log after each of its entries, and compares what it stands for and what the repair makes of it.
async fn check_every_prefix(what: &str, lines: &[String]) {
    let sessions = MemorySessions::new(Arc::new(SystemClock));
    let (id, agent) = ids();
    let new =
        NewSession { id: Some(id), agent, workspace: "/w".into(), model: None, lineage: Vec::new(), parent: None };
    drop(sessions.create(new).await.expect("is made"));
    let mut one_by_one = LogState::default();
    for (cut, line) in (0..).zip(lines.iter().map(Some).chain([None])) {
        let (read, mut writer) = opened(&sessions).await;
        assert_eq!(portrait(&read), portrait(&one_by_one), "{what}, cut after {cut}");
        check_repair(read, &format!("{what}, cut after {cut}"));
        if let Some(line) = line {
            let entry = Entry::parse(line).expect(line);
            writer.append(&entry).expect("is kept");
            one_by_one.apply(&entry.event);
            one_by_one.last_time_ms = entry.time_ms;
        }
    }
    assert_eq!(portrait(&opened_from_a_file(lines).await), portrait(&one_by_one), "{what}, from a file");
}

/// What is owed is paid once, and leaves nothing open.
fn check_repair(mut state: LogState, what: &str) {
    for event in owed(&state, Cut::Process) {
        state.apply(&event);
    }
    assert_eq!(json!(owed(&state, Cut::Process)), json!([]), "{what}");
    assert!(state.open.is_none(), "{what}");
}

fn line(seq: usize, kind: &str, data: &Value) -> String {
    format!(r#"{{"type":"{kind}","seq":{seq},"time":{},"session":"s","agent":"main","data":{data}}}"#, 1_000 + seq / 3)
}

/// The logs in the expectations of the data cases: the durable events of each run.
fn logs_of_cases() -> Vec<(PathBuf, Vec<String>)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases")];
    let mut logs = Vec::new();
    while let Some(folder) = folders.pop() {
        for found in std::fs::read_dir(&folder).expect("a folder").map(|found| found.expect("a name").path()) {
            if found.is_dir() {
                folders.push(found);
            } else if found.ends_with("expect.txt") {
                let text = std::fs::read_to_string(&found).expect("a text");
                logs.extend(text.split("$ dsh-host").map(|run| (found.clone(), log_of_run(run))));
            }
        }
    }
    logs
}

fn log_of_run(run: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for shown in run.lines() {
        let Some((kind, data)) = shown.split_once(" {") else { continue };
        let Ok(data) = serde_json::from_str(&format!("{{{data}")) else { continue };
        let line = line(lines.len(), kind, &data);
        if !kind.contains(' ') && Entry::parse(&line).is_ok() {
            lines.push(line);
        }
    }
    lines
}

#[tokio::test]
async fn the_logs_of_the_cases_are_opened_as_they_are_read() {
    let logs = logs_of_cases();
    let entries: usize = logs.iter().map(|(_, lines)| lines.len()).sum();
    assert!(entries > 2_000, "the cases have logs: {entries} entries were found");
    for (path, lines) in logs {
        check_every_prefix(&path.display().to_string(), &lines).await;
    }
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.roll(of.len() as u64)).expect("a place in a short list")]
    }
}

/// Any entry at all, likely or not: what a log may hold is not what a run would write.
fn any_entry(dice: &mut Dice) -> (&'static str, Value) {
    let (turn, step, id) = (dice.roll(3), dice.roll(3), format!("call-{}", dice.roll(4)));
    let text = *dice.pick(&["a", "", "\u{e4}\n\"x\""]);
    let text = json!({ "type": "text", "text": text });
    let call = json!({ "type": "tool-call", "id": id, "name": "t", "arguments": "{}" });
    let usage = json!({ "input": dice.roll(9), "output": 1 });
    let chunks = [
        json!({ "type": "block-start", "index": 0, "blockType": "text" }),
        json!({ "type": "text-delta", "index": dice.roll(2), "text": "piece" }),
        json!({ "type": "reasoning-delta", "index": 1, "text": "hm" }),
        json!({ "type": "block-end", "index": 0, "block": text }),
        json!({ "type": "usage", "usage": usage }),
        json!({ "type": "finish", "reason": "stop" }),
    ];
    let system = dice.pick(&[Value::Null, json!("be kind")]).clone();
    let asked = json!([{ "plugin": "p", "title": "t", "detail": "d", "remember": "k" }]);
    match dice.roll(24) {
        0 => ("turn/start", json!({ "turn": turn, "trigger": { "type": "message", "source": { "type": "user" } } })),
        1 => ("turn/end", json!({ "turn": turn, "reason": { "type": "completed" } })),
        2 | 3 => ("step/start", json!({ "turn": turn, "step": step })),
        4 => ("step/end", json!({ "turn": turn, "step": step })),
        5 => ("user/message", json!({ "content": [text], "source": { "type": "user" } })),
        6 => ("context/message", json!({ "content": [text], "source": { "type": "plugin", "plugin": "p" } })),
        7 => (
            "steering/message",
            json!({ "turn": turn, "content": [text], "source": { "type": "agent", "agent": "a" } }),
        ),
        8 => (
            "request/sent",
            json!({ "turn": turn, "step": step, "attempt": 1, "model": "m", "sampling": {}, "system": system, "edits": [], "messages": 1, "hash": "00" }),
        ),
        9 => ("request/failed", json!({ "turn": turn, "step": step, "attempt": 1, "code": "server", "message": "no" })),
        10..=13 => {
            let chunk = dice.pick(&chunks).clone();
            ("assistant/chunk", json!({ "turn": turn, "step": step, "chunk": chunk }))
        }
        14 | 15 => ("assistant/message", json!({ "turn": turn, "step": step, "content": [text, call] })),
        16 => ("usage", json!({ "turn": turn, "step": step, "usage": usage })),
        17 => ("tool/call", json!({ "turn": turn, "step": step, "callId": id, "name": "t", "arguments": "{}" })),
        18 | 19 => (
            "tool/result",
            json!({ "turn": turn, "step": step, "callId": id, "content": [{ "type": "text", "text": "ok" }], "isError": false }),
        ),
        20 => ("approval/asked", json!({ "turn": turn, "step": step, "id": "approval-1", "questions": asked })),
        21 => (
            "approval/decided",
            json!({ "turn": turn, "step": step, "id": "approval-1", "answer": "allow-always", "by": "person" }),
        ),
        22 => ("plugin/p/state", json!({ "key": "k", "value": dice.roll(5) })),
        _ => (
            "compaction/applied",
            json!({ "turn": turn, "step": step, "start": dice.roll(3), "count": dice.roll(4), "replacement": [{ "role": "user", "content": [text] }], "plugin": "p" }),
        ),
    }
}

#[tokio::test]
async fn any_log_is_opened_as_it_is_read() {
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let lines: Vec<String> = (0..80)
            .map(|seq| {
                let (kind, data) = any_entry(&mut dice);
                line(seq, kind, &data)
            })
            .collect();
        check_every_prefix(&format!("seed {seed}"), &lines).await;
    }
}
