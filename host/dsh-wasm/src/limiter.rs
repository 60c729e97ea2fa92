//! Bounds the memory of one instance, and remembers what it refused: a guest that is out of memory panics, and the engine would only say
//! "unreachable".

use std::fmt;

use wasmtime::ResourceLimiter;

use crate::limits::{Limits, MAX_CORE_INSTANCES, MAX_MEMORIES, MAX_TABLE_ELEMENTS, MAX_TABLES, MIB};

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    Memory { limit_mib: usize, wanted_mib: usize },
    Table { wanted: usize },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { limit_mib, wanted_mib } => {
                write!(f, "memory limit {limit_mib} MiB (`memory-mib`): it asked for {wanted_mib} MiB")
            }
            Self::Table { wanted } => write!(f, "table limit {MAX_TABLE_ELEMENTS} elements: it asked for {wanted}"),
        }
    }
}

/// The limiter of one instance.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: usize,
    used: usize,
    peak: usize,
    refused: Option<Refused>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limit: limits.memory_bytes(), used: 0, peak: 0, refused: None }
    }

    /// A call begins: what an earlier one was refused is forgotten.
    pub(crate) fn begin_call(&mut self) {
        self.refused = None;
    }

    pub(crate) fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// The most memory that the instance ever had, in bytes.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        // All memories of the component together.
        let total = self.used.saturating_add(desired.saturating_sub(current));
        if total > self.limit {
            self.refused = Some(Refused::Memory { limit_mib: self.limit / MIB, wanted_mib: total.div_ceil(MIB) });
            return Ok(false);
        }
        self.used = total;
        self.peak = self.peak.max(total);
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > MAX_TABLE_ELEMENTS {
            self.refused = Some(Refused::Table { wanted: desired });
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        MAX_CORE_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_memories_count_together_and_a_refusal_is_remembered() {
        let mut limiter = Limiter::new(&Limits { memory_mib: 2, ..Limits::default() });
        assert!(limiter.memory_growing(0, MIB, None).expect("no error"));
        assert!(limiter.memory_growing(0, MIB, None).expect("no error"));
        assert!(!limiter.memory_growing(MIB, 2 * MIB, None).expect("no error"));
        assert_eq!(
            limiter.refused().map(ToString::to_string).as_deref(),
            Some("memory limit 2 MiB (`memory-mib`): it asked for 3 MiB")
        );
        limiter.begin_call();
        assert_eq!((limiter.refused(), limiter.peak()), (None, 2 * MIB));
    }
}
