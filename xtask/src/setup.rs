//! `cargo xtask setup`: makes the target for plugins available. Cargo and rustup bring everything else by themselves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::progress::say;
use crate::repo::{Repo, WASM_TARGET, call};

/// Sets up and says what was done.
pub fn run(repo: &Repo) -> Result<()> {
    let sysroot = sysroot(repo)?;
    if has_target(&sysroot) {
        say(&format!("{WASM_TARGET}: already there"));
        return Ok(());
    }
    say(&format!("{WASM_TARGET}: not there, asking rustup to add it …"));
    let added =
        call(Command::new("rustup").args(["target", "add", WASM_TARGET]).current_dir(&repo.root).stdin(Stdio::null()));
    if has_target(&sysroot) {
        say(&format!("{WASM_TARGET}: added by rustup"));
        return Ok(());
    }
    let what = "install the Rust that `rust-toolchain.toml` names with rustup, and when this machine has no network, copy \
                `lib/rustlib/wasm32-wasip2` of the same Rust version from another one";
    let place = sysroot.display();
    match added {
        Ok(()) => bail!(
            "the target {WASM_TARGET} is still missing in {place}: is another `rustc` first in PATH? hint: {what}"
        ),
        Err(error) => {
            Err(error).with_context(|| format!("the target {WASM_TARGET} is missing in {place}; hint: {what}"))
        }
    }
}

/// Where the compiler that cargo uses here keeps its libraries.
fn sysroot(repo: &Repo) -> Result<PathBuf> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir(&repo.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start `rustc`; hint: install Rust with rustup")?;
    if !output.status.success() {
        bail!("`rustc --print sysroot` failed ({})", output.status);
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end()))
}

/// Whether the standard library for plugins is there, which is what a build needs.
fn has_target(sysroot: &Path) -> bool {
    let libraries = sysroot.join("lib/rustlib").join(WASM_TARGET).join("lib");
    let Ok(entries) = std::fs::read_dir(libraries) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_there_when_its_standard_library_is() {
        let sysroot = tempfile::tempdir().unwrap();
        assert!(!has_target(sysroot.path()));
        let libraries = sysroot.path().join("lib/rustlib/wasm32-wasip2/lib");
        std::fs::create_dir_all(&libraries).unwrap();
        std::fs::write(libraries.join("libcore-1.rlib"), "").unwrap();
        assert!(!has_target(sysroot.path()));
        std::fs::write(libraries.join("libstd-1.rlib"), "").unwrap();
        assert!(has_target(sysroot.path()));
    }
}
