//! Statements of the lifecycle that no data case can show: what needs an agent without a model, tasks at the same time, or a look behind
//! the events. `tests/cases/LIFECYCLE.md` says which test shows what.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dsh_loop::{AgentOptions, MAX_BYTES, MAX_MESSAGE_BYTES, MAX_MESSAGES, MAX_SUB_AGENT_DEPTH};
use dsh_seam::event::{Event, Source};
use dsh_seam::failure::FailureMode::Closed;
use dsh_seam::message::{Chunk, ContentBlock, FinishReason};
use dsh_seam::plugin::{Attached, Plugin};
use dsh_seam::services::Agents;
use futures::FutureExt;

use crate::bench::{Answer, Bench, Watches, plugin, text};
use crate::{check, from};

/// An observer that keeps what `tell` makes of each entry of `kinds`.
fn listens(kinds: &[&str], tell: fn(&Event) -> String) -> (Arc<dyn Plugin>, Arc<Mutex<Vec<String>>>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let (kinds, keeps): (Vec<String>, _) = (kinds.iter().map(ToString::to_string).collect(), heard.clone());
    let listener = plugin("listener", Closed, move |_| {
        let keeps = keeps.clone();
        let seen = move |entry: Arc<dsh_seam::event::Entry>, _depth| {
            keeps.lock().expect("not poisoned").push(tell(&entry.event));
            async { Ok(()) }.boxed()
        };
        Attached {
            observer: Some(Arc::new(Watches { kinds: kinds.clone(), seen: Box::new(seen) })),
            ..Attached::default()
        }
    });
    (listener, heard)
}

#[tokio::test(start_paused = true)]
async fn without_a_model_the_turn_fails_and_says_where_to_set_one() {
    let (listener, heard) = listens(&["error"], |event| match event {
        Event::Error(error) => error.message.clone(),
        other => other.kind().into_owned(),
    });
    let mut bench = Bench::new(vec![Answer::Text("never")]).with(listener);
    bench.options.model = None;
    check(
        from(&bench.run(&["go"]).await, "turn/start"),
        "
        turn/start
        step/start
        step/end
        error no-model
        agent/error no-model
        turn/end error no-model
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
    assert_eq!(
        *heard.lock().expect("not poisoned"),
        ["agent `main` has no model; set one with `--model PROVIDER/MODEL`, or `model` of its `[[agents]]` entry"]
    );
    assert_eq!(bench.model.requests.lock().expect("not poisoned").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn chunks_reach_observers_before_the_next_event() {
    let (listener, heard) = listens(&[], |event| event.kind().into_owned());
    let delta = |said: &str| Chunk::TextDelta { index: 0, text: said.into() };
    let chunks = vec![
        delta("a"),
        delta("b"),
        Chunk::BlockEnd { index: 0, block: ContentBlock::text("ab") },
        Chunk::Finish { reason: FinishReason::Stop },
    ];
    let (chunk_listener, chunks_heard) =
        listens(&["assistant/chunk", "assistant/message"], |event| event.kind().into_owned());
    let chunk_listener: Arc<dyn Plugin> =
        plugin("chunk-listener", Closed, move |context| chunk_listener.attach(context));
    Bench::new(vec![Answer::Raw(chunks)]).with(listener).with(chunk_listener).run(&["go"]).await;
    assert_eq!(
        *heard.lock().expect("not poisoned"),
        ["user/message", "turn/start", "step/start", "request/sent", "assistant/message", "step/end", "turn/end"],
        "chunks are for those who ask for them"
    );
    let chunk = "assistant/chunk";
    assert_eq!(*chunks_heard.lock().expect("not poisoned"), [chunk, chunk, chunk, chunk, "assistant/message"]);
}

#[tokio::test(start_paused = true)]
async fn concurrent_disposes_share_one_chain() {
    let bench = Bench::new(vec![Answer::Calls(&[("wait", "{}")])]);
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    while !bench.transcript().ends_with("tool/call c1") {
        tokio::task::yield_now().await;
    }
    let gone = || async {
        agent.dispose("enough").await;
        assert!(bench.agents.list().is_empty(), "whoever waited finds the id free");
        bench.transcript().lines().last().map(str::to_owned)
    };
    let last = tokio::join!(gone(), gone(), gone());
    let disposed = Some("agent/disposed 0".to_owned());
    assert_eq!(last, (disposed.clone(), disposed.clone(), disposed));
    agent.dispose("again").await;
    check(
        from(&bench.transcript(), "tool/call"),
        "
        tool/call c1
        agent/status disposed
        tool/result c1 aborted
        step/end
        turn/end disposed enough
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn a_wake_without_a_message_starts_nothing() {
    let bench = Bench::new(vec![Answer::Text("hello"), Answer::Text("again")]);
    let agent = bench.held().await;
    let created = bench.transcript();
    agent.release();
    for _ in 0..3 {
        agent.release();
        agent.cancel(false);
        agent.abort("nothing");
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(bench.transcript(), created);
    agent.send(text("go"), Source::User).expect("room");
    agent.idle().await;
    agent.cancel(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.transcript().ends_with("turn/end completed\nagent/status idle"), "{}", bench.transcript());
    agent.dispose("done").await;
}

#[tokio::test(start_paused = true)]
async fn a_steered_message_does_not_wake_the_driver() {
    // The flush of the turn hangs: the driver sleeps in it, and a steered message changes nothing until it is over.
    let bench = Bench::new(vec![Answer::Text("one"), Answer::Text("two")]).with(plugin("slow", Closed, |_| Attached {
        flush: Some(Arc::new(crate::bench::HangingFlush)),
        ..Attached::default()
    }));
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    tokio::time::sleep(Duration::from_secs(5)).await;
    agent.steer(text("more"), Source::User).expect("room");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(bench.transcript().ends_with("turn/end completed\nagent/queued more steering"), "{}", bench.transcript());
    agent.idle().await;
    check(
        from(&bench.transcript(), "turn/end"),
        "
        turn/end completed
        agent/queued more steering
        agent/error plugin-failed
        user/message more
        turn/start
        step/start
        request/sent
        assistant/message two
        usage 1
        step/end
        turn/end completed
        agent/error plugin-failed
        agent/status idle",
    );
    agent.dispose("done").await;
}

#[test]
fn the_bounds_are_those_of_the_page() {
    let AgentOptions { max_steps, max_turns, max_sub_agents, deadlines, .. } = AgentOptions::default();
    assert_eq!((max_steps, max_turns, max_sub_agents, MAX_SUB_AGENT_DEPTH), (200, 100, 16, 3));
    let seconds = [deadlines.flush, deadlines.dispose, deadlines.observer].map(|deadline| deadline.as_secs());
    assert_eq!(seconds, [10, 30, 1]);
    const MIB: usize = 1024 * 1024;
    assert_eq!((MAX_MESSAGES, MAX_BYTES, MAX_MESSAGE_BYTES), (1_024, 16 * MIB, 4 * MIB));
}
