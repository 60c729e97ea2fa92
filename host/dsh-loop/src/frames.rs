//! The hash of what seldom changes from request to request, kept.

use std::sync::{Arc, PoisonError};

use dsh_seam::message::{ModelName, Sampling, ToolSchema};
use dsh_seam::view::{Frame, FrameHash};

use crate::options::Text;
use crate::sync::Mutex;

/// The sampling of every request, and the hash of the last frame.
pub(crate) struct Frames {
    pub(crate) sampling: Arc<Sampling>,
    last: Mutex<Option<LastFrame>>,
}

struct LastFrame {
    model: ModelName,
    sampling: Arc<Sampling>,
    system: Text,
    tools: Arc<[ToolSchema]>,
    hash: FrameHash,
}

impl Frames {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self { sampling: Arc::new(sampling), last: Mutex::default() }
    }

    /// The hash over a frame; made anew only when it differs from the last.
    pub(crate) fn hash(
        &self,
        model: &ModelName,
        sampling: &Arc<Sampling>,
        system: &Text,
        tools: &Arc<[ToolSchema]>,
    ) -> FrameHash {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*last
            && known.model == *model
            && known.sampling == *sampling
            && known.system == *system
            // Schemas are large and shared from step to step.
            && (Arc::ptr_eq(&known.tools, tools) || known.tools == *tools)
        {
            return known.hash.clone();
        }
        let hash = FrameHash::new(&Frame { model, sampling, system, tools });
        *last = Some(LastFrame {
            model: model.clone(),
            sampling: sampling.clone(),
            system: system.clone(),
            tools: tools.clone(),
            hash: hash.clone(),
        });
        hash
    }
}
