//! JSON Schemas of Rust types, in the shape that models and people like: 2020-12, inline, no titles.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// The JSON Schema (2020-12) of a type, subschemas inline, without `$schema`, `title` and Rust's number formats.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    Tidy.transform(&mut schema);
    // A type without fields has no `properties`; some providers want them all the same.
    if schema.get("type").and_then(Value::as_str) == Some("object") && schema.get("properties").is_none() {
        schema.insert("properties".to_owned(), Value::Object(Default::default()));
    }
    schema.to_value()
}

/// Takes away what says nothing to a model.
struct Tidy;

impl Transform for Tidy {
    fn transform(&mut self, schema: &mut Schema) {
        schema.remove("title");
        schema.remove("format");
        transform_subschemas(self, schema);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        /// The name.
        title: String,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case", deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Outer {
        start_line: Option<u32>,
        inner: Vec<Inner>,
    }

    #[test]
    fn inline_and_tidy() {
        let expect = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "start-line": {"type": ["integer", "null"], "minimum": 0},
                "inner": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"title": {"type": "string", "description": "The name."}},
                    "required": ["title"],
                }},
            },
            "required": ["inner"],
        });
        assert_eq!(schema_of::<Outer>(), expect);
    }

    #[test]
    fn nothing_to_say() {
        assert_eq!(
            schema_of::<crate::NoConfig>(),
            json!({"type": "object", "additionalProperties": false, "properties": {}, "description": "The configuration of a plugin that has none: `{}`."})
        );
    }
}
