//! A message as it was written, once and for every place that it may come to stand in.
//!
//! Two things depend on the place: whether the model's reasoning is sent back, and where the images of a tool's result go, which follow
//! the whole batch. A message is therefore written in three parts, with their lengths in front: so it can be kept whatever is in it.

/// Bytes of a length in front: hexadecimal, for up to 4 GiB.
const LENGTH: usize = 8;

/// The parts of a message under way.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub before: String,
    pub held: String,
    pub after: String,
}

impl Draft {
    /// The text that is kept.
    pub fn into_text(self) -> String {
        let Draft { before, held, after } = self;
        format!("{:08x}{:08x}{before}{held}{after}", before.len(), held.len())
    }
}

/// The parts of a message.
#[derive(Debug, PartialEq)]
pub(super) struct Written<'a> {
    /// What is sent in any case.
    pub before: &'a str,
    /// Of the model: the member with its reasoning. Of anybody else: images that follow the batch of results.
    pub held: &'a str,
    /// What is sent in any case after that.
    pub after: &'a str,
}

impl<'a> Written<'a> {
    /// The parts of a text of [`Draft::into_text`].
    pub fn of(text: &'a str) -> Self {
        let length = |at: usize| {
            let digits = text.get(at..at + LENGTH).expect("invariant: the lengths stand in front");
            usize::from_str_radix(digits, 16).expect("invariant: a length is hexadecimal")
        };
        let (before, held) = (length(0), length(LENGTH));
        let (before, rest) = text[2 * LENGTH..].split_at(before);
        let (held, after) = rest.split_at(held);
        Self { before, held, after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_come_out_as_they_went_in() {
        let check = |before: &str, held: &str, after: &str| {
            let text = Draft { before: before.into(), held: held.into(), after: after.into() }.into_text();
            assert_eq!(Written::of(&text), Written { before, held, after });
        };
        check("", "", "");
        check("{\"a\":1}", "", "");
        check("ä", "👍👍", "z");
        check("", "x", "");
    }
}
