//! What a model costs.

use dsh_seam::cost::Cost;
use dsh_seam::message::Usage;
use serde::{Deserialize, Serialize};

/// The tokens that a price is for.
const PER: u128 = 1_000_000;

/// The price of a model: money for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Price {
    /// Tokens that go in.
    pub input: Cost,
    /// Tokens that come out; reasoning is among them.
    pub output: Cost,
    /// Tokens that go in and are read from the provider's cache. Default: `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<Cost>,
    /// Tokens that go in and are written to the provider's cache. Default: `input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<Cost>,
}

impl Price {
    /// What so many tokens cost, rounded once, to the nearest step.
    pub fn of(&self, usage: &Usage) -> Cost {
        let part = |tokens: u32, price: Cost| u128::from(tokens) * u128::from(price.parts());
        let sum = part(usage.input, self.input)
            + part(usage.cache_read, self.cache_read.unwrap_or(self.input))
            + part(usage.cache_write, self.cache_write.unwrap_or(self.input))
            + part(usage.output, self.output)
            + part(usage.reasoning, self.output);
        Cost::from_parts(u64::try_from((sum + PER / 2) / PER).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(json: &str) -> Price {
        serde_json::from_str(json).expect(json)
    }

    #[test]
    fn every_kind_of_token_has_its_price() {
        let all = price(r#"{"input":3,"output":15,"cache-read":0.3,"cache-write":3.75}"#);
        let check =
            |price: Price, usage: Usage, expect: &str| assert_eq!(price.of(&usage).to_string(), expect, "{usage:?}");
        check(all, Usage::default(), "0");
        check(all, Usage { input: 1000, ..Usage::default() }, "0.003");
        check(all, Usage { output: 1000, ..Usage::default() }, "0.015");
        check(all, Usage { reasoning: 1000, ..Usage::default() }, "0.015");
        check(all, Usage { cache_read: 1000, ..Usage::default() }, "0.0003");
        check(all, Usage { cache_write: 1000, ..Usage::default() }, "0.00375");
        let plain = price(r#"{"input":3,"output":15}"#);
        check(plain, Usage { cache_read: 1, cache_write: 1, ..Usage::default() }, "0.000006");
        let free = price(r#"{"input":0,"output":0}"#);
        check(free, Usage { input: u32::MAX, output: u32::MAX, ..Usage::default() }, "0");
    }

    #[test]
    fn a_cost_is_rounded_once_and_never_overflows() {
        let odd = price(r#"{"input":0.0375,"output":0.0375}"#);
        assert_eq!(odd.of(&Usage { input: 1, output: 1, ..Usage::default() }).parts(), 75);
        assert_eq!(odd.of(&Usage { input: 1, ..Usage::default() }).parts(), 38);
        let dear = Price { input: Cost::MAX, output: Cost::MAX, cache_read: None, cache_write: None };
        let many = Usage { input: u32::MAX, output: u32::MAX, cache_read: u32::MAX, ..Usage::default() };
        assert_eq!(dear.of(&many), Cost::MAX);
    }
}
