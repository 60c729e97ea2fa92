//! What one call of a plugin cost and came to, for whoever wants to know: [`EngineOptions::receipts`](crate::EngineOptions).
//!
//! Each call, also one that gets no lease or no instance, gives exactly one [`Receipt`] when it is over, also when it is
//! dropped half way. While nobody listens a call has no [`Meter`], and what would feed it is one branch.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dsh_seam::{AgentId, PluginName, Seam, SessionId, StepRef};
use serde::{Serialize, Serializer};
use tracing::Span;
use tracing::span::Entered;

use crate::bindings::dsh::llm::llm_types;
use crate::clock::CallClock;
use crate::convert;
use crate::fault::{Fault, shorten};
use crate::plugin::Core;
use crate::store::{Call, GuestState};
use crate::words::PluginContext;

/// What one call cost and came to. As JSON: keys in camelCase; times in microseconds with three decimals, their keys ending in `Us`;
/// memory and data in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Receipt {
    /// The call's number, counted from 1 in the order in which calls begin.
    pub number: u64,
    /// The number of the call that it is nested in: one that waited for it, in `next` for example.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<u64>,
    /// Whose.
    pub plugin: PluginName,
    /// On which seam.
    pub seam: Seam,
    /// Which function of the seam.
    pub function: &'static str,
    /// On whose behalf; none while the plugin is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// In which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// In which turn; 0 outside of one.
    pub turn: u32,
    /// In which step; 0 outside of one.
    pub step: u32,
    /// The id of the tool call that it is about, or is nested in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Arc<str>>,
    /// The name of that call's tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Arc<str>>,
    /// When it began, since the run began.
    #[serde(rename = "beginUs", serialize_with = "micros")]
    pub begin: Duration,
    /// From its beginning to its end: the sum of the next four.
    #[serde(rename = "wallUs", serialize_with = "micros")]
    pub wall: Duration,
    /// Making an instance for it; nothing when one was there.
    #[serde(rename = "instanceUs", serialize_with = "micros")]
    pub instance: Duration,
    /// In the guest, and in what the host does for it without waiting: values copied in and out, imports that answer at once.
    #[serde(rename = "guestUs", serialize_with = "micros")]
    pub guest: Duration,
    /// Waiting for the host: imports that wait, files and requests, and its turn on a busy thread.
    #[serde(rename = "hostUs", serialize_with = "micros")]
    pub host: Duration,
    /// In `next`, an approval, a process, a model call or a sub-agent, which have limits of their own.
    #[serde(rename = "excludedUs", serialize_with = "micros")]
    pub excluded: Duration,
    /// The most linear memory that the instance has had so far.
    pub peak_memory: u64,
    /// Texts and byte lists that the guest was given: arguments of its function and results of imports.
    pub bytes_in: u64,
    /// Texts and byte lists that it gave: its result, arguments of imports, its output streams.
    pub bytes_out: u64,
    /// Calls of imports, WASI's among them, as the limit `host-calls` counts them.
    pub host_calls: u32,
    /// What it came to.
    pub verdict: Verdict,
    /// For `tools/execute`: whether it answered with an outcome of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<bool>,
    /// Why, when it did not end well, and what a guard said when it denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn micros<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(as_micros(*time))
}

/// A time in microseconds, with what is below them behind the point.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of 104 days are exact")]
#[must_use]
pub fn as_micros(time: Duration) -> f64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) as f64 / 1_000.0
}

/// What a call came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It returned well.
    Ok,
    /// A guard that has no opinion.
    Abstain,
    /// A guard that wants a person to be asked.
    Ask,
    /// A guard that denies.
    Deny,
    /// It answered a failure, or something the host cannot take.
    Failed,
    /// It broke off.
    Trap,
    /// It passed a limit.
    Limit,
    /// Its turn was aborted, or whoever waited for it gave up.
    Aborted,
}

impl Verdict {
    /// Whether the plugin is to blame.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Trap | Self::Limit)
    }

    /// As receipts write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Abstain => "abstain",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Failed => "failed",
            Self::Trap => "trap",
            Self::Limit => "limit",
            Self::Aborted => "aborted",
        }
    }
}

/// Who gets the receipts.
#[derive(Clone)]
pub struct ReceiptSink {
    /// What times count from.
    pub begun: Instant,
    /// Called at the end of each call, on the thread that drives the agent: it must not wait.
    pub take: Arc<dyn Fn(Receipt) + Send + Sync>,
}

/// The receipts of one engine.
pub(crate) struct Receipts {
    sink: Option<ReceiptSink>,
    made: AtomicU64,
}

impl Receipts {
    pub(crate) fn new(sink: Option<ReceiptSink>) -> Self {
        Self { sink, made: AtomicU64::new(0) }
    }

    /// Whether calls are to be metered: somebody takes receipts, or a subscriber wants spans.
    pub(crate) fn wanted(&self) -> bool {
        self.sink.is_some() || tracing::enabled!(target: "dsh::call", tracing::Level::DEBUG)
    }
}

/// What the call under way on this thread is, for calls nested in it.
struct Here {
    number: u64,
    agent: Option<AgentId>,
    about: Option<About>,
}

/// The tool call that a call is about.
#[derive(Clone)]
pub(crate) struct About {
    pub call_id: Arc<str>,
    pub tool: Arc<str>,
}

thread_local! {
    static HERE: RefCell<Option<Arc<Here>>> = const { RefCell::new(None) };
}

/// What the store counts; left here when the call returns or its instance is dropped.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    peak_memory: AtomicU64,
    host_calls: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

impl Tally {
    /// Writes down what `state` has counted.
    pub(crate) fn note(&self, state: &GuestState) {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        self.peak_memory.store(number(state.limiter.peak()), Ordering::Relaxed);
        self.host_calls.store(state.call.host_calls.into(), Ordering::Relaxed);
        self.bytes_in.store(number(state.call.bytes_in), Ordering::Relaxed);
        self.bytes_out.store(number(state.call.bytes_out.saturating_add(state.output.bytes())), Ordering::Relaxed);
    }
}

/// Measures one call, and hands its receipt in when it is dropped.
pub(crate) struct Meter {
    sink: Option<ReceiptSink>,
    here: Arc<Here>,
    tally: Arc<Tally>,
    clock: Arc<CallClock>,
    span: Span,
    began: Instant,
    /// How long its instance took; none while there is none.
    made: Option<Duration>,
    /// When the guest had returned; what follows is the host's.
    stopped: Option<Duration>,
    receipt: Receipt,
}

/// The meter of a call, if it has one.
#[derive(Default)]
pub(crate) struct Metered(Option<Box<Meter>>);

impl Metered {
    /// A call begins, and the first that it needs is an instance, which `state` belongs to.
    pub(crate) fn begin(receipts: &Receipts, state: &mut GuestState) -> Self {
        Self(Some(Meter::of(receipts, state)))
    }

    /// A call that gets no instance, because of `fault`.
    pub(crate) fn turned_away(
        receipts: &Receipts,
        core: &Core,
        session: &dyn PluginContext,
        call: &Call,
        fault: &Fault,
    ) {
        if receipts.wanted() {
            Self(Some(Meter::new(receipts, core, Some(session), call, Arc::default()))).failed(fault);
        }
    }

    /// The guest is about to be called. A call that its instance was made for has a meter already.
    pub(crate) fn go_on(receipts: &Receipts, state: &mut GuestState) -> Self {
        let Self(Some(mut meter)) = std::mem::take(&mut state.metered) else {
            let mut meter = Meter::of(receipts, state);
            meter.made = Some(Duration::ZERO);
            return Self(Some(meter));
        };
        meter.made = Some(meter.began.elapsed());
        state.call.tally = Some(meter.tally.clone());
        if (meter.receipt.seam, meter.receipt.function) != (state.call.seam, state.call.function) {
            (meter.receipt.seam, meter.receipt.function) = (state.call.seam, state.call.function);
            meter.span = span(&meter.receipt);
        }
        Self(Some(meter))
    }

    /// While this lives, calls that begin on this thread are nested in this one.
    pub(crate) fn enter(&self) -> Option<Scope<'_>> {
        let meter = self.0.as_deref()?;
        let outer = HERE.replace(Some(meter.here.clone()));
        Some(Scope { outer, _entered: meter.span.enter() })
    }

    /// The guest has returned.
    pub(crate) fn stop(&mut self, state: &mut GuestState) {
        if let Some(meter) = &mut self.0 {
            meter.tally.note(state);
            state.call.tally = None;
            meter.receipt.changed = state.call.changed;
            meter.stopped = Some(meter.began.elapsed());
        }
    }

    /// The call gave nothing, because of `fault`.
    pub(crate) fn failed(mut self, fault: &Fault) {
        let Some(meter) = &mut self.0 else { return };
        let (verdict, message) = fault.words();
        meter.receipt.verdict = verdict;
        meter.receipt.message = Some(message);
    }

    /// The call came to `answer`.
    pub(crate) fn answered<T: Answer>(mut self, answer: Result<&T, &llm_types::Failure>) {
        let Some(meter) = &mut self.0 else { return };
        match answer {
            Ok(answer) => {
                meter.receipt.verdict = answer.verdict();
                meter.receipt.message = answer.message().map(shorten);
            }
            Err(failure) => {
                let fault = Fault::answered(&convert::failure_in(failure.clone()));
                self.failed(&fault);
            }
        }
    }
}

impl Meter {
    /// The meter of the call that `state` is for; what is counted there goes into it.
    fn of(receipts: &Receipts, state: &mut GuestState) -> Box<Self> {
        let clock = state.clock.clone();
        let meter = Self::new(receipts, &state.core, state.session.as_deref(), &state.call, clock);
        state.call.tally = Some(meter.tally.clone());
        meter
    }

    fn new(
        receipts: &Receipts,
        core: &Core,
        session: Option<&dyn PluginContext>,
        call: &Call,
        clock: Arc<CallClock>,
    ) -> Box<Self> {
        let began = Instant::now();
        let outer = HERE.with_borrow(Clone::clone);
        let agent = session.map(|session| session.agent().agent.clone());
        let at = match &call.tool {
            Some(tool) => tool.at,
            None => session.map_or(StepRef::default(), |session| session.at()),
        };
        // What is done for a tool call is about it, whoever does it.
        let inherited = || outer.as_deref().filter(|outer| outer.agent == agent)?.about.clone();
        let about = call.about.as_deref().cloned().or_else(inherited);
        let begun = receipts.sink.as_ref().map_or(began, |sink| sink.begun);
        let receipt = Receipt {
            number: receipts.made.fetch_add(1, Ordering::Relaxed) + 1,
            within: outer.as_ref().map(|outer| outer.number),
            plugin: core.name.clone(),
            seam: call.seam,
            function: call.function,
            agent: agent.clone(),
            session: session.map(|session| session.agent().session.clone()),
            turn: at.turn,
            step: at.step,
            call_id: about.as_ref().map(|about| about.call_id.clone()),
            tool: about.as_ref().map(|about| about.tool.clone()),
            begin: began.saturating_duration_since(begun),
            wall: Duration::ZERO,
            instance: Duration::ZERO,
            guest: Duration::ZERO,
            host: Duration::ZERO,
            excluded: Duration::ZERO,
            peak_memory: 0,
            bytes_in: 0,
            bytes_out: 0,
            host_calls: 0,
            verdict: Verdict::Aborted,
            changed: None,
            message: None,
        };
        Box::new(Self {
            sink: receipts.sink.clone(),
            here: Arc::new(Here { number: receipt.number, agent, about }),
            tally: Arc::default(),
            clock,
            span: span(&receipt),
            began,
            made: None,
            stopped: None,
            receipt,
        })
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let wall = self.stopped.unwrap_or_else(|| self.began.elapsed());
        let receipt = &mut self.receipt;
        // Without an instance all was spent on making one.
        let instance = self.made.unwrap_or(wall).min(wall);
        let (waited, excluded) = self.clock.waited();
        let waited = waited.min(wall - instance);
        let excluded = excluded.min(waited);
        (receipt.wall, receipt.instance, receipt.excluded) = (wall, instance, excluded);
        receipt.host = waited - excluded;
        receipt.guest = wall - instance - waited;
        receipt.peak_memory = self.tally.peak_memory.load(Ordering::Relaxed);
        receipt.host_calls = u32::try_from(self.tally.host_calls.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        receipt.bytes_in = self.tally.bytes_in.load(Ordering::Relaxed);
        receipt.bytes_out = self.tally.bytes_out.load(Ordering::Relaxed);
        self.span.record("verdict", receipt.verdict.as_str());
        if let Some(sink) = self.sink.take() {
            (sink.take)(receipt.clone());
        }
    }
}

/// The place of a call on a thread, while it is polled.
pub(crate) struct Scope<'a> {
    outer: Option<Arc<Here>>,
    _entered: Entered<'a>,
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        HERE.set(self.outer.take());
    }
}

/// What a good answer is to a receipt.
pub(crate) trait Answer {
    fn verdict(&self) -> Verdict {
        Verdict::Ok
    }
    fn message(&self) -> Option<&str> {
        None
    }
}

impl<T: Answer> Answer for Result<T, llm_types::Failure> {
    fn verdict(&self) -> Verdict {
        self.as_ref().map_or(Verdict::Failed, Answer::verdict)
    }

    fn message(&self) -> Option<&str> {
        self.as_ref().map_or_else(|failure| Some(&failure.message), Answer::message)
    }
}

impl<T> Answer for Arc<T> {}
impl<T> Answer for Vec<T> {}
impl Answer for () {}
impl Answer for String {}
impl Answer for crate::words::Recovery {}
impl Answer for crate::words::Decision {}
impl Answer for crate::words::Outcome {}

impl Answer for crate::words::Verdict {
    fn verdict(&self) -> Verdict {
        match self {
            Self::Abstain => Verdict::Abstain,
            Self::Ask(_) => Verdict::Ask,
            Self::Deny(_) => Verdict::Deny,
        }
    }

    fn message(&self) -> Option<&str> {
        match self {
            Self::Deny(why) => Some(why),
            Self::Abstain | Self::Ask(_) => None,
        }
    }
}

fn span(receipt: &Receipt) -> Span {
    tracing::debug_span!(
        target: "dsh::call",
        "plugin-call",
        number = receipt.number,
        plugin = %receipt.plugin,
        seam = %receipt.seam,
        function = receipt.function,
        agent = receipt.agent.as_ref().map(AgentId::as_str),
        session = receipt.session.as_ref().map(SessionId::as_str),
        turn = receipt.turn,
        step = receipt.step,
        call_id = receipt.call_id.as_deref(),
        tool = receipt.tool.as_deref(),
        verdict = tracing::field::Empty,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_microseconds_with_a_point() {
        assert_eq!(as_micros(Duration::from_nanos(1_234_567)), 1_234.567);
        assert_eq!(as_micros(Duration::ZERO), 0.0);
    }
}
