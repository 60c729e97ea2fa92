//! The message that stands for what was left out: a sentence with the count, and what must not be lost.

/// The sentence after the count, for one and for several.
const ONE: &str = " earlier message was left out here to fit the context window.";
const SEVERAL: &str = " earlier messages were left out here to fit the context window.";
/// What leads to the quoted words of the user.
const QUOTE: &str = "\n\nThe user's last message among them:\n\n";
/// What leads to the summary.
const SUMMARY: &str = " This is a summary of them:\n\n";
/// The longest quote, in bytes: a task fits, a pasted file does not.
const MAX_QUOTE_BYTES: usize = 4_096;
/// The host estimates about this many bytes to a token.
const BYTES_PER_TOKEN: usize = 4;

/// How many messages are left out by now: `count` messages go, and when one of them is an earlier marker it stands for as
/// many as it says.
pub fn count_with(count: u32, earlier: Option<&str>) -> u32 {
    match earlier {
        None => count,
        Some(text) => count.saturating_sub(1).saturating_add(count_in(text).unwrap_or(1)),
    }
}

fn count_in(text: &str) -> Option<u32> {
    let (number, rest) = text.split_once(' ')?;
    let known = ONE.strip_prefix(' ').is_some_and(|one| rest.starts_with(one))
        || SEVERAL.strip_prefix(' ').is_some_and(|many| rest.starts_with(many));
    number.parse().ok().filter(|_| known)
}

/// The words an earlier marker quotes.
pub fn quote_of(text: &str) -> Option<&str> {
    count_in(text)?;
    text.split_once(QUOTE).map(|(_, quote)| quote)
}

/// The summary that an earlier marker carries; the whole text when it is not one of ours.
pub fn summary_of(text: &str) -> &str {
    match count_in(text) {
        Some(_) => text.split_once(SUMMARY).map_or(text, |(_, summary)| summary),
        None => text,
    }
}

/// The marker without a summary. The user's last words are quoted when that leaves the marker well below what it replaces.
pub fn without_summary(left_out: u32, last_words: Option<&str>, removed_tokens: u32) -> String {
    let sentence = sentence(left_out);
    let room = (removed_tokens as usize).saturating_mul(BYTES_PER_TOKEN) / 2;
    match last_words.map(str::trim).filter(|words| !words.is_empty()) {
        Some(words) if sentence.len() + QUOTE.len() + words.len().min(MAX_QUOTE_BYTES) < room => {
            format!("{sentence}{QUOTE}{}", cut(words, MAX_QUOTE_BYTES))
        }
        _ => sentence,
    }
}

/// The marker with a summary.
pub fn with_summary(left_out: u32, summary: &str) -> String {
    format!("{}{SUMMARY}{}", sentence(left_out), summary.trim())
}

fn sentence(left_out: u32) -> String {
    format!("{left_out}{}", if left_out == 1 { ONE } else { SEVERAL })
}

/// The start of a text, at most `bytes` long, with a note when something is missing.
pub fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes);
    format!("{} [{} bytes cut]", &text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up() {
        let first = without_summary(12, None, 1_000);
        assert_eq!(first, "12 earlier messages were left out here to fit the context window.");
        assert_eq!(count_with(5, Some(&first)), 16);
        assert_eq!(count_with(5, None), 5);
        assert_eq!(count_with(5, Some("7 apples")), 5);
        assert_eq!(count_with(2, Some(&without_summary(1, None, 0))), 2);
        assert_eq!(count_with(3, Some(&with_summary(4, "text"))), 6);
    }

    #[test]
    fn quotes() {
        let marker = without_summary(3, Some("fix the bug"), 1_000);
        assert_eq!(
            marker,
            "3 earlier messages were left out here to fit the context window.\n\nThe user's last message among them:\n\nfix the bug"
        );
        assert_eq!(quote_of(&marker), Some("fix the bug"));
        assert_eq!(quote_of("fix"), None);
        assert_eq!(
            without_summary(3, Some("fix the bug"), 40),
            "3 earlier messages were left out here to fit the context window."
        );
    }

    #[test]
    fn summaries() {
        let marker = with_summary(3, " Goal: x ");
        assert_eq!(
            marker,
            "3 earlier messages were left out here to fit the context window. This is a summary of them:\n\nGoal: x"
        );
        assert_eq!(summary_of(&marker), "Goal: x");
        assert_eq!(summary_of("other"), "other");
    }

    #[test]
    fn cut_text() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("aéb", 2), "a [3 bytes cut]");
    }
}
