//! The onion: listeners around a value, the first outermost, each with its own `next`.
//!
//! A listener gets the value and a [`Next`] bound to its place. [`Next::run`] runs the rest and returns its outcome; running it again
//! runs the rest again (the shared request from what the first run was given), at most [`MAX_RUNS`] times; not running it skips the rest (a veto). What a
//! listener answers after an inner listener failed does not count: the failure is final, unless the operator set the failed plugin
//! to [`FailureMode::Open`]. So no plugin can swallow another's failure.
//!
//! ```text
//! run(value) ─▶ first ─▶ next ─▶ second ─▶ next ─▶ innermost
//! outcome   ◀─ first ◀─ …     ◀─ second ◀─ …     ◀─ innermost
//! ```
//!
//! The one trap: a [`Next`] is `'static` and can be kept, but it belongs to one run of the waterfall; whoever drops the future of
//! [`Chain::run`] (an abort) must treat every value of it as lost.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::event::ChangeKind;
use crate::failure::{Failure, FailureMode, PluginError, Seam};
use crate::ids::{PluginName, StepRef};

/// How often one `next` may run: enough for any honest retry, small enough to end a loop.
pub const MAX_RUNS: u32 = 10;

/// The types of one waterfall.
pub trait Waterfall: Send + Sync + Sized + 'static {
    /// Its seam.
    const SEAM: Seam;
    /// What every listener sees and none changes.
    type Context: Send + Sync + 'static;
    /// What travels inward.
    type Value: Clone + Send + Sync + 'static;
    /// What travels outward.
    type Outcome: Clone + Send + Sync + 'static;
    /// All that is needed to put a shared value back; `()` when the value is passed by value and so cannot change behind a listener.
    type Checkpoint: Clone + Send + Sync + 'static;

    /// Remembers the value as it is now.
    fn checkpoint(value: &Self::Value) -> Self::Checkpoint;
    /// Whether `value` is surely as it was remembered; a no costs another checkpoint.
    fn is_at(_value: &Self::Value, _checkpoint: &Self::Checkpoint) -> bool {
        false
    }
    /// Puts a shared value back to what it was; nothing to do for one that is passed by value.
    fn restore(value: Self::Value, _checkpoint: &Self::Checkpoint) -> Self::Value {
        value
    }
    /// What a listener changed on the way in; `given` is what it got, `passed` what it gave to `next`.
    fn changed_inward(_given: &Self::Value, _passed: &Self::Value) -> Vec<ChangeKind> {
        Vec::new()
    }
    /// What a listener changed on the way out; `inner` is none when it did not run the rest.
    fn changed_outward(
        _given: &Self::Value,
        _inner: Option<&Self::Outcome>,
        _answered: &Self::Outcome,
    ) -> Vec<ChangeKind> {
        Vec::new()
    }
    /// Marks `value` as passed on by `plugin`, which changed it or runs the rest again.
    fn attribute(value: Self::Value, _plugin: &PluginName) -> Self::Value {
        value
    }
}

/// What is the same for all listeners of one run.
pub struct RunContext<W: Waterfall> {
    /// Where in the agent's life.
    pub at: StepRef,
    /// Cancelled when the turn is.
    pub cancel: CancellationToken,
    /// What the waterfall is about.
    pub about: W::Context,
}

/// One listener of a waterfall.
#[async_trait]
pub trait Listener<W: Waterfall>: Send + Sync {
    /// Shapes `value` on the way in and the outcome on the way out.
    ///
    /// Dropping the future (an abort) must leave nothing half done: a guest's instance is discarded.
    async fn handle(&self, cx: &RunContext<W>, value: W::Value, next: Next<W>) -> Result<W::Outcome, PluginError>;

    /// Whether it is still there; asked right before it is called.
    fn live(&self) -> bool {
        true
    }
}

/// A listener with its name and its failure mode.
pub struct Registered<W: Waterfall> {
    /// Whose it is.
    pub plugin: PluginName,
    /// What its failure does.
    pub mode: FailureMode,
    /// The listener.
    pub listener: Arc<dyn Listener<W>>,
}

impl<W: Waterfall> Clone for Registered<W> {
    fn clone(&self) -> Self {
        Self { plugin: self.plugin.clone(), mode: self.mode, listener: self.listener.clone() }
    }
}

/// The innermost part: what the listeners are around.
pub type Innermost<W> = Arc<
    dyn Fn(<W as Waterfall>::Value) -> BoxFuture<'static, Result<<W as Waterfall>::Outcome, RunError>> + Send + Sync,
>;

/// Hears of a failure when it happens, before anything else runs.
#[async_trait]
pub trait FailureReport: Send + Sync {
    /// Logs `plugin/failed`.
    async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError>;
}

/// Why a waterfall, or the rest of it, has no outcome.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    /// A listener failed.
    #[error(transparent)]
    Plugin(PluginError),
    /// The turn was aborted.
    #[error("the turn was aborted")]
    Aborted,
    /// A `next` was run too often.
    #[error("`next` was run more than {MAX_RUNS} times")]
    TooManyRuns,
    /// The host could not go on: the session could not be written, for example.
    #[error(transparent)]
    Host(Failure),
}

impl RunError {
    /// As a plugin is told of it.
    pub fn to_failure(&self) -> Failure {
        match self {
            RunError::Plugin(error) => Failure::new(error.host_code(), error.to_string()),
            RunError::Aborted => Failure::aborted(),
            RunError::TooManyRuns => Failure::new("limit", self.to_string()),
            RunError::Host(failure) => failure.clone(),
        }
    }
}

/// What one listener changed, once for each run of a waterfall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Who.
    pub plugin: PluginName,
    /// What.
    pub what: Vec<ChangeKind>,
}

/// One run of a waterfall.
pub struct Chain<W: Waterfall> {
    cx: RunContext<W>,
    listeners: Arc<[Registered<W>]>,
    innermost: Innermost<W>,
    report: Arc<dyn FailureReport>,
    /// Whether there is anything in `shared`: most runs never look.
    touched: AtomicBool,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    fatal: Option<RunError>,
    changes: Vec<(usize, Vec<ChangeKind>)>,
}

impl<W: Waterfall> Chain<W> {
    /// Runs `value` through `listeners` around `innermost`. Returns the outcome and who changed what, in configuration order.
    ///
    /// Cancel safe in this sense: when the future is dropped, the listeners' futures are dropped with it.
    pub async fn run(
        cx: RunContext<W>,
        listeners: Arc<[Registered<W>]>,
        report: Arc<dyn FailureReport>,
        value: W::Value,
        innermost: Innermost<W>,
    ) -> (Result<W::Outcome, RunError>, Vec<Change>) {
        let chain = Arc::new(Chain {
            cx,
            listeners,
            innermost,
            report,
            touched: AtomicBool::new(false),
            shared: Mutex::default(),
        });
        let outcome = run_from(&chain, 0, value, None).await;
        if !chain.touched.load(Ordering::Acquire) {
            return (outcome, Vec::new());
        }
        let mut shared = chain.shared();
        let mut changes = std::mem::take(&mut shared.changes);
        changes.sort_by_key(|(index, _)| *index);
        let changes = changes
            .into_iter()
            .map(|(index, what)| Change { plugin: chain.listeners[index].plugin.clone(), what })
            .collect();
        match shared.fatal.take() {
            Some(fatal) => (Err(fatal), changes),
            None => (outcome, changes),
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes `error` final; the first one stays.
    fn fail(&self, error: RunError) -> RunError {
        let fatal = self.shared().fatal.get_or_insert(error).clone();
        self.touched.store(true, Ordering::Release);
        fatal
    }

    fn fatal(&self) -> Option<RunError> {
        if self.touched.load(Ordering::Acquire) { self.shared().fatal.clone() } else { None }
    }

    fn changed(&self, index: usize, what: Vec<ChangeKind>) {
        if what.is_empty() {
            return;
        }
        let mut shared = self.shared();
        match shared.changes.iter_mut().find(|(at, _)| *at == index) {
            Some((_, known)) => known.extend(what.into_iter().filter(|kind| !known.contains(kind)).collect::<Vec<_>>()),
            None => shared.changes.push((index, what)),
        }
        self.touched.store(true, Ordering::Release);
    }
}

/// Runs the listeners from `index` on. `known` is what `value` is now, when somebody remembered it just before.
///
/// This is on the path of every listener: it is no boxed future, since each listener's own is one.
async fn run_from<W: Waterfall>(
    chain: &Arc<Chain<W>>,
    index: usize,
    value: W::Value,
    known: Option<W::Checkpoint>,
) -> Result<W::Outcome, RunError> {
    let Some(index) = (index..chain.listeners.len()).find(|at| chain.listeners[*at].listener.live()) else {
        let outcome = (chain.innermost)(value).await;
        return outcome.map_err(|error| chain.fail(error));
    };
    let place = Arc::new(Place {
        chain: chain.clone(),
        index,
        given: value.clone(),
        checkpoint: known.unwrap_or_else(|| W::checkpoint(&value)),
        runs: AtomicU32::new(0),
        last: Mutex::new(None),
    });
    let answer = chain.listeners[index].listener.handle(&chain.cx, value, Next { place: place.clone() }).await;
    if let Some(fatal) = chain.fatal() {
        return Err(fatal);
    }
    match answer {
        Ok(outcome) => {
            let inner = place.last().take().map(|last| last.outcome);
            chain.changed(index, W::changed_outward(&place.given, inner.as_ref(), &outcome));
            Ok(outcome)
        }
        Err(error) => recover(&place, error).await,
    }
}

/// A listener failed on its own account: closed ends the run, open goes on without it. Boxed, since it is rare and runs the rest.
fn recover<W: Waterfall>(place: &Place<W>, error: PluginError) -> BoxFuture<'_, Result<W::Outcome, RunError>> {
    Box::pin(async move {
        let (chain, index) = (&place.chain, place.index);
        if let Err(unlogged) = chain.report.plugin_failed(&error).await {
            return Err(chain.fail(unlogged));
        }
        match chain.listeners[index].mode {
            FailureMode::Closed => Err(chain.fail(RunError::Plugin(error))),
            FailureMode::Open => match place.stands() {
                Some(outcome) => Ok(outcome),
                None => run_from(chain, index + 1, W::restore(place.given.clone(), &place.checkpoint), None).await,
            },
        }
    })
}

/// What one listener was given, and what the rest answered it last.
struct Place<W: Waterfall> {
    chain: Arc<Chain<W>>,
    index: usize,
    given: W::Value,
    checkpoint: W::Checkpoint,
    runs: AtomicU32,
    last: Mutex<Option<Last<W>>>,
}

/// What the rest answered one listener last.
struct Last<W: Waterfall> {
    outcome: W::Outcome,
    /// What the first run was given.
    first: W::Checkpoint,
    /// What the last run left; none when that is `first`.
    left: Option<W::Checkpoint>,
}

impl<W: Waterfall> Place<W> {
    fn last(&self) -> MutexGuard<'_, Option<Last<W>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last outcome, with a shared value as the last run left it: what the listener changed after it goes with the listener.
    fn stands(&self) -> Option<W::Outcome> {
        let last = self.last().take()?;
        W::restore(self.given.clone(), last.left.as_ref().unwrap_or(&last.first));
        Some(last.outcome)
    }
}

/// The rest of a waterfall from one listener's place on.
pub struct Next<W: Waterfall> {
    place: Arc<Place<W>>,
}

impl<W: Waterfall> Clone for Next<W> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone() }
    }
}

impl<W: Waterfall> Next<W> {
    /// Runs the rest with `value`. A value that is shared (the request) is first put back to what the first run was given.
    pub async fn run(&self, value: W::Value) -> Result<W::Outcome, RunError> {
        let place = &*self.place;
        let chain = &place.chain;
        if let Some(fatal) = chain.fatal() {
            return Err(fatal);
        }
        let run = place.runs.fetch_add(1, Ordering::Relaxed);
        if run >= MAX_RUNS {
            return Err(RunError::TooManyRuns);
        }
        let value = self.begin(run, value);
        let what = W::changed_inward(&place.given, &value);
        let value =
            if run == 0 && what.is_empty() { value } else { W::attribute(value, &chain.listeners[place.index].plugin) };
        chain.changed(place.index, what);
        // Mostly nobody has edited what is shared since it was remembered.
        let first = if W::is_at(&value, &place.checkpoint) { place.checkpoint.clone() } else { W::checkpoint(&value) };
        let outcome = run_from(chain, place.index + 1, value, Some(first.clone())).await?;
        let left = if W::is_at(&place.given, &first) { None } else { Some(W::checkpoint(&place.given)) };
        let mut last = place.last();
        let (first, left) = match last.take() {
            // What this run was given is what the first one was: only what it left is new.
            Some(before) => (before.first, Some(left.unwrap_or(first))),
            None => (first, left),
        };
        *last = Some(Last { outcome: outcome.clone(), first, left });
        Ok(outcome)
    }

    fn begin(&self, run: u32, value: W::Value) -> W::Value {
        if run == 0 {
            return value;
        }
        match self.place.last().as_ref() {
            Some(last) => W::restore(value, &last.first),
            None => value,
        }
    }

    /// What is the same for all listeners of this run.
    pub fn context(&self) -> &RunContext<W> {
        &self.place.chain.cx
    }

    /// How often it has run.
    pub fn runs(&self) -> u32 {
        self.place.runs.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    struct Numbers;

    impl Waterfall for Numbers {
        const SEAM: Seam = Seam::StepResult;
        type Context = ();
        type Value = i32;
        type Outcome = i32;
        type Checkpoint = i32;
        fn checkpoint(value: &i32) -> i32 {
            *value
        }
        fn restore(_value: i32, checkpoint: &i32) -> i32 {
            *checkpoint
        }
        fn changed_inward(given: &i32, passed: &i32) -> Vec<ChangeKind> {
            if given == passed { vec![] } else { vec![ChangeKind::Call] }
        }
        fn changed_outward(_given: &i32, inner: Option<&i32>, answered: &i32) -> Vec<ChangeKind> {
            if inner == Some(answered) { vec![] } else { vec![ChangeKind::Outcome] }
        }
    }

    /// What a test listener does.
    #[derive(Clone, Copy)]
    enum Does {
        Pass,
        AddBefore(i32),
        AddAfter(i32),
        Veto(i32),
        Twice,
        FailBefore,
        FailAfter,
        Swallow(i32),
    }

    #[async_trait]
    impl Listener<Numbers> for Does {
        async fn handle(&self, _cx: &RunContext<Numbers>, value: i32, next: Next<Numbers>) -> Result<i32, PluginError> {
            let told = |error: RunError| match error {
                RunError::Plugin(error) => error,
                other => error_of(&other.to_string()),
            };
            match *self {
                Does::Pass => next.run(value).await.map_err(told),
                Does::AddBefore(n) => next.run(value + n).await.map_err(told),
                Does::AddAfter(n) => Ok(next.run(value).await.map_err(told)? + n),
                Does::Veto(n) => Ok(n),
                Does::Twice => {
                    let first = next.run(value).await.map_err(told)?;
                    Ok(first * 100 + next.run(value + 50).await.map_err(told)?)
                }
                Does::FailBefore => Err(error_of("before")),
                Does::FailAfter => {
                    next.run(value + 1).await.map_err(told)?;
                    Err(error_of("after"))
                }
                Does::Swallow(n) => Ok(next.run(value).await.unwrap_or(n)),
            }
        }
    }

    fn error_of(message: &str) -> PluginError {
        PluginError {
            plugin: PluginName::new("p").expect("valid"),
            seam: Seam::StepResult,
            kind: FailureKind::Trap,
            message: message.into(),
            code: None,
        }
    }

    #[derive(Default)]
    struct Reported(Mutex<Vec<String>>);

    #[async_trait]
    impl FailureReport for Reported {
        async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError> {
            self.0.lock().expect("no test panics while holding it").push(error.message.clone());
            Ok(())
        }
    }

    async fn run(listeners: &[(Does, FailureMode)]) -> (Result<i32, String>, String, Vec<String>) {
        let listeners: Arc<[_]> = listeners
            .iter()
            .enumerate()
            .map(|(at, (does, mode))| Registered {
                plugin: PluginName::new(format!("p{at}")).expect("valid"),
                mode: *mode,
                listener: Arc::new(*does) as Arc<dyn Listener<Numbers>>,
            })
            .collect();
        let report = Arc::new(Reported::default());
        let cx = RunContext { at: StepRef::default(), cancel: CancellationToken::new(), about: () };
        let innermost: Innermost<Numbers> = Arc::new(|value| Box::pin(async move { Ok(value * 10) }));
        let (outcome, changes) = Chain::run(cx, listeners, report.clone(), 1, innermost).await;
        let changes: Vec<String> =
            changes.iter().map(|change| format!("{}:{:?}", change.plugin, change.what)).collect();
        let reported = report.0.lock().expect("no test panics while holding it").clone();
        (outcome.map_err(|error| error.to_string()), changes.join(" "), reported)
    }

    use FailureMode::{Closed, Open};

    #[tokio::test]
    async fn listeners_nest_in_order_and_changes_are_attributed() {
        assert_eq!(run(&[]).await, (Ok(10), String::new(), vec![]));
        assert_eq!(run(&[(Does::Pass, Closed), (Does::Pass, Closed)]).await, (Ok(10), String::new(), vec![]));
        let (outcome, changes, _) = run(&[(Does::AddBefore(1), Closed), (Does::AddAfter(5), Closed)]).await;
        assert_eq!((outcome, changes.as_str()), (Ok(25), "p0:[Call] p1:[Outcome]"));
        let (outcome, changes, _) = run(&[(Does::Veto(3), Closed), (Does::AddAfter(5), Closed)]).await;
        assert_eq!((outcome, changes.as_str()), (Ok(3), "p0:[Outcome]"));
    }

    #[tokio::test]
    async fn a_second_run_begins_from_what_the_first_was_given() {
        let (outcome, changes, _) = run(&[(Does::Twice, Closed)]).await;
        assert_eq!((outcome, changes.as_str()), (Ok(1010), "p0:[Outcome]"));
    }

    #[tokio::test]
    async fn a_failure_is_final_and_reported_once() {
        let (outcome, _, reported) = run(&[(Does::Swallow(7), Closed), (Does::FailBefore, Closed)]).await;
        assert_eq!(outcome, Err("plugin `p` failed in `agent/step-result`: before".into()));
        assert_eq!(reported, ["before"]);
        let (outcome, _, reported) = run(&[(Does::Swallow(7), Open), (Does::FailAfter, Closed)]).await;
        assert_eq!(outcome, Err("plugin `p` failed in `agent/step-result`: after".into()));
        assert_eq!(reported, ["after"]);
    }

    /// A waterfall around one shared number.
    struct SharedNumber;

    impl Waterfall for SharedNumber {
        const SEAM: Seam = Seam::Request;
        type Context = ();
        type Value = Arc<Mutex<i32>>;
        type Outcome = ();
        type Checkpoint = i32;

        fn checkpoint(value: &Arc<Mutex<i32>>) -> i32 {
            *value.lock().expect("no test panics while holding it")
        }

        fn restore(value: Arc<Mutex<i32>>, checkpoint: &i32) -> Arc<Mutex<i32>> {
            *value.lock().expect("no test panics while holding it") = *checkpoint;
            value
        }

        fn is_at(value: &Arc<Mutex<i32>>, checkpoint: &i32) -> bool {
            Self::checkpoint(value) == *checkpoint
        }
    }

    /// Adds 1 before and 100 after the rest, and then fails.
    struct ChangesAndFails;

    #[async_trait]
    impl Listener<SharedNumber> for ChangesAndFails {
        async fn handle(
            &self,
            _cx: &RunContext<SharedNumber>,
            value: Arc<Mutex<i32>>,
            next: Next<SharedNumber>,
        ) -> Result<(), PluginError> {
            let add = |n| *value.lock().expect("no test panics while holding it") += n;
            add(1);
            next.run(value.clone()).await.map_err(|error| error_of(&error.to_string()))?;
            add(100);
            Err(error_of("after"))
        }
    }

    #[tokio::test]
    async fn what_an_open_plugin_did_to_a_shared_value_after_the_rest_goes_with_it() {
        let name = PluginName::new("p").expect("valid");
        let listeners: Arc<[_]> = [Registered {
            plugin: name,
            mode: Open,
            listener: Arc::new(ChangesAndFails) as Arc<dyn Listener<SharedNumber>>,
        }]
        .into();
        let cx = RunContext { at: StepRef::default(), cancel: CancellationToken::new(), about: () };
        let innermost: Innermost<SharedNumber> = Arc::new(|value| {
            *value.lock().expect("no test panics while holding it") += 10;
            Box::pin(async { Ok(()) })
        });
        let value = Arc::new(Mutex::new(0));
        let (outcome, _) = Chain::run(cx, listeners, Arc::new(Reported::default()), value.clone(), innermost).await;
        assert_eq!((outcome, SharedNumber::checkpoint(&value)), (Ok(()), 11), "the rest's outcome stands");
    }

    #[tokio::test]
    async fn an_open_plugin_is_as_if_it_were_not_there() {
        let (outcome, _, reported) = run(&[(Does::FailBefore, Open), (Does::AddBefore(1), Closed)]).await;
        assert_eq!((outcome, reported), (Ok(20), vec!["before".to_string()]));
        let (outcome, _, reported) = run(&[(Does::FailAfter, Open)]).await;
        assert_eq!(
            (outcome, reported),
            (Ok(20), vec!["after".to_string()]),
            "its last outcome stands and nothing runs again"
        );
    }
}
