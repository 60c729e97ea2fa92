//! `plugin lock`: writes down which plugins a run loads, and what each may do.

use serde::Serialize;

use super::{print, print_json};
use crate::args::{Options, Output};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::lock::{self, Changes, Lock, Read, Unread};
use crate::{compose, diagnostics, resolve};

#[derive(Serialize)]
struct Shown<'a> {
    file: String,
    written: bool,
    #[serde(flatten)]
    changes: &'a Changes,
}

/// Writes the lock file for the plugins that a run with these options would load, and says what is different. Every plugin is checked
/// first; no code of any is compiled or run.
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
    };
    let written = old.as_ref() != Some(&new);
    if written {
        new.write(&place.path).map_err(|error| Stop::io(&place.path, &error))?;
    }
    let changes = Changes::between(&old.unwrap_or_default(), &new);
    if plan.output != Output::Text {
        let shown = Shown { file: place.path.display().to_string(), written, changes: &changes };
        return print_json(&shown).map(|()| Code::Success);
    }
    let count = new.entries().count();
    let plugins = if count == 1 { "1 plugin".to_owned() } else { format!("{count} plugins") };
    let did = if written { "written" } else { "up to date" };
    print(&format!("{changes}{} is {did}: {plugins}\n", place.shown))?;
    Ok(Code::Success)
}
