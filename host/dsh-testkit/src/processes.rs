//! Processes for tests that run no programs.

use async_trait::async_trait;
use dsh_seam::Failure;
use dsh_seam::tools::{ProcessCommand, ProcessExit, Processes, Profile};
use tokio_util::sync::CancellationToken;

/// Enforces every profile and runs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProcesses;

#[async_trait]
impl Processes for NoProcesses {
    async fn run(
        &self,
        _: ProcessCommand,
        _: &Profile,
        _: &[String],
        _: &CancellationToken,
    ) -> Result<ProcessExit, Failure> {
        Err(Failure::new("not-available", "no processes here"))
    }

    fn enforceable(&self, _: &Profile) -> Result<(), Failure> {
        Ok(())
    }
}
