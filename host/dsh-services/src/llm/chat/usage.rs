//! What servers count, in all the ways in which they say it.
//!
//! Chat Completions counts inclusively: the prompt with what a cache gave, the completion with what was thought. Ours are disjoint.

use dsh_seam::cost::Cost;
use dsh_seam::message::Usage;
use serde_json::Value;

/// The prompt and the completion.
const PROMPT: [&str; 2] = ["/prompt_tokens", "/input_tokens"];
const COMPLETION: [&str; 2] = ["/completion_tokens", "/output_tokens"];

/// What a cache gave: OpenAI and most others; DeepSeek; Moonshot; LiteLLM.
const CACHE_READ: [&str; 5] = [
    "/prompt_tokens_details/cached_tokens",
    "/input_tokens_details/cached_tokens",
    "/prompt_cache_hit_tokens",
    "/cached_tokens",
    "/cache_read_input_tokens",
];

/// What was written to a cache: OpenRouter; LiteLLM, in two places.
const CACHE_WRITE: [&str; 3] = [
    "/prompt_tokens_details/cache_write_tokens",
    "/prompt_tokens_details/cache_creation_tokens",
    "/cache_creation_input_tokens",
];

/// What was thought.
const REASONING: [&str; 2] = ["/completion_tokens_details/reasoning_tokens", "/output_tokens_details/reasoning_tokens"];

/// The first of these counts that is there and is not 0.
fn count(value: &Value, places: &[&str]) -> u32 {
    let number = |place: &&str| value.pointer(place)?.as_u64().filter(|count| *count > 0);
    clamp(places.iter().find_map(number).unwrap_or(0))
}

fn clamp(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A `usage`; `timings` of llama.cpp may know more of the cache.
pub(super) fn counted(usage: &Value, timings: Option<&Value>) -> Usage {
    let (prompt, completion) = (count(usage, &PROMPT), count(usage, &COMPLETION));
    let cached = count(usage, &CACHE_READ);
    let cache_read =
        if cached == 0 { timings.map_or(0, |timings| timed(timings).cache_read).min(prompt) } else { cached };
    let cache_write = count(usage, &CACHE_WRITE);
    let thought = count(usage, &REASONING);
    // Some (Gemini, xAI) count what was thought in the total alone.
    let beside = count(usage, &["/total_tokens"]).saturating_sub(prompt.saturating_add(completion));
    Usage {
        input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
        output: if beside > 0 { completion } else { completion.saturating_sub(thought) },
        cache_read,
        cache_write,
        reasoning: thought.max(beside),
        // OpenRouter's.
        cost: usage.get("cost").and_then(Value::as_f64).and_then(Cost::from_units),
        ..Usage::default()
    }
}

/// The `timings` of llama.cpp, which are disjoint.
pub(super) fn timed(timings: &Value) -> Usage {
    Usage {
        input: count(timings, &["/prompt_n"]),
        output: count(timings, &["/predicted_n"]),
        cache_read: count(timings, &["/cache_n"]),
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expect: [u32; 5]) {
        let usage = counted(&value, None);
        let found = [usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning];
        assert_eq!(found, expect, "{value}");
    }

    #[test]
    fn usage_is_disjoint() {
        check(json!({"prompt_tokens": 5, "completion_tokens": 3}), [5, 3, 0, 0, 0]);
        check(json!({"prompt_tokens": null, "completion_tokens": null, "total_tokens": null}), [0; 5]);
        check(json!({"input_tokens": 5, "output_tokens": 3}), [5, 3, 0, 0, 0]);
        check(
            json!({"prompt_tokens": 5_000_000_000_u64, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 9}}),
            [u32::MAX, 0, 0, 0, 9],
        );
    }

    #[test]
    fn caches_are_counted_however_a_server_says_it() {
        let with = |members: Value| {
            let mut usage = json!({"prompt_tokens": 10, "completion_tokens": 3});
            usage.as_object_mut().expect("an object").extend(members.as_object().cloned().expect("an object"));
            usage
        };
        check(with(json!({"prompt_tokens_details": {"cached_tokens": 4}})), [6, 3, 4, 0, 0]);
        check(with(json!({"prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5}})), [1, 3, 4, 5, 0]);
        check(
            with(json!({"prompt_tokens_details": null, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6})),
            [6, 3, 4, 0, 0],
        );
        check(
            with(json!({"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 4})),
            [6, 3, 4, 0, 0],
        );
        check(with(json!({"cached_tokens": 4})), [6, 3, 4, 0, 0]);
        check(with(json!({"cache_read_input_tokens": 4, "cache_creation_input_tokens": 2})), [4, 3, 4, 2, 0]);
        check(with(json!({"prompt_tokens_details": {"cached_tokens": 12}})), [0, 3, 12, 0, 0]);
    }

    #[test]
    fn what_was_thought_may_be_beside_the_completion() {
        let usage = |total: u32, thought: Option<u32>| json!({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": total, "completion_tokens_details": {"reasoning_tokens": thought}});
        check(usage(8, Some(2)), [5, 1, 0, 0, 2]);
        check(usage(10, Some(2)), [5, 3, 0, 0, 2]);
        check(usage(10, None), [5, 3, 0, 0, 2]);
    }

    #[test]
    fn a_provider_may_say_what_it_bills() {
        let cost = |cost: Value| counted(&json!({"prompt_tokens": 5, "cost": cost}), None).cost;
        assert_eq!(cost(json!(0.001_234)), Cost::from_units(0.001_234));
        assert_eq!(cost(json!(0)), Cost::from_units(0.0));
        assert_eq!([cost(json!(null)), cost(json!(-1)), cost(json!("much"))], [None; 3]);
    }

    #[test]
    fn timings_of_llama_cpp_know_the_cache() {
        let timings = json!({"cache_n": 4, "prompt_n": 6, "prompt_ms": 1.5, "predicted_n": 3});
        assert_eq!(timed(&timings), Usage { input: 6, output: 3, cache_read: 4, ..Usage::default() });
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13});
        assert_eq!(counted(&usage, Some(&timings)), timed(&timings));
    }
}
