//! The raw arguments of a call: JSON, without a name twice, matching the tool's schema.

use std::fmt;

use jsonschema::Validator;
use jsonschema::paths::{Location, LocationSegment};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Violations shown to the model; more would bury the first.
const MAX_VIOLATIONS: usize = 10;

/// Longest text of one violation, in characters: the validator repeats the offending value, which may be a whole file.
const MAX_VIOLATION_CHARS: usize = 300;

/// The arguments to run the tool with, or what is wrong with them, for the model.
pub(super) fn check(raw: &str, validator: &Validator) -> Result<String, String> {
    let raw = if raw.trim().is_empty() { "{}" } else { raw };
    let value = parse(raw).map_err(|error| format!("the arguments are not valid JSON: {error}"))?;
    let mut errors = validator.iter_errors(&value);
    let mut violations: Vec<String> = errors.by_ref().take(MAX_VIOLATIONS).map(|error| violation(&error)).collect();
    if violations.is_empty() {
        return Ok(raw.to_owned());
    }
    let more = errors.count();
    if more > 0 {
        violations.push(format!("and {more} more"));
    }
    Err(format!("the arguments do not match the tool's schema:\n- {}", violations.join("\n- ")))
}

fn violation(error: &jsonschema::ValidationError<'_>) -> String {
    let text = error.to_string();
    let text = match text.char_indices().nth(MAX_VIOLATION_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    };
    format!("`{}`: {text}", json_path(error.instance_path()))
}

/// `$.edits[0].old`: how the models of the field write a place in a document.
fn json_path(location: &Location) -> String {
    let mut path = String::from("$");
    for segment in location {
        match segment {
            LocationSegment::Index(index) => path.push_str(&format!("[{index}]")),
            LocationSegment::Property(name) => {
                path.push('.');
                path.push_str(&name);
            }
        }
    }
    path
}

/// Parses JSON and refuses a name that an object has twice: a guard and a tool could read different values of it.
fn parse(raw: &str) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_str(raw);
    let value = Strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = members.next_value_seed(Strict)?;
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the name `{name}` is there twice in one object")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_checked_and_every_violation_has_its_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {"type": "string"}}}}
            },
            "required": ["path"],
            "additionalProperties": false
        });
        let validator = jsonschema::options().build(&schema).expect("a schema");
        let check = |raw: &str, expect: Result<&str, &str>| {
            assert_eq!(check(raw, &validator), expect.map(str::to_owned).map_err(str::to_owned), "{raw}");
        };
        check(r#"{ "path": "a" }"#, Ok(r#"{ "path": "a" }"#));
        check("", Err("the arguments do not match the tool's schema:\n- `$`: \"path\" is a required property"));
        check(
            r#"{"path": 1, "edits": [{"old": 2}], "x": 0}"#,
            Err(
                "the arguments do not match the tool's schema:\n- `$.path`: 1 is not of type \"string\"\n- `$.edits[0].old`: 2 is not of type \"string\"\n- `$`: Additional properties are not allowed ('x' was unexpected)",
            ),
        );
        check("{\"path\": ", Err("the arguments are not valid JSON: EOF while parsing a value at line 1 column 9"));
        check("{} x", Err("the arguments are not valid JSON: trailing characters at line 1 column 4"));
        check(
            r#"{"path": "a", "path": "b"}"#,
            Err("the arguments are not valid JSON: the name `path` is there twice in one object at line 1 column 26"),
        );
        check("[]", Err("the arguments do not match the tool's schema:\n- `$`: [] is not of type \"object\""));
    }

    #[test]
    fn empty_means_an_empty_object_and_long_lists_are_cut() {
        let any = jsonschema::options().build(&json!({"type": "object"})).expect("a schema");
        assert_eq!(check("", &any), Ok("{}".into()));
        assert_eq!(check(" \n", &any), Ok("{}".into()));
        let numbers = json!({"type": "object", "additionalProperties": {"type": "number"}});
        let validator = jsonschema::options().build(&numbers).expect("a schema");
        let object: Map<String, Value> = (0..13).map(|n| (format!("k{n}"), json!("x".repeat(1000)))).collect();
        let text = check(&Value::Object(object).to_string(), &validator).expect_err("no numbers");
        assert_eq!((text.lines().count(), text.lines().last()), (12, Some("- and 3 more")));
        assert!(text.len() < 5000, "{}", text.len());
    }
}
