//! Preloads the fault library (`tests/faults`, where the faults are listed) into the built binary.

use std::path::{Path, PathBuf};

/// The library; cargo builds it beside the test programs, since they name it as a dependency.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a test program knows where it is");
    let library = program.with_file_name("libdsh_faults.so");
    assert!(library.is_file(), "{} is missing: `cargo build -p dsh-tests --tests` makes it", library.display());
    library
}

/// The variables for a run whose calls on files below `folder` are counted and written to `record`.
pub fn counted(folder: &Path, record: &Path) -> Vec<(String, String)> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    [("LD_PRELOAD", path(&library())), ("DSH_FAULTS_BELOW", path(folder)), ("DSH_FAULTS_LOG", path(record))]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// The variables for `fault` at the call `at` (`7`, or `7+` for all later ones too).
pub fn at(fault: &str, at: impl ToString) -> Vec<(String, String)> {
    [("DSH_FAULT", fault.to_owned()), ("DSH_FAULT_AT", at.to_string())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// A call that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `write`, `fdatasync`, …
    pub name: String,
    /// How many bytes were to be written.
    pub bytes: usize,
    /// The file, from the folder on.
    pub file: String,
}

/// The calls that a run made, in order.
pub fn calls(record: &Path) -> Vec<Call> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let call = |line: &str| {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        let (name, bytes, file) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Call { name, bytes, file })
    };
    text.lines().filter_map(call).collect()
}
