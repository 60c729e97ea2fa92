//! What the two processes say to each other: the order as arguments, the answer as one frame.
//!
//! A frame is a magic number, one byte for what it is, its length, its SHA-256, and its content: machine code, or a text.

use std::ffi::OsString;
use std::io::{self, Write};

use sha2::{Digest, Sha256};

use super::{CompileBudget, MAX_CODE_BYTES, Target};

/// The first bytes of a frame; the number is raised when its layout changes.
const MAGIC: &[u8; 8] = b"dshcomp1";
const KIND_AT: usize = MAGIC.len();
const LENGTH_AT: usize = KIND_AT + 1;
const HASH_AT: usize = LENGTH_AT + 8;
pub(super) const HEADER: usize = HASH_AT + 32;
/// The most that is read of an answer.
pub(super) const MAX_FRAME: usize = HEADER + MAX_CODE_BYTES;

/// What the process that compiles is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    /// The process that waits for the answer.
    pub parent: u32,
    pub target: Target,
    pub budget: CompileBudget,
}

impl Order {
    pub(super) fn arguments(&self) -> [String; 4] {
        let CompileBudget { memory_mib, cpu_ms } = self.budget;
        [self.parent.to_string(), self.target.name().to_owned(), memory_mib.to_string(), cpu_ms.to_string()]
    }

    pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let words: Option<Vec<String>> = arguments.into_iter().map(|word| word.into_string().ok()).collect();
        let [parent, target, memory_mib, cpu_ms] = <[String; 4]>::try_from(words?).ok()?;
        Some(Self {
            parent: parent.parse().ok()?,
            target: Target::parse(&target)?,
            budget: CompileBudget { memory_mib: memory_mib.parse().ok()?, cpu_ms: cpu_ms.parse().ok()? },
        })
    }
}

/// What the process that compiles answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Machine code.
    Code(Vec<u8>),
    /// The compiler refuses the component.
    Refused(String),
    /// There was not enough memory.
    Memory,
}

impl Answer {
    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        let (kind, content): (u8, &[u8]) = match self {
            Self::Code(code) => (0, code),
            Self::Refused(text) => (1, text.as_bytes()),
            Self::Memory => (2, &[]),
        };
        output.write_all(MAGIC)?;
        output.write_all(&[kind])?;
        output.write_all(&(content.len() as u64).to_le_bytes())?;
        output.write_all(&Sha256::digest(content))?;
        output.write_all(content)?;
        output.flush()
    }

    /// The answer in `bytes`, if they are one whole frame.
    pub(super) fn read(mut bytes: Vec<u8>) -> Option<Self> {
        let (kind, length) = head(&bytes)?;
        if !bytes.starts_with(MAGIC)
            || bytes.len() as u64 - HEADER as u64 != length
            || bytes[HASH_AT..HEADER] != Sha256::digest(&bytes[HEADER..])[..]
        {
            return None;
        }
        bytes.drain(..HEADER);
        match kind {
            0 => Some(Self::Code(bytes)),
            1 => Some(Self::Refused(String::from_utf8(bytes).ok()?)),
            2 => Some(Self::Memory),
            _ => None,
        }
    }
}

fn head(bytes: &[u8]) -> Option<(u8, u64)> {
    let length = bytes.get(LENGTH_AT..HASH_AT)?.try_into().ok()?;
    (bytes.len() >= HEADER).then(|| (bytes[KIND_AT], u64::from_le_bytes(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        for answer in [Answer::Code(b"code".to_vec()), Answer::Refused("no".into()), Answer::Memory] {
            let mut frame = Vec::new();
            answer.write(&mut frame).expect("a vector takes everything");
            assert_eq!(Answer::read(frame.clone()), Some(answer));
            for length in 0..frame.len() {
                assert_eq!(Answer::read(frame[..length].to_vec()), None, "cut to {length}");
            }
            for at in 0..frame.len() {
                let mut changed = frame.clone();
                changed[at] ^= 0x80;
                assert_eq!(Answer::read(changed), None, "changed at {at}");
            }
            frame.push(0);
            assert_eq!(Answer::read(frame), None);
        }
    }

    #[test]
    fn an_order_is_four_words() {
        let order = Order { parent: 7, target: Target::Baseline, budget: CompileBudget { memory_mib: 2, cpu_ms: 3 } };
        assert_eq!(Order::parse(order.arguments().map(OsString::from)), Some(order));
        let check = |words: &str| assert_eq!(Order::parse(words.split(' ').map(OsString::from)), None, "{words}");
        check("");
        check("7 native 1");
        check("7 native 1 1 1");
        check("7 other 1 1");
        check("-7 native 1 1");
    }
}
