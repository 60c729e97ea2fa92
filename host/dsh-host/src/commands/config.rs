//! `config check`, `schema` and `trust`.

use std::path::PathBuf;

use dsh_wasm::{Grants, LoadError};

use super::{print_json, print_line};
use crate::args::Options;
use crate::config::{self, trust};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::resolve::{self, PluginPlan};
use crate::{compose, diagnostics, lock};

/// Validates a file as far as it can be without running anything: keys, names, grants, models, the plugins' components, and the lock.
pub fn check(options: Options, environment: &Environment) -> Result<Code, Stop> {
    let loaded = config::read_any(options.config.as_ref(), environment)?;
    let plan = resolve::configuration(&options, &loaded, environment)?;
    let mut stops = Vec::new();
    let mut files = Vec::new();
    for plugin in &plan.plugins {
        match compose::component(plugin) {
            Ok(bytes) => {
                stops.extend(does_not_fit(plugin, &bytes));
                files.push((plugin, bytes));
            }
            Err(stop) => stops.push(stop),
        }
    }
    let pairs: Vec<_> = files.iter().map(|(plugin, bytes)| (*plugin, bytes.as_slice())).collect();
    stops.extend(lock::check(&plan.lock, &pairs).err());
    if let Some(stop) = Stop::together(stops) {
        return Err(stop);
    }
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    print_line(&format!(
        "{} is valid: {}, {}, {}",
        loaded.shown,
        count(plan.agents.len(), "agent"),
        count(plan.plugins.len(), "plugin"),
        count(plan.providers.iter().filter(|provider| provider.is_configured).count(), "provider"),
    ))?;
    if trust::harm(&loaded).is_some() && !trust::is_trusted(&loaded, environment) {
        diagnostics::note(
            "it is not trusted: it counts when it is named with `--config`, or after `dsh-host config trust`",
        );
    }
    Ok(Code::Success)
}

/// Why a plugin would not load as it is configured, as far as its bytes tell.
fn does_not_fit(plugin: &PluginPlan, bytes: &[u8]) -> Option<Stop> {
    let authority = dsh_wasm::inspect(bytes).map_err(LoadError::from).and_then(|inspection| {
        inspection.authority(Grants::new(plugin.grants.iter().cloned()), plugin.seams.as_deref())
    });
    let what = format!("plugin `{}` (`{}`)", plugin.name, plugin.path.display());
    authority.err().map(|error| compose::refused(&what, &error))
}

/// Trusts a file and its plugins as they are now.
pub fn trust(named: Option<&PathBuf>, environment: &Environment) -> Result<Code, Stop> {
    let loaded = config::read_any(named, environment)?;
    resolve::configuration(&Options::default(), &loaded, environment)?;
    let plugins = trust::trust(&loaded, environment)?;
    print_line(&format!("trusted: {}", loaded.path.display()))?;
    for plugin in plugins {
        print_line(&format!("trusted: {}", plugin.display()))?;
    }
    Ok(Code::Success)
}

/// Prints the JSON Schema.
pub fn schema() -> Result<Code, Stop> {
    print_json(&config::file::schema()).map(|()| Code::Success)
}
