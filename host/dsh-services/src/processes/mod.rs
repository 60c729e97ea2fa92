//! The service `processes`: runs programs in the workspace, under a profile, with a bounded life.
//!
//! A program gets a session (and so a process group) of its own, an environment of its own, and no terminal. When it ends, its time is
//! over, the call is cancelled or its future dropped, or the host is gone, all it started is killed, also what left its group and
//! session (`keeper`), so that a call leaves nothing behind. What a profile asks for is held by the kernel: Landlock for the files,
//! seccomp for the network and for the attributes of files (`sandbox`); what the kernel cannot hold is refused as `unenforceable`, never
//! run without it. Of the host's file descriptors a program gets none, with or without a profile.

mod capture;
mod environment;
mod grants;
mod keeper;
mod launcher;
mod sandbox;
mod supervise;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use dsh_seam::Failure;
use dsh_seam::tools::{ProcessCommand, ProcessExit, Processes, Profile, normalize_path};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use environment::{Inside, environment};
use grants::Grant;
use launcher::Launcher;
use sandbox::{Refused, Sandbox, Support};
use supervise::Limits;

/// The longest life of a program, in milliseconds: the default of `tool-wall-ms`, so that a program never outlives its tool.
pub const MAX_TIMEOUT_MS: u32 = 600_000;
/// How much of each output stream is kept, in bytes, when the profile says nothing: more than a model reads.
pub const DEFAULT_OUTPUT_BYTES: usize = 1024 * 1024;

/// Runs programs of this machine.
pub struct HostProcesses {
    workspace: PathBuf,
    launcher: Launcher,
    support: Support,
}

impl HostProcesses {
    /// Programs run in `workspace_dir` and below.
    pub fn new(workspace_dir: PathBuf) -> Self {
        Self { workspace: workspace_dir, launcher: Launcher::default(), support: Support::probe() }
    }

    /// The workspace without links, as the kernel sees it.
    fn root(&self) -> Result<PathBuf, Failure> {
        let unusable = |error| {
            Failure::invalid_argument(format!("the workspace {} cannot be used: {error}", self.workspace.display()))
        };
        self.workspace.canonicalize().map_err(unusable)
    }

    /// What holds a program to `profile`; none when there is nothing to hold it to.
    fn hold(&self, root: &Path, profile: &Profile) -> Result<Option<Held>, Failure> {
        if !narrows(profile) {
            return Ok(None);
        }
        self.support.holds(profile)?;
        let failed = |error| Failure::new("not-available", format!("no temporary folder could be made: {error}"));
        let temporary = tempfile::Builder::new().prefix("dsh-").tempdir().map_err(failed)?;
        let grants = grants::grants(root, profile, temporary.path())?;
        let sandbox = Sandbox::new(&grants, Refused::by(profile), self.support)?;
        Ok(Some(Held { sandbox, grants, temporary }))
    }

    fn prepare(&self, command: &ProcessCommand, profile: &Profile, env: &[String]) -> Result<Prepared, Failure> {
        if !profile.processes {
            return Err(Failure::new("denied", "the profile in force does not let it run programs"));
        }
        if let Some((name, _)) = command.env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(Failure::invalid_argument(format!("`{name}` is not the name of a variable")));
        }
        let root = self.root()?;
        let cwd = working_directory(&root, command.cwd.as_deref())?;
        let held = self.hold(&root, profile)?;
        let mut program = Command::new(&command.program);
        program.args(&command.args).current_dir(cwd).env_clear();
        let inside = held.as_ref().map(|held| Inside { temporary: held.temporary.path(), grants: &held.grants });
        program.envs(environment(profile, env, &command.env, inside));
        let stdin = if command.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        program.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (sandbox, temporary) = held.map(|held| (held.sandbox, held.temporary)).unzip();
        sandbox::apply_in_child(&mut program, sandbox);
        Ok(Prepared { program, temporary })
    }
}

/// What holds a program.
struct Held {
    sandbox: Sandbox,
    grants: Vec<Grant>,
    temporary: TempDir,
}

/// A program that is ready to start, and the folder that goes when it is over.
struct Prepared {
    program: Command,
    temporary: Option<TempDir>,
}

/// Whether a profile asks for more than limits of time, output and environment, which need no kernel.
fn narrows(profile: &Profile) -> bool {
    let unlimited = Profile { env: vec!["*".into()], timeout_ms: None, max_output_bytes: None, ..profile.clone() };
    !unlimited.is_unrestricted()
}

/// Where a program runs: inside the workspace, also after its links are followed.
fn working_directory(root: &Path, cwd: Option<&str>) -> Result<PathBuf, Failure> {
    let Some(cwd) = cwd else { return Ok(root.to_owned()) };
    let outside = || {
        Failure::invalid_argument(format!(
            "`{cwd}` is not a folder inside the workspace: use a relative path without `..`"
        ))
    };
    let relative = normalize_path(cwd).ok_or_else(outside)?;
    let path = root.join(relative).canonicalize();
    let path =
        path.map_err(|error| Failure::invalid_argument(format!("the program cannot run in `{cwd}`: {error}")))?;
    if path.starts_with(root) && path.is_dir() { Ok(path) } else { Err(outside()) }
}

fn limits(command: &ProcessCommand, profile: &Profile) -> Limits {
    let asked = [command.timeout_ms, profile.timeout_ms].into_iter().flatten().min().unwrap_or(MAX_TIMEOUT_MS);
    let output = profile.max_output_bytes.map_or(DEFAULT_OUTPUT_BYTES, |bytes| bytes as usize);
    Limits { timeout: Duration::from_millis(asked.min(MAX_TIMEOUT_MS).into()), output_bytes: output }
}

#[async_trait]
impl Processes for HostProcesses {
    async fn run(
        &self,
        command: ProcessCommand,
        profile: &Profile,
        env: &[String],
        cancel: &CancellationToken,
    ) -> Result<ProcessExit, Failure> {
        if cancel.is_cancelled() {
            return Err(Failure::aborted());
        }
        let Prepared { program, temporary } = self.prepare(&command, profile, env)?;
        let limits = limits(&command, profile);
        let started = self.launcher.start(program).await.map_err(|error| launch_failure(&command.program, &error))?;
        let exit = supervise::run(started, command.stdin, limits, cancel).await;
        drop(temporary);
        exit
    }

    fn enforceable(&self, profile: &Profile) -> Result<(), Failure> {
        // Without programs there is nobody to hold.
        if !narrows(profile) || !profile.processes {
            return Ok(());
        }
        self.support.holds(profile)?;
        grants::grants(&self.root()?, profile, Path::new("/")).map(drop)
    }
}

fn launch_failure(program: &str, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    if error.raw_os_error() == Some(sandbox::NOT_APPLIED) {
        return Failure::new("unenforceable", "the kernel refused to apply the sandbox, so nothing was run");
    }
    match error.kind() {
        ErrorKind::InvalidInput => Failure::invalid_argument(format!("`{program}` cannot be started: {error}")),
        ErrorKind::NotFound => Failure::new("not-available", format!("there is no program `{program}`")),
        // A folder of PATH that may not be read is as if the name were not in it.
        ErrorKind::PermissionDenied if !program.contains('/') && !in_path(program) => {
            Failure::new("not-available", format!("there is no program `{program}`"))
        }
        _ => Failure::new("not-available", format!("`{program}` cannot be started: {error}")),
    }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests;
