//! What compiling plugins may use, and how large the cache of what was compiled may become.

use std::num::NonZero;

use dsh_wasm::{CompileLimits, DEFAULT_CACHE_MAX_MIB};

use crate::args::CompileArgs;
use crate::config::file::ConfigFile;

/// As decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compiling {
    /// What compiling one plugin may use.
    pub limits: CompileLimits,
    /// How large the cache may become, in MiB; 0 is no limit.
    pub cache_max_mib: u32,
}

impl Compiling {
    /// What was typed, else what the configuration says, else the defaults.
    pub fn new(typed: &CompileArgs, file: Option<&ConfigFile>) -> Self {
        let usual = CompileLimits::default();
        let memory_mib = file.and_then(|file| file.compile_memory_mib).map(NonZero::get);
        let cpu_ms = file.and_then(|file| file.compile_ms).map(NonZero::get);
        let cache_max_mib = file.and_then(|file| file.cache_max_mib);
        Self {
            limits: CompileLimits {
                memory_mib: typed.compile_memory_mib.or(memory_mib).unwrap_or(usual.memory_mib),
                cpu_ms: typed.compile_ms.or(cpu_ms).or(usual.cpu_ms),
            },
            cache_max_mib: typed.cache_max_mib.or(cache_max_mib).unwrap_or(DEFAULT_CACHE_MAX_MIB),
        }
    }
}

impl Default for Compiling {
    fn default() -> Self {
        Self::new(&CompileArgs::default(), None)
    }
}
