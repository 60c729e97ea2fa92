//! Sends a request and reads the answer while it comes.

use std::collections::VecDeque;
use std::sync::Arc;

use dsh_seam::ModelFailure;
use dsh_seam::llm::ChunkStream;
use dsh_seam::message::Chunk;
use dsh_seam::services::{Clock, SystemClock};
use futures::StreamExt;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tokio::time::timeout_at;

use super::client::{Provider, broken};
use super::sse::{self, Events};
use super::times::{Times, Waited};
use super::{Decode, error};

/// The most of an error's body that is read: enough for any message.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The most of an answer that is no stream: as much as one event may have.
const MAX_BODY_BYTES: usize = sse::MAX_EVENT_BYTES;

/// Sends `body` and gives the chunks that `decoder` makes of the answer.
pub(super) async fn stream(
    provider: Arc<Provider>,
    body: Vec<u8>,
    decoder: Box<dyn Decode>,
) -> Result<ChunkStream, ModelFailure> {
    let times = Times::new(&provider.config);
    let sent = timeout_at(times.first_byte(), provider.post(body)?.send()).await;
    let response = match sent {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(provider.clean(broken(error, "the request could not be sent"))),
        Err(_) => return Err(times.failure(Waited::FirstByte)),
    };
    if !response.status().is_success() {
        return Err(provider.clean(refused(response, &times).await));
    }
    let json = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|kind| kind.starts_with("application/json"));
    let answer = Answer {
        provider,
        body: Some(response),
        times,
        begun: false,
        reader: if json { Reader::Whole(Vec::new()) } else { Reader::Stream(Events::default()) },
        decoder,
        ready: VecDeque::new(),
    };
    let next = |mut answer: Answer| async move { answer.next().await.map(|item| (item, answer)) };
    Ok(futures::stream::unfold(answer, next).boxed())
}

/// Reads what a server said when it refused a request.
async fn refused(mut response: Response, times: &Times) -> ModelFailure {
    let status = response.status().as_u16();
    let retry_after_ms = error::retry_after_ms(response.headers(), SystemClock.now_ms());
    let mut body = Vec::new();
    while body.len() < MAX_ERROR_BYTES
        && let Ok(Ok(Some(bytes))) = timeout_at(times.idle(), response.chunk()).await
    {
        body.extend_from_slice(&bytes);
    }
    body.truncate(MAX_ERROR_BYTES);
    ModelFailure { status: Some(status), retry_after_ms, ..error::of_status(status, &String::from_utf8_lossy(&body)) }
}

/// An answer on its way. Dropping it closes the connection.
struct Answer {
    provider: Arc<Provider>,
    /// None once nothing more is read.
    body: Option<Response>,
    times: Times,
    begun: bool,
    reader: Reader,
    decoder: Box<dyn Decode>,
    ready: VecDeque<Result<Chunk, ModelFailure>>,
}

enum Reader {
    Stream(Events),
    /// A server that does not stream: one JSON document.
    Whole(Vec<u8>),
}

impl Answer {
    async fn next(&mut self) -> Option<Result<Chunk, ModelFailure>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item.map_err(|failure| self.provider.clean(failure)));
            }
            let response = self.body.as_mut()?;
            let deadline = if self.begun { self.times.idle() } else { self.times.first_byte() };
            let read = match timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.begun = true;
                    self.read(&bytes)
                }
                Ok(Ok(None)) => self.end(),
                Ok(Err(error)) => self.cut(broken(error, "the connection broke")),
                Err(_) => self.cut(self.times.failure(if self.begun { Waited::Idle } else { Waited::FirstByte })),
            };
            self.ready.extend(self.decoder.take().into_iter().map(Ok));
            if let Err(failure) = read {
                self.ready.push_back(Err(failure));
                self.body = None;
            }
            if self.decoder.is_over() {
                self.body = None;
            }
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), ModelFailure> {
        match &mut self.reader {
            Reader::Stream(events) => {
                events.push(bytes)?;
                while let Some(event) = events.pop() {
                    self.decoder.event(&event)?;
                }
                Ok(())
            }
            Reader::Whole(body) if body.len() + bytes.len() > MAX_BODY_BYTES => {
                Err(error::malformed("an answer that is too long"))
            }
            Reader::Whole(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<(), ModelFailure> {
        self.body = None;
        match &mut self.reader {
            Reader::Stream(events) => {
                if let Some(event) = events.last() {
                    self.decoder.event(&event)?;
                }
            }
            Reader::Whole(body) if body.is_empty() => {}
            Reader::Whole(body) => self.decoder.whole(body)?,
        }
        self.decoder.end()
    }

    /// The connection is of no use any more. An answer that the provider has finished is whole all the same.
    fn cut(&mut self, failure: ModelFailure) -> Result<(), ModelFailure> {
        self.body = None;
        if self.decoder.is_finished() { self.decoder.end() } else { Err(failure) }
    }
}
