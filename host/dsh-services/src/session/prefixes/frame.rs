//! What stands before the messages of a request: model, tools, system prompt; and its sampling.

use std::sync::Arc;

use dsh_seam::PluginName;
use dsh_seam::event::{ChangeKind, PromptSection, RequestSent};
use dsh_seam::message::{Sampling, ToolSchema};
use dsh_seam::view::estimate_tokens;

use super::blame::Listeners;
use super::report::{Break, Change, Place, SamplingChange, SectionChange, Size};

/// A script that is gone on with at another line is the same model.
const SCRIPT: &str = "script:";

/// All of a request but its messages.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    pub(super) model: Arc<str>,
    tools: Arc<[ToolSchema]>,
    /// How large each tool is.
    tool_sizes: Arc<[Size]>,
    system: Arc<str>,
    sections: Arc<[PromptSection]>,
    sampling: Arc<Sampling>,
}

impl Frame {
    /// The frame of the next request; what it does not say is as it was.
    pub(super) fn next(&self, sent: &RequestSent) -> Frame {
        let mut next = self.clone();
        if *next.model != *sent.model {
            next.model = sent.model.as_str().into();
        }
        if let Some(tools) = &sent.tools {
            next.tools = tools.clone();
            next.tool_sizes = tools.iter().map(tool_size).collect();
        }
        if let Some(system) = &sent.system {
            next.system = system.as_str().into();
        }
        if let Some(sections) = &sent.sections {
            next.sections = sections.clone();
        }
        if *next.sampling != sent.sampling {
            next.sampling = Arc::new(sent.sampling.clone());
        }
        next
    }

    pub(super) fn size(&self) -> Size {
        self.tool_sizes.iter().fold(text_size(self.system.len()), |sum, size| sum.plus(*size))
    }

    /// Where this stops being what `before` was, if it does, and how much comes before that.
    pub(super) fn broken(&self, before: &Frame, listeners: Listeners<'_>) -> Option<(Break, Size)> {
        if model(&self.model) != model(&before.model) {
            let place = Place::Model { before: before.model.to_string(), after: self.model.to_string() };
            return Some((Break { place, by: listeners.blame(ChangeKind::Model, None) }, Size::default()));
        }
        if !Arc::ptr_eq(&self.tools, &before.tools) && self.tools != before.tools {
            let index = common(&self.tools, &before.tools);
            let name = |tools: &[ToolSchema]| tools.get(index).map(|tool| tool.name.clone());
            let place = Place::Tools { index, before: name(&before.tools), after: name(&self.tools) };
            let size = self.tool_sizes[..index].iter().fold(Size::default(), |sum, size| sum.plus(*size));
            return Some((Break { place, by: listeners.blame(ChangeKind::Tools, None) }, size));
        }
        if !Arc::ptr_eq(&self.system, &before.system) && self.system != before.system {
            let byte = common_text(&self.system, &before.system);
            let section = changed_section(&self.sections, &before.sections);
            let owner: Option<PluginName> = section.as_ref().map(|section| section.plugin.clone());
            let by = listeners.blame(ChangeKind::System, owner);
            let size = self.tool_sizes.iter().fold(text_size(byte), |sum, size| sum.plus(*size));
            return Some((Break { place: Place::System { byte, section }, by }, size));
        }
        None
    }

    /// How the sampling differs in what some providers keep their caches apart by.
    pub(super) fn sampling_change(&self, before: &Frame, listeners: Listeners<'_>) -> Option<SamplingChange> {
        let (now, before) = (&self.sampling, &before.sampling);
        let changed: Vec<&'static str> = [
            ("toolChoice", now.tool_choice != before.tool_choice),
            ("reasoningEffort", now.reasoning_effort != before.reasoning_effort),
            ("extra", now.extra != before.extra),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
        let by = || listeners.blame(ChangeKind::Sampling, None);
        (!changed.is_empty()).then(|| SamplingChange { by: by(), changed })
    }
}

fn model(name: &str) -> &str {
    match name.rsplit_once('#') {
        Some((script, _line)) if name.starts_with(SCRIPT) => script,
        _ => name,
    }
}

fn text_size(bytes: usize) -> Size {
    Size { bytes: bytes as u64, tokens: estimate_tokens(bytes).into() }
}

fn tool_size(tool: &ToolSchema) -> Size {
    text_size(tool.name.len() + tool.description.len() + tool.parameters.to_string().len())
}

/// How many at the beginning are the same.
fn common<T: PartialEq>(left: &[T], right: &[T]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// How many bytes at the beginning are the same, in whole characters.
fn common_text(left: &str, right: &str) -> usize {
    left.floor_char_boundary(common(left.as_bytes(), right.as_bytes()))
}

/// The first section that differs, if one does.
fn changed_section(now: &[PromptSection], before: &[PromptSection]) -> Option<SectionChange> {
    let at = common(now, before);
    let named = |list: &[PromptSection], wanted: &PromptSection| {
        list.iter().any(|section| (&section.plugin, &section.name) == (&wanted.plugin, &wanted.name))
    };
    let (section, change) = match (now.get(at), before.get(at)) {
        (None, None) => return None,
        (Some(new), _) if !named(before, new) => (new, Change::New),
        (_, Some(old)) if !named(now, old) => (old, Change::Gone),
        (Some(section), _) | (None, Some(section)) => (section, Change::Changed),
    };
    Some(SectionChange { plugin: section.plugin.clone(), name: section.name.clone(), change })
}
