//! What the model reads about a command that ended.

use dsh_sdk::Outcome;
use dsh_sdk::process::Exit;

/// How much of each stream a result shows, in bytes: more would crowd out the conversation. The start and the end are kept.
const MAX_STREAM_BYTES: usize = 64 * 1024;

/// The code of a command that ran out of time.
const TIMED_OUT: &str = "shell-timed-out";

/// Standard output as it is, then standard error under a heading, then what went wrong. A command that failed is an error.
pub fn report(exit: &Exit, timeout_ms: u32) -> Outcome {
    let mut text = shown(&exit.stdout);
    let errors = shown(&exit.stderr);
    if !errors.is_empty() {
        end_line(&mut text);
        text += "[stderr]\n";
        text += &errors;
    }
    if exit.truncated {
        note(&mut text, "the output was too long and was cut by the host");
    }
    if exit.timed_out {
        note(
            &mut text,
            &format!("timed out after {timeout_ms} ms and was stopped; pass a larger `timeout-ms` if it needs longer"),
        );
        return Outcome::error(TIMED_OUT, text);
    }
    match exit.code {
        Some(0) if text.is_empty() => Outcome::text("[exit code 0, no output]"),
        Some(0) => Outcome::text(text),
        Some(code) => {
            note(&mut text, &format!("exit code {code}"));
            Outcome::failed(text)
        }
        None => {
            note(&mut text, "ended by a signal");
            Outcome::failed(text)
        }
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn note(text: &mut String, what: &str) {
    end_line(text);
    text.push('[');
    text.push_str(what);
    text.push(']');
}

/// A stream as text, its middle left out when it is long.
fn shown(bytes: &[u8]) -> String {
    if bytes.len() <= MAX_STREAM_BYTES {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let half = MAX_STREAM_BYTES / 2;
    let (start, end) = (&bytes[..half], &bytes[bytes.len() - half..]);
    let left_out = bytes.len() - 2 * half;
    format!("{}\n[{left_out} bytes left out]\n{}", String::from_utf8_lossy(start), String::from_utf8_lossy(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: Option<i32>, stdout: &str, stderr: &str) -> Exit {
        Exit { code, stdout: stdout.into(), stderr: stderr.into(), timed_out: false, truncated: false }
    }

    fn check(exit: &Exit, expect: &str, code: Option<&str>) {
        let outcome = report(exit, 5);
        assert_eq!(outcome.to_text(), expect);
        assert_eq!((outcome.is_error, outcome.code.as_deref()), (code.is_some(), code));
    }

    #[test]
    fn reports() {
        check(&exit(Some(0), "hi\n", ""), "hi\n", None);
        check(&exit(Some(0), "", ""), "[exit code 0, no output]", None);
        check(&exit(Some(0), "a", "b\n"), "a\n[stderr]\nb\n", None);
        check(&exit(Some(3), "a", "b"), "a\n[stderr]\nb\n[exit code 3]", Some("tool-failed"));
        check(&exit(Some(1), "", ""), "[exit code 1]", Some("tool-failed"));
        check(&exit(None, "", "x\n"), "[stderr]\nx\n[ended by a signal]", Some("tool-failed"));
        let late = Exit { timed_out: true, ..exit(None, "a\n", "") };
        check(
            &late,
            "a\n[timed out after 5 ms and was stopped; pass a larger `timeout-ms` if it needs longer]",
            Some("shell-timed-out"),
        );
        let cut = Exit { truncated: true, ..exit(Some(0), "a\n", "") };
        check(&cut, "a\n[the output was too long and was cut by the host]", None);
    }

    #[test]
    fn a_long_stream_keeps_both_ends() {
        let text = format!("start{}end", "x".repeat(MAX_STREAM_BYTES));
        let got = shown(text.as_bytes());
        assert!(
            got.starts_with("start") && got.ends_with("end") && got.contains("\n[8 bytes left out]\n"),
            "{}",
            got.len()
        );
    }
}
