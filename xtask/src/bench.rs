//! `cargo xtask bench`: sets up, builds, and measures what the host costs. The numbers go to `bench.json` in the build directory.

use std::process::Command;

use anyhow::Result;

use crate::progress::Steps;
use crate::repo::{Repo, call};
use crate::{guests, setup};

/// What `bench` is told.
#[derive(clap::Args)]
pub struct Options {
    /// Measure one group only: calls, policy, steps, events, long, body, process or memory
    #[arg(value_name = "GROUP")]
    group: Option<String>,
}

/// Builds and measures.
pub fn run(repo: &Repo, options: &Options) -> Result<()> {
    let mut steps = Steps::new(4);
    steps.step("set up", || setup::run(repo))?;
    steps.step("build the plugins and the tests' guests", || guests::run(repo))?;
    steps.step("build the host and what measures it", || {
        call(repo.cargo().args(["build", "--release", "--package", "dsh-host", "--package", "dsh-bench"]))
    })?;
    let binary = repo.target.join("release").join(format!("dsh-bench{}", std::env::consts::EXE_SUFFIX));
    steps.step("measure (about a minute; leave the machine alone meanwhile)", || {
        call(Command::new(binary).args(&options.group).current_dir(&repo.root))
    })
}
