//! `plugin compile`: machine code ahead of time, for a pipeline or an image.

use std::path::Path;
use std::time::Instant;

use dsh_seam::PluginName;
use dsh_wasm::{Precompiled, Readers, Target};
use futures::future::join_all;
use serde::Serialize;

use super::{columns, print, print_json};
use crate::args::{CompileCommand, CompileTarget, Shape};
use crate::compose::{self, Kept};
use crate::config::sources;
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::resolve::Compiling;

/// What a program reads about one component.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    name: String,
    file: String,
    sha256: String,
    size: usize,
    entry: String,
    entry_size: u64,
    /// None: it was there already.
    compile_ms: Option<u64>,
}

/// Compiles components into the cache, or into a folder that is to become somebody's cache.
pub async fn run(command: &CompileCommand, environment: &Environment) -> Result<Code, Stop> {
    let kept = match &command.into {
        Some(folder) => Kept { directory: Some(environment.path(folder)), readers: Readers::Everybody },
        None => Kept { directory: environment.cache_directory(), readers: Readers::User },
    };
    let directory = kept.directory.clone().ok_or_else(|| {
        Stop::usage("there is no cache to compile into").hint("name a folder with `--into DIR`, or set `DSH_HOME`")
    })?;
    let target = match command.target {
        CompileTarget::Native => Target::Native,
        CompileTarget::Baseline => Target::Baseline,
    };
    let compiling = Compiling::new(&command.compiling, None);
    let engine = compose::compiler(&compiling, kept, environment)?;
    if !engine.is_cached() {
        return Err(not_kept(&directory));
    }
    let begun = Instant::now();
    let compile = async |file: &String| {
        let path = sources::locate(file, sources::Place::Argument, &environment.working_directory, environment)?;
        let bytes = sources::read(&path).map_err(|unread| unread.stop(&format!("`{file}`"), &path))?;
        // A file may have any name; what counts is what is in it.
        let name = sources::name_of(file)
            .unwrap_or_else(|_| PluginName::new("plugin").expect("invariant: `plugin` is a valid name"));
        let made = engine.precompile(bytes, name.clone(), target).await;
        let made = made.map_err(|refusal| compose::refused(&format!("`{file}`"), &refusal.into()))?;
        made.map(|made| shown(&name, &path, made)).ok_or_else(|| not_kept(&directory))
    };
    let (done, stops): (Vec<_>, Vec<_>) =
        join_all(command.files.iter().map(compile)).await.into_iter().partition(Result::is_ok);
    let mut stops: Vec<Stop> = stops.into_iter().filter_map(Result::err).collect();
    // A cache that cannot be written is told once.
    stops.dedup_by(|one, before| one.message == before.message);
    if let Some(stop) = Stop::together(stops) {
        return Err(stop);
    }
    let done: Vec<Shown> = done.into_iter().filter_map(Result::ok).collect();
    match command.output {
        Shape::Json => print_json(&done)?,
        Shape::Text => print(&text(&done))?,
    }
    tracing::info!("compiled in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(Code::Success)
}

fn shown(name: &PluginName, path: &Path, made: Precompiled) -> Shown {
    Shown {
        name: name.to_string(),
        file: path.display().to_string(),
        sha256: made.inspection.sha256,
        size: made.inspection.size,
        entry: made.path.display().to_string(),
        entry_size: made.bytes,
        compile_ms: made.took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn not_kept(directory: &Path) -> Stop {
    Stop::usage(format!("nothing can be kept in `{}`", directory.display()))
        .hint("name another folder with `--into DIR`; the line above says what is wrong with this one")
}

fn text(done: &[Shown]) -> String {
    let row = |shown: &Shown| {
        let state = if shown.compile_ms.is_some() { "compiled" } else { "there already" };
        vec![shown.name.clone(), state.to_owned(), shown.entry.clone()]
    };
    columns(&done.iter().map(row).collect::<Vec<_>>())
}
