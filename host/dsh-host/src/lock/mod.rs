//! `dsh.lock`: which plugins somebody looked at and agreed to, to the byte, and what each may do.
//!
//! A lock only ever takes away: it grants nothing and loads nothing. What is compared with it are the very bytes that are loaded
//! afterwards, never a file that is read a second time, and nothing of a plugin is compiled or run before.

mod file;
mod report;

use std::path::PathBuf;

use dsh_wasm::{Grants, Inspection, LoadError, Refusal};

use crate::compose;
use crate::config::sources;
use crate::exit::Stop;
use crate::hash::short;
use crate::resolve::PluginPlan;
pub use file::{Entry, FILE_NAME, Lock, Unread};
pub use report::Changes;

/// Which lock file counts, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockPlan {
    /// Where it is, or would be.
    pub path: PathBuf,
    /// How messages call it.
    pub shown: String,
    /// Whether nothing may run that it does not have.
    pub required: bool,
    /// What to type to write it for what is asked for now.
    pub command: String,
}

/// A plugin as it was read: what is asked for it, and what it is.
pub struct Read<'a> {
    /// What is asked for.
    pub plan: &'a PluginPlan,
    /// What the file's bytes are, or why they are no plugin.
    pub inspection: Result<Inspection, Refusal>,
    /// The SHA-256 of these bytes.
    pub sha256: String,
}

impl<'a> Read<'a> {
    /// Looks at the bytes that are about to be loaded: at their names and their hash only.
    pub fn of(plan: &'a PluginPlan, bytes: &[u8]) -> Self {
        Self { plan, inspection: dsh_wasm::outline(bytes), sha256: dsh_wasm::sha256(bytes) }
    }

    /// What is in force for it.
    pub fn entry(&self) -> Result<Entry, LoadError> {
        let inspection = self.inspection.as_ref().map_err(|refusal| LoadError::Refused(refusal.clone()))?;
        let grants = Grants::new(self.plan.grants.iter().cloned());
        let authority = inspection.authority(grants, self.plan.seams.as_deref())?;
        Ok(Entry {
            name: self.plan.name.clone(),
            source: self.plan.source.clone(),
            sha256: self.sha256.clone(),
            grants: authority.grants,
            seams: authority.seams,
            ceiling: inspection.ceiling.as_ref().map(|ceiling| {
                let mut ceiling: Vec<String> = ceiling.iter().map(|entry| entry.capability.clone()).collect();
                ceiling.sort();
                ceiling.dedup();
                ceiling
            }),
        })
    }

    /// As messages call its file, and as `plugin check` takes it.
    fn shown(&self) -> String {
        if sources::is_path(&self.plan.source) {
            self.plan.path.display().to_string()
        } else {
            self.plan.source.clone()
        }
    }
}

/// One way in which a run is more than its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What it is.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// What to do when something else than a file has the lock's name.
pub const NAME_A_FILE: &str = "name a file with `--lock-file`";

/// Compares what is about to be loaded with the lock file: an error with everything that is wrong when it is required, else a warning
/// for each.
pub fn check(lock: &LockPlan, plugins: &[(&PluginPlan, &[u8])]) -> Result<(), Stop> {
    let problems = match (Lock::read(&lock.path, &lock.shown), lock.required) {
        (Ok(locked), _) => problems(&locked, lock, plugins),
        (Err(Unread::Missing), false) => return Ok(()),
        (Err(Unread::Missing), true) => {
            return Err(Stop::usage(format!("there is no `{}`, and `--locked` needs one", lock.shown))
                .hint(format!("write it with `{}`, look at it, and commit it", lock.command)));
        }
        (Err(Unread::NoFile(stop)), true) => return Err(stop.hint(NAME_A_FILE)),
        (Err(Unread::Ill(stop)), true) => {
            let anew = format!("write it anew with `{}`, and compare it with the committed one", lock.command);
            let hint = stop.hint.clone().unwrap_or(anew);
            return Err(stop.hint(hint));
        }
        (Err(Unread::Ill(stop) | Unread::NoFile(stop)), false) => {
            if !plugins.is_empty() {
                tracing::warn!("{}; it is not heeded, and with `--locked` nothing would run", stop.message);
            }
            return Ok(());
        }
    };
    if lock.required {
        let stops = problems.into_iter().map(|problem| Stop::usage(problem.message).hint(problem.hint));
        return Stop::together(stops).map_or(Ok(()), Err);
    }
    for problem in &problems {
        tracing::warn!("{}", problem.message);
    }
    if !problems.is_empty() {
        tracing::warn!("`--locked` would refuse this run; accept it as it is with `{}`", lock.command);
    }
    Ok(())
}

/// Everything that is more than the lock has, plugin by plugin.
fn problems(locked: &Lock, lock: &LockPlan, plugins: &[(&PluginPlan, &[u8])]) -> Vec<Problem> {
    let read = plugins.iter().map(|(plan, bytes)| Read::of(plan, bytes));
    read.flat_map(|plugin| of_plugin(locked.get(&plugin.plan.name), lock, &plugin)).collect()
}

fn of_plugin(locked: Option<&Entry>, lock: &LockPlan, plugin: &Read<'_>) -> Vec<Problem> {
    let (name, shown, file) = (&plugin.plan.name, &lock.shown, plugin.shown());
    // What nobody trusts yet is looked at without running any of it.
    let check = format!("`dsh-host plugin check {}`", shell_word(&file));
    let accept = format!("accept it with `{}`", lock.command);
    let Some(locked) = locked else {
        return vec![Problem {
            message: format!(
                "plugin `{name}` (`{file}`) is not in `{shown}`; its SHA-256 is {}",
                short(&plugin.sha256)
            ),
            hint: format!("look at it with {check}, then {accept}"),
        }];
    };
    let mut problems = Vec::new();
    if locked.sha256 != plugin.sha256 {
        let (old, new) = (short(&locked.sha256), short(&plugin.sha256));
        problems.push(Problem {
            message: format!("plugin `{name}` (`{file}`) has changed: `{shown}` has SHA-256 {old}, the file has {new}"),
            hint: format!("put back the file that was locked, or look at this one with {check} and {accept}"),
        });
    }
    // A file that is no plugin has no authority; the load says what is wrong with it.
    let Ok(asked) = plugin.entry() else { return problems };
    for grant in asked.grants.beyond(&locked.grants) {
        problems.push(Problem {
            message: format!("plugin `{name}` asks for the grant `{grant}`, which `{shown}` does not have"),
            hint: format!("take the grant away, or {accept}"),
        });
    }
    for seam in asked.seams.iter().filter(|seam| !locked.seams.contains(seam)) {
        problems.push(Problem {
            message: format!("plugin `{name}` takes part in `{seam}`, which `{shown}` does not have"),
            hint: format!("leave it out with `seams` in `dsh.toml`, or {accept}"),
        });
    }
    problems
}

/// A word as a shell takes it.
pub fn shell_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The lock of what was read, or everything that keeps a plugin from being locked.
pub fn lock_of(read: &[Read<'_>]) -> Result<Lock, Stop> {
    let mut entries = Vec::new();
    let mut stops = Vec::new();
    for plugin in read {
        match plugin.entry() {
            Ok(entry) => entries.push(entry),
            Err(error) => {
                let what = format!("plugin `{}` (`{}`)", plugin.plan.name, plugin.plan.path.display());
                stops.push(compose::refused(&what, &error));
            }
        }
    }
    Stop::together(stops).map_or_else(|| Ok(Lock::new(entries)), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        let check = |word: &str, expect: &str| assert_eq!(shell_word(word), expect);
        check("files=fs:read:.", "files=fs:read:.");
        check("a b", "'a b'");
        check("net:*.a.com", "'net:*.a.com'");
        check("it's", "'it'\\''s'");
        check("", "''");
    }
}
