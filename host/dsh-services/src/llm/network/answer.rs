//! Sends a request and reads the answer while it comes.
//!
//! Everything that waits has a deadline, everything that grows has a bound, and dropping the stream, or the future that makes it,
//! closes the connection. Only an answer that was read to its end leaves a connection for the next request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dsh_seam::ModelFailure;
use dsh_seam::llm::ChunkStream;
use dsh_seam::message::Chunk;
use dsh_seam::services::{Clock, SystemClock};
use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, LOCATION};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use super::advice::Refusal;
use super::client::{Provider, broken};
use super::sse::{self, Events};
use super::times::{Times, Waited};
use super::{Decode, error, waits};

/// The most of an error's body that is read: enough for any message.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// How long an error's body is read: its status is known, and says more than a body that does not come.
const ERROR_BODY: Duration = Duration::from_secs(10);

/// The most of an answer that is no stream: as much as one event may have.
const MAX_BODY_BYTES: usize = sse::MAX_EVENT_BYTES;

/// The most bytes without a word of the answer in them. Comments and pings are signs of life, and a flood of them is none; the longest
/// event must fit.
const MAX_BARREN_BYTES: usize = 2 * sse::MAX_EVENT_BYTES;

/// The most bytes of one answer: a piece of a few letters is some hundred bytes on the wire, and no model writes a million pieces.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The encodings that a server may use (the registry of RFC 9110, 16.6), but for the one that is read.
const ENCODINGS: [&str; 5] = ["br", "compress", "dcb", "deflate", "zstd"];

/// How long the last chunk is held back while the end of the body is not there: it comes with the last event or right behind it, and a
/// request that finds its connection again saves more than this.
const END_GRACE: Duration = Duration::from_millis(5);

/// How long, and how far, the end of a body is looked for behind an answer that is whole, so that its connection can be used again.
const DRAIN: Duration = Duration::from_secs(1);
const MAX_DRAINED_BYTES: usize = 64 << 10;

/// The bytes of a body as they come.
type Body = BoxStream<'static, Result<Bytes, ModelFailure>>;

/// Sends `body` for `model` and gives the chunks that `decoder` makes of the answer.
pub(super) async fn stream(
    provider: Arc<Provider>,
    model: &str,
    body: Vec<u8>,
    decoder: Box<dyn Decode>,
) -> Result<ChunkStream, ModelFailure> {
    let times = Times::new(&provider.config);
    let sent = timeout_at(times.first_byte(), provider.post(body)?.send()).await;
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            return Err(error::no_http(&error).unwrap_or_else(|| provider.not_sent(error)));
        }
        Err(_) => return Err(times.failure(Waited::FirstByte)),
    };
    if !response.status().is_success() {
        return Err(refused(&provider, model, response, &times).await);
    }
    // What was asked for is plain, and what can be read is not told here any more.
    let encoding = header(&response, CONTENT_ENCODING);
    if !matches!(encoding.as_str(), "" | "identity") {
        // Only names that are registered are shown: a server may put anything there.
        let known =
            ENCODINGS.into_iter().find(|known| *known == encoding).map(|known| format!("the encoding `{known}`"));
        let what = known.unwrap_or_else(|| "an unknown encoding".into());
        return Err(error::malformed(&format!("an answer in {what}, which was not asked for")));
    }
    let body = response.bytes_stream().map(|read| read.map_err(|error| broken(error, "the connection broke")));
    let answer = Answer::new(provider, body.boxed(), times, decoder);
    let next = |mut answer: Answer| async move { answer.next().await.map(|item| (item, answer)) };
    Ok(futures::stream::unfold(answer, next).boxed())
}

pub(super) fn header(response: &Response, name: HeaderName) -> String {
    let value = response.headers().get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_ascii_lowercase()
}

/// Reads what a server said when it refused a request.
async fn refused(provider: &Provider, model: &str, mut response: Response, times: &Times) -> ModelFailure {
    let (content_type, location) = (header(&response, CONTENT_TYPE), response.headers().get(LOCATION).cloned());
    let status = response.status().as_u16();
    let wait_ms = waits::of_headers(response.headers(), SystemClock.now_ms());
    let until = times.total().min(Instant::now() + ERROR_BODY);
    let mut body = Vec::new();
    while body.len() < MAX_ERROR_BYTES
        && let Ok(Ok(Some(bytes))) = timeout_at(until.min(times.idle()), response.chunk()).await
    {
        body.extend_from_slice(&bytes);
    }
    body.truncate(MAX_ERROR_BYTES);
    let body = String::from_utf8_lossy(&body);
    let location = location.as_ref().and_then(|to| to.to_str().ok());
    let refusal = Refusal { status, content_type: &content_type, location, body: &body };
    provider.explain(model, &refusal, error::of_status(status, &body, wait_ms))
}

/// An answer on its way. Dropping it closes the connection, unless the answer is whole.
struct Answer {
    provider: Arc<Provider>,
    /// None once nothing more can be read.
    body: Option<Body>,
    times: Times,
    begun: bool,
    /// Bytes so far.
    received: usize,
    /// Bytes since the last chunk.
    barren: usize,
    reader: Reader,
    decoder: Box<dyn Decode>,
    ready: VecDeque<Result<Chunk, ModelFailure>>,
}

/// What the body is. Its first character says so, whatever the head says: servers and proxies are careless with types.
enum Reader {
    /// Nothing but white space so far.
    Unknown,
    Stream(Events),
    /// A server that does not stream: one JSON document.
    Whole(Vec<u8>),
}

impl Answer {
    fn new(provider: Arc<Provider>, body: Body, times: Times, decoder: Box<dyn Decode>) -> Self {
        Self {
            provider,
            body: Some(body),
            times,
            begun: false,
            received: 0,
            barren: 0,
            reader: Reader::Unknown,
            decoder,
            ready: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Option<Result<Chunk, ModelFailure>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                if self.ready.is_empty() && self.decoder.is_over() {
                    self.look_for_the_end().await;
                }
                return Some(item.map_err(|failure| self.provider.clean(failure)));
            }
            if self.decoder.is_over() {
                return None;
            }
            let (deadline, waited) = self.deadline();
            let body = self.body.as_mut()?;
            let read = if self.times.is_over() {
                // A provider that is always ready would never be asked about the time.
                self.cut(self.times.failure(Waited::Total))
            } else {
                match timeout_at(deadline, body.next()).await {
                    Ok(Some(Ok(bytes))) => self.read(&bytes),
                    Ok(Some(Err(failure))) => self.cut(failure),
                    Ok(None) => self.end(),
                    Err(_) => self.cut(self.times.failure(waited)),
                }
            };
            self.hand_over(read);
        }
    }

    /// Reads what is there behind the last event, so that the next request finds the connection free.
    async fn look_for_the_end(&mut self) {
        if let Some(body) = &mut self.body
            && timeout(END_GRACE, async { while let Some(Ok(_)) = body.next().await {} }).await.is_ok()
        {
            self.body = None;
        }
    }

    fn deadline(&self) -> (Instant, Waited) {
        match (self.begun, self.decoder.is_finished()) {
            (false, _) => (self.times.first_byte(), Waited::FirstByte),
            (true, false) => (self.times.idle(), Waited::Idle),
            (true, true) => (self.times.after_finish(), Waited::Idle),
        }
    }

    /// Makes the chunks ready, and then the failure, which is the last item.
    fn hand_over(&mut self, read: Result<(), ModelFailure>) {
        let chunks = self.decoder.take();
        if !chunks.is_empty() {
            self.barren = 0;
        }
        self.ready.extend(chunks.into_iter().map(Ok));
        let read = match read {
            Ok(()) if self.barren > MAX_BARREN_BYTES => {
                Err(error::malformed(&format!("{} MiB without a word of the answer", MAX_BARREN_BYTES >> 20)))
            }
            read => read,
        };
        if let Err(failure) = read {
            self.ready.push_back(Err(failure));
            self.body = None;
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), ModelFailure> {
        self.begun = true;
        self.barren += bytes.len();
        self.received += bytes.len();
        if self.received > MAX_ANSWER_BYTES {
            return Err(error::malformed(&format!("more than {} MiB in one answer", MAX_ANSWER_BYTES >> 20)));
        }
        let bytes = match self.reader {
            Reader::Unknown => {
                // A byte order mark says nothing either.
                let says = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0xef | 0xbb | 0xbf);
                let Some(first) = bytes.iter().position(says) else { return Ok(()) };
                self.reader = self.reader(bytes[first])?;
                &bytes[first..]
            }
            _ => bytes,
        };
        match &mut self.reader {
            Reader::Unknown => {}
            Reader::Stream(events) => {
                events.push(bytes);
                while !self.decoder.is_over()
                    && let Some(event) = events.take()?
                {
                    self.decoder.event(&event)?;
                }
            }
            Reader::Whole(body) if body.len() + bytes.len() > MAX_BODY_BYTES => {
                return Err(error::malformed("an answer that is too long"));
            }
            Reader::Whole(body) => body.extend_from_slice(bytes),
        }
        Ok(())
    }

    /// What reads a body that begins so.
    fn reader(&self, first: u8) -> Result<Reader, ModelFailure> {
        /// With which a gzip member begins (RFC 1952).
        const GZIP: u8 = 0x1f;
        match first {
            b'{' | b'[' => Ok(Reader::Whole(Vec::new())),
            // What a proxy or a portal shows to people.
            b'<' => {
                Err(self.provider.page_in_place_of_an_answer("text/html").unwrap_or_else(|| error::malformed("a page")))
            }
            GZIP => Err(error::malformed("a compressed answer, and no `content-encoding` that says so")),
            _ => Ok(Reader::Stream(Events::default())),
        }
    }

    fn end(&mut self) -> Result<(), ModelFailure> {
        self.body = None;
        match &mut self.reader {
            Reader::Unknown => self.decoder.end(),
            Reader::Stream(events) => {
                if let Some(event) = events.last()? {
                    self.decoder.event(&event)?;
                }
                let ended = self.decoder.end();
                match events.foreign() {
                    Some(text) if ended.is_err() => Err(error::foreign(text)),
                    _ => ended,
                }
            }
            Reader::Whole(body) => {
                self.decoder.whole(body)?;
                self.decoder.end()
            }
        }
    }

    /// The connection is of no use any more. An answer that the provider has finished is whole all the same.
    fn cut(&mut self, failure: ModelFailure) -> Result<(), ModelFailure> {
        self.body = None;
        if self.decoder.is_finished() { self.decoder.end() } else { Err(failure) }
    }
}

impl Drop for Answer {
    /// The last event of an answer comes before the end of its body. A connection is used again once that end was read.
    fn drop(&mut self) {
        if self.decoder.is_over()
            && let Some(mut body) = self.body.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(timeout(DRAIN, async move {
                let mut left = MAX_DRAINED_BYTES;
                while let Some(Ok(bytes)) = body.next().await
                    && let Some(still) = left.checked_sub(bytes.len())
                {
                    left = still;
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::chat::Chat;
    use super::super::super::provider::{ProviderConfig, ProviderKind};
    use super::super::super::support::all;
    use super::super::{Protocol, Target};
    use super::*;
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    const START: &str =
        r#"{"type":"block-start","index":0,"blockType":"text"} {"type":"text-delta","index":0,"text":"x"}"#;
    const PIECE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    const FINISH: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

    fn config() -> ProviderConfig {
        ProviderConfig {
            first_byte_timeout_ms: 1000,
            idle_timeout_ms: 400,
            total_timeout_ms: 5000,
            ..ProviderConfig::new("p", ProviderKind::Compatible)
        }
    }

    fn chunks(body: Body) -> ChunkStream {
        let provider = Arc::new(Provider::new(config()));
        let decoder = Chat.decoder(&Target::new(provider.config.clone(), "m"));
        let times = Times::new(&provider.config);
        let answer = Answer::new(provider, body, times, decoder);
        futures::stream::unfold(answer, |mut answer| async move { answer.next().await.map(|item| (item, answer)) })
            .boxed()
    }

    /// A body of these pieces, each after so many milliseconds, that never ends.
    fn paced(pieces: Vec<(u64, String)>) -> Body {
        let paced = futures::stream::iter(pieces).then(|(ms, text)| async move {
            sleep(Duration::from_millis(ms)).await;
            Ok(Bytes::from(text))
        });
        paced.chain(futures::stream::pending()).boxed()
    }

    /// What comes of it, and after how many milliseconds.
    async fn check(pieces: Vec<(u64, &str)>, expect: &str, after_ms: u64) {
        let begun = Instant::now();
        let pieces: Vec<_> = pieces.into_iter().map(|(ms, text)| (ms, text.to_owned())).collect();
        let got = all(Ok(chunks(paced(pieces)))).await;
        assert_eq!((got.as_str(), begun.elapsed()), (expect, Duration::from_millis(after_ms)));
    }

    #[tokio::test(start_paused = true)]
    async fn every_wait_has_its_end() {
        check(vec![], "!timeout no answer began within 1000 ms (`first-byte-timeout-ms`)", 1000).await;
        let idle = "!timeout the answer stood still for 400 ms (`idle-timeout-ms`)";
        check(vec![(900, ": here\n")], idle, 1300).await;
        check(vec![(900, PIECE)], &format!("{START} {idle}"), 1300).await;
        // A piece at the last moment counts.
        check(vec![(999, PIECE), (399, ": ping\n\n"), (399, "d")], &format!("{START} {idle}"), 2197).await;
        // Signs of life keep an answer alive, until there was enough of them.
        let total = "!timeout the answer took longer than 5000 ms (`total-timeout-ms`)";
        check(vec![(300, ": ping\n"); 40], total, 5000).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_answer_is_waited_for_for_a_moment() {
        let end = r#"{"type":"block-end","index":0,"block":{"type":"text","text":"x"}}"#;
        let whole = format!("{START} {end} {{\"type\":\"finish\",\"reason\":\"stop\"}}");
        check(vec![(10, PIECE), (10, FINISH), (10, "data: [DONE]\n\n")], &whole, 35).await;
        // Without the word for the end: counts may still come, for a moment.
        check(vec![(10, PIECE), (10, FINISH)], &whole, 420).await;
        check(vec![(10, PIECE), (10, FINISH), (100, ": ping\n")], &whole, 520).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_falls_behind_is_no_silence() {
        let mut chunks = chunks(paced(vec![(10, PIECE.to_owned()), (10, PIECE.to_owned())]));
        assert!(chunks.next().await.is_some_and(|chunk| chunk.is_ok()));
        sleep(Duration::from_secs(3)).await;
        let rest = all(Ok(chunks)).await;
        let delta = r#"{"type":"text-delta","index":0,"text":"x"}"#;
        let idle = "!timeout the answer stood still for 400 ms (`idle-timeout-ms`)";
        assert_eq!(rest, format!("{delta} {delta} {idle}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_is_always_ready_is_asked_about_the_time() {
        let (sender, mut receiver) = mpsc::channel(1);
        let flood = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx)).boxed();
        let mut chunks = chunks(flood);
        sender.send(Ok(Bytes::from(PIECE))).await.expect("it is read");
        assert!(chunks.next().await.is_some_and(|chunk| chunk.is_ok()));
        sleep(Duration::from_secs(5)).await;
        sender.send(Ok(Bytes::from(PIECE))).await.expect("it could be read");
        let delta = r#"{"type":"text-delta","index":0,"text":"x"}"#;
        let total = "!timeout the answer took longer than 5000 ms (`total-timeout-ms`)";
        assert_eq!(all(Ok(chunks)).await, format!("{delta} {total}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_nothing_has_an_end() {
        let check = async |piece: Vec<u8>, expect: &str| {
            let piece = Bytes::from(piece);
            let flood = futures::stream::repeat_with(move || Ok(piece.clone())).boxed();
            assert_eq!(all(Ok(chunks(flood))).await, expect);
        };
        let barren = "!malformed-response the provider sent 64 MiB without a word of the answer";
        check([b": ", vec![b'c'; 1 << 20].as_slice(), b"\n"].concat(), barren).await;
        check(vec![b' '; 1 << 20], barren).await;
        check(format!("data: {{\"choices\":[],\"x\":\"{}\"}}\n\n", "x".repeat(1 << 20)).into_bytes(), barren).await;
        check(vec![b'x'; 1 << 20], "!malformed-response the provider sent an event that is too long").await;
        let long = "!malformed-response the provider sent an answer that is too long";
        check([b"{\"a\":\"", vec![b'x'; 1 << 20].as_slice()].concat(), long).await;
        check(
            vec![0x1f, 0x8b],
            "!malformed-response the provider sent a compressed answer, and no `content-encoding` that says so",
        )
        .await;
    }
}
