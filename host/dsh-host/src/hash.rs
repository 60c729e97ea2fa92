//! A SHA-256 as a person is shown it.

/// How many of its 64 digits are shown: enough to tell two files apart.
pub const SHOWN: usize = 12;

/// The first digits of a hash.
pub fn short(sha256: &str) -> String {
    format!("{}…", sha256.get(..SHOWN).unwrap_or(sha256))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_shown_short() {
        assert_eq!(short(&"ab".repeat(32)), "abababababab…");
        assert_eq!(short("ab"), "ab…");
    }
}
