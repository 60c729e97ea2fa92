//! The service `agents`: which ids are in use.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dsh_seam::AgentId;
use dsh_seam::services::{Agents, DuplicateAgent, Registration};

/// The ids of one process. Cloning shares them.
#[derive(Debug, Clone, Default)]
pub struct AgentRegistry {
    ids: Arc<Mutex<BTreeSet<AgentId>>>,
}

impl AgentRegistry {
    /// One without agents.
    pub fn new() -> Self {
        Self::default()
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<AgentId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agents for AgentRegistry {
    fn register(&self, id: &AgentId) -> Result<Registration, DuplicateAgent> {
        if !self.ids().insert(id.clone()) {
            return Err(DuplicateAgent(id.clone()));
        }
        let (registry, id) = (self.clone(), id.clone());
        Ok(Registration::new(move || {
            registry.ids().remove(&id);
        }))
    }

    fn list(&self) -> Vec<AgentId> {
        self.ids().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_taken_until_its_registration_is_dropped() {
        let registry = AgentRegistry::new();
        let id = |text: &str| AgentId::new(text).unwrap();
        let main = registry.register(&id("main")).unwrap();
        let _other = registry.register(&id("a")).unwrap();
        assert_eq!(registry.list(), [id("a"), id("main")]);
        assert_eq!(registry.register(&id("main")).unwrap_err(), DuplicateAgent(id("main")));
        assert_eq!(registry.list(), [id("a"), id("main")], "a refused registration undoes nothing");
        drop(main);
        assert_eq!(registry.list(), [id("a")]);
        registry.register(&id("main")).unwrap();
    }
}
