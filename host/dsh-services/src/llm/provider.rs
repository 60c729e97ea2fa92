//! What is known of a network provider: its kind, its address, its key, its time-outs, how it is reached, its models.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use dsh_seam::ModelFailure;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Certificate, Url};

use serde_json::{Map, Value};

use super::known;
use super::network;
use super::prices::Price;

/// What a time-out may be, in milliseconds: 0 would let nothing through, and nobody waits for longer than a day.
pub const TIME_OUT_MS: RangeInclusive<u64> = 1..=86_400_000;

/// A key. It is shown nowhere: neither `Debug` nor `Display` has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself, for the one header that carries it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Which protocol a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderKind {
    /// OpenAI's Chat Completions.
    OpenAi,
    /// OpenAI's Responses.
    OpenAiResponses,
    /// Anthropic's Messages.
    Anthropic,
    /// DeepSeek's Chat Completions.
    DeepSeek,
    /// Any other server of Chat Completions.
    Compatible,
}

impl ProviderKind {
    /// Every kind.
    pub const ALL: [ProviderKind; 5] = [
        ProviderKind::OpenAi,
        ProviderKind::OpenAiResponses,
        ProviderKind::Anthropic,
        ProviderKind::DeepSeek,
        ProviderKind::Compatible,
    ];

    /// The word in `kind = "…"`.
    pub fn as_str(self) -> &'static str {
        match self {
            ProviderKind::OpenAi => "openai",
            ProviderKind::OpenAiResponses => "openai-responses",
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::DeepSeek => "deepseek",
            ProviderKind::Compatible => "compatible",
        }
    }

    /// The members of a request's body that its adapter writes itself and nobody else can set.
    pub fn reserved(self) -> &'static [&'static str] {
        network::protocol(self).reserved()
    }

    /// Where the provider is, unless the configuration says otherwise.
    pub fn default_base_url(self) -> Option<&'static str> {
        match self {
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => Some("https://api.openai.com/v1"),
            ProviderKind::Anthropic => Some("https://api.anthropic.com/v1"),
            ProviderKind::DeepSeek => Some("https://api.deepseek.com"),
            ProviderKind::Compatible => None,
        }
    }

    /// The name of its protocol.
    pub(super) fn speaks(self) -> &'static str {
        match self {
            ProviderKind::OpenAi | ProviderKind::DeepSeek | ProviderKind::Compatible => "Chat Completions",
            ProviderKind::OpenAiResponses => "Responses",
            ProviderKind::Anthropic => "Messages",
        }
    }

    /// What an address of it usually looks like.
    pub fn usual_base_url(self) -> &'static str {
        self.default_base_url().unwrap_or("http://127.0.0.1:8080/v1")
    }
}

impl FromStr for ProviderKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| {
            let list = Self::ALL.map(|kind| format!("`{}`", kind.as_str())).join(", ");
            format!("unknown kind of provider `{text}`: there are {list}")
        })
    }
}

/// One network provider.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// The part of a model's name before the `/`.
    pub name: String,
    /// Its protocol.
    pub kind: ProviderKind,
    /// Where it is, without `/chat/completions`; none: a model of it is an error that asks for `--base-url`.
    pub base_url: Option<String>,
    /// The key; none: no header carries one.
    pub api_key: Option<Secret>,
    /// The environment variable that holds the key; none: there is no key.
    pub key_variable: Option<String>,
    /// Whether it is of no use without its key.
    pub key_needed: bool,
    /// The most time for a connection, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The most time until the answer begins, in milliseconds.
    pub first_byte_timeout_ms: u64,
    /// The most time between two pieces of the answer, in milliseconds.
    pub idle_timeout_ms: u64,
    /// The most time for the whole call, in milliseconds.
    pub total_timeout_ms: u64,
    /// Headers that every request has beside those of the protocol; one of the same name replaces the protocol's.
    pub headers: Vec<Header>,
    /// Through what its connections go.
    pub proxy: Proxy,
    /// Authorities that are trusted beside those of the machine.
    pub authorities: Authorities,
    /// What holds for every model of it, unless `models` says otherwise.
    pub every_model: ModelConfig,
    /// What holds for some models, by their name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// A header of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: HeaderText,
}

/// What a header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderText {
    /// This, which anybody may see.
    Plain(String),
    /// What a variable of the environment holds; a secret, and none when it is not set.
    Variable(String, Option<Secret>),
}

/// Headers that the host writes itself: another value would break the request.
const OWN_HEADERS: [&str; 9] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "transfer-encoding",
];

/// Headers that carry secrets, which stand in no file.
const SECRET_HEADERS: [&str; 8] = [
    "api-key",
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-api-key",
    "x-auth-token",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
];

/// What a header of a provider cannot be; the error says why. A plain one stands in a file.
pub fn check_header(name: &str, plain_value: Option<&str>) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    if HeaderName::try_from(name).is_err() {
        return Err(format!("`{name}` is no name of a header"));
    }
    if OWN_HEADERS.contains(&lower.as_str()) {
        return Err(format!("the header `{name}` is the host's own"));
    }
    if plain_value.is_some() && SECRET_HEADERS.contains(&lower.as_str()) {
        return Err(format!("the header `{name}` carries a secret, and secrets stand in no file"));
    }
    if plain_value.is_some_and(|value| HeaderValue::from_str(value).is_err()) {
        return Err(format!("the value of the header `{name}` has characters that no header has"));
    }
    Ok(())
}

/// Through what connections go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// What the environment says, and nothing for loopback. The name is that of the variable that says it, if one does.
    Environment(Option<String>),
    /// Nothing.
    Direct,
    /// This proxy, for loopback too. Its address may hold a name and a password.
    Url(ProxyUrl),
    /// The proxy whose address should be in this variable of the environment, which is not set.
    Missing(String),
}

/// The address of a proxy. It is shown without what it holds of name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    url: Url,
    /// The variable of the environment that it came from.
    pub variable: Option<String>,
}

impl ProxyUrl {
    /// Reads an address; the error says what is wrong with it, without showing it.
    pub fn parse(text: &str, variable: Option<&str>) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("it is no URL ({error})"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err("it is no `http` or `https` URL".into());
        }
        Ok(Self { url, variable: variable.map(str::to_owned) })
    }

    /// Whether it holds a name or a password.
    pub fn has_credentials(&self) -> bool {
        !self.url.username().is_empty() || self.url.password().is_some()
    }

    /// The whole address, for the client that connects.
    pub(super) fn reveal(&self) -> &str {
        self.url.as_str()
    }

    /// The password as it stands in the address.
    pub(super) fn password(&self) -> Option<&str> {
        self.url.password().filter(|password| !password.is_empty())
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_url(&self.url))
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address as it may be shown: without name and password, query and fragment.
pub(super) fn shown_url(url: &Url) -> String {
    let mut shown = url.clone();
    // A URL that cannot hold them has none.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_query(None);
    shown.set_fragment(None);
    shown.as_str().trim_end_matches('/').to_owned()
}

/// Authorities whose certificates are trusted.
#[derive(Clone, Default)]
pub struct Authorities(pub(super) Vec<Certificate>);

impl Authorities {
    /// Reads a PEM file; the error says what is wrong with it.
    pub fn parse(pem: &[u8]) -> Result<Self, String> {
        let certificates =
            Certificate::from_pem_bundle(pem).map_err(|_| "it holds a certificate that is none".to_owned())?;
        if certificates.is_empty() {
            return Err("it holds no certificate in PEM form".into());
        }
        Ok(Self(certificates))
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} authorities", self.0.len())
    }
}

/// What an address of a provider cannot be; the error says what it should be. `kind` says what follows it in a request.
pub fn check_base_url(kind: ProviderKind, text: &str) -> Result<(), String> {
    let usual = kind.usual_base_url();
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| format!("it is no `http` or `https` URL; it usually looks like `{usual}`"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "it holds a name or a password: a key comes from the environment (`api-key-env`, `headers-env`)".into()
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("it has a query or a fragment, and a path follows it; it usually looks like `{usual}`"));
    }
    let path = url.path().trim_end_matches('/');
    let ends = ["/chat/completions", "/completions", "/responses", "/messages"];
    if let Some(end) = ends.into_iter().find(|end| path.ends_with(end)) {
        let short = text.trim_end_matches('/').strip_suffix(end).unwrap_or(usual);
        return Err(format!("it ends in `{end}`, which the host adds itself; write `{short}`"));
    }
    Ok(())
}

/// What is known of a model. What is none is unknown, or left to the provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelConfig {
    /// Tokens it takes in and puts out together.
    pub context_window: Option<u32>,
    /// The most tokens that it puts out.
    pub max_output_tokens: Option<u32>,
    /// What it costs.
    pub price: Option<Price>,
    /// Members of the request's body beside those of the protocol.
    pub extra_body: Map<String, Value>,
    /// Members of the request's body that are left out for a server that does not know them, for example `stream_options`; `strict`
    /// is that of tools (`omit`).
    pub omit: Vec<String>,
    /// Chat Completions: whether the limit of output is named `max_completion_tokens` and not `max_tokens` (`max-completion-tokens`);
    /// none: as OpenAI names it for `openai`, as everybody else does otherwise.
    pub max_completion_tokens: Option<bool>,
    /// Chat Completions: who says the system prompt (`system-role`); none: `system`.
    pub system_role: Option<SystemRole>,
    /// Chat Completions: when the model's reasoning is sent back as `reasoning_content` (`send-reasoning`); none: as DeepSeek
    /// demands it for `deepseek`, never otherwise.
    pub send_reasoning: Option<SendReasoning>,
    /// Messages: who says what of the prompt the provider keeps (`prompt-cache`); none: `auto`.
    pub prompt_cache: Option<PromptCache>,
    /// Messages: how thinking is asked for (`thinking`); none: as the model's name tells.
    pub thinking: Option<ThinkingForm>,
}

/// Who says what of the prompt the provider keeps in its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromptCache {
    /// The adapter: tools, system prompt and the conversation as it grows; and the hints of blocks beside that.
    Auto,
    /// The hints of blocks alone.
    Hints,
    /// Nobody.
    Off,
}

/// How thinking is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThinkingForm {
    /// By a word for the effort: Claude 4.6 and later.
    Adaptive,
    /// By a number of tokens: Claude before 4.6, and most servers of others.
    Budget,
}

/// Who says the system prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemRole {
    /// `system`, which every server knows.
    System,
    /// `developer`, as OpenAI calls it today.
    Developer,
    /// `user`, for models whose template knows nothing else.
    User,
}

/// When a model's reasoning is sent back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SendReasoning {
    /// In no request.
    Never,
    /// In requests that offer tools, with every message of the model.
    WithTools,
    /// In every request, with every message of the model.
    Always,
}

impl ModelConfig {
    /// This, and where it says nothing what `other` says.
    #[must_use]
    pub fn or(mut self, other: &ModelConfig) -> Self {
        self.context_window = self.context_window.or(other.context_window);
        self.max_output_tokens = self.max_output_tokens.or(other.max_output_tokens);
        self.price = self.price.or(other.price);
        for (name, value) in &other.extra_body {
            self.extra_body.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if self.omit.is_empty() {
            self.omit.clone_from(&other.omit);
        }
        self.max_completion_tokens = self.max_completion_tokens.or(other.max_completion_tokens);
        self.system_role = self.system_role.or(other.system_role);
        self.send_reasoning = self.send_reasoning.or(other.send_reasoning);
        self.prompt_cache = self.prompt_cache.or(other.prompt_cache);
        self.thinking = self.thinking.or(other.thinking);
        self
    }
}

impl ProviderConfig {
    /// A provider at its usual address, without a key, with the default time-outs.
    pub fn new(name: impl Into<String>, kind: ProviderKind) -> Self {
        Self {
            name: name.into(),
            kind,
            base_url: kind.default_base_url().map(str::to_owned),
            api_key: None,
            key_variable: None,
            key_needed: true,
            connect_timeout_ms: 10_000,
            first_byte_timeout_ms: 120_000,
            idle_timeout_ms: 60_000,
            total_timeout_ms: 3_600_000,
            headers: Vec::new(),
            proxy: Proxy::Environment(None),
            authorities: Authorities::default(),
            every_model: ModelConfig::default(),
            models: BTreeMap::new(),
        }
    }

    /// Whether a request to a model of it could be made; the failure says what is missing.
    pub fn check(&self) -> Result<(), ModelFailure> {
        network::Provider::new(self.clone()).check()
    }

    /// What is known of one of its models: what is configured for it, else for all, else what the table of known models has.
    pub fn model(&self, name: &str) -> ModelConfig {
        let configured = self.models.get(name).cloned().unwrap_or_default().or(&self.every_model);
        match known::find(self.kind, name) {
            Some(known) => configured.or(&self.as_known(known)),
            None => configured,
        }
    }

    /// The models that something is known of: those of the configuration and, where the provider is at its own address, those of the
    /// table, by name.
    pub fn models(&self) -> BTreeMap<String, ModelConfig> {
        let table = known::of_kind(self.kind).filter(|_| self.is_at_home()).map(|known| known.name.clone());
        let names: std::collections::BTreeSet<String> = table.chain(self.models.keys().cloned()).collect();
        names.into_iter().map(|name| (name.clone(), self.model(&name))).collect()
    }

    /// A row of the table as it holds here. What a model costs is known only where its maker sells it: who stands in between may bill
    /// otherwise.
    fn as_known(&self, known: &known::Known) -> ModelConfig {
        ModelConfig {
            context_window: known.context_window,
            max_output_tokens: known.max_output_tokens,
            price: known.price.filter(|_| self.is_at_home()),
            ..ModelConfig::default()
        }
    }

    /// Whether it is reached at the address that its kind has by itself.
    pub fn is_at_home(&self) -> bool {
        let origin = |text: &str| Url::parse(text).ok().map(|url| url.origin());
        let own = self.kind.default_base_url().and_then(origin);
        own.is_some() && own == self.base_url.as_deref().and_then(origin)
    }

    /// Its address as it may be shown; none when it has none.
    pub fn shown_address(&self) -> Option<String> {
        let text = self.base_url.as_deref()?;
        Some(Url::parse(text).map_or_else(|_| "(no URL)".to_owned(), |url| shown_url(&url)))
    }

    /// The variables of the environment that hold secrets of it.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let headers = self.headers.iter().filter_map(|header| match &header.value {
            HeaderText::Variable(variable, _) => Some(variable.as_str()),
            HeaderText::Plain(_) => None,
        });
        let proxy = match &self.proxy {
            Proxy::Url(url) => url.variable.as_deref(),
            Proxy::Missing(variable) => Some(variable.as_str()),
            Proxy::Environment(_) | Proxy::Direct => None,
        };
        self.key_variable.as_deref().into_iter().chain(headers).chain(proxy)
    }

    /// The variables of the environment that must be set and are not, each with what it is for.
    pub fn missing_variables(&self) -> impl Iterator<Item = (&str, String)> {
        let no_key = self.api_key.as_ref().is_none_or(|key| key.reveal().is_empty());
        let key = self
            .key_variable
            .as_deref()
            .filter(|_| no_key && self.key_needed)
            .map(|variable| (variable, "a key".to_owned()));
        let headers = self.headers.iter().filter_map(|header| match &header.value {
            HeaderText::Variable(variable, None) => {
                Some((variable.as_str(), format!("a value for its header `{}`", header.name)))
            }
            _ => None,
        });
        let proxy = match &self.proxy {
            Proxy::Missing(variable) => Some((variable.as_str(), "the address of its proxy".to_owned())),
            _ => None,
        };
        key.into_iter().chain(headers).chain(proxy)
    }

    /// Everything in a text that nobody may see, as `***`.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let key = self.api_key.iter().map(Secret::reveal);
        let headers = self.headers.iter().filter_map(|header| match &header.value {
            HeaderText::Variable(_, Some(secret)) => Some(secret.reveal()),
            _ => None,
        });
        let proxy = match &self.proxy {
            Proxy::Url(url) => url.password(),
            _ => None,
        };
        let mut secrets: Vec<&str> = key.chain(headers).chain(proxy).filter(|secret| !secret.is_empty()).collect();
        // One may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

/// The providers that are there without any configuration. `base_url` is that of `--base-url` and replaces all their addresses;
/// `variable` reads the environment.
pub fn builtin_providers(base_url: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Vec<ProviderConfig> {
    let provider = |kind: ProviderKind, key: &str, required: bool| {
        let mut config = ProviderConfig::new(kind.as_str(), kind);
        config.api_key = variable(key).filter(|key| !key.is_empty()).map(Secret::new);
        config.key_variable = Some(key.to_owned());
        config.key_needed = required;
        config.base_url = base_url.map(str::to_owned).or(config.base_url);
        config
    };
    vec![
        provider(ProviderKind::OpenAi, "OPENAI_API_KEY", true),
        provider(ProviderKind::Anthropic, "ANTHROPIC_API_KEY", true),
        provider(ProviderKind::DeepSeek, "DEEPSEEK_API_KEY", true),
        provider(ProviderKind::Compatible, "DSH_API_KEY", false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_or_says_what_it_should_be() {
        let check = |kind, url: &str, expect: &str| {
            assert_eq!(check_base_url(kind, url).err().unwrap_or_default(), expect, "{url}");
        };
        let compatible = ProviderKind::Compatible;
        check(compatible, "http://127.0.0.1:8080/v1", "");
        check(compatible, "https://example.com/v1/", "");
        check(
            compatible,
            "127.0.0.1:8080",
            "it is no `http` or `https` URL; it usually looks like `http://127.0.0.1:8080/v1`",
        );
        check(
            ProviderKind::OpenAi,
            "ftp://example.com",
            "it is no `http` or `https` URL; it usually looks like `https://api.openai.com/v1`",
        );
        check(
            compatible,
            "http://u:p@example.com/v1",
            "it holds a name or a password: a key comes from the environment (`api-key-env`, `headers-env`)",
        );
        check(
            compatible,
            "http://example.com/v1?key=s",
            "it has a query or a fragment, and a path follows it; it usually looks like `http://127.0.0.1:8080/v1`",
        );
        check(
            compatible,
            "http://example.com/v1/chat/completions/",
            "it ends in `/chat/completions`, which the host adds itself; write `http://example.com/v1`",
        );
        check(
            ProviderKind::Anthropic,
            "https://example.com/v1/messages",
            "it ends in `/messages`, which the host adds itself; write `https://example.com/v1`",
        );
    }

    #[test]
    fn headers_that_break_a_request_or_hold_secrets_are_refused() {
        let check = |name: &str, value: Option<&str>, expect: &str| {
            assert_eq!(check_header(name, value).err().unwrap_or_default(), expect, "{name}");
        };
        check("X-Title", Some("my app"), "");
        check("Authorization", None, "");
        check("Authorization", Some("x"), "the header `Authorization` carries a secret, and secrets stand in no file");
        check("content-length", Some("1"), "the header `content-length` is the host's own");
        check("a b", Some("1"), "`a b` is no name of a header");
        check("x-a", Some("1\n2"), "the value of the header `x-a` has characters that no header has");
    }

    #[test]
    fn what_is_configured_wins_over_the_table_and_a_price_is_its_makers() {
        let mut provider = ProviderConfig::new("openai", ProviderKind::OpenAi);
        let known = provider.model("gpt-5");
        assert_eq!((known.context_window, known.price.is_some()), (Some(400_000), true));
        provider.every_model.context_window = Some(9);
        assert_eq!(provider.model("gpt-5").context_window, Some(9));
        provider.models.insert("gpt-5".into(), ModelConfig { context_window: Some(8), ..ModelConfig::default() });
        assert_eq!(provider.model("gpt-5").context_window, Some(8));
        provider.base_url = Some("http://127.0.0.1:1/v1".into());
        assert_eq!(provider.model("gpt-5").price, None);
        assert_eq!(provider.model("gpt-5-mini").max_output_tokens, Some(128_000));
        assert_eq!(provider.models().into_keys().collect::<Vec<_>>(), ["gpt-5"]);
    }

    #[test]
    fn no_secret_is_shown() {
        let mut provider = ProviderConfig::new("p", ProviderKind::Compatible);
        provider.api_key = Some(Secret::new("key-long"));
        provider.proxy = Proxy::Url(ProxyUrl::parse("http://name:pass-1@proxy:3128", Some("P")).expect("a URL"));
        let value = HeaderText::Variable("V".into(), Some(Secret::new("key")));
        provider.headers = vec![Header { name: "x-k".into(), value }];
        assert_eq!(provider.without_secrets("key-long key pass-1 name"), "*** *** *** name");
        let shown = format!("{provider:?}");
        assert!(!["key-long", "pass-1", "Secret(\"key"].iter().any(|secret| shown.contains(secret)), "{shown}");
        assert_eq!(provider.variables().collect::<Vec<_>>(), ["V", "P"]);
    }
}
