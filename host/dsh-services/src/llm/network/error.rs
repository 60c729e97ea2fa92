//! Failures of a server and their codes. What to try is said elsewhere (`advice`).

use dsh_seam::ModelFailure;
use serde_json::Value;

use super::client::describe;
use super::said::{Said, short};

/// The provider sent what makes no sense.
pub(in super::super) fn malformed(what: &str) -> ModelFailure {
    ModelFailure::new("malformed-response", format!("the provider sent {what}"))
}

/// The provider sent nothing.
pub(in super::super) fn empty() -> ModelFailure {
    ModelFailure::new("empty-response", "the provider answered with nothing")
}

/// The provider sent text that is neither a stream nor JSON.
pub(super) fn foreign(text: &str) -> ModelFailure {
    malformed(&format!("text in place of an answer: {}", short(text)))
}

/// The failure behind bytes that are no HTTP; none when an error is about something else.
pub(super) fn no_http(error: &reqwest::Error) -> Option<ModelFailure> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return Some(malformed(&format!("what is no HTTP: {}", describe(error))));
        }
        cause = error.source();
    }
    None
}

/// The failure behind an HTTP status, its body, and the time to wait in its headers.
pub(super) fn of_status(status: u16, body: &str, wait_ms: Option<u32>) -> ModelFailure {
    let mut said = Said::of_body(body);
    said.wait_ms = wait_ms.or(said.wait_ms);
    let text = match said.short() {
        text if text.is_empty() => format!("the provider answered with status {status}"),
        text => format!("the provider answered with status {status}: {text}"),
    };
    let failure = ModelFailure::new(said.by_status(status), text);
    ModelFailure { status: Some(status), retry_after_ms: said.wait_ms, ..failure }
}

/// The failure behind an `error` in the middle of an answer.
pub(in super::super) fn in_answer(value: &Value) -> ModelFailure {
    let said = Said::of(value);
    let code = match said.status {
        Some(status) => said.by_status(status),
        None => said.by_words(),
    };
    let failure = ModelFailure::new(code, format!("the provider failed: {}", said.short()));
    ModelFailure { status: said.status, retry_after_ms: said.wait_ms, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses_have_codes() {
        let check = |status: u16, body: &str, code: &str| {
            assert_eq!(of_status(status, body, None).code, code, "{status} {body}");
        };
        check(401, "", "auth");
        check(403, "", "auth");
        check(
            403,
            r#"{"error":{"code":403,"message":"Your input was flagged","metadata":{"reasons":["x"]}}}"#,
            "invalid-request",
        );
        check(402, r#"{"error":{"message":"Insufficient Balance"}}"#, "quota");
        check(429, "", "rate-limit");
        check(429, r#"{"error":{"code":"insufficient_quota"}}"#, "quota");
        check(
            429,
            r#"[{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED"}}]"#,
            "quota",
        );
        check(
            429,
            r#"[{"error":{"code":429,"message":"You exceeded your current quota","details":[{"@type":"x/google.rpc.RetryInfo","retryDelay":"34s"}]}}]"#,
            "rate-limit",
        );
        check(400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, "context-window-exceeded");
        check(
            500,
            r#"{"error":{"code":500,"message":"x","type":"exceed_context_size_error"}}"#,
            "context-window-exceeded",
        );
        check(
            400,
            r#"{"object":"error","message":"This model's maximum context length is 4096 tokens","code":400}"#,
            "context-window-exceeded",
        );
        check(
            400,
            r#"{"error":"prompt too long; exceeded max context length by 3 tokens"}"#,
            "context-window-exceeded",
        );
        check(413, "", "context-window-exceeded");
        check(
            400,
            r#"[{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}]"#,
            "auth",
        );
        check(400, r#"{"error":{"message":"bad"}}"#, "invalid-request");
        check(400, r#"{"error":{"message":"filtered","code":"content_filter","innererror":{}}}"#, "invalid-request");
        check(404, "", "invalid-request");
        check(422, "", "invalid-request");
        check(307, "", "invalid-request");
        check(500, "oops", "server");
        check(504, r#"{"error":"context deadline exceeded"}"#, "server");
        check(529, "", "server");
        assert_eq!(of_status(402, "{}", Some(5)).code, "rate-limit");
    }

    #[test]
    fn messages_say_what_the_server_said() {
        let check = |status: u16, body: &str, expect: &str| {
            assert_eq!(
                of_status(status, body, None).message,
                format!("the provider answered with status {status}{expect}")
            );
        };
        check(500, "oops\n", ": oops");
        check(500, "", "");
        check(400, r#"{"detail":"no"}"#, ": no");
        check(422, r#"{"detail":[{"msg":"field required"}]}"#, r#": {"detail":[{"msg":"field required"}]}"#);
        check(400, r#"[{"error":{"message":"listed"}}]"#, ": listed");
        check(502, "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>", ": 502 Bad Gateway");
        check(
            429,
            r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"slow down","provider_name":"X"}}}"#,
            ": Provider returned error: slow down",
        );
    }

    #[test]
    fn errors_in_an_answer_have_codes() {
        let check = |error: Value, code: &str, status: Option<u16>| {
            let failure = in_answer(&json!({ "error": error }));
            assert_eq!((failure.code.as_str(), failure.status), (code, status), "{error}");
        };
        check(json!({"message": "x", "code": 429}), "rate-limit", Some(429));
        check(json!({"message": "x", "code": "429"}), "rate-limit", Some(429));
        check(json!({"message": "x", "type": "rate_limit_exceeded"}), "rate-limit", None);
        check(
            json!({"message": "x", "type": "invalid_request_error", "code": "context_length_exceeded"}),
            "context-window-exceeded",
            None,
        );
        check(json!("overloaded"), "server", None);
        check(json!({"message": "x", "code": "invalid_prompt"}), "invalid-request", None);
        check(json!({"message": "x", "type": "not_found_error"}), "invalid-request", None);
        check(json!({"message": "x", "type": "overloaded_error"}), "server", None);
        check(json!({"message": "x", "type": "billing_error"}), "quota", None);
        check(json!({"message": "x", "type": "timeout_error"}), "timeout", None);
        check(json!({"message": "x", "type": "authentication_error"}), "auth", None);
        check(json!({"message": "x", "code": "content_filter"}), "invalid-request", None);
    }
}
