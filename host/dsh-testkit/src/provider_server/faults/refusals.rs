//! How servers refuse.

use std::time::Duration;

use serde_json::json;

use super::{Fault, Wait, half};
use crate::provider_server::{Protocol, Reply};

pub(super) const FAULTS: &[Fault] = &[
    Fault::new("bad-request", "answers 400", |protocol| said(protocol, 400, "invalid_request_error", "no such field")),
    Fault::new("context-window", "answers 400 because the input is too long", |protocol| {
        let message = match protocol {
            Protocol::Messages => "prompt is too long: 209303 tokens > 200000 maximum",
            _ => "This model's maximum context length is 8192 tokens. Please reduce the length of the messages.",
        };
        said(protocol, 400, "invalid_request_error", message)
    }),
    Fault::new("context-window-500", "answers 500 because the input is too long", |_| {
        let error = json!({ "code": 500, "message": "the request exceeds the available context size", "type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256 });
        Reply::status(500, &json!({ "error": error }).to_string())
    }),
    Fault::new("too-large", "answers 413", |protocol| {
        said(protocol, 413, "request_too_large", "Request exceeds the maximum allowed number of bytes")
    }),
    Fault::new("key", "answers 401", |protocol| said(protocol, 401, "authentication_error", "invalid x-api-key")),
    Fault::new("permission", "answers 403", |protocol| said(protocol, 403, "permission_error", "not for this key")),
    Fault::new("balance", "answers 402", |protocol| said(protocol, 402, "unknown_error", "Insufficient Balance")),
    Fault::new("no-such-model", "answers 404", |protocol| said(protocol, 404, "not_found_error", "model: m")),
    Fault::new("request-timeout", "answers 408", |protocol| said(protocol, 408, "timeout_error", "too slow")),
    Fault::new("unprocessable", "answers 422 with a list of what is wrong", |_| {
        Reply::status(422, &json!({ "detail": [{ "loc": ["body", "messages"], "msg": "field required" }] }).to_string())
    }),
    Fault::new("rate-limit", "answers 429", |protocol| limited(protocol, None)),
    Fault::new("rate-limit-seconds", "answers 429 with `retry-after` in seconds", |protocol| {
        limited(protocol, Some(("retry-after", "2")))
    }),
    Fault::new("rate-limit-date", "answers 429 with `retry-after` as a date that has passed", |protocol| {
        limited(protocol, Some(("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")))
    }),
    Fault::new("rate-limit-ms", "answers 429 with `retry-after-ms`", |protocol| {
        limited(protocol, Some(("retry-after-ms", "250")))
    }),
    Fault::new("rate-limit-absurd", "answers 429 with a `retry-after` of centuries", |protocol| {
        limited(protocol, Some(("retry-after", "99999999999999999999")))
    }),
    Fault::new("rate-limit-nonsense", "answers 429 with a `retry-after` that is no time", |protocol| {
        limited(protocol, Some(("retry-after", "-5; soon")))
    }),
    Fault::new("quota", "answers 429 because nothing is left", |_| {
        let error = json!({ "message": "You exceeded your current quota, please check your plan", "type": "insufficient_quota", "code": "insufficient_quota" });
        Reply::status(429, &json!({ "error": error }).to_string())
    }),
    Fault::new("server-error", "answers 500", |protocol| said(protocol, 500, "api_error", "Internal server error")),
    Fault::new("server-error-without-body", "answers 500 and nothing else", |_| Reply::status(500, "")),
    Fault::new("bad-gateway", "answers 502 with a page", |_| {
        let page = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>";
        Reply::page(502, "text/html", page)
    }),
    Fault::new("unavailable", "answers 503", |protocol| said(protocol, 503, "unavailable_error", "Loading model")),
    Fault::new("unavailable-seconds", "answers 503 with `retry-after` in seconds", |protocol| {
        said(protocol, 503, "unavailable_error", "Loading model").header("retry-after", "1.5")
    }),
    Fault::new("gateway-timeout", "answers 504 with text", |_| {
        Reply::page(504, "text/plain", "upstream request timeout")
    }),
    Fault::new("origin-down", "answers 520 with a page of Cloudflare", |_| {
        let page = "<!DOCTYPE html>\n<html lang=\"en-US\">\n<head>\n<title>api.example.com | 520: Web server is returning an unknown error</title>\n</head><body>Cloudflare</body></html>";
        Reply::page(520, "text/html; charset=UTF-8", page)
    }),
    Fault::new("overloaded", "answers 529", |protocol| said(protocol, 529, "overloaded_error", "Overloaded")),
    Fault::new("redirect", "answers 307 and points elsewhere", |_| {
        Reply::status(307, "").header("location", "https://elsewhere.example/v1/chat?token=abc")
    }),
    Fault::new("redirect-to-itself", "answers 302 and points to itself", |_| {
        Reply::page(302, "text/html", "<title>302 Found</title>").header("location", "/v1/messages")
    }),
    Fault::new("no-content", "answers 204", |_| Reply::raw().bytes(b"HTTP/1.1 204 No Content\r\n\r\n").close()),
    Fault::new("error-with-200", "answers 200 with an error", |protocol| {
        Reply::status(200, &protocol.error_body("overloaded_error", "Overloaded"))
    }),
    Fault::new("page-with-200", "answers 200 with a page", |_| {
        let page = "<!DOCTYPE html><html><head><title>Sign in to the network</title></head><body>…</body></html>";
        Reply::page(200, "text/html", page)
    }),
    Fault::new("text-with-200", "answers 200 with text", |_| {
        Reply::page(200, "text/plain", "upstream connect error or disconnect/reset before headers\n")
    }),
    Fault::new("nothing-with-200", "answers 200 with nothing", |_| Reply::status(200, "")),
    Fault::new("refusal-of-nonsense", "answers 400 with bytes that are no text", |_| {
        Reply::status(400, "").bytes(b"\xff\xfe\0bad")
    }),
    Fault::new("refusal-cut", "answers 400 and closes the connection in the body", |_| {
        Reply::status(400, "{\"error\":{\"message\":\"no su").close()
    }),
    Fault::new("refusal-reset", "answers 503 and resets the connection in the body", |_| {
        Reply::status(503, "{\"error\":").reset()
    }),
    Fault::new("refusal-stalls", "answers 429 and stops in the body", |_| {
        Reply::status(429, "slow down").header("retry-after", "3").stall()
    })
    .waits(Wait::Idle),
    Fault::new("refusal-endless", "answers 500 with a body that never ends", |_| {
        Reply::status(500, "").endless("oops ".repeat(2000).as_bytes(), Duration::ZERO)
    }),
    Fault::new("error-event", "sends an error in the middle of the answer", |protocol| {
        half(protocol).and(&[protocol.error_event("overloaded_error", "Overloaded")])
    }),
    Fault::new("error-event-quota", "sends an error about the quota in the middle of the answer", |protocol| {
        half(protocol).and(&[protocol.error_event("insufficient_quota", "You exceeded your current quota")])
    }),
    Fault::new("error-event-context", "sends an error about the context first", |protocol| {
        let event =
            protocol.error_event("context_length_exceeded", "Your input exceeds the context window of this model.");
        Reply::wire(&[event])
    }),
    Fault::new("error-event-text", "sends an event `error` that is no JSON", |protocol| {
        half(protocol).bytes(b"event: error\ndata: Service unavailable\n\n")
    }),
];

fn said(protocol: Protocol, status: u16, kind: &str, message: &str) -> Reply {
    Reply::status(status, &protocol.error_body(kind, message))
}

fn limited(protocol: Protocol, header: Option<(&str, &str)>) -> Reply {
    let reply = said(protocol, 429, "rate_limit_error", "slow down");
    header.into_iter().fold(reply, |reply, (name, value)| reply.header(name, value))
}
