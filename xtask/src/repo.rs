//! Where things are, and how other programs are called.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The target that plugins are built for.
pub const WASM_TARGET: &str = "wasm32-wasip2";

/// This checkout and its build directory.
pub struct Repo {
    /// The root of the checkout.
    pub root: PathBuf,
    /// `CARGO_TARGET_DIR`, else `target` in the root.
    pub target: PathBuf,
    cargo: OsString,
}

impl Repo {
    /// Finds the checkout this command was started for.
    pub fn find() -> Result<Self> {
        // `cargo run` sets both; a binary that is called directly falls back to where it was built.
        let manifest =
            std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        let root = manifest.parent().context("the folder of xtask has no parent")?.to_path_buf();
        if !root.join("host").is_dir() {
            bail!("`{}` is not a checkout of this repository; call `cargo xtask` from inside one", root.display());
        }
        let target = match std::env::var_os("CARGO_TARGET_DIR").filter(|value| !value.is_empty()) {
            Some(value) => std::path::absolute(value).context("`CARGO_TARGET_DIR` is not a path")?,
            None => root.join("target"),
        };
        Ok(Self { root, target, cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()) })
    }

    /// Cargo in the root, with the build directory of the host.
    pub fn cargo(&self) -> Command {
        self.cargo_in(Path::new("."), &self.target)
    }

    /// Cargo in the workspace `folder`, relative to the root, with a build directory of its own.
    pub fn cargo_in(&self, folder: &Path, target: &Path) -> Command {
        let mut command = Command::new(&self.cargo);
        command.current_dir(self.root.join(folder)).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
        command
    }

    /// Where the workspaces of guests are built.
    pub fn guest_target(&self) -> PathBuf {
        self.target.join("guests")
    }

    /// The binary that `cargo build --release` makes.
    pub fn host_binary(&self) -> PathBuf {
        self.target.join("release").join(format!("dsh-host{}", std::env::consts::EXE_SUFFIX))
    }

    /// A path as a person in the root would type it.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

/// Runs a command to its end, its output going where ours goes.
///
/// # Errors
/// When it cannot be started, and when it fails; both name the command.
pub fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", shown_command(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown_command(command));
    }
    Ok(())
}

/// A command as a person would type it, the program by its name only.
pub fn shown_command(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program()).to_string_lossy();
    let arguments = command.get_args().map(|argument| quoted(&argument.to_string_lossy()));
    std::iter::once(program.into_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// An argument as it is typed in a shell.
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+#".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_as_a_shell_needs_it() {
        let check = |argument: &str, expect: &str| assert_eq!(quoted(argument), expect);
        check("--model", "--model");
        check("files=fs:read:docs", "files=fs:read:docs");
        check("hi there", "'hi there'");
        check("", "''");
        check("it's", r"'it'\''s'");
        check("{\"a\":1}", "'{\"a\":1}'");
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = call(Command::new("false").arg("hi there")).unwrap_err().to_string();
        assert!(error.starts_with("`false 'hi there'` failed ("), "{error}");
        let error = call(&mut Command::new("no-such-program-here")).unwrap_err().to_string();
        assert_eq!(error, "cannot start `no-such-program-here`");
    }
}
