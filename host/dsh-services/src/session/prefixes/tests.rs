//! Logs, and what is told of their requests.

use dsh_seam::event::Entry;
use serde_json::{Value, json};

use super::{Prefixes, RequestPrefix, Summary};

/// A log under way.
#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    time: u64,
    step: u32,
}

impl Log {
    fn add(&mut self, kind: &str, data: Value) -> &mut Self {
        let seq = self.entries.len();
        let line = json!({"type": kind, "seq": seq, "time": self.time, "session": "s", "agent": "main", "data": data});
        self.entries.push(Entry::parse(&line.to_string()).expect("an entry"));
        self
    }

    fn user(&mut self, text: &str) -> &mut Self {
        self.add("user/message", json!({"content": [text_block(text)], "source": {"type": "user"}}))
    }

    fn assistant(&mut self, text: &str) -> &mut Self {
        self.add("assistant/message", json!({"turn": 1, "step": self.step, "content": [text_block(text)]}))
    }

    fn compact(&mut self, plugin: &str, start: u32, count: u32, text: &str) -> &mut Self {
        let replacement = json!([message(text)]);
        self.add("compaction/applied", json!({"turn": 1, "step": self.step, "start": start, "count": count, "replacement": replacement, "plugin": plugin}))
    }

    fn changed(&mut self, plugin: &str, what: &[&str]) -> &mut Self {
        self.add(
            "waterfall/changed",
            json!({"turn": 1, "step": self.step, "waterfall": "agent/request", "plugin": plugin, "what": what}),
        )
    }

    fn step(&mut self) -> &mut Self {
        self.step += 1;
        self.add("step/start", json!({"turn": 1, "step": self.step}))
    }

    /// A request; what `more` says beside or instead of the usual.
    fn sent(&mut self, more: Value) -> &mut Self {
        let mut sent = json!({"turn": 1, "step": self.step, "attempt": 1, "model": "m", "sampling": {}, "edits": [], "messages": 0, "hash": ""});
        sent.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        self.add("request/sent", sent)
    }

    fn reports(&self) -> Vec<RequestPrefix> {
        let mut prefixes = Prefixes::default();
        let mut reports: Vec<RequestPrefix> = self.entries.iter().filter_map(|entry| prefixes.apply(entry)).collect();
        reports.extend(prefixes.end());
        assert_eq!(prefixes.end(), None, "it is told once");
        reports
    }

    /// Of each request its bytes, how many of them stood in the one before, and what is told of a break.
    fn check(&self, expect: &[(u64, Option<u64>, Value)]) {
        let told = |report: &RequestPrefix| {
            (report.size.bytes, report.common.map(|common| common.bytes), json!(report.broken))
        };
        assert_eq!(self.reports().iter().map(told).collect::<Vec<_>>(), expect);
    }
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn message(text: &str) -> Value {
    json!({"role": "user", "content": [text_block(text)]})
}

fn edit(plugin: &str, start: u32, count: u32, texts: &[&str]) -> Value {
    let replacement: Vec<Value> = texts.iter().map(|text| message(text)).collect();
    json!({"plugin": plugin, "start": start, "count": count, "replacement": replacement})
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "", "parameters": {}})
}

fn section(plugin: &str, name: &str, hash: &str) -> Value {
    json!({"plugin": plugin, "name": name, "hash": hash})
}

fn by_plugin(plugin: &str) -> Value {
    json!([{"type": "plugin", "plugin": plugin}])
}

fn no_break() -> Value {
    Value::Null
}

#[test]
fn a_run_that_only_grows_keeps_its_prefix() {
    let mut log = Log::default();
    log.user("12345").step().sent(json!({"system": "123", "tools": [tool("a")]}));
    log.assistant("1234567").step().sent(json!({})).sent(json!({"attempt": 2}));
    // A tool has its name, its description and its schema: `a` and `{}`.
    log.check(&[(11, None, no_break()), (18, Some(11), no_break()), (18, Some(18), no_break())]);
}

#[test]
fn another_model_breaks_all() {
    let mut log = Log::default();
    log.user("12345").step().sent(json!({"system": "123"}));
    log.step().changed("router", &["model"]).sent(json!({"model": "n"}));
    log.step().changed("router", &["model"]).sent(json!({"model": "n"}));
    log.step().sent(json!({}));
    log.step().sent(json!({"model": "k"}));
    let model =
        |before: &str, after: &str, by: Value| json!({"at": "model", "before": before, "after": after, "by": by});
    log.check(&[
        (8, None, no_break()),
        (8, Some(0), model("m", "n", by_plugin("router"))),
        (8, Some(8), no_break()),
        (8, Some(0), model("n", "m", by_plugin("router"))),
        (8, Some(0), model("m", "k", json!([{"type": "configuration"}]))),
    ]);
}

#[test]
fn a_script_gone_on_with_is_the_same_model() {
    let mut log = Log::default();
    log.user("1").step().sent(json!({"model": "script:a.jsonl"})).step().sent(json!({"model": "script:a.jsonl#2"}));
    log.step().sent(json!({"model": "script:b.jsonl#2"}));
    let other = json!({"at": "model", "before": "script:a.jsonl#2", "after": "script:b.jsonl#2", "by": [{"type": "configuration"}]});
    log.check(&[(1, None, no_break()), (1, Some(1), no_break()), (1, Some(0), other)]);
}

#[test]
fn tools_come_first() {
    let mut log = Log::default();
    log.user("1").step().sent(json!({"system": "123", "tools": [tool("a"), tool("bb"), tool("ccc")]}));
    // Whoever took a tool away is to blame, whoever has the system prompt changed beside it.
    log.step().changed("hider", &["tools"]).changed("talker", &["system"]);
    log.sent(json!({"system": "1", "tools": [tool("a"), tool("ccc")]}));
    // And whoever does so no longer.
    log.step().sent(json!({"system": "123", "tools": [tool("a"), tool("bb"), tool("ccc")]}));
    log.step().sent(json!({"tools": [tool("a"), tool("bb")]}));
    let mut described = tool("bb");
    described["description"] = "more".into();
    log.add("plugin/reloaded", json!({"turn": 1, "plugin": "exchanged"}));
    log.step().sent(json!({"tools": [tool("a"), described]}));
    // What was changed in a step that sent nothing is of no matter, nor what was exchanged before the last request.
    log.step().changed("fruitless", &["tools"]).step().sent(json!({"tools": []}));
    let tools = |index: usize, before: Option<&str>, after: Option<&str>, by: Value| {
        let mut place = json!({"at": "tools", "index": index, "by": by});
        for (key, name) in [("before", before), ("after", after)] {
            if let Some(name) = name {
                place[key] = name.into();
            }
        }
        place
    };
    log.check(&[
        (16, None, no_break()),
        (10, Some(3), tools(1, Some("bb"), Some("ccc"), by_plugin("hider"))),
        (16, Some(3), tools(1, Some("ccc"), Some("bb"), by_plugin("hider"))),
        (11, Some(7), tools(2, Some("ccc"), None, json!([{"type": "configuration"}]))),
        (15, Some(3), tools(1, Some("bb"), Some("bb"), by_plugin("exchanged"))),
        (4, Some(0), tools(0, Some("a"), None, json!([{"type": "configuration"}]))),
    ]);
}

#[test]
fn a_system_prompt_is_compared_to_the_byte() {
    let mut log = Log::default();
    let system = |text: &str, sections: Value| json!({"system": text, "sections": sections});
    log.user("12345").step().sent(json!({"system": "A\n\nsüß"}));
    log.step().sent(json!({"system": "A\n\nsöß"}));
    log.step().sent(system("A\n\nB\n\nsüs", json!([section("p", "a", "1"), section("q", "b", "1")])));
    log.step().sent(system("A\n\nC\n\nsüs", json!([section("p", "a", "1"), section("q", "b", "2")])));
    log.step().sent(system("A\n\nsüs", json!([section("p", "a", "1")])));
    log.step().changed("editor", &["system"]).sent(json!({"system": "A\n\nsüs!"}));
    // The same listener in another way.
    log.step().changed("editor", &["system"]).sent(json!({"system": "A\n\nsüs?"}));
    // The section is to blame, although somebody changed the whole.
    log.step().changed("editor", &["system"]).sent(system("C\n\nsüs?", json!([section("p", "a", "2")])));
    let system = |byte: usize, section: Option<(&str, &str, &str)>, by: Value| {
        let mut place = json!({"at": "system", "byte": byte, "by": by});
        if let Some((plugin, name, change)) = section {
            place["section"] = json!({"plugin": plugin, "name": name, "change": change});
        }
        place
    };
    log.check(&[
        (13, None, no_break()),
        (13, Some(4), system(4, None, json!([{"type": "configuration"}]))),
        (15, Some(3), system(3, Some(("p", "a", "new")), by_plugin("p"))),
        (15, Some(3), system(3, Some(("q", "b", "changed")), by_plugin("q"))),
        (12, Some(3), system(3, Some(("q", "b", "gone")), by_plugin("q"))),
        (13, Some(7), system(7, None, by_plugin("editor"))),
        (13, Some(7), system(7, None, by_plugin("editor"))),
        (13, Some(0), system(0, Some(("p", "a", "changed")), by_plugin("p"))),
    ]);
}

#[test]
fn a_compaction_breaks_once() {
    let mut log = Log::default();
    log.user("1").user("22").user("333").step().sent(json!({}));
    log.user("4444").step().compact("one", 2, 1, "c").compact("two", 1, 1, "b").sent(json!({}));
    log.user("55555").step().sent(json!({}));
    // What the last request did not have can go without anybody's harm.
    log.user("666666").user("7777777").step().compact("one", 5, 1, "x").sent(json!({}));
    let place = |index: usize, plugin: &str| {
        let (before, after) = (json!({"role": "user", "origin": "user"}), json!({"role": "user", "origin": "summary"}));
        json!({"at": "messages", "index": index, "before": before, "after": after, "by": by_plugin(plugin)})
    };
    log.check(&[
        (6, None, no_break()),
        (7, Some(1), place(1, "two")),
        (12, Some(7), no_break()),
        (20, Some(12), no_break()),
    ]);
}

#[test]
fn a_compaction_may_begin_with_what_was_there() {
    let mut log = Log::default();
    log.user("1").user("22").user("333").step().sent(json!({}));
    log.step().compact("p", 0, 2, "1").sent(json!({}));
    let kind = json!({"role": "user", "origin": "user"});
    let broken = json!({"at": "messages", "index": 1, "before": kind, "after": kind, "by": by_plugin("p")});
    log.check(&[(6, None, no_break()), (4, Some(1), broken)]);
}

#[test]
fn edits_are_blamed_while_they_change() {
    let mut log = Log::default();
    let kinds = |before: &str, after: &str| {
        let role = |origin: &str| if origin == "assistant" { "assistant" } else { "user" };
        (json!({"role": role(before), "origin": before}), json!({"role": role(after), "origin": after}))
    };
    let place = |index: usize, before: &str, after: &str, plugin: &str| {
        let (before, after) = kinds(before, after);
        json!({"at": "messages", "index": index, "before": before, "after": after, "by": by_plugin(plugin)})
    };
    log.user("1").user("22").step().sent(json!({}));
    // A reminder at the end is gone when the next message comes.
    log.step().sent(json!({"edits": [edit("pusher", 2, 0, &["!!!"])]}));
    log.assistant("333").step().sent(json!({"edits": [edit("pusher", 3, 0, &["!!!"])]}));
    // Two messages taken out, then in the same way again.
    log.step().sent(json!({"edits": [edit("cutter", 0, 1, &[]), edit("pusher", 2, 0, &["!!!"])]}));
    log.assistant("4444").step().sent(json!({"edits": [edit("cutter", 0, 1, &[])]}));
    log.assistant("55555").step().sent(json!({"edits": [edit("cutter", 0, 1, &[])]}));
    log.step().sent(json!({}));
    log.check(&[
        (3, None, no_break()),
        (6, Some(3), no_break()),
        (9, Some(3), place(2, "edit", "assistant", "pusher")),
        (8, Some(0), place(0, "user", "user", "cutter")),
        (9, Some(5), place(2, "edit", "assistant", "pusher")),
        (14, Some(9), no_break()),
        (15, Some(0), place(0, "user", "user", "cutter")),
    ]);
}

#[test]
fn a_hint_where_to_cache_breaks_nothing() {
    let mut log = Log::default();
    let hinted = json!({"role": "user", "content": [{"type": "text", "text": "1", "cache": "ephemeral"}]});
    let hint = json!([{"plugin": "hinter", "start": 0, "count": 1, "replacement": [hinted]}]);
    log.user("1").step().sent(json!({"edits": hint})).user("22").step().sent(json!({}));
    log.check(&[(1, None, no_break()), (3, Some(1), no_break())]);
}

#[test]
fn what_else_is_told() {
    let mut log = Log::default();
    log.user("1").step().sent(json!({}));
    log.add("request/failed", json!({"turn": 1, "step": 1, "attempt": 1, "code": "server", "message": "busy"}));
    log.time = 300_000;
    log.sent(json!({"attempt": 2, "sampling": {"temperature": 1.0}}));
    let usage = json!({"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "reasoning": 5});
    log.add("assistant/chunk", json!({"turn": 1, "step": 1, "chunk": {"type": "usage", "usage": usage}}));
    log.time = 600_001;
    log.step().changed("chooser", &["sampling"]).sent(json!({"sampling": {"toolChoice": "none"}}));
    let reports = log.reports();
    let told = |report: &RequestPrefix| {
        json!([
            report.attempt,
            report.failed,
            report.pause_ms,
            report.sampling,
            report.usage.map(|usage| usage.cache_read)
        ])
    };
    assert_eq!(
        reports.iter().map(told).collect::<Vec<_>>(),
        [
            json!([1, "server", null, null, null]),
            json!([2, null, null, null, 3]),
            json!([1, null, 300_001, {"changed": ["toolChoice"], "by": by_plugin("chooser")}, null]),
        ]
    );
    let mut summary = Summary::default();
    reports.iter().for_each(|report| summary.add(report));
    assert_eq!((summary.requests, summary.size.bytes, summary.common.bytes, summary.pauses), (3, 3, 2, 1));
    assert_eq!(summary.usage.cache_write, 4);
}

#[test]
fn a_log_that_was_changed_is_read_all_the_same() {
    let mut log = Log::default();
    log.user("1").step().compact("p", 7, 9, "22").sent(json!({"edits": [edit("q", 9, 9, &["333"])]}));
    log.step().compact("p", 0, 9, "4").sent(json!({}));
    let before_after = json!({"role": "user", "origin": "user"});
    let broken = json!({"at": "messages", "index": 0, "before": before_after, "after": {"role": "user", "origin": "summary"}, "by": by_plugin("p")});
    log.check(&[(6, None, no_break()), (1, Some(0), broken)]);
}
