//! The hash of what seldom changes from request to request, kept.

use std::sync::{Arc, Mutex, PoisonError};

use dsh_seam::message::{Sampling, ToolSchema};
use dsh_seam::view::{Frame, FrameHash};

/// The sampling of every request, and the hash of the last frame.
pub(crate) struct Frames {
    pub(crate) sampling: Arc<Sampling>,
    last: Mutex<Option<LastFrame>>,
}

struct LastFrame {
    model: String,
    sampling: Sampling,
    system: String,
    tools: Vec<ToolSchema>,
    hash: FrameHash,
}

impl Frames {
    pub(crate) fn new(sampling: Sampling) -> Self {
        Self { sampling: Arc::new(sampling), last: Mutex::default() }
    }

    /// The hash over `frame`; made anew only when it differs from the last.
    pub(crate) fn hash(&self, frame: &Frame<'_>) -> FrameHash {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*last
            && known.model == frame.model
            && known.sampling == *frame.sampling
            && known.system == frame.system
            && known.tools == frame.tools
        {
            return known.hash.clone();
        }
        let hash = FrameHash::new(frame);
        let (model, sampling, system) = (frame.model.to_owned(), frame.sampling.clone(), frame.system.to_owned());
        *last = Some(LastFrame { model, sampling, system, tools: frame.tools.to_vec(), hash: hash.clone() });
        hash
    }
}
