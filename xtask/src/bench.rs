//! `cargo xtask bench`: sets up, builds, and measures what the host costs. The numbers go to `bench.json` in the build directory.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::progress::Steps;
use crate::repo::{Repo, WASM_TARGET, call};
use crate::{guests, setup};

/// The group that needs other engines, which nothing else builds.
const RIVALS: &str = "rivals";

/// What `bench` is told.
#[derive(clap::Args)]
pub struct Options {
    /// Measure one group only: calls, policy, steps, events, fair, long, body, process, harness, memory, fleet or rivals; the last builds Extism
    /// and QuickJS first, which takes many minutes
    #[arg(value_name = "GROUP")]
    group: Option<String>,
    /// Only a rough idea, in some seconds
    #[arg(long)]
    quick: bool,
}

/// Builds and measures.
pub fn run(repo: &Repo, options: &Options) -> Result<()> {
    let rivals = options.group.as_deref() == Some(RIVALS);
    let mut steps = Steps::new(if rivals { 5 } else { 4 });
    steps.step("set up", || setup::run(repo))?;
    steps.step("build the plugins and the tests' guests", || guests::run(repo))?;
    if rivals {
        steps.step("build the other engines (many minutes the first time)", || build_rivals(repo))?;
    }
    steps.step("build the host and what measures it", || build(repo))?;
    steps.step("measure (some minutes; leave the machine alone meanwhile)", || measure(repo, options))
}

/// Builds what is measured and what measures.
pub fn build(repo: &Repo) -> Result<()> {
    call(repo.cargo().args(["build", "--release", "--package", "dsh-host", "--package", "dsh-bench"]))
}

/// A rough idea in some seconds, with everything built; the numbers decide nothing.
pub fn quick(repo: &Repo) -> Result<()> {
    measure(repo, &Options { group: None, quick: true })
}

fn measure(repo: &Repo, options: &Options) -> Result<()> {
    let binary = repo.target.join("release").join(format!("dsh-bench{}", std::env::consts::EXE_SUFFIX));
    let quick = options.quick.then_some("--quick");
    call(Command::new(binary).args(quick).args(&options.group).current_dir(&repo.root))
}

/// A workspace of its own, below the build directory in a folder of its own.
fn build_rivals(repo: &Repo) -> Result<()> {
    let (folder, target) = (Path::new("host/dsh-bench/rivals"), repo.target.join(RIVALS));
    call(repo.cargo_in(folder, &target).args(["build", "--release", "--locked"]))?;
    let guest = ["build", "--release", "--locked", "--package", "dsh-rivals-guest", "--target", WASM_TARGET];
    call(repo.cargo_in(folder, &target).args(guest))
}
