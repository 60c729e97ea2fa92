//! The data cases: every folder below `tests/cases` with a `case.toml` is a test of its own, found by walking.
//!
//! `UPDATE_EXPECT=1` writes `expect.txt` anew; read what it wrote before you keep it.

use std::process::ExitCode;

use dsh_tests::harness;
use libtest_mimic::{Arguments, Failed, Trial};

/// Cases that run at a time: most of them wait for a process.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(THREADS));
    let cases = dsh_tests::root().join("tests/cases");
    let update = harness::update();
    let trials = harness::find(&cases).into_iter().map(|dir| {
        let name = dir.strip_prefix(&cases).unwrap_or(&dir).to_string_lossy().into_owned();
        Trial::test(name, move || harness::run_case(&dir, update).map_err(Failed::from))
    });
    let trials: Vec<Trial> = trials.collect();
    assert!(!trials.is_empty(), "no case was found below {}", cases.display());
    libtest_mimic::run(&arguments, trials).exit_code()
}
