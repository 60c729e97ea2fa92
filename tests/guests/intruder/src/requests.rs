//! Steps over the network.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, IncomingBody, Method, OutgoingBody, OutgoingRequest, RequestOptions,
    Scheme, http_error_code,
};
use wasip2::io::streams::StreamError;

use crate::Told;

/// Bytes of a body that are told; of a longer one only its length is.
const SHOWN_BYTES: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Sends one request and reads the answer.
    Get(Get),
    /// Sends it so many times without reading any answer, and tells how many came back well, and the first error.
    #[serde(rename_all = "kebab-case")]
    GetMany { url: String, count: u32, connect_ms: Option<u64> },
    /// Makes fields and tells whether that is allowed.
    Fields { headers: Vec<(String, String)> },
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Get {
    url: String,
    /// Instead of what the address says.
    authority: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
    method: Option<String>,
    body: Option<String>,
    /// Redirects that the guest follows by itself.
    #[serde(default)]
    follow: u32,
    connect_ms: Option<u64>,
    first_byte_ms: Option<u64>,
    between_ms: Option<u64>,
}

/// Takes one step.
pub fn take(step: &Step) -> Told {
    match step {
        Step::Get(get) => fetch(get),
        Step::GetMany { url, count, connect_ms } => many(url, *count, *connect_ms),
        Step::Fields { headers } => fields(headers).map(|_| json!(true)),
    }
}

fn fetch(get: &Get) -> Told {
    let mut url = get.url.clone();
    let mut left = get.follow;
    loop {
        let response = wait(&send(get, &url)?)?;
        let location = response.headers().get("location").pop();
        if let (300..400, Some(location), true) = (response.status(), location, left > 0) {
            url = String::from_utf8_lossy(&location).into_owned();
            left -= 1;
            continue;
        }
        let body = response.consume().map_err(|()| "the body is gone".to_owned())?;
        let (first, length, end) = read(&body);
        let mut told = json!({ "status": response.status() });
        if length > SHOWN_BYTES {
            told["bytes"] = json!(length);
        } else {
            told["body"] = json!(String::from_utf8_lossy(&first));
        }
        if let Some(end) = end {
            told["end"] = json!(end);
        }
        return Ok(told);
    }
}

fn many(url: &str, count: u32, connect_ms: Option<u64>) -> Told {
    let get = Get {
        url: url.to_owned(),
        authority: None,
        headers: Vec::new(),
        method: None,
        body: None,
        follow: 0,
        connect_ms,
        first_byte_ms: None,
        between_ms: None,
    };
    let mut waiting = Vec::new();
    let mut error = None;
    for _ in 0..count {
        match send(&get, url) {
            Ok(future) => waiting.push(future),
            Err(told) => {
                error.get_or_insert(told);
            }
        }
    }
    let mut answers = Vec::new();
    for future in &waiting {
        match wait(future) {
            Ok(response) => answers.push(response),
            Err(told) => {
                error.get_or_insert(told);
            }
        }
    }
    Ok(json!({ "well": answers.len(), "error": error }))
}

fn send(get: &Get, url: &str) -> Result<FutureIncomingResponse, String> {
    let (scheme, rest) = url.split_once("://").ok_or("no scheme")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let request = OutgoingRequest::new(fields(&get.headers)?);
    let scheme = match scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    };
    request.set_scheme(Some(&scheme)).map_err(|()| "no such scheme".to_owned())?;
    let authority = get.authority.as_deref().unwrap_or(authority);
    request.set_authority(Some(authority)).map_err(|()| "no such authority".to_owned())?;
    request.set_path_with_query(Some(path)).map_err(|()| "no such path".to_owned())?;
    if let Some(method) = &get.method {
        let method = match method.as_str() {
            "POST" => Method::Post,
            "CONNECT" => Method::Connect,
            other => Method::Other(other.to_owned()),
        };
        request.set_method(&method).map_err(|()| "no such method".to_owned())?;
    }
    let body = match &get.body {
        Some(text) => Some((request.body().map_err(|()| "no body".to_owned())?, text)),
        None => None,
    };
    let options = RequestOptions::new();
    let nanos = |ms: Option<u64>| ms.map(|ms| ms.saturating_mul(1_000_000));
    let _ = options.set_connect_timeout(nanos(get.connect_ms));
    let _ = options.set_first_byte_timeout(nanos(get.first_byte_ms));
    let _ = options.set_between_bytes_timeout(nanos(get.between_ms));
    let future = outgoing_handler::handle(request, Some(options)).map_err(|error| code(&error))?;
    if let Some((body, text)) = body {
        let stream = body.write().map_err(|()| "no stream".to_owned())?;
        let written = stream.blocking_write_and_flush(text.as_bytes());
        drop(stream);
        OutgoingBody::finish(body, None).map_err(|error| code(&error))?;
        written.map_err(|error| ended(&error).unwrap_or_default())?;
    }
    Ok(future)
}

fn wait(future: &FutureIncomingResponse) -> Result<wasip2::http::types::IncomingResponse, String> {
    loop {
        match future.get() {
            Some(Ok(answer)) => return answer.map_err(|error| code(&error)),
            Some(Err(())) => return Err("taken already".to_owned()),
            None => future.subscribe().block(),
        }
    }
}

/// The beginning of a body, its length, and how it ended unless well.
fn read(body: &IncomingBody) -> (Vec<u8>, usize, Option<String>) {
    let (mut first, mut length) = (Vec::new(), 0);
    let Ok(stream) = body.stream() else { return (first, length, Some("the stream is gone".to_owned())) };
    loop {
        match stream.blocking_read(1 << 20) {
            Ok(more) => {
                length += more.len();
                if length <= SHOWN_BYTES {
                    first.extend(more);
                }
            }
            Err(error) => return (first, length, ended(&error)),
        }
    }
}

fn ended(error: &StreamError) -> Option<String> {
    match error {
        StreamError::Closed => None,
        StreamError::LastOperationFailed(error) => {
            Some(http_error_code(error).map_or_else(|| error.to_debug_string(), |error| code(&error)))
        }
    }
}

fn fields(headers: &[(String, String)]) -> Result<Fields, String> {
    let fields = Fields::new();
    for (name, value) in headers {
        fields.append(name, value.as_bytes()).map_err(|error| crate::code(&error))?;
    }
    Ok(fields)
}

/// The case of an error, with its text where it has one.
fn code(error: &ErrorCode) -> String {
    match error {
        ErrorCode::InternalError(text) => format!("internal-error: {}", text.as_deref().unwrap_or("")),
        ErrorCode::DnsError(error) => format!("dns-error: {}", error.rcode.as_deref().unwrap_or("")),
        other => {
            let debug = format!("{other:?}");
            let case = debug.trim_start_matches("ErrorCode::");
            Value::from(case.split(['(', ' ']).next().unwrap_or(case)).as_str().unwrap_or("").to_owned()
        }
    }
}
