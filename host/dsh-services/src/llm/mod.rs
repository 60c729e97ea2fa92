//! The service `llm`: from a model's name to the adapter behind it.
//!
//! `echo` and `script:FILE` live in this process; every other name is `PROVIDER/MODEL` of a [`ProviderConfig`]. The host makes the
//! configuration: it knows arguments and environment, this module does not. [`Models::check`] says early what is wrong with a name.

mod blocks;
mod chat;
mod echo;
mod known;
mod log;
mod messages;
mod meter;
mod network;
mod prices;
mod provider;
mod record;
mod responses;
mod script;
#[cfg(test)]
mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dsh_seam::draft::ModelCatalog;
use dsh_seam::llm::{Llm, Model};
use dsh_seam::{Failure, ModelFailure};

pub use known::known_models;
pub use prices::Price;
pub use provider::{
    Authorities, Header, HeaderText, ModelConfig, PromptCache, ProviderConfig, ProviderKind, Proxy, ProxyUrl, Secret,
    SendReasoning, SystemRole, TIME_OUT_MS, ThinkingForm, builtin_providers, check_base_url, check_header,
};

use crate::budget::RunBudget;
use meter::{Meter, Metered, Uncounted};
pub use network::list::{Listed, list_models};
use network::{NetworkModel, Provider};
use script::Script;

/// Where `--log-requests` and `--record` write.
pub type Sink = Box<dyn std::io::Write + Send>;

/// Writes the bodies of requests to a model of a provider of this kind, as its adapter sends them. For the benchmark.
pub fn bodies(kind: ProviderKind, model: &str) -> impl Fn(&dsh_seam::llm::ModelRequest) -> Vec<u8> {
    let provider = Arc::new(Provider::new(ProviderConfig::new(kind.as_str(), kind)));
    move |request| network::NetworkModel::new(provider.clone(), model).body(request)
}

/// Names this near are offered.
const NEAR: f64 = 0.6;

/// What there is to choose from, and what is written down.
#[derive(Default)]
pub struct ModelsConfig {
    /// The network providers: [`builtin_providers`] and those of the configuration, whose names are their own.
    pub providers: Vec<ProviderConfig>,
    /// Gets every request, one JSON object a line, before it goes out.
    pub log_requests: Option<Sink>,
    /// Gets every answer, as a line of a script.
    pub record: Option<Sink>,
    /// What the run may use; what its calls use is counted there.
    pub budget: Arc<RunBudget>,
}

/// All models.
pub struct Models {
    providers: Vec<Arc<Provider>>,
    scripts: Mutex<HashMap<String, Arc<Script>>>,
    log_requests: Option<Arc<log::Lines>>,
    record: Option<Arc<record::Recording>>,
    budget: Arc<RunBudget>,
    uncounted: Arc<Uncounted>,
}

impl Models {
    /// Nothing is opened or connected yet.
    pub fn new(config: ModelsConfig) -> Self {
        Self {
            budget: config.budget,
            uncounted: Arc::default(),
            providers: config.providers.into_iter().map(|provider| Arc::new(Provider::new(provider))).collect(),
            scripts: Mutex::default(),
            log_requests: config.log_requests.map(|sink| Arc::new(log::Lines::new("--log-requests", sink))),
            record: config.record.map(|sink| Arc::new(record::Recording::new(log::Lines::new("--record", sink)))),
        }
    }

    /// Whether a request to this model could be made: the provider is known (else `no-adapter`, with the nearest name), its key is
    /// there (else `auth`, with the variable's name), the script can be read and every line of it parses (else `invalid-script`,
    /// with the line's number), and the price is known where money is limited (else `no-price`).
    pub fn check(&self, name: &str) -> Result<(), ModelFailure> {
        self.find(name).map(drop)
    }

    /// What the run may use.
    pub fn budget(&self) -> Arc<RunBudget> {
        self.budget.clone()
    }

    /// Whether the model is reached over a network, so that trying again can help.
    pub fn is_network(&self, name: &str) -> bool {
        self.provider(name).is_some()
    }

    /// Why the file of `--record` is not whole; none when it is.
    pub fn record_problem(&self) -> Option<String> {
        self.record.as_ref().and_then(|recording| recording.problem())
    }

    fn provider(&self, name: &str) -> Option<(&Arc<Provider>, String)> {
        let (provider, model) = name.split_once('/')?;
        if name.starts_with(script::PREFIX) {
            return None;
        }
        let found = self.providers.iter().find(|known| known.name() == provider)?;
        Some((found, model.to_owned()))
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Model>, ModelFailure> {
        if name == "echo" {
            return Ok(Arc::new(echo::Echo));
        }
        if let Some(reference) = name.strip_prefix(script::PREFIX) {
            return Ok(self.script(reference)?);
        }
        match self.provider(name) {
            Some((_, model)) if model.is_empty() => {
                Err(no_adapter(format!("the model `{name}` has no name behind the `/`")))
            }
            Some((provider, model)) => {
                provider.check()?;
                self.check_price(provider, &model)?;
                Ok(Arc::new(NetworkModel::new(provider.clone(), &model)))
            }
            None => Err(self.unknown(name)),
        }
    }

    /// Money cannot be limited where nobody knows what a model costs.
    fn check_price(&self, provider: &Provider, model: &str) -> Result<(), ModelFailure> {
        if self.budget.limits().cost.is_none() || provider.config.model(model).price.is_some() {
            return Ok(());
        }
        let name = provider.name();
        let makers = known::find(provider.config.kind, model).is_some_and(|known| known.price.is_some());
        let why = if makers { "known only at its maker's own address" } else { "unknown" };
        Err(ModelFailure::new(
            "no-price",
            format!(
                "`--max-cost` needs the price of the model `{name}/{model}`, which is {why}: set `price` in `[providers.{name}.models.\"{model}\"]` of a `dsh.toml`"
            ),
        ))
    }

    /// What calls of a model are measured with; none when nobody wants to know.
    fn meter(&self, name: &str) -> Option<Meter> {
        let network = self.provider(name);
        let price = network.as_ref().and_then(|(provider, model)| provider.config.model(model).price);
        (price.is_some() || self.budget.counts()).then(|| Meter {
            price,
            budget: self.budget.clone(),
            uncounted: network.map(|_| self.uncounted.clone()),
        })
    }

    fn script(&self, reference: &str) -> Result<Arc<Script>, ModelFailure> {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(script) = scripts.get(reference) {
            return Ok(script.clone());
        }
        let script = Arc::new(Script::open(reference)?);
        scripts.insert(reference.to_owned(), script.clone());
        Ok(script)
    }

    fn unknown(&self, name: &str) -> ModelFailure {
        let wanted = name.split(['/', ':']).next().unwrap_or(name);
        let shown = |provider: &Arc<Provider>| (provider.name().to_owned(), format!("{}/…", provider.name()));
        let mut there = vec![("echo".to_owned(), "echo".to_owned()), ("script".to_owned(), "script:FILE".to_owned())];
        there.extend(self.providers.iter().map(shown));
        let near = there
            .iter()
            .map(|(plain, shown)| (strsim::jaro_winkler(wanted, plain), shown))
            .filter(|(score, _)| *score >= NEAR)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let list = there.iter().map(|(_, shown)| format!("`{shown}`")).collect::<Vec<_>>().join(", ");
        let near = near.map(|(_, shown)| format!("; did you mean `{shown}`?")).unwrap_or_default();
        no_adapter(format!("unknown provider in the model `{name}`{near}; there are {list}"))
    }
}

impl ModelCatalog for Models {
    fn check_for_plugin(&self, model: &str) -> Result<(), Failure> {
        let usable = |provider: &&Arc<Provider>| provider.check().is_ok();
        match self.provider(model) {
            Some((provider, name)) if !name.is_empty() && usable(&provider) => {
                let priced = self.check_price(provider, &name);
                priced.map_err(|failure| Failure::invalid_argument(failure.message))
            }
            _ => {
                let there: Vec<String> =
                    self.providers.iter().filter(usable).map(|provider| format!("`{}/…`", provider.name())).collect();
                let there =
                    if there.is_empty() { "there is none".into() } else { format!("there are {}", there.join(", ")) };
                Err(Failure::invalid_argument(format!(
                    "`{model}` is no model that a plugin may name: it must belong to a configured network provider; {there}"
                )))
            }
        }
    }

    /// A scripted agent may have scripted children: a script stands in for a model, and a test of both needs one for each.
    fn check_for_child(&self, own: Option<&str>, model: &str) -> Result<(), Failure> {
        let is_script = |name: &str| name.starts_with(script::PREFIX);
        match own {
            Some(own) if own == model => Ok(()),
            Some(own) if is_script(own) && is_script(model) => {
                self.check(model).map_err(|failure| Failure::invalid_argument(failure.message))
            }
            _ => self.check_for_plugin(model),
        }
    }

    fn context_window(&self, model: &str) -> Option<u32> {
        self.provider(model).and_then(|(provider, model)| provider.config.model(&model).context_window)
    }
}

impl Llm for Models {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelFailure> {
        let mut model = self.find(name)?;
        if let Some(meter) = self.meter(name) {
            model = Arc::new(Metered::new(model, meter));
        }
        if let Some(recording) = &self.record {
            model = Arc::new(record::Recorded::new(model, recording.clone(), self.is_network(name)));
        }
        if let Some(lines) = &self.log_requests {
            model = Arc::new(log::Logged::new(model, lines.clone()));
        }
        Ok(model)
    }
}

fn no_adapter(message: String) -> ModelFailure {
    ModelFailure::new("no-adapter", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(base_url: Option<&str>, variables: &[&str]) -> Models {
        let mut providers =
            builtin_providers(base_url, |name| variables.contains(&name).then(|| "sk-secret".to_owned()));
        providers.push(ProviderConfig {
            base_url: Some("http://127.0.0.1:9/v1".into()),
            every_model: ModelConfig { context_window: Some(4096), ..ModelConfig::default() },
            ..ProviderConfig::new("local", ProviderKind::Compatible)
        });
        providers.push(ProviderConfig::new("responses", ProviderKind::OpenAiResponses));
        providers.push(ProviderConfig {
            api_key: Some(Secret::new("")),
            key_variable: Some("EMPTY_KEY".into()),
            ..ProviderConfig::new("empty", ProviderKind::OpenAi)
        });
        Models::new(ModelsConfig { providers, ..ModelsConfig::default() })
    }

    #[test]
    fn names_are_checked_early() {
        let check = |name: &str, expect: Result<(), (&str, &str)>| {
            let found = models(None, &["OPENAI_API_KEY"]).check(name);
            assert_eq!(
                found.map_err(|f| (f.code, f.message)),
                expect.map_err(|(a, b)| (a.to_owned(), b.to_owned())),
                "{name}"
            );
        };
        check("echo", Ok(()));
        check("openai/gpt-4o", Ok(()));
        check("local/org/some-model", Ok(()));
        check(
            "deepseek/deepseek-chat",
            Err(("auth", "the provider `deepseek` needs a key: set the environment variable `DEEPSEEK_API_KEY`")),
        );
        check("empty/x", Err(("auth", "the provider `empty` needs a key: set the environment variable `EMPTY_KEY`")));
        check("compatible/x", Err(("no-adapter", "the provider `compatible` has no address: give `--base-url URL`")));
        check(
            "anthropic/claude",
            Err(("auth", "the provider `anthropic` needs a key: set the environment variable `ANTHROPIC_API_KEY`")),
        );
        check("local/", Err(("no-adapter", "the model `local/` has no name behind the `/`")));
        let list = "there are `echo`, `script:FILE`, `openai/…`, `anthropic/…`, `deepseek/…`, `compatible/…`, `local/…`, `responses/…`, `empty/…`";
        check(
            "opnai/gpt",
            Err((
                "no-adapter",
                &format!("unknown provider in the model `opnai/gpt`; did you mean `openai/…`?; {list}"),
            )),
        );
        check(
            "ecko",
            Err(("no-adapter", &format!("unknown provider in the model `ecko`; did you mean `echo`?; {list}"))),
        );
        check("zzz", Err(("no-adapter", &format!("unknown provider in the model `zzz`; {list}"))));
        assert_eq!(models(Some("http://127.0.0.1:1/v1"), &[]).check("compatible/x"), Ok(()));
        assert_eq!(models(Some("nonsense"), &[]).check("compatible/x").map_err(|f| f.code), Err("no-adapter".into()));
    }

    #[test]
    fn plugins_may_name_network_models_only() {
        let models = models(None, &["OPENAI_API_KEY"]);
        let check = |name: &str, expect: bool| assert_eq!(models.check_for_plugin(name).is_ok(), expect, "{name}");
        check("openai/gpt-4o", true);
        check("local/x", true);
        check("echo", false);
        check("script:a/b.jsonl", false);
        check("deepseek/x", false);
        let message = models.check_for_plugin("echo").expect_err("not a network model").message;
        assert!(message.ends_with("there are `openai/…`, `local/…`, `responses/…`"), "{message}");
        assert_eq!((models.context_window("local/x"), models.context_window("openai/x")), (Some(4096), None));
        assert_eq!(
            (models.is_network("local/x"), models.is_network("echo"), models.is_network("script:openai/x")),
            (true, false, false)
        );
    }

    #[test]
    fn a_child_has_its_parents_model_or_one_that_a_plugin_may_name() {
        let models = models(None, &["OPENAI_API_KEY"]);
        let mut script = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut script, b"{\"text\":\"a\"}\n").expect("written");
        let scripted = format!("script:{}#1", script.path().display());
        let check = |own: Option<&str>, name: &str, expect: bool| {
            assert_eq!(models.check_for_child(own, name).is_ok(), expect, "{own:?} {name}");
        };
        check(Some("echo"), "echo", true);
        check(Some("openai/gpt-4o"), "local/x", true);
        check(Some("openai/gpt-4o"), "echo", false);
        check(Some("openai/gpt-4o"), &scripted, false);
        check(Some("deepseek/x"), "deepseek/y", false);
        check(Some("script:a.jsonl"), &scripted, true);
        check(Some("script:a.jsonl"), "script:no-such-file.jsonl", false);
        check(Some("script:a.jsonl"), "echo", false);
        check(None, &scripted, false);
        check(None, "local/x", true);
    }

    #[test]
    fn a_secret_is_never_shown() {
        let secret = Secret::new("sk-secret");
        assert_eq!(format!("{secret:?} {secret}"), "*** ***");
        let config = ProviderConfig { api_key: Some(secret), ..ProviderConfig::new("x", ProviderKind::OpenAi) };
        assert!(!format!("{config:?}").contains("sk-secret"));
    }
}
