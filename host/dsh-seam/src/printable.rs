//! What may stand in a line that a person reads. Texts of models, tools and plugins are shown in many places; none of them may steer the
//! terminal or turn the line around.

/// Whether a character acts on a line instead of standing in it: a control character, a separator of lines, or one that turns the
/// direction of the text.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` as a quoted name: at most `most` characters, what is hidden shown as `\u{1b}`.
#[must_use]
pub fn quoted(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    for c in chars.by_ref().take(most) {
        if is_hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    if chars.next().is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_name_is_short_and_stands_in_its_line() {
        let check = |text: &str, expect: &str| assert_eq!(quoted(text, 5), expect);
        check("name", "name");
        check("zwölf!", "zwölf…");
        check("\u{1b}[2\n\u{202e}x", "\\u{1b}[2\\n\\u{202e}…");
    }
}
