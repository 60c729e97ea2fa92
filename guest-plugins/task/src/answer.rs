//! What the model reads of a sub-agent that ended, or of one that there was not.

use dsh_sdk::agents::{Ending, Report};
use dsh_sdk::{Failure, Outcome};

/// What stands for an answer without text.
const NO_TEXT: &str = "[the sub-agent ended without a text]";

/// Failures that are the host's to tell: the call was not allowed or not wanted any more.
const OF_THE_HOST: [&str; 2] = ["not-granted", "aborted"];

/// What it said, when it came to its own end; otherwise how it ended, and what it had said until then.
pub fn ended(report: &Report) -> Outcome {
    let ending = word(report.ending);
    let said = report.text.trim();
    if report.ending == Ending::Completed {
        return Outcome::text(if said.is_empty() { NO_TEXT } else { &report.text });
    }
    let mut text = format!("the sub-agent `{}` did not finish: its turn ended with `{ending}`", report.agent);
    if let Some(code) = &report.code {
        text += &format!(" (`{code}`)");
    }
    if let Some(message) = &report.message {
        text += &format!(": {message}");
    }
    if !said.is_empty() {
        text += &format!("\nUntil then it had said:\n{}", report.text);
    }
    Outcome::error(format!("task-{ending}"), text)
}

/// Why there was no sub-agent.
pub fn refused(failure: Failure) -> Result<Outcome, Failure> {
    if OF_THE_HOST.contains(&failure.code.as_str()) {
        return Err(failure);
    }
    Ok(Outcome::error(format!("task-{}", failure.code), failure.message))
}

/// The reason of a turn as events have it.
fn word(ending: Ending) -> &'static str {
    match ending {
        Ending::Completed => "completed",
        Ending::Aborted => "aborted",
        Ending::Error => "error",
        Ending::Disposed => "disposed",
        Ending::Budget => "budget",
        Ending::MaxSteps => "max-steps",
        Ending::MaxTokens => "max-tokens",
    }
}

#[cfg(test)]
mod tests {
    use dsh_sdk::Usage;

    use super::*;

    fn report(ending: Ending, text: &str, code: Option<&str>, message: Option<&str>) -> Report {
        Report {
            agent: "main.1".to_owned(),
            session: "s".to_owned(),
            text: text.to_owned(),
            ending,
            code: code.map(str::to_owned),
            message: message.map(str::to_owned),
            usage: Usage { input: 0, output: 0, cache_read: 0, cache_write: 0, reasoning: 0 },
            turns: 1,
            steps: 1,
        }
    }

    #[test]
    fn an_answer_is_what_was_said_or_how_it_ended() {
        let check = |report: Report, text: &str, code: Option<&str>| {
            let outcome = ended(&report);
            assert_eq!(outcome.to_text(), text);
            assert_eq!((outcome.is_error, outcome.code.as_deref()), (code.is_some(), code));
        };
        check(report(Ending::Completed, "done\n", None, None), "done\n", None);
        check(report(Ending::Completed, " ", None, None), NO_TEXT, None);
        check(
            report(Ending::Error, "", Some("server"), Some("no luck")),
            "the sub-agent `main.1` did not finish: its turn ended with `error` (`server`): no luck",
            Some("task-error"),
        );
        check(
            report(Ending::MaxSteps, "half", None, None),
            "the sub-agent `main.1` did not finish: its turn ended with `max-steps`\nUntil then it had said:\nhalf",
            Some("task-max-steps"),
        );
    }

    #[test]
    fn a_refusal_has_a_code_of_the_plugin_unless_it_is_the_hosts() {
        let check = |code: &str, expect: Result<&str, &str>| {
            let got = refused(Failure::new(code, "why"));
            let got = got.map(|outcome| outcome.code.unwrap_or_default()).map_err(|failure| failure.code);
            assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned));
        };
        check("too-deep", Ok("task-too-deep"));
        check("limit", Ok("task-limit"));
        check("not-granted", Err("not-granted"));
        check("aborted", Err("aborted"));
    }
}
