//! What seldom changes from request to request, kept: the system prompt with the hashes of its sections, the hash of the frame.

use std::sync::{Arc, PoisonError};

use dsh_seam::event::PromptSection;
use dsh_seam::message::{ModelName, Sampling, ToolSchema};
use dsh_seam::session::{Assembled, PromptPart};
use dsh_seam::view::{Frame, FrameHash, text_hash};

use crate::options::Text;
use crate::sync::Mutex;

/// The sampling of every request, and the hash of the last frame.
pub(crate) struct Frames {
    pub(crate) sampling: Arc<Sampling>,
    last: Mutex<Option<LastFrame>>,
    prompt: Mutex<Option<LastPrompt>>,
}

struct LastPrompt {
    assembled: Assembled,
    shared: Prompt,
}

/// A system prompt, shared by the requests that have it.
#[derive(Clone)]
pub(crate) struct Prompt {
    pub(crate) text: Text,
    /// The plugins' sections in it.
    pub(crate) sections: Arc<[PromptSection]>,
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
        Self { sampling: Arc::new(sampling), last: Mutex::default(), prompt: Mutex::default() }
    }

    /// A system prompt to share; made, and its sections hashed, only when it differs from the last.
    pub(crate) fn prompt(&self, assembled: Assembled) -> Prompt {
        let mut last = self.prompt.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*last
            && known.assembled == assembled
        {
            return known.shared.clone();
        }
        let section = |part: &PromptPart| PromptSection {
            plugin: part.plugin.clone(),
            name: part.name.clone(),
            hash: text_hash(&assembled.text[part.place.clone()]),
        };
        let sections = assembled.parts.iter().map(section).collect();
        let shared = Prompt { text: assembled.text.as_str().into(), sections };
        *last = Some(LastPrompt { assembled, shared: shared.clone() });
        shared
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
