//! The loop in process, with the real providers, native plugins and paused time: what needs a clock, a hang or a fault that no data
//! case can make. What a user could describe is a data case in `tests/cases/`.

mod bench;
mod bounds;
mod budget;
mod ends;
mod exchange;
mod flushes;
mod races;
mod runs;
mod statements;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bench::{Answer, Answers, Bench, Does, HangingFlush, Watches, broken, plugin, text};
use dsh_loop::{CreateError, SessionChoice};
use dsh_seam::event::Source;
use dsh_seam::failure::{FailureMode, Seam};
use dsh_seam::ids::AgentId;
use dsh_seam::message::{Chunk, FinishReason};
use dsh_seam::plugin::Attached;
use dsh_seam::waterfalls::{Decision, Recovery, RequestError, TurnContinuation};
use futures::FutureExt;

use FailureMode::{Closed, Open};

/// Makes a plugin's parts.
type Attach = fn() -> Attached;

/// Compares a transcript with what is expected; leading white space of `expect` does not count.
fn check(transcript: &str, expect: &str) {
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let got: Vec<&str> = transcript.lines().collect();
    assert!(got == expect, "got:\n{}\n\nexpected:\n{}", got.join("\n"), expect.join("\n"));
}

/// The part of a transcript from the first line that begins with `from`.
fn from<'a>(transcript: &'a str, from: &str) -> &'a str {
    transcript.find(from).map_or("", |at| &transcript[at..])
}

#[tokio::test(start_paused = true)]
async fn one_turn() {
    let transcript = Bench::new(vec![Answer::Text("hello")]).run(&["hi", "there"]).await;
    check(
        &transcript,
        "
        agent/created
        agent/queued hi
        agent/queued there
        agent/status running
        user/message hi
        user/message there
        turn/start
        step/start
        request/sent
        assistant/message hello
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_round_trip_with_steering_while_the_tool_runs() {
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}"), ("safe", "{}"), ("safe", "")]), Answer::Text("done")])
        .on("tool/call", |agent| async move { agent.steer(text("also"), Source::User).expect("room") }.boxed());
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "request/sent"),
        "
        request/sent
        assistant/message c1,c2,c3
        tool/call c1
        agent/queued also steering
        tool/result c1 ok
        tool/call c2
        tool/call c3
        tool/result c2 ok
        tool/result c3 ok
        steering/message also
        step/end
        step/start
        request/sent
        assistant/message done
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
    assert_eq!(*bench.model.requests.lock().expect("not poisoned"), ["go", "go +c1 +c2 +c3 =c1 =c2 =c3 also"]);
}

#[tokio::test(start_paused = true)]
async fn an_abort_in_mid_stream_keeps_the_text_and_the_next_message() {
    let bench =
        Bench::new(vec![Answer::Hangs(&["par", "tial"]), Answer::Text("second")]).on("assistant/chunk", |agent| {
            async move {
                agent.abort("enough");
                agent.abort("again");
                agent.send(text("next"), Source::User).expect("room");
            }
            .boxed()
        });
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "request/sent"),
        "
        request/sent
        agent/queued next
        assistant/message par interrupted
        step/end
        turn/end aborted enough
        user/message next
        turn/start
        step/start
        request/sent
        assistant/message second
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn an_abort_in_a_tool_answers_every_call() {
    let bench = Bench::new(vec![Answer::Calls(&[("wait", "{}"), ("ok", "{}")])])
        .on("tool/call", |agent| async move { agent.abort("stop") }.boxed());
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "tool/call"),
        "
        tool/call c1
        tool/result c1 aborted
        tool/call c2
        tool/result c2 aborted-before-dispatch
        step/end
        turn/end aborted stop
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn an_abort_in_any_waterfall_ends_the_turn_as_aborted() {
    let hang = |attach: fn() -> Attached| plugin("bad", Closed, move |_| attach());
    let cases: [(&str, Attach, &str); 4] = [
        ("agent/request", || Attached { request: Some(Arc::new(Does::Hang)), ..Attached::default() }, "step/start"),
        (
            "agent/request-error",
            || Attached { request_error: Some(Arc::new(Does::Hang)), ..Attached::default() },
            "request/failed server",
        ),
        (
            "agent/step-result",
            || Attached { step_result: Some(Arc::new(Does::Hang)), ..Attached::default() },
            "request/sent",
        ),
        (
            "agent/turn-continuation",
            || Attached { turn_continuation: Some(Arc::new(Does::Hang)), ..Attached::default() },
            "step/end",
        ),
    ];
    for (waterfall, attach, last) in cases {
        let answer = if waterfall == "agent/request-error" { Answer::Fails("server") } else { Answer::Text("hello") };
        let bench = Bench::new(vec![answer]).with(hang(attach));
        let agent = bench.held().await;
        agent.send(text("go"), Source::User).expect("room");
        agent.release();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(bench.transcript().ends_with(last), "{waterfall}: {}", bench.transcript());
        agent.abort("stop");
        agent.idle().await;
        assert!(
            bench.transcript().ends_with("turn/end aborted stop\nagent/status idle"),
            "{waterfall}: {}",
            bench.transcript()
        );
        agent.dispose("done").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_listener_ends_the_turn_and_never_the_loop() {
    let cases: [(Attach, &str); 3] = [
        (
            || Attached { request: Some(Arc::new(Does::Fail)), ..Attached::default() },
            "step/start plugin/failed step/end error",
        ),
        (
            || Attached { step_result: Some(Arc::new(Does::FailAfter)), ..Attached::default() },
            "request/sent plugin/failed usage step/end error",
        ),
        (
            || Attached { turn_continuation: Some(Arc::new(Does::Fail)), ..Attached::default() },
            "usage step/end plugin/failed error",
        ),
    ];
    for (attach, order) in cases {
        let bench =
            Bench::new(vec![Answer::Text("a"), Answer::Text("b")]).with(plugin("bad", Closed, move |_| attach()));
        let transcript = bench.run(&["go"]).await;
        let words: Vec<&str> = transcript.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(words.join(" ").contains(order), "{order}: {transcript}");
        assert!(
            transcript.contains(
                "error plugin-failed\nagent/error plugin-failed\nturn/end error plugin-failed\nagent/status idle"
            ),
            "{transcript}"
        );
        let bench = Bench::new(vec![Answer::Text("a")]).with(plugin("bad", Open, move |_| attach()));
        let transcript = bench.run(&["go"]).await;
        assert!(
            transcript.contains("plugin/failed bad trap") && transcript.contains("turn/end completed"),
            "open: {transcript}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_execute_listener_answers_its_call_and_skips_the_rest() {
    let attach = || Attached { execute: Some(Arc::new(Does::FailAfter)), ..Attached::default() };
    let bench =
        Bench::new(vec![Answer::Calls(&[("ok", "{}"), ("ok", "{}")])]).with(plugin("bad", Closed, move |_| attach()));
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "tool/call"),
        "
        tool/call c1
        plugin/failed bad trap
        tool/result c1 plugin-failed
        tool/call c2
        tool/result c2 skipped
        step/end
        error plugin-failed
        agent/error plugin-failed
        turn/end error plugin-failed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn retries_wait_are_numbered_and_bounded() {
    let retry = || {
        let again: Answers<RequestError> = Answers(Box::new(|| Recovery::RetryAfterMs(60_000)));
        plugin("again", Closed, {
            let again = Arc::new(again);
            move |_| Attached { request_error: Some(again.clone()), ..Attached::default() }
        })
    };
    let bench =
        Bench::new(vec![Answer::Fails("server"), Answer::Fails("timeout"), Answer::Text("at last")]).with(retry());
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "step/start").split("step/end").next().expect("split gives one part"),
        "
        step/start
        request/sent
        request/failed server
        request/sent
        request/failed timeout
        request/sent
        assistant/message at last
        usage 1",
    );
    let transcript = Bench::new(vec![]).with(retry()).run(&["go"]).await;
    assert_eq!(transcript.matches("request/sent").count(), 10, "{transcript}");
    assert!(transcript.contains("turn/end error script-exhausted"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn a_continuation_that_never_stops_meets_max_steps() {
    let on: Answers<TurnContinuation> = Answers(Box::new(|| Decision::Proceed(Some("go on".into()))));
    let on = Arc::new(on);
    let mut bench = Bench::new(vec![Answer::Text("1"), Answer::Text("2"), Answer::Text("3")]).with(plugin(
        "on",
        Closed,
        move |_| Attached { turn_continuation: Some(on.clone()), ..Attached::default() },
    ));
    bench.options.max_steps = 2;
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "step/end"),
        "
        step/end
        steering/message go on
        step/start
        request/sent
        assistant/message 2
        usage 1
        step/end
        turn/end max-steps
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_flush_is_reported_and_the_next_turn_proceeds() {
    let bench = Bench::new(vec![Answer::Text("a"), Answer::Text("b")])
        .with(plugin("slow", Closed, |_| Attached { flush: Some(Arc::new(HangingFlush)), ..Attached::default() }))
        .on("turn/end completed", |agent| {
            async move { agent.steer(text("late"), Source::User).expect("room") }.boxed()
        });
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "turn/end"),
        "
        turn/end completed
        agent/queued late steering
        agent/error plugin-failed
        user/message late
        turn/start
        step/start
        request/sent
        assistant/message b
        usage 1
        step/end
        turn/end completed
        agent/error plugin-failed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn observers_are_contained() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let bad = plugin("bad", Closed, move |_| {
        let counted = counted.clone();
        let seen = move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Err(broken(Seam::Observer)) }.boxed()
        };
        Attached { observer: Some(Arc::new(Watches { kinds: vec![], seen: Box::new(seen) })), ..Attached::default() }
    });
    let transcript = Bench::new(vec![Answer::Text("a")]).with(bad).run(&["go"]).await;
    assert_eq!(
        (calls.load(Ordering::Relaxed), transcript.matches("plugin/failed bad trap").count()),
        (3, 3),
        "off after three failures: {transcript}"
    );
    assert!(transcript.contains("turn/end completed"), "{transcript}");

    let slow = plugin("slow", Closed, |_| {
        let seen = |entry: Arc<dsh_seam::event::Entry>, _| {
            if entry.event.kind() == "step/end" { std::future::pending().boxed() } else { async { Ok(()) }.boxed() }
        };
        Attached { observer: Some(Arc::new(Watches { kinds: vec![], seen: Box::new(seen) })), ..Attached::default() }
    });
    let transcript = Bench::new(vec![Answer::Text("a")]).with(slow).run(&["go"]).await;
    assert!(transcript.contains("step/end\nplugin/failed slow limit\nturn/end completed"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn observers_that_append_at_each_other_end_at_a_depth() {
    let echoing = |name: &'static str, other: &'static str| {
        plugin(name, Closed, move |context| {
            let seen = move |_, depth: u32| {
                let context = context.clone();
                async move {
                    let _ = context.append_log("note", serde_json::json!(depth), depth + 1).await;
                    Ok(())
                }
                .boxed()
            };
            Attached {
                observer: Some(Arc::new(Watches {
                    kinds: vec!["turn/start".into(), format!("plugin/{other}/*")],
                    seen: Box::new(seen),
                })),
                ..Attached::default()
            }
        })
    };
    let transcript = Bench::new(vec![Answer::Text("a")])
        .with(echoing("ping", "pong"))
        .with(echoing("pong", "ping"))
        .run(&["go"])
        .await;
    let notes = transcript.matches("/note").count();
    assert!((8..=16).contains(&notes), "{notes} notes: {transcript}");
    assert!(transcript.contains("turn/end completed"), "{transcript}");
}

/// An observer of `context/message` that answers each with context or, when it is `sending`, with a message.
fn answers_context(name: &'static str, sending: bool) -> Arc<dyn dsh_seam::plugin::Plugin> {
    plugin(name, Closed, move |context| {
        let seen = move |_, _| {
            let context = context.clone();
            async move {
                let _ = if sending { context.send(text("again")).await } else { context.inject(text("note")).await };
                Ok(())
            }
            .boxed()
        };
        Attached {
            observer: Some(Arc::new(Watches { kinds: vec!["context/message".into()], seen: Box::new(seen) })),
            ..Attached::default()
        }
    })
}

#[tokio::test(start_paused = true)]
async fn observers_that_answer_context_with_context_come_to_an_end() {
    let inject = |agent: Arc<dsh_loop::LoopAgent>| {
        async move { agent.inject(text("first"), Source::User).await.expect("taken") }.boxed()
    };
    let bench = Bench::new(vec![Answer::Text("a")]).with(answers_context("ping", false)).on("request/sent", inject);
    let transcript = bench.run(&["go"]).await;
    assert_eq!(transcript.matches("context/message note").count(), 1, "its own entry is not told to it: {transcript}");

    let bench = Bench::new(vec![Answer::Text("a")])
        .with(answers_context("ping", false))
        .with(answers_context("pong", false))
        .on("request/sent", inject);
    let transcript = bench.run(&["go"]).await;
    assert_eq!(transcript.matches("context/message").count(), dsh_loop::MAX_MESSAGES, "two of them meet the bound");
    assert!(transcript.contains("step/end\nturn/end completed"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn an_abort_in_the_middle_of_a_plugins_append_loses_nothing() {
    struct Injects(Arc<dyn dsh_seam::plugin::PluginContext>);
    #[async_trait::async_trait]
    impl dsh_seam::waterfall::Listener<TurnContinuation> for Injects {
        async fn handle(
            &self,
            _: &dsh_seam::waterfall::RunContext<TurnContinuation>,
            value: Decision,
            next: dsh_seam::waterfall::Next<TurnContinuation>,
        ) -> Result<Decision, dsh_seam::PluginError> {
            self.0.inject(text("note")).await.expect("taken");
            next.run(value).await.map_err(|_| broken(Seam::TurnContinuation))
        }
    }
    let seen = Arc::new(AtomicU32::new(0));
    let counted = seen.clone();
    let injects = plugin("injects", Closed, |context| Attached {
        turn_continuation: Some(Arc::new(Injects(context))),
        ..Attached::default()
    });
    // The abort comes while the first observer is told, so that the second is still owed.
    let aborts = plugin("aborts", Closed, |context| {
        let seen = move |_, _| {
            let context = context.clone();
            async move {
                context.cancellation().cancel();
                tokio::time::sleep(Duration::from_millis(1)).await;
                Ok(())
            }
            .boxed()
        };
        Attached {
            observer: Some(Arc::new(Watches { kinds: vec!["context/message".into()], seen: Box::new(seen) })),
            ..Attached::default()
        }
    });
    let counts = plugin("counts", Closed, move |_| {
        let counted = counted.clone();
        let seen = move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }.boxed()
        };
        Attached {
            observer: Some(Arc::new(Watches { kinds: vec!["context/message".into()], seen: Box::new(seen) })),
            ..Attached::default()
        }
    });
    let bench = Bench::new(vec![Answer::Text("a"), Answer::Text("b")]).with(injects).with(aborts).with(counts);
    let agent = bench.held().await;
    agent.release();
    for _ in 0..2 {
        agent.send(text("go"), Source::User).expect("room");
        agent.idle().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    agent.dispose("done").await;
    assert_eq!(seen.load(Ordering::Relaxed), 2, "{}", bench.transcript());
    assert_eq!(bench.transcript().matches("turn/end aborted").count(), 2, "{}", bench.transcript());
}

#[tokio::test(start_paused = true)]
async fn messages_past_max_turns_are_dropped_while_idle_too() {
    let mut bench = Bench::new(vec![Answer::Text("a")]).with(answers_context("sends", true));
    bench.options.max_turns = 1;
    let agent = bench.held().await;
    agent.release();
    for _ in 0..2 {
        agent.inject(text("note"), Source::User).await.expect("taken");
        agent.idle().await;
    }
    agent.dispose("done").await;
    check(
        from(&bench.transcript(), "agent/status idle"),
        "
        agent/status idle
        context/message note
        agent/queued again
        agent/dropped 1
        agent/error max-turns
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn context_waits_for_the_end_of_the_step() {
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}")]), Answer::Text("a")])
        .on("tool/call", |agent| async move { agent.inject(text("note"), Source::User).await.expect("taken") }.boxed())
        .on("agent/status idle", |agent| {
            async move { agent.inject(text("idle note"), Source::User).await.expect("taken") }.boxed()
        });
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "tool/call"),
        "
        tool/call c1
        tool/result c1 ok
        context/message note
        step/end
        step/start
        request/sent
        assistant/message a
        usage 1
        step/end
        turn/end completed
        agent/status idle
        context/message idle note
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn dispose_closes_what_is_open_and_counts_what_is_lost() {
    let bench = Bench::new(vec![Answer::Hangs(&["par"])]).on("assistant/chunk", |agent| {
        async move {
            agent.abort("first");
            agent.send(text("never read"), Source::User).expect("room");
            agent.start_dispose("bye");
            agent.start_dispose("later");
            assert_eq!(agent.send(text("x"), Source::User).expect_err("disposed").code, "disposed");
        }
        .boxed()
    });
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "request/sent"),
        "
        request/sent
        agent/queued never read
        agent/status disposed
        assistant/message par interrupted
        step/end
        turn/end disposed bye
        agent/disposed 1",
    );
}

#[tokio::test(start_paused = true)]
async fn dispose_awaits_a_call_outside_of_any_turn() {
    let bench = Bench::new(vec![]).on("tool/call", |agent| async move { agent.start_dispose("stop") }.boxed());
    let agent = bench.held().await;
    let called = agent.call_tool("wait", "{}").await.expect("its result is logged");
    assert_eq!(called.outcome.code.as_deref(), Some("aborted"));
    agent.dispose("done").await;
    check(
        &bench.transcript(),
        "
        agent/created
        tool/call call_0_0_1
        agent/status disposed
        tool/result call_0_0_1 aborted
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn dispose_while_idle_opens_no_turn() {
    let bench = Bench::new(vec![]);
    let agent = bench.held().await;
    agent.send(text("never read"), Source::User).expect("room");
    tokio::join!(agent.dispose("one"), agent.dispose("two"));
    check(
        &bench.transcript(),
        "
        agent/created
        agent/queued never read
        agent/status disposed
        agent/disposed 1",
    );
    assert_eq!(agent.inject(text("x"), Source::User).await.expect_err("disposed").code, "disposed");
}

#[tokio::test(start_paused = true)]
async fn an_id_is_taken_once_and_free_after_the_owner_is_dropped() {
    let bench = Bench::new(vec![]);
    let owner = bench.held().await;
    let agent = owner.agent();
    let again = bench.agent_loop().create(AgentId::new("main").expect("valid"), bench.options.clone()).await;
    assert!(matches!(again, Err(CreateError::Duplicate(_))));
    drop(owner);
    agent.dispose("shared with the owner's drop").await;
    bench.held().await.dispose("done").await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_final() {
    for at in 0..9 {
        let bench = Bench::new(vec![Answer::Text("a")]).failing_at(at);
        let transcript = bench.run(&["go", "on"]).await;
        let end = from(&transcript, "agent/error session-write-failed");
        let dropped = match at {
            0 => 2,
            1 => 1,
            _ => 0,
        };
        check(
            end,
            &format!(
                "
            agent/error session-write-failed
            agent/status disposed
            agent/disposed {dropped}"
            ),
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_stopped_in_the_middle_goes_on() {
    let bench = Bench::new(vec![Answer::Calls(&[("wait", "{}"), ("ok", "{}")]), Answer::Text("after")]);
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = agent.session().clone();
    // The process "ends": what is in the log so far becomes a session of its own.
    let (_, entries, _) = bench.sessions.read(&id, false).await.expect("readable");
    let last = entries.last().expect("something is logged").seq;
    let mut second = Bench::new(vec![Answer::Text("after")]);
    second.sessions = bench.sessions.clone();
    second.options.session = SessionChoice::Fork { id, at: Some(last) };
    let transcript = second.run(&["and now"]).await;
    check(
        &transcript,
        "
        agent/created
        tool/result c1 outcome-unknown
        tool/call c2
        tool/result c2 not-started
        step/end
        turn/end interrupted
        agent/queued and now
        agent/status running
        user/message and now
        turn/start
        step/start
        request/sent
        assistant/message after
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
    assert_eq!(*second.model.requests.lock().expect("not poisoned"), ["go +c1 +c2 =c1 =c2 and now"]);
    agent.dispose("done").await;
}

#[tokio::test(start_paused = true)]
async fn streams_that_end_in_the_middle_fail() {
    let delta = |text: &str| Chunk::TextDelta { index: 0, text: text.into() };
    let finish = |reason| Chunk::Finish { reason };
    let cases: Vec<(Vec<Chunk>, &str)> = vec![
        (vec![delta("a")], "turn/end error stream-closed"),
        (vec![], "turn/end completed"),
        (vec![finish(FinishReason::Aborted)], "turn/end error aborted"),
        (vec![finish(FinishReason::MaxTokens)], "turn/end max-tokens"),
        (vec![finish(FinishReason::Refused)], "turn/end completed"),
    ];
    for (chunks, expect) in cases {
        let transcript = Bench::new(vec![Answer::Raw(chunks.clone())]).run(&["go"]).await;
        assert!(transcript.contains(expect), "{chunks:?}: {transcript}");
    }
}
