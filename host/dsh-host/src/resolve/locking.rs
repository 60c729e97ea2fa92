//! Which lock file counts for a run, and what would write it.

use std::path::Path;

use super::Scope;
use crate::lock::{FILE_NAME, LockPlan, shell_word};

/// The lock file that is named, else the one beside the configuration in force, else the one in the working directory. `added` is
/// whether the model makes the host add a plugin.
pub fn resolve(scope: &Scope<'_>, added: bool) -> LockPlan {
    let named = scope.path(scope.options.lock_file.as_ref(), |config| config.file.lock_file.as_ref());
    let (path, shown) = match (named, scope.config) {
        (Some(path), _) => {
            let typed = scope.options.lock_file.as_deref().unwrap_or(&path).display().to_string();
            (path, typed)
        }
        (None, Some(config)) => {
            let shown = Path::new(&config.shown).with_file_name(FILE_NAME);
            (config.folder().join(FILE_NAME), shown.display().to_string())
        }
        (None, None) => (scope.environment.path(FILE_NAME), FILE_NAME.to_owned()),
    };
    let required = scope.options.locked || scope.key(|file| file.locked).unwrap_or(false);
    LockPlan { path, shown, required, command: command(scope, added) }
}

/// The options of this run that decide which plugins it loads and what each may do, behind `plugin lock`.
fn command(scope: &Scope<'_>, added: bool) -> String {
    let options = scope.options;
    let mut words = vec!["dsh-host plugin lock".to_owned()];
    let mut push = |option: &str, value: &str| words.push(format!("{option} {}", shell_word(value)));
    let configured = options.config.as_ref().map(|path| path.display().to_string());
    configured.iter().for_each(|config| push("--config", config));
    options.plugins.iter().for_each(|plugin| push("--plugin", plugin));
    options.grants.iter().for_each(|grant| push("--grant", grant));
    options.agent.iter().for_each(|agent| push("--agent", agent));
    if added {
        options.model.iter().for_each(|model| push("--model", model));
        options.base_url.iter().for_each(|url| push("--base-url", url));
    }
    let lock_file = options.lock_file.as_ref().map(|path| path.display().to_string());
    lock_file.iter().for_each(|file| push("--lock-file", file));
    if options.no_default_plugins {
        words.push("--no-default-plugins".into());
    }
    words.join(" ")
}
