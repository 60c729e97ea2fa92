//! How long a server asks to wait, in the forms in which servers ask.

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// In a header: seconds or a date (RFC 9110, 10.2.3), or milliseconds where a server is that exact.
pub(super) fn of_headers(headers: &HeaderMap, now_ms: u64) -> Option<u32> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
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

/// In the details of an error of Google's: `34.07s`.
pub(super) fn of_duration(text: &str) -> Option<u32> {
    whole(text.strip_suffix('s')?.parse::<f64>().ok()? * 1000.0)
}

/// In a message, where there are no headers any more: `Please try again in 1m2.5s.`
pub(super) fn in_message(message: &str) -> Option<u32> {
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
    whole(ms?)
}

/// Milliseconds, at most what is counted; none for what is no time.
fn whole(ms: f64) -> Option<u32> {
    (ms.is_finite() && ms >= 0.0).then_some(ms.min(f64::from(u32::MAX)) as u32)
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

    #[test]
    fn a_time_to_wait_is_seconds_or_a_date() {
        let now_ms = 784_111_777_000;
        let check = |name: &'static str, value: &str, expect: Option<u32>| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a header"));
            assert_eq!(of_headers(&headers, now_ms), expect, "{value}");
        };
        check("retry-after", "2", Some(2000));
        check("retry-after", "0.5", Some(500));
        check("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT", Some(3000));
        check("retry-after", "Sun, 06 Nov 1994 08:49:30 GMT", Some(0));
        check("retry-after", "99999999999999999999", Some(u32::MAX));
        check("retry-after", "soon", None);
        check("retry-after", "-1", None);
        check("retry-after", "inf", None);
        check("retry-after-ms", "250", Some(250));
        assert_eq!(http_date_seconds("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(http_date_seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(of_duration("34.07s"), Some(34_070));
        assert_eq!(of_duration("34"), None);
    }

    #[test]
    fn a_message_may_ask_to_wait() {
        let check = |message: &str, expect: Option<u32>| assert_eq!(in_message(message), expect, "{message}");
        check("Rate limit reached on tokens per min. Please try again in 11.054s. Visit", Some(11_054));
        check("Please try again in 28ms.", Some(28));
        check("Please try again in 1m2.5s", Some(62_500));
        check("try again in 3 seconds", Some(3000));
        check("try again in 5", None);
        check("try again in a while.", None);
        check("try again later", None);
    }
}
