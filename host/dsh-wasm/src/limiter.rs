//! Bounds the memory of one instance, and remembers what it refused: a guest that is out of memory panics, and the engine would only say
//! "unreachable".

use std::fmt;

use wasmtime::ResourceLimiter;

use crate::limits::{Limits, MIB};

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    Memory { limit_mib: u32, wanted_mib: usize },
    Table { limit: u32, wanted: usize },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { limit_mib, wanted_mib } => {
                write!(f, "memory limit {limit_mib} MiB (`memory-mib`): it asked for {wanted_mib} MiB")
            }
            Self::Table { limit, wanted } => {
                write!(f, "table limit {limit} elements (`table-elements`): it asked for {wanted}")
            }
        }
    }
}

/// The limiter of one instance.
#[derive(Debug)]
pub(crate) struct Limiter {
    limits: Limits,
    memory: usize,
    elements: usize,
    peak: usize,
    refused: Option<Refused>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: *limits, memory: 0, elements: 0, peak: 0, refused: None }
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

/// All memories, or all tables, of the instance together.
fn grown(total: usize, current: usize, desired: usize) -> usize {
    total.saturating_add(desired.saturating_sub(current))
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = grown(self.memory, current, desired);
        if total > self.limits.memory_bytes() {
            let limit_mib = self.limits.memory_mib;
            self.refused = Some(Refused::Memory { limit_mib, wanted_mib: total.div_ceil(MIB) });
            return Ok(false);
        }
        self.memory = total;
        self.peak = self.peak.max(total);
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let total = grown(self.elements, current, desired);
        if total > self.limits.table_elements as usize {
            self.refused = Some(Refused::Table { limit: self.limits.table_elements, wanted: total });
            return Ok(false);
        }
        self.elements = total;
        Ok(true)
    }

    fn instances(&self) -> usize {
        self.limits.instances as usize
    }

    fn tables(&self) -> usize {
        self.limits.tables as usize
    }

    fn memories(&self) -> usize {
        self.limits.memories as usize
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

    #[test]
    fn all_tables_count_together() {
        let mut limiter = Limiter::new(&Limits { table_elements: 10, ..Limits::default() });
        assert!(limiter.table_growing(0, 6, None).expect("no error"));
        assert!(!limiter.table_growing(0, 5, None).expect("no error"));
        assert!(limiter.table_growing(6, 10, None).expect("no error"));
        assert_eq!(
            limiter.refused().map(ToString::to_string).as_deref(),
            Some("table limit 10 elements (`table-elements`): it asked for 11")
        );
    }
}
