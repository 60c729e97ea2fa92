//! Compiling what nobody trusts: in a process of its own, with limits of its own.
//!
//! A component may be made so that a compiler needs hours or all memory of the machine for it. The host therefore starts itself again
//! with [`COMPILE_ARGUMENT`]: that process limits and confines itself (`child`, `confine`), reads the component from its standard
//! input and answers with machine code on its standard output (`frame`). The host waits (`parent`) and stops it when it takes too
//! long, or when nobody wants the result any more. What went wrong is said by [`CompileFault`].
//!
//! What this does not do: a component that takes over the compiler could have it answer with machine code of its choice. That the
//! code keeps to its sandbox rests on the compiler, here as anywhere.

mod child;
mod confine;
mod fault;
mod frame;
mod parent;

use std::io::{PipeReader, PipeWriter};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub use child::{COMPILE_ARGUMENT, compile_for_parent};
pub use fault::{CompileFault, CompileLimit};

use crate::limits::MIB;
use crate::refusal::Refusal;

/// What compiling a component may use, as an operator says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Processor time of all its threads, in milliseconds; counted in whole seconds. None: by the size of the component.
    pub cpu_ms: Option<u32>,
}

impl Default for CompileLimits {
    fn default() -> Self {
        // 40 MiB of code need 400 MiB, and a hundred thousand functions of nothing 600 MiB.
        Self { memory_mib: 2_048, cpu_ms: None }
    }
}

/// Processor time for any component: what toolchains make of a few lines takes less than a second.
const BASE_CPU_MS: u32 = 20_000;
/// Processor time for each MiB of a component: 40 MiB of code need 1,800 each.
const CPU_MS_PER_MIB: u32 = 6_000;
/// How much longer than its processor time compiling may take on the clock: on a busy machine it waits for its turn.
const WALL_FACTOR: u32 = 4;
/// The most machine code that one component may become: the largest components, four times over.
pub(crate) const MAX_CODE_BYTES: usize = 1024 * MIB;

impl CompileLimits {
    /// What one component of this size may use.
    pub(crate) fn of(self, bytes: usize) -> CompileBudget {
        let mib = u32::try_from(bytes.div_ceil(MIB)).unwrap_or(u32::MAX);
        let by_size = BASE_CPU_MS.saturating_add(CPU_MS_PER_MIB.saturating_mul(mib));
        CompileBudget { memory_mib: self.memory_mib, cpu_ms: self.cpu_ms.unwrap_or(by_size) }
    }
}

/// What compiling one component may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileBudget {
    /// Memory, in MiB.
    pub memory_mib: u32,
    /// Processor time, in milliseconds.
    pub cpu_ms: u32,
}

impl CompileBudget {
    /// How long compiling may take on the clock.
    pub(crate) fn wall(self) -> Duration {
        Duration::from_millis(u64::from(self.cpu_ms)) * WALL_FACTOR
    }
}

/// Who compiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compiler {
    /// A process of its own: `program` is started with [`COMPILE_ARGUMENT`] first, and has to call [`compile_for_parent`] then.
    Child {
        /// The program.
        program: PathBuf,
    },
    /// This process, without any limit: for tests and for measuring, and for components that are trusted.
    InProcess,
}

/// For which processors the code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// This machine's.
    Native,
    /// Any of this architecture.
    Baseline,
}

impl Target {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Baseline => "baseline",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Native, Self::Baseline].into_iter().find(|target| target.name() == name)
    }
}

/// What is to be compiled, and with what.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub bytes: &'a [u8],
    pub target: Target,
    pub budget: CompileBudget,
}

impl Job<'_> {
    /// It took more than it may.
    fn beyond(&self, limit: CompileLimit) -> CompileFault {
        let usual = CompileLimits::default().of(self.bytes.len());
        CompileFault::Limit { limit, budget: self.budget, usual }
    }
}

/// Compiles. Blocks until it is done, failed, or not `wanted` any more.
pub(crate) fn compile(compiler: &Compiler, job: Job<'_>, wanted: &Wanted) -> Result<Vec<u8>, CompileFault> {
    match compiler {
        Compiler::Child { program } => parent::compile(program, job, wanted),
        Compiler::InProcess => {
            child::compile(job.target, job.bytes).map_err(|detail| CompileFault::Component { detail })
        }
    }
}

/// Ends, when it is dropped, what is done for [`Wanted`].
pub(crate) struct Wanting(#[expect(dead_code, reason = "what counts is that it is open")] PipeWriter);

/// Whether somebody still waits for a result.
pub(crate) struct Wanted(PipeReader);

impl Wanted {
    /// Waits so long; whether somebody still wants it then.
    pub(crate) fn within(&self, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        // A signal only makes the wait shorter.
        !matches!(poll(&mut watched, time.as_ref()), Ok(1..))
    }
}

/// Somebody who waits, and what those who work for them look at.
pub(crate) fn wanting() -> std::io::Result<(Wanting, Wanted)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((Wanting(writer), Wanted(reader)))
}

/// Does something that takes from milliseconds to many seconds on a thread that serves no tasks; what it does is not wanted any more
/// when this is dropped.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce(&Wanted) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let not_started = |error: std::io::Error| CompileFault::NotStarted { detail: error.to_string() };
    let (_wanting, wanted) = wanting().map_err(not_started)?;
    match tokio::task::spawn_blocking(move || work(&wanted)).await {
        Ok(done) => done,
        Err(error) => Err(CompileFault::Broken { detail: error.to_string() }.into()),
    }
}
