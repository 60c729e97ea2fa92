//! What seldom changes from request to request, kept: the system prompt with the hashes of its sections, the hash of the frame.

use std::sync::{Arc, PoisonError};

use dsh_seam::event::PromptSection;
use dsh_seam::message::{ModelName, Sampling, ToolSchema};
use dsh_seam::session::{Assembled, PromptPart};
use dsh_seam::view::{Frame, FrameHash, text_hash};

use crate::options::Text;
use crate::sync::Mutex;

/// How many sections are told one by one, and how much of a name: a prompt has a handful with short names, and whatever a plugin gives, the
/// log's line must stay small.
const MAX_SECTIONS: usize = 32;
const MAX_NAME_BYTES: usize = 100;

/// The sampling of every request, and the hash of the last frame.
pub(crate) struct Frames {
    pub(crate) sampling: Arc<Sampling>,
    last: Mutex<Option<LastFrame>>,
    prompt: Mutex<Option<LastPrompt>>,
}

struct LastPrompt {
    parts: Vec<PromptPart>,
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
            && *known.shared.text == *assembled.text
            && known.parts == assembled.parts
        {
            return known.shared.clone();
        }
        let sections = sections(&assembled);
        let shared = Prompt { text: assembled.text.into(), sections };
        *last = Some(LastPrompt { parts: assembled.parts, shared: shared.clone() });
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

/// The sections of a prompt as they are logged. The last one stands for all that follow it.
fn sections(assembled: &Assembled) -> Arc<[PromptSection]> {
    let Some(end) = assembled.parts.last().map(|part| part.place.end) else { return [].into() };
    let section = |(at, part): (usize, &PromptPart)| {
        let text = part.place.start..if at + 1 == MAX_SECTIONS { end } else { part.place.end };
        PromptSection {
            plugin: part.plugin.clone(),
            name: part.name[..part.name.floor_char_boundary(MAX_NAME_BYTES)].to_owned(),
            hash: text_hash(&assembled.text[text]),
        }
    };
    assembled.parts.iter().take(MAX_SECTIONS).enumerate().map(section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_seam::PluginName;

    fn assembled(texts: &[String]) -> Assembled {
        let mut assembled = Assembled::default();
        for text in texts {
            let start = assembled.text.len();
            assembled.text.push_str(text);
            let place = start..assembled.text.len();
            assembled.parts.push(PromptPart {
                plugin: PluginName::new("p").expect("valid"),
                name: "ä".repeat(60),
                place,
            });
        }
        assembled
    }

    #[test]
    fn a_prompt_is_made_once() {
        let frames = Frames::new(Sampling::default());
        let first = frames.prompt(assembled(&["a".into()]));
        let again = frames.prompt(assembled(&["a".into()]));
        assert!(Arc::ptr_eq(&first.text, &again.text) && Arc::ptr_eq(&first.sections, &again.sections));
        let other = frames.prompt(assembled(&["b".into()]));
        assert_ne!(first.sections, other.sections);
        assert_eq!(&*other.text, "b");
        // SHA-256 of `b`, with another implementation.
        assert_eq!(other.sections[0].hash, "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d");
        assert_eq!(other.sections[0].name, "ä".repeat(50));
    }

    #[test]
    fn many_sections_are_told_in_few_words() {
        let texts: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let told = sections(&assembled(&texts));
        assert_eq!(told.len(), MAX_SECTIONS);
        assert_eq!(told[0].hash, text_hash("0"));
        assert_eq!(told[MAX_SECTIONS - 1].hash, text_hash(&texts[MAX_SECTIONS - 1..].concat()));
        assert!(sections(&assembled(&[])).is_empty());
    }
}
