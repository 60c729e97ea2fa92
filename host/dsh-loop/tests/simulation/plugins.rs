//! Native plugins on every seam, each of which does what the run's chance says.

use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::StepRef;
use dsh_seam::event::Entry;
use dsh_seam::failure::{FailureKind, FailureMode, PluginError, Seam};
use dsh_seam::ids::PluginName;
use dsh_seam::llm::GenerateRequest;
use dsh_seam::message::{ContentBlock, Message, Sampling, ToolCall};
use dsh_seam::plugin::{Attached, Lifecycle, Plugin, PluginContext};
use dsh_seam::session::{Flush, FlushError, Observer, Section, Sections};
use dsh_seam::tools::{
    Annotations, Guard, Outcome, Question, ToolContext, ToolDefinition, ToolInfo, ToolProvider, Verdict,
};
use dsh_seam::waterfall::{Listener, Next, RunContext, Waterfall};
use dsh_seam::waterfalls::{
    Decision, Execution, Recovery, Request, RequestError, StepResult, ToolsExecute, TurnContinuation,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::chaos::Chaos;
use crate::plan::{Fault, PluginPlan};

/// A plugin of a run. `alive` is shared by all its parts in an agent's life, so that it can be seen when the last one is gone.
pub struct AnyPlugin {
    pub plan: PluginPlan,
    pub chaos: Arc<Chaos>,
    pub alive: Arc<()>,
    pub outermost: bool,
    name: PluginName,
}

impl AnyPlugin {
    pub fn new(plan: PluginPlan, chaos: Arc<Chaos>, alive: Arc<()>, outermost: bool) -> Self {
        let name = PluginName::new(plan.name.as_str()).expect("valid");
        Self { plan, chaos, alive, outermost, name }
    }
}

impl Plugin for AnyPlugin {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn failure_mode(&self) -> FailureMode {
        self.plan.mode
    }

    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached {
        self.chaos.keep(context.clone());
        let part = Arc::new(Part {
            name: self.name.clone(),
            chaos: self.chaos.clone(),
            context,
            outermost: self.outermost,
            _alive: self.alive.clone(),
        });
        let PluginPlan { listens, guards, observes, flushes, has_sections, .. } = self.plan;
        Attached {
            request: listens.then(|| part.clone() as Arc<dyn Listener<Request>>),
            request_error: listens.then(|| part.clone() as Arc<dyn Listener<RequestError>>),
            step_result: listens.then(|| part.clone() as Arc<dyn Listener<StepResult>>),
            execute: listens.then(|| part.clone() as Arc<dyn Listener<ToolsExecute>>),
            turn_continuation: listens.then(|| part.clone() as Arc<dyn Listener<TurnContinuation>>),
            guard: guards.then(|| part.clone() as Arc<dyn Guard>),
            observer: observes.then(|| part.clone() as Arc<dyn Observer>),
            flush: flushes.then(|| part.clone() as Arc<dyn Flush>),
            sections: has_sections.then(|| part.clone() as Arc<dyn Sections>),
            lifecycle: Some(part),
            ..Attached::default()
        }
    }
}

/// What a plugin is in one agent's life.
struct Part {
    name: PluginName,
    chaos: Arc<Chaos>,
    context: Arc<dyn PluginContext>,
    outermost: bool,
    _alive: Arc<()>,
}

impl Part {
    fn broken(&self, seam: Seam) -> PluginError {
        PluginError { plugin: self.name.clone(), seam, kind: FailureKind::Trap, message: "it broke".into(), code: None }
    }

    /// Does something of its own inside of a call: an abort may drop it half way. Refusals are no failure here.
    async fn acts(&self) {
        let question = Question { title: "may I?".into(), detail: "for myself".into(), remember: None };
        let request = GenerateRequest {
            model: None,
            system: None,
            messages: vec![Message::user(vec![ContentBlock::text("and you?")])],
            tools: Vec::new(),
            sampling: Sampling::default(),
        };
        match self.chaos.below(4) {
            0 => drop(self.context.ask(question).await),
            1 => drop(self.context.generate(request).await),
            2 => drop(self.context.append_log("note", json!({}), 0).await),
            _ => self.chaos.say_as_plugin(Fault::Inject, &*self.context).await,
        }
    }

    fn place(&self, seam: Seam) -> String {
        format!("{} in {seam}", self.name)
    }
}

/// What a listener may answer of its own.
trait Own: Waterfall {
    /// In the place of the rest.
    fn own(value: &Self::Value, chaos: &Chaos) -> Self::Outcome;
    /// A change of what it hands on.
    fn inward(value: Self::Value) -> Self::Value {
        value
    }
    /// A change of what the rest answered.
    fn outward(outcome: Self::Outcome, chaos: &Chaos) -> Self::Outcome;
}

impl Own for Request {
    fn own(_: &Self::Value, _: &Chaos) {}
    fn outward((): (), _: &Chaos) {}
}

impl Own for RequestError {
    fn own((): &(), chaos: &Chaos) -> Recovery {
        if chaos.below(3) == 0 { Recovery::GiveUp } else { Recovery::RetryAfterMs(chaos.below(5_000)) }
    }
    fn outward(_: Recovery, chaos: &Chaos) -> Recovery {
        Self::own(&(), chaos)
    }
}

impl Own for StepResult {
    fn own(message: &Arc<Message>, _: &Chaos) -> Arc<Message> {
        message.clone()
    }
    fn outward(message: Arc<Message>, chaos: &Chaos) -> Arc<Message> {
        let mut message = Arc::unwrap_or_clone(message);
        if chaos.below(2) == 0 {
            message.content.push(ContentBlock::text("added"));
        } else {
            message.content.pop();
        }
        Arc::new(message)
    }
}

impl Own for ToolsExecute {
    fn own(_: &Execution, _: &Chaos) -> Arc<Outcome> {
        Arc::new(Outcome::text("answered by a listener"))
    }
    fn inward(mut execution: Execution) -> Execution {
        execution.call.arguments = r#"{"changed":true}"#.into();
        execution
    }
    fn outward(_: Arc<Outcome>, _: &Chaos) -> Arc<Outcome> {
        Arc::new(Outcome::text("rewritten"))
    }
}

impl Own for TurnContinuation {
    fn own(_: &Decision, chaos: &Chaos) -> Decision {
        match chaos.below(6) {
            0 | 1 => Decision::Stop,
            2 => Decision::OutOfBudget("spent".into()),
            3 => Decision::Proceed(None),
            _ => Decision::Proceed(Some("proceed".into())),
        }
    }
    fn outward(decision: Decision, chaos: &Chaos) -> Decision {
        Self::own(&decision, chaos)
    }
}

#[async_trait]
impl<W: Own> Listener<W> for Part {
    async fn handle(&self, _: &RunContext<W>, value: W::Value, next: Next<W>) -> Result<W::Outcome, PluginError> {
        let (chaos, place) = (&self.chaos, self.place(W::SEAM));
        chaos.note("listener begins", json!({"plugin": self.name, "waterfall": W::SEAM, "outermost": self.outermost}));
        chaos.point(&place).await;
        if chaos.strikes(Fault::ListenerActs, &place) {
            self.acts().await;
        }
        if chaos.strikes(Fault::ListenerFails, &place) {
            return Err(self.broken(W::SEAM));
        }
        if chaos.strikes(Fault::ListenerHangs, &place) {
            std::future::pending::<()>().await;
        }
        if chaos.strikes(Fault::ListenerVetoes, &place) {
            return Ok(W::own(&value, chaos));
        }
        let changes = chaos.strikes(Fault::ListenerChanges, &place);
        let value = if changes && chaos.below(2) == 0 { W::inward(value) } else { value };
        let mut outcome = next.run(value.clone()).await;
        chaos.point(&place).await;
        if chaos.strikes(Fault::ListenerRunsTwice, &place) {
            outcome = next.run(value).await;
            chaos.point(&place).await;
        }
        if chaos.strikes(Fault::ListenerFailsAfter, &place) {
            return Err(self.broken(W::SEAM));
        }
        let outcome = outcome.map_err(|_| self.broken(W::SEAM))?;
        Ok(if changes { W::outward(outcome, chaos) } else { outcome })
    }
}

#[async_trait]
impl Guard for Part {
    async fn check(
        &self,
        _: StepRef,
        call: &ToolCall,
        _: &ToolInfo,
        _: &CancellationToken,
    ) -> Result<Verdict, PluginError> {
        let (chaos, place) = (&self.chaos, self.place(Seam::Guard));
        chaos.point(&place).await;
        if chaos.strikes(Fault::GuardFails, &place) {
            return Err(self.broken(Seam::Guard));
        }
        if chaos.strikes(Fault::GuardHangs, &place) {
            std::future::pending::<()>().await;
        }
        if chaos.strikes(Fault::GuardDenies, &place) {
            return Ok(Verdict::Deny("no".into()));
        }
        if chaos.strikes(Fault::GuardAsks, &place) {
            let remember = (chaos.below(2) == 0).then(|| call.name.clone());
            return Ok(Verdict::Ask(Question { title: "may it?".into(), detail: call.id.clone(), remember }));
        }
        Ok(Verdict::Abstain)
    }
}

#[async_trait]
impl Sections for Part {
    async fn sections(&self, _: StepRef, _: &CancellationToken) -> Result<Vec<Section>, PluginError> {
        let (chaos, place) = (&self.chaos, self.place(Seam::Section));
        chaos.point(&place).await;
        if chaos.strikes(Fault::SectionFails, &place) {
            return Err(self.broken(Seam::Section));
        }
        if chaos.strikes(Fault::SectionHangs, &place) {
            std::future::pending::<()>().await;
        }
        Ok(vec![Section { name: "s".into(), order: 0, text: "be brief".into() }])
    }
}

#[async_trait]
impl Observer for Part {
    fn kinds(&self) -> &[String] {
        &[]
    }

    async fn on_entries(&self, entries: &[Arc<Entry>], depth: u32) -> Result<(), PluginError> {
        let (chaos, place) = (&self.chaos, self.place(Seam::Observer));
        chaos.point(&place).await;
        if chaos.strikes(Fault::ObserverFails, &place) {
            return Err(self.broken(Seam::Observer));
        }
        if chaos.strikes(Fault::ObserverHangs, &place) {
            std::future::pending::<()>().await;
        }
        let own = entries.iter().any(|entry| matches!(&entry.event, dsh_seam::event::Event::Foreign(_)));
        if !own && chaos.strikes(Fault::ObserverActs, &place) {
            // Refusals are what a plugin gets at the end of an agent's life; here they are no failure.
            let _ = match chaos.below(3) {
                0 => self.context.append_log("note", json!({}), depth + 1).await.map(drop),
                1 => self.context.commit_state(vec![("k".into(), Some(json!(depth)))], depth + 1).await,
                _ => {
                    chaos.clone().act(chaos.pick(&[Fault::Send, Fault::Steer, Fault::Inject])).await;
                    Ok(())
                }
            };
        }
        Ok(())
    }
}

#[async_trait]
impl Flush for Part {
    async fn flush(&self) -> Result<(), FlushError> {
        let (chaos, place) = (&self.chaos, self.place(Seam::Flush));
        chaos.point(&place).await;
        if chaos.strikes(Fault::PluginFlushFails, &place) {
            return Err(self.broken(Seam::Flush).into());
        }
        if chaos.strikes(Fault::PluginFlushHangs, &place) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

impl Lifecycle for Part {
    fn turn_ended(&self) {
        self.chaos.note("told of the turn's end", json!(self.name));
    }

    fn detached(&self) {
        self.chaos.note("detached", json!(self.name));
    }
}

/// The plugin with the tools `plain`, `safe` and `safe2`; the last two may run beside each other.
pub struct SomeTools {
    chaos: Arc<Chaos>,
    alive: Arc<()>,
    name: PluginName,
}

/// The tools that may run beside their neighbours.
pub const SAFE_TOOLS: [&str; 2] = ["safe", "safe2"];

impl SomeTools {
    pub fn new(chaos: Arc<Chaos>, alive: Arc<()>) -> Self {
        Self { chaos, alive, name: PluginName::new("tools").expect("valid") }
    }
}

impl Plugin for SomeTools {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn failure_mode(&self) -> FailureMode {
        FailureMode::Closed
    }

    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached {
        self.chaos.keep(context);
        let tool = |name: &str| ToolDefinition {
            name: name.into(),
            description: String::new(),
            parameters: json!({"type": "object"}),
            annotations: Annotations { parallel_safe: SAFE_TOOLS.contains(&name), ..Annotations::default() },
        };
        let tools = ["plain", SAFE_TOOLS[0], SAFE_TOOLS[1]].map(tool).to_vec();
        let provider =
            Provider { chaos: self.chaos.clone(), name: self.name.clone(), tools, _alive: self.alive.clone() };
        Attached { provider: Some(Arc::new(provider)), ..Attached::default() }
    }
}

struct Provider {
    chaos: Arc<Chaos>,
    name: PluginName,
    tools: Vec<ToolDefinition>,
    _alive: Arc<()>,
}

#[async_trait]
impl ToolProvider for Provider {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.tools
    }

    async fn call(&self, cx: &ToolContext, call: ToolCall) -> Result<Outcome, PluginError> {
        let (chaos, place) = (&self.chaos, format!("tool {}", call.id));
        chaos.note("tool begins", json!({"callId": call.id}));
        chaos.point(&place).await;
        if chaos.below(4) == 0 {
            cx.progress.report("half way", Some(0.5));
            chaos.point(&place).await;
        }
        if chaos.strikes(Fault::ToolBreaks, &place) {
            return Err(PluginError {
                plugin: self.name.clone(),
                seam: Seam::Provider,
                kind: FailureKind::Trap,
                message: "it broke".into(),
                code: None,
            });
        }
        if chaos.strikes(Fault::ToolIgnoresCancel, &place) {
            std::future::pending::<()>().await;
        }
        if chaos.strikes(Fault::ToolHangs, &place) {
            cx.cancel.cancelled().await;
            chaos.point(&place).await;
            return Ok(Outcome::error("aborted", "aborted"));
        }
        if chaos.strikes(Fault::ToolFails, &place) {
            return Ok(Outcome::error("tool-failed", "it did not work"));
        }
        Ok(Outcome::text("done"))
    }
}

/// The source of what a listener says.
pub fn is_from_continuation(text: &str) -> bool {
    text == "proceed"
}
