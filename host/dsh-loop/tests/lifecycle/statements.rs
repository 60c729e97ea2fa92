//! Statements of the lifecycle that no data case can show: what needs an agent without a model, tasks at the same time, or a look behind
//! the events. `tests/cases/LIFECYCLE.md` says which test shows what.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dsh_loop::{AgentOptions, MAX_BYTES, MAX_MESSAGE_BYTES, MAX_MESSAGES, MAX_SUB_AGENT_DEPTH};
use dsh_seam::event::{Event, Source};
use dsh_seam::failure::FailureMode::Closed;
use dsh_seam::failure::{PluginError, Seam};
use dsh_seam::message::{Chunk, ContentBlock, FinishReason};
use dsh_seam::plugin::{Attached, Plugin};
use dsh_seam::services::Agents;
use dsh_seam::waterfall::{Listener, Next, RunContext};
use dsh_seam::waterfalls::{Decision, TurnContinuation};
use futures::FutureExt;

use crate::bench::{Answer, Bench, Watches, broken, plugin, text};
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

/// A listener of the continuation that keeps what was proposed and decides as it is told, or as proposed.
struct Decides {
    decision: Option<Decision>,
    proposed: Arc<Mutex<Vec<Decision>>>,
}

#[async_trait]
impl Listener<TurnContinuation> for Decides {
    async fn handle(
        &self,
        _cx: &RunContext<TurnContinuation>,
        proposal: Decision,
        next: Next<TurnContinuation>,
    ) -> Result<Decision, PluginError> {
        self.proposed.lock().expect("not poisoned").push(proposal.clone());
        let rest = next.run(proposal).await.map_err(|_| broken(Seam::TurnContinuation))?;
        Ok(self.decision.clone().unwrap_or(rest))
    }
}

/// One message is steered at `event`; what the listener was proposed, and what the turns were made of.
async fn turns(first: Answer, max_steps: u32, event: &str, decision: Option<Decision>, expect: &str) {
    let proposed: Arc<Mutex<Vec<Decision>>> = Arc::default();
    let listener = Arc::new(Decides { decision, proposed: proposed.clone() });
    let decides = plugin("decides", Closed, move |_| Attached {
        turn_continuation: Some(listener.clone()),
        ..Attached::default()
    });
    let mut bench = Bench::new(vec![first, Answer::Text("second")])
        .with(decides)
        .on(event, |agent| async move { agent.steer(text("wait"), Source::User).expect("room") }.boxed());
    bench.options.max_steps = max_steps;
    let transcript = bench.run(&["go"]).await;
    let kinds = ["steering/message", "user/message", "request/sent", "turn/end"];
    let told = transcript.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(kind)));
    let told = told.map(|line| line.replace("/message", "").replace("/sent", "")).collect::<Vec<_>>().join(", ");
    let proposed = format!("{:?}", proposed.lock().expect("not poisoned")[0]);
    assert_eq!(format!("{proposed}: {told}"), expect);
}

#[tokio::test(start_paused = true)]
async fn what_is_steered_keeps_a_turn_going_unless_no_other_step_is_possible() {
    let (go, stop) = (|| Answer::Calls(&[("ok", "{}")]), Some(Decision::Stop));
    let cut = || {
        let block = Chunk::BlockEnd { index: 0, block: ContentBlock::text("as I was say") };
        Answer::Raw(vec![block, Chunk::Finish { reason: FinishReason::MaxTokens }])
    };
    let on = "user go, request, steering wait, request, turn/end completed";
    let (drained, pending) = ("assistant/message", "step/end");
    turns(Answer::Text("one"), 0, drained, None, &format!("Proceed(None): {on}")).await;
    turns(Answer::Text("one"), 0, pending, None, &format!("Stop: {on}")).await;
    turns(Answer::Text("one"), 0, drained, stop.clone(), &format!("Proceed(None): {on}")).await;
    turns(go(), 0, pending, stop.clone(), &format!("Proceed(None): {on}")).await;
    let next = |reason: &str, proposed: &str, last: &str| {
        format!("{proposed}: user go, request, turn/end {reason}, user wait, request, turn/end {last}")
    };
    turns(Answer::Text("one"), 1, drained, None, &next("completed", "Stop", "completed")).await;
    turns(Answer::Text("one"), 1, pending, None, &next("completed", "Stop", "completed")).await;
    turns(go(), 1, pending, None, &next("max-steps", "Proceed(None)", "completed")).await;
    turns(cut(), 0, drained, None, &next("max-tokens", "Stop", "completed")).await;
    turns(cut(), 0, pending, stop, &next("max-tokens", "Stop", "completed")).await;
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
