//! `cargo xtask dist`: the archive that users get, with its sum beside it.
//!
//! The binary is built as `release` is, with link-time optimisation and without incremental compilation on top, in a build
//! directory of its own, so that the one the tests use stays as it is. The plugins stand in `plugins/` beside the binary, where
//! it looks for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::progress::{Steps, say};
use crate::repo::{Repo, call};
use crate::{guests, setup, sums};

/// Files of the root that go into the archive.
const ROOT_FILES: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Builds and packs.
pub fn run(repo: &Repo) -> Result<()> {
    let mut steps = Steps::new(4);
    steps.step("set up", || setup::run(repo))?;
    steps.step("build the guests", || guests::run(repo))?;
    let build = repo.target.join("dist-build");
    steps.step("build the host with link-time optimisation (many minutes)", || {
        let mut command = repo.cargo_in(Path::new("."), &build);
        command.args(["build", "--release", "--package", "dsh-host", "--locked"]);
        command.env("CARGO_PROFILE_RELEASE_LTO", "thin").env("CARGO_PROFILE_RELEASE_INCREMENTAL", "false");
        call(command.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"))
    })?;
    steps.step("pack", || pack(repo, &build))
}

fn pack(repo: &Repo, build: &Path) -> Result<()> {
    let name = format!("dsh-host-{}-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    let dist = repo.target.join("dist");
    let folder = dist.join(&name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot clear `{}`", folder.display()))?;
    }
    fs::create_dir_all(folder.join("plugins"))?;
    let binary = format!("dsh-host{}", std::env::consts::EXE_SUFFIX);
    copy(&build.join("release").join(&binary), &folder.join(&binary))?;
    for plugin in components(&repo.target.join("plugins"))? {
        let file = plugin.file_name().context("a component has a name")?;
        copy(&plugin, &folder.join("plugins").join(file))?;
    }
    for file in ROOT_FILES {
        copy(&repo.root.join(file), &folder.join(file))?;
    }
    let archive = dist.join(format!("{name}.tar.gz"));
    call(Command::new("tar").arg("-C").arg(&dist).arg("-czf").arg(&archive).arg(&name))?;
    let line = sums::line(&fs::read(&archive)?, &format!("{name}.tar.gz"));
    fs::write(dist.join(format!("{name}.tar.gz.sha256")), &line)?;
    say(&repo.shown(&archive));
    say(line.trim_end());
    Ok(())
}

fn components(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))?;
    Ok(())
}
