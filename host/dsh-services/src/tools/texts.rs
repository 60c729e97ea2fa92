//! What the model and a person read when a call was stopped. Denied, failed, over a limit and missing stay four different things.

use dsh_seam::event::AskedQuestion;
use dsh_seam::failure::FailureKind;
use dsh_seam::tools::Outcome;
use dsh_seam::{PluginError, PluginName};

/// Names shown to the model that called an unknown tool; a long list is worth no more than a short one.
const MAX_NAMES: usize = 40;

/// Names this near are offered: a typing error, or the same word with another separator.
const NEAR: f64 = 0.7;

/// What the plugin did, as the middle of a sentence.
pub(super) fn what_failed(error: &PluginError) -> String {
    match error.kind {
        FailureKind::Trap | FailureKind::Error => format!("plugin `{}` failed", error.plugin),
        FailureKind::Limit => format!("plugin `{}` exceeded a limit", error.plugin),
        FailureKind::Missing => format!("plugin `{}` is missing", error.plugin),
    }
}

/// A listener or guard failed before the tool ran.
pub(super) fn not_run(error: &PluginError) -> Outcome {
    let text = format!("not run: {} in `{}`: {}", what_failed(error), error.seam, error.message);
    Outcome::error(error.host_code(), text).by(error.plugin.clone())
}

/// A listener failed after the tool had run. Its message stays out: it may hold what the listener was there to remove.
pub(super) fn withheld(error: &PluginError) -> Outcome {
    let text = format!("it ran, its outcome was withheld because {}", what_failed(error));
    Outcome::error(error.host_code(), text).by(error.plugin.clone())
}

/// The tool's own plugin failed.
pub(super) fn tool_failed(error: &PluginError, name: &str) -> Outcome {
    let text = format!("{} while it ran the tool `{name}`: {}", what_failed(error), error.message);
    Outcome::error(error.host_code(), text).by(error.plugin.clone())
}

/// No such tool.
pub(super) fn unknown_tool<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Outcome {
    let names: Vec<&str> = names.collect();
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let mut near: Vec<(f64, &str)> = names
        .iter()
        .map(|other| (strsim::jaro_winkler(&plain(name), &plain(other)), *other))
        .filter(|(score, _)| *score >= NEAR)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    let list = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut text = format!("there is no tool `{name}`");
    let nearest: Vec<&str> = near.iter().take(3).map(|(_, name)| *name).collect();
    if !nearest.is_empty() {
        text.push_str(&format!("; did you mean {}?", list(&nearest)));
    } else if names.is_empty() {
        text.push_str("; there are no tools");
    } else {
        text.push_str(&format!("; there are {}", list(&names[..names.len().min(MAX_NAMES)])));
    }
    Outcome::error("unknown-tool", text)
}

/// Guards said no.
pub(super) fn denied(denials: &[(PluginName, String)]) -> Outcome {
    let lines: Vec<String> = denials
        .iter()
        .map(|(plugin, why)| {
            let why = if why.trim().is_empty() { "no reason given" } else { why.as_str() };
            format!("denied by policy `{plugin}`: {why}")
        })
        .collect();
    let outcome = Outcome::error("denied", lines.join("\n"));
    match denials.first() {
        Some((plugin, _)) => outcome.by(plugin.clone()),
        None => outcome,
    }
}

/// Whoever was asked said no.
pub(super) fn approval_denied(questions: &[AskedQuestion]) -> Outcome {
    Outcome::error("approval-denied", format!("not run: {} asked for approval, and it was denied", askers(questions)))
}

/// Nobody is there to ask.
pub(super) fn approval_unavailable(questions: &[AskedQuestion]) -> Outcome {
    let text = format!("not run: {} asked for approval, and nobody is there to give it", askers(questions));
    Outcome::error("approval-unavailable", text)
}

/// The turn was aborted before the tool ran.
pub(super) fn aborted() -> Outcome {
    Outcome::error("aborted", "not run: the turn was aborted")
}

/// The turn was aborted while a listener still had the outcome.
pub(super) fn aborted_withheld() -> Outcome {
    Outcome::error("aborted", "it ran, its outcome was withheld because the turn was aborted")
}

/// The turn was aborted and the tool was stopped.
pub(super) fn aborted_running(name: &str) -> Outcome {
    Outcome::error("aborted", format!("the turn was aborted while the tool `{name}` ran; what it had done stays done"))
}

/// The tool took too long.
pub(super) fn timed_out(name: &str, timeout_ms: u32) -> Outcome {
    Outcome::error("timed-out", format!("the tool `{name}` was stopped after {timeout_ms} ms"))
}

fn askers(questions: &[AskedQuestion]) -> String {
    let one = |question: &AskedQuestion| format!("policy `{}` ({})", question.plugin, question.title);
    questions.iter().map(one).collect::<Vec<_>>().join(" and ")
}
