//! The adapter for Chat Completions: OpenAI, DeepSeek and every server that speaks the same.
//!
//! [`request`] writes the body, [`sse`] cuts the answer into events, [`decode`] makes chunks of them, [`error`] gives failures their
//! codes; this file does the waiting. The key is in one header and nowhere else.

mod decode;
mod error;
mod request;
mod sse;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::ModelFailure;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::Chunk;
use dsh_seam::services::{Clock, SystemClock};
use futures::StreamExt;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout_at};

use super::provider::ProviderConfig;
use decode::Decoder;
pub(super) use request::body;
use sse::Events;

/// What servers see of us.
const USER_AGENT: &str = concat!("dsh-host/", env!("CARGO_PKG_VERSION"));

/// The most of an error's body that is read: enough for any message.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// The most of an answer that is no stream: as much as one event may have.
const MAX_BODY_BYTES: usize = sse::MAX_EVENT_BYTES;

/// A network provider with its connections.
pub(super) struct Provider {
    config: ProviderConfig,
    client: OnceLock<Result<Client, String>>,
}

impl Provider {
    pub fn new(config: ProviderConfig) -> Self {
        Self { config, client: OnceLock::new() }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    pub fn context_window(&self) -> Option<u32> {
        self.config.context_window
    }

    /// Whether a request could be made: the kind has an adapter, there is an address, and a key when one is needed.
    pub fn check(&self) -> Result<(), ModelFailure> {
        let name = &self.config.name;
        if !self.config.kind.is_supported() {
            return Err(super::no_adapter(format!(
                "the provider `{name}` is of kind `{}`, which comes with a later version; use `openai`, `deepseek` or `compatible`",
                self.config.kind.as_str()
            )));
        }
        self.url()?;
        let key = self.config.api_key.as_ref().filter(|key| !key.reveal().is_empty());
        match (key, &self.config.key_variable) {
            (None, Some(variable)) => Err(ModelFailure::new(
                "auth",
                format!("the provider `{name}` needs a key: set the environment variable `{variable}`"),
            )),
            (Some(key), _) if HeaderValue::from_str(&bearer(key.reveal())).is_err() => {
                let from =
                    self.config.key_variable.as_ref().map(|variable| format!(" in `{variable}`")).unwrap_or_default();
                Err(ModelFailure::new(
                    "auth",
                    format!("the key of the provider `{name}`{from} has characters that no key has"),
                ))
            }
            _ => Ok(()),
        }
    }

    fn url(&self) -> Result<Url, ModelFailure> {
        let name = &self.config.name;
        let Some(base) = &self.config.base_url else {
            return Err(super::no_adapter(format!("the provider `{name}` has no address: give `--base-url URL`")));
        };
        let url = Url::parse(&format!("{}/chat/completions", base.trim_end_matches('/')));
        url.ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()).ok_or_else(|| {
            super::no_adapter(format!("the address of the provider `{name}` is no `http` or `https` URL"))
        })
    }

    fn client(&self, url: &Url) -> Result<Client, ModelFailure> {
        let made = self.client.get_or_init(|| {
            // Another part of the process may have installed a provider already; any will do.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let builder = || {
                Client::builder()
                    .user_agent(USER_AGENT)
                    .redirect(reqwest::redirect::Policy::none())
                    .connect_timeout(Duration::from_millis(self.config.connect_timeout_ms))
            };
            let plain = url.scheme() == "http";
            let client = match is_loopback(url) {
                true if plain => builder().no_proxy().tls_certs_only([]).build(),
                true => builder().no_proxy().build(),
                // Without TLS nobody misses the certificates that a small container does not have.
                false if plain => builder().build().or_else(|_| builder().tls_certs_only([]).build()),
                false => builder().build(),
            };
            client.map_err(|error| describe(&error.without_url()))
        });
        made.clone().map_err(|what| ModelFailure::new("transport", format!("no connections can be made: {what}")))
    }

    /// A failure as it may be shown: a server that quotes the key does not make us show it.
    fn clean(&self, mut failure: ModelFailure) -> ModelFailure {
        if let Some(key) = &self.config.api_key
            && !key.reveal().is_empty()
        {
            failure.message = failure.message.replace(key.reveal(), "***");
        }
        failure
    }
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

/// Loopback never goes through a proxy.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// One model of one provider.
pub(super) struct ChatModel {
    provider: Arc<Provider>,
    model: String,
}

impl ChatModel {
    pub fn new(provider: Arc<Provider>, model: String) -> Self {
        Self { provider, model }
    }

    async fn send(&self, request: &ModelRequest) -> Result<(Response, Times), ModelFailure> {
        let url = self.provider.url()?;
        let body = request::body(self.provider.config.kind, &self.model, request);
        let client = self.provider.client(&url)?;
        let mut post = client.post(url).header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        if let Some(key) = self.provider.config.api_key.as_ref().filter(|key| !key.reveal().is_empty())
            && let Ok(mut value) = HeaderValue::from_str(&bearer(key.reveal()))
        {
            value.set_sensitive(true);
            post = post.header(AUTHORIZATION, value);
        }
        let times = Times::new(&self.provider.config);
        let sent = timeout_at(times.first_byte(), post.body(body).send()).await;
        match sent {
            Ok(Ok(response)) => Ok((response, times)),
            Ok(Err(error)) => Err(broken(error, "the request could not be sent")),
            Err(_) => Err(times.failure(Waited::FirstByte)),
        }
    }
}

#[async_trait]
impl Model for ChatModel {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        let provider = self.provider.clone();
        let (response, times) = self.send(&request).await.map_err(|failure| provider.clean(failure))?;
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
            decoder: Decoder::default(),
            ready: VecDeque::new(),
        };
        Ok(futures::stream::unfold(answer, |mut answer| async move { answer.next().await.map(|item| (item, answer)) })
            .boxed())
    }
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
    decoder: Decoder,
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
            self.ready.extend(self.decoder.take().map(Ok));
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
                Err(decode::malformed("an answer that is too long"))
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

/// What a time-out was waiting for.
#[derive(Clone, Copy)]
enum Waited {
    FirstByte,
    Idle,
}

/// The deadlines of one call.
struct Times {
    begun: Instant,
    first_byte_ms: u64,
    idle_ms: u64,
    total_ms: u64,
}

impl Times {
    fn new(config: &ProviderConfig) -> Self {
        Self {
            begun: Instant::now(),
            first_byte_ms: config.first_byte_timeout_ms,
            idle_ms: config.idle_timeout_ms,
            total_ms: config.total_timeout_ms,
        }
    }

    fn total(&self) -> Instant {
        self.begun + Duration::from_millis(self.total_ms)
    }

    fn first_byte(&self) -> Instant {
        self.total().min(self.begun + Duration::from_millis(self.first_byte_ms))
    }

    fn idle(&self) -> Instant {
        self.total().min(Instant::now() + Duration::from_millis(self.idle_ms))
    }

    fn failure(&self, waited: Waited) -> ModelFailure {
        let text = match waited {
            _ if Instant::now() >= self.total() => {
                format!("the answer took longer than {} ms (`total-timeout-ms`)", self.total_ms)
            }
            Waited::FirstByte => format!("no answer began within {} ms (`first-byte-timeout-ms`)", self.first_byte_ms),
            Waited::Idle => format!("the answer stood still for {} ms (`idle-timeout-ms`)", self.idle_ms),
        };
        ModelFailure::new("timeout", text)
    }
}

fn broken(error: reqwest::Error, what: &str) -> ModelFailure {
    let error = error.without_url();
    let code = if error.is_timeout() { "timeout" } else { "transport" };
    ModelFailure::new(code, format!("{what}: {}", describe(&error)))
}

/// An error with its causes: the outermost alone says nothing.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
