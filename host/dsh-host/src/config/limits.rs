//! `limits = { … }` of a plugin: its keys and their ranges come from the engine's table, so that this parser, the schema, the checks and
//! the documentation cannot differ from what is enforced.

use std::borrow::Cow;
use std::fmt;

use dsh_wasm::{Limit, Limits};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use toml::Spanned;

/// The limits of a plugin, as declared: each key once, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct LimitsEntry(pub Vec<(&'static str, Spanned<i64>)>);

/// A key of the table.
struct Key(&'static str);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = Limits::KEYS.iter().find(|key| **key == text);
        known.map(|key| Self(key)).ok_or_else(|| D::Error::unknown_field(&text, Limits::KEYS))
    }
}

impl<'de> Deserialize<'de> for LimitsEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = LimitsEntry;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of limits")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LimitsEntry, A::Error> {
                let mut entries = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    entries.push((key, value));
                }
                Ok(LimitsEntry(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl JsonSchema for LimitsEntry {
    fn schema_name() -> Cow<'static, str> {
        "LimitsEntry".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let property = |limit: &Limit| {
            let schema = serde_json::json!({
                "type": "integer",
                "minimum": limit.least,
                "maximum": limit.most,
                "default": limit.default,
                "description": sentence(limit.about),
            });
            (limit.key.to_owned(), schema)
        };
        let properties: serde_json::Map<_, _> = Limits::ALL.iter().map(property).collect();
        schemars::json_schema!({
            "type": "object",
            "description": "The limits of a plugin.",
            "properties": properties,
            "additionalProperties": false,
        })
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `1000000` as `1,000,000`.
    fn grouped(number: u32) -> String {
        let digits = number.to_string();
        let group = |(at, digit): (usize, char)| {
            let comma = at > 0 && (digits.len() - at).is_multiple_of(3);
            if comma { format!(",{digit}") } else { digit.to_string() }
        };
        digits.chars().enumerate().map(group).collect()
    }

    #[test]
    fn the_documentation_has_the_table() {
        let row = |limit: &Limit| {
            let Limit { key, about, default, least, most, .. } = limit;
            format!("| `{key}` | {about} | {} | {} to {} |\n", grouped(*default), grouped(*least), grouped(*most))
        };
        let rows: String = Limits::ALL.iter().map(row).collect();
        let table = format!("| limit | bounds | default | range |\n|---|---|---|---|\n{rows}\n");
        let page = include_str!("../../../../docs/command-line.md");
        assert!(page.contains(&table), "docs/command-line.md should have this table:\n{table}");
    }

    #[test]
    fn the_schema_has_every_limit_with_its_range() {
        let schema = serde_json::Value::from(schemars::schema_for!(LimitsEntry));
        let memory = &schema["properties"]["memory-mib"];
        assert_eq!(
            (&memory["minimum"], &memory["maximum"], &memory["default"]),
            (&1.into(), &4_096.into(), &64.into())
        );
        assert_eq!(schema["properties"].as_object().map(serde_json::Map::len), Some(Limits::ALL.len()));
    }
}
