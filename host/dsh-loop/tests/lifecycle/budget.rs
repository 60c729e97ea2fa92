//! The budget of a run: where a turn can be when it is used up, or when the time is over. What a user could describe is in
//! `tests/cases/budget/`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::failure::FailureMode::Closed;
use dsh_seam::failure::PluginError;
use dsh_seam::ids::StepRef;
use dsh_seam::message::Usage;
use dsh_seam::plugin::Plugin;
use dsh_seam::session::{Section, Sections};
use dsh_seam::tools::Outcome;
use dsh_seam::waterfall::{Listener, Next, RunContext, Waterfall};
use dsh_seam::waterfalls::{Execution, ToolsExecute};
use dsh_services::budget::{BudgetLimits, RunBudget};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::runs::{Asks, Silent};
use super::*;

/// How long the runs of these tests may take.
const TIME: Duration = Duration::from_secs(100);

fn timed() -> Arc<RunBudget> {
    Arc::new(RunBudget::new(BudgetLimits { time: Some(TIME), ..BudgetLimits::default() }))
}

fn of_tokens(tokens: u64) -> Arc<RunBudget> {
    Arc::new(RunBudget::new(BudgetLimits { tokens: Some(tokens), ..BudgetLimits::default() }))
}

/// Uses tokens when the rest has run, and answers as the rest, or fails.
struct Uses(Arc<RunBudget>, u32, bool);

#[async_trait]
impl<W: Waterfall> Listener<W> for Uses {
    async fn handle(&self, _cx: &RunContext<W>, value: W::Value, next: Next<W>) -> Result<W::Outcome, PluginError> {
        let outcome = next.run(value).await.map_err(|_| broken(W::SEAM))?;
        self.0.count(&Usage::default(), &Usage { input: self.1, ..Usage::default() });
        if self.2 { Err(broken(W::SEAM)) } else { Ok(outcome) }
    }
}

fn with(mut bench: Bench, budget: &Arc<RunBudget>) -> Bench {
    bench.budget = budget.clone();
    bench
}

#[tokio::test(start_paused = true)]
async fn what_a_listener_used_up_sends_no_request() {
    let budget = of_tokens(5);
    let uses = Arc::new(Uses(budget.clone(), 5, false));
    let uses = plugin("uses", Closed, move |_| Attached { request: Some(uses.clone()), ..Attached::default() });
    let transcript = with(Bench::new(vec![Answer::Text("never")]).with(uses), &budget).run(&["go"]).await;
    check(
        from(&transcript, "user/message"),
        "
        user/message go
        turn/start
        step/start
        step/end
        turn/end budget max-total-tokens
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_continuation_used_counts_for_its_turn() {
    let run = async |tokens| {
        let budget = of_tokens(5);
        let uses = Arc::new(Uses(budget.clone(), tokens, false));
        let attach = move |_| Attached { turn_continuation: Some(uses.clone()), ..Attached::default() };
        let bench = with(Bench::new(vec![Answer::Text("a")]).with(plugin("uses", Closed, attach)), &budget);
        bench.run(&["go"]).await
    };
    assert!(run(5).await.contains("step/end\nturn/end completed"), "all of it");
    assert!(run(6).await.contains("step/end\nturn/end budget max-total-tokens"), "more");
}

#[tokio::test(start_paused = true)]
async fn after_a_step_that_used_too_much_no_continuation_is_asked() {
    let budget = of_tokens(5);
    let uses = Arc::new(Uses(budget.clone(), 6, false));
    let fails = plugin("fails", Closed, move |_| Attached {
        step_result: Some(uses.clone()),
        turn_continuation: Some(Arc::new(Does::Fail)),
        ..Attached::default()
    });
    let transcript = with(Bench::new(vec![Answer::Text("a")]).with(fails), &budget).run(&["go"]).await;
    assert!(transcript.contains("usage 1\nstep/end\nturn/end budget max-total-tokens"), "{transcript}");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_was_there_before_stays() {
    let budget = of_tokens(5);
    let uses = Arc::new(Uses(budget.clone(), 6, true));
    let fails = plugin("bad", Closed, move |_| Attached { step_result: Some(uses.clone()), ..Attached::default() });
    let transcript = with(Bench::new(vec![Answer::Text("a")]).with(fails), &budget).run(&["go", "on"]).await;
    assert!(transcript.contains("turn/end error plugin-failed"), "{transcript}");
}

/// Runs until the time is over. Returns what came after `start` until the turn's end, on a line.
async fn until_the_end_of_the_time(bench: Bench, start: &str) -> String {
    let bench = with(bench, &timed());
    let begun = Instant::now();
    let transcript = bench.run(&["go"]).await;
    assert_eq!(begun.elapsed().as_secs(), TIME.as_secs(), "at once, and not before: {transcript}");
    assert!(transcript.contains("turn/end budget max-time\nagent/status idle"), "{transcript}");
    from(&transcript, start).split("turn/end").next().unwrap_or_default().trim_end().replace('\n', " ")
}

/// An assembly of the system prompt that never ends.
struct NeverSays;

#[async_trait]
impl Sections for NeverSays {
    async fn sections(&self, _: StepRef, _: &CancellationToken) -> Result<Vec<Section>, PluginError> {
        std::future::pending().await
    }
}

fn hanging(attached: impl Fn() -> Attached + Send + Sync + 'static) -> Arc<dyn Plugin> {
    plugin("bad", Closed, move |_| attached())
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_time_reaches_a_turn_wherever_it_is() {
    let check = async |answer: Answer, attached: fn() -> Attached, start: &str, expect: &str| {
        let mut bench = Bench::new(vec![answer]).with(hanging(attached));
        bench.approver = Arc::new(Silent);
        assert_eq!(until_the_end_of_the_time(bench, start).await, expect);
    };
    let nothing = || Attached::default();
    check(Answer::Hangs(&["par"]), nothing, "request/sent", "request/sent assistant/message par interrupted step/end")
        .await;
    check(
        Answer::Calls(&[("wait", "{}"), ("ok", "{}")]),
        nothing,
        "tool/call",
        "tool/call c1 tool/result c1 aborted tool/call c2 tool/result c2 aborted-before-dispatch step/end",
    )
    .await;
    let asks = || Attached { guard: Some(Arc::new(Asks)), ..Attached::default() };
    check(
        Answer::Calls(&[("safe", "{}")]),
        asks,
        "approval/asked",
        "approval/asked approval/decided tool/result c1 aborted step/end",
    )
    .await;
    let sections = || Attached { sections: Some(Arc::new(NeverSays)), ..Attached::default() };
    check(Answer::Text("a"), sections, "step/start", "step/start step/end").await;
    let request = || Attached { request: Some(Arc::new(Does::Hang)), ..Attached::default() };
    check(Answer::Text("a"), request, "step/start", "step/start step/end").await;
    let failed = || Attached { request_error: Some(Arc::new(Does::Hang)), ..Attached::default() };
    check(Answer::Fails("server"), failed, "request/failed", "request/failed server step/end").await;
    let waits = || {
        let again: Answers<RequestError> = Answers(Box::new(|| Recovery::RetryAfterMs(600_000)));
        Attached { request_error: Some(Arc::new(again)), ..Attached::default() }
    };
    check(Answer::Fails("server"), waits, "request/failed", "request/failed server step/end").await;
    let result = || Attached { step_result: Some(Arc::new(Does::Hang)), ..Attached::default() };
    check(Answer::Text("a"), result, "request/sent", "request/sent assistant/message a interrupted usage 1 step/end")
        .await;
    let continuation = || Attached { turn_continuation: Some(Arc::new(Does::Hang)), ..Attached::default() };
    check(Answer::Text("a"), continuation, "usage", "usage 1 step/end").await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_the_end_of_the_time_caused_is_hidden() {
    /// Fails as soon as its turn is cancelled.
    struct FailsThen;
    #[async_trait]
    impl Listener<ToolsExecute> for FailsThen {
        async fn handle(
            &self,
            cx: &RunContext<ToolsExecute>,
            _: Execution,
            _: Next<ToolsExecute>,
        ) -> Result<Arc<Outcome>, PluginError> {
            cx.cancel.cancelled().await;
            Err(broken(Seam::Execute))
        }
    }
    let fails = || Attached { execute: Some(Arc::new(FailsThen)), ..Attached::default() };
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}")])]).with(hanging(fails));
    let rest = until_the_end_of_the_time(bench, "tool/call").await;
    assert!(!rest.contains(" error "), "{rest}");
}

#[tokio::test(start_paused = true)]
async fn an_abort_or_a_dispose_after_the_end_of_the_time_still_wins() {
    for (dispose, expect) in [(false, "turn/end aborted later"), (true, "turn/end disposed bye")] {
        let bench = with(Bench::new(vec![Answer::Calls(&[("wait", "{}")])]), &timed());
        let bench = bench.on("tool/result c1 aborted", move |agent| {
            async move {
                if dispose {
                    agent.start_dispose("bye");
                } else {
                    agent.abort("later");
                }
            }
            .boxed()
        });
        let transcript = bench.run(&["go"]).await;
        assert!(transcript.contains(expect), "{transcript}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_after_the_end_of_the_time_has_no_step() {
    let bench = with(Bench::new(vec![Answer::Hangs(&["par"]), Answer::Text("never")]), &timed());
    let bench =
        bench.on("request/sent", |agent| async move { agent.send(text("next"), Source::User).expect("room") }.boxed());
    let transcript = bench.run(&["go"]).await;
    check(
        from(&transcript, "turn/end"),
        "
        turn/end budget max-time
        user/message next
        turn/start
        turn/end budget max-time
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}
