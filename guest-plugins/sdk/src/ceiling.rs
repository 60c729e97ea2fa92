//! The most a plugin will ever ask for, said in a custom section, so that it can be read without running any of its code.

/// Says the most this plugin will ever ask for, with a reason for each: `ceiling!("llm": "to write summaries")`.
///
/// A capability is one of `llm`, `session`, `inbox`, `approval`, `process`, `fs`, `net` and `env`, or longer, as in a grant
/// (`fs:read`, `net:api.example.com`). What an operator grants beyond it has no effect. Reasons are plain text without quotes and
/// backslashes.
#[macro_export]
macro_rules! ceiling {
    ($first:literal: $reason:literal $(, $more:literal: $more_reason:literal)* $(,)?) => {
        const _: () = {
            const TEXT: &str = ::std::concat!(
                "[{\"capability\":\"", $first, "\",\"reason\":\"", $reason, "\"}",
                $(",{\"capability\":\"", $more, "\",\"reason\":\"", $more_reason, "\"}",)*
                "]"
            );
            $($crate::__private::plain($more); $crate::__private::plain($more_reason);)*
            $crate::__private::plain($first);
            $crate::__private::plain($reason);

            #[cfg(target_family = "wasm")]
            #[used]
            #[unsafe(link_section = "dsh-ceiling")]
            static CEILING: [u8; TEXT.len()] = $crate::__private::bytes(TEXT);
        };
    };
}

/// Fails to compile where a text would break the JSON around it.
#[doc(hidden)]
pub const fn plain(text: &str) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        assert!(
            bytes[at] >= b' ' && bytes[at] != b'"' && bytes[at] != b'\\',
            "plain text without quotes and backslashes"
        );
        at += 1;
    }
}

/// A text as an array.
#[doc(hidden)]
pub const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(text.as_bytes());
    array
}
