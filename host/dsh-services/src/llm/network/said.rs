//! What a server says about a failure, in the forms in which servers say it.
//!
//! The shapes are those of OpenAI (`{"error": {"message", "type", "code"}}`), Anthropic (`{"type": "error", "error": {…}}`), OpenRouter
//! (a number as `code`, and `metadata` with what its own provider said), vLLM (without the member `error`), llama.cpp, LiteLLM (a
//! number as text), Ollama (`error` is the text), Gemini (a list of one, with `details`), FastAPI (`detail`), and pages.

use serde_json::Value;

use super::waits;

/// The most of a server's message that is shown, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Codes and types by which servers say that the input is too long.
const CONTEXT_CODES: [&str; 6] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "string_above_max_length",
    "request_too_large",
    "context_exceeded",
    "contextwindowexceeded",
];

/// Words that say the same in messages where there is no code, each with where they were seen. All words of a line must be there.
const CONTEXT_WORDS: [&[&str]; 19] = [
    &["maximum context length"],                 // OpenAI, vLLM, OpenRouter, Mistral
    &["exceed", "context window"],               // OpenAI's Responses, LiteLLM, MiniMax
    &["exceed", "context length"],               // Ollama
    &["exceed", "context size"],                 // llama.cpp
    &["exceed", "context limit"],                // Anthropic, with `max_tokens`
    &["prompt is too long"],                     // Anthropic
    &["prompt too long"],                        // Ollama
    &["input is too long"],                      // Bedrock
    &["input token count", "exceed"],            // Gemini
    &["input tokens exceed"],                    // OpenAI
    &["maximum prompt length"],                  // xAI
    &["reduce the length of the messages"],      // Groq, vLLM
    &["reduce the length of the input"],         // vLLM
    &["longer than the model's context length"], // SGLang
    &["greater than the context length"],        // LM Studio
    &["exceeded model token limit"],             // Moonshot
    &["context window is full"],                 // llama-cpp-python
    &["range of input length should be"],        // Qwen
    &["max_tokens must be at least 1, got -"],   // vLLM, when nothing is left for the answer
];

/// Parts of codes and types by which servers say that the same request will fail again.
const INVALID_WORDS: [&str; 8] =
    ["invalid_", "bad_request", "badrequest", "not_found", "unsupported_", "_policy", "image_", "content_filter"];

/// What a server says about a failure.
pub(super) struct Said {
    message: String,
    /// `code`, `type` and `status`, lower case.
    words: Vec<String>,
    /// A `code` that is a number.
    pub status: Option<u16>,
    /// A time to wait in the body.
    pub wait_ms: Option<u32>,
}

impl Said {
    /// Reads the body of a refusal.
    pub fn of_body(body: &str) -> Said {
        match serde_json::from_str::<Value>(body) {
            Ok(Value::Array(mut list)) if list.len() == 1 => Said::of(&list.remove(0)),
            Ok(value) => Said::of(&value),
            Err(_) => {
                let message = title(body).unwrap_or(body).to_owned();
                Said { message, words: vec![], status: None, wait_ms: None }
            }
        }
    }

    /// Reads the member `error` of an answer, or the answer itself.
    pub fn of(value: &Value) -> Said {
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
        let message = error.as_str().map(str::to_owned).or_else(|| text("message")).or_else(|| text("detail"));
        let mut message = message.unwrap_or_else(|| error.to_string());
        // OpenRouter says itself no more than that its provider failed.
        let raw = error.get("metadata").and_then(|metadata| metadata.get("raw")).and_then(Value::as_str);
        if let Some(raw) = raw.filter(|raw| !raw.is_empty()) {
            message = format!("{message}: {raw}");
        }
        let code = error.get("code");
        let words = [code, error.get("type"), error.get("status")].map(|word| word.and_then(Value::as_str));
        let number = code.and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()));
        let delay = error.get("details").and_then(Value::as_array).into_iter().flatten();
        let delay = delay.filter_map(|detail| detail.get("retryDelay")?.as_str()).find_map(waits::of_duration);
        Said {
            wait_ms: delay.or_else(|| waits::in_message(&message)),
            message,
            words: words.into_iter().flatten().map(str::to_lowercase).collect(),
            status: number.and_then(|number| u16::try_from(number).ok()).filter(|status| (400..600).contains(status)),
        }
    }

    fn says(&self, part: &str) -> bool {
        self.words.iter().any(|word| word.contains(part))
    }

    fn tells(&self, words: &[&str]) -> bool {
        let message = self.message.to_lowercase();
        words.iter().all(|word| message.contains(word))
    }

    fn context_exceeded(&self) -> bool {
        CONTEXT_CODES.iter().any(|code| self.says(code)) || CONTEXT_WORDS.iter().any(|words| self.tells(words))
    }

    /// Gemini says in the words of a used-up quota that a minute's share is used up, and how long to wait.
    fn quota(&self) -> bool {
        let used_up = self.tells(&["exceeded your current quota"]) && self.wait_ms.is_none();
        let poor = self.tells(&["insufficient balance"]) || self.tells(&["credit balance is too low"]);
        used_up || poor || self.says("insufficient_quota") || self.says("billing")
    }

    fn wrong_key(&self) -> bool {
        let key = self.tells(&["api key"]) || self.tells(&["api_key"]);
        key && ["not valid", "invalid", "incorrect", "expired"].iter().any(|word| self.tells(&[word]))
    }

    /// A filter of contents looked at the request: no key would change that.
    fn flagged(&self) -> bool {
        self.says("content_filter") || self.tells(&["flagged"]) || self.tells(&["moderation"])
    }

    /// The code behind an HTTP status.
    pub fn by_status(&self, status: u16) -> &'static str {
        match status {
            403 if self.flagged() => "invalid-request",
            401 | 403 | 407 => "auth",
            // OpenRouter: a share that will be free again, where it says when.
            402 if self.wait_ms.is_some() => "rate-limit",
            402 => "quota",
            408 => "timeout",
            429 if self.quota() => "quota",
            429 => "rate-limit",
            _ if self.context_exceeded() => "context-window-exceeded",
            413 => "context-window-exceeded",
            500.. => "server",
            // Gemini refuses a key so.
            400 if self.wrong_key() => "auth",
            400 if self.quota() => "quota",
            _ => "invalid-request",
        }
    }

    /// The code where there is no status.
    pub fn by_words(&self) -> &'static str {
        if self.context_exceeded() {
            "context-window-exceeded"
        } else if self.quota() {
            "quota"
        } else if self.says("rate_limit") || self.says("resource_exhausted") || self.says("too_many_requests") {
            "rate-limit"
        } else if self.says("auth") || self.says("invalid_api_key") || self.says("permission") {
            "auth"
        } else if self.says("timeout") {
            "timeout"
        } else if INVALID_WORDS.iter().any(|word| self.says(word)) {
            "invalid-request"
        } else {
            "server"
        }
    }

    /// The message on one line, as long as one reads.
    pub fn short(&self) -> String {
        short(&self.message)
    }
}

/// Text of a server on one line, as long as one reads, without what would move a terminal's cursor.
pub(super) fn short(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((end, _)) = line.char_indices().nth(MAX_MESSAGE_CHARS) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The title of a page.
fn title(page: &str) -> Option<&str> {
    let lower = page.to_ascii_lowercase();
    let begin = lower.find("<title")?;
    let begin = begin + lower[begin..].find('>')? + 1;
    let end = begin + lower[begin..].find("</title")?;
    Some(&page[begin..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_says_in_its_own_words_that_the_input_is_too_long() {
        let check = |message: &str, expect: bool| {
            let said = Said::of(&serde_json::json!({ "error": { "message": message } }));
            assert_eq!(said.context_exceeded(), expect, "{message}");
        };
        check("This model's maximum context length is 8192 tokens. However, your messages resulted in 8227.", true);
        check("Your input exceeds the context window of this model.", true);
        check("Input tokens exceed the configured limit of 272000 tokens.", true);
        check("prompt is too long: 209303 tokens > 200000 maximum", true);
        check("input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000", true);
        check("the request exceeds the available context size, try increasing it", true);
        check("request (1407 tokens) exceeds the available context size (256 tokens)", true);
        check("The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", true);
        check("The input token count exceeds the maximum number of tokens allowed (1048576).", true);
        check("prompt too long; exceeded max context length by 3 tokens", true);
        check("The input (9000 tokens) is longer than the model's context length (8192 tokens).", true);
        check("This model's maximum prompt length is 131072 but the request contains 537812 tokens", true);
        check("litellm.BadRequestError: Context Window exceeded for given call", true);
        check("This endpoint's maximum context length is 32768 tokens. However, you requested about 42832", true);
        check("max_tokens must be at least 1, got -186.", true);
        check("Your request exceeded model token limit: 262144", true);
        check("context deadline exceeded", false);
        check("Too many tokens, please wait before trying again.", false);
        check("rate limit exceeded", false);
        check("the context is not a string", false);
    }

    #[test]
    fn messages_are_short() {
        assert_eq!(short(" a\n\tb\u{1b}[31m\0c "), "a b [31m c");
        assert_eq!(short(&"ä".repeat(501)), format!("{}…", "ä".repeat(500)));
        assert_eq!(title("<HTML><head><Title lang=x>502 Bad\nGateway</TITLE>"), Some("502 Bad\nGateway"));
        assert_eq!(title("<title>never closed"), None);
    }
}
