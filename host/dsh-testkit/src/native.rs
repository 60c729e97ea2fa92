//! Plugins of the host's own language, made of a closure.

use std::sync::Arc;

use dsh_seam::failure::FailureMode;
use dsh_seam::ids::PluginName;
use dsh_seam::plugin::{Attached, Plugin, PluginContext};

struct Native<A> {
    name: PluginName,
    mode: FailureMode,
    attach: A,
}

impl<A: Fn(Arc<dyn PluginContext>) -> Attached + Send + Sync> Plugin for Native<A> {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn failure_mode(&self) -> FailureMode {
        self.mode
    }

    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached {
        (self.attach)(context)
    }
}

/// A plugin that attaches what `attach` makes.
///
/// # Panics
/// When `name` is no name of a plugin.
pub fn plugin(
    name: &str,
    mode: FailureMode,
    attach: impl Fn(Arc<dyn PluginContext>) -> Attached + Send + Sync + 'static,
) -> Arc<dyn Plugin> {
    Arc::new(Native { name: PluginName::new(name).expect("a valid name"), mode, attach })
}
