//! `(@repeat N …)` stands for what is inside it, N times, with `{n}` replaced by the number of the time, from 0. An annotation of this form
//! is WebAssembly text that other tools skip.

/// `text` with all repetitions written out; they may be nested.
pub(crate) fn expand(text: &str) -> Result<String, String> {
    const OPEN: &str = "(@repeat ";
    let Some(start) = text.find(OPEN) else { return Ok(text.to_owned()) };
    let rest = &text[start + OPEN.len()..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let times: usize = rest[..digits].parse().map_err(|_| "`(@repeat` wants a number".to_owned())?;
    let inside = &rest[digits..];
    let end = closing(inside).ok_or("`(@repeat` is not closed")?;
    let body = &inside[..end];
    let mut out = text[..start].to_owned();
    for n in 0..times {
        out.push_str(&body.replace("{n}", &n.to_string()));
    }
    out.push_str(&inside[end + 1..]);
    expand(&out)
}

/// Where the parenthesis is that closes one opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => return Some(at),
            ')' if !quoted => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_is_written_out() {
        let check = |text: &str, expect: &str| assert_eq!(expand(text), Ok(expect.to_owned()));
        check("a (@repeat 3 (x {n})) b", "a  (x 0) (x 1) (x 2) b");
        check("(@repeat 2 \")\")", " \")\" \")\"");
        check("(@repeat 2 (@repeat 2 y))", "  y y  y y");
        check("nothing", "nothing");
        assert_eq!(expand("(@repeat 2 x"), Err("`(@repeat` is not closed".into()));
    }
}
