//! The order of plugins cannot weaken a policy: in every order of the same plugins a call has the same verdict, also when a listener rewrites
//! it, when guards ask and deny at once, and when one of them fails and the operator lets it.

use std::collections::BTreeSet;
use std::fmt;

use dsh_tests::host::{self, Run};
use dsh_tests::parallel::each;
use dsh_tests::sandbox::Sandbox;
use serde_json::{Value, json};

/// A plugin: its name, where it is from, its configuration.
type Plugin = (&'static str, &'static str, Value);

/// What became of the call, as far as a policy is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    code: Option<String>,
    asked: BTreeSet<String>,
    /// The final call that was put to a person.
    shown: Option<Value>,
    ran: bool,
    /// How often a person was asked.
    questions: usize,
}

/// All orders of `items`.
fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in items.iter().enumerate() {
        let rest: Vec<T> = [&items[..at], &items[at + 1..]].concat();
        all.extend(orders(&rest).into_iter().map(|mut order| {
            order.insert(0, first.clone());
            order
        }));
    }
    all
}

/// Has the model call `tool`, under the plugins in this order.
fn verdict(plugins: &[Plugin], options: &[&str], tool: &str) -> Verdict {
    let sandbox = Sandbox::new().expect("a folder");
    let script = sandbox.workspace.join("script.jsonl");
    let call = json!({"toolCalls": [{"id": "a", "name": tool, "arguments": {"text": "as the model wrote it"}}]});
    std::fs::write(&script, format!("{call}\n{}\n", json!({"text": "done"}))).expect("to write");
    let mut args = vec!["--output".to_owned(), "jsonl".into(), "--no-save".into(), "--model".into()];
    args.push(format!("script:{}", script.display()));
    for (name, source, config) in plugins {
        let source = sandbox.expand(source);
        args.extend([
            "--plugin".to_owned(),
            format!("{name}={source}"),
            "--plugin-config".into(),
            format!("{name}={config}"),
        ]);
    }
    args.extend(options.iter().map(|option| (*option).to_owned()));
    args.push("go".into());
    let run = Run { args, env: sandbox.environment(), dir: sandbox.workspace.clone(), ..Run::default() };
    let outcome = host::run(&run).expect("it ends");
    let events: Vec<Value> = outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind).map(|event| &event["data"]);
    let result = of("tool/result").next().unwrap_or_else(|| panic!("no result: {}", outcome.stderr));
    let asked = of("approval/asked").next();
    let askers = asked.into_iter().flat_map(|asked| asked["questions"].as_array().cloned().unwrap_or_default());
    Verdict {
        code: result["code"].as_str().map(str::to_owned),
        asked: askers.map(|question| question["plugin"].as_str().unwrap_or_default().to_owned()).collect(),
        shown: asked.map(|asked| asked["call"].clone()),
        ran: result["isError"] == false,
        questions: of("approval/asked").count(),
    }
}

/// Plugins in an order.
struct Order(Vec<Plugin>);

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|(name, ..)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

/// Checks every order of `plugins`.
fn same_in_every_order(plugins: &[Plugin], options: &[&str], tool: &str, expect: &Verdict) {
    let orders: Vec<Order> = orders(plugins).into_iter().map(Order).collect();
    let same = each(&orders, |order| {
        let found = verdict(&order.0, options, tool);
        if found == *expect { Ok(()) } else { Err(format!("{found:?}")) }
    });
    same.unwrap_or_else(|problems| panic!("expected {expect:?}, and found\n{problems}"));
}

fn permission(action: &str) -> Plugin {
    ("permission", "permission", json!({"default": "deny", "rules": [{"tool": "echo", "action": action}]}))
}

#[test]
fn guards_fold_in_any_order_over_the_final_call() {
    let rewritten = json!({"name": "echo", "arguments": r#"{"text":"rewritten"}"#});
    for (by_rule, by_asker) in [
        ("allow", "abstain"),
        ("allow", "ask"),
        ("allow", "deny"),
        ("ask", "abstain"),
        ("ask", "ask"),
        ("ask", "deny"),
        ("deny", "ask"),
    ] {
        let plugins = [
            permission(by_rule),
            // The listener rewrites the call, and the asker only knows the rewritten one.
            ("editor", "{guests}/editor.wasm", json!({"call-arguments": r#"{"text":"rewritten"}"#})),
            ("asker", "{guests}/asker.wasm", json!({"verdict": by_asker, "arguments": "rewritten"})),
            ("faulty", "{guests}/faulty.wasm", json!({"seam": "guard", "fault": "trap"})),
        ];
        let denied = by_rule == "deny" || by_asker == "deny";
        let asked: BTreeSet<String> = [("permission", by_rule), ("asker", by_asker)]
            .into_iter()
            .filter(|(_, verdict)| !denied && *verdict == "ask")
            .map(|(name, _)| name.to_owned())
            .collect();
        let code = match (denied, asked.is_empty()) {
            (true, _) => Some("denied"),
            (false, false) => Some("approval-unavailable"),
            (false, true) => None,
        };
        let expect = Verdict {
            code: code.map(str::to_owned),
            shown: (!asked.is_empty()).then(|| rewritten.clone()),
            ran: code.is_none(),
            questions: usize::from(!asked.is_empty()),
            asked,
        };
        same_in_every_order(&plugins, &["--plugin", "echo", "--on-failure", "faulty=open"], "echo", &expect);
    }
}

#[test]
fn a_failing_guard_that_is_closed_stops_the_call_in_any_order() {
    let plugins = [
        permission("allow"),
        ("asker", "{guests}/asker.wasm", json!({"verdict": "abstain"})),
        ("faulty", "{guests}/faulty.wasm", json!({"seam": "guard", "fault": "trap"})),
    ];
    let expect =
        Verdict { code: Some("plugin-failed".into()), asked: BTreeSet::new(), shown: None, ran: false, questions: 0 };
    same_in_every_order(&plugins, &["--plugin", "echo"], "echo", &expect);
}

#[test]
fn a_read_only_call_that_becomes_a_writing_one_is_judged_as_that() {
    let rename = ("editor", "{guests}/editor.wasm", json!({"call-name": "change"}));
    let plugins = |active: bool| {
        [
            ("plan-mode", "plan-mode", json!({"active": active})),
            ("sandbox", "sandbox", json!({"profile": "read-only"})),
            rename.clone(),
            ("toolbox", "{guests}/toolbox.wasm", json!({})),
        ]
    };
    let denied = Verdict { code: Some("denied".into()), asked: BTreeSet::new(), shown: None, ran: false, questions: 0 };
    same_in_every_order(&plugins(true), &[], "say", &denied);
    let run = Verdict { code: None, ran: true, ..denied };
    same_in_every_order(&plugins(false), &[], "say", &run);
}

#[test]
fn every_run_of_the_rest_is_judged_anew() {
    let plugins = [
        ("editor", "{guests}/editor.wasm", json!({"runs": 2})),
        ("asker", "{guests}/asker.wasm", json!({"verdict": "ask"})),
    ];
    let asked = |options: &[&str]| verdict(&plugins, options, "echo").questions;
    assert_eq!(asked(&["--plugin", "echo", "--approve", "allow"]), 2);
    assert_eq!(asked(&["--plugin", "echo", "--approve", "deny"]), 2);
}
