//! Failures of a server and their codes.

use dsh_seam::ModelFailure;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// The most of a server's message that is shown, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Codes and types by which servers say that the input is too long.
const CONTEXT_CODES: [&str; 3] = ["context_length_exceeded", "exceed_context_size_error", "string_above_max_length"];

/// Words in messages that say the same where there is no code.
const CONTEXT_WORDS: [&str; 8] = [
    "maximum context length",
    "context length exceeded",
    "exceeds the context",
    "exceed context",
    "context window",
    "prompt is too long",
    "input is too long",
    "reduce the length of the messages",
];

/// Parts of codes and types by which servers say, in the middle of an answer, that the same request will fail again.
const INVALID_WORDS: [&str; 6] = ["invalid_", "bad_request", "not_found", "unsupported_", "_policy", "image_"];

/// The provider sent what makes no sense.
pub(in super::super) fn malformed(what: &str) -> ModelFailure {
    ModelFailure::new("malformed-response", format!("the provider sent {what}"))
}

/// The provider sent nothing.
pub(in super::super) fn empty() -> ModelFailure {
    ModelFailure::new("empty-response", "the provider answered with nothing")
}

/// What a server says about a failure.
struct Said {
    message: String,
    /// `code` and `type`, lower case.
    words: Vec<String>,
    /// A `code` that is a number.
    status: Option<u16>,
}

impl Said {
    /// Reads the member `error` of an answer, or the answer itself.
    fn of(value: &Value) -> Said {
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
        let message = error.as_str().map(str::to_owned).or_else(|| text("message")).or_else(|| text("detail"));
        let code = error.get("code");
        let words = [code.and_then(Value::as_str), error.get("type").and_then(Value::as_str)];
        let number = code.and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()));
        Said {
            message: message.unwrap_or_else(|| error.to_string()),
            words: words.into_iter().flatten().map(str::to_lowercase).collect(),
            status: number.and_then(|number| u16::try_from(number).ok()).filter(|status| (400..600).contains(status)),
        }
    }

    fn says(&self, part: &str) -> bool {
        self.words.iter().any(|word| word.contains(part))
    }

    fn context_exceeded(&self) -> bool {
        let message = self.message.to_lowercase();
        CONTEXT_CODES.iter().any(|code| self.says(code)) || CONTEXT_WORDS.iter().any(|words| message.contains(words))
    }

    fn quota(&self) -> bool {
        self.says("insufficient_quota") || self.message.to_lowercase().contains("exceeded your current quota")
    }

    fn by_status(&self, status: u16) -> &'static str {
        match status {
            401 | 403 => "auth",
            402 => "quota",
            408 => "timeout",
            429 if self.quota() => "quota",
            429 => "rate-limit",
            500.. => "server",
            _ if self.context_exceeded() => "context-window-exceeded",
            _ => "invalid-request",
        }
    }

    fn by_words(&self) -> &'static str {
        if self.context_exceeded() {
            "context-window-exceeded"
        } else if self.quota() {
            "quota"
        } else if self.says("rate_limit") {
            "rate-limit"
        } else if self.says("auth") || self.says("invalid_api_key") || self.says("permission") {
            "auth"
        } else if INVALID_WORDS.iter().any(|word| self.says(word)) {
            "invalid-request"
        } else {
            "server"
        }
    }

    fn short(&self) -> String {
        let message = self.message.trim();
        match message.char_indices().nth(MAX_MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_owned(),
        }
    }
}

/// The failure behind an HTTP status and its body.
pub(super) fn of_status(status: u16, body: &str) -> ModelFailure {
    let said = match serde_json::from_str::<Value>(body) {
        Ok(Value::Array(mut list)) if list.len() == 1 => Said::of(&list.remove(0)),
        Ok(value) => Said::of(&value),
        Err(_) => Said { message: body.to_owned(), words: vec![], status: None },
    };
    let text = match said.short() {
        text if text.is_empty() => format!("the provider answered with status {status}"),
        text => format!("the provider answered with status {status}: {text}"),
    };
    ModelFailure::new(said.by_status(status), text)
}

/// The failure behind an `error` in the middle of an answer.
pub(in super::super) fn in_answer(value: &Value) -> ModelFailure {
    let said = Said::of(value);
    let code = match said.status {
        Some(status) => said.by_status(status),
        None => said.by_words(),
    };
    let retry_after_ms = wait_in(&said.message);
    let text = format!("the provider failed: {}", said.short());
    ModelFailure { status: said.status, retry_after_ms, ..ModelFailure::new(code, text) }
}

/// How long a message asks to wait, in an answer that has no more headers: `Please try again in 1m2.5s.`
fn wait_in(message: &str) -> Option<u32> {
    const BEFORE: &str = "try again in ";
    let mut rest = &message[message.find(BEFORE)? + BEFORE.len()..];
    let mut ms = None;
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit() && c != '.') {
        let Ok(count) = rest[..end].parse::<f64>() else { break };
        let unit = rest[end..].trim_start();
        let letters = unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len());
        let factor = match &unit[..letters] {
            "ms" | "milliseconds" => 1.0,
            "s" | "second" | "seconds" => 1000.0,
            "m" | "minute" | "minutes" => 60_000.0,
            "h" | "hour" | "hours" => 3_600_000.0,
            _ => break,
        };
        ms = Some(ms.unwrap_or(0.0) + count * factor);
        rest = &unit[letters..];
    }
    ms.map(|ms: f64| ms.min(f64::from(u32::MAX)) as u32)
}

/// How long the server asks to wait: seconds or a date (RFC 9110, 10.2.3), or milliseconds where a server is that exact.
pub(super) fn retry_after_ms(headers: &HeaderMap, now_ms: u64) -> Option<u32> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let whole = |ms: f64| (ms.is_finite() && ms >= 0.0).then_some(ms.min(f64::from(u32::MAX)) as u32);
    if let Some(ms) = text("retry-after-ms").and_then(|text| text.parse().ok()) {
        return whole(ms);
    }
    let text = text(RETRY_AFTER.as_str())?;
    match text.parse::<f64>() {
        Ok(seconds) => whole(seconds * 1000.0),
        Err(_) => {
            let at = http_date_seconds(text)?.saturating_mul(1000);
            Some(u32::try_from(at.saturating_sub(now_ms)).unwrap_or(u32::MAX))
        }
    }
}

/// Unix seconds of `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that a server may send today.
fn http_date_seconds(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = parts[..] else { return None };
    let day: u64 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = year.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let time: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour @ 0..24, minute @ 0..60, second @ 0..61] = time[..] else { return None };
    // Days since 1 March 0000: a year that begins in March has its leap day at the end.
    let years = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1;
    const DAYS_TO_1970: u64 = 719_468;
    Some(((days - DAYS_TO_1970) * 24 + hour) * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses_have_codes() {
        let check =
            |status: u16, body: &str, code: &str| assert_eq!(of_status(status, body).code, code, "{status} {body}");
        check(401, "", "auth");
        check(403, "", "auth");
        check(402, r#"{"error":{"message":"Insufficient Balance"}}"#, "quota");
        check(429, "", "rate-limit");
        check(429, r#"{"error":{"code":"insufficient_quota"}}"#, "quota");
        check(400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, "context-window-exceeded");
        check(
            400,
            r#"{"error":{"message":"This model's maximum context length is 4096 tokens"}}"#,
            "context-window-exceeded",
        );
        check(400, r#"{"error":{"message":"bad"}}"#, "invalid-request");
        check(404, "", "invalid-request");
        check(422, "", "invalid-request");
        check(307, "", "invalid-request");
        check(500, "oops", "server");
        check(529, "", "server");
        let message = |status: u16, body: &str| of_status(status, body).message;
        assert_eq!(message(500, "oops\n"), "the provider answered with status 500: oops");
        assert_eq!(message(500, ""), "the provider answered with status 500");
        assert_eq!(message(400, r#"{"detail":"no"}"#), "the provider answered with status 400: no");
        assert_eq!(
            message(400, r#"[{"error":{"message":"listed"}}]"#),
            "the provider answered with status 400: listed"
        );
    }

    #[test]
    fn errors_in_an_answer_have_codes() {
        let check = |error: Value, code: &str, status: Option<u16>| {
            let failure = in_answer(&json!({ "error": error }));
            assert_eq!((failure.code.as_str(), failure.status), (code, status), "{error}");
        };
        check(json!({"message": "x", "code": 429}), "rate-limit", Some(429));
        check(json!({"message": "x", "type": "rate_limit_exceeded"}), "rate-limit", None);
        check(
            json!({"message": "x", "type": "invalid_request_error", "code": "context_length_exceeded"}),
            "context-window-exceeded",
            None,
        );
        check(json!("overloaded"), "server", None);
        check(json!({"message": "x", "code": "invalid_prompt"}), "invalid-request", None);
        check(json!({"message": "x", "type": "not_found_error"}), "invalid-request", None);
    }

    #[test]
    fn a_message_may_ask_to_wait() {
        let check = |message: &str, expect: Option<u32>| assert_eq!(wait_in(message), expect, "{message}");
        check("Rate limit reached on tokens per min. Please try again in 11.054s. Visit", Some(11_054));
        check("Please try again in 28ms.", Some(28));
        check("Please try again in 1m2.5s", Some(62_500));
        check("try again in 3 seconds", Some(3000));
        check("try again in 5", None);
        check("try again in a while.", None);
        check("try again later", None);
    }

    #[test]
    fn a_time_to_wait_is_seconds_or_a_date() {
        let now_ms = 784_111_777_000;
        let check = |name: &'static str, value: &str, expect: Option<u32>| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a header"));
            assert_eq!(retry_after_ms(&headers, now_ms), expect, "{value}");
        };
        check("retry-after", "2", Some(2000));
        check("retry-after", "0.5", Some(500));
        check("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT", Some(3000));
        check("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT", Some(0));
        check("retry-after", "soon", None);
        check("retry-after", "-1", None);
        check("retry-after-ms", "250", Some(250));
        assert_eq!(http_date_seconds("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(http_date_seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    }
}
