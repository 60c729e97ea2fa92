//! `config check`, `schema` and `trust`.

use std::path::PathBuf;

use dsh_seam::Seam;

use super::{print_json, print_line};
use crate::config::{self, trust};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::{diagnostics, resolve};

/// Validates a file as far as it can be without running anything: keys, names, grants, models, and the plugins' components.
pub fn check(named: Option<&PathBuf>, environment: &Environment) -> Result<Code, Stop> {
    let loaded = config::read_any(named, environment)?;
    let plan = resolve::configuration(&loaded, environment)?;
    for plugin in &plan.plugins {
        let what = format!("plugin `{}` (`{}`)", plugin.name, plugin.path.display());
        let bytes = std::fs::read(&plugin.path).map_err(|error| Stop::io(&plugin.path, &error))?;
        let inspection = dsh_wasm::inspect(&bytes)
            .map_err(|refusal| Stop::usage(format!("{what}: {refusal}")).hint(refusal.hint()))?;
        let missing = plugin.seams.iter().flatten().find(|seam| !inspection.seams.contains(seam));
        if let Some(seam) = missing {
            let exports = inspection.seams.iter().map(|seam: &Seam| format!("`{seam}`")).collect::<Vec<_>>().join(", ");
            return Err(Stop::usage(format!("{what}: `seams` names `{seam}`, which it does not export"))
                .hint(format!("it exports {exports}")));
        }
    }
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    print_line(&format!(
        "{} is valid: {}, {}, {}",
        loaded.shown,
        count(plan.agents.len(), "agent"),
        count(plan.plugins.len(), "plugin"),
        count(plan.providers.len(), "provider"),
    ))?;
    if trust::harm(&loaded).is_some() && !trust::is_trusted(&loaded, environment) {
        diagnostics::note(
            "it is not trusted: it counts when it is named with `--config`, or after `dsh-host config trust`",
        );
    }
    Ok(Code::Success)
}

/// Trusts a file and its plugins as they are now.
pub fn trust(named: Option<&PathBuf>, environment: &Environment) -> Result<Code, Stop> {
    let loaded = config::read_any(named, environment)?;
    resolve::configuration(&loaded, environment)?;
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
