//! `cargo xtask freeze VERSION`: copies the contract of a version that is about to be released to `wit/frozen/VERSION`.
//!
//! From then on `tests/tests/wit_contract.rs` notices every change of the copy, and everything in `wit/` that would break plugins
//! of that version. The pin itself stands in that test, so that no command can move it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::progress::say;
use crate::repo::Repo;
use crate::sums;

/// What `freeze` is told.
#[derive(clap::Args)]
pub struct Options {
    /// The version, such as `0.1.0`
    version: String,
}

/// Makes the copy and prints the line that pins it.
pub fn run(repo: &Repo, options: &Options) -> Result<()> {
    let wit = repo.root.join("wit");
    let version = &options.version;
    let to = wit.join("frozen").join(version);
    if to.exists() {
        bail!("`{}` is there already: what was released stays as it was; hint: freeze a new version", repo.shown(&to));
    }
    let files = contract_files(&wit)?;
    let wanted = format!("@{version};");
    if !files.iter().any(|(_, text)| text.lines().any(|line| line.starts_with("package ") && line.ends_with(&wanted))) {
        bail!("no package in `wit` has the version `{version}`");
    }
    let pin = write_copy(&files, &to)?;
    say(&format!("{} files copied to {}", files.len(), repo.shown(&to)));
    say("add to RELEASED in tests/tests/wit_contract.rs:");
    say(&format!("    (\"{version}\", \"{pin}\"),"));
    Ok(())
}

/// The WIT files of the working copy by their names with `/`, sorted.
fn contract_files(wit: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut folders = vec![wit.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
            let path: PathBuf = entry?.path();
            if path.is_dir() {
                if path != wit.join("frozen") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "wit") {
                let name = path.strip_prefix(wit)?.to_string_lossy().replace('\\', "/");
                found.push((
                    name,
                    fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?,
                ));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the files and their sums, and returns the sum of the sums.
fn write_copy(files: &[(String, String)], to: &Path) -> Result<String> {
    let mut recorded = String::new();
    for (name, text) in files {
        let path = to.join(name);
        fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
        recorded.push_str(&sums::line(text.as_bytes(), name));
    }
    fs::write(to.join("SHA256SUMS"), &recorded)?;
    Ok(sums::hex(recorded.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_holds_the_contract_and_its_sums() {
        let folder = tempfile::tempdir().unwrap();
        let wit = folder.path().join("wit");
        fs::create_dir_all(wit.join("deps/llm")).unwrap();
        fs::create_dir_all(wit.join("frozen/0.0.1")).unwrap();
        fs::write(wit.join("plugin.wit"), "b").unwrap();
        fs::write(wit.join("README.md"), "no").unwrap();
        fs::write(wit.join("deps/llm/llm.wit"), "a").unwrap();
        fs::write(wit.join("frozen/0.0.1/plugin.wit"), "old").unwrap();
        let files = contract_files(&wit).unwrap();
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["deps/llm/llm.wit", "plugin.wit"]);
        let to = wit.join("frozen/0.1.0");
        let pin = write_copy(&files, &to).unwrap();
        let recorded = fs::read_to_string(to.join("SHA256SUMS")).unwrap();
        assert_eq!(recorded, format!("{}{}", sums::line(b"a", "deps/llm/llm.wit"), sums::line(b"b", "plugin.wit")));
        assert_eq!(pin, sums::hex(recorded.as_bytes()));
        assert_eq!(fs::read_to_string(to.join("deps/llm/llm.wit")).unwrap(), "a");
    }
}
