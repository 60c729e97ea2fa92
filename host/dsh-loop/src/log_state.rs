//! What a session's log stands for at one moment: everything that the driver decides from the log rather than from flags.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use dsh_seam::event::{ApprovalAnswer, ApprovalBy, AskedQuestion, Entry, Event, PromptSection, Source, StepMark};
use dsh_seam::ids::PluginName;
use dsh_seam::message::{ContentBlock, ToolCall, ToolSchema, Usage};
use dsh_seam::session::Replay;
use dsh_seam::view::History;

use crate::stream::Assembly;

/// A tool call of the open step's message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallState {
    pub(crate) call: ToolCall,
    /// `tool/call` is in the log.
    pub(crate) started: bool,
    /// `tool/result` is in the log.
    pub(crate) answered: bool,
}

/// The open step.
#[derive(Debug, Default)]
pub(crate) struct OpenStep {
    pub(crate) step: u32,
    /// The sequence number of its `step/start`.
    pub(crate) seq: u64,
    /// What has arrived since the last `request/sent`; empty again after `request/failed`.
    pub(crate) stream: Assembly,
    /// `assistant/message` is in the log.
    pub(crate) message_logged: bool,
    pub(crate) calls: Vec<CallState>,
}

/// The open turn.
#[derive(Debug, Default)]
pub(crate) struct OpenTurn {
    pub(crate) turn: u32,
    pub(crate) step: Option<OpenStep>,
    pub(crate) last_step: u32,
    /// `error` is in the log: its code and message.
    pub(crate) error: Option<(String, String)>,
}

/// What the log stands for.
#[derive(Debug, Default)]
pub(crate) struct LogState {
    pub(crate) next_seq: u64,
    pub(crate) last_time_ms: u64,
    pub(crate) history: Arc<History>,
    pub(crate) last_turn: u32,
    pub(crate) open: Option<OpenTurn>,
    /// Sources of the user messages that no turn has answered.
    pub(crate) unanswered: Vec<Source>,
    pub(crate) session_usage: Usage,
    pub(crate) last_usage: Option<Usage>,
    /// System prompt and tools as the last `request/sent` left them.
    pub(crate) frame: Option<(Arc<str>, Arc<[ToolSchema]>)>,
    /// The plugins' sections in it, as the last `request/sent` that told them has them.
    pub(crate) sections: Arc<[PromptSection]>,
    plugin_state: HashMap<PluginName, BTreeMap<String, Arc<str>>>,
    remembered: HashSet<(PluginName, String)>,
    asked: Option<(String, Vec<AskedQuestion>)>,
    call_ids: HashSet<String>,
    /// The plugin whose entry the last one is.
    last_author: Option<String>,
    /// One past the last entry that is not by that plugin.
    by_others: u64,
}

/// A log that is opened is folded while it is read.
impl Replay for LogState {
    fn entry(&mut self, entry: Entry) {
        self.apply(&entry.event);
        self.last_time_ms = entry.time_ms;
    }
}

impl LogState {
    /// Takes the log's next entry into account.
    pub(crate) fn apply(&mut self, event: &Event) {
        if self.last_author.as_deref() != event.author() {
            self.last_author = event.author().map(str::to_owned);
            self.by_others = self.next_seq;
        }
        self.next_seq += 1;
        if is_message(event) {
            Arc::make_mut(&mut self.history).apply(event);
        }
        match event {
            Event::UserMessage(data) => self.unanswered.push(data.source.clone()),
            Event::TurnStart(data) => {
                self.last_turn = data.turn;
                self.unanswered.clear();
                self.open = Some(OpenTurn { turn: data.turn, ..OpenTurn::default() });
            }
            Event::TurnEnd(_) => self.open = None,
            Event::CompactionApplied(_) => self.call_ids = ids_in(&self.history),
            Event::PluginState { plugin, state } => self.keep(plugin, &state.key, state.value.as_ref()),
            Event::ApprovalAsked(data) => self.asked = Some((data.id.clone(), data.questions.clone())),
            Event::ApprovalDecided(data) => self.decided(&data.id, data.answer, data.by),
            Event::Usage(data) => {
                self.session_usage = self.session_usage.plus(data.usage);
                if data.plugin.is_none() {
                    self.last_usage = Some(data.usage);
                }
            }
            Event::RequestSent(data) => {
                let before = self.frame.take();
                let system =
                    data.system.as_deref().map(Arc::from).or_else(|| before.as_ref().map(|(system, _)| system.clone()));
                let tools = data.tools.clone().or_else(|| before.map(|(_, tools)| tools));
                self.frame = Some((system.unwrap_or_default(), tools.unwrap_or_default()));
                if let Some(sections) = &data.sections {
                    self.sections = sections.clone();
                }
            }
            _ => {}
        }
        self.apply_to_turn(event);
    }

    fn apply_to_turn(&mut self, event: &Event) {
        if let Event::AssistantMessage(data) = event {
            self.call_ids.extend(calls_in(&data.content).map(|call| call.id.clone()));
        }
        let Some(turn) = &mut self.open else { return };
        match event {
            Event::StepStart(StepMark { step, .. }) => {
                turn.last_step = *step;
                turn.step = Some(OpenStep { step: *step, seq: self.next_seq - 1, ..OpenStep::default() });
            }
            Event::StepEnd(_) => turn.step = None,
            Event::Error(data) => turn.error = Some((data.code.clone(), data.message.clone())),
            _ => {}
        }
        let Some(step) = &mut turn.step else { return };
        match event {
            Event::RequestSent(_) | Event::RequestFailed(_) => step.stream = Assembly::default(),
            Event::AssistantChunk(data) => step.stream.push(&data.chunk),
            Event::AssistantMessage(data) => {
                step.message_logged = true;
                step.calls = calls_in(&data.content)
                    .map(|call| CallState { call: call.clone(), started: false, answered: false })
                    .collect();
            }
            Event::ToolCall(data) => step
                .calls
                .iter_mut()
                .filter(|state| state.call.id == data.call_id)
                .for_each(|state| state.started = true),
            Event::ToolResult(data) => step
                .calls
                .iter_mut()
                .filter(|state| state.call.id == data.call_id)
                .for_each(|state| state.answered = true),
            _ => {}
        }
    }

    fn keep(&mut self, plugin: &PluginName, key: &str, value: Option<&serde_json::Value>) {
        let kept = self.plugin_state.entry(plugin.clone()).or_default();
        match value {
            Some(value) => drop(kept.insert(key.to_owned(), value.to_string().into())),
            None => drop(kept.remove(key)),
        }
    }

    fn decided(&mut self, id: &str, answer: ApprovalAnswer, by: ApprovalBy) {
        if self.asked.as_ref().is_none_or(|(asked, _)| asked != id) {
            return;
        }
        let questions = self.asked.take().map(|(_, questions)| questions).unwrap_or_default();
        if answer == ApprovalAnswer::AllowAlways && by != ApprovalBy::Remembered {
            self.remembered
                .extend(questions.into_iter().filter_map(|question| Some((question.plugin, question.remember?))));
        }
    }

    /// Whether a person answered this question with `allow-always`.
    pub(crate) fn remembers(&self, plugin: &PluginName, key: &str) -> bool {
        self.remembered.contains(&(plugin.clone(), key.to_owned()))
    }

    /// A plugin's values.
    pub(crate) fn state_of(&self, plugin: &PluginName) -> Option<&BTreeMap<String, Arc<str>>> {
        self.plugin_state.get(plugin)
    }

    /// Whether an entry from `since` on is not the plugin's own.
    pub(crate) fn has_news_for(&self, plugin: &PluginName, since: u64) -> bool {
        let own_last = self.last_author.as_deref() == Some(plugin.as_str());
        since < if own_last { self.by_others } else { self.next_seq }
    }

    /// Whether a tool call in the model's view has this id.
    pub(crate) fn has_call(&self, id: &str) -> bool {
        self.call_ids.contains(id)
    }

    /// The sequence number of the last entry before the open step, or of the last one while none is open; none when there is none.
    pub(crate) fn before_step(&self) -> Option<u64> {
        let step = self.open.as_ref().and_then(|turn| turn.step.as_ref());
        step.map_or(self.next_seq, |step| step.seq).checked_sub(1)
    }

    /// The open turn's and step's numbers; 0 where none is open.
    pub(crate) fn at(&self) -> dsh_seam::StepRef {
        match &self.open {
            None => dsh_seam::StepRef::default(),
            Some(turn) => {
                dsh_seam::StepRef { turn: turn.turn, step: turn.step.as_ref().map_or(turn.last_step, |step| step.step) }
            }
        }
    }
}

fn is_message(event: &Event) -> bool {
    matches!(
        event,
        Event::UserMessage(_)
            | Event::ContextMessage(_)
            | Event::SteeringMessage(_)
            | Event::AssistantMessage(_)
            | Event::ToolResult(_)
            | Event::CompactionApplied(_)
    )
}

fn calls_in(content: &[ContentBlock]) -> impl Iterator<Item = &ToolCall> {
    content.iter().filter_map(|block| match block {
        ContentBlock::ToolCall(call) => Some(call),
        _ => None,
    })
}

fn ids_in(history: &History) -> HashSet<String> {
    history.messages().iter().flat_map(|message| message.message.tool_calls()).map(|call| call.id.clone()).collect()
}

#[cfg(test)]
mod tests;
