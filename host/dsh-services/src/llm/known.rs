//! The table of known models: windows, outputs and prices of what the makers of models sell themselves.
//!
//! It is data, with the day on which it was looked up and where: `known_models.json`. What is not in it is unknown, and the
//! configuration wins over it.

use std::sync::LazyLock;

use serde::Deserialize;

use super::prices::Price;
use super::provider::ProviderKind;

/// The table.
static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("known_models.json")).expect("invariant: a test reads the table")
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    looked_up: String,
    makers: Vec<Maker>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Maker {
    /// The kinds of providers by which its models are reached.
    kinds: Vec<String>,
    /// Where it says so in public.
    sources: Vec<String>,
    models: Vec<Known>,
}

/// A model of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Known {
    pub name: String,
    /// Other names of exactly this model.
    #[serde(default)]
    pub also: Vec<String>,
    pub context_window: Option<u32>,
    pub max_output_tokens: Option<u32>,
    /// That of a plain request of usual length. None where no single price is even roughly right.
    pub price: Option<Price>,
}

/// The day on which the table was looked up, as `2026-11-30`, and where.
pub fn known_models() -> (&'static str, impl Iterator<Item = &'static str>) {
    (&TABLE.looked_up, TABLE.makers.iter().flat_map(|maker| &maker.sources).map(String::as_str))
}

/// The models of a kind of provider.
pub(super) fn of_kind(kind: ProviderKind) -> impl Iterator<Item = &'static Known> {
    let makers = TABLE.makers.iter().filter(move |maker| maker.kinds.iter().any(|known| known == kind.as_str()));
    makers.flat_map(|maker| &maker.models)
}

/// A model by one of its names.
pub(super) fn find(kind: ProviderKind, name: &str) -> Option<&'static Known> {
    of_kind(kind).find(|known| known.name == name || known.also.iter().any(|also| also == name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_read_and_says_each_thing_once() {
        let (date, sources) = known_models();
        assert!(date.len() == 10 && date.starts_with("20"), "{date}");
        assert!(sources.into_iter().all(|source| source.starts_with("https://")));
        let known = ProviderKind::ALL.map(ProviderKind::as_str);
        assert!(TABLE.makers.iter().flat_map(|maker| &maker.kinds).all(|kind| known.contains(&kind.as_str())));
        for kind in ProviderKind::ALL {
            let mut names = BTreeSet::new();
            for model in of_kind(kind) {
                assert!(
                    std::iter::once(&model.name).chain(&model.also).all(|name| names.insert(name)),
                    "{}",
                    model.name
                );
                assert!(model.context_window.is_some() || model.price.is_some(), "{} says nothing", model.name);
                assert!(model.max_output_tokens.is_none_or(|most| Some(most) < model.context_window), "{}", model.name);
            }
        }
    }

    #[test]
    fn a_model_has_its_names_and_no_others() {
        let check = |kind, name: &str, expect: Option<&str>| {
            assert_eq!(find(kind, name).map(|known| known.name.as_str()), expect, "{name}");
        };
        check(ProviderKind::Anthropic, "claude-haiku-4-5-20251001", Some("claude-haiku-4-5"));
        check(ProviderKind::Anthropic, "claude-haiku-4-5-2", None);
        check(ProviderKind::OpenAiResponses, "gpt-5", Some("gpt-5"));
        check(ProviderKind::Compatible, "gpt-5", None);
    }
}
