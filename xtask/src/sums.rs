//! SHA-256 sums, in the format of `sha256sum`.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The sum in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("invariant: writing to a string does not fail");
        text
    })
}

/// One line of a sums file.
pub fn line(bytes: &[u8], name: &str) -> String {
    format!("{}  {name}\n", hex(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_sha256sum() {
        let expect = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.txt\n";
        assert_eq!(line(b"abc", "a.txt"), expect);
    }
}
