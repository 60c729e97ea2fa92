//! `[providers.NAME]` of a `dsh.toml`, and what it says of models.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;

use dsh_services::llm::{Price, PromptCache, SendReasoning, SystemRole, ThinkingForm};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Spanned;

/// Declares a table that says what is known of models, beside keys of its own: what holds for every model of a provider stands in the
/// provider's table, what holds for one in that model's.
macro_rules! model_table {
    ($(#[$about:meta])* $name:ident { $($(#[$own_about:meta])* $own:ident: $own_type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct $name {
            $($(#[$own_about])* pub $own: $own_type,)*
            /// Tokens that a model takes in and puts out together. Default: that of the table of known models, else unknown.
            pub context_window: Option<NonZero<u32>>,
            /// The most tokens that a model puts out. Default: that of the table of known models, else unknown.
            pub max_output_tokens: Option<NonZero<u32>>,
            /// What a model costs. Default: that of the table of known models, at its maker's own address, else unknown.
            #[schemars(with = "Option<PriceTable>")]
            pub price: Option<Price>,
            /// Members of a request's body beside those that the host writes itself.
            #[serde(default)]
            #[schemars(with = "BTreeMap<String, serde_json::Value>")]
            pub extra_body: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
            /// Members of a request's body that are left out, for a server that refuses them, for example `stream_options`; `strict`
            /// is that of tools.
            #[serde(default)]
            #[schemars(with = "Vec<String>")]
            pub omit: Vec<Spanned<String>>,
            /// Whether the limit of output is named `max_completion_tokens` and not `max_tokens`. Chat Completions only. Default: for
            /// `openai`.
            #[schemars(with = "Option<bool>")]
            pub max_completion_tokens: Option<Spanned<bool>>,
            /// Who says the system prompt. Chat Completions only. Default: `system`.
            #[schemars(with = "Option<String>", extend("enum" = ["system", "developer", "user", null]))]
            pub system_role: Option<Spanned<SystemRole>>,
            /// When a model's reasoning is sent back as `reasoning_content`. Chat Completions only. Default: as DeepSeek demands it
            /// for `deepseek`, else `never`.
            #[schemars(with = "Option<String>", extend("enum" = ["never", "with-tools", "always", null]))]
            pub send_reasoning: Option<Spanned<SendReasoning>>,
            /// Who says what of the prompt the provider keeps: the host and the hints of blocks, the hints alone, or nobody. Messages
            /// only. Default: `auto`.
            #[schemars(with = "Option<String>", extend("enum" = ["auto", "hints", "off", null]))]
            pub prompt_cache: Option<Spanned<PromptCache>>,
            /// How thinking is asked for: by a word for the effort or by a number of tokens. Messages only. Default: as the model's name
            /// tells.
            #[schemars(with = "Option<String>", extend("enum" = ["adaptive", "budget", null]))]
            pub thinking: Option<Spanned<ThinkingForm>>,
        }

        impl $name {
            /// What it says of models.
            pub fn of_models(&self) -> ModelEntry {
                ModelEntry {
                    context_window: self.context_window,
                    max_output_tokens: self.max_output_tokens,
                    price: self.price,
                    extra_body: self.extra_body.clone(),
                    omit: self.omit.clone(),
                    max_completion_tokens: self.max_completion_tokens.clone(),
                    system_role: self.system_role.clone(),
                    send_reasoning: self.send_reasoning.clone(),
                    prompt_cache: self.prompt_cache.clone(),
                    thinking: self.thinking.clone(),
                }
            }
        }
    };
}

model_table! {
    /// A provider of models.
    ProviderEntry {
        /// What it speaks. Default: what the built-in provider of this name speaks; any other needs it.
        kind: Option<ProviderKind>,
        /// Where it is, without what the host adds, such as `/chat/completions`. Default: the kind's own; `compatible` needs one.
        #[schemars(with = "Option<String>")]
        base_url: Option<Spanned<String>>,
        /// The variable that holds its key. Default: that of the built-in provider of this name, where it has no other `base-url`;
        /// else it needs none.
        #[schemars(with = "Option<String>")]
        api_key_env: Option<Spanned<String>>,
        /// Headers of every request. Secrets do not stand here.
        #[serde(default)]
        #[schemars(with = "BTreeMap<String, String>")]
        headers: BTreeMap<Spanned<String>, Spanned<String>>,
        /// Headers of every request whose values are in the environment: the name of the variable of each.
        #[serde(default)]
        #[schemars(with = "BTreeMap<String, String>")]
        headers_env: BTreeMap<Spanned<String>, Spanned<String>>,
        /// For the connection, in milliseconds. Default: 10,000.
        #[schemars(with = "Option<u64>", range(min = 1, max = 86_400_000))]
        connect_timeout_ms: Option<Spanned<i64>>,
        /// Until the first byte of the answer, in milliseconds. Default: 120,000.
        #[schemars(with = "Option<u64>", range(min = 1, max = 86_400_000))]
        first_byte_timeout_ms: Option<Spanned<i64>>,
        /// Between two pieces of a stream, in milliseconds. Default: 60,000.
        #[schemars(with = "Option<u64>", range(min = 1, max = 86_400_000))]
        idle_timeout_ms: Option<Spanned<i64>>,
        /// For the whole answer, in milliseconds. Default: 3,600,000.
        #[schemars(with = "Option<u64>", range(min = 1, max = 86_400_000))]
        total_timeout_ms: Option<Spanned<i64>>,
        /// The address of a proxy, without name and password, or `none`. Default: what the environment says.
        #[schemars(with = "Option<String>")]
        proxy: Option<Spanned<String>>,
        /// The variable that holds the address of a proxy, with name and password where it wants them.
        #[schemars(with = "Option<String>")]
        proxy_env: Option<Spanned<String>>,
        /// A PEM file with authorities that are trusted beside those of the machine.
        #[schemars(with = "Option<PathBuf>")]
        ca_file: Option<Spanned<PathBuf>>,
        /// What is known of single models, by the name that stands behind the `/`.
        #[serde(default)]
        models: BTreeMap<String, ModelEntry>,
    }
}

model_table! {
    /// What is known of a model.
    ModelEntry {}
}

/// What a model costs: money for a million tokens, in US dollars or whatever else all prices are in.
#[derive(JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[expect(dead_code, reason = "the shape of `Price` for the schema")]
struct PriceTable {
    /// Tokens that go in.
    #[schemars(range(min = 0))]
    input: f64,
    /// Tokens that come out.
    #[schemars(range(min = 0))]
    output: f64,
    /// Tokens that are read from the provider's cache. Default: `input`.
    #[schemars(range(min = 0))]
    cache_read: Option<f64>,
    /// Tokens that are written to the provider's cache. Default: `input`.
    #[schemars(range(min = 0))]
    cache_write: Option<f64>,
}

/// What a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// Chat Completions of OpenAI.
    #[serde(rename = "openai")]
    OpenAi,
    /// Responses of OpenAI.
    #[serde(rename = "openai-responses")]
    OpenAiResponses,
    /// Messages of Anthropic.
    Anthropic,
    /// DeepSeek.
    #[serde(rename = "deepseek")]
    DeepSeek,
    /// Chat Completions of anybody.
    Compatible,
}

impl From<ProviderKind> for dsh_services::llm::ProviderKind {
    fn from(kind: ProviderKind) -> Self {
        match kind {
            ProviderKind::OpenAi => Self::OpenAi,
            ProviderKind::OpenAiResponses => Self::OpenAiResponses,
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::DeepSeek => Self::DeepSeek,
            ProviderKind::Compatible => Self::Compatible,
        }
    }
}
