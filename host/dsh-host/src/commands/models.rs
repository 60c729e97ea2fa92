//! `models`: which providers are usable, what is missing, what is known of their models; with `--ask`, what the providers say themselves.

use std::path::Path;

use dsh_seam::ModelFailure;
use dsh_services::llm::{Listed, ModelConfig, Price, ProviderConfig, known_models, list_models};
use futures::future::join_all;
use serde::Serialize;

use super::{columns, print, print_json};
use crate::args::{ModelsCommand, Shape};
use crate::config;
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::names;
use crate::resolve::providers;

/// What the command says, for a program.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    providers: Vec<Row>,
    known_models: Table,
}

/// The table of known models.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    looked_up: &'static str,
    sources: Vec<&'static str>,
}

/// A provider.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    kind: &'static str,
    /// Without what is secret; none when it has none.
    address: Option<String>,
    key: Option<Key>,
    usable: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
    /// What is known of its models.
    models: Vec<Model>,
    /// What it said itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<Asked>,
    /// One line of it.
    #[serde(skip)]
    state: String,
}

/// Where its key is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    variable: String,
    set: bool,
    needed: bool,
}

/// A model.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Model {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_window: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    price: Option<Prices>,
}

/// What a model costs, for a million tokens.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Prices {
    input: dsh_seam::cost::Cost,
    output: dsh_seam::cost::Cost,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read: Option<dsh_seam::cost::Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_write: Option<dsh_seam::cost::Cost>,
}

/// What a provider said when it was asked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Asked {
    Models(Vec<Model>),
    Error {
        code: String,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
    },
}

/// Lists providers and models.
pub async fn run(command: &ModelsCommand, environment: &Environment) -> Result<Code, Stop> {
    let config = config::find(command.config.as_deref().map(Path::new), environment)?;
    let mut all = providers::at_addresses(
        config.as_ref(),
        command.base_url.as_deref(),
        command.provider.as_deref(),
        environment,
    )?;
    if let Some(wanted) = &command.provider {
        let known: Vec<String> = all.iter().map(|provider| provider.name.clone()).collect();
        all.retain(|provider| provider.name == *wanted);
        if all.is_empty() {
            let hint = names::hint(wanted, known.iter().map(String::as_str));
            return Err(Stop::usage(format!("unknown provider `{wanted}`")).hint(hint));
        }
    }
    let rows = join_all(all.iter().map(|provider| row(provider, command.ask))).await;
    let unusable = command.provider.is_some() && rows.iter().any(|row| !row.usable);
    let failed = rows.iter().any(|row| matches!(row.asked, Some(Asked::Error { .. })));
    let (looked_up, sources) = known_models();
    let report = Report { providers: rows, known_models: Table { looked_up, sources: sources.collect() } };
    match command.output {
        Shape::Json => print_json(&report)?,
        Shape::Text => print(&text(&report))?,
    }
    Ok(match (unusable, failed) {
        (true, _) => Code::Usage,
        (false, true) => Code::Model,
        (false, false) => Code::Success,
    })
}

async fn row(provider: &ProviderConfig, ask: bool) -> Row {
    let (usable, state) = state(provider);
    let asked = if ask && usable { Some(asked(provider, list_models(provider).await)) } else { None };
    Row {
        name: provider.name.clone(),
        kind: provider.kind.as_str(),
        address: provider.shown_address(),
        key: provider.key_variable.clone().map(|variable| Key {
            variable,
            set: provider.api_key.is_some(),
            needed: provider.key_needed,
        }),
        usable,
        missing: (!usable).then(|| state.clone()),
        models: provider.models().into_iter().map(|(name, known)| model(name, &known)).collect(),
        asked,
        state,
    }
}

/// Whether a provider is usable, and in words why, or what to do. For `doctor` too.
pub fn state(provider: &ProviderConfig) -> (bool, String) {
    let missing: Vec<String> =
        provider.missing_variables().map(|(variable, what)| format!("it needs {what}: set `{variable}`")).collect();
    if !missing.is_empty() {
        return (false, missing.join(", "));
    }
    if provider.base_url.is_none() {
        return (false, "it has no address: give `--base-url URL`".into());
    }
    if let Err(failure) = provider.check() {
        return (false, failure.message);
    }
    let key = match (&provider.key_variable, provider.api_key.is_some()) {
        (Some(variable), true) => format!("`{variable}` is set"),
        (Some(variable), false) => format!("`{variable}` is not set, and it may need none"),
        (None, _) => "it needs no key".to_owned(),
    };
    (true, key)
}

fn model(name: String, known: &ModelConfig) -> Model {
    let prices = |price: Price| Prices {
        input: price.input,
        output: price.output,
        cache_read: price.cache_read,
        cache_write: price.cache_write,
    };
    Model {
        name,
        context_window: known.context_window,
        max_output_tokens: known.max_output_tokens,
        price: known.price.map(prices),
    }
}

fn asked(provider: &ProviderConfig, answer: Result<Vec<Listed>, ModelFailure>) -> Asked {
    match answer {
        Ok(listed) => Asked::Models(
            listed
                .into_iter()
                .map(|listed| {
                    let mut known = provider.model(&listed.name);
                    known.context_window = known.context_window.or(listed.context_window);
                    model(listed.name, &known)
                })
                .collect(),
        ),
        Err(failure) => Asked::Error { code: failure.code, message: failure.message, status: failure.status },
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for row in &report.providers {
        let address = row.address.as_deref().unwrap_or("no address");
        let usable = if row.usable { "usable" } else { "not usable" };
        text.push_str(&format!("{} ({}, {address}): {usable}: {}\n", row.name, row.kind, row.state));
        match &row.asked {
            Some(Asked::Models(models)) if models.is_empty() => text.push_str("  it lists no models\n"),
            Some(Asked::Models(models)) => text.push_str(&lines(&row.name, models)),
            Some(Asked::Error { code, message, .. }) => {
                text.push_str(&format!("  asked, and failed: {message} ({code})\n"))
            }
            None => text.push_str(&lines(&row.name, &row.models)),
        }
    }
    if report.providers.iter().any(|row| !row.models.is_empty()) {
        let date = report.known_models.looked_up;
        text.push_str(&format!(
            "Windows and prices (for a million tokens) as configured, else as looked up on {date}.\n"
        ));
    }
    text
}

fn lines(provider: &str, models: &[Model]) -> String {
    let count = |tokens: Option<u32>, what: &str| tokens.map(|tokens| format!("{tokens} {what}")).unwrap_or_default();
    let row = |model: &Model| {
        let prices = model.price.as_ref().map(|price| {
            let cache = [(price.cache_read, "cache read"), (price.cache_write, "cache write")];
            let cache = cache.into_iter().filter_map(|(price, what)| price.map(|price| format!(", {price} {what}")));
            format!("{} in, {} out{}", price.input, price.output, cache.collect::<String>())
        });
        vec![
            format!("  {provider}/{}", model.name),
            count(model.context_window, "window"),
            count(model.max_output_tokens, "output"),
            prices.unwrap_or_default(),
        ]
    };
    columns(&models.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_services::llm::{ProviderKind, Secret};

    #[test]
    fn a_provider_is_usable_or_says_what_is_missing() {
        let check = |provider: &ProviderConfig, expect: (bool, &str)| {
            let (usable, state) = state(provider);
            assert_eq!((usable, state.as_str()), expect, "{provider:?}");
        };
        let mut provider = ProviderConfig::new("p", ProviderKind::Compatible);
        check(&provider, (false, "it has no address: give `--base-url URL`"));
        provider.base_url = Some("http://127.0.0.1:1/v1".into());
        check(&provider, (true, "it needs no key"));
        provider.key_variable = Some("K".into());
        check(&provider, (false, "it needs a key: set `K`"));
        provider.key_needed = false;
        check(&provider, (true, "`K` is not set, and it may need none"));
        provider.api_key = Some(Secret::new("s"));
        check(&provider, (true, "`K` is set"));
        provider.api_key = Some(Secret::new("a\nb"));
        check(&provider, (false, "the key of the provider `p` in `K` has characters that no key has"));
    }
}
