//! A provider with its connections and its key.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dsh_seam::ModelFailure;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, Method, RequestBuilder, Url};

use super::super::provider::{HeaderText, ProviderConfig, ProviderKind, Proxy, Secret, check_base_url};
use super::protocol;
use super::tools::WrittenTools;

/// What servers see of us.
const USER_AGENT: &str = concat!("dsh-host/", env!("CARGO_PKG_VERSION"));

/// A network provider with its connections.
pub(in super::super) struct Provider {
    pub config: Arc<ProviderConfig>,
    /// The tools that were written last.
    pub tools: Arc<WrittenTools>,
    client: OnceLock<Result<Client, String>>,
}

impl Provider {
    pub fn new(config: ProviderConfig) -> Self {
        Self { config: Arc::new(config), tools: Arc::default(), client: OnceLock::new() }
    }

    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Whether a request could be made: there is an address, a key when one is needed, and what its headers and its proxy need.
    pub fn check(&self) -> Result<(), ModelFailure> {
        let name = &self.config.name;
        self.url()?;
        if let Some((variable, what)) = self.config.missing_variables().next() {
            let text = format!("the provider `{name}` needs {what}: set the environment variable `{variable}`");
            return Err(ModelFailure::new("auth", text));
        }
        self.headers().map(drop)
    }

    /// Whether requests carry a key.
    pub fn has_key(&self) -> bool {
        self.key().is_some()
    }

    fn key(&self) -> Option<&Secret> {
        self.config.api_key.as_ref().filter(|key| !key.reveal().is_empty())
    }

    /// The headers that every request has: those of the protocol, the key, then those of the configuration in their place.
    fn headers(&self) -> Result<HeaderMap, ModelFailure> {
        let name = &self.config.name;
        let protocol = protocol(self.config.kind);
        let mut headers = HeaderMap::new();
        // A compressed stream comes late; one that is compressed all the same is read.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in protocol.headers() {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        if let Some(key) = self.key() {
            let (header, value) = protocol.key_header(key);
            let value = secret(&value).ok_or_else(|| {
                let from = self.config.key_variable.as_ref().map(|from| format!(" in `{from}`")).unwrap_or_default();
                let text = format!("the key of the provider `{name}`{from} has characters that no key has");
                ModelFailure::new("auth", text)
            })?;
            headers.insert(header, value);
        }
        for header in &self.config.headers {
            let value = match &header.value {
                HeaderText::Plain(text) => HeaderValue::from_str(text).ok(),
                HeaderText::Variable(_, value) => value.as_ref().and_then(|value| secret(value.reveal())),
            };
            let (Ok(key), Some(value)) = (HeaderName::try_from(&header.name), value) else {
                let text = format!("the header `{}` of the provider `{name}` cannot be sent", header.name);
                return Err(ModelFailure::new("auth", text));
            };
            headers.insert(key, value);
        }
        Ok(headers)
    }

    /// Where requests go.
    pub fn url(&self) -> Result<Url, ModelFailure> {
        self.url_of(|base| protocol(self.config.kind).path(base))
    }

    /// Where the list of models is: beside where requests go.
    pub fn list_url(&self) -> Result<Url, ModelFailure> {
        self.url_of(|base| match protocol(self.config.kind).path(base).starts_with("v1/") {
            true => "v1/models",
            false => "models",
        })
    }

    /// Whether its list of models comes in pages.
    pub fn lists_in_pages(&self) -> bool {
        self.config.kind == ProviderKind::Anthropic
    }

    fn url_of(&self, path: impl FnOnce(&str) -> &'static str) -> Result<Url, ModelFailure> {
        let name = &self.config.name;
        let Some(base) = &self.config.base_url else {
            return Err(super::super::no_adapter(format!(
                "the provider `{name}` has no address: give `--base-url URL`"
            )));
        };
        check_base_url(self.config.kind, base)
            .map_err(|what| super::super::no_adapter(format!("the address of the provider `{name}`: {what}")))?;
        let base = base.trim_end_matches('/');
        let url = Url::parse(&format!("{base}/{}", path(base)));
        url.map_err(|error| super::super::no_adapter(format!("the address of the provider `{name}`: {error}")))
    }

    /// A request with this body, ready to be sent.
    pub fn post(&self, body: Vec<u8>) -> Result<RequestBuilder, ModelFailure> {
        let request = self.request(Method::POST, self.url()?)?;
        Ok(request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream").body(body))
    }

    /// A request for a document.
    pub fn get(&self, url: Url) -> Result<RequestBuilder, ModelFailure> {
        Ok(self.request(Method::GET, url)?.header(ACCEPT, "application/json"))
    }

    fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, ModelFailure> {
        let headers = self.headers()?;
        Ok(self.client(&url)?.request(method, url).headers(headers))
    }

    fn client(&self, url: &Url) -> Result<Client, ModelFailure> {
        let made = self.client.get_or_init(|| {
            // Another part of the process may have installed a provider already; any will do.
            let _ = rustls::crypto::ring::default_provider().install_default();
            self.connections(url).map_err(|error| self.clean_text(&describe(&error.without_url())))
        });
        made.clone().map_err(|what| ModelFailure::new("transport", format!("no connections can be made: {what}")))
    }

    fn connections(&self, url: &Url) -> reqwest::Result<Client> {
        let only = |certificates: Vec<Certificate>| self.builder(url)?.tls_certs_only(certificates).build();
        let own = self.config.authorities.0.clone();
        let with_machine = || self.builder(url)?.tls_certs_merge(own.clone()).build();
        match url.scheme() == "http" && !matches!(self.config.proxy, Proxy::Url(_)) {
            // Without TLS nobody misses the certificates that a small container does not have.
            true if is_loopback(url) => only(Vec::new()),
            true => with_machine().or_else(|_| only(own.clone())),
            false if own.is_empty() => with_machine(),
            false => with_machine().or_else(|_| only(own.clone())),
        }
    }

    fn builder(&self, url: &Url) -> reqwest::Result<ClientBuilder> {
        let builder = Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(Duration::from_millis(self.config.connect_timeout_ms));
        Ok(match &self.config.proxy {
            Proxy::Url(proxy) => builder.proxy(reqwest::Proxy::all(proxy.reveal())?),
            // Loopback never goes through a proxy of the environment.
            Proxy::Environment(_) if !is_loopback(url) => builder,
            Proxy::Environment(_) | Proxy::Direct | Proxy::Missing(_) => builder.no_proxy(),
        })
    }

    /// A failure as it may be shown: a server that quotes the key does not make us show it.
    pub fn clean(&self, mut failure: ModelFailure) -> ModelFailure {
        failure.message = self.clean_text(&failure.message);
        failure
    }

    pub(super) fn clean_text(&self, text: &str) -> String {
        self.config.without_secrets(text)
    }
}

fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether an address is this machine's.
pub(super) fn is_loopback(url: &Url) -> bool {
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
pub(super) fn describe(error: &dyn std::error::Error) -> String {
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
