//! The guards over the final call: all of them are asked, and their answers fold as deny, then failure, then ask, then abstain,
//! whatever the order of plugins.

use dsh_seam::event::AskedQuestion;
use dsh_seam::tools::{Outcome, RegisteredGuard, ToolInfo, ToolLog, Verdict};
use dsh_seam::waterfall::RunError;
use dsh_seam::{FailureMode, PluginError, PluginName, StepRef};
use tokio_util::sync::CancellationToken;

use dsh_seam::message::ToolCall;

use super::texts;

/// What all guards together say.
pub(super) enum Judgement {
    /// The tool may run.
    Pass,
    /// It may run if these are answered with yes.
    Ask(Vec<AskedQuestion>),
    /// It may not run.
    Stop(Outcome),
}

#[derive(Default)]
struct Fold {
    denials: Vec<(PluginName, String)>,
    failure: Option<PluginError>,
    questions: Vec<AskedQuestion>,
}

impl Fold {
    fn judgement(self) -> Judgement {
        if !self.denials.is_empty() {
            return Judgement::Stop(texts::denied(&self.denials));
        }
        if let Some(error) = &self.failure {
            return Judgement::Stop(texts::not_run(error));
        }
        if self.questions.is_empty() { Judgement::Pass } else { Judgement::Ask(self.questions) }
    }
}

/// Asks every guard about `call`. A failing one is reported; closed, it stops the call, open, it abstains.
pub(super) async fn judge(
    guards: &[RegisteredGuard],
    log: &dyn ToolLog,
    at: StepRef,
    call: &ToolCall,
    tool: &ToolInfo,
    cancel: &CancellationToken,
) -> Result<Judgement, RunError> {
    let mut fold = Fold::default();
    for RegisteredGuard { plugin, mode, guard } in guards {
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(Judgement::Stop(texts::aborted())),
            answer = guard.check(at, call, tool, cancel) => answer,
        };
        match answer {
            Ok(Verdict::Abstain) => {}
            Ok(Verdict::Deny(why)) => fold.denials.push((plugin.clone(), why)),
            Ok(Verdict::Ask(question)) => fold.questions.push(AskedQuestion {
                plugin: plugin.clone(),
                title: question.title,
                detail: question.detail,
                remember: question.remember,
            }),
            Err(error) => {
                log.plugin_failed(&error).await?;
                if *mode == FailureMode::Closed {
                    fold.failure.get_or_insert(error);
                }
            }
        }
    }
    Ok(fold.judgement())
}
