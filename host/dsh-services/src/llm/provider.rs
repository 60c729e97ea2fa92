//! What is known of a network provider: its kind, its address, its key, its time-outs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};

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

    /// Where the provider is, unless the configuration says otherwise.
    fn default_base_url(self) -> Option<&'static str> {
        match self {
            ProviderKind::OpenAi | ProviderKind::OpenAiResponses => Some("https://api.openai.com/v1"),
            ProviderKind::Anthropic => Some("https://api.anthropic.com/v1"),
            ProviderKind::DeepSeek => Some("https://api.deepseek.com"),
            ProviderKind::Compatible => None,
        }
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
    /// The key; none: no `Authorization` header, unless `key_variable` says that one is needed.
    pub api_key: Option<Secret>,
    /// The environment variable that must hold the key; none: no key is needed.
    pub key_variable: Option<String>,
    /// The most time for a connection, in milliseconds.
    pub connect_timeout_ms: u64,
    /// The most time until the answer begins, in milliseconds.
    pub first_byte_timeout_ms: u64,
    /// The most time between two pieces of the answer, in milliseconds.
    pub idle_timeout_ms: u64,
    /// The most time for the whole call, in milliseconds.
    pub total_timeout_ms: u64,
    /// Headers that every request has beside those of the protocol.
    pub headers: Vec<(String, Secret)>,
    /// What holds for every model of it, unless `models` says otherwise.
    pub every_model: ModelConfig,
    /// What holds for some models, by their name.
    pub models: BTreeMap<String, ModelConfig>,
}

/// What is known of a model. What is none is unknown, or left to the provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelConfig {
    /// Tokens it takes in and puts out together.
    pub context_window: Option<u32>,
    /// The most tokens that it puts out.
    pub max_output_tokens: Option<u32>,
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
        for (name, value) in &other.extra_body {
            self.extra_body.entry(name.clone()).or_insert_with(|| value.clone());
        }
        if self.omit.is_empty() {
            self.omit.clone_from(&other.omit);
        }
        self.max_completion_tokens = self.max_completion_tokens.or(other.max_completion_tokens);
        self.system_role = self.system_role.or(other.system_role);
        self.send_reasoning = self.send_reasoning.or(other.send_reasoning);
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
            connect_timeout_ms: 10_000,
            first_byte_timeout_ms: 120_000,
            idle_timeout_ms: 60_000,
            total_timeout_ms: 3_600_000,
            headers: Vec::new(),
            every_model: ModelConfig::default(),
            models: BTreeMap::new(),
        }
    }

    /// What is known of one of its models.
    pub fn model(&self, name: &str) -> ModelConfig {
        self.models.get(name).cloned().unwrap_or_default().or(&self.every_model)
    }
}

/// The providers that are there without any configuration. `base_url` is that of `--base-url` and replaces all their addresses;
/// `variable` reads the environment.
pub fn builtin_providers(base_url: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Vec<ProviderConfig> {
    let provider = |kind: ProviderKind, key: &str, required: bool| {
        let mut config = ProviderConfig::new(kind.as_str(), kind);
        config.api_key = variable(key).filter(|key| !key.is_empty()).map(Secret::new);
        config.key_variable = required.then(|| key.to_owned());
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
