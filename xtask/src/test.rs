//! `cargo xtask test`: the one test command, the same on a laptop and in CI.
//!
//! Setting up and building must succeed, because nothing after them means anything otherwise. The checks after that all run, and
//! the last lines say how long each step took and how it went.

use std::path::Path;

use anyhow::{Result, bail};

use crate::progress::{Counts, Steps, run_tests, say, shown_time};
use crate::repo::{Repo, WASM_TARGET, call};
use crate::{bench, guests, setup, tidy};

/// As many as there are calls of `step` and `check` below.
const STEPS: usize = 11;

/// Runs everything.
pub fn run(repo: &Repo) -> Result<()> {
    let mut steps = Steps::new(STEPS);
    let mut counts = Counts::default();
    let prepared = prepare(repo, &mut steps);
    if let Err(error) = &prepared {
        say(&format!("error: {error:#}"));
    } else {
        check(repo, &mut steps, &mut counts);
    }
    say(steps.times().trim_end());
    let (done, total) = steps.count();
    let tests = format!("{} tests passed, {} failed, {} ignored", counts.passed, counts.failed, counts.ignored);
    let time = shown_time(steps.elapsed());
    if prepared.is_err() {
        say(&format!("xtask test: FAILED in step {done} of {total}; {tests}; {time}"));
        bail!("nothing after step {done} was run");
    }
    if !steps.failed().is_empty() {
        say(&format!("xtask test: FAILED: {}; {tests}; {time}", steps.failed().join(", ")));
        bail!("{} of {total} steps failed", steps.failed().len());
    }
    say(&format!("xtask test: ok, {done} of {total} steps; {tests}; {time}"));
    Ok(())
}

/// What everything else needs.
fn prepare(repo: &Repo, steps: &mut Steps) -> Result<()> {
    steps.step("set up", || setup::run(repo))?;
    steps.step("build the guests", || guests::run(repo))?;
    steps.step("build the host (the first build compiles wasmtime, which takes many minutes)", || {
        call(repo.cargo().args(["build", "--release", "--package", "dsh-host"]))
    })
}

/// Every check; each runs, whatever came of the others.
fn check(repo: &Repo, steps: &mut Steps, counts: &mut Counts) {
    steps.check("tidy", || tidy::run(repo));
    steps.check("formatting", || {
        for folder in std::iter::once(".").chain(guests::WORKSPACES.iter().map(|(folder, _)| *folder)) {
            call(repo.cargo_in(Path::new(folder), &repo.target).args(["fmt", "--all", "--check"]))?;
        }
        Ok(())
    });
    steps.check("lints of the host", || {
        call(repo.cargo().args(["clippy", "--release", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    });
    steps.check("lints of the guests", || {
        for (folder, _) in guests::WORKSPACES {
            let mut command = repo.cargo_in(Path::new(folder), &repo.guest_target());
            command.args(["clippy", "--release", "--workspace", "--target", WASM_TARGET, "--", "--deny", "warnings"]);
            call(&mut command)?;
        }
        Ok(())
    });
    steps.check("tests of the guests, natively", || {
        let mut command = repo.cargo_in(Path::new("guest-plugins"), &repo.guest_target());
        run_tests(command.args(["test", "--workspace"]), counts, say)
    });
    steps.check("tests of the host", || {
        run_tests(repo.cargo().args(["test", "--release", "--workspace", "--no-fail-fast"]), counts, say)
    });
    steps.check("a quick look at what it costs (the numbers decide nothing; they are in `bench.json`)", || {
        bench::build(repo)?;
        bench::quick(repo)
    });
    // In the dev profile, so that the release build keeps one set of features.
    steps.check("interleavings of the loop", || {
        let only = ["--package", "dsh-loop", "--features", "interleavings", "--test", "interleavings"];
        call(repo.cargo().arg("clippy").args(only).args(["--", "--deny", "warnings"]))?;
        run_tests(repo.cargo().arg("test").args(only), counts, say)
    });
}
