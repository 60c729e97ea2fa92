//! What can go wrong, as values: a failure with a code, a plugin's failure, a model's failure.

use serde::{Deserialize, Serialize};

use crate::ids::PluginName;

/// A failure with a stable code and one sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Machine-readable, kebab-case.
    pub code: String,
    /// One sentence for a person.
    pub message: String,
}

impl Failure {
    /// A failure with `code` and `message`.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }

    /// The caller passed something that makes no sense.
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Self::new("invalid-argument", message)
    }

    /// The turn was aborted while the work was under way.
    pub fn aborted() -> Self {
        Self::new("aborted", "the turn was aborted")
    }
}

/// A named place where behaviour attaches, as it appears in `plugin/failed.seam` and in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Seam {
    /// Waterfall `agent/request`.
    #[serde(rename = "agent/request")]
    Request,
    /// Waterfall `agent/request-error`.
    #[serde(rename = "agent/request-error")]
    RequestError,
    /// Waterfall `agent/step-result`.
    #[serde(rename = "agent/step-result")]
    StepResult,
    /// Waterfall `agent/turn-continuation`.
    #[serde(rename = "agent/turn-continuation")]
    TurnContinuation,
    /// Waterfall `tools/execute`.
    #[serde(rename = "tools/execute")]
    Execute,
    /// Gate `tools/guard`.
    #[serde(rename = "tools/guard")]
    Guard,
    /// `tools/provider`.
    #[serde(rename = "tools/provider")]
    Provider,
    /// `session/observer`.
    #[serde(rename = "session/observer")]
    Observer,
    /// `session/flush`.
    #[serde(rename = "session/flush")]
    Flush,
    /// `system-prompt/section`.
    #[serde(rename = "system-prompt/section")]
    Section,
    /// `plugin/configure`.
    #[serde(rename = "plugin/configure")]
    Configure,
}

impl Seam {
    /// Every seam, in the order of the documentation.
    pub const ALL: [Seam; 11] = [
        Seam::Request,
        Seam::RequestError,
        Seam::StepResult,
        Seam::TurnContinuation,
        Seam::Execute,
        Seam::Guard,
        Seam::Provider,
        Seam::Observer,
        Seam::Flush,
        Seam::Section,
        Seam::Configure,
    ];

    /// The name in events, in `seams = […]` and, behind `dsh:`, of the WIT interface.
    pub fn as_str(self) -> &'static str {
        match self {
            Seam::Request => "agent/request",
            Seam::RequestError => "agent/request-error",
            Seam::StepResult => "agent/step-result",
            Seam::TurnContinuation => "agent/turn-continuation",
            Seam::Execute => "tools/execute",
            Seam::Guard => "tools/guard",
            Seam::Provider => "tools/provider",
            Seam::Observer => "session/observer",
            Seam::Flush => "session/flush",
            Seam::Section => "system-prompt/section",
            Seam::Configure => "plugin/configure",
        }
    }

    /// The seam with that name.
    pub fn parse(name: &str) -> Option<Seam> {
        Seam::ALL.into_iter().find(|seam| seam.as_str() == name)
    }
}

impl std::fmt::Display for Seam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a plugin failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The guest trapped: a panic, an illegal access.
    Trap,
    /// It answered a failure or an ill-formed value.
    Error,
    /// It exceeded a limit.
    Limit,
    /// It is no longer there.
    Missing,
}

/// A plugin did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("plugin `{plugin}` failed in `{seam}`: {message}")]
pub struct PluginError {
    /// Which plugin.
    pub plugin: PluginName,
    /// In which seam.
    pub seam: Seam,
    /// How.
    pub kind: FailureKind,
    /// What happened, for a person; with the plugin's own code in it if it gave one.
    pub message: String,
    /// The plugin's own code, when it answered a failure.
    pub code: Option<String>,
}

impl PluginError {
    /// The code for `error.code`, the turn's `code` and `tool/result.code`.
    pub fn host_code(&self) -> &'static str {
        match self.kind {
            FailureKind::Trap | FailureKind::Error => "plugin-failed",
            FailureKind::Limit => "plugin-limit",
            FailureKind::Missing => "plugin-missing",
        }
    }
}

/// What the operator wants to happen when a listener of a plugin fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureMode {
    /// The turn ends (a guard denies).
    #[default]
    Closed,
    /// The rest runs as if the listener were not there (a guard abstains).
    Open,
}

/// A model call that failed. Codes: `auth`, `rate-limit`, `quota`, `server`, `timeout`, `transport`, `invalid-request`,
/// `context-window-exceeded`, `empty-response`, `stream-closed`, `malformed-response`, `no-adapter`, and those of `script:`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelFailure {
    /// Machine-readable, kebab-case.
    pub code: String,
    /// One sentence for a person; never a secret.
    pub message: String,
    /// The HTTP status, if there was one.
    pub status: Option<u16>,
    /// How long the provider asked to wait, in milliseconds.
    pub retry_after_ms: Option<u32>,
}

impl ModelFailure {
    /// A failure without status and waiting time.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), status: None, retry_after_ms: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seam_names_are_the_same_everywhere() {
        for seam in Seam::ALL {
            assert_eq!(serde_json::to_value(seam).expect("a seam is a string"), seam.as_str());
            assert_eq!(Seam::parse(seam.as_str()), Some(seam));
        }
    }
}
