//! Runs of parallel-safe calls where the order of what happens has to be exact: tools that end when a test says so, listeners that fail
//! for some calls, a person who never answers. The rest of rule 7 of Tools is in `tests/cases/parallel/`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::event::{ApprovalAnswer, ApprovalAsked, ApprovalBy, Event, Source};
use dsh_seam::failure::FailureMode::Closed;
use dsh_seam::failure::{PluginError, Seam};
use dsh_seam::ids::{AgentInfo, StepRef};
use dsh_seam::message::ToolCall;
use dsh_seam::plugin::{Attached, Plugin};
use dsh_seam::tools::{
    Annotations, Approver, Guard, Outcome, Question, ToolContext, ToolDefinition, ToolInfo, ToolProvider, Verdict,
};
use dsh_seam::waterfall::{Listener, Next, RunContext};
use dsh_seam::waterfalls::{Execution, ToolsExecute};
use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bench::{Answer, Bench, Watches, broken, plugin, text};
use crate::{check, from};

/// Parallel-safe tools: `gated` waits for the gate, `loyal` for the abort, `stubborn` for nothing in the world.
struct Tools {
    definitions: Vec<ToolDefinition>,
    gate: Arc<Semaphore>,
}

#[async_trait]
impl ToolProvider for Tools {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.definitions
    }
    async fn call(&self, cx: &ToolContext, call: ToolCall) -> Result<Outcome, PluginError> {
        match call.name.as_str() {
            "gated" => self.gate.acquire().await.expect("never closed").forget(),
            "loyal" => cx.cancel.cancelled().await,
            _ => std::future::pending().await,
        }
        Ok(Outcome::text("done"))
    }
}

fn tools(gate: &Arc<Semaphore>) -> Arc<dyn Plugin> {
    let gate = gate.clone();
    plugin("gates", Closed, move |_| {
        let tool = |name: &str| ToolDefinition {
            name: name.into(),
            description: String::new(),
            parameters: serde_json::json!({"type": "object"}),
            annotations: Annotations { parallel_safe: true, ..Annotations::default() },
        };
        let definitions = ["gated", "loyal", "stubborn"].map(tool).to_vec();
        Attached { provider: Some(Arc::new(Tools { definitions, gate: gate.clone() })), ..Attached::default() }
    })
}

/// Fails after the rest, and says for which call.
struct FailsAfter;

#[async_trait]
impl Listener<ToolsExecute> for FailsAfter {
    async fn handle(
        &self,
        _cx: &RunContext<ToolsExecute>,
        execution: Execution,
        next: Next<ToolsExecute>,
    ) -> Result<Arc<Outcome>, PluginError> {
        let id = execution.call.id.clone();
        let _ = next.run(execution).await;
        Err(PluginError { message: format!("it broke over {id}"), ..broken(Seam::Execute) })
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_listeners_that_fail_in_one_run_the_first_in_the_models_order_ends_the_turn() {
    let gate = Arc::new(Semaphore::new(0));
    let errors: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = errors.clone();
    let watches = move |_| {
        let kept = kept.clone();
        let seen = move |entry: Arc<dsh_seam::event::Entry>, _depth| {
            if let Event::Error(error) = &entry.event {
                kept.lock().expect("not poisoned").push(error.message.clone());
            }
            async { Ok(()) }.boxed()
        };
        Attached {
            observer: Some(Arc::new(Watches { kinds: vec!["error".into()], seen: Box::new(seen) })),
            ..Attached::default()
        }
    };
    let opens = gate.clone();
    let bench = Bench::new(vec![Answer::Calls(&[("gated", "{}"), ("safe", "{}"), ("ok", "{}")])])
        .with(tools(&gate))
        .with(plugin("bad", Closed, |_| Attached { execute: Some(Arc::new(FailsAfter)), ..Attached::default() }))
        .with(plugin("watches", Closed, watches))
        .on("plugin/failed bad trap", move |_| {
            opens.add_permits(1);
            async {}.boxed()
        });
    check(
        from(&bench.run(&["go"]).await, "tool/call"),
        "
        tool/call c1
        tool/call c2
        plugin/failed bad trap
        plugin/failed bad trap
        tool/result c1 plugin-failed
        tool/result c2 plugin-failed
        tool/call c3
        tool/result c3 skipped
        step/end
        error plugin-failed
        agent/error plugin-failed
        turn/end error plugin-failed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
    assert_eq!(*errors.lock().expect("not poisoned"), ["plugin `bad` failed in `tools/execute`: it broke over c1"]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_ignores_the_abort_is_dropped_after_its_grace_and_the_others_keep_what_they_said() {
    let gate = Arc::new(Semaphore::new(1));
    let calls = &[("stubborn", "{}"), ("gated", "{}"), ("loyal", "{}"), ("gated", "{}"), ("ok", "{}")];
    let bench = Bench::new(vec![Answer::Calls(calls)]).with(tools(&gate));
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let aborted = Instant::now();
    agent.abort("enough");
    gate.add_permits(1);
    agent.idle().await;
    assert_eq!(aborted.elapsed().as_secs(), 5, "the grace of a native tool");
    check(
        from(&bench.transcript(), "tool/call"),
        "
        tool/call c1
        tool/call c2
        tool/call c3
        tool/call c4
        tool/result c1 aborted
        tool/result c2 ok
        tool/result c3 ok
        tool/result c4 ok
        tool/call c5
        tool/result c5 aborted-before-dispatch
        step/end
        turn/end aborted enough
        agent/status idle",
    );
    agent.dispose("done").await;
}

#[tokio::test(start_paused = true)]
async fn an_abort_between_the_results_of_a_run_changes_none_of_them() {
    let bench = Bench::new(vec![Answer::Calls(&[("safe", "{}"), ("safe", "{}"), ("ok", "{}")])])
        .on("tool/result c1 ok", |agent| async move { agent.abort("enough") }.boxed());
    check(
        from(&bench.run(&["go"]).await, "tool/call"),
        "
        tool/call c1
        tool/call c2
        tool/result c1 ok
        tool/result c2 ok
        tool/call c3
        tool/result c3 aborted-before-dispatch
        step/end
        turn/end aborted enough
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

/// Asks about every call of the tool `safe`.
pub struct Asks;

#[async_trait]
impl Guard for Asks {
    async fn check(
        &self,
        _at: StepRef,
        call: &ToolCall,
        _tool: &ToolInfo,
        _cancel: &CancellationToken,
    ) -> Result<Verdict, PluginError> {
        if call.name != "safe" {
            return Ok(Verdict::Abstain);
        }
        Ok(Verdict::Ask(Question { title: "may it?".into(), detail: call.id.clone(), remember: None }))
    }
}

/// Asks about every call, after the longer the earlier the call.
struct AsksLate;

#[async_trait]
impl Guard for AsksLate {
    async fn check(
        &self,
        _at: StepRef,
        call: &ToolCall,
        _tool: &ToolInfo,
        _cancel: &CancellationToken,
    ) -> Result<Verdict, PluginError> {
        let seconds = match call.id.as_str() {
            "c1" => 30,
            "c2" => return Ok(Verdict::Abstain),
            "c3" => 10,
            _ => 0,
        };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(Verdict::Ask(Question { title: "may it?".into(), detail: call.id.clone(), remember: None }))
    }
}

/// A person who says yes, and remembers what to.
#[derive(Default)]
struct Agrees(Mutex<Vec<String>>);

#[async_trait]
impl Approver for Agrees {
    async fn decide(&self, _agent: &AgentInfo, asked: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
        self.0.lock().expect("not poisoned").extend(asked.call_id.clone());
        (ApprovalAnswer::AllowOnce, ApprovalBy::Person)
    }
}

#[tokio::test(start_paused = true)]
async fn questions_come_in_the_order_of_the_calls_however_long_the_guards_take() {
    let (gate, person) = (Arc::new(Semaphore::new(2)), Arc::new(Agrees::default()));
    let calls = &[("gated", "{}"), ("safe", "{}"), ("safe", "{}"), ("gated", "{}"), ("ok", "{}")];
    let mut bench = Bench::new(vec![Answer::Calls(calls), Answer::Text("done")]).with(tools(&gate)).with(plugin(
        "asks",
        Closed,
        |_| Attached { guard: Some(Arc::new(AsksLate)), ..Attached::default() },
    ));
    bench.approver = person.clone();
    bench.run(&["go"]).await;
    assert_eq!(*person.0.lock().expect("not poisoned"), ["c1", "c3", "c4", "c5"]);
}

/// A person who never answers.
pub struct Silent;

#[async_trait]
impl Approver for Silent {
    async fn decide(&self, _agent: &AgentInfo, _asked: &ApprovalAsked) -> (ApprovalAnswer, ApprovalBy) {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_while_one_call_is_asked_about_another_waits_and_a_third_works() {
    let gate = Arc::new(Semaphore::new(0));
    let mut bench = Bench::new(vec![Answer::Calls(&[("loyal", "{}"), ("safe", "{}"), ("safe", "{}"), ("ok", "{}")])])
        .with(tools(&gate))
        .with(plugin("asks", Closed, |_| Attached { guard: Some(Arc::new(Asks)), ..Attached::default() }));
    bench.approver = Arc::new(Silent);
    let agent = bench.held().await;
    agent.send(text("go"), Source::User).expect("room");
    agent.release();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert!(bench.transcript().ends_with("tool/call c3\napproval/asked"), "one question: {}", bench.transcript());
    agent.abort("enough");
    agent.idle().await;
    check(
        from(&bench.transcript(), "approval/asked"),
        "
        approval/asked
        approval/decided
        tool/result c1 ok
        tool/result c2 aborted
        tool/result c3 aborted
        tool/call c4
        tool/result c4 aborted-before-dispatch
        step/end
        turn/end aborted enough
        agent/status idle",
    );
    agent.dispose("done").await;
}
