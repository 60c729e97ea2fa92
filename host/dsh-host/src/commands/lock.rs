//! `plugin lock`: writes down which plugins a run loads, and what each may do.

use serde::Serialize;

use super::{print, print_json};
use crate::args::{Options, Output};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::lock::{self, Changes, Lock, LockPlan, Read, Unread};
use crate::{compose, diagnostics, resolve};

#[derive(Serialize)]
struct Shown<'a> {
    file: String,
    written: bool,
    #[serde(flatten)]
    changes: &'a Changes,
}

/// Writes the lock file for the plugins that a run with these options would load, and says what is different. Every plugin is checked
/// first; no code of any is compiled or run. With `--locked` the file is only compared.
pub fn write(options: &Options, environment: &Environment) -> Result<Code, Stop> {
    let plan = resolve::lockable(options, environment)?;
    let mut read = Vec::new();
    for plugin in &plan.plugins {
        let bytes = compose::component(plugin)?;
        read.push(Read { inspection: dsh_wasm::inspect(&bytes), ..Read::of(plugin, &bytes) });
    }
    let new = lock::lock_of(&read)?;
    let place = &plan.lock;
    let old = match Lock::read(&place.path, &place.shown) {
        Ok(old) => Some(old),
        Err(Unread::Missing) => None,
        Err(Unread::Ill(stop)) => {
            diagnostics::note(format_args!("the old lock file is replaced without a comparison: {}", stop.message));
            None
        }
        Err(Unread::NoFile(stop)) => return Err(stop.hint(lock::NAME_A_FILE)),
    };
    if plan.plugins.is_empty() && !options.locked && old.as_ref().is_some_and(|old| old.entries().count() > 0) {
        return Err(Stop::usage(format!("no plugin is loaded, and `{}` has some: it is kept as it is", place.shown))
            .hint("name the plugins, `dsh-host plugin lock --plugin REF` or `--config FILE`; delete the file if there are none any more"));
    }
    let changed = old.as_ref() != Some(&new);
    let written = changed && !options.locked;
    if written {
        new.write(&place.path).map_err(|error| Stop::io(&place.path, &error))?;
    }
    let changes = Changes::between(&old.unwrap_or_default(), &new);
    if plan.output != Output::Text {
        let shown = Shown { file: place.path.display().to_string(), written, changes: &changes };
        print_json(&shown)?;
    } else {
        print(&text(&changes, &new, place, changed, written))?;
    }
    if changed && !written {
        return Err(Stop::usage(format!("`{}` is not up to date, and `--locked` keeps it as it is", place.shown))
            .hint(format!("write it with `{}`", place.command)));
    }
    Ok(Code::Success)
}

fn text(changes: &Changes, new: &Lock, place: &LockPlan, changed: bool, written: bool) -> String {
    let count = new.entries().count();
    let plugins = if count == 1 { "1 plugin".to_owned() } else { format!("{count} plugins") };
    match (changed, written) {
        (true, true) => format!("{changes}{} is written: {plugins}\n", place.shown),
        (true, false) => changes.to_string(),
        (false, _) => format!("{changes}{} is up to date: {plugins}\n", place.shown),
    }
}
