//! What is too large: for one message, and for one entry of the log.

use std::sync::Arc;

use dsh_loop::{LoopAgent, MAX_MESSAGE_BYTES};
use dsh_seam::event::Source;
use dsh_seam::failure::FailureMode;
use dsh_seam::message::{Chunk, ContentBlock, Message};
use dsh_seam::plugin::{Attached, Plugin};
use dsh_seam::waterfalls::{Decision, StepResult, TurnContinuation};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::bench::{Answer, Answers, Bench, plugin, text};
use crate::{check, from};

/// Steers each of the texts.
fn steers(texts: &'static [&'static str]) -> impl Fn(Arc<LoopAgent>) -> BoxFuture<'static, ()> + Send + Sync {
    move |agent| {
        async move { texts.iter().for_each(|said| agent.steer(text(said), Source::User).expect("room")) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn an_entry_too_large_for_the_log_ends_its_turn_and_not_the_session() {
    let huge = || Message::assistant(vec![ContentBlock::text("x".repeat(dsh_services::session::MAX_LINE_BYTES))]);
    let blows_up = plugin("blows-up", FailureMode::Closed, move |_| Attached {
        step_result: Some(Arc::new(Answers::<StepResult>(Box::new(move || Arc::new(huge()))))),
        ..Attached::default()
    });
    let bench = Bench::new(vec![Answer::Text("a")]).with(blows_up);
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "step/start"),
        "
        step/start
        request/sent
        waterfall/changed
        usage 1
        step/end
        error entry-too-large
        agent/error entry-too-large
        turn/end error entry-too-large
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn a_piece_of_an_answer_too_large_for_the_log_is_a_failure_of_the_model() {
    let huge = ContentBlock::text("x".repeat(dsh_services::session::MAX_LINE_BYTES));
    let bench = Bench::new(vec![Answer::Raw(vec![Chunk::BlockEnd { index: 0, block: huge }]), Answer::Text("a")]);
    let agent = bench.held().await;
    agent.release();
    for _ in 0..2 {
        agent.send(text("go"), Source::User).expect("room");
        agent.idle().await;
    }
    agent.dispose("done").await;
    check(
        from(&bench.transcript(), "request/failed"),
        "
        request/failed malformed-response
        step/end
        error malformed-response
        agent/error malformed-response
        turn/end error malformed-response
        agent/status idle
        agent/queued go
        agent/status running
        user/message go
        turn/start
        step/start
        request/sent
        assistant/message a
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn a_result_too_large_for_the_log_is_answered_with_an_error() {
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}")]), Answer::Text("I see")]).too_large("\"text\":\"done\"");
    check(
        from(&bench.run(&["go"]).await, "tool/call"),
        "
        tool/call c1
        tool/result c1 tool-failed
        step/end
        step/start
        request/sent
        assistant/message I see
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_that_the_log_refuses_is_lost_aloud_and_the_others_are_answered() {
    let bench = Bench::new(vec![Answer::Text("hello")]).too_large("huge");
    let transcript = bench.run(&["one", "huge", "two"]).await;
    check(
        from(&transcript, "agent/status running"),
        "
        agent/status running
        user/message one
        agent/error entry-too-large
        user/message two
        turn/start
        step/start
        request/sent
        assistant/message hello
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 1",
    );
}

#[tokio::test(start_paused = true)]
async fn no_turn_is_opened_when_the_log_refuses_all_its_messages() {
    let transcript = Bench::new(vec![]).too_large("huge").run(&["huge", "huge too"]).await;
    check(
        from(&transcript, "agent/status running"),
        "
        agent/status running
        agent/error entry-too-large
        agent/error entry-too-large
        agent/status idle
        agent/status disposed
        agent/disposed 2",
    );
}

#[tokio::test(start_paused = true)]
async fn steering_that_the_log_refuses_is_lost_aloud_and_its_step_ends() {
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}")]), Answer::Text("done")])
        .too_large("huge")
        .on("turn/start", steers(&["huge"]))
        .on("tool/call", steers(&["huge", "more"]));
    check(
        from(&bench.run(&["go"]).await, "turn/start"),
        "
        turn/start
        agent/queued huge steering
        agent/error entry-too-large
        step/start
        request/sent
        assistant/message c1
        tool/call c1
        agent/queued huge steering
        agent/queued more steering
        tool/result c1 ok
        agent/error entry-too-large
        steering/message more
        step/end
        step/start
        request/sent
        assistant/message done
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 2",
    );
}

#[tokio::test(start_paused = true)]
async fn steering_that_is_lost_is_no_reason_for_another_step() {
    let bench = Bench::new(vec![Answer::Text("done")]).too_large("huge").on("assistant/message", steers(&["huge"]));
    check(
        from(&bench.run(&["go"]).await, "assistant/message"),
        "
        assistant/message done
        agent/queued huge steering
        usage 1
        agent/error entry-too-large
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 1",
    );
}

#[tokio::test(start_paused = true)]
async fn held_context_that_the_log_refuses_is_lost_aloud_and_its_step_ends() {
    let bench = Bench::new(vec![Answer::Text("done")]).too_large("huge").on("request/sent", |agent| {
        async move {
            for said in ["note", "huge", "more"] {
                agent.inject(text(said), Source::User).await.expect("held");
            }
        }
        .boxed()
    });
    check(
        from(&bench.run(&["go"]).await, "request/sent"),
        "
        request/sent
        assistant/message done
        usage 1
        context/message note
        agent/error entry-too-large
        context/message more
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 1",
    );
}

#[tokio::test(start_paused = true)]
async fn context_that_the_log_refuses_at_once_is_told_to_whoever_gave_it() {
    let bench = Bench::new(vec![]).too_large("huge");
    let agent = bench.held().await;
    let refused = agent.inject(text("huge"), Source::User).await;
    assert_eq!(refused.expect_err("it is not in the log").code, "entry-too-large");
    agent.dispose("done").await;
    check(from(&bench.transcript(), "agent/disposed"), "agent/disposed 0");
}

/// A plugin that goes on with a text.
fn proceeds(mode: FailureMode, said: String) -> Arc<dyn Plugin> {
    plugin("goes-on", mode, move |_| {
        let decision = Decision::Proceed(Some(said.clone()));
        let listener = Answers::<TurnContinuation>(Box::new(move || decision.clone()));
        Attached { turn_continuation: Some(Arc::new(listener)), ..Attached::default() }
    })
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_continuation_is_a_message_like_any_other() {
    let end = |mode, bytes: usize| async move {
        let mut bench = Bench::new(vec![Answer::Text("a"), Answer::Text("b")]);
        bench.options.max_steps = 2;
        let transcript = bench.with(proceeds(mode, "x".repeat(bytes))).run(&["go"]).await;
        let told = from(&transcript, "step/end").replace(&"x".repeat(bytes), "the text");
        told.lines().filter(|line| !line.starts_with("agent/status")).collect::<Vec<_>>().join("\n")
    };
    check(
        &end(FailureMode::Closed, MAX_MESSAGE_BYTES).await,
        "
        step/end
        steering/message the text
        step/start
        request/sent
        assistant/message b
        usage 1
        step/end
        turn/end max-steps
        agent/disposed 0",
    );
    check(
        &end(FailureMode::Closed, MAX_MESSAGE_BYTES + 1).await,
        "
        step/end
        plugin/failed goes-on limit
        error plugin-limit
        agent/error plugin-limit
        turn/end error plugin-limit
        agent/disposed 0",
    );
    check(
        &end(FailureMode::Open, MAX_MESSAGE_BYTES + 1).await,
        "
        step/end
        plugin/failed goes-on limit
        turn/end completed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_continuation_that_the_log_refuses_is_lost_aloud() {
    let mut bench = Bench::new(vec![Answer::Text("a"), Answer::Text("b")]).too_large("huge");
    bench.options.max_steps = 2;
    let transcript = bench.with(proceeds(FailureMode::Closed, "huge".into())).run(&["go"]).await;
    check(
        from(&transcript, "step/end"),
        "
        step/end
        agent/error entry-too-large
        step/start
        request/sent
        assistant/message b
        usage 1
        step/end
        turn/end max-steps
        agent/status idle
        agent/status disposed
        agent/disposed 1",
    );
}
