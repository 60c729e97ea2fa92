//! A plugin as part of one agent's life: leases of instances, and the traits of the seams over them.
//!
//! A call takes an idle instance by value or makes one; a nested call takes another. It is put back only after a good return, and all are
//! dropped at the end of the turn. Observer and flush share one instance of their own until the session is detached. No lock is held while
//! a guest runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use wasmtime::component::Resource;

use crate::bindings::dsh::llm::llm_types;
use crate::bindings::dsh::tools::tool_types;
use crate::carried::Carried;
use crate::convert;
use crate::fault::{Bound, Fault};
use crate::handles::{ExecuteNext, LlmRequest, RequestErrorNext, RequestNext, StepResultNext, TurnContinuationNext};
use crate::heavy;
use crate::imports::passed_on;
use crate::instance::{Armed, Instance, Mold, Returned, Terms};
use crate::lists::Lists;
use crate::observing::Observing;
use crate::receipt::{self, About, Metered};
use crate::scene;
use crate::store::Call;
use crate::words::{
    Attached, Decision, Execution, Guard, Lifecycle, Listener, Message, Next, Outcome, PluginContext, PluginError,
    Profile, Recovery, Request, RequestDraft, RequestError, RunContext, Seam, Section, Sections, StepRef, StepResult,
    ToolCall, ToolContext, ToolDefinition, ToolInfo, ToolProvider, ToolsExecute, TurnContinuation, Verdict,
};

/// The code of a call that an abort of the turn ended.
const ABORTED: &str = "aborted";

/// What a guest function that can fail returns.
type Answered<T> = Result<T, llm_types::Failure>;

/// One plugin, attached to one agent.
pub(crate) struct Attachment {
    pub(crate) mold: Arc<Mold>,
    pub(crate) context: Arc<dyn PluginContext>,
    tools: Arc<[ToolDefinition]>,
    pub(crate) kinds: Arc<[String]>,
    leases: Mutex<Leases>,
    pub(crate) observing: Mutex<Observing>,
}

/// The instances that wait for a call of this turn, and how many are out.
#[derive(Default)]
struct Leases {
    #[expect(clippy::vec_box, reason = "an instance goes into every call by value, and a pointer is cheaper to move")]
    idle: Vec<Box<Instance>>,
    out: u32,
    /// Counts turns; an instance of an earlier one is not put back.
    turn: u64,
}

/// One of an attachment's leases; given back when it is dropped.
struct Lease<'a> {
    leases: &'a Mutex<Leases>,
    turn: u64,
    /// The instance to put back.
    instance: Option<Box<Instance>>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // One that is not put back is dropped after the lock.
        let mut instance = self.instance.take();
        let mut leases = locked(self.leases);
        leases.out -= 1;
        if self.turn == leases.turn {
            leases.idle.extend(instance.take());
        }
    }
}

fn locked(leases: &Mutex<Leases>) -> MutexGuard<'_, Leases> {
    leases.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attachment {
    pub(crate) fn new(
        mold: Arc<Mold>,
        tools: Arc<[ToolDefinition]>,
        kinds: Arc<[String]>,
        context: Arc<dyn PluginContext>,
    ) -> Arc<Self> {
        Arc::new(Self { mold, context, tools, kinds, leases: Mutex::default(), observing: Mutex::default() })
    }

    /// This attachment in each of `seams`.
    pub(crate) fn attached(self: Arc<Self>, seams: &[Seam]) -> Attached {
        let mut attached = Attached { lifecycle: Some(self.clone()), ..Attached::default() };
        for seam in seams {
            match seam {
                Seam::Request => attached.request = Some(self.clone()),
                Seam::RequestError => attached.request_error = Some(self.clone()),
                Seam::StepResult => attached.step_result = Some(self.clone()),
                Seam::TurnContinuation => attached.turn_continuation = Some(self.clone()),
                Seam::Execute => attached.execute = Some(self.clone()),
                Seam::Guard => attached.guard = Some(self.clone()),
                Seam::Provider => attached.provider = Some(self.clone()),
                Seam::Observer => attached.observer = Some(self.clone()),
                Seam::Flush => attached.flush = Some(self.clone()),
                Seam::Section => attached.sections = Some(self.clone()),
                Seam::Configure => {}
            }
        }
        attached
    }

    /// A lease, and an idle instance if there is one and any will do.
    fn lease(&self, any: bool) -> Result<(Lease<'_>, Option<Box<Instance>>), Fault> {
        let most = self.mold.core.limits.leases;
        let mut leases = locked(&self.leases);
        if leases.out >= most {
            return Err(Fault::Limit(Bound::Leases(most).to_string()));
        }
        leases.out += 1;
        let waiting = if any { leases.idle.pop() } else { None };
        Ok((Lease { leases: &self.leases, turn: leases.turn, instance: None }, waiting))
    }

    /// A call that gets no lease has a receipt too.
    #[cold]
    fn turned_away(&self, call: &Call, fault: Fault) -> Fault {
        let Mold { engine, core, .. } = &*self.mold;
        Metered::turned_away(&engine.receipts, core, &*self.context, call, &fault);
        scene::tell_failed(core, call.seam, &fault);
        fault
    }

    /// Calls the guest in an instance of this turn and reads its answer. Only an answer that can be read and is no failure commits the
    /// state that the call set; an instance whose answer is ill-formed is not used again.
    async fn run<T, U, Fut>(
        &self,
        terms: Terms<'_>,
        body: impl FnOnce(Box<Instance>) -> Fut,
        read: impl FnOnce(T) -> Result<U, Fault> + Send + 'static,
    ) -> Result<Answered<U>, Fault>
    where
        T: Carried + Lists + Send + 'static,
        U: receipt::Answer + Send + 'static,
        Fut: Future<Output = (Box<Instance>, wasmtime::Result<Answered<T>>)>,
    {
        // Under a narrowed profile an instance sees other files and variables, so it is made for the call.
        let profile =
            terms.call.tool.as_ref().map(|tool| tool.profile.clone()).filter(|profile| !profile.is_unrestricted());
        let narrowed = profile.is_some();
        let (mut lease, waiting) = match self.lease(!narrowed) {
            Ok(lease) => lease,
            Err(fault) => return Err(self.turned_away(&terms.call, fault)),
        };
        let armed = match waiting {
            Some(instance) => self.mold.arm(instance, terms),
            None => Box::pin(self.fresh(terms, profile)).await?,
        };
        let Returned { value, mut instance, reusable, metered } = self.mold.call(armed, body).await?;
        let value = match value {
            Ok(answer) => match self.understood(answer, read).await {
                Ok(answer) => Ok(answer),
                Err(fault) => {
                    metered.failed(&fault);
                    return Err(fault);
                }
            },
            Err(failure) => Err(failure),
        };
        let (changes, depth) = self.changes(&mut instance, value.is_ok());
        if reusable && !narrowed {
            lease.instance = Some(instance);
        }
        if !changes.is_empty()
            && let Err(fault) = Box::pin(self.commit(changes, depth)).await
        {
            metered.failed(&fault);
            return Err(fault);
        }
        metered.answered(value.as_ref());
        Ok(value)
    }

    /// Reads an answer, unless its lists are too long.
    async fn understood<T, U>(
        &self,
        answer: T,
        read: impl FnOnce(T) -> Result<U, Fault> + Send + 'static,
    ) -> Result<U, Fault>
    where
        T: Carried + Lists + Send + 'static,
        U: Send + 'static,
    {
        let longest = Bound::check_lists(&answer, &self.mold.core.limits);
        let longest = longest.map_err(|bound| Fault::Limit(bound.to_string()))?;
        heavy::done(heavy::weight(&answer, longest), move || read(answer)).await
    }

    /// A new instance, ready to be called.
    async fn fresh<'a>(&self, terms: Terms<'a>, profile: Option<Arc<Profile>>) -> Result<Armed<'a>, Fault> {
        let session = Some(self.context.clone());
        let instance = self.mold.instantiate(session, profile, &terms).await?;
        Ok(self.mold.arm(instance, terms))
    }

    /// What the call set, if it may stay.
    pub(crate) fn changes(
        &self,
        instance: &mut Instance,
        good: bool,
    ) -> (Vec<(String, Option<serde_json::Value>)>, u32) {
        let call = &mut instance.store.data_mut().call;
        if call.pending.is_empty() || !good {
            call.pending = Default::default();
            return (Vec::new(), call.depth);
        }
        (call.pending.take(&*self.context), call.depth)
    }

    pub(crate) async fn commit(
        &self,
        changes: Vec<(String, Option<serde_json::Value>)>,
        depth: u32,
    ) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
        let committed = self.context.commit_state(changes, depth).await;
        committed
            .map_err(|failure| Fault::error(format!("what it set in its state could not be kept: {}", failure.message)))
    }

    pub(crate) fn error(&self, seam: Seam, fault: Fault) -> PluginError {
        // What the engine ended has been told, with its backtrace.
        if matches!(fault, Fault::Overtime(_) | Fault::Error { .. }) {
            scene::tell_failed(&self.mold.core, seam, &fault);
        }
        fault.into_error(&self.mold.core.name, seam)
    }

    /// The terms of a call that is no tool's.
    fn terms<'a>(&self, seam: Seam, cancel: &'a CancellationToken) -> Terms<'a> {
        Terms::new(&self.mold.core, Call::new(seam), false, Some(cancel))
    }

    /// The same for a call that is about a tool call.
    fn terms_about<'a>(&self, seam: Seam, cancel: &'a CancellationToken, call: &ToolCall) -> Terms<'a> {
        let call = Call { about: self.about(call), ..Call::new(seam) };
        Terms::new(&self.mold.core, call, false, Some(cancel))
    }

    /// The tool call for a receipt, if anybody wants one.
    fn about(&self, call: &ToolCall) -> Option<Box<About>> {
        let wanted = self.mold.engine.receipts.wanted();
        wanted.then(|| Box::new(About { call_id: call.id.as_str().into(), tool: call.name.as_str().into() }))
    }

    /// A failure where one is not an answer but a failing.
    fn settled<T>(&self, seam: Seam, answer: Result<Answered<T>, Fault>) -> Result<T, PluginError> {
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(failure)) => Err(self.error(seam, Fault::answered(&convert::failure_in(failure)))),
            Err(fault) => Err(self.error(seam, fault)),
        }
    }
}

/// The functions of a seam that is attached.
pub(crate) fn guest<G>(guest: &Option<G>) -> &G {
    guest.as_ref().expect("invariant: only exported seams are attached and asked")
}

#[async_trait]
impl Listener<Request> for Attachment {
    async fn handle(
        &self,
        cx: &RunContext<Request>,
        draft: Arc<RequestDraft>,
        next: Next<Request>,
    ) -> Result<(), PluginError> {
        let at = convert::step(cx.at);
        let answer = self.run(
            self.terms(Seam::Request, &cx.cancel),
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                let handles = &mut store.data_mut().handles;
                let answer = match (handles.give(LlmRequest(draft.clone())), handles.give(RequestNext(next, draft))) {
                    (Ok(request), Ok(next)) => guest(&guests.request).call_handle(store, at, request, next).await,
                    (Err(error), _) | (_, Err(error)) => Err(wasmtime::Error::new(error)),
                };
                (it, answer)
            },
            Ok,
        );
        self.settled(Seam::Request, answer.await)
    }
}

#[async_trait]
impl Listener<RequestError> for Attachment {
    async fn handle(
        &self,
        cx: &RunContext<RequestError>,
        _value: (),
        next: Next<RequestError>,
    ) -> Result<Recovery, PluginError> {
        let (at, failed) = (convert::step(cx.at), convert::request_failure(&cx.about.failed));
        let answer = self.run(
            self.terms(Seam::RequestError, &cx.cancel),
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                store.data_mut().given(&failed);
                let answer = match store.data_mut().handles.give(RequestErrorNext(next, cx.about.clone())) {
                    Ok(next) => guest(&guests.request_error).call_handle(store, at, &failed, next).await,
                    Err(error) => Err(wasmtime::Error::new(error)),
                };
                (it, answer)
            },
            |answer| Ok(convert::recovery_in(answer)),
        );
        self.settled(Seam::RequestError, answer.await)
    }
}

#[async_trait]
impl Listener<StepResult> for Attachment {
    async fn handle(
        &self,
        cx: &RunContext<StepResult>,
        given: Arc<Message>,
        next: Next<StepResult>,
    ) -> Result<Arc<Message>, PluginError> {
        let at = convert::step(cx.at);
        let message = convert::message(&given);
        let answer = self.run(
            self.terms(Seam::StepResult, &cx.cancel),
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                store.data_mut().given(&message);
                let answer = match store.data_mut().handles.give(StepResultNext(next, given)) {
                    Ok(next) => {
                        let known = next.rep();
                        let answer = guest(&guests.step_result).call_handle(&mut *store, at, &message, next).await;
                        let known = Resource::<StepResultNext>::new_borrow(known);
                        // Gone when the guest dropped its `next`; then every answer counts as a new message, and is compared by the loop.
                        let known = store.data_mut().handles.get(&known).map(|known| known.1.clone()).ok();
                        answer.map(|answer| answer.map(|message| (message, known)))
                    }
                    Err(error) => Err(wasmtime::Error::new(error)),
                };
                (it, answer)
            },
            |(message, known)| {
                let message = match known {
                    Some(known) => passed_on("message", message, &known),
                    None => convert::message_in("message", message).map(Arc::new),
                };
                message.map_err(|ill| Fault::ill_formed(&ill))
            },
        );
        self.settled(Seam::StepResult, answer.await)
    }
}

#[async_trait]
impl Listener<TurnContinuation> for Attachment {
    async fn handle(
        &self,
        cx: &RunContext<TurnContinuation>,
        proposal: Decision,
        next: Next<TurnContinuation>,
    ) -> Result<Decision, PluginError> {
        let (at, summary, proposal) =
            (convert::step(cx.at), convert::step_summary(&cx.about), convert::decision(&proposal));
        let answer = self.run(
            self.terms(Seam::TurnContinuation, &cx.cancel),
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                store.data_mut().given(&(&summary, &proposal));
                let answer = match store.data_mut().handles.give(TurnContinuationNext(next)) {
                    Ok(next) => {
                        guest(&guests.turn_continuation).call_handle(store, at, &summary, &proposal, next).await
                    }
                    Err(error) => Err(wasmtime::Error::new(error)),
                };
                (it, answer)
            },
            |answer| Ok(convert::decision_in(answer)),
        );
        self.settled(Seam::TurnContinuation, answer.await)
    }
}

#[async_trait]
impl Listener<ToolsExecute> for Attachment {
    async fn handle(
        &self,
        cx: &RunContext<ToolsExecute>,
        given: Execution,
        next: Next<ToolsExecute>,
    ) -> Result<Arc<Outcome>, PluginError> {
        let at = convert::step(cx.at);
        let call = convert::tool_call(&given.call);
        let tool = (cx.about.find)(&given.call.name).as_ref().map(convert::tool_info);
        let terms = self.terms_about(Seam::Execute, &cx.cancel, &given.call);
        let core = self.mold.core.clone();
        let behind = ExecuteNext { next, profile: given.profile.clone(), given };
        let asked = &call;
        let answer = self.run(
            terms,
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                store.data_mut().given(&(asked, &tool));
                let answer = match store.data_mut().handles.give(behind) {
                    Ok(next) => guest(&guests.execute).call_handle(&mut *store, at, asked, tool.as_ref(), next).await,
                    Err(error) => Err(wasmtime::Error::new(error)),
                };
                // The outcome behind a handle is taken while the handle is alive.
                let answer = answer.and_then(|answer| match answer {
                    Ok(tool_types::Answer::Pass(handle)) => {
                        let outcome = store.data_mut().handles.get(&handle)?.0.clone();
                        let state = store.data_mut();
                        state.handles.dropped(handle.rep());
                        state.call.changed = Some(false);
                        Ok(Ok(Answer::Passed(outcome)))
                    }
                    Ok(tool_types::Answer::Replace(outcome)) => {
                        store.data_mut().call.changed = Some(true);
                        Ok(Ok(Answer::New(outcome)))
                    }
                    Err(failure) => Ok(Err(failure)),
                });
                (it, answer)
            },
            move |answer| match answer {
                Answer::Passed(outcome) => Ok(outcome),
                Answer::New(outcome) => {
                    let name = &core.name;
                    let outcome = convert::outcome_in(name, outcome, false).map_err(|ill| Fault::ill_formed(&ill))?;
                    Ok(Arc::new(outcome.by(name.clone())))
                }
            },
        );
        let settled = self.settled(Seam::Execute, answer.await);
        if settled.is_err() {
            scene::tell_call(&self.mold.core, &call);
        }
        settled
    }
}

/// What a listener of `tools/execute` answered.
enum Answer {
    Passed(Arc<Outcome>),
    New(tool_types::Outcome),
}

impl Lists for Answer {
    fn longest(&self) -> usize {
        match self {
            Self::Passed(_) => 0,
            Self::New(outcome) => outcome.longest(),
        }
    }
}

impl Carried for Answer {
    fn bytes(&self) -> usize {
        match self {
            Answer::Passed(_) => 0,
            Answer::New(outcome) => outcome.bytes(),
        }
    }
}

#[async_trait]
impl Guard for Attachment {
    async fn check(
        &self,
        at: StepRef,
        call: &ToolCall,
        tool: &ToolInfo,
        cancel: &CancellationToken,
    ) -> Result<Verdict, PluginError> {
        let terms = self.terms_about(Seam::Guard, cancel, call);
        let (at, call, tool) = (convert::step(at), convert::tool_call(call), convert::tool_info(tool));
        let asked = &call;
        let answer = self.run(
            terms,
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                store.data_mut().given(&(asked, &tool));
                let answer = guest(&guests.guard).call_check(store, at, asked, &tool).await;
                (it, answer)
            },
            |answer| Ok(convert::verdict_in(answer)),
        );
        let settled = self.settled(Seam::Guard, answer.await);
        if settled.is_err() {
            scene::tell_call(&self.mold.core, &call);
        }
        settled
    }
}

#[async_trait]
impl ToolProvider for Attachment {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.tools
    }

    async fn call(&self, cx: &ToolContext, call: ToolCall) -> Result<Outcome, PluginError> {
        let about = self.about(&call);
        let (at, call) = (convert::step(cx.at), convert::tool_call(&call));
        let refused = Arc::new(AtomicBool::new(false));
        let tool = Some(Box::new(cx.clone()));
        let (core, was_refused) = (self.mold.core.clone(), refused.clone());
        let of_call = Call { tool, refused: Some(refused.clone()), about, ..Call::new(Seam::Provider) };
        let mut terms = Terms::new(&self.mold.core, of_call, true, Some(&cx.cancel));
        let timeout = profile_timeout(&cx.profile).filter(|timeout| *timeout < terms.budget.wall);
        if let Some(timeout) = timeout {
            terms.budget.wall = timeout;
        }
        let asked = &call;
        let answer = self.run(
            terms,
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                store.data_mut().given(asked);
                let answer = guest(&guests.provider).call_call_tool(store, at, asked).await;
                (it, answer)
            },
            move |outcome| {
                let refused = was_refused.load(Ordering::Relaxed);
                convert::outcome_in(&core.name, outcome, refused).map_err(|ill| Fault::ill_formed(&ill))
            },
        );
        let name = &self.mold.core.name;
        match answer.await {
            Ok(Ok(outcome)) => Ok(outcome),
            // What the host refused to go on with after an abort keeps its code when it is handed on.
            Ok(Err(failure)) if failure.code == ABORTED && cx.cancel.is_cancelled() => {
                Ok(Outcome::error(ABORTED, failure.message))
            }
            // To the model, a failure is the same as an outcome with `is-error` and that code.
            Ok(Err(failure)) => Ok(Outcome::error(
                convert::outcome_code(name, Some(&failure.code), refused.load(Ordering::Relaxed)),
                failure.message,
            )),
            Err(Fault::Aborted) => Ok(Outcome::error(ABORTED, "the turn was aborted and the tool was stopped")),
            Err(Fault::Overtime(_)) if timeout.is_some() => {
                let ms = timeout.unwrap_or_default().as_millis();
                Ok(Outcome::error("timed-out", format!("the tool was stopped after {ms} ms, the limit of its profile")))
            }
            Err(fault) => {
                let error = self.error(Seam::Provider, fault);
                scene::tell_call(&self.mold.core, &call);
                Err(error)
            }
        }
    }
}

fn profile_timeout(profile: &Profile) -> Option<Duration> {
    profile.timeout_ms.map(|ms| Duration::from_millis(ms.into()))
}

#[async_trait]
impl Sections for Attachment {
    async fn sections(&self, at: StepRef, cancel: &CancellationToken) -> Result<Vec<Section>, PluginError> {
        let at = convert::step(at);
        let answer = self.run(
            self.terms(Seam::Section, cancel),
            |mut it| async move {
                let Instance { store, guests, .. } = &mut *it;
                let answer = guest(&guests.section).call_sections(store, at).await;
                (it, answer)
            },
            |parts| Ok(parts.into_iter().map(convert::part_in).collect()),
        );
        self.settled(Seam::Section, answer.await)
    }
}

impl Lifecycle for Attachment {
    fn turn_ended(&self) {
        let idle = {
            let mut leases = locked(&self.leases);
            leases.turn += 1;
            std::mem::take(&mut leases.idle)
        };
        drop(idle);
    }

    fn detached(&self) {
        self.turn_ended();
        self.observing().close();
    }
}
