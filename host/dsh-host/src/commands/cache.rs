//! `cache`: to look at the machine code that is kept, and to clean it away.

use std::time::{Duration, SystemTime};

use dsh_wasm::{CacheEntry, CacheView};
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

use super::{columns, print, print_json, print_line};
use crate::args::{CacheCommand, Shape};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::hash;
use crate::output::chat::tame;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What a program reads about an entry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    sha256: &'a str,
    plugin: Option<&'a str>,
    engine: Option<&'a str>,
    usable: bool,
    component_size: Option<u64>,
    size: u64,
    /// In Unix milliseconds.
    used: u64,
    file: &'a str,
}

/// What a program reads about the cache as a whole.
#[derive(Serialize)]
struct Summary {
    directory: String,
    entries: usize,
    size: u64,
    usable: usize,
}

/// What a program reads about a cleaning.
#[derive(Serialize)]
struct Cleaned {
    directory: String,
    removed: usize,
    freed: u64,
    kept: usize,
}

/// Does what is asked for.
pub fn run(command: Option<&CacheCommand>, shape: Shape, environment: &Environment) -> Result<Code, Stop> {
    let directory = environment
        .cache_directory()
        .ok_or_else(|| Stop::usage("there is no cache directory").hint("set `DSH_HOME`, `XDG_CACHE_HOME` or `HOME`"))?;
    let shown = directory.display().to_string();
    if let Some(CacheCommand::Dir) = command {
        return print_line(&shown).map(|()| Code::Success);
    }
    let view = CacheView::open(&directory).map_err(|error| Stop::usage(error.to_string()))?;
    let entries = view.as_ref().map(CacheView::entries).transpose();
    let entries = entries.map_err(|error| Stop::io(&directory, &error))?.unwrap_or_default();
    match command {
        None => summary(shown, &entries, shape),
        Some(CacheCommand::List { output }) => list(&entries, *output),
        Some(CacheCommand::Clean { older_than, unused_engine, output }) => {
            let goes = |entry: &CacheEntry| {
                older_than.is_none_or(|days| entry.is_older(DAY * days)) && !(*unused_engine && entry.usable)
            };
            let (gone, kept): (Vec<_>, Vec<_>) = entries.into_iter().partition(goes);
            if let Some(view) = &view {
                gone.iter().try_for_each(|entry| view.remove(entry)).map_err(|error| Stop::io(&directory, &error))?;
                view.sweep();
            }
            let freed = gone.iter().map(|entry| entry.bytes).sum();
            cleaned(&Cleaned { directory: shown, removed: gone.len(), freed, kept: kept.len() }, *output)
        }
        Some(CacheCommand::Dir) => Ok(Code::Success),
    }
}

fn summary(directory: String, entries: &[CacheEntry], shape: Shape) -> Result<Code, Stop> {
    let size = entries.iter().map(|entry| entry.bytes).sum();
    let usable = entries.iter().filter(|entry| entry.usable).count();
    let summary = Summary { directory, entries: entries.len(), size, usable };
    if shape == Shape::Json {
        return print_json(&summary).map(|()| Code::Success);
    }
    let row = |key: &str, value: String| vec![key.to_owned(), value];
    print(&columns(&[
        row("directory", summary.directory),
        row("entries", format!("{} ({usable} for this version of the host on this machine)", entries.len())),
        row("size", size_text(size)),
    ]))?;
    Ok(Code::Success)
}

fn list(entries: &[CacheEntry], shape: Shape) -> Result<Code, Stop> {
    if shape == Shape::Json {
        let shown: Vec<Shown<'_>> = entries.iter().map(shown).collect();
        return print_json(&shown).map(|()| Code::Success);
    }
    let row = |entry: &CacheEntry| {
        let state = if entry.usable { "" } else { "not for this host" };
        vec![
            // A name that is no hash may be anything.
            tame(&entry.sha256.chars().take(hash::SHOWN).collect::<String>()),
            entry.plugin.clone().unwrap_or_else(|| "?".into()),
            size_text(entry.bytes),
            date(entry.used),
            entry.engine.clone().unwrap_or_else(|| "?".into()),
            state.to_owned(),
        ]
    };
    print(&columns(&entries.iter().map(row).collect::<Vec<_>>()))?;
    Ok(Code::Success)
}

fn shown(entry: &CacheEntry) -> Shown<'_> {
    let CacheEntry { file, sha256, plugin, engine, usable, component_bytes, bytes, used } = entry;
    let used = used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    Shown {
        sha256,
        plugin: plugin.as_deref(),
        engine: engine.as_deref(),
        usable: *usable,
        component_size: *component_bytes,
        size: *bytes,
        used: u64::try_from(used).unwrap_or(u64::MAX),
        file,
    }
}

fn cleaned(done: &Cleaned, shape: Shape) -> Result<Code, Stop> {
    match shape {
        Shape::Json => print_json(done)?,
        Shape::Text => {
            let Cleaned { directory, removed, freed, kept } = done;
            let freed = size_text(*freed);
            print_line(&format!("{removed} removed from `{directory}` ({freed}), {kept} kept"))?;
        }
    }
    Ok(Code::Success)
}

fn size_text(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1024))
}

fn date(time: SystemTime) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]");
    OffsetDateTime::from(time).format(&format).unwrap_or_default()
}
