//! Providers: the built-in ones and those of the configuration, each with what the environment has for it. Whatever is wrong is refused
//! where it stands.

use std::collections::BTreeMap;

use dsh_services::llm::{
    Authorities, Header, HeaderText, ModelConfig, ProviderConfig, ProviderKind, Proxy, ProxyUrl, Secret, TIME_OUT_MS,
    builtin_providers, check_base_url, check_header,
};
use serde_json::Map;
use toml::Spanned;

use super::plugins::to_json;
use super::{BaseUrl, ProviderPlan, Scope};
use crate::args::Options;
use crate::config::Loaded;
use crate::config::providers::{ModelEntry, ProviderEntry};
use crate::config::sources::{Unread, read_at_most};
use crate::env::Environment;
use crate::exit::Stop;
use crate::providers::{BUILT_IN, ECHO};

/// The largest file of authorities that is read: a whole system's bundle has less than 1 MiB.
const MAX_CA_FILE_BYTES: usize = 8 << 20;

/// The value of `proxy` that stands for no proxy.
const NO_PROXY: &str = "none";

/// The variables that name a proxy, by what is asked for; the first that is set counts.
const HTTPS_PROXY_VARIABLES: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
const HTTP_PROXY_VARIABLES: [&str; 2] = ["http_proxy", "HTTP_PROXY"];
const ALL_PROXY_VARIABLES: [&str; 2] = ["all_proxy", "ALL_PROXY"];

/// All providers: those of the configuration take the places of built-in ones of the same name.
pub(super) fn resolve(scope: &Scope<'_>) -> Result<Vec<ProviderPlan>, Stop> {
    let environment = scope.environment;
    let built_in = builtin_providers(None, |name| environment.variable(name));
    let mut plans: Vec<ProviderPlan> =
        built_in.into_iter().map(|config| ProviderPlan { config, is_configured: false }).collect();
    if let Some(config) = scope.config {
        for (name, entry) in &config.file.providers {
            let place = plans.iter().position(|plan| plan.config.name == *name.get_ref());
            let known = place.map(|place| plans[place].config.clone());
            let reader = Reader { config, environment, name, entry };
            let plan = ProviderPlan { config: reader.read(known)?, is_configured: true };
            match place {
                Some(place) => plans[place] = plan,
                None => plans.push(plan),
            }
        }
    }
    Ok(plans)
}

/// Leads a provider to the address of `--base-url`. Then every address stands, and with it which variable names a proxy for it.
pub fn lead(plans: &mut [ProviderPlan], base: Option<&BaseUrl>, environment: &Environment) -> Result<(), Stop> {
    lead_one(plans, base)?;
    for plan in plans {
        if let Proxy::Environment(named) = &mut plan.config.proxy {
            let url = plan.config.base_url.as_deref().unwrap_or_default();
            let of_scheme = if url.starts_with("http://") { HTTP_PROXY_VARIABLES } else { HTTPS_PROXY_VARIABLES };
            let set =
                of_scheme.into_iter().chain(ALL_PROXY_VARIABLES).find(|name| environment.variable(name).is_some());
            *named = set.map(str::to_owned);
        }
    }
    Ok(())
}

fn lead_one(plans: &mut [ProviderPlan], base: Option<&BaseUrl>) -> Result<(), Stop> {
    let Some(base) = base else { return Ok(()) };
    if let Some(plan) = plans.iter_mut().find(|plan| plan.config.name == base.provider) {
        check_base_url(plan.config.kind, &base.url)
            .map_err(|what| Stop::usage(format!("the address of the provider `{}`: {what}", base.provider)))?;
        plan.config.base_url = Some(base.url.clone());
    }
    Ok(())
}

/// All providers for a command that looks at them; `base_url` is that of the provider that is named, else of `compatible`.
pub fn at_addresses(
    config: Option<&Loaded>,
    base_url: Option<&str>,
    named: Option<&str>,
    environment: &Environment,
) -> Result<Vec<ProviderConfig>, Stop> {
    let mut plans = resolve(&Scope { options: &Options::default(), config, environment })?;
    let provider = named.unwrap_or(ProviderKind::Compatible.as_str()).to_owned();
    let base_url = base_url.map(|url| BaseUrl { provider, url: url.to_owned() });
    lead(&mut plans, base_url.as_ref(), environment)?;
    Ok(plans.into_iter().map(|plan| plan.config).collect())
}

/// Variables of the environment that no plugin may see: keys, and whatever else of a provider is a secret.
pub fn secret_variables<'a>(plans: &'a [ProviderPlan], environment: &Environment) -> Vec<&'a str> {
    let holds_password = |name: &&str| {
        environment.variable(name).is_some_and(|url| ProxyUrl::parse(&url, None).is_ok_and(|url| url.has_credentials()))
    };
    let proxies = [HTTPS_PROXY_VARIABLES, HTTP_PROXY_VARIABLES, ALL_PROXY_VARIABLES];
    let proxies = proxies.into_iter().flatten().filter(holds_password);
    let configured = plans.iter().flat_map(|plan| plan.config.variables());
    BUILT_IN.iter().map(|built_in| built_in.key_variable).chain(configured).chain(proxies).collect()
}

/// Reads the table of one provider.
struct Reader<'a> {
    config: &'a Loaded,
    environment: &'a Environment,
    name: &'a Spanned<String>,
    entry: &'a ProviderEntry,
}

impl Reader<'_> {
    /// `known` is the built-in provider of this name.
    fn read(&self, known: Option<ProviderConfig>) -> Result<ProviderConfig, Stop> {
        let name = self.name.get_ref();
        self.check_name()?;
        let kind = match (self.entry.kind, &known) {
            (Some(kind), _) => kind.into(),
            (None, Some(known)) => known.kind,
            (None, None) => return Err(self.stop("the key `kind` is missing")),
        };
        let mut config = ProviderConfig::new(name, kind);
        self.address_and_key(&mut config, known.filter(|known| is_same_maker(known.kind, kind)))?;
        config.headers = self.headers()?;
        self.time_outs(&mut config)?;
        config.proxy = self.proxy()?;
        config.authorities = self.authorities()?;
        config.every_model = self.models(kind, self.entry.of_models())?;
        let models = self.entry.models.iter();
        config.models = models
            .map(|(name, entry)| Ok((name.clone(), self.models(kind, entry.of_models())?)))
            .collect::<Result<BTreeMap<_, _>, Stop>>()?;
        Ok(config)
    }

    fn stop(&self, message: impl std::fmt::Display) -> Stop {
        self.config.stop_at(self.name.span(), message)
    }

    fn check_name(&self) -> Result<(), Stop> {
        let text = self.name.get_ref();
        let valid = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if valid && text != ECHO && text != "script" {
            return Ok(());
        }
        Err(self.stop(format!(
            "`{text}` is no name for a provider: use letters, digits, `-`, `_` and `.`; `echo` and `script` are taken"
        )))
    }

    /// Whoever leads a built-in provider elsewhere says which key goes there.
    fn address_and_key(&self, config: &mut ProviderConfig, known: Option<ProviderConfig>) -> Result<(), Stop> {
        let (name, entry) = (self.name.get_ref(), self.entry);
        if let Some(url) = &entry.base_url {
            check_base_url(config.kind, url.get_ref()).map_err(|what| {
                self.config.stop_at(url.span(), format!("`base-url` of the provider `{name}`: {what}"))
            })?;
            config.base_url = Some(url.get_ref().clone());
        }
        let keeps_key = entry.base_url.is_none() || config.kind == ProviderKind::Compatible;
        if let Some(variable) = &entry.api_key_env {
            self.check_variable(variable)?;
            config.api_key = self.environment.variable(variable.get_ref()).map(Secret::new);
            config.key_variable = Some(variable.get_ref().clone());
        } else if let Some(known) = known.as_ref().filter(|_| keeps_key) {
            config.api_key.clone_from(&known.api_key);
            config.key_variable.clone_from(&known.key_variable);
            config.key_needed = known.key_needed;
        }
        if config.base_url.is_none() && known.is_none() {
            return Err(self.stop(format!("the provider `{name}` is `compatible` and needs a `base-url`")));
        }
        Ok(())
    }

    fn check_variable(&self, variable: &Spanned<String>) -> Result<(), Stop> {
        let text = variable.get_ref();
        if text.is_empty() || text.contains(['=', '\0']) || text.chars().any(char::is_whitespace) {
            return Err(self
                .config
                .stop_at(variable.span(), "this is no name of a variable of the environment")
                .hint("the key itself never stands in a file: write the name of the variable that holds it"));
        }
        Ok(())
    }

    fn headers(&self) -> Result<Vec<Header>, Stop> {
        let mut headers: Vec<Header> = Vec::new();
        let plain = self.entry.headers.iter().map(|(name, value)| (name, value, false));
        let secret = self.entry.headers_env.iter().map(|(name, value)| (name, value, true));
        for (name, value, is_secret) in plain.chain(secret) {
            let text = name.get_ref();
            let wrong = |what: String| self.config.stop_at(name.span(), what);
            let plain = (!is_secret).then(|| value.get_ref().as_str());
            check_header(text, plain).map_err(|what| {
                let hint = "`headers-env` takes the value from a variable; `api-key-env` is for the key";
                wrong(what.clone()).hint(if what.contains("secret") { hint } else { "" })
            })?;
            if headers.iter().any(|header| header.name.eq_ignore_ascii_case(text)) {
                return Err(wrong(format!("the header `{text}` is there twice")));
            }
            let value = if is_secret {
                self.check_variable(value)?;
                let secret = self.environment.variable(value.get_ref()).map(Secret::new);
                HeaderText::Variable(value.get_ref().clone(), secret)
            } else {
                HeaderText::Plain(value.get_ref().clone())
            };
            headers.push(Header { name: text.clone(), value });
        }
        Ok(headers)
    }

    fn time_outs(&self, config: &mut ProviderConfig) -> Result<(), Stop> {
        let entry = self.entry;
        let all = [
            ("connect-timeout-ms", &entry.connect_timeout_ms, &mut config.connect_timeout_ms),
            ("first-byte-timeout-ms", &entry.first_byte_timeout_ms, &mut config.first_byte_timeout_ms),
            ("idle-timeout-ms", &entry.idle_timeout_ms, &mut config.idle_timeout_ms),
            ("total-timeout-ms", &entry.total_timeout_ms, &mut config.total_timeout_ms),
        ];
        for (key, value, into) in all {
            let Some(value) = value else { continue };
            let (least, most) = (TIME_OUT_MS.start(), TIME_OUT_MS.end());
            *into = u64::try_from(*value.get_ref()).ok().filter(|ms| TIME_OUT_MS.contains(ms)).ok_or_else(|| {
                let message = format!("`{key}` is {}: it must be {least} to {most}", value.get_ref());
                self.config
                    .stop_at(value.span(), message)
                    .hint("it is in milliseconds, and there is always one; a day is the most")
            })?;
        }
        Ok(())
    }

    fn proxy(&self) -> Result<Proxy, Stop> {
        let (stop_at, entry) = (|span, message| self.config.stop_at(span, message), self.entry);
        match (&entry.proxy, &entry.proxy_env) {
            (None, None) => Ok(Proxy::Environment(None)),
            (Some(proxy), Some(_)) => {
                Err(stop_at(proxy.span(), "`proxy` and `proxy-env` exclude each other".to_owned()))
            }
            (Some(proxy), None) if proxy.get_ref() == NO_PROXY => Ok(Proxy::Direct),
            (Some(proxy), None) => {
                let url = ProxyUrl::parse(proxy.get_ref(), None).map_err(|what| {
                    stop_at(proxy.span(), format!("`proxy`: {what}")).hint("or write `none` for no proxy")
                })?;
                if url.has_credentials() {
                    return Err(stop_at(
                        proxy.span(),
                        "`proxy` holds a name or a password, and secrets stand in no file".to_owned(),
                    )
                    .hint("`proxy-env` takes the whole address from a variable"));
                }
                Ok(Proxy::Url(url))
            }
            (None, Some(variable)) => {
                self.check_variable(variable)?;
                let name = variable.get_ref();
                match self.environment.variable(name) {
                    None => Ok(Proxy::Missing(name.clone())),
                    Some(url) => ProxyUrl::parse(&url, Some(name)).map(Proxy::Url).map_err(|what| {
                        stop_at(variable.span(), format!("the address of the proxy in `{name}`: {what}"))
                    }),
                }
            }
        }
    }

    fn authorities(&self) -> Result<Authorities, Stop> {
        let Some(file) = &self.entry.ca_file else { return Ok(Authorities::default()) };
        let shown = file.get_ref().display();
        let wrong = |what: String| self.config.stop_at(file.span(), format!("`ca-file` `{shown}`: {what}"));
        let path = self.config.resolve(file.get_ref());
        let pem = read_at_most(&path, MAX_CA_FILE_BYTES).map_err(|unread| match unread {
            Unread::Io(error) => wrong(error.to_string().to_lowercase()),
            Unread::TooLarge { most, .. } => wrong(format!("it has more than {most} bytes")),
            Unread::Refused(_) => wrong("it is no file".into()),
        })?;
        Authorities::parse(&pem).map_err(wrong)
    }

    fn models(&self, kind: ProviderKind, entry: ModelEntry) -> Result<ModelConfig, Stop> {
        let mut extra_body = Map::new();
        for (name, value) in &entry.extra_body {
            let text = name.get_ref();
            if kind.reserved().contains(&text.as_str()) {
                let message =
                    format!("`{text}` in `extra-body` is a member of the request that the host writes itself");
                return Err(self.config.stop_at(name.span(), message));
            }
            let json = to_json(value.get_ref()).map_err(|what| self.config.stop_at(value.span(), what))?;
            extra_body.insert(text.clone(), json);
        }
        self.check_protocol_keys(kind, &entry)?;
        Ok(ModelConfig {
            context_window: entry.context_window.map(Into::into),
            max_output_tokens: entry.max_output_tokens.map(Into::into),
            price: entry.price,
            extra_body,
            omit: entry.omit.iter().map(|name| name.get_ref().clone()).collect(),
            max_completion_tokens: entry.max_completion_tokens.as_ref().map(|value| *value.get_ref()),
            system_role: entry.system_role.as_ref().map(|value| *value.get_ref()),
            send_reasoning: entry.send_reasoning.as_ref().map(|value| *value.get_ref()),
            prompt_cache: entry.prompt_cache.as_ref().map(|value| *value.get_ref()),
            thinking: entry.thinking.as_ref().map(|value| *value.get_ref()),
        })
    }

    /// What only one protocol knows is refused elsewhere: it would do nothing.
    fn check_protocol_keys(&self, kind: ProviderKind, entry: &ModelEntry) -> Result<(), Stop> {
        let chat = matches!(kind, ProviderKind::OpenAi | ProviderKind::DeepSeek | ProviderKind::Compatible);
        let messages = kind == ProviderKind::Anthropic;
        let given = [
            (chat, "max-completion-tokens", entry.max_completion_tokens.as_ref().map(Spanned::span)),
            (chat, "system-role", entry.system_role.as_ref().map(Spanned::span)),
            (chat, "send-reasoning", entry.send_reasoning.as_ref().map(Spanned::span)),
            (messages, "prompt-cache", entry.prompt_cache.as_ref().map(Spanned::span)),
            (messages, "thinking", entry.thinking.as_ref().map(Spanned::span)),
        ];
        match given.into_iter().find_map(|(known, key, span)| Some((key, span.filter(|_| !known)?))) {
            None => Ok(()),
            Some((key, span)) => {
                let of = if matches!(key, "prompt-cache" | "thinking") { "Messages" } else { "Chat Completions" };
                let (name, kind) = (self.name.get_ref(), kind.as_str());
                Err(self.config.stop_at(span, format!("`{key}` is for {of}; the provider `{name}` is `{kind}`")))
            }
        }
    }
}

/// Whether two kinds are reached at one address, with one key.
fn is_same_maker(one: ProviderKind, other: ProviderKind) -> bool {
    one == other || (one.default_base_url().is_some() && one.default_base_url() == other.default_base_url())
}
