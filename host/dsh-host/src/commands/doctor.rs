//! `doctor`: what this machine can enforce, where things are kept, and which models are usable. A line each; no secret is shown.

use std::path::Path;

use dsh_seam::tools::{Access, NetworkPolicy, PathGrant, Processes, Profile};
use dsh_services::processes::HostProcesses;

use super::{columns, models, print};
use crate::compose;
use crate::config::{self, sources, trust};
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::resolve::{Compiling, providers};

/// Says it all.
pub fn run(named: Option<&Path>, environment: &Environment) -> Result<Code, Stop> {
    let mut rows = Vec::new();
    let mut say = |what: &str, text: String| rows.push(vec![what.to_owned(), text]);
    let system = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    say(
        "dsh-host",
        format!(
            "{} on {} {} ({})",
            env!("CARGO_PKG_VERSION"),
            text(system.sysname()),
            text(system.release()),
            text(system.machine())
        ),
    );
    say("engine", engine(environment));
    let processes = HostProcesses::new(environment.working_directory.clone());
    let read_only =
        Profile { paths: vec![PathGrant { path: ".".into(), access: Access::Read }], ..Profile::unrestricted() };
    say(
        "programs: files",
        enforceable(
            &processes,
            &read_only,
            "held by the kernel (Landlock; attributes too when nothing may be written)",
        ),
    );
    let offline = Profile { network: NetworkPolicy::Closed, ..Profile::unrestricted() };
    say("programs: network", enforceable(&processes, &offline, "closed by the kernel (seccomp)"));
    let hosts = Profile { network: NetworkPolicy::Hosts(vec!["example.com".into()]), ..Profile::unrestricted() };
    say("programs: single hosts", enforceable(&processes, &hosts, "held by the kernel"));
    say("data", folder(environment.data_directory(), "sessions need `--session DIR` or `--no-save`"));
    say("cache", folder(environment.cache_directory(), "each run compiles its plugins"));
    let shipped = sources::shipped(environment);
    say(
        "shipped plugins",
        if shipped.is_empty() { "none found beside the executable".into() } else { shipped.join(", ") },
    );
    let config = configuration(named, environment, &mut say);
    match providers::at_addresses(config.as_ref(), None, None, environment) {
        Err(stop) => say("providers", stop.message),
        Ok(providers) => {
            for provider in providers {
                let (usable, state) = models::state(&provider);
                let usable = if usable { "usable" } else { "not usable" };
                say(&format!("provider {}", provider.name), format!("{usable}: {state}"));
            }
        }
    }
    print(&columns(&rows))?;
    Ok(Code::Success)
}

fn engine(environment: &Environment) -> String {
    match compose::engine(None, environment, None, &Compiling::default()) {
        Ok(engine) => {
            let pool = if engine.is_pooled() { "instances from a pool" } else { "instances one by one (slower)" };
            let cache = if engine.is_cached() { "compiled plugins are kept" } else { "compiled plugins are not kept" };
            format!("WebAssembly works: {pool}, {cache}")
        }
        Err(stop) => format!("WebAssembly does not work: {}", stop.message),
    }
}

fn enforceable(processes: &HostProcesses, profile: &Profile, yes: &str) -> String {
    match processes.enforceable(profile) {
        Ok(()) => yes.to_owned(),
        Err(failure) => format!("not held: {}", failure.message),
    }
}

fn folder(path: Option<std::path::PathBuf>, without: &str) -> String {
    let Some(path) = path else { return format!("none (set `DSH_HOME`): {without}") };
    let nearest = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let writable = rustix::fs::access(nearest, rustix::fs::Access::WRITE_OK).is_ok();
    let state = if writable { "writable".to_owned() } else { format!("not writable: {without}") };
    format!("{} ({state})", path.display())
}

/// The configuration, if it counts.
fn configuration(
    named: Option<&Path>,
    environment: &Environment,
    say: &mut impl FnMut(&str, String),
) -> Option<config::Loaded> {
    let is_there = named.is_some() || environment.path(config::FILE_NAME).exists();
    if !is_there {
        say("configuration", format!("no `{}` here", config::FILE_NAME));
        return None;
    }
    match config::read_any(named.map(Path::to_path_buf).as_ref(), environment) {
        Err(stop) => say("configuration", stop.message),
        Ok(loaded) if named.is_some() => {
            say("configuration", format!("{}, named", loaded.shown));
            return Some(loaded);
        }
        Ok(loaded) if trust::is_trusted(&loaded, environment) => {
            say("configuration", format!("{}, trusted", loaded.shown));
            return Some(loaded);
        }
        Ok(loaded) if trust::harm(&loaded).is_none() => {
            say("configuration", format!("{}, not trusted, describes agents only", loaded.shown))
        }
        Ok(loaded) => say("configuration", format!("{}, not trusted: see `dsh-host config trust`", loaded.shown)),
    }
    None
}
