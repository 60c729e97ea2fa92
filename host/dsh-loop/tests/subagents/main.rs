//! Sub-agents in process, with paused time: what a child has, and that nothing of it is left whatever ends it, at every place where
//! something can end it. What a user could describe is a data case in `tests/cases/sub-agents/`.

mod bench;

use std::sync::Arc;
use std::time::Duration;

use bench::{Answer, Bench, Narrows, SpeaksToItself, plugin};
use dsh_seam::ids::AgentId;
use dsh_seam::plugin::Attached;
use dsh_seam::services::Agents;
use dsh_seam::tools::{Outcome, Profile};
use futures::FutureExt;

use Answer::{Hangs, Text};

fn task(arguments: &'static str) -> Answer {
    Answer::Call("task", arguments)
}

/// Compares a transcript with what is expected; leading white space of `expect` does not count.
fn check(transcript: &str, expect: &str) {
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let got: Vec<&str> = transcript.lines().collect();
    assert!(got == expect, "got:\n{}\n\nexpected:\n{}", got.join("\n"), expect.join("\n"));
}

/// The results of the first agent's calls, without the calls' ids.
fn results(transcript: &str) -> Vec<&str> {
    let results = transcript.lines().filter_map(|line| line.strip_prefix("main tool/result "));
    results.map(|result| result.split_once(' ').map_or("", |(_, result)| result)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_child_answers_and_is_gone() {
    let bench = Bench::new(&[("main", &[task(r#"{"prompt":"look"}"#), Text("so")]), ("main.1", &[Text("seen")])]);
    check(
        &bench.run().await,
        "
        main user/message user go
        main tool/call
        main.1 user/message agent look
        main.1 turn/end completed
        main.1 agent/status disposed
        main.1 agent/disposed
        main tool/result c1 ok: Completed seen
        main turn/end completed
        main agent/status disposed
        main agent/disposed",
    );
    let headers: Vec<_> =
        bench.sessions.list().await.expect("listed").into_iter().map(|summary| summary.header).collect();
    let of = |agent: &str| headers.iter().find(|header| header.agent.as_str() == agent).expect("it is there");
    assert_eq!((&of("main.1").parent, of("main.1").forked_at), (&Some(of("main").id.clone()), None));
    assert_eq!(of("main.1").lineage, [of("main").agent.clone()]);
}

#[tokio::test(start_paused = true)]
async fn a_child_has_what_its_parent_has_unless_it_asks_for_less() {
    let mut bench = Bench::new(&[
        (
            "main",
            &[
                task(r#"{"prompt":"a"}"#),
                task(r#"{"prompt":"b","tools":["look","shell"],"model":"net/x","system":"be brief","steps":1}"#),
                Text("so"),
            ],
        ),
        ("main.1", &[Text("1")]),
        ("main.2", &[Answer::Calls(&[("look", "{}"), ("task", "{}"), ("shell", "{}")])]),
    ]);
    bench.options.system_prompt = "house rules".into();
    let transcript = bench.run().await;
    let requests = bench.model.requests.lock().expect("not poisoned").clone();
    assert_eq!(
        requests[1..3],
        ["main.1 own [house rules] [task look wait meet] a", "main own [house rules] [task look wait meet] go +c1 =c1"]
    );
    assert_eq!(requests[3], "main.2 net/x [be brief] [look] b");
    check(
        transcript.lines().filter(|line| line.starts_with("main.2")).collect::<Vec<_>>().join("\n").as_str(),
        r#"
        main.2 user/message agent b
        main.2 tool/call
        main.2 tool/result c1 ok: Open ["main"]
        main.2 tool/call
        main.2 tool/result c2 unknown-tool: there is no tool `task`; there are `look`
        main.2 tool/call
        main.2 tool/result c3 unknown-tool: there is no tool `shell`; there are `look`
        main.2 turn/end max-steps
        main.2 agent/status disposed
        main.2 agent/disposed"#,
    );
    assert_eq!(results(&transcript), ["ok: Completed 1", "ok: MaxSteps"]);
}

#[tokio::test(start_paused = true)]
async fn a_set_of_tools_holds_for_all_generations() {
    let bench = Bench::new(&[
        ("main", &[task(r#"{"prompt":"a","tools":["task"]}"#), Text("so")]),
        ("main.1", &[task(r#"{"prompt":"b","tools":["task","look"]}"#), Text("1")]),
        ("main.1.1", &[Answer::Calls(&[("look", "{}")]), Text("2")]),
    ]);
    let transcript = bench.run().await;
    assert!(transcript.contains("main.1.1 tool/result c1 unknown-tool: there is no tool `look`"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn what_narrows_the_call_narrows_the_child() {
    let narrows =
        plugin("sandbox", |_| Attached { execute: Some(Arc::new(Narrows::offline("task"))), ..Attached::default() });
    let bench = Bench::new(&[
        ("main", &[Answer::Calls(&[("look", "{}")]), task(r#"{"prompt":"a"}"#), Text("so")]),
        ("main.1", &[Answer::Calls(&[("look", "{}")]), task(r#"{"prompt":"b"}"#), Text("1")]),
        ("main.1.1", &[Answer::Calls(&[("look", "{}")]), Text("2")]),
    ]);
    let transcript = bench.with(narrows).run().await;
    let seen: Vec<&str> = transcript.lines().filter(|line| line.contains('[')).collect();
    assert_eq!(
        seen,
        [
            "main tool/result c1 ok: Open []",
            r#"main.1 tool/result c1 ok: Closed ["main"]"#,
            r#"main.1.1 tool/result c1 ok: Closed ["main.1", "main"]"#
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn depth_and_count_are_bounded_and_a_model_must_be_allowed() {
    let deeper = r#"{"prompt":"deeper"}"#;
    let bench = Bench::new(&[
        ("main", &[task(deeper), Text("so")]),
        ("main.1", &[task(deeper), Text("1")]),
        ("main.1.1", &[task(deeper), Text("2")]),
        ("main.1.1.1", &[task(deeper), Text("3")]),
    ]);
    let transcript = bench.run().await;
    let refusal = "main.1.1.1 tool/result c1 too-deep: agent `main.1.1.1` cannot have sub-agents: they may be 3 deep, and it is at that depth";
    assert!(transcript.contains(refusal), "{transcript}");

    let two = Answer::Calls(&[("task", r#"{"prompt":"x"}"#), ("task", r#"{"prompt":"x","model":"own"}"#)]);
    let mut bench = Bench::new(&[
        (
            "main",
            &[task(r#"{"prompt":"x","model":"secret"}"#), two.clone(), task(r#"{"prompt":"x"}"#), Text("so"), two],
        ),
        ("main.1", &[task(r#"{"prompt":"y"}"#), Text("1")]),
        ("main.1.1", &[Text("1.1")]),
        ("main.2", &[Text("2")]),
        ("main.3", &[Text("3")]),
        ("main.4", &[Text("4")]),
    ]);
    bench.options.max_sub_agents = 3;
    let agent = bench.create().await;
    for _ in 0..2 {
        agent.send(vec![dsh_seam::message::ContentBlock::text("go")], dsh_seam::event::Source::User).expect("room");
        agent.idle().await;
    }
    agent.dispose("done").await;
    assert_eq!(
        results(&bench.transcript()),
        [
            "invalid-argument: `secret` is no model that a plugin may name",
            "ok: Completed 1",
            "ok: Completed 2",
            "limit: agent `main` may have at most 3 sub-agents in one turn (`--max-sub-agents`) and has had them: do the rest without",
            "ok: Completed 3",
            "ok: Completed 4",
        ],
        "what is refused does not count, and a new turn counts anew"
    );
}

#[tokio::test(start_paused = true)]
async fn a_fork_knows_what_its_parent_knew_before_the_step() {
    let bench = Bench::new(&[
        ("main", &[Answer::Calls(&[("look", "{}")]), task(r#"{"prompt":"and you?","fork":true}"#), Text("so")]),
        ("main.1", &[task(r#"{"prompt":"and you?","fork":true}"#), Text("1")]),
        ("main.1.1", &[Text("2")]),
    ]);
    let transcript = bench.run().await;
    assert_eq!(results(&transcript)[1..], ["ok: Completed 1"]);
    let requests = bench.model.requests.lock().expect("not poisoned").clone();
    assert_eq!(requests[2], "main.1 own [] [task look wait meet] go +c1 =c1 and you?");
    assert_eq!(requests[3], "main.1.1 own [] [task look wait meet] go +c1 =c1 and you? and you?");
    let forks: Vec<_> =
        bench.sessions.list().await.expect("listed").into_iter().map(|summary| summary.header).collect();
    let of = |agent: &str| forks.iter().find(|header| header.agent.as_str() == agent).expect("it is there");
    assert_eq!(of("main.1").parent, Some(of("main").id.clone()));
    assert_eq!(of("main.1.1").parent, Some(of("main.1").id.clone()));
    assert_eq!(of("main.1.1").lineage, [of("main.1").agent.clone(), of("main").agent.clone()]);
}

/// One way to end the parent, where, and what the child's log and the parent's turn say then.
struct Ends {
    at: &'static str,
    dispose: bool,
    child: &'static str,
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_the_parent_ends_the_child_first() {
    let cases = [
        Ends { at: "main.1 agent/created", dispose: false, child: "" },
        Ends { at: "main.1 agent/created", dispose: true, child: "" },
        Ends { at: "main.1 agent/queued", dispose: false, child: "" },
        Ends { at: "main.1 agent/queued", dispose: true, child: "" },
        Ends { at: "main.1 user/message agent a", dispose: false, child: "aborted enough" },
        Ends { at: "main.1 user/message agent a", dispose: true, child: "disposed enough" },
        Ends { at: "main.1 turn/start", dispose: false, child: "aborted enough" },
        Ends { at: "main.1 turn/start", dispose: true, child: "disposed enough" },
        Ends { at: "main.1 request/sent", dispose: false, child: "aborted enough" },
        Ends { at: "main.1 request/sent", dispose: true, child: "disposed enough" },
        Ends { at: "main.1 assistant/chunk", dispose: false, child: "aborted enough" },
        Ends { at: "main.1 assistant/chunk", dispose: true, child: "disposed enough" },
        Ends { at: "main.1 tool/call", dispose: false, child: "aborted enough" },
        Ends { at: "main.1 tool/call", dispose: true, child: "disposed enough" },
        Ends { at: "main.1.1 assistant/chunk", dispose: false, child: "aborted enough" },
        Ends { at: "main.1.1 assistant/chunk", dispose: true, child: "disposed enough" },
    ];
    for case in cases {
        let second =
            if case.at.starts_with("main.1.1") { task(r#"{"prompt":"c"}"#) } else { Answer::Calls(&[("wait", "{}")]) };
        let first =
            if case.at.contains("chunk") && !case.at.starts_with("main.1.1") { Hangs(&["so far"]) } else { second };
        let bench = Bench::new(&[
            ("main", &[task(r#"{"prompt":"a"}"#), Text("never")]),
            ("main.1", &[first, Text("never")]),
            ("main.1.1", &[Hangs(&["so far"])]),
        ]);
        let bench = bench.on(case.at, move |main| {
            async move {
                match case.dispose {
                    true => main.start_dispose("enough"),
                    false => main.abort("enough"),
                }
            }
            .boxed()
        });
        let transcript = bench.run().await;
        let end = if case.dispose { "disposed enough" } else { "aborted enough" };
        let lines: Vec<&str> = transcript.lines().collect();
        let at = |line: &str| lines.iter().position(|known| *known == line);
        let parents_end = at(&format!("main turn/end {end}")).unwrap_or_else(|| panic!("{}:\n{transcript}", case.at));
        let gone = at("main.1 agent/disposed").unwrap_or_else(|| panic!("{}:\n{transcript}", case.at));
        assert!(gone < parents_end, "{}: the child is gone before the turn ends:\n{transcript}", case.at);
        let childs_end = lines.iter().find_map(|line| line.strip_prefix("main.1 turn/end "));
        assert_eq!(childs_end.unwrap_or_default(), case.child, "{}:\n{transcript}", case.at);
        if case.dispose && childs_end.is_some() {
            let says_so = at("main.1 agent/status disposed").expect("it is disposed");
            let ends = at(&format!("main.1 turn/end {end}")).expect("its turn ends");
            assert!(says_so < ends, "{}: its own chain begins with its status:\n{transcript}", case.at);
        }
        assert_eq!(
            results(&transcript),
            ["aborted: the sub-agent `main.1` was stopped because the turn was aborted"],
            "{}",
            case.at
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_before_a_dispose_waits_no_longer() {
    // The child's tool takes a while to stop after the abort; the dispose comes meanwhile.
    let bench = Bench::new(&[
        ("main", &[task(r#"{"prompt":"a"}"#)]),
        ("main.1", &[Answer::Calls(&[("wait", r#"{"ms":2000}"#)])]),
    ]);
    let bench = bench.on("main.1 tool/call", |main| {
        async move {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                main.abort("enough");
                tokio::time::sleep(Duration::from_millis(100)).await;
                main.start_dispose("and out");
            });
        }
        .boxed()
    });
    let transcript = bench.run().await;
    assert!(transcript.contains("main.1 turn/end disposed and out"), "{transcript}");
    assert!(transcript.contains("main turn/end disposed and out"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_takes_its_child_with_it() {
    let narrows = plugin("sandbox", |_| {
        let profile = Profile { timeout_ms: Some(1_000), ..Profile::unrestricted() };
        Attached { execute: Some(Arc::new(Narrows { tool: "task", profile })), ..Attached::default() }
    });
    let bench = Bench::new(&[("main", &[task(r#"{"prompt":"a"}"#), Text("so")]), ("main.1", &[Hangs(&["so far"])])]);
    check(
        &bench.with(narrows).run().await,
        "
        main user/message user go
        main tool/call
        main.1 user/message agent a
        main.1 agent/status disposed
        main.1 turn/end disposed its call ended
        main.1 agent/disposed
        main tool/result c1 timed-out: the tool `task` was stopped after 1000 ms
        main turn/end completed
        main agent/status disposed
        main agent/disposed",
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_will_not_stop_is_not_waited_for_beyond_the_bounds() {
    let bench = Bench::new(&[
        ("main", &[task(r#"{"prompt":"a"}"#), Text("so")]),
        ("main.1", &[task(r#"{"prompt":"b"}"#)]),
        ("main.1.1", &[Answer::Calls(&[("wait", r#"{"ms":3600000}"#)])]),
    ]);
    let bench = bench.on("main.1.1 tool/call", |main| {
        async move {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                main.abort("enough");
            });
        }
        .boxed()
    });
    let before = tokio::time::Instant::now();
    let transcript = bench.run().await;
    for agent in ["main.1.1", "main.1", "main"] {
        assert!(transcript.contains(&format!("{agent} turn/end aborted enough")), "{transcript}");
    }
    let took = before.elapsed();
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(35), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_log_cannot_be_written_is_a_report_and_the_parent_goes_on() {
    for at in [Some(0), Some(3)] {
        let bench = Bench::new(&[("main", &[task(r#"{"prompt":"a"}"#), Text("so")]), ("main.1", &[Text("1")])]);
        let transcript = bench.failing("main.1", at).run().await;
        assert_eq!(results(&transcript), ["ok: Error"], "{transcript}");
        assert!(transcript.contains("main turn/end completed"), "{transcript}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_be_made_does_not_count() {
    let two = Answer::Calls(&[("task", r#"{"prompt":"a"}"#), ("task", r#"{"prompt":"b"}"#)]);
    let mut bench = Bench::new(&[("main", &[two, Text("so")]), ("main.2", &[Text("2")])]).failing("main.1", None);
    bench.options.max_sub_agents = 1;
    let transcript = bench.run().await;
    let results = results(&transcript);
    assert!(results[0].starts_with("not-available: the sub-agent could not be made: session"), "{results:?}");
    assert_eq!(results[1..], ["ok: Completed 2"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_child_has_queued_is_dropped_with_it() {
    let bench = Bench::new(&[("main", &[task(r#"{"prompt":"a"}"#)]), ("main.1", &[Hangs(&["so far"]), Text("never")])])
        .with(plugin("talker", |context| Attached {
            observer: Some(Arc::new(SpeaksToItself::new(context))),
            ..Attached::default()
        }))
        .on("main.1 assistant/chunk", |main| async move { main.abort("enough") }.boxed());
    check(
        &bench.run().await,
        "
        main user/message user go
        main tool/call
        main.1 user/message agent a
        main.1 turn/end aborted enough
        main.1 agent/dropped
        main.1 agent/status disposed
        main.1 agent/disposed
        main tool/result c1 aborted: the sub-agent `main.1` was stopped because the turn was aborted
        main turn/end aborted enough
        main agent/status disposed
        main agent/disposed",
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_outside_of_a_turn_has_children_too_and_the_agent_waits_for_them() {
    let narrows = plugin("sandbox", |_| {
        let profile = Profile { timeout_ms: Some(1_000), ..Profile::unrestricted() };
        Attached { execute: Some(Arc::new(Narrows { tool: "task", profile })), ..Attached::default() }
    });
    let stubborn = Answer::Calls(&[("wait", r#"{"ms":3000}"#)]);
    let mut bench = Bench::new(&[("main.1", &[Text("1")]), ("main.2", &[stubborn])]).with(narrows);
    // Each such call counts anew.
    bench.options.max_sub_agents = 1;
    let agent = bench.create().await;
    let good = agent.call_tool("task", r#"{"prompt":"a"}"#).await.expect("the log can be written").outcome;
    assert_eq!(good, Outcome::text("Completed 1"));
    let late = agent.call_tool("task", r#"{"prompt":"b","fork":true}"#).await.expect("the log can be written").outcome;
    assert_eq!(late.code.as_deref(), Some("timed-out"));
    agent.dispose("done").await;
    bench.nothing_is_left().await;
    let transcript = bench.transcript();
    let is_end = |line: &&str| line.ends_with("agent/disposed") || line.starts_with("main tool/result");
    let ends: Vec<&str> = transcript.lines().filter(is_end).collect();
    assert_eq!(
        ends,
        [
            "main.1 agent/disposed",
            "main tool/result call_0_0_1 ok: Completed 1",
            "main.2 agent/disposed",
            "main tool/result call_0_0_2 timed-out: the tool `task` was stopped after 1000 ms",
            "main agent/disposed"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_taken_is_left_out() {
    let bench = Bench::new(&[("main", &[task(r#"{"prompt":"a"}"#), Text("so")]), ("main.2", &[Text("2")])]);
    let taken = bench.agents.register(&AgentId::new("main.1").expect("valid")).expect("free");
    let agent = bench.create().await;
    agent.send(vec![dsh_seam::message::ContentBlock::text("go")], dsh_seam::event::Source::User).expect("room");
    agent.idle().await;
    agent.dispose("done").await;
    assert_eq!(results(&bench.transcript()), ["ok: Completed 2"]);
    drop(taken);
    bench.nothing_is_left().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_prompt_makes_no_child() {
    let bench = Bench::new(&[("main", &[task(r#"{"prompt":" "}"#), Text("so")])]);
    let transcript = bench.run().await;
    assert_eq!(results(&transcript), ["invalid-argument: a message needs a block with more than white space"]);
    assert!(!transcript.contains("main.1"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_dropped_takes_the_whole_family_with_it() {
    let bench = Bench::new(&[
        ("main", &[task(r#"{"prompt":"a"}"#)]),
        ("main.1", &[task(r#"{"prompt":"b"}"#)]),
        ("main.1.1", &[Hangs(&["so far"])]),
    ]);
    let agent = bench.create().await;
    let handle = agent.agent();
    agent.send(vec![dsh_seam::message::ContentBlock::text("go")], dsh_seam::event::Source::User).expect("room");
    while !bench.agents.list().iter().any(|id| id.as_str() == "main.1.1") {
        tokio::task::yield_now().await;
    }
    drop(agent);
    handle.dispose("again").await;
    bench.nothing_is_left().await;
    let ends: Vec<String> = bench
        .transcript()
        .lines()
        .filter(|line| line.contains("turn/end") || line.contains("agent/disposed"))
        .map(str::to_owned)
        .collect();
    assert_eq!(
        ends,
        [
            "main.1.1 turn/end disposed owner dropped",
            "main.1.1 agent/disposed",
            "main.1 turn/end disposed owner dropped",
            "main.1 agent/disposed",
            "main turn/end disposed owner dropped",
            "main agent/disposed"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn children_of_one_message_work_side_by_side() {
    let two =
        Answer::Calls(&[("task", r#"{"prompt":"a"}"#), ("task", r#"{"prompt":"b"}"#), ("task", r#"{"prompt":"c"}"#)]);
    let meet = Answer::Calls(&[("meet", "{}")]);
    let bench = Bench::new(&[
        ("main", &[two, Text("so")]),
        ("main.1", &[meet.clone(), Text("1")]),
        ("main.2", &[meet.clone(), Text("2")]),
        ("main.3", &[meet, Text("3")]),
    ]);
    let transcript = bench.run().await;
    assert_eq!(results(&transcript), ["ok: Completed 1", "ok: Completed 2", "ok: Completed 3"]);
    let prompts: Vec<&str> = transcript.lines().filter(|line| line.contains("user/message agent")).collect();
    assert_eq!(
        prompts,
        ["main.1 user/message agent a", "main.2 user/message agent b", "main.3 user/message agent c"],
        "they are made in the order of the calls"
    );
    assert_eq!(transcript.matches("c1 ok: met").count(), 3, "they work at once:\n{transcript}");
}
