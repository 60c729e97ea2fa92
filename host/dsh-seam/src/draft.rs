//! The request that is about to go to the model, while the waterfall `agent/request` shapes it.
//!
//! It stays on the host; a listener reads counts and outlines at a cost that does not depend on the history's length. Every edit is
//! made in the name of a plugin. The dispatcher of the waterfall puts a draft back with [`RequestDraft::restore`]; nothing here is
//! logged before the whole waterfall has returned.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::{ChangeKind, RequestEdit};
use crate::failure::{Failure, ModelFailure};
use crate::ids::PluginName;
use crate::message::{ContentBlock, Message, ModelName, Role, Sampling, ToolSchema, Usage};
use crate::view::{History, MessageList, ModelMessage, Origin, PairCheck, Segment, estimate_tokens};

/// The failure that this request is another attempt after.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFailure {
    /// What happened.
    pub failure: ModelFailure,
    /// Which attempt failed, from 1.
    pub attempt: u32,
}

/// Answers what a draft may be told about models.
pub trait ModelCatalog: Send + Sync {
    /// Whether a plugin may name this model: it belongs to a configured network provider. The failure says which are there.
    fn check_for_plugin(&self, model: &str) -> Result<(), Failure>;
    /// Whether a sub-agent of an agent with the model `own` may have this model: its parent's, or one that a plugin may name.
    fn check_for_child(&self, own: Option<&str>, model: &str) -> Result<(), Failure> {
        if own == Some(model) { Ok(()) } else { self.check_for_plugin(model) }
    }
    /// Tokens the model can take in and put out together; none when unknown.
    fn context_window(&self, model: &str) -> Option<u32>;
}

/// What a draft begins with.
pub struct DraftStart {
    /// `PROVIDER/MODEL`, if one is set.
    pub model: Option<ModelName>,
    /// The assembled system prompt.
    pub system: Arc<str>,
    /// The tools, in the order the model sees them.
    pub tools: Arc<[ToolSchema]>,
    /// How to answer.
    pub sampling: Arc<Sampling>,
    /// The model's view of the session.
    pub history: Arc<History>,
    /// What the provider counted for the previous step.
    pub last_usage: Option<Usage>,
    /// Set for a second and later attempt.
    pub retry_of: Option<RequestFailure>,
    /// What is known of models.
    pub models: Arc<dyn ModelCatalog>,
}

/// The request being shaped. Shared by the listeners of one waterfall; every method is quick and never waits.
pub struct RequestDraft {
    last_usage: Option<Usage>,
    retry_of: Option<RequestFailure>,
    models: Arc<dyn ModelCatalog>,
    /// Counts whatever may have changed the state; written while it is locked.
    revision: AtomicU64,
    state: Mutex<Arc<State>>,
}

/// A draft's state at one moment: a pointer, copied when the draft is edited, and the draft's revision then.
#[derive(Clone)]
pub struct DraftCheckpoint(Arc<State>, u64);

#[derive(Clone)]
struct State {
    model: Option<ModelName>,
    system: Arc<str>,
    tools: Arc<[ToolSchema]>,
    sampling: Arc<Sampling>,
    base: Arc<History>,
    /// The list for good: the history with this waterfall's compactions.
    lasting: Vec<Segment>,
    /// The list of this request, as stretches of the lasting one and splices between them.
    pieces: Vec<Piece>,
    compactions: Vec<Compaction>,
    changes: Vec<(PluginName, ChangeKind)>,
}

/// A stretch of the request's list.
#[derive(Clone)]
enum Piece {
    /// Messages `start` to before `end` of the lasting list.
    Lasting { start: usize, end: usize },
    /// A splice: `removed` messages of the lasting list gave way to `messages`. It stays as a mark even when both are empty.
    Splice { plugin: PluginName, removed: usize, messages: Arc<[Arc<ModelMessage>]> },
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Lasting { start, end } => end - start,
            Piece::Splice { messages, .. } => messages.len(),
        }
    }
}

/// A compaction of this waterfall, in coordinates of the lasting list just before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Compaction {
    /// Who.
    pub plugin: PluginName,
    /// First message.
    pub start: u32,
    /// How many.
    pub count: u32,
    /// What takes their place.
    pub replacement: Vec<Message>,
}

/// What comes out of a draft once the waterfall has returned.
pub struct FinishedDraft {
    /// `PROVIDER/MODEL`, if one is set.
    pub model: Option<ModelName>,
    /// The system prompt.
    pub system: Arc<str>,
    /// The tools.
    pub tools: Arc<[ToolSchema]>,
    /// How to answer.
    pub sampling: Arc<Sampling>,
    /// The messages.
    pub messages: MessageList,
    /// The compactions, in the order made.
    pub compactions: Vec<Compaction>,
    /// The splices in force.
    pub edits: Vec<RequestEdit>,
    /// Who changed what.
    pub changes: Vec<(PluginName, ChangeKind)>,
}

impl RequestDraft {
    /// A draft of what would be sent if no listener changed anything.
    pub fn new(start: DraftStart) -> Self {
        let length = start.history.len();
        let whole = |length: usize| if length == 0 { vec![] } else { vec![Piece::Lasting { start: 0, end: length }] };
        let state = State {
            model: start.model,
            system: start.system,
            tools: start.tools,
            sampling: start.sampling,
            lasting: if length == 0 { vec![] } else { vec![Segment::Base { start: 0, end: length }] },
            base: start.history,
            pieces: whole(length),
            compactions: vec![],
            changes: vec![],
        };
        Self {
            last_usage: start.last_usage,
            retry_of: start.retry_of,
            models: start.models,
            revision: AtomicU64::new(0),
            state: Mutex::new(Arc::new(state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, Arc<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, to be changed.
    fn edited(&self) -> MutexGuard<'_, Arc<State>> {
        let guard = self.state();
        self.revision.fetch_add(1, Ordering::Release);
        guard
    }

    /// Remembers the draft as it is now.
    pub fn checkpoint(&self) -> DraftCheckpoint {
        let state = self.state();
        DraftCheckpoint(state.clone(), self.revision.load(Ordering::Acquire))
    }

    /// Whether nothing has touched the draft since. A draft that was edited and put back counts as touched.
    pub fn is_at(&self, checkpoint: &DraftCheckpoint) -> bool {
        self.revision.load(Ordering::Acquire) == checkpoint.1
    }

    /// Puts the draft back to what it was.
    pub fn restore(&self, checkpoint: &DraftCheckpoint) {
        *self.edited() = checkpoint.0.clone();
    }

    /// `PROVIDER/MODEL`, if one is set.
    pub fn model(&self) -> Option<ModelName> {
        self.state().model.clone()
    }

    /// Sets the model; only one of a configured network provider.
    pub fn set_model(&self, plugin: &PluginName, model: &str) -> Result<(), Failure> {
        if self.state().model.as_deref() == Some(model) {
            return Ok(());
        }
        self.models.check_for_plugin(model)?;
        let mut guard = self.edited();
        let state = Arc::make_mut(&mut guard);
        state.model = Some(model.into());
        state.changed(plugin, ChangeKind::Model);
        Ok(())
    }

    /// The system prompt.
    pub fn system(&self) -> Arc<str> {
        self.state().system.clone()
    }

    /// Sets the system prompt.
    pub fn set_system(&self, plugin: &PluginName, text: &str) {
        let mut guard = self.edited();
        let state = Arc::make_mut(&mut guard);
        if *state.system != *text {
            state.system = text.into();
            state.changed(plugin, ChangeKind::System);
        }
    }

    /// The tools, in the order the model sees them.
    pub fn tools(&self) -> Arc<[ToolSchema]> {
        self.state().tools.clone()
    }

    /// Drops, reorders or describes tools; none may be new and no parameters may change.
    pub fn set_tools(&self, plugin: &PluginName, tools: Vec<ToolSchema>) -> Result<(), Failure> {
        let mut guard = self.edited();
        let state = Arc::make_mut(&mut guard);
        for (at, tool) in tools.iter().enumerate() {
            let Some(known) = state.tools.iter().find(|known| known.name == tool.name) else {
                return Err(Failure::invalid_argument(format!(
                    "tool `{}` is not among the request's tools; tools can be dropped, reordered and described, not added",
                    tool.name
                )));
            };
            if known.parameters != tool.parameters {
                return Err(Failure::invalid_argument(format!(
                    "the parameters of tool `{}` may not change",
                    tool.name
                )));
            }
            if tools[..at].iter().any(|earlier| earlier.name == tool.name) {
                return Err(Failure::invalid_argument(format!("tool `{}` is there twice", tool.name)));
            }
        }
        if *state.tools != *tools {
            state.tools = tools.into();
            state.changed(plugin, ChangeKind::Tools);
        }
        Ok(())
    }

    /// How to answer.
    pub fn sampling(&self) -> Arc<Sampling> {
        self.state().sampling.clone()
    }

    /// Sets how to answer. Numbers must be finite.
    pub fn set_sampling(&self, plugin: &PluginName, sampling: Sampling) -> Result<(), Failure> {
        if sampling.temperature.is_some_and(|temperature| !temperature.is_finite() || temperature < 0.0) {
            return Err(Failure::invalid_argument("`temperature` must be a number from 0 up"));
        }
        let mut guard = self.edited();
        let state = Arc::make_mut(&mut guard);
        if *state.sampling != sampling {
            state.sampling = Arc::new(sampling);
            state.changed(plugin, ChangeKind::Sampling);
        }
        Ok(())
    }

    /// How many messages there are.
    pub fn message_count(&self) -> u32 {
        clamp(self.state().len())
    }

    /// The messages from `start`, `count` of them.
    pub fn messages(&self, start: u32, count: u32) -> Result<Vec<Arc<ModelMessage>>, Failure> {
        let list = self.state().list();
        list.range(start as usize, count as usize).ok_or_else(|| beyond(start, count, list.len()))
    }

    /// The host's estimate for the whole request.
    pub fn estimated_tokens(&self) -> u32 {
        let state = self.state();
        let tools: u64 = state.tools.iter().map(|tool| u64::from(tool_tokens(tool))).sum();
        u32::try_from(state.list().tokens() + tools + u64::from(estimate_tokens(state.system.len())))
            .unwrap_or(u32::MAX)
    }

    /// Tokens the model can take; none when unknown.
    pub fn context_window(&self) -> Option<u32> {
        let model = self.model()?;
        self.models.context_window(&model)
    }

    /// What the provider counted for the previous step.
    pub fn last_usage(&self) -> Option<Usage> {
        self.last_usage
    }

    /// The failure that this request is another attempt after.
    pub fn retry_of(&self) -> Option<&RequestFailure> {
        self.retry_of.as_ref()
    }

    /// Replaces `count` messages from `start` in this request only. Refused when it would part a tool call from its result.
    pub fn splice(
        &self,
        plugin: &PluginName,
        start: u32,
        count: u32,
        replacement: Vec<Message>,
    ) -> Result<(), Failure> {
        let mut guard = self.edited();
        let state = Arc::make_mut(&mut guard);
        let (from, to) = state.range(start, count)?;
        let replacement = weigh(replacement, Origin::Edit)?;
        state.check_seams(from, to, &replacement)?;
        state.splice(plugin, from, to, replacement);
        state.changed(plugin, ChangeKind::Messages);
        Ok(())
    }

    /// The same for good: every later request starts from the outcome. Also refused when the outcome is not smaller by the host's
    /// estimate, and when the range holds a message of origin `edit` or a place where a splice of this waterfall removed messages.
    pub fn compact(
        &self,
        plugin: &PluginName,
        start: u32,
        count: u32,
        replacement: Vec<Message>,
    ) -> Result<(), Failure> {
        let mut guard = self.edited();
        let state = Arc::make_mut(&mut guard);
        let (from, to) = state.range(start, count)?;
        let lasting = state.lasting_range(from, to)?;
        let logged = replacement.clone();
        let replacement = weigh(replacement, Origin::Summary)?;
        state.check_seams(from, to, &replacement)?;
        let before: u64 = state
            .list()
            .range(from, to - from)
            .unwrap_or_default()
            .iter()
            .map(|message| u64::from(message.tokens))
            .sum();
        let after: u64 = replacement.iter().map(|message| u64::from(message.tokens)).sum();
        if after >= before {
            return Err(Failure::invalid_argument(format!(
                "the replacement is not smaller: {after} estimated tokens in place of {before}"
            )));
        }
        state.compact(lasting.0, lasting.1, replacement);
        state.compactions.push(Compaction {
            plugin: plugin.clone(),
            start: clamp(lasting.0),
            count: clamp(lasting.1 - lasting.0),
            replacement: logged,
        });
        state.changed(plugin, ChangeKind::Messages);
        Ok(())
    }

    /// What the waterfall made of it.
    pub fn finish(&self) -> FinishedDraft {
        let state = self.state();
        FinishedDraft {
            model: state.model.clone(),
            system: state.system.clone(),
            tools: state.tools.clone(),
            sampling: state.sampling.clone(),
            messages: state.list(),
            compactions: state.compactions.clone(),
            edits: state.edits(),
            changes: state.changes.clone(),
        }
    }
}

pub(crate) fn tool_tokens(tool: &ToolSchema) -> u32 {
    // The schema's own text is not kept; its structure is a good enough measure and is read without making a string.
    fn size(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => 4,
            serde_json::Value::String(text) => text.len() + 2,
            serde_json::Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 2,
            serde_json::Value::Object(members) => {
                members.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>() + 2
            }
        }
    }
    estimate_tokens(tool.name.len() + tool.description.len() + size(&tool.parameters))
}

fn clamp(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn beyond(start: u32, count: u32, length: usize) -> Failure {
    Failure::invalid_argument(format!(
        "messages {start} to {} are beyond the end: there are {length}",
        u64::from(start) + u64::from(count)
    ))
}

fn weigh(messages: Vec<Message>, origin: Origin) -> Result<Arc<[Arc<ModelMessage>]>, Failure> {
    for message in &messages {
        if message.role == Role::System {
            return Err(Failure::invalid_argument(
                "a message of role `system` cannot stand in a history; use `set-system`",
            ));
        }
        if !message.content.iter().any(ContentBlock::is_content) {
            return Err(Failure::invalid_argument("a message without content cannot be sent"));
        }
    }
    Ok(messages.into_iter().map(|message| Arc::new(ModelMessage::new(message, origin))).collect())
}

impl State {
    fn changed(&mut self, plugin: &PluginName, kind: ChangeKind) {
        let change = (plugin.clone(), kind);
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
    }

    fn range(&self, start: u32, count: u32) -> Result<(usize, usize), Failure> {
        let (from, to) = (start as usize, start as usize + count as usize);
        if to > self.len() { Err(beyond(start, count, self.len())) } else { Ok((from, to)) }
    }

    /// The request's list, resolved down to the history.
    fn list(&self) -> MessageList {
        let mut segments = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            match piece {
                Piece::Lasting { start, end } => cut(&self.lasting, *start, *end, &mut segments),
                Piece::Splice { messages, .. } if messages.is_empty() => {}
                Piece::Splice { messages, .. } => segments.push(Segment::Own(messages.clone())),
            }
        }
        MessageList::from_segments(self.base.clone(), segments)
    }

    /// Refuses a replacement of `from..to` that would part a tool call from its result. Looks only at the batches at its edges.
    fn check_seams(&self, from: usize, to: usize, replacement: &[Arc<ModelMessage>]) -> Result<(), Failure> {
        let list = self.list();
        let is_result = |at: usize| list.get(at).is_some_and(|message| message.message.tool_results().next().is_some());
        let first = (0..from).rev().find(|at| !is_result(*at)).unwrap_or(0);
        let mut last = to;
        while is_result(last) {
            last += 1;
        }
        let get = |range: std::ops::Range<usize>| range.filter_map(|at| list.get(at)).collect::<Vec<_>>();
        let around = get(first..from).into_iter().chain(replacement).chain(get(to..last));
        PairCheck::all(around.map(|message| &message.message)).map_err(|parted| {
            Failure::invalid_argument(format!("the change would leave a history that providers refuse: {parted}"))
        })
    }

    /// Replaces `from..to` of the request's list by a splice.
    fn splice(&mut self, plugin: &PluginName, from: usize, to: usize, messages: Arc<[Arc<ModelMessage>]>) {
        let (mut before, rest) = split(std::mem::take(&mut self.pieces), from);
        let (inside, after) = split(rest, to - from);
        let removed = inside
            .iter()
            .map(|piece| match piece {
                Piece::Lasting { start, end } => end - start,
                Piece::Splice { removed, .. } => *removed,
            })
            .sum();
        before.push(Piece::Splice { plugin: plugin.clone(), removed, messages });
        before.extend(after);
        self.pieces = before;
    }

    /// The range `from..to` of the request's list in the lasting list, when it is one untouched stretch of it.
    fn lasting_range(&self, from: usize, to: usize) -> Result<(usize, usize), Failure> {
        if from == to {
            return Err(Failure::invalid_argument("an empty range cannot be compacted"));
        }
        let mut at = 0;
        for piece in &self.pieces {
            let end = at + piece.len();
            match piece {
                Piece::Lasting { start, .. } if at <= from && to <= end => {
                    return Ok((start + from - at, start + to - at));
                }
                _ => at = end,
            }
        }
        Err(Failure::invalid_argument(
            "the range holds messages that a splice of this request put in or took out; compact before splicing",
        ))
    }

    /// Replaces `from..to` of the lasting list; the request's list follows.
    fn compact(&mut self, from: usize, to: usize, messages: Arc<[Arc<ModelMessage>]>) {
        let length: usize = self.lasting.iter().map(Segment::len).sum();
        let added = messages.len();
        let mut lasting = Vec::with_capacity(self.lasting.len() + 2);
        cut(&self.lasting, 0, from, &mut lasting);
        if added > 0 {
            lasting.push(Segment::Own(messages));
        }
        cut(&self.lasting, to, length, &mut lasting);
        self.lasting = lasting;
        for piece in &mut self.pieces {
            if let Piece::Lasting { start, end } = piece {
                let moved = |at: usize| if at >= to { at - (to - from) + added } else { at };
                *end = moved(*end);
                *start = moved(*start);
            }
        }
    }

    /// The splices as they are logged: from left to right, each in the list after those before it.
    fn edits(&self) -> Vec<RequestEdit> {
        let mut at = 0;
        let mut edits = Vec::new();
        for piece in &self.pieces {
            if let Piece::Splice { plugin, removed, messages } = piece
                && (*removed > 0 || !messages.is_empty())
            {
                let replacement = messages.iter().map(|message| message.message.clone()).collect();
                edits.push(RequestEdit {
                    plugin: plugin.clone(),
                    start: clamp(at),
                    count: clamp(*removed),
                    replacement,
                });
            }
            at += piece.len();
        }
        edits
    }
}

/// Appends the stretch `start..end` of `segments` to `out`.
fn cut(segments: &[Segment], start: usize, end: usize, out: &mut Vec<Segment>) {
    let mut at = 0;
    for segment in segments {
        let (from, to) = (start.max(at), end.min(at + segment.len()));
        if from < to {
            out.push(match segment {
                Segment::Base { start, .. } => Segment::Base { start: start + from - at, end: start + to - at },
                Segment::Own(messages) => Segment::Own(messages[from - at..to - at].into()),
            });
        }
        at += segment.len();
    }
}

/// Splits a list of pieces after `length` messages. A mark of length 0 at the cut stays on the left.
fn split(pieces: Vec<Piece>, length: usize) -> (Vec<Piece>, Vec<Piece>) {
    let (mut left, mut right, mut at) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        let end = at + piece.len();
        if end <= length {
            left.push(piece);
        } else if at >= length {
            right.push(piece);
        } else {
            let inside = length - at;
            match piece {
                Piece::Lasting { start, end } => {
                    left.push(Piece::Lasting { start, end: start + inside });
                    right.push(Piece::Lasting { start: start + inside, end });
                }
                Piece::Splice { plugin, removed, messages } => {
                    left.push(Piece::Splice { plugin: plugin.clone(), removed, messages: messages[..inside].into() });
                    right.push(Piece::Splice { plugin, removed: 0, messages: messages[inside..].into() });
                }
            }
        }
        at = end;
    }
    (left, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{AssistantMessage, CompactionApplied, Event, Source, ToolResultEvent, UserMessage};
    use crate::message::{ResultBlock, ToolCall};

    struct NoModels;
    impl ModelCatalog for NoModels {
        fn check_for_plugin(&self, model: &str) -> Result<(), Failure> {
            Err(Failure::invalid_argument(format!("no network provider for `{model}`")))
        }
        fn context_window(&self, _model: &str) -> Option<u32> {
            None
        }
    }

    fn plugin() -> PluginName {
        PluginName::new("p").expect("valid")
    }

    /// `a` is a user's text, `+1` an assistant's call with id 1, `=1` its result.
    fn history(words: &str) -> History {
        let mut history = History::default();
        for word in words.split_whitespace() {
            history.apply(&match word.split_at(1) {
                ("+", ids) => {
                    let call = |id: char| {
                        ContentBlock::ToolCall(ToolCall {
                            id: id.into(),
                            name: "t".into(),
                            arguments: "{}".into(),
                            opaque: None,
                        })
                    };
                    Event::AssistantMessage(AssistantMessage {
                        turn: 1,
                        step: 1,
                        content: ids.chars().map(call).collect(),
                        interrupted: None,
                    })
                }
                ("=", id) => Event::ToolResult(ToolResultEvent {
                    turn: 1,
                    step: 1,
                    call_id: id.into(),
                    content: vec![ResultBlock::text("a long enough result")],
                    is_error: false,
                    code: None,
                    plugin: None,
                }),
                _ => Event::UserMessage(UserMessage { content: vec![ContentBlock::text(word)], source: Source::User }),
            });
        }
        history
    }

    fn draft(words: &str) -> RequestDraft {
        RequestDraft::new(DraftStart {
            model: None,
            system: "".into(),
            tools: [].into(),
            sampling: Arc::default(),
            history: Arc::new(history(words)),
            last_usage: None,
            retry_of: None,
            models: Arc::new(NoModels),
        })
    }

    fn words(list: &MessageList) -> String {
        let word = |message: &Arc<ModelMessage>| {
            let message = &message.message;
            let calls: String = message.tool_calls().map(|call| call.id.clone()).collect();
            match (message.text(), message.tool_results().next()) {
                (Some(text), _) => text,
                (None, Some(result)) => format!("={}", result.call_id),
                (None, None) => format!("+{calls}"),
            }
        };
        list.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    fn texts(words: &str) -> Vec<Message> {
        words.split_whitespace().map(Message::user_text).collect()
    }

    /// Rebuilds the request from what would be logged and compares.
    fn check_rebuild(before: &str, draft: &RequestDraft) -> String {
        let done = draft.finish();
        let mut rebuilt = history(before);
        for compaction in &done.compactions {
            let Compaction { plugin, start, count, replacement } = compaction.clone();
            rebuilt.apply(&Event::CompactionApplied(CompactionApplied {
                turn: 1,
                step: 1,
                start,
                count,
                replacement,
                plugin,
            }));
        }
        let mut list: Vec<Message> = rebuilt.messages().iter().map(|message| message.message.clone()).collect();
        for edit in &done.edits {
            let start = edit.start as usize;
            list.splice(start..start + edit.count as usize, edit.replacement.clone());
        }
        let sent: Vec<Message> = done.messages.iter().map(|message| message.message.clone()).collect();
        assert_eq!(list, sent, "the log gives what was sent");
        words(&done.messages)
    }

    #[test]
    fn splices_nest_and_are_rebuilt_from_the_log() {
        let before = "a b c d e";
        let d = draft(before);
        d.splice(&plugin(), 1, 2, texts("x y z")).expect("fits");
        assert_eq!(check_rebuild(before, &d), "a x y z d e");
        d.splice(&plugin(), 2, 1, vec![]).expect("fits");
        assert_eq!(check_rebuild(before, &d), "a x z d e");
        d.splice(&plugin(), 0, 2, texts("n")).expect("fits");
        assert_eq!(check_rebuild(before, &d), "n z d e");
        d.splice(&plugin(), 4, 0, texts("end")).expect("fits");
        assert_eq!(check_rebuild(before, &d), "n z d e end");
        d.splice(&plugin(), 0, 5, texts("all")).expect("fits");
        assert_eq!(check_rebuild(before, &d), "all");
    }

    #[test]
    fn compactions_move_with_splices() {
        let before = "long-first-message b c d long-last-message";
        let d = draft(before);
        d.splice(&plugin(), 1, 1, texts("x y")).expect("fits");
        d.compact(&plugin(), 3, 3, texts("s")).expect("untouched");
        assert_eq!(check_rebuild(before, &d), "long-first-message x y s");
        d.compact(&plugin(), 0, 1, texts("f")).expect("untouched");
        assert_eq!(check_rebuild(before, &d), "f x y s");
        let refused = |start, count| d.compact(&plugin(), start, count, texts("q")).expect_err("holds an edit").code;
        assert_eq!(
            (refused(0, 2), refused(0, 4), refused(1, 1)),
            ("invalid-argument".into(), "invalid-argument".into(), "invalid-argument".into())
        );
        assert!(d.compact(&plugin(), 3, 1, texts("just-as-long-or-longer")).is_err(), "not smaller");
    }

    #[test]
    fn pairs_are_never_parted() {
        let before = "a +12 =1 =2 b +3 =3";
        let check = |start, count, fits: bool| {
            let d = draft(before);
            assert_eq!(d.splice(&plugin(), start, count, vec![]).is_ok(), fits, "{start} {count}");
            let d = draft(before);
            assert_eq!(d.compact(&plugin(), start, count, vec![]).is_ok(), fits, "{start} {count}");
        };
        check(0, 1, true);
        check(1, 1, false);
        check(1, 2, false);
        check(1, 3, true);
        check(2, 1, false);
        check(2, 2, false);
        check(3, 1, false);
        check(0, 4, true);
        check(4, 2, false);
        check(4, 3, true);
        check(0, 7, true);
        assert!(
            draft(before).splice(&plugin(), 2, 0, texts("between")).is_err(),
            "nothing stands between a call and its result"
        );
        assert!(draft(before).splice(&plugin(), 3, 0, texts("between")).is_err());
        assert!(draft(before).splice(&plugin(), 4, 0, texts("after")).is_ok());
    }

    #[test]
    fn a_checkpoint_puts_everything_back() {
        let d = draft("a b c");
        let checkpoint = d.checkpoint();
        assert!(d.is_at(&checkpoint));
        d.splice(&plugin(), 0, 1, texts("x")).expect("fits");
        assert!(!d.is_at(&checkpoint));
        d.set_system(&plugin(), "new");
        assert_eq!(d.finish().changes.len(), 2);
        d.restore(&checkpoint);
        assert_eq!((check_rebuild("a b c", &d), d.finish().changes.len(), d.system().len()), ("a b c".into(), 0, 0));
    }

    #[test]
    fn ranges_beyond_the_end_are_refused() {
        let d = draft("a b");
        assert!(d.messages(1, 1).is_ok() && d.messages(2, 0).is_ok());
        assert_eq!(d.messages(1, 2).expect_err("beyond").message, "messages 1 to 3 are beyond the end: there are 2");
        assert!(d.splice(&plugin(), u32::MAX, u32::MAX, vec![]).is_err());
        assert!(d.set_model(&plugin(), "x/y").is_err());
    }
}
