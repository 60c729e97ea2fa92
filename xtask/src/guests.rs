//! `cargo xtask guests`: builds the plugins and the tests' guests, and puts each component where the host and the tests look.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::progress::say;
use crate::repo::{Repo, WASM_TARGET, shown_command};

/// The workspaces of guests, and the folder below the build directory that gets their components.
pub const WORKSPACES: &[(&str, &str)] =
    &[("guest-plugins", "plugins"), ("tests/guests", "test-guests"), ("examples/word-count", "test-guests")];

/// Builds all of them.
pub fn run(repo: &Repo) -> Result<()> {
    for (folder, place) in WORKSPACES {
        if !repo.root.join(folder).join("Cargo.toml").is_file() {
            bail!("`{folder}/Cargo.toml` is missing: the checkout is not whole");
        }
        say(&format!("building {folder} for {WASM_TARGET} …"));
        let components = build(repo, Path::new(folder))?;
        let place = repo.target.join(place);
        fs::create_dir_all(&place).with_context(|| format!("cannot make `{}`", place.display()))?;
        let mut changed = 0;
        for component in &components {
            let to = place.join(component_name(component)?);
            if copy_if_changed(component, &to)? {
                changed += 1;
                say(&format!("  {}", repo.shown(&to)));
            }
        }
        say(&format!("{}: {} components, {changed} changed", repo.shown(&place), components.len()));
    }
    build_texts(repo)
}

/// The guests of WebAssembly text, and the folder below the build directory that gets their components.
const TEXTS: (&str, &str) = ("tests/guests/hostile", "test-guests/hostile");

/// Builds the guests that are WebAssembly text. What no text makes any more is removed, so that no case finds it.
fn build_texts(repo: &Repo) -> Result<()> {
    let place = repo.target.join(TEXTS.1);
    fs::create_dir_all(&place).with_context(|| format!("cannot make `{}`", place.display()))?;
    let guests = dsh_text_guests::find(&repo.root.join(TEXTS.0)).map_err(anyhow::Error::msg)?;
    for entry in fs::read_dir(&place)?.flatten() {
        let known = |guest: &dsh_text_guests::TextGuest| entry.file_name() == *format!("{}.wasm", guest.name);
        if !guests.iter().any(known) {
            fs::remove_file(entry.path())?;
        }
    }
    let mut changed = 0;
    for guest in &guests {
        let bytes = guest.component().map_err(anyhow::Error::msg)?;
        changed += usize::from(write_if_changed(&bytes, &place.join(format!("{}.wasm", guest.name)))?);
    }
    say(&format!("{}: {} components, {changed} changed", repo.shown(&place), guests.len()));
    Ok(())
}

/// Builds one workspace and returns its components.
fn build(repo: &Repo, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut command = repo.cargo_in(folder, &repo.guest_target());
    command.args([
        "build",
        "--release",
        "--workspace",
        "--target",
        WASM_TARGET,
        "--message-format",
        "json-render-diagnostics",
    ]);
    let name = shown_command(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{name}`"))?;
    let output = child.stdout.take().expect("invariant: standard output was piped above");
    let mut components = Vec::new();
    for line in BufReader::new(output).lines() {
        components.extend(components_of(&line.context("cannot read cargo's messages")?));
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{name}`"))?;
    if !status.success() {
        bail!("`{name}` in `{}` failed ({status})", folder.display());
    }
    components.sort();
    Ok(components)
}

/// The components that one message of cargo tells of; none for any other line.
fn components_of(message: &str) -> Vec<PathBuf> {
    let Ok(message) = serde_json::from_str::<Value>(message) else { return Vec::new() };
    if message["reason"] != "compiler-artifact" {
        return Vec::new();
    }
    let files = message["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
    files.map(PathBuf::from).filter(|file| file.extension().is_some_and(|extension| extension == "wasm")).collect()
}

/// `plan_mode.wasm` is called `plan-mode.wasm`, as its package is.
fn component_name(component: &Path) -> Result<String> {
    let name = component.file_name().and_then(|name| name.to_str()).context("a component without a name")?;
    Ok(name.replace('_', "-"))
}

/// Copies a file unless the same bytes are there already, so that what depends on its time is not made again. The copy appears whole.
fn copy_if_changed(from: &Path, to: &Path) -> Result<bool> {
    let bytes = fs::read(from).with_context(|| format!("cannot read `{}`", from.display()))?;
    write_if_changed(&bytes, to)
}

fn write_if_changed(bytes: &[u8], to: &Path) -> Result<bool> {
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    let partial = to.with_extension(format!("partial-{}", std::process::id()));
    fs::write(&partial, bytes)
        .and_then(|()| fs::rename(&partial, to))
        .with_context(|| format!("cannot write `{}`", to.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found_in_cargos_messages() {
        let check = |message: &str, expect: &[&str]| {
            assert_eq!(components_of(message), expect.iter().map(PathBuf::from).collect::<Vec<_>>());
        };
        check(r#"{"reason":"compiler-artifact","filenames":["/t/plan_mode.wasm"]}"#, &["/t/plan_mode.wasm"]);
        check(r#"{"reason":"compiler-artifact","filenames":["/t/libdsh_sdk.rlib","/t/libdsh_sdk.rmeta"]}"#, &[]);
        check(r#"{"reason":"build-finished","success":true}"#, &[]);
        check("warning: not JSON", &[]);
    }

    #[test]
    fn names_have_dashes() {
        assert_eq!(component_name(Path::new("/t/plan_mode.wasm")).unwrap(), "plan-mode.wasm");
    }

    #[test]
    fn only_what_changed_is_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a.wasm"), folder.path().join("b.wasm"));
        fs::write(&from, "one").unwrap();
        assert!(copy_if_changed(&from, &to).unwrap());
        assert!(!copy_if_changed(&from, &to).unwrap());
        fs::write(&from, "two").unwrap();
        assert!(copy_if_changed(&from, &to).unwrap());
        assert_eq!(fs::read_to_string(&to).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing partial is left");
    }
}
