//! What file operations of an instance were refused. They cannot wait for the report, so it is made when the call is over, and a call
//! that ends with its instance gone is over too.

use std::sync::{Arc, Mutex, PoisonError};

use crate::grants::Grant;
use crate::plugin::Core;
use crate::words::PluginContext;

/// Different refusals of one call that are told: a guest that tries every path is not listed for ever.
const MAX_REFUSALS: usize = 64;

/// The grants that were missing, each once, until they are reported.
pub(crate) struct Refusals {
    session: Option<Arc<dyn PluginContext>>,
    grants: Mutex<Vec<Grant>>,
}

impl Refusals {
    pub(crate) fn new(session: Option<Arc<dyn PluginContext>>) -> Arc<Self> {
        Arc::new(Self { session, grants: Mutex::default() })
    }

    pub(super) fn note(&self, grant: Grant) {
        let mut grants = self.grants();
        if grants.len() < MAX_REFUSALS && !grants.contains(&grant) {
            grants.push(grant);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.grants().is_empty()
    }

    pub(crate) async fn report(&self, core: &Core) {
        let grants = std::mem::take(&mut *self.grants());
        for grant in grants {
            core.refuse(self.session.as_deref(), &grant).await;
        }
    }

    fn grants(&self) -> std::sync::MutexGuard<'_, Vec<Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
