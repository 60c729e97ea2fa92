//! One call of a listener of `agent/request`, through the waterfall as the loop runs it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dsh_seam::draft::{DraftStart, ModelCatalog, RequestDraft};
use dsh_seam::event::{AssistantMessage, Event, Source, UserMessage};
use dsh_seam::failure::{Failure, FailureMode, PluginError};
use dsh_seam::ids::{PluginName, StepRef};
use dsh_seam::message::ContentBlock;
use dsh_seam::plugin::Plugin;
use dsh_seam::view::History;
use dsh_seam::waterfall::{Chain, FailureReport, Innermost, Listener, Registered, RunContext, RunError};
use dsh_seam::waterfalls::Request;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::measure::{Pair, Samples, micros_each};
use crate::report::{Reach, Row};
use crate::wasm::{Nobody, engine, load};
use crate::{Fallible, Places, Rows};

/// Calls of one round: about a millisecond, so that the clock does not count.
const CALLS: u32 = 1_000;
/// Rounds of each thing that is compared.
const ROUNDS: usize = 41;
/// A short and a long history, in messages.
const SHORT: usize = 10;
const LONG: usize = 10_000;

/// A component with one function that does nothing.
const BARE: &str = r#"
(component
  (core module $m (func (export "f")))
  (core instance $i (instantiate $m))
  (func (export "f") (canon lift (core func $i "f"))))
"#;

/// A component that does with the bare engine what a listener that passes on does: it is given two handles, calls an import that may wait
/// with one of them, and drops both.
const BARE_LISTENER: &str = r#"
(component
  (import "thing" (type $thing (sub resource)))
  (import "next" (func $next (param "it" (borrow $thing))))
  (core func $next-core (canon lower (func $next)))
  (core func $drop (canon resource.drop $thing))
  (core module $m
    (import "" "next" (func $next (param i32)))
    (import "" "drop" (func $drop (param i32)))
    (func (export "f") (param i32 i32)
      (call $next (local.get 1))
      (call $drop (local.get 0))
      (call $drop (local.get 1))))
  (core instance $i (instantiate $m
    (with "" (instance (export "next" (func $next-core)) (export "drop" (func $drop))))))
  (func (export "f") (param "request" (own $thing)) (param "next" (own $thing)) (canon lift (core func $i "f"))))
"#;

struct NoModels;

impl ModelCatalog for NoModels {
    fn check_for_plugin(&self, _model: &str) -> Result<(), Failure> {
        Ok(())
    }

    fn context_window(&self, _model: &str) -> Option<u32> {
        None
    }
}

struct NoReport;

#[async_trait]
impl FailureReport for NoReport {
    async fn plugin_failed(&self, _error: &PluginError) -> Result<(), RunError> {
        Ok(())
    }
}

/// A request with this history.
pub fn request(history: History) -> Arc<RequestDraft> {
    Arc::new(RequestDraft::new(DraftStart {
        model: Some("bench/model".into()),
        system: "You are measured.".into(),
        tools: Arc::new([]),
        sampling: Arc::default(),
        history: Arc::new(history),
        last_usage: None,
        retry_of: None,
        models: Arc::new(NoModels),
    }))
}

/// A request with so many messages of about a hundred bytes.
fn draft(messages: usize) -> Arc<RequestDraft> {
    let mut history = History::default();
    for n in 0..messages {
        let content = vec![ContentBlock::text(format!("message {n}: {}", "word ".repeat(18)))];
        history.apply(&if n % 2 == 0 {
            Event::UserMessage(UserMessage { content, source: Source::User })
        } else {
            Event::AssistantMessage(AssistantMessage { turn: 1, step: 1, content, interrupted: None })
        });
    }
    request(history)
}

/// The waterfall with one listener.
pub struct Onion {
    listeners: Arc<[Registered<Request>]>,
    report: Arc<dyn FailureReport>,
    innermost: Innermost<Request>,
}

impl Onion {
    /// The listener of `plugin`.
    pub fn new(plugin: &Arc<dyn Plugin>) -> Fallible<Self> {
        let attached = plugin.attach(Nobody::for_plugin(plugin.name()));
        let listener = attached.request.clone().ok_or("the plugin does not listen to `agent/request`")?;
        Ok(Self::around(plugin.name().clone(), listener))
    }

    /// Any listener.
    pub fn around(plugin: PluginName, listener: Arc<dyn Listener<Request>>) -> Self {
        let registered = Registered { plugin, mode: FailureMode::Closed, listener };
        let innermost: Innermost<Request> = Arc::new(|_| Box::pin(async { Ok(()) }));
        Self { listeners: Arc::new([registered]), report: Arc::new(NoReport), innermost }
    }

    /// One run.
    pub async fn run(&self, draft: &Arc<RequestDraft>, cancel: &CancellationToken) -> Result<(), RunError> {
        let cx = RunContext { at: StepRef { turn: 1, step: 1 }, cancel: cancel.clone(), about: () };
        Chain::run(cx, self.listeners.clone(), self.report.clone(), draft.clone(), self.innermost.clone()).await.0
    }

    /// Microseconds a run.
    async fn round(&self, draft: &Arc<RequestDraft>) -> Fallible<f64> {
        // The turn's, as in the loop.
        let cancel = CancellationToken::new();
        let start = Instant::now();
        for _ in 0..CALLS {
            self.run(draft, &cancel).await?;
        }
        Ok(micros_each(start, CALLS))
    }
}

/// Calls a listener that passes on for `time`, for a profiler.
pub async fn profile(places: &Places, time: Duration) -> Fallible<()> {
    let noop = Onion::new(&load(&engine()?, &places.guests, "noop", "noop", json!({})).await?)?;
    tokio::spawn(async move {
        let (draft, start) = (draft(SHORT), Instant::now());
        while start.elapsed() < time {
            noop.round(&draft).await?;
        }
        Ok(())
    })
    .await?
}

/// Does it on a task, as the loop does.
pub async fn rows(places: &Places) -> Rows {
    let engine = engine()?;
    let noop = load(&engine, &places.guests, "noop", "noop", json!({})).await?;
    let reader =
        load(&engine, &places.plugins, "compaction", "compaction", json!({ "trigger-tokens": 4_000_000_000_u32 }))
            .await?;
    let mut bare = engine.bare_call(&wat::parse_str(BARE)?).await?;
    let mut floor = engine.bare_listener(&wat::parse_str(BARE_LISTENER)?).await?;
    let rounds = places.rounds(ROUNDS);
    let (noop, reader) = (Onion::new(&noop)?, Onion::new(&reader)?);
    let measured = tokio::spawn(async move {
        let (short, long) = (draft(SHORT), draft(LONG));
        let (mut flat, mut reading, mut overhead, mut over_floor) =
            (Pair::default(), Pair::default(), Pair::default(), Pair::default());
        noop.round(&short).await?;
        reader.round(&short).await?;
        for _ in 0..rounds {
            let one = noop.round(&short).await?;
            flat.push(noop.round(&long).await?, one);
            let one_read = reader.round(&short).await?;
            reading.push(reader.round(&long).await?, one_read);
            let start = Instant::now();
            for _ in 0..CALLS {
                bare.call().await?;
            }
            overhead.push(one, micros_each(start, CALLS));
            let start = Instant::now();
            for _ in 0..CALLS {
                floor.call().await?;
            }
            over_floor.push(one, micros_each(start, CALLS));
        }
        Fallible::Ok((flat, reading, overhead, over_floor))
    });
    let (flat, reading, overhead, over_floor) = measured.await??;
    let at = |samples: &Samples| format!("{:.2} µs", samples.median());
    let ratio = |what: &str, bound: f64, pair: &Pair| {
        Row::new(what, Reach::at_most(bound, "×"), pair.ratios()).detail(format!(
            "{} against {}",
            at(&pair.this),
            at(&pair.other)
        ))
    };
    Ok(vec![
        ratio("request listener that passes on, 10,000 messages against 10", 1.2, &flat),
        ratio(
            "request listener that reads the estimate (`compaction` below its trigger), 10,000 messages against 10",
            1.2,
            &reading,
        ),
        ratio("request listener against a bare no-op call of wasmtime", 3.0, &overhead),
        Row::plain(
            "the same against the bare engine doing what the listener does: two handles, an import that may wait",
            "×",
            over_floor.ratios(),
        )
        .detail(format!("{} against {}", at(&over_floor.this), at(&over_floor.other))),
    ])
}
