//! What the simulation found, retold: messages and entries that met the end of the log, of the agent or of the driver's time.

use std::sync::Arc;
use std::time::Duration;

use dsh_seam::event::Source;
use dsh_seam::failure::FailureMode;
use dsh_seam::plugin::Attached;
use futures::FutureExt;

use crate::bench::{Answer, Bench, Watches, plugin, text};
use crate::{check, from};

#[tokio::test(start_paused = true)]
async fn steering_that_a_broken_log_did_not_take_is_counted() {
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}")])]).failing_at(9).on("tool/call", |agent| {
        async move {
            agent.steer(text("one"), Source::User).expect("room");
            agent.steer(text("two"), Source::User).expect("room");
        }
        .boxed()
    });
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "tool/result"),
        "
        tool/result c1 ok
        agent/error session-write-failed
        agent/status disposed
        agent/disposed 2",
    );
}

#[tokio::test(start_paused = true)]
async fn context_held_for_a_step_that_a_broken_log_did_not_close_is_counted() {
    let bench = Bench::new(vec![Answer::Text("a")]).failing_at(5).on("request/sent", |agent| {
        async move { agent.inject(text("note"), Source::User).await.expect("held") }.boxed()
    });
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "request/sent"),
        "
        request/sent
        agent/error session-write-failed
        agent/status disposed
        agent/disposed 1",
    );
}

#[tokio::test(start_paused = true)]
async fn messages_in_the_hands_of_a_driver_whose_time_is_up_are_counted() {
    let bench = Bench::new(vec![])
        .on("user/message one", |_| async move { tokio::time::sleep(Duration::from_secs(1_000)).await }.boxed());
    let agent = bench.held().await;
    agent.send(text("one"), Source::User).expect("room");
    agent.send(text("two"), Source::User).expect("room");
    agent.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    agent.dispose("enough").await;
    check(
        from(&bench.transcript(), "user/message"),
        "
        user/message one
        agent/status disposed
        agent/error internal
        agent/disposed 1",
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_is_still_told_is_waited_for_before_the_end() {
    let slow = plugin("slow", FailureMode::Closed, |_| Attached {
        observer: Some(Arc::new(Watches {
            kinds: vec!["context/message".into()],
            seen: Box::new(|_, _| std::future::pending().boxed()),
        })),
        ..Attached::default()
    });
    let bench = Bench::new(vec![]).with(slow);
    let agent = bench.held().await;
    let injecting = {
        let agent = agent.agent();
        tokio::spawn(async move { agent.inject(text("note"), Source::User).await })
    };
    tokio::task::yield_now().await;
    agent.dispose("enough").await;
    injecting.await.expect("no panic").expect("it is in the log");
    check(
        &bench.transcript(),
        "
        agent/created
        context/message note
        agent/status disposed
        plugin/failed slow limit
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_outlives_the_agent_logs_nothing_more() {
    let context: Arc<std::sync::Mutex<Option<Arc<dyn dsh_seam::plugin::PluginContext>>>> = Arc::default();
    let kept = context.clone();
    let keeps = plugin("keeps", FailureMode::Closed, move |context| {
        *kept.lock().expect("not poisoned") = Some(context);
        Attached::default()
    });
    let late = context.clone();
    let bench = Bench::new(vec![]).with(keeps).on("agent/disposed 0", move |_| {
        let context = late.lock().expect("not poisoned").clone().expect("attached");
        async move {
            let refused = context.append_log("note", serde_json::json!({}), 0).await;
            assert_eq!(refused.expect_err("it is over").code, "disposed");
        }
        .boxed()
    });
    let agent = bench.held().await;
    agent.dispose("enough").await;
    check(
        &bench.transcript(),
        "
        agent/created
        agent/status disposed
        agent/disposed 0",
    );
}
