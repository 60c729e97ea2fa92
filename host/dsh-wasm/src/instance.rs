//! One instance of a plugin in a store of its own, and the one way in which a guest is called: with both clocks armed, the output
//! bounded, and the instance discarded unless the call returned well.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use wasmtime::{Store, UpdateDeadline};

use crate::carried::Carried;
use crate::clock::CallClock;
use crate::engine::Inner;
use crate::fault::Fault;
use crate::guests::Guests;
use crate::limits::{ABORT_GRACE, Budget};
use crate::places::{Place, Rooms};
use crate::plugin::Core;
use crate::receipt::Metered;
use crate::scene;
use crate::store::{Call, GuestState};
use crate::wasi::refusals::Refusals;
use crate::words::{PluginContext, Profile};

/// An instance with its store. Whoever has it may call it; a failed call drops it.
pub(crate) struct Instance {
    pub store: Store<GuestState>,
    pub guests: Guests,
    /// After the store, which it is for.
    pub _place: Place,
}

/// Everything that instances of one plugin are made from.
pub(crate) struct Mold {
    pub engine: Arc<Inner>,
    pub core: Arc<Core>,
    pub rooms: Rooms,
}

/// How a call is to be made.
pub(crate) struct Terms<'a> {
    pub call: Call,
    pub budget: Budget,
    pub tool: bool,
    /// Cancelled when the turn is aborted.
    pub cancel: Option<&'a CancellationToken>,
}

impl<'a> Terms<'a> {
    pub(crate) fn new(core: &Core, call: Call, tool: bool, cancel: Option<&'a CancellationToken>) -> Self {
        Self { budget: core.limits.budget(tool), call, tool, cancel }
    }
}

impl Mold {
    /// A fresh store; no code of the guest has run in it.
    fn store(
        &self,
        engine: &wasmtime::Engine,
        session: Option<Arc<dyn PluginContext>>,
        profile: Option<Arc<Profile>>,
    ) -> Store<GuestState> {
        let state = GuestState::new(self.core.clone(), session, profile);
        let mut store = Store::new(engine, state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(self.core.limits.output_bytes());
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|context| {
            let state = context.data();
            state.clock.tick().map_err(wasmtime::Error::new)?;
            state.check_host_calls().map_err(wasmtime::Error::new)?;
            // The rest of the thread's tasks, its timers among them, get their turn.
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store
    }

    /// Makes an instance. Start functions of the guest run here, under the same clocks as a call.
    pub(crate) async fn instantiate(
        &self,
        session: Option<Arc<dyn PluginContext>>,
        profile: Option<Arc<Profile>>,
        terms: &Terms<'_>,
    ) -> Result<Box<Instance>, Fault> {
        let _running = self.engine.ticker.running();
        // Declared before the store, so that it outlives it when this is dropped.
        let mut metered = Metered::default();
        let (ready, place) = self.rooms.place(&self.engine).await?;
        let mut store = self.store(ready.pre.engine(), session, profile);
        begin(&mut store, &terms.budget, terms.tool);
        store.data_mut().call = terms.call.for_its_instance();
        if self.engine.receipts.wanted() {
            metered = Metered::begin(&self.engine.receipts, store.data_mut());
        }
        let clock = store.data().clock.clone();
        let made = {
            let guarding = Guarding { clock, cancel: None };
            let inner = pin!(ready.pre.instantiate_async(&mut store));
            Guarded { inner, guarding, metered: &metered, slow: None }.await
        };
        let failed = match made {
            Ok(Ok(instance)) => Ok(instance),
            Ok(Err(error)) => Err(fault(&store, &error)),
            Err(stopped) => Err(stopped),
        };
        let instance = match failed {
            Ok(instance) => instance,
            Err(fault) => {
                metered.stop(store.data_mut());
                metered.failed(&fault);
                let refusals = store.data().refusals.clone();
                Box::pin(refusals.report(&self.core)).await;
                return Err(fault);
            }
        };
        store.data_mut().metered = metered;
        store.data().output.end_call();
        let guests = ready
            .indices
            .load(&mut store, &instance)
            .map_err(|error| Fault::error(format!("its exports do not fit: {error:#}")))?;
        Ok(Box::new(Instance { store, guests, _place: place }))
    }

    /// Calls `instance` by `body`, which gives it back with what the guest returned.
    ///
    /// This is on the path of every listener of every step, so what is rare is boxed: the future stays small.
    pub(crate) async fn call<R, Fut>(
        &self,
        armed: Armed<'_>,
        body: impl FnOnce(Box<Instance>) -> Fut,
    ) -> Result<Returned<R>, Fault>
    where
        R: Carried,
        Fut: Future<Output = (Box<Instance>, wasmtime::Result<R>)>,
    {
        let _running = self.engine.ticker.running();
        let Armed { instance, guarding, refusals, mut metered } = armed;
        let made = {
            let inner = pin!(body(instance));
            Guarded { inner, guarding, metered: &metered, slow: None }.await
        };
        let (mut instance, result) = match made {
            Ok(made) => made,
            Err(stopped) => {
                metered.failed(&stopped);
                Box::pin(refusals.report(&self.core)).await;
                return Err(stopped);
            }
        };
        instance.store.data().output.end_call();
        if let Ok(value) = &result {
            instance.store.data_mut().takes(value);
        }
        metered.stop(instance.store.data_mut());
        if !refusals.is_empty() {
            Box::pin(refusals.report(&self.core)).await;
        }
        match result {
            Ok(value) => {
                if let Err(bound) = instance.store.data().check_host_calls() {
                    let fault = Fault::Limit(bound.to_string());
                    metered.failed(&fault);
                    return Err(fault);
                }
                let reusable = instance.store.data_mut().handles.end_call();
                Ok(Returned { value, instance, reusable, metered })
            }
            Err(error) => {
                let fault = fault(&instance.store, &error);
                metered.failed(&fault);
                Err(fault)
            }
        }
    }

    /// Makes `instance` ready for a call under `terms`: its clocks run from here.
    pub(crate) fn arm<'a>(&self, mut instance: Box<Instance>, terms: Terms<'a>) -> Armed<'a> {
        let state = instance.store.data_mut();
        let guarding = Guarding { clock: state.clock.clone(), cancel: terms.cancel };
        let refusals = state.refusals.clone();
        state.call = terms.call;
        let metered = if self.engine.receipts.wanted() {
            Metered::go_on(&self.engine.receipts, state)
        } else {
            Metered::default()
        };
        begin(&mut instance.store, &terms.budget, terms.tool);
        Armed { instance, guarding, refusals, metered }
    }
}

/// What a good call gave.
pub(crate) struct Returned<R> {
    pub value: R,
    pub instance: Box<Instance>,
    /// False when the instance has used up its numbers for handles.
    pub reusable: bool,
    /// To be told what the call came to.
    pub metered: Metered,
}

fn begin(store: &mut Store<GuestState>, budget: &Budget, tool: bool) {
    store.set_epoch_deadline(1);
    let state = store.data_mut();
    state.limiter.begin_call();
    state.output.begin_call();
    state.clock.start(budget, tool);
}

fn fault(store: &Store<GuestState>, error: &wasmtime::Error) -> Fault {
    let state = store.data();
    state.output.end_call();
    let fault = Fault::of(error, state.limits(), state.limiter.refused(), &state.output.last_lines());
    scene::tell(state, &fault, error);
    fault
}

/// What a call is guarded by.
struct Guarding<'a> {
    clock: Arc<CallClock>,
    cancel: Option<&'a CancellationToken>,
}

/// An instance with both clocks started, ready to be called.
pub(crate) struct Armed<'a> {
    instance: Box<Instance>,
    guarding: Guarding<'a>,
    /// The instance's own; they outlive it.
    refusals: Arc<Refusals>,
    metered: Metered,
}

/// Polls a call under the wall clock, and for [`ABORT_GRACE`] after an abort. Nothing but the clock is touched while the guest does not
/// wait.
struct Guarded<'a, F> {
    inner: Pin<&'a mut F>,
    guarding: Guarding<'a>,
    metered: &'a Metered,
    /// Made when the call is first pending.
    slow: Option<Box<Slow>>,
}

/// What only a call that waits needs.
struct Slow {
    timers: Timers,
    cancelled: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<F: Future> Future for Guarded<'_, F> {
    type Output = Result<F::Output, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let clock = &*this.guarding.clock;
        let _here = this.metered.enter();
        if this.slow.is_some() {
            clock.polled();
        }
        if let Poll::Ready(output) = this.inner.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        clock.pending();
        let slow = this.slow.get_or_insert_with(|| Box::new(Slow::new(this.guarding.cancel)));
        slow.check(clock, context).map(Err)
    }
}

impl Slow {
    fn new(cancel: Option<&CancellationToken>) -> Self {
        let cancelled: Pin<Box<dyn Future<Output = ()> + Send>> = match cancel {
            Some(token) => Box::pin(token.clone().cancelled_owned()),
            None => Box::pin(std::future::pending()),
        };
        Self { timers: Timers::default(), cancelled }
    }

    /// Ready when the call must not go on.
    fn check(&mut self, clock: &CallClock, context: &mut Context<'_>) -> Poll<Fault> {
        let timers = &mut self.timers;
        let Some(left) = clock.left() else {
            // `next`, a model, a process, a person: limits of their own, and they know about the abort.
            timers.stop();
            return Poll::Pending;
        };
        if timers.wall.expired(context, left) {
            // The timer does not know of time that was excluded since it was made.
            match clock.left() {
                Some(left) if !left.is_zero() => timers.wall.again(context, left),
                _ => return Poll::Ready(Fault::Overtime(clock.wall_overrun())),
            }
        }
        if timers.aborted || self.cancelled.as_mut().poll(context).is_ready() {
            timers.aborted = true;
            if timers.grace.expired(context, ABORT_GRACE) {
                return Poll::Ready(Fault::Aborted);
            }
        }
        Poll::Pending
    }
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
    fn expired(&mut self, context: &mut Context<'_>, left: Duration) -> bool {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + left)));
        sleep.as_mut().poll(context).is_ready()
    }

    /// Starts the timer anew.
    fn again(&mut self, context: &mut Context<'_>, left: Duration) {
        self.0 = None;
        if self.expired(context, left) {
            context.waker().wake_by_ref();
        }
    }
}
