//! What the tests of dsh-host from outside share: data cases, the process that runs them, and the checks that hold after every run.

pub mod aftermath;
pub mod case;
pub mod checks;
pub mod conversation;
pub mod faults;
pub mod harness;
pub mod host;
pub mod live;
pub mod log;
pub mod mock_server;
pub mod normal;
pub mod parallel;
pub mod reference;
pub mod sandbox;

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies below the root").to_owned()
}

/// Where builds go.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}
