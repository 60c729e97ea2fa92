//! `(@repeat N …)` stands for what is inside it, N times, with `{n}` replaced by the number of the time, from 0, and `{n+1}` by the next
//! one; `(@nest N (…))` for what is inside it N levels deep, each before the last parenthesis of the one around it. Annotations of this
//! form are WebAssembly text that other tools skip.

/// `text` with all repetitions written out; they may be inside each other.
pub(crate) fn expand(text: &str) -> Result<String, String> {
    let Some(start) = ["(@repeat ", "(@nest "].iter().filter_map(|open| text.find(open)).min() else {
        return Ok(text.to_owned());
    };
    let nest = text[start..].starts_with("(@nest");
    let rest = &text[start..][text[start..].find(' ').map_or(0, |at| at + 1)..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let times: usize = rest[..digits].parse().map_err(|_| "a repetition wants a number".to_owned())?;
    let inside = &rest[digits..];
    let end = closing(inside).ok_or("a repetition is not closed")?;
    let (body, after) = (&inside[..end], &inside[end + 1..]);
    let written = if nest { nested(times, body)? } else { repeated(times, body) };
    expand(&format!("{}{written}{after}", &text[..start]))
}

fn repeated(times: usize, body: &str) -> String {
    let written = |n: usize| body.replace("{n}", &n.to_string()).replace("{n+1}", &(n + 1).to_string());
    (0..times).map(written).collect()
}

fn nested(times: usize, body: &str) -> Result<String, String> {
    let open = body.trim_end().strip_suffix(')').ok_or("what is nested ends with a parenthesis")?;
    Ok(open.repeat(times) + &")".repeat(times))
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
        check("a (@nest 3 (x y)) b", "a  (x y (x y (x y))) b");
        check("nothing", "nothing");
        assert_eq!(expand("(@repeat 2 x"), Err("a repetition is not closed".into()));
    }
}
