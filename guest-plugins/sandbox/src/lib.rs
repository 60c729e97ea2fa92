//! The plugin `sandbox`: narrows what every tool call may touch. The host enforces it, or says that it cannot.

use dsh_sdk::{
    Access, Answer, ExecuteNext, Failure, NetworkPolicy, PathGrant, Plugin, Profile, Step, ToolCall,
    ToolExecuteListener, ToolInfo,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// What every tool call may touch at most.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    /// How much.
    #[serde(default = "workspace_write")]
    profile: Named,
}

fn workspace_write() -> Named {
    Named::WorkspaceWrite
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Named {
    /// Read the workspace; no writes, no network.
    ReadOnly,
    /// Read and write the workspace; no network.
    WorkspaceWrite,
    /// All that was granted.
    Full,
}

struct Sandbox {
    profile: Named,
}

impl Plugin for Sandbox {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { profile: config.profile })
    }
}

impl ToolExecuteListener for Sandbox {
    /// A profile that cannot be enforced stops the turn: nothing runs with more than was asked for.
    fn on_execute(
        &self,
        _at: Step,
        call: ToolCall,
        _tool: Option<&ToolInfo>,
        next: &ExecuteNext,
    ) -> Result<Answer, Failure> {
        if let Some(profile) = profile(self.profile) {
            next.restrict(&profile)?;
        }
        next.run(&call).map(Answer::Pass)
    }
}

/// The profile behind a name; none where there is nothing to narrow. Programs may run in all of them: they run under the profile
/// too. Profiles intersect, so naming every variable takes none away and adds none.
fn profile(named: Named) -> Option<Profile> {
    let access = match named {
        Named::ReadOnly => Access::Read,
        Named::WorkspaceWrite => Access::Write,
        Named::Full => return None,
    };
    Some(Profile {
        paths: vec![PathGrant { path: ".".to_owned(), access }],
        denied: Vec::new(),
        network: NetworkPolicy::Closed,
        processes: true,
        env: vec!["*".to_owned()],
        timeout_ms: None,
        max_output_bytes: None,
    })
}

dsh_sdk::export!(Sandbox: execute, configure);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(named: Named, expect: Option<Access>) {
        let got = profile(named);
        assert_eq!(got.as_ref().map(|profile| profile.paths[0].access), expect, "{named:?}");
        if let Some(profile) = got {
            assert_eq!((profile.paths.len(), profile.paths[0].path.as_str()), (1, "."));
            assert!(matches!(profile.network, NetworkPolicy::Closed) && profile.processes);
        }
    }

    #[test]
    fn profiles() {
        check(Named::ReadOnly, Some(Access::Read));
        check(Named::WorkspaceWrite, Some(Access::Write));
        check(Named::Full, None);
    }
}
