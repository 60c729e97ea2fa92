//! A provider with its connections and its key.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dsh_seam::ModelFailure;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};

use super::super::provider::{ProviderConfig, Secret};
use super::protocol;

/// What servers see of us.
const USER_AGENT: &str = concat!("dsh-host/", env!("CARGO_PKG_VERSION"));

/// A network provider with its connections.
pub(in super::super) struct Provider {
    pub config: Arc<ProviderConfig>,
    client: OnceLock<Result<Client, String>>,
}

impl Provider {
    pub fn new(config: ProviderConfig) -> Self {
        Self { config: Arc::new(config), client: OnceLock::new() }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Whether a request could be made: there is an address, and a key when one is needed.
    pub fn check(&self) -> Result<(), ModelFailure> {
        let name = &self.config.name;
        self.url()?;
        match (self.key(), &self.config.key_variable) {
            (None, Some(variable)) => Err(ModelFailure::new(
                "auth",
                format!("the provider `{name}` needs a key: set the environment variable `{variable}`"),
            )),
            (Some(key), _) if self.key_header(key).is_none() => {
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

    fn key(&self) -> Option<&Secret> {
        self.config.api_key.as_ref().filter(|key| !key.reveal().is_empty())
    }

    fn key_header(&self, key: &Secret) -> Option<(&'static str, HeaderValue)> {
        let (name, value) = protocol(self.config.kind).key_header(key);
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }

    fn url(&self) -> Result<Url, ModelFailure> {
        let name = &self.config.name;
        let Some(base) = &self.config.base_url else {
            return Err(super::super::no_adapter(format!(
                "the provider `{name}` has no address: give `--base-url URL`"
            )));
        };
        let base = base.trim_end_matches('/');
        let path = protocol(self.config.kind).path(base);
        let url = Url::parse(&format!("{base}/{path}"));
        url.ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()).ok_or_else(|| {
            super::super::no_adapter(format!("the address of the provider `{name}` is no `http` or `https` URL"))
        })
    }

    /// A request with this body, ready to be sent.
    pub fn post(&self, body: Vec<u8>) -> Result<RequestBuilder, ModelFailure> {
        let url = self.url()?;
        let client = self.client(&url)?;
        let mut post = client.post(url).header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        for (name, value) in protocol(self.config.kind).headers() {
            post = post.header(*name, *value);
        }
        if let Some((name, value)) = self.key().and_then(|key| self.key_header(key)) {
            post = post.header(name, value);
        }
        Ok(post.body(body))
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
    pub fn clean(&self, mut failure: ModelFailure) -> ModelFailure {
        if let Some(key) = self.key() {
            failure.message = failure.message.replace(key.reveal(), "***");
        }
        failure
    }
}

/// Loopback never goes through a proxy.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// A broken connection, as a failure.
pub(super) fn broken(error: reqwest::Error, what: &str) -> ModelFailure {
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

#[cfg(test)]
mod tests {
    #[test]
    fn loopback_is_known_by_name_and_number() {
        let check = |url: &str, expect: bool| {
            assert_eq!(super::is_loopback(&url.parse().expect("a URL")), expect, "{url}");
        };
        check("http://127.0.0.1:8080/v1", true);
        check("http://127.9.9.9/", true);
        check("http://[::1]:80/", true);
        check("http://localhost/", true);
        check("http://a.localhost/", true);
        check("http://localhost.example.com/", false);
        check("http://192.168.0.1/", false);
        check("https://api.openai.com/v1", false);
    }
}
