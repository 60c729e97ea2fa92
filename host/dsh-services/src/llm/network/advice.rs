//! What to try: a failure of a provider says which of key, model, address or connection is wrong, and what to look at.
//!
//! Codes are given elsewhere (`error`) and stay as they are; here the words are found. No message has a secret: it is cleaned when it
//! leaves the provider, and addresses are shown without name, password and query.

use std::error::Error;
use std::io;

use dsh_seam::ModelFailure;
use reqwest::Url;
use rustls::{CertificateError, InvalidMessage};
use serde_json::Value;

use super::super::known;
use super::super::provider::{ProviderKind, Proxy, shown_url};
use super::client::{Provider, broken, describe, is_loopback};

/// Names this near are offered.
const NEAR: f64 = 0.8;

/// What is looked for in a body that is no JSON, so far: a page begins with it.
const PAGE_BYTES: usize = 1024;

/// An answer that is none: what came in place of one.
pub(super) struct Refusal<'a> {
    pub status: u16,
    /// Of the header `content-type`; empty when there is none.
    pub content_type: &'a str,
    /// Of the header `location`.
    pub location: Option<&'a str>,
    pub body: &'a str,
}

impl Refusal<'_> {
    fn is_page(&self) -> bool {
        let start: String = self.body.trim_start().chars().take(PAGE_BYTES).collect::<String>().to_ascii_lowercase();
        self.content_type.starts_with("text/html") || start.starts_with("<!doctype html") || start.starts_with("<html")
    }

    /// Whether it says that the model is not known, in one of the ways in which servers say so.
    fn is_about_the_model(&self) -> bool {
        if !matches!(self.status, 400 | 404 | 422) {
            return false;
        }
        let Ok(body) = serde_json::from_str::<Value>(self.body) else { return false };
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(&body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default().to_lowercase();
        let message = match error.as_str() {
            Some(message) => message.to_lowercase(),
            None => text("message") + &text("detail"),
        };
        let words = [text("code"), text("type")];
        let unknown = [
            "not found",
            "not exist",
            "unknown model",
            "invalid model",
            "not a valid model",
            "no such model",
            "not supported model",
        ];
        let anthropic = message.starts_with("model:") && words[1] == "not_found_error";
        anthropic
            || words.iter().any(|word| word.contains("model_not_found") || word.contains("invalid_model"))
            || (message.contains("model") && unknown.iter().any(|words| message.contains(words)))
    }
}

impl Provider {
    /// Puts in front of what the server said which part of the configuration it is about.
    pub(super) fn explain(&self, model: &str, refusal: &Refusal, failure: ModelFailure) -> ModelFailure {
        let ModelFailure { code, message, .. } = &failure;
        let asked = self.asked();
        let text = match refusal.status {
            _ if refusal.is_about_the_model() => self.unknown_model(model, message),
            401 | 403 if code == "auth" && !refusal.is_page() => self.refused_key(refusal.status, &asked, message),
            400 if speaks_tls(refusal.body) => self.wrong_scheme(&asked, message),
            300..=399 => self.redirected(refusal, &asked),
            404 | 405 | 410 | 501 => self.wrong_address(refusal, &asked),
            // A server that is down says so in a page too; its address is no less right for it.
            ..=499 if refusal.is_page() => self.page(refusal, &asked, &self.as_protocol()),
            _ => return failure,
        };
        ModelFailure { message: text, ..failure }
    }

    /// The same for a list of models, which some servers do not have.
    pub(super) fn explain_list(&self, refusal: &Refusal, failure: ModelFailure) -> ModelFailure {
        let asked = self.list_url().map(|url| format!("GET {}", shown_url(&url))).unwrap_or_default();
        let ModelFailure { code, message, .. } = &failure;
        let text = match refusal.status {
            401 | 403 if code == "auth" && !refusal.is_page() => self.refused_key(refusal.status, &asked, message),
            400 if speaks_tls(refusal.body) => self.wrong_scheme(&asked, message),
            300..=399 => self.redirected(refusal, &asked),
            404 | 405 | 410 | 501 => {
                let (name, status) = (self.name(), refusal.status);
                format!(
                    "the provider `{name}` has no list of models at this address: status {status} to {asked}; {}, or the server has none",
                    self.usual()
                )
            }
            _ if refusal.is_page() => self.page(refusal, &asked, "with a list of models"),
            _ => format!("the provider `{}` gave no list of models ({asked}): {message}", self.name()),
        };
        ModelFailure { message: text, ..failure }
    }

    /// An answer with status 200 that is a web page.
    pub(super) fn page_in_place_of_an_answer(&self, content_type: &str) -> Option<ModelFailure> {
        let refusal = Refusal { status: 200, content_type, location: None, body: "" };
        refusal
            .is_page()
            .then(|| ModelFailure::new("malformed-response", self.page(&refusal, &self.asked(), &self.as_protocol())))
    }

    /// A request that nobody got, in words.
    pub(super) fn not_sent(&self, error: reqwest::Error) -> ModelFailure {
        self.unreachable(&error).unwrap_or_else(|| broken(error, "the request could not be sent"))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Option<ModelFailure> {
        if !error.is_connect() && tls(error).is_none() {
            return None;
        }
        let url = self.url().ok()?;
        let name = self.name();
        let timed_out = error.is_timeout();
        let code = if timed_out { "timeout" } else { "transport" };
        let why = if timed_out {
            let ms = self.config.connect_timeout_ms;
            format!(
                "no connection within {ms} ms (`connect-timeout-ms`); is there a firewall, or a proxy to go through?"
            )
        } else {
            self.why(error, &url)
        };
        let through = match &self.config.proxy {
            Proxy::Url(proxy) => format!(" through the proxy {proxy}"),
            Proxy::Environment(Some(variable)) if !is_loopback(&url) => format!(" (`{variable}` names a proxy)"),
            _ => String::new(),
        };
        Some(ModelFailure::new(
            code,
            format!(
                "the provider `{name}` cannot be reached at {}{through}: {why}",
                url.origin().ascii_serialization()
            ),
        ))
    }

    fn why(&self, error: &reqwest::Error, url: &Url) -> String {
        let host = url.host_str().unwrap_or_default();
        if let Some(error) = tls(error) {
            return self.why_no_tls(error, host);
        }
        let all = describe(error);
        let refused = io_errors(error).any(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            return "the connection was refused; is the server running, and is the port of `base-url` right?".into();
        }
        if all.contains("dns error") {
            return format!("there is no host `{host}`; is the name in `base-url` right, and is there a network?");
        }
        if all.contains("proxy auth") || all.contains("407") {
            return "the proxy wants a name and a password; give them in its address by `proxy-env`".into();
        }
        if all.contains("tunnel") || all.contains("unsuccessful") {
            return format!("the proxy did not let it through ({})", last_cause(error));
        }
        last_cause(error)
    }

    fn why_no_tls(&self, error: &rustls::Error, host: &str) -> String {
        match error {
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::UnknownIssuer => "nobody that this machine trusts has signed the server's certificate; for a company's own authority set `ca-file`".into(),
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "the server's certificate has expired; is the clock of this machine right?".into()
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "the server's certificate is not valid yet; is the clock of this machine right?".into()
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    format!("the server's certificate is for another name than `{host}`; is the host in `base-url` right?")
                }
                other => format!("the server's certificate is not good: {other}"),
            },
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                "the server does not speak TLS there; for plain HTTP write `http://` in `base-url`".into()
            }
            other => format!("no TLS can be had with the server: {other}"),
        }
    }

    fn asked(&self) -> String {
        self.url().map(|url| format!("POST {}", shown_url(&url))).unwrap_or_default()
    }

    fn as_protocol(&self) -> String {
        format!("as {}", self.config.kind.speaks())
    }

    fn refused_key(&self, status: u16, asked: &str, said: &str) -> String {
        let name = self.name();
        let from = self.config.key_variable.as_deref();
        match (self.has_key(), from) {
            (true, Some(variable)) if status == 401 => {
                format!("the key in `{variable}` was refused by the provider `{name}` ({asked}): {said}")
            }
            (true, Some(variable)) => {
                format!("the provider `{name}` does not allow this with the key in `{variable}` ({asked}): {said}")
            }
            (true, None) => format!("the key of the provider `{name}` was refused ({asked}): {said}"),
            (false, Some(variable)) => {
                format!("the provider `{name}` wants a key and there is none: set `{variable}` ({asked}): {said}")
            }
            (false, None) => format!(
                "the provider `{name}` wants a key and has none: set `api-key-env` in `[providers.{name}]` ({asked}): {said}"
            ),
        }
    }

    fn unknown_model(&self, model: &str, said: &str) -> String {
        let name = self.name();
        let near = self.near(model).map(|near| format!(" (did you mean `{name}/{near}`?)")).unwrap_or_default();
        format!(
            "the provider `{name}` does not know the model `{model}`{near}; `dsh-host models --ask {name}` lists those that it knows: {said}"
        )
    }

    /// The nearest name that is known without asking anybody.
    fn near(&self, model: &str) -> Option<String> {
        let table = known::of_kind(self.config.kind).map(|known| known.name.as_str());
        let names = table.chain(self.config.models.keys().map(String::as_str)).filter(|name| *name != model);
        let scored = names.map(|name| (strsim::jaro_winkler(model, name), name)).filter(|(score, _)| *score >= NEAR);
        scored.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name.to_owned())
    }

    fn wrong_address(&self, refusal: &Refusal, asked: &str) -> String {
        let (name, status) = (self.name(), refusal.status);
        let what = self.config.kind.speaks();
        format!("the provider `{name}` has no {what} at this address: status {status} to {asked}; {}", self.usual())
    }

    fn redirected(&self, refusal: &Refusal, asked: &str) -> String {
        let (name, status) = (self.name(), refusal.status);
        let to = refusal.location.and_then(|to| self.url().ok()?.join(to).ok());
        let to = to.map(|to| format!(" to {}", shown_url(&to))).unwrap_or_default();
        format!(
            "the provider `{name}` has moved, and redirects are not followed: status {status}{to}, asked by {asked}; {}",
            self.usual()
        )
    }

    fn page(&self, refusal: &Refusal, asked: &str, wanted: &str) -> String {
        let (name, status) = (self.name(), refusal.status);
        let usual = self.usual();
        format!("the provider `{name}` answered with a web page, not {wanted}: status {status} to {asked}; {usual}")
    }

    fn wrong_scheme(&self, asked: &str, said: &str) -> String {
        format!("the provider `{}` speaks TLS there; write `https://` in `base-url` ({asked}): {said}", self.name())
    }

    /// What the address usually looks like.
    fn usual(&self) -> String {
        let kind = self.config.kind;
        let base = self.config.base_url.as_deref().unwrap_or_default().trim_end_matches('/');
        let has_path = Url::parse(base).is_ok_and(|url| url.path().len() > 1);
        match kind {
            _ if self.config.is_at_home() && kind.default_base_url() == Some(base) => {
                "is something between here and there?".into()
            }
            ProviderKind::DeepSeek => format!("`base-url` usually looks like `{}`", kind.usual_base_url()),
            _ if has_path => format!("`base-url` usually looks like `{}`", kind.usual_base_url()),
            _ => format!("`base-url` usually ends in `/v1`: `{base}/v1`"),
        }
    }
}

/// What servers of TLS say to a request without it.
fn speaks_tls(body: &str) -> bool {
    let body = body.to_ascii_lowercase();
    body.contains("http request to an https server") || body.contains("http request was sent to https port")
}

/// An error and what is behind it, one after the other.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| behind(error))
}

fn behind<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    // An error of the system that holds another does not call it its source.
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn io_errors(error: &reqwest::Error) -> impl Iterator<Item = &io::Error> {
    causes(error).filter_map(|error| error.downcast_ref::<io::Error>())
}

fn tls(error: &reqwest::Error) -> Option<&rustls::Error> {
    causes(error).find_map(|error| error.downcast_ref::<rustls::Error>())
}

fn last_cause(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}
