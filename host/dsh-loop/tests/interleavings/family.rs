//! An agent and its sub-agent, whose making and work race what ends them. Time passes as the checker likes, so that in some schedules
//! neither is waited for.

#[expect(dead_code, reason = "the bench of `tests/subagents` offers more than is needed here")]
#[path = "../subagents/bench.rs"]
mod bench;

use std::sync::Arc;

use bench::{Answer, Bench};
use dsh_loop::LoopAgent;
use dsh_seam::event::Source;
use dsh_seam::message::ContentBlock;
use dsh_seam::services::Agents;
use shuttle::future::{JoinHandle, block_on, spawn};

use crate::explore::many_orders;

/// Explores an agent whose sub-agent says six letters and then nothing for ever, while `ends` ends them. `check` gets what was shown,
/// and how much of it when `ends` was over.
fn explore(
    ends: impl Fn(Arc<LoopAgent>) + Send + Sync + Clone + 'static,
    check: impl Fn(&[String], usize) + Send + Sync + Clone + 'static,
) {
    // Deadlines that are made here never pass; those for a dispose are the checker's.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let _here = runtime.enter();
    many_orders(move || {
        let bench = Arc::new(Bench::new(&[
            ("main", &[Answer::Calls(&[("task", r#"{"prompt":"spell"}"#)])]),
            ("main.1", &[Answer::Hangs(&["a", "b", "c", "d", "e", "f"])]),
        ]));
        let owner = block_on(bench.create());
        owner.send(vec![ContentBlock::text("go")], Source::User).expect("room");
        let ending: JoinHandle<usize> = spawn({
            let (bench, agent, ends) = (bench.clone(), owner.agent(), ends.clone());
            async move {
                // Not before there is something to end.
                while !bench.recorder.lines().iter().any(|line| line.starts_with("main tool/call")) {
                    shuttle::future::yield_now().await;
                }
                ends(agent);
                bench.recorder.lines().len()
            }
        });
        let then = block_on(ending).expect("it does not panic");
        block_on(owner.dispose("late"));
        // One that was left alone ends all the same.
        while !bench.agents.list().is_empty() {
            shuttle::thread::yield_now();
        }
        let lines = bench.recorder.lines();
        for agent in ["main", "main.1"] {
            let count = |event: &str| lines.iter().filter(|line| line.starts_with(&format!("{agent} {event}"))).count();
            assert_eq!(count("turn/start"), count("turn/end"), "{agent}: {lines:#?}");
            assert_eq!(count("step/start"), count("step/end"), "{agent}: {lines:#?}");
        }
        check(&lines, then);
    });
}

/// How the turns of an agent ended.
fn ends_of<'a>(lines: &'a [String], agent: &str) -> Vec<&'a str> {
    let start = format!("{agent} turn/end ");
    lines.iter().filter_map(|line| line.strip_prefix(start.as_str())).collect()
}

/// At most the one piece that was on its way when all was ended.
fn says_no_more(lines: &[String], then: usize) {
    let more = lines[then..].iter().filter(|line| line.starts_with("main.1 assistant/chunk")).count();
    assert!(more <= 1, "{lines:#?}");
}

#[test]
fn an_abort_reaches_a_sub_agent_wherever_it_is() {
    explore(
        |agent| agent.abort("enough"),
        |lines, then| {
            says_no_more(lines, then);
            let ends = ends_of(lines, "main.1");
            let legal = |end: &&str| ["aborted enough", "disposed enough", "disposed late"].contains(end);
            assert!(ends.len() <= 1 && ends.iter().all(legal), "{lines:#?}");
        },
    );
}

#[test]
fn one_reason_of_several_disposes_holds_for_the_whole_family() {
    explore(
        |agent| {
            let other = spawn({
                let agent = agent.clone();
                async move { agent.start_dispose("one") }
            });
            agent.start_dispose("two");
            drop(other);
        },
        |lines, then| {
            says_no_more(lines, then);
            let mut ends = ends_of(lines, "main");
            ends.extend(ends_of(lines, "main.1"));
            assert!(["disposed one", "disposed two"].contains(&ends[0]), "{lines:#?}");
            assert!(ends.iter().all(|end| *end == ends[0]), "{lines:#?}");
            let at = |line: &str| lines.iter().position(|known| known.starts_with(line));
            if let Some(end) = at("main.1 turn/end") {
                assert!(at("main.1 agent/status disposed").is_some_and(|says_so| says_so < end), "{lines:#?}");
            }
        },
    );
}
