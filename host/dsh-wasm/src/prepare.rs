//! From the bytes of a component to one that is ready to be instantiated: checked, and compiled or taken from the cache.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dsh_seam::PluginName;
use wasmtime::component::Component;

use crate::cache::{Cache, Kept, Key, Stored, engine_tag};
use crate::classes::{Class, compiling_engine};
use crate::compile::{self, CompileFault, CompileLimits, Compiler, Job, Target, Wanted, aside};
use crate::engine::{Engine, EngineOptions, Inner};
use crate::inspect::{Inspection, check_shapes, inspect, outline};
use crate::refusal::Refusal;

/// Told when a component is compiled, because that can take long: when it begins and when it is over.
pub type CompileNotice = Arc<dyn Fn(&Compiling<'_>) + Send + Sync>;

/// What is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compiling<'a> {
    /// The plugin's name.
    pub plugin: &'a str,
    /// The component's size in bytes.
    pub bytes: usize,
    /// Whether the result is kept, so that this happens once.
    pub cached: bool,
    /// How far it is.
    pub stage: CompileStage,
}

/// How far compiling is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompileStage {
    /// It begins.
    Begun,
    /// It is done, after so long.
    Done(Duration),
    /// It failed; the error comes from the load.
    Failed,
}

/// A component that is ready to be instantiated.
pub(crate) struct Prepared {
    pub inspection: Inspection,
    pub class: Arc<Class>,
    pub component: Component,
}

/// What came of compiling a component ahead of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Precompiled {
    /// What its file shows.
    pub inspection: Inspection,
    /// Where the code is.
    pub path: PathBuf,
    /// The size of that file.
    pub bytes: u64,
    /// How long compiling took; none: it was there already.
    pub took: Option<Duration>,
}

impl Engine {
    /// Checks `bytes`, and compiles them or takes what was compiled before, for guests with a stack of `stack_kib`.
    pub(crate) async fn prepare(
        &self,
        bytes: Vec<u8>,
        plugin: PluginName,
        stack_kib: u32,
    ) -> Result<Prepared, Refusal> {
        let inner = self.inner.clone();
        aside(move |wanted| inner.prepare(plugin.as_str(), &bytes, stack_kib, wanted)).await
    }

    /// Compiles a component into the cache, unless it is there already. Nothing of it is run. None: there is no cache, or it cannot be
    /// written.
    ///
    /// Cancel safe: what is under way is given up.
    ///
    /// # Errors
    /// The [`Refusal`] that a load would give.
    pub async fn precompile(
        &self,
        bytes: Vec<u8>,
        plugin: PluginName,
        target: Target,
    ) -> Result<Option<Precompiled>, Refusal> {
        let inner = self.inner.clone();
        aside(move |wanted| inner.precompile(plugin.as_str(), &bytes, target, wanted)).await
    }
}

impl Inner {
    fn prepare(&self, plugin: &str, bytes: &[u8], stack_kib: u32, wanted: &Wanted) -> Result<Prepared, Refusal> {
        // A file that is refused for its names is refused with all that `plugin check` says.
        let inspection = outline(bytes).or_else(|_| inspect(bytes))?;
        let class =
            self.classes.of(stack_kib, &self.ticker).map_err(|error| Refusal::Link { detail: error.to_string() })?;
        let source = Source { plugin, bytes, sha256: &inspection.sha256 };
        let component = match self.preparing.cached(&class, source) {
            Some(component) => component,
            None => {
                check_shapes(bytes, &inspection)?;
                self.preparing.compiled(&class, source, wanted)?
            }
        };
        Ok(Prepared { inspection, class, component })
    }

    fn precompile(
        &self,
        plugin: &str,
        bytes: &[u8],
        target: Target,
        wanted: &Wanted,
    ) -> Result<Option<Precompiled>, Refusal> {
        let inspection = inspect(bytes)?;
        let source = Source { plugin, bytes, sha256: &inspection.sha256 };
        let made = self.preparing.ahead(self.classes.usual(), source, target, wanted)?;
        Ok(made.map(|(path, bytes, took)| Precompiled { inspection, path, bytes, took }))
    }
}

/// What is compiled.
#[derive(Clone, Copy)]
struct Source<'a> {
    plugin: &'a str,
    bytes: &'a [u8],
    sha256: &'a str,
}

/// What an engine compiles with.
pub(crate) struct Preparing {
    compiler: Compiler,
    limits: CompileLimits,
    cache: Option<Cache>,
    on_compile: Option<CompileNotice>,
    gate: Gate,
    /// The tag of entries for any processor of this architecture.
    baseline: OnceLock<Option<String>>,
}

impl Preparing {
    pub(crate) fn new(options: &EngineOptions) -> Self {
        Self {
            compiler: options.compiler.clone(),
            limits: options.compile_limits,
            cache: open_cache(options),
            on_compile: options.on_compile.clone(),
            gate: Gate::default(),
            baseline: OnceLock::new(),
        }
    }

    pub(crate) fn is_cached(&self) -> bool {
        self.cache.is_some()
    }

    /// What was compiled before: for this machine, or for any of its kind.
    fn cached(&self, class: &Class, source: Source<'_>) -> Option<Component> {
        let cache = self.cache.as_ref()?;
        let native = Key::new(source.sha256, &class.engine);
        load(cache, class, &native, source.plugin)
            .or_else(|| load(cache, class, &self.baseline(source.sha256)?, source.plugin))
    }

    /// The key of a component's code for any processor of this architecture.
    fn baseline(&self, sha256: &str) -> Option<Key> {
        let tag = || compiling_engine(Target::Baseline, false).ok().map(|engine| engine_tag(&engine));
        Some(Key::with_tag(sha256, self.baseline.get_or_init(tag).as_deref()?))
    }

    /// Compiles, or waits for another process that compiles the same and takes what that one keeps.
    fn compiled(&self, class: &Class, source: Source<'_>, wanted: &Wanted) -> Result<Component, Refusal> {
        let key = Key::new(source.sha256, &class.engine);
        let cache = self.cache.as_ref();
        let turn = cache.and_then(|cache| cache.turn(&key, self.limits.of(source.bytes.len()).wall(), wanted));
        if let (Some(cache), Some(_)) = (cache, &turn)
            && let Some(component) = load(cache, class, &key, source.plugin)
        {
            return Ok(component);
        }
        let (code, took) = self.compile(source, Target::Native, wanted)?;
        // What no instance can be made of is not kept: it would be compiled again each time.
        let component = deserialize(class, &code).map_err(|detail| {
            self.tell(source, cache.is_some(), CompileStage::Failed);
            CompileFault::Component { detail }
        })?;
        let kept = cache.map_or(Kept::No, |cache| cache.store(&key, source.stored(Target::Native, &code)));
        self.tell(source, matches!(kept, Kept::Yes { .. }), CompileStage::Done(took));
        Ok(component)
    }

    /// Compiles into the cache what is not there: where it is, its size, and how long it took.
    fn ahead(
        &self,
        class: &Class,
        source: Source<'_>,
        target: Target,
        wanted: &Wanted,
    ) -> Result<Option<(PathBuf, u64, Option<Duration>)>, CompileFault> {
        let Some(cache) = &self.cache else { return Ok(None) };
        let key = match target {
            Target::Native => Some(Key::new(source.sha256, &class.engine)),
            Target::Baseline => self.baseline(source.sha256),
        };
        let no_key = || CompileFault::NotStarted { detail: "this architecture has no common ground".into() };
        let key = key.ok_or_else(no_key)?;
        let _turn = cache.turn(&key, self.limits.of(source.bytes.len()).wall(), wanted);
        if load(cache, class, &key, source.plugin).is_some()
            && let Some((path, bytes)) = cache.place(&key)
        {
            return Ok(Some((path, bytes, None)));
        }
        let (code, took) = self.compile(source, target, wanted)?;
        let kept = cache.store(&key, source.stored(target, &code));
        self.tell(source, matches!(kept, Kept::Yes { .. }), CompileStage::Done(took));
        Ok(match kept {
            Kept::Yes { path, bytes } => Some((path, bytes, Some(took))),
            Kept::No => None,
        })
    }

    /// The code, and how long it took. Whether it was kept, and so that it is done, is told by who keeps it.
    fn compile(
        &self,
        source: Source<'_>,
        target: Target,
        wanted: &Wanted,
    ) -> Result<(Vec<u8>, Duration), CompileFault> {
        let _pass = self.gate.pass();
        let begun = Instant::now();
        self.tell(source, self.cache.is_some(), CompileStage::Begun);
        let job = Job { bytes: source.bytes, target, budget: self.limits.of(source.bytes.len()) };
        match compile::compile(&self.compiler, job, wanted) {
            Ok(code) => Ok((code, begun.elapsed())),
            Err(fault) => {
                self.tell(source, self.cache.is_some(), CompileStage::Failed);
                Err(fault)
            }
        }
    }

    fn tell(&self, source: Source<'_>, cached: bool, stage: CompileStage) {
        let Source { plugin, bytes, .. } = source;
        if let Some(notice) = &self.on_compile {
            notice(&Compiling { plugin, bytes: bytes.len(), cached, stage });
        }
    }
}

impl<'a> Source<'a> {
    fn stored(self, target: Target, code: &'a [u8]) -> Stored<'a> {
        Stored { plugin: self.plugin, component_bytes: self.bytes.len(), target, code }
    }
}

fn open_cache(options: &EngineOptions) -> Option<Cache> {
    let directory = options.cache_dir.as_deref()?;
    match Cache::open(directory, options.cache_max_mib, options.cache_readers) {
        Ok(cache) => Some(cache),
        Err(error) => {
            tracing::warn!("{error}; plugins are compiled in each run");
            None
        }
    }
}

fn load(cache: &Cache, class: &Class, key: &Key, plugin: &str) -> Option<Component> {
    let code = cache.load(key, plugin)?;
    match deserialize(class, &code) {
        Ok(component) => Some(component),
        Err(error) => {
            cache.reject(key, plugin, &format!("it does not fit this host ({error})"));
            None
        }
    }
}

/// Makes a component of machine code that this host made, in this run or an earlier one.
pub(crate) fn deserialize(class: &Class, code: &[u8]) -> Result<Component, String> {
    // SAFETY: these bytes were made by this host for this very component: they were just handed over by the process that it started to
    // compile it, or their hash stands beside them in a file that nobody else could write, and has just been checked over the bytes
    // that are loaded.
    unsafe { Component::deserialize(&class.engine, code) }.map_err(|error| format!("{error:#}"))
}

/// Lets as many through at once as there are processors: compiling keeps each of them busy.
#[derive(Default)]
struct Gate {
    inside: Mutex<usize>,
    freed: Condvar,
}

/// Held by who is through.
struct Pass<'a>(&'a Gate);

impl Gate {
    fn pass(&self) -> Pass<'_> {
        let most = std::thread::available_parallelism().map_or(1, NonZero::get);
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let mut inside =
            self.freed.wait_while(inside, |inside| *inside >= most).unwrap_or_else(PoisonError::into_inner);
        *inside += 1;
        Pass(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *self.0.inside.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.freed.notify_one();
    }
}
