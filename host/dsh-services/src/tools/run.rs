//! Running one tool under its profile: its time, its output, its end under an abort.

use std::sync::Arc;
use std::time::Duration;

use dsh_seam::message::{ResultBlock, ToolCall};
use dsh_seam::tools::{Outcome, Progress, ToolContext, ToolLog, ToolProvider};
use dsh_seam::{PluginError, PluginName, StepRef};

use super::texts;

/// How long a tool may go on after an abort before it is dropped. Guests are stopped by the engine long before.
const GRACE: Duration = Duration::from_secs(5);

/// The most that one result may hold, in bytes: written as JSON, a byte may become six, and a line of the log holds 32 MiB.
const MAX_RESULT_BYTES: usize = 5 * 1024 * 1024;

/// How a tool came to its end.
pub(super) enum Ran {
    /// It answered.
    Answered(Outcome),
    /// Its plugin failed.
    Failed(PluginError),
    /// It took longer than its profile allows and was dropped.
    TimedOut,
    /// It was stopped after an abort.
    Aborted,
}

/// Runs the tool to its end. Under a cancelled token it is awaited for its grace period.
pub(super) async fn run(provider: &dyn ToolProvider, cx: &ToolContext, call: ToolCall) -> Ran {
    let too_long = async {
        match cx.profile.timeout_ms {
            Some(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
            None => std::future::pending().await,
        }
    };
    let aborted = async {
        cx.cancel.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    let answer = tokio::select! {
        biased;
        answer = provider.call(cx, call) => answer,
        () = too_long => return Ran::TimedOut,
        () = aborted => return Ran::Aborted,
    };
    match answer {
        Ok(outcome) => Ran::Answered(outcome),
        // Whoever runs the tool says so when it was stopped by the abort: that is no failure of the plugin.
        Err(error) if cx.cancel.is_cancelled() && error.code.as_deref() == Some("aborted") => Ran::Aborted,
        Err(error) => Ran::Failed(error),
    }
}

/// The outcome of a tool that ran; a failure of its plugin has been reported by the caller.
pub(super) fn outcome(ran: Ran, cx: &ToolContext, name: &str) -> Outcome {
    let outcome = match ran {
        Ran::Answered(outcome) => outcome,
        Ran::Failed(error) => return texts::tool_failed(&error, name),
        Ran::TimedOut => return texts::timed_out(name, cx.profile.timeout_ms.unwrap_or_default()),
        Ran::Aborted => return texts::aborted_running(name),
    };
    bounded(match cx.profile.max_output_bytes {
        Some(max) => cut(outcome, max as usize),
        None => outcome,
    })
}

/// An outcome that the log can hold, whoever made it.
pub(super) fn bounded(outcome: Outcome) -> Outcome {
    cut(outcome, MAX_RESULT_BYTES)
}

/// Cuts an outcome to `max` bytes and says so.
fn cut(mut outcome: Outcome, max: usize) -> Outcome {
    let all = outcome.bytes();
    if all <= max {
        return outcome;
    }
    let mut left = max;
    let mut kept = Vec::new();
    for block in outcome.content {
        match block {
            ResultBlock::Text(mut block) => {
                if block.text.len() > left {
                    block.text.truncate(block.text.floor_char_boundary(left));
                }
                left -= block.text.len();
                if !block.text.is_empty() {
                    kept.push(ResultBlock::Text(block));
                }
            }
            // Half an image is none.
            other => {
                let single = Outcome { content: vec![other], is_error: false, code: None, plugin: None };
                let bytes = single.bytes();
                if bytes <= left {
                    left -= bytes;
                    kept.extend(single.content);
                }
            }
        }
    }
    let shown = max - left;
    kept.push(ResultBlock::text(format!("[output cut: {shown} of {all} bytes are shown, the limit is {max}]")));
    outcome.content = kept;
    outcome
}

/// Shows a running tool's progress.
pub(super) struct Shown {
    pub log: Arc<dyn ToolLog>,
    pub at: StepRef,
    pub call_id: String,
    pub plugin: PluginName,
}

impl Progress for Shown {
    fn report(&self, text: &str, fraction: Option<f32>) {
        self.log.progress(self.at, &self.call_id, &self.plugin, text, fraction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_at_a_character_and_says_so() {
        let check = |texts: &[&str], max: usize, expect: &[&str]| {
            let content = texts.iter().map(|text| ResultBlock::text(*text)).collect();
            let cut = cut(Outcome { content, is_error: true, code: Some("tool-failed".into()), plugin: None }, max);
            let expected: Vec<ResultBlock> = expect.iter().map(|text| ResultBlock::text(*text)).collect();
            assert_eq!((cut.content, cut.is_error, cut.code.as_deref()), (expected, true, Some("tool-failed")));
        };
        check(&["abc"], 3, &["abc"]);
        check(&["abcd", "ef"], 3, &["abc", "[output cut: 3 of 6 bytes are shown, the limit is 3]"]);
        check(&["äö"], 3, &["ä", "[output cut: 2 of 4 bytes are shown, the limit is 3]"]);
        check(&["abc"], 0, &["[output cut: 0 of 3 bytes are shown, the limit is 0]"]);
    }

    #[test]
    fn the_worst_result_fits_a_line_of_the_log() {
        let bounded = bounded(Outcome::text("\u{1}".repeat(2 * MAX_RESULT_BYTES)));
        let line = serde_json::to_string(&bounded.content).expect("serializes");
        assert!(line.len() < crate::session::MAX_LINE_BYTES, "{}", line.len());
    }
}
