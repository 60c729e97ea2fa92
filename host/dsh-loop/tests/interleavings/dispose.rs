//! The whole agent with its real services: the chain that ends it, started by several at once, against a driver in the middle of a
//! turn. Time passes as the checker likes, so that in some schedules the driver's time is up before it has unwound.

#[expect(dead_code, reason = "the bench of `tests/lifecycle` offers more than is needed here")]
#[path = "../lifecycle/bench.rs"]
mod bench;

use std::sync::Arc;

use bench::{Answer, Bench, text};
use dsh_loop::LoopAgent;
use dsh_seam::event::Source;
use dsh_seam::services::Agents;
use shuttle::future::{JoinHandle, block_on, spawn};

use crate::explore::many_orders;

/// Explores what an agent with these answers does when it has got one message and `meanwhile` happens.
fn explore<T: 'static>(
    answers: impl Fn() -> Vec<Answer> + Send + Sync + Clone + 'static,
    meanwhile: impl Fn(&Arc<LoopAgent>) -> Vec<JoinHandle<T>> + Send + Sync + Clone + 'static,
    check: impl Fn(&str, Vec<T>) + Send + Sync + Clone + 'static,
) {
    // Deadlines are made here and never pass; the one for the whole dispose is the checker's.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let _here = runtime.enter();
    many_orders(move || {
        let bench = Bench::new(answers());
        let owner = block_on(bench.held());
        let agent = owner.agent();
        agent.send(text("go"), Source::User).expect("room");
        agent.release();
        let tasks = meanwhile(&agent);
        let dropping = spawn(async move { drop(owner) });
        let results = tasks.into_iter().map(|task| block_on(task).expect("it returns")).collect();
        block_on(dropping).expect("it returns");
        block_on(agent.dispose("late"));
        assert!(bench.agents.list().is_empty(), "the id is free again");
        let transcript = bench.transcript();
        closed(&transcript);
        check(&transcript, results);
    });
}

/// What holds for the transcript of every agent that is gone.
fn closed(transcript: &str) {
    let lines: Vec<&str> = transcript.lines().collect();
    let count = |word: &str| lines.iter().filter(|line| line.split(' ').next() == Some(word)).count();
    let ends = |open: &str, close: &str| assert_eq!(count(open), count(close), "{open}: {transcript}");
    ends("turn/start", "turn/end");
    ends("step/start", "step/end");
    assert_eq!(count("agent/disposed"), 1, "{transcript}");
    assert_eq!(lines.iter().filter(|line| **line == "agent/status disposed").count(), 1, "{transcript}");
    assert!(lines.last().is_some_and(|line| line.starts_with("agent/disposed")), "{transcript}");
}

/// How many messages were read, and how many are counted as dropped.
fn accounted(transcript: &str) -> usize {
    let read = transcript.lines().filter(|line| {
        line.starts_with("user/message") || line.starts_with("steering/message") || line.starts_with("context/message")
    });
    let numbers = transcript
        .lines()
        .filter_map(|line| line.strip_prefix("agent/disposed ").or(line.strip_prefix("agent/dropped ")));
    read.count() + numbers.map(|number| number.parse::<usize>().expect("a number")).sum::<usize>()
}

fn task<F: Future<Output = T> + Send + 'static, T: Send + 'static>(
    agent: &Arc<LoopAgent>,
    act: impl FnOnce(Arc<LoopAgent>) -> F,
) -> JoinHandle<T> {
    spawn(act(agent.clone()))
}

#[test]
fn all_who_dispose_return_and_one_reason_counts() {
    explore(
        || vec![Answer::Hangs(&["par"])],
        |agent| {
            vec![
                task(agent, |agent| async move { agent.dispose("one").await }),
                task(agent, |agent| async move { agent.start_dispose("two") }),
                task(agent, |agent| async move { agent.dispose("three").await }),
            ]
        },
        |transcript, _| {
            assert_eq!(accounted(transcript), 1, "{transcript}");
            let reasons = ["one", "two", "three", "owner dropped"];
            let legal = |line: &str| reasons.iter().any(|reason| line == format!("turn/end disposed {reason}"));
            let mut ends = transcript.lines().filter(|line| line.starts_with("turn/end"));
            assert!(ends.all(legal), "{transcript}");
        },
    );
}

#[test]
fn messages_that_race_the_end_are_refused_read_or_counted() {
    explore(
        || vec![Answer::Text("a"), Answer::Text("b"), Answer::Text("c"), Answer::Text("d")],
        |agent| {
            vec![
                task(agent, |agent| async move { agent.send(text("sent"), Source::User).is_ok() }),
                task(agent, |agent| async move { agent.steer(text("steered"), Source::User).is_ok() }),
                task(agent, |agent| async move {
                    agent.abort("stop");
                    agent.cancel(false);
                    false
                }),
            ]
        },
        |transcript, taken| {
            let taken = 1 + taken.into_iter().filter(|taken| *taken).count();
            assert_eq!(accounted(transcript), taken, "{transcript}");
        },
    );
}

#[test]
fn context_that_races_the_end_of_a_step_is_in_the_log_once_or_counted() {
    explore(
        || vec![Answer::Text("a")],
        |agent| {
            let inject = |text_of: &'static str| {
                task(agent, move |agent| async move { agent.inject(text(text_of), Source::User).await.is_ok() })
            };
            vec![inject("one"), inject("two")]
        },
        |transcript, taken| {
            let taken = 1 + taken.into_iter().filter(|taken| *taken).count();
            assert_eq!(accounted(transcript), taken, "{transcript}");
        },
    );
}

#[test]
fn whoever_waits_for_an_idle_agent_returns() {
    explore(
        || vec![Answer::Text("a"), Answer::Text("b")],
        |agent| {
            vec![
                task(agent, |agent| async move { agent.idle().await }),
                task(agent, |agent| async move { drop(agent.send(text("more"), Source::User)) }),
                task(agent, |agent| async move { agent.idle().await }),
            ]
        },
        |_, _| {},
    );
}
