//! What a server sends as JSON: the pieces of a stream, and a whole document.

use dsh_seam::ModelFailure;
use serde_json::Value;

use super::error::{in_answer, malformed};
use super::sse::Event;

/// The object that an event holds. What is called an `error` is one whatever it holds.
pub(in super::super) fn piece(event: &Event) -> Result<Value, ModelFailure> {
    let data = event.data.trim();
    let is_error = event.kind == "error";
    match serde_json::from_str(data) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(value) if is_error => Err(in_answer(&value)),
        Ok(_) => Err(malformed("a piece that is not an object")),
        Err(_) if is_error => Err(in_answer(&Value::String(data.to_owned()))),
        Err(error) => Err(malformed(&format!("a piece that is not valid JSON: {error}"))),
    }
}

/// The object that an answer is which was not streamed.
pub(in super::super) fn document(body: &[u8]) -> Result<Value, ModelFailure> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(malformed("an answer that is not an object")),
        Err(error) => Err(malformed(&format!("an answer that is not valid JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_an_object_or_a_failure() {
        let check = |kind: &str, data: &str, expect: &str| {
            let found = piece(&Event { kind: kind.into(), data: data.into() });
            assert_eq!(found.map_or_else(|failure| failure.code, |value| value.to_string()), expect, "{kind} {data}");
        };
        check("", " {\"a\":1} ", "{\"a\":1}");
        check("error", "{\"a\":1}", "{\"a\":1}");
        check("", "[1]", "malformed-response");
        check("error", "\"busy\"", "server");
        check("", "{\"a\":", "malformed-response");
        check("error", "busy", "server");
    }

    #[test]
    fn an_answer_is_an_object_or_a_failure() {
        let check = |body: &[u8], expect: Option<&str>| {
            assert_eq!(document(body).err().map(|failure| failure.code).as_deref(), expect);
        };
        check(b"{}", None);
        check(b"[]", Some("malformed-response"));
        check(b"{", Some("malformed-response"));
        check(b"\xff", Some("malformed-response"));
    }
}
