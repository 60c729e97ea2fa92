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
        // What the provider asked for the beginning stays where nobody knows a price.
        let cost = usage.cost.filter(|_| self.meter.price.is_none());
        Some(self.count(Usage { cost, estimated: true, ..usage }))
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

#[cfg(test)]
mod tests {
    use super::super::support::request;
    use super::*;
    use crate::budget::BudgetLimits;
    use dsh_seam::cost::Cost;
    use dsh_seam::message::{FinishReason, Message};
    use dsh_seam::services::Budget;
    use serde_json::json;

    /// Says these chunks, then nothing for ever where it hangs.
    struct Says {
        chunks: Vec<Result<Chunk, ModelFailure>>,
        hangs: bool,
    }

    #[async_trait]
    impl Model for Says {
        async fn stream(&self, _: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
            if let [Err(failure)] = self.chunks.as_slice() {
                return Err(failure.clone());
            }
            let said = futures::stream::iter(self.chunks.clone());
            Ok(if self.hangs { said.chain(futures::stream::pending()).boxed() } else { said.boxed() })
        }
    }

    fn text(text: &str) -> Result<Chunk, ModelFailure> {
        Ok(Chunk::TextDelta { index: 0, text: text.into() })
    }

    fn counted(usage: Usage) -> Result<Chunk, ModelFailure> {
        Ok(Chunk::Usage { usage })
    }

    fn finish() -> Result<Chunk, ModelFailure> {
        Ok(Chunk::Finish { reason: FinishReason::Stop })
    }

    fn gone() -> Result<Chunk, ModelFailure> {
        Err(ModelFailure::new("transport", "gone"))
    }

    /// A tenth of a cent for a token in, one cent for a token out.
    fn price() -> Option<Price> {
        serde_json::from_value(json!({"input": 1000, "output": 10000})).ok()
    }

    struct Bench {
        budget: Arc<RunBudget>,
        meter: Meter,
    }

    impl Bench {
        /// A network model under a budget of `tokens`.
        fn new(tokens: Option<u64>) -> Self {
            let limits = BudgetLimits { tokens, ..BudgetLimits::default() };
            let budget = Arc::new(RunBudget::new(limits));
            let meter = Meter { price: price(), budget: budget.clone(), uncounted: Some(Arc::default()) };
            Self { budget, meter }
        }

        async fn ask(&self, chunks: &[Result<Chunk, ModelFailure>], hangs: bool) -> Result<ChunkStream, ModelFailure> {
            let model = Arc::new(Says { chunks: chunks.to_vec(), hangs });
            // 24 bytes, of which 4 are a token.
            let asked = request("p/m", vec![Message::user_text("four words, six tokens .")], &[]);
            Metered::new(model, self.meter.clone()).stream(asked).await
        }

        /// The kinds of chunks that come, usage with its counts.
        async fn all(&self, chunks: &[Result<Chunk, ModelFailure>]) -> String {
            let shown = |chunk: Result<Chunk, ModelFailure>| match chunk {
                Ok(Chunk::Usage { usage }) => shown(&usage),
                Ok(Chunk::Finish { .. }) => "finish".into(),
                Ok(_) => "text".into(),
                Err(failure) => failure.code,
            };
            let stream = self.ask(chunks, false).await.expect("it answers");
            stream.map(shown).collect::<Vec<_>>().await.join(" ")
        }

        /// What was counted, in tokens.
        fn used(&self) -> u64 {
            let up = self.budget.used_up().map(|over| over.message).unwrap_or_default();
            up.split(' ').find_map(|word| word.parse().ok()).unwrap_or_default()
        }
    }

    fn shown(usage: &Usage) -> String {
        let cost = usage.cost.map_or_else(|| "?".into(), |cost| cost.to_string());
        let estimated = if usage.estimated { "~" } else { "" };
        format!("{estimated}{}+{}+{}={cost}", usage.input, usage.output, usage.reasoning)
    }

    const TOLD: Usage =
        Usage { input: 5, output: 2, cache_read: 0, cache_write: 0, reasoning: 0, cost: None, estimated: false };

    #[tokio::test]
    async fn what_is_counted_gets_its_price_unless_it_has_one() {
        let bench = Bench::new(None);
        assert_eq!(bench.all(&[text("a"), counted(TOLD), finish()]).await, "text 5+2+0=0.025 finish");
        let own = Usage { cost: Some(Cost::from_parts(1)), ..TOLD };
        assert_eq!(bench.all(&[text("a"), counted(own), finish()]).await, "text 5+2+0=0.000000001 finish");
        assert_eq!(bench.all(&[text("a"), finish()]).await, "text finish", "nobody needs to know");
        assert_eq!(bench.all(&[text("a"), gone()]).await, "text transport");
    }

    #[tokio::test]
    async fn a_later_count_replaces_an_earlier_one() {
        let bench = Bench::new(Some(1));
        let early = Usage { output: 1, ..TOLD };
        let all = bench.all(&[counted(early), text("a"), counted(TOLD), finish()]).await;
        assert_eq!((all.as_str(), bench.used()), ("5+1+0=0.015 text 5+2+0=0.025 finish", 7));
    }

    #[tokio::test]
    async fn who_does_not_count_is_reckoned_for() {
        let bench = Bench::new(Some(1));
        let input = request("p/m", vec![Message::user_text("four words, six tokens .")], &[]).estimated_tokens();
        let expect = format!("text ~{input}+2+0={} finish", Cost::from_parts(u64::from(input + 20) * 1_000_000));
        assert_eq!(bench.all(&[text("8 bytes."), finish()]).await, expect);
        assert_eq!(bench.used(), u64::from(input) + 2);
        let nothing = Usage::default();
        assert!(bench.all(&[counted(nothing), text("8 bytes."), finish()]).await.contains("text ~"), "all zero");
        let whole = bench.all(&[text("a whole text that is long"), counted(TOLD), finish()]).await;
        assert_eq!(whole, "text 5+2+0=0.025 finish", "what a provider says of a whole answer holds");
    }

    #[tokio::test]
    async fn what_an_answer_that_was_cut_had_used_is_counted() {
        let early = Usage { output: 1, ..TOLD };
        let bench = Bench::new(Some(1));
        let all = bench.all(&[counted(early), text("sixteen bytes.. "), gone()]).await;
        assert_eq!((all.as_str(), bench.used()), ("5+1+0=0.015 text ~5+4+0=0.045 transport", 9));
        let bench = Bench::new(Some(1));
        let mut stream = bench.ask(&[counted(early), text("sixteen bytes.. ")], true).await.expect("it answers");
        stream.next().await;
        assert_eq!(bench.used(), 6, "known at once");
        stream.next().await;
        drop(stream);
        assert_eq!(bench.used(), 9, "an abort");
    }

    #[tokio::test]
    async fn a_request_that_was_refused_used_nothing() {
        let bench = Bench::new(Some(1));
        assert_eq!(bench.ask(&[gone()], false).await.err().map(|failure| failure.code).as_deref(), Some("transport"));
        assert_eq!(bench.used(), 0);
    }

    #[tokio::test]
    async fn a_model_of_this_process_uses_what_it_says() {
        let mut bench = Bench::new(Some(1));
        bench.meter.uncounted = None;
        assert_eq!(bench.all(&[text("8 bytes."), finish()]).await, "text finish");
        assert_eq!(bench.used(), 0);
    }
}
