//! One instance of a plugin in a store of its own, and the one way in which a guest is called: with both clocks armed, the output
//! bounded, and the instance discarded unless the call returned well.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use wasmtime::{Store, UpdateDeadline};

use crate::clock::CallClock;
use crate::engine::Inner;
use crate::fault::Fault;
use crate::guests::{Guests, Indices};
use crate::limits::{ABORT_GRACE, Budget};
use crate::plugin::Core;
use crate::store::{Call, GuestState};
use crate::words::{PluginContext, Profile};

/// An instance with its store. Whoever has it may call it; a failed call drops it.
pub(crate) struct Instance {
    pub store: Store<GuestState>,
    pub guests: Guests,
}

/// Everything that instances of one plugin are made from.
pub(crate) struct Mold {
    pub engine: Arc<Inner>,
    pub core: Arc<Core>,
    pub pre: wasmtime::component::InstancePre<GuestState>,
    pub indices: Indices,
}

/// How a call is to be made.
pub(crate) struct Terms {
    pub call: Call,
    pub budget: Budget,
    pub tool: bool,
}

impl Terms {
    pub(crate) fn new(core: &Core, call: Call, tool: bool) -> Self {
        Self { budget: core.limits.budget(tool), call, tool }
    }
}

impl Mold {
    /// A fresh store; no code of the guest has run in it.
    fn store(&self, session: Option<Arc<dyn PluginContext>>, profile: Option<Arc<Profile>>) -> Store<GuestState> {
        let state = GuestState::new(self.core.clone(), session, profile);
        let mut store = Store::new(self.pre.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(self.core.limits.output_bytes());
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|context| match context.data().clock.tick() {
            // The rest of the thread's tasks, its timers among them, get their turn.
            Ok(()) => Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))),
            Err(overrun) => Err(wasmtime::Error::new(overrun)),
        });
        store
    }

    /// Makes an instance. Start functions of the guest run here, under the same clocks as a call.
    pub(crate) async fn instantiate(
        &self,
        session: Option<Arc<dyn PluginContext>>,
        profile: Option<Arc<Profile>>,
        budget: &Budget,
        tool: bool,
    ) -> Result<Box<Instance>, Fault> {
        let _running = self.engine.ticker.running();
        let mut store = self.store(session, profile);
        begin(&mut store, budget, tool);
        let clock = store.data().clock.clone();
        let made = {
            let future = self.pre.instantiate_async(&mut store);
            guarded(&clock, None, future).await
        };
        let instance = match made {
            Ok(Ok(instance)) => instance,
            Ok(Err(error)) => return Err(fault(&store, &error)),
            Err(stopped) => return Err(stopped),
        };
        store.data().output.end_call();
        let guests = self
            .indices
            .load(&mut store, &instance)
            .map_err(|error| Fault::error(format!("its exports do not fit: {error:#}")))?;
        Ok(Box::new(Instance { store, guests }))
    }

    /// Calls `instance` by `body`, which gives it back with what the guest returned.
    pub(crate) async fn call<R, Fut>(
        &self,
        mut instance: Box<Instance>,
        terms: Terms,
        body: impl FnOnce(Box<Instance>) -> Fut,
    ) -> Result<Returned<R>, Fault>
    where
        Fut: Future<Output = (Box<Instance>, wasmtime::Result<R>)>,
    {
        let _running = self.engine.ticker.running();
        let cancel = terms.call.cancel.clone();
        let session = instance.store.data().session.clone();
        let output = instance.store.data().output.clone();
        instance.store.data_mut().call = terms.call;
        begin(&mut instance.store, &terms.budget, terms.tool);
        let clock = instance.store.data().clock.clone();
        let made = guarded(&clock, cancel.as_ref(), body(instance)).await;
        output.end_call();
        let (mut instance, result) = made?;
        self.receipt(&instance.store);
        self.report_refusals(&mut instance.store, session.as_deref()).await;
        match result {
            Ok(value) => {
                let reusable = instance.store.data_mut().handles.end_call();
                Ok(Returned { value, instance, reusable })
            }
            Err(error) => Err(fault(&instance.store, &error)),
        }
    }

    /// What the call cost, for whoever listens.
    fn receipt(&self, store: &Store<GuestState>) {
        if !tracing::enabled!(target: "dsh::receipt", tracing::Level::TRACE) {
            return;
        }
        let state = store.data();
        let (wall, host) = state.clock.spent();
        tracing::trace!(
            target: "dsh::receipt",
            plugin = %self.core.name,
            seam = %state.call.seam,
            wall_us = wall.as_micros(),
            guest_us = wall.saturating_sub(host).as_micros(),
            host_us = host.as_micros(),
            peak_memory = state.limiter.peak(),
            host_calls = state.call.host_calls,
        );
    }

    /// File operations cannot wait, so what they were refused is reported here.
    async fn report_refusals(&self, store: &mut Store<GuestState>, session: Option<&dyn PluginContext>) {
        let refusals = std::mem::take(&mut store.data_mut().refusals);
        for grant in refusals {
            self.core.refuse(session, &grant).await;
        }
    }
}

/// What a good call gave.
pub(crate) struct Returned<R> {
    pub value: R,
    pub instance: Box<Instance>,
    /// False when the instance has used up its numbers for handles.
    pub reusable: bool,
}

fn begin(store: &mut Store<GuestState>, budget: &Budget, tool: bool) {
    store.set_epoch_deadline(1);
    let bytes = store.data().core.limits.output_bytes();
    let state = store.data_mut();
    state.limiter.begin_call();
    state.output.begin_call(bytes);
    state.clock.start(budget, tool);
}

fn fault(store: &Store<GuestState>, error: &wasmtime::Error) -> Fault {
    let state = store.data();
    state.output.end_call();
    Fault::of(error, state.limiter.refused(), &state.output.last_lines())
}

/// Polls `inner` under the wall clock, and for [`ABORT_GRACE`] after `cancel`. No timer is made while the guest does not wait.
async fn guarded<F: Future>(
    clock: &CallClock,
    cancel: Option<&CancellationToken>,
    inner: F,
) -> Result<F::Output, Fault> {
    let mut inner = pin!(inner);
    let mut cancelled = pin!(async {
        match cancel {
            Some(token) => token.cancelled().await,
            None => std::future::pending().await,
        }
    });
    let mut timers = Timers::default();
    let mut first = true;
    poll_fn(|context| {
        if !std::mem::take(&mut first) {
            clock.polled();
        }
        if let Poll::Ready(output) = inner.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        clock.pending();
        let Some(left) = clock.left() else {
            // `next`, a model, a process, a person: limits of their own, and they know about the abort.
            timers.stop();
            return Poll::Pending;
        };
        if timers.wall.expired(context, left) {
            // The timer does not know of time that was excluded since it was made.
            match clock.left() {
                Some(left) if !left.is_zero() => timers.wall.again(context, left),
                _ => return Poll::Ready(Err(Fault::Overtime(clock.wall_overrun()))),
            }
        }
        if timers.aborted || cancelled.as_mut().poll(context).is_ready() {
            timers.aborted = true;
            if timers.grace.expired(context, ABORT_GRACE) {
                return Poll::Ready(Err(Fault::Aborted));
            }
        }
        Poll::Pending
    })
    .await
}

#[derive(Default)]
struct Timers {
    wall: Timer,
    grace: Timer,
    aborted: bool,
}

impl Timers {
    fn stop(&mut self) {
        self.wall.0 = None;
        self.grace.0 = None;
    }
}

/// A timer that is made when it is first needed.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Whether the time is over; wakes the task when it will be. `left` counts when the timer is new.
    fn expired(&mut self, context: &mut std::task::Context<'_>, left: Duration) -> bool {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + left)));
        sleep.as_mut().poll(context).is_ready()
    }

    /// Starts the timer anew.
    fn again(&mut self, context: &mut std::task::Context<'_>, left: Duration) {
        self.0 = None;
        if self.expired(context, left) {
            context.waker().wake_by_ref();
        }
    }
}
