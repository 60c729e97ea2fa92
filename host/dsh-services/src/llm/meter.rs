//! What a model call uses: its price, put into the `usage` chunks, and its share of the run's budget.
//!
//! A network provider that does not count while a budget needs it is reckoned for, from the bytes that went both ways; so is what an
//! answer that was cut had used by then.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use dsh_seam::ModelFailure;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::{Chunk, ModelName, Usage};
use dsh_seam::view::estimate_tokens;
use futures::{Stream, StreamExt};

use super::prices::Price;
use crate::budget::RunBudget;

/// What calls of a model are measured with.
#[derive(Clone)]
pub(super) struct Meter {
    /// The model's price; none when unknown.
    pub price: Option<Price>,
    /// The budget of the run.
    pub budget: Arc<RunBudget>,
    /// What is reckoned where the provider does not count; none of a model of this process.
    pub uncounted: Option<Arc<Uncounted>>,
}

/// Says once that a provider does not count.
#[derive(Debug, Default)]
pub(super) struct Uncounted(AtomicBool);

impl Uncounted {
    fn say(&self, model: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the provider of `{model}` does not say what a request used: the host's estimate counts for the budget"
            );
        }
    }
}

/// A model whose calls are measured.
pub(super) struct Metered {
    model: Arc<dyn Model>,
    meter: Meter,
}

impl Metered {
    pub fn new(model: Arc<dyn Model>, meter: Meter) -> Self {
        Self { model, meter }
    }
}

#[async_trait]
impl Model for Metered {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let mut call = Call::new(self.meter.clone(), &request);
        match self.model.stream(request).await {
            Ok(stream) => Ok(Measured { stream, call, held: VecDeque::new() }.boxed()),
            Err(failure) => {
                // Refused, or never there: nothing was used.
                call.is_over = true;
                Err(failure)
            }
        }
    }
}

/// One call. Dropped in the middle, it counts what it had used.
struct Call {
    meter: Meter,
    model: ModelName,
    /// The host's estimate of what went in.
    input: u32,
    /// Bytes of text and calls, and of reasoning.
    bytes: (usize, usize),
    /// What the provider has counted last.
    counted: Option<Usage>,
    is_over: bool,
}

impl Call {
    fn new(meter: Meter, request: &ModelRequest) -> Self {
        let reckons = meter.uncounted.is_some() && meter.budget.counts();
        let input = if reckons { request.estimated_tokens() } else { 0 };
        Self { meter, model: request.model.clone(), input, bytes: (0, 0), counted: None, is_over: false }
    }

    /// The provider has counted: with its own price, else with the table's.
    fn count(&mut self, mut usage: Usage) -> Usage {
        usage.cost = usage.cost.or_else(|| self.meter.price.map(|price| price.of(&usage)));
        self.meter.budget.count(&self.counted.unwrap_or_default(), &usage);
        self.counted = Some(usage);
        usage
    }

    fn streamed(&mut self, chunk: &Chunk) {
        match chunk {
            Chunk::TextDelta { text, .. } => self.bytes.0 += text.len(),
            Chunk::ReasoningDelta { text, .. } => self.bytes.1 += text.len(),
            Chunk::ToolCallDelta { name, arguments_delta, .. } => {
                self.bytes.0 += name.as_ref().map_or(0, String::len) + arguments_delta.len();
            }
            _ => {}
        }
    }

    /// The call is over. Returns what it used when the provider has not said it, or not to the end.
    fn end(&mut self, is_whole: bool) -> Option<Usage> {
        if std::mem::replace(&mut self.is_over, true) || !self.meter.budget.counts() {
            return None;
        }
        let uncounted = self.meter.uncounted.clone()?;
        let (output, reasoning) = (estimate_tokens(self.bytes.0), estimate_tokens(self.bytes.1));
        let usage = match self.counted {
            Some(counted) if is_whole && counted.tokens() > 0 => return None,
            None => Usage { input: self.input, output, reasoning, ..Usage::default() },
            // A provider that has to fill in something.
            Some(counted) if counted.tokens() == 0 => Usage { input: self.input, output, reasoning, ..counted },
            // Counted at the beginning of an answer that was cut.
            Some(counted) => {
                Usage { output: counted.output.max(output), reasoning: counted.reasoning.max(reasoning), ..counted }
            }
        };
        if Some(usage) == self.counted {
            return None;
        }
        if is_whole {
            uncounted.say(&self.model);
        }
        Some(self.count(Usage { cost: None, estimated: true, ..usage }))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(false);
    }
}

struct Measured {
    stream: ChunkStream,
    call: Call,
    /// What follows a chunk that was put in.
    held: VecDeque<Option<Result<Chunk, ModelFailure>>>,
}

impl Stream for Measured {
    type Item = Result<Chunk, ModelFailure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(held) = self.held.pop_front() {
            return Poll::Ready(held);
        }
        let next = ready!(self.stream.poll_next_unpin(cx));
        let is_whole = match &next {
            Some(Ok(Chunk::Usage { usage })) => {
                let usage = self.call.count(*usage);
                return Poll::Ready(Some(Ok(Chunk::Usage { usage })));
            }
            Some(Ok(Chunk::Finish { .. })) => true,
            Some(Ok(chunk)) => {
                self.call.streamed(chunk);
                return Poll::Ready(next);
            }
            Some(Err(_)) | None => false,
        };
        Poll::Ready(match self.call.end(is_whole) {
            None => next,
            Some(usage) => {
                self.held.push_back(next);
                Some(Ok(Chunk::Usage { usage }))
            }
        })
    }
}
