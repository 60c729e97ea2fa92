//! Why a step or a turn cannot go on, as one type, so that each way out is closed in the log in the same place.

use dsh_seam::failure::ModelFailure;
use dsh_seam::ids::PluginName;
use dsh_seam::services::OutOfBudget;
use dsh_seam::waterfall::RunError;
use tokio_util::sync::CancellationToken;

use crate::journal::WRITE_FAILED;
use crate::turn_token::{Cause, TurnToken};

/// Why a turn cannot go on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stop {
    /// Its token was cancelled.
    Cancelled,
    /// Something failed; the turn ends with `error`.
    Fail(Fail),
    /// The log can no longer be written: unwind without a word.
    Dead,
}

/// What failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fail {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) plugin: Option<PluginName>,
}

impl Stop {
    /// Nothing more of a turn goes on: a budget of the run is used up.
    pub(crate) fn out_of_budget(token: &TurnToken, over: OutOfBudget) -> Self {
        token.cancel(Cause::Budget(over));
        Self::Cancelled
    }

    pub(crate) fn fail(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Fail(Fail { code: code.into(), message: message.into(), plugin: None })
    }
}

impl From<RunError> for Stop {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Aborted => Self::Cancelled,
            RunError::Plugin(error) => Self::Fail(Fail {
                code: error.host_code().into(),
                message: error.to_string(),
                plugin: Some(error.plugin),
            }),
            RunError::TooManyRuns => Self::fail("limit", error.to_string()),
            RunError::Host(failure) if failure.code == WRITE_FAILED => Self::Dead,
            RunError::Host(failure) => Self::fail(failure.code, failure.message),
        }
    }
}

impl From<ModelFailure> for Stop {
    fn from(failure: ModelFailure) -> Self {
        Self::fail(failure.code, failure.message)
    }
}

/// Awaits `work` unless the token is cancelled first; the token is looked at before the work.
pub(crate) async fn guarded<T>(token: &CancellationToken, work: impl Future<Output = T>) -> Result<T, Stop> {
    tokio::select! {
        biased;
        () = token.cancelled() => Err(Stop::Cancelled),
        done = work => Ok(done),
    }
}
