//! `--watch`: a plugin whose file changes is loaded anew beside the one in use, and offered to the agents, which take it at their next
//! turn. One that cannot be loaded changes nothing.
//!
//! What the operator said at the start holds for every version: its configuration, its grants, its limits. Neither `dsh.toml` nor the
//! file of a `--plugin-config` is read again.
//!
//! `file` decides when a file is to be read, `fit` which new versions go together.

mod file;
mod fit;

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use dsh_loop::AgentLoop;
use dsh_seam::plugin::Plugin;
use dsh_wasm::{Engine, PluginSpec, WasmPlugin};
use futures::future::join_all;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::file::{POLL, Stamp, WatchedFile};
use crate::compose;
use crate::config::sources;
use crate::diagnostics;
use crate::env::Environment;
use crate::exit::Stop;
use crate::hash::short;
use crate::lock::{self, LockPlan};
use crate::resolve::{Plan, PluginPlan};
use crate::run::watch::Watch;

/// Watches until it is dropped.
pub struct Reloader(JoinHandle<()>);

impl Drop for Reloader {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reloader {
    /// Watches the files of `plugins`, which are those of the plan, for the agents of a loop.
    pub fn start(
        plan: &Plan,
        plugins: &[Arc<WasmPlugin>],
        agents: AgentLoop,
        watch: Arc<Watch>,
        environment: &Environment,
    ) -> Result<Option<Self>, Stop> {
        let Some(first) = plugins.first() else {
            diagnostics::note("`--watch`: no plugin is loaded, so nothing is watched");
            return Ok(None);
        };
        let watched = |(plan, plugin): (&PluginPlan, &Arc<WasmPlugin>)| {
            Ok(Watched {
                spec: compose::spec(plan, environment)?,
                plan: plan.clone(),
                file: WatchedFile::default(),
                in_use: plugin.clone(),
                newer: None,
                known: vec![Arc::downgrade(plugin)],
            })
        };
        let watcher = Watcher {
            plugins: plan.plugins.iter().zip(plugins).map(watched).collect::<Result<_, Stop>>()?,
            engine: first.engine(),
            lock: plan.lock.required.then(|| plan.lock.clone()),
            agents,
            watch,
        };
        Ok(Some(Self(tokio::spawn(watcher.run()))))
    }
}

struct Watcher {
    plugins: Vec<Watched>,
    engine: Engine,
    /// The lock file that every version must be in.
    lock: Option<LockPlan>,
    agents: AgentLoop,
    watch: Arc<Watch>,
}

/// A plugin and the versions of it.
struct Watched {
    plan: PluginPlan,
    spec: PluginSpec,
    file: WatchedFile,
    /// What the agents have, or take at their next turn.
    in_use: Arc<WasmPlugin>,
    /// A newer one whose tools are in the way of those of others.
    newer: Option<Arc<WasmPlugin>>,
    /// Versions that some agent may still have.
    known: Vec<Weak<WasmPlugin>>,
}

/// What was read of a file.
struct Read {
    stamp: Stamp,
    bytes: Result<Vec<u8>, Stop>,
}

/// What became of a file that was read.
enum Loaded {
    /// It is what is in use.
    Same,
    /// It is another version; `known` when some agent has it still.
    Version { plugin: Arc<WasmPlugin>, known: bool },
    /// It cannot be loaded.
    Broken(String),
}

impl Watcher {
    async fn run(mut self) {
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let stamps = self.stamps().await;
            let now = Instant::now();
            let mut due = Vec::new();
            for (place, (plugin, stamp)) in self.plugins.iter_mut().zip(stamps).enumerate() {
                if plugin.file.look(stamp, now) {
                    due.push(place);
                }
                if let Some(complaint) = plugin.file.complaint(now) {
                    self.watch.aside(|| diagnostics::complain(complaint));
                }
            }
            if !due.is_empty() {
                self.take(due).await;
            }
        }
    }

    /// How the files look; on a thread where waiting for another machine holds nobody up.
    async fn stamps(&self) -> Vec<Stamp> {
        let paths: Vec<PathBuf> = self.plugins.iter().map(|plugin| plugin.plan.path.clone()).collect();
        let count = paths.len();
        let looked = spawn_blocking(move || paths.iter().map(|path| Stamp::of(path)).collect()).await;
        looked.unwrap_or_else(|_| vec![Stamp::Unseen(std::io::ErrorKind::Other); count])
    }

    /// Reads and loads the files that changed, side by side, and offers what came of them.
    async fn take(&mut self, due: Vec<usize>) {
        let loads = due.iter().map(|place| self.load(&self.plugins[*place]));
        let loaded: Vec<(Stamp, Loaded)> = join_all(loads).await;
        let mut fresh = Vec::new();
        for (place, (stamp, loaded)) in due.into_iter().zip(loaded) {
            let plugin = &mut self.plugins[place];
            plugin.file.was_read(stamp, Instant::now());
            match loaded {
                Loaded::Same => plugin.newer = None,
                Loaded::Broken(complaint) => {
                    tracing::info!(plugin = %plugin.plan.name, "its file changed and cannot be loaded as it is now");
                    plugin.file.is_broken(complaint);
                    plugin.newer = None;
                }
                Loaded::Version { plugin: version, known } => {
                    plugin.newer = Some(version);
                    fresh.push((place, known));
                }
            }
        }
        if !fresh.is_empty() {
            self.offer(&fresh);
        }
    }

    /// Reads a plugin's file and loads what is in it, unless that is known.
    async fn load(&self, plugin: &Watched) -> (Stamp, Loaded) {
        let plan = plugin.plan.clone();
        let read = spawn_blocking(move || {
            let stamp = Stamp::of(&plan.path);
            let bytes = sources::read(&plan.path).map_err(|unread| unread.stop("its file", &plan.path));
            Read { stamp, bytes }
        });
        let Ok(Read { stamp, bytes }) = read.await else {
            return (Stamp::Unseen(std::io::ErrorKind::Other), Loaded::Same);
        };
        let loaded = match bytes {
            Ok(bytes) => self.load_bytes(plugin, bytes).await,
            Err(stop) => Err(plugin.not_loaded(stop)),
        };
        (stamp, loaded.unwrap_or_else(|stop| Loaded::Broken(complaint(&stop))))
    }

    async fn load_bytes(&self, plugin: &Watched, bytes: Vec<u8>) -> Result<Loaded, Stop> {
        let sha256 = Some(dsh_wasm::sha256(&bytes));
        let is_it = |version: &Arc<WasmPlugin>| version.sha256() == sha256.as_deref();
        if is_it(&plugin.in_use) {
            return Ok(Loaded::Same);
        }
        if let Some(version) = plugin.known.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(Loaded::Version { plugin: version, known: true });
        }
        if plugin.plan.pinned.is_some() {
            let stop = Stop::usage("its `dsh.toml` is trusted with the file that was loaded before");
            return Err(plugin
                .not_loaded(stop.hint("name the configuration with `--config` to take whatever its plugins become")));
        }
        if let Some(lock) = &self.lock {
            lock::check(lock, &[(&plugin.plan, &bytes)]).map_err(|stop| plugin.not_loaded(stop))?;
        }
        let loaded = self.engine.load(bytes, plugin.spec.clone()).await;
        let version = loaded.map_err(|error| compose::not_loaded(&plugin.what(), &plugin.plan.path, &error))?;
        Ok(Loaded::Version { plugin: version, known: false })
    }

    /// Offers the newer versions to the agents, those in `fresh` for the first time, as far as they go together with all others.
    fn offer(&mut self, fresh: &[(usize, bool)]) {
        let in_use: Vec<_> = self.plugins.iter().map(|plugin| plugin.in_use.clone()).collect();
        let newer: Vec<_> = self.plugins.iter().map(|plugin| plugin.newer.clone()).collect();
        let (chosen, left) = fit::choose(&in_use, &newer, |versions| {
            dsh_services::tools::check_tools(versions.iter().map(|plugin| (plugin.name(), plugin.tools())))
        });
        let mut versions: Vec<Arc<dyn Plugin>> = Vec::new();
        let mut told = Vec::new();
        for place in chosen {
            let Some(version) = self.plugins[place].taken() else { continue };
            told.push(ready(&version, fresh.contains(&(place, true))));
            versions.push(compose::as_listener(&self.plugins[place].plan, version));
        }
        // Offered before it is said: whoever reads that a version takes over at the next turn may start one.
        self.agents.exchange(&versions);
        if !told.is_empty() {
            self.watch.aside(|| told.iter().for_each(diagnostics::note));
        }
        for (place, failure) in left {
            if fresh.iter().any(|(fresh, _)| *fresh == place) {
                let complaint = complaint(&self.plugins[place].not_loaded(Stop::usage(failure.message)));
                self.watch.aside(|| diagnostics::complain(complaint));
            }
        }
    }
}

impl Watched {
    /// The newer version comes into use.
    fn taken(&mut self) -> Option<Arc<WasmPlugin>> {
        let version = self.newer.take()?;
        self.known.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(&version)));
        self.known.push(Arc::downgrade(&version));
        self.in_use = version.clone();
        Some(version)
    }

    /// What a message about a file begins with that cannot be loaded.
    fn what(&self) -> String {
        format!("plugin `{}` changed but cannot be loaded", self.plan.name)
    }

    fn not_loaded(&self, stop: Stop) -> Stop {
        Stop { message: format!("{}: {}", self.what(), stop.message), ..stop }
    }
}

/// What is said of a file that cannot be loaded. A stop may be several, a line each.
fn complaint(stop: &Stop) -> String {
    let (first, rest) = stop.message.split_once('\n').unwrap_or((&stop.message, ""));
    let first = format!("{first}; the version loaded before goes on");
    let hint = stop.hint.iter().filter(|hint| !hint.is_empty()).map(|hint| format!("hint: {hint}"));
    let lines = [first].into_iter().chain(rest.lines().map(str::to_owned)).chain(hint);
    lines.collect::<Vec<_>>().join("\n")
}

fn ready(version: &WasmPlugin, known: bool) -> String {
    let (name, hash) = (version.name(), short(version.sha256().unwrap_or_default()));
    if known {
        format!("plugin `{name}` changed back; the version loaded before goes on (SHA-256 {hash})")
    } else {
        format!("plugin `{name}` changed; the new version takes over at the next turn (SHA-256 {hash})")
    }
}
