//! Everything observable: durable events (the session log) and live events.
//!
//! A durable event is a line of the log; its twin on the live side carries the same data. The payload types are the promise of the
//! command line (`docs`: the events page of `README.md`); extend them, never bend them.

use std::borrow::Cow;
use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::failure::{FailureKind, Seam};
use crate::ids::{AgentId, PluginName, SessionId};
use crate::message::{Chunk, ContentBlock, Message, ResultBlock, Sampling, ToolSchema, Usage};

/// Where a message came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Source {
    /// A person, or the program that stands for one.
    User,
    /// A plugin.
    Plugin {
        /// Which.
        plugin: PluginName,
    },
    /// Another agent: the parent.
    Agent {
        /// Which.
        agent: AgentId,
    },
}

/// What started a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Trigger {
    /// A message.
    Message {
        /// The source of the first one.
        source: Source,
    },
}

/// How a turn ended, weakest last: among several the first in this order is the turn's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonKind {
    /// The agent was disposed.
    Disposed,
    /// Somebody aborted the turn.
    Aborted,
    /// Something failed.
    Error,
    /// A budget ran out: the run's, which has a code, or one that a plugin keeps.
    Budget,
    /// The limit of steps was reached.
    MaxSteps,
    /// The model's output was cut.
    MaxTokens,
    /// The model was done.
    Completed,
    /// The process ended in mid-turn; written by the repair on resume.
    Interrupted,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReason {
    /// Which way.
    #[serde(rename = "type")]
    pub kind: ReasonKind,
    /// The reason given to `abort` or `dispose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The code of an error, or which budget of the run it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The sentence for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl TurnReason {
    /// A reason that needs no words.
    pub fn plain(kind: ReasonKind) -> Self {
        Self { kind, reason: None, code: None, message: None }
    }
}

/// The waterfalls that log their changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// A request's model.
    Model,
    /// A request's system prompt.
    System,
    /// A request's tools.
    Tools,
    /// A request's sampling.
    Sampling,
    /// A request's messages.
    Messages,
    /// A step result's blocks other than tool calls.
    Content,
    /// A step result's tool calls.
    ToolCalls,
    /// A tool call.
    Call,
    /// A tool call's outcome.
    Outcome,
}

/// The answer to an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalAnswer {
    /// This time.
    AllowOnce,
    /// For the session.
    AllowAlways,
    /// No.
    Deny,
    /// Nobody answered: the turn was aborted.
    Aborted,
}

/// Who answered an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApprovalBy {
    /// A person at the terminal.
    Person,
    /// A command on standard input.
    Input,
    /// `--approve allow` or `deny`.
    Option,
    /// Nobody is there: denied at once.
    Headless,
    /// An earlier `allow-always`.
    Remembered,
    /// The turn was aborted.
    Abort,
}

/// One plugin's part of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedQuestion {
    /// Who asks.
    pub plugin: PluginName,
    /// In a few words.
    pub title: String,
    /// All that a person needs to decide.
    pub detail: String,
    /// The key under which `allow-always` is kept; none: it is not offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember: Option<String>,
}

/// The call that an approval is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedCall {
    /// The tool.
    pub name: String,
    /// Its raw arguments.
    pub arguments: String,
}

/// A splice in force for one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestEdit {
    /// Whose.
    pub plugin: PluginName,
    /// Place in the list after this waterfall's compactions and the edits before this one.
    pub start: u32,
    /// How many messages it takes out.
    pub count: u32,
    /// What it puts there.
    pub replacement: Vec<Message>,
}

/// A section of the system prompt that a plugin gave, as far as a log needs to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptSection {
    /// Whose.
    pub plugin: PluginName,
    /// Its name.
    pub name: String,
    /// SHA-256 over its text, lower-case hex.
    pub hash: String,
}

/// A member that is there is a value, also when it is `null`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

macro_rules! payload {
    ($( $(#[$doc:meta])* $name:ident { $( $(#[$fdoc:meta])* $field:ident : $ty:ty, )* } )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            pub struct $name {
                $( $(#[$fdoc])* pub $field: $ty, )*
            }
        )*
    };
}

payload! {
    /// A turn begins.
    TurnStart {
        /// Its number.
        turn: u32,
        /// What started it.
        trigger: Trigger,
    }
    /// A turn is over.
    TurnEnd {
        /// Its number.
        turn: u32,
        /// How it ended.
        reason: TurnReason,
    }
    /// A step begins or ends.
    StepMark {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
    }
    /// A message taken from the queue, or context put in.
    UserMessage {
        /// Its blocks.
        content: Vec<ContentBlock>,
        /// Where it came from.
        source: Source,
    }
    /// A message that reached a running turn.
    SteeringMessage {
        /// The turn's number.
        turn: u32,
        /// Its blocks.
        content: Vec<ContentBlock>,
        /// Where it came from.
        source: Source,
    }
    /// A request went to the model.
    RequestSent {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// From 1, counted up by retries.
        attempt: u32,
        /// `PROVIDER/MODEL`.
        model: String,
        /// The sampling as sent.
        sampling: Sampling,
        /// The system prompt; in a session's first request and whenever it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
        /// The plugins' sections in the system prompt as it was assembled, in their order, at most 32, the last for all that follow it;
        /// in a session's first request that has any and whenever they changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sections: Option<Arc<[PromptSection]>>,
        /// The tools; in a session's first request and whenever they changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Arc<[ToolSchema]>>,
        /// The splices in force.
        edits: Vec<RequestEdit>,
        /// How many messages were sent.
        messages: u32,
        /// SHA-256 over frame and messages, lower-case hex.
        hash: String,
    }
    /// A request failed.
    RequestFailed {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// Which attempt.
        attempt: u32,
        /// The failure's code.
        code: String,
        /// The failure's sentence.
        message: String,
        /// The HTTP status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// How long the provider asked to wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u32>,
    }
    /// A piece of the stream.
    AssistantChunk {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The piece.
        chunk: Chunk,
    }
    /// The assistant's message, as it is acted on.
    AssistantMessage {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// Its blocks.
        content: Vec<ContentBlock>,
        /// True when an abort cut it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interrupted: Option<bool>,
    }
    /// What a model call cost.
    UsageEvent {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The counts.
        usage: Usage,
        /// Whose call, when it was not the loop's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<PluginName>,
    }
    /// A tool call begins.
    ToolCallEvent {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The call's id.
        call_id: String,
        /// The tool.
        name: String,
        /// The raw arguments as the model produced them.
        arguments: String,
    }
    /// A tool is run again, or with a changed call.
    ToolDispatched {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The call's id.
        call_id: String,
        /// Which run, from 1.
        n: u32,
        /// The tool that runs.
        name: String,
        /// The arguments it runs with.
        arguments: String,
        /// Who changed the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<PluginName>,
    }
    /// A tool call's one result.
    ToolResultEvent {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The call's id.
        call_id: String,
        /// What the model reads.
        content: Vec<ResultBlock>,
        /// Whether the call failed.
        is_error: bool,
        /// Why, when it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Who denied it, failed, or answered in the tool's place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<PluginName>,
    }
    /// A question is put.
    ApprovalAsked {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The call it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// `approval-1`, … per agent and process.
        id: String,
        /// The final call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<AskedCall>,
        /// All that is asked.
        questions: Vec<AskedQuestion>,
    }
    /// A question is answered.
    ApprovalDecided {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The call it is about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// The question's id.
        id: String,
        /// The answer.
        answer: ApprovalAnswer,
        /// Who gave it.
        by: ApprovalBy,
    }
    /// A listener changed a value.
    WaterfallChanged {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// Which waterfall.
        waterfall: Seam,
        /// Who.
        plugin: PluginName,
        /// The tool call, in `tools/execute`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// What.
        what: Vec<ChangeKind>,
    }
    /// A range of the history is replaced for good.
    CompactionApplied {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// First message of the range, in the model's view just before this event.
        start: u32,
        /// Length of the range.
        count: u32,
        /// What takes its place.
        replacement: Vec<Message>,
        /// Who.
        plugin: PluginName,
    }
    /// A turn failed.
    ErrorEvent {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// For a person.
        message: String,
        /// Machine-readable.
        code: String,
        /// Whose failure it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        plugin: Option<PluginName>,
    }
    /// A plugin failed.
    PluginFailed {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The tool call, if it was about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<String>,
        /// Which plugin.
        plugin: PluginName,
        /// In which seam.
        seam: Seam,
        /// How.
        kind: FailureKind,
        /// What happened.
        message: String,
    }
    /// A plugin asked for something it was not granted.
    PluginRefused {
        /// Which plugin.
        plugin: PluginName,
        /// What it asked for.
        capability: String,
        /// The option that would grant it, as it is typed.
        grant: String,
    }
    /// A plugin was exchanged for another version of it.
    PluginReloaded {
        /// The first turn that it serves.
        turn: u32,
        /// Which plugin.
        plugin: PluginName,
        /// The SHA-256 of its file, lower-case hex.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
        /// The same of the version that served the turns before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<String>,
    }
    /// A value a plugin keeps; none: it is removed.
    PluginState {
        /// The key.
        key: String,
        /// The value; JSON's `null` is one.
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
    }
}

/// An event whose type is not one of the host's: a plugin's own, or of a later version.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignEvent {
    /// The type.
    pub kind: String,
    /// The data, kept as it is.
    pub data: Value,
}

macro_rules! events {
    ($( $(#[$doc:meta])* $variant:ident($data:ty) = $kind:literal, )*) => {
        /// A durable event.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $( $(#[$doc])* $variant($data), )*
            /// `plugin/<name>/state`: what a plugin keeps.
            PluginState {
                /// Whose.
                plugin: PluginName,
                /// What.
                state: PluginState,
            },
            /// `plugin/<name>/<kind>`, or a type of a later version: kept and skipped.
            Foreign(ForeignEvent),
        }

        impl Event {
            /// What JSON calls `type`.
            pub fn kind(&self) -> Cow<'_, str> {
                match self {
                    $( Event::$variant(_) => Cow::Borrowed($kind), )*
                    Event::PluginState { plugin, .. } => Cow::Owned(format!("plugin/{plugin}/state")),
                    Event::Foreign(event) => Cow::Borrowed(&event.kind),
                }
            }

            /// Reads the event of type `kind` from the text of its data.
            pub fn parse(kind: &str, data: &str) -> serde_json::Result<Event> {
                match kind {
                    $( $kind => Ok(Event::$variant(serde_json::from_str(data)?)), )*
                    _ => {
                        if let Some(plugin) = kind.strip_prefix("plugin/").and_then(|rest| rest.strip_suffix("/state"))
                            && let Ok(plugin) = PluginName::new(plugin)
                        {
                            return Ok(Event::PluginState { plugin, state: serde_json::from_str(data)? });
                        }
                        Ok(Event::Foreign(ForeignEvent { kind: kind.to_owned(), data: serde_json::from_str(data)? }))
                    }
                }
            }
        }

        /// The data alone.
        impl Serialize for Event {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $( Event::$variant(data) => data.serialize(serializer), )*
                    Event::PluginState { state, .. } => state.serialize(serializer),
                    Event::Foreign(event) => event.data.serialize(serializer),
                }
            }
        }
    };
}

events! {
    /// A turn begins.
    TurnStart(TurnStart) = "turn/start",
    /// A turn is over.
    TurnEnd(TurnEnd) = "turn/end",
    /// A step begins.
    StepStart(StepMark) = "step/start",
    /// A step is over.
    StepEnd(StepMark) = "step/end",
    /// A message from the queue.
    UserMessage(UserMessage) = "user/message",
    /// Context that was put in.
    ContextMessage(UserMessage) = "context/message",
    /// A message that reached a running turn.
    SteeringMessage(SteeringMessage) = "steering/message",
    /// A request went to the model.
    RequestSent(RequestSent) = "request/sent",
    /// A request failed.
    RequestFailed(RequestFailed) = "request/failed",
    /// A piece of the stream.
    AssistantChunk(AssistantChunk) = "assistant/chunk",
    /// The assistant's message.
    AssistantMessage(AssistantMessage) = "assistant/message",
    /// What a model call cost.
    Usage(UsageEvent) = "usage",
    /// A tool call begins.
    ToolCall(ToolCallEvent) = "tool/call",
    /// A tool is run again, or changed.
    ToolDispatched(ToolDispatched) = "tool/dispatched",
    /// A tool call's result.
    ToolResult(ToolResultEvent) = "tool/result",
    /// A question is put.
    ApprovalAsked(ApprovalAsked) = "approval/asked",
    /// A question is answered.
    ApprovalDecided(ApprovalDecided) = "approval/decided",
    /// A listener changed a value.
    WaterfallChanged(WaterfallChanged) = "waterfall/changed",
    /// A range of the history is replaced for good.
    CompactionApplied(CompactionApplied) = "compaction/applied",
    /// A turn failed.
    Error(ErrorEvent) = "error",
    /// A plugin failed.
    PluginFailed(PluginFailed) = "plugin/failed",
    /// A plugin asked for what it was not granted.
    PluginRefused(PluginRefused) = "plugin/refused",
    /// A plugin was exchanged for another version of it.
    PluginReloaded(PluginReloaded) = "plugin/reloaded",
}

impl Event {
    /// The plugin that made this entry about itself, and so is not notified of it.
    pub fn author(&self) -> Option<&str> {
        match self {
            Event::PluginState { plugin, .. } => Some(plugin.as_str()),
            Event::PluginFailed(failed) => Some(failed.plugin.as_str()),
            Event::PluginRefused(refused) => Some(refused.plugin.as_str()),
            Event::PluginReloaded(reloaded) => Some(reloaded.plugin.as_str()),
            Event::Usage(usage) => usage.plugin.as_ref().map(PluginName::as_str),
            Event::ContextMessage(UserMessage { source: Source::Plugin { plugin }, .. }) => Some(plugin.as_str()),
            Event::Foreign(event) => event.kind.strip_prefix("plugin/").and_then(|rest| rest.split('/').next()),
            _ => None,
        }
    }

    /// The live event that follows it, if it has one.
    pub fn live_twin(&self) -> Option<&'static str> {
        match self {
            Event::TurnStart(_) => Some("agent/turn-start"),
            Event::TurnEnd(_) => Some("agent/turn-end"),
            Event::StepStart(_) => Some("agent/step-start"),
            Event::StepEnd(_) => Some("agent/step-end"),
            Event::SteeringMessage(_) => Some("agent/steering"),
            Event::AssistantChunk(_) => Some("agent/stream-chunk"),
            _ => None,
        }
    }
}

/// One entry of a session's log.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Contiguous from 0.
    pub seq: u64,
    /// Unix time in milliseconds, never smaller than in the entry before.
    pub time_ms: u64,
    /// The session.
    pub session: SessionId,
    /// The agent.
    pub agent: AgentId,
    /// What happened.
    pub event: Event,
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("type", &self.event.kind())?;
        map.serialize_entry("seq", &self.seq)?;
        map.serialize_entry("time", &self.time_ms)?;
        map.serialize_entry("session", &self.session)?;
        map.serialize_entry("agent", &self.agent)?;
        map.serialize_entry("data", &self.event)?;
        map.end()
    }
}

/// An entry whose data stays as it is written.
#[derive(Deserialize, Serialize)]
pub(crate) struct RawEntry<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    seq: u64,
    time: u64,
    pub(crate) session: SessionId,
    agent: AgentId,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl Entry {
    /// Reads one line of a log, in any writing. [`crate::line::LogLines`] is quicker where there are many.
    pub fn parse(line: &str) -> serde_json::Result<Entry> {
        let raw: RawEntry<'_> = serde_json::from_str(line)?;
        let event = Event::parse(&raw.kind, raw.data.get())?;
        Ok(Entry { seq: raw.seq, time_ms: raw.time, session: raw.session, agent: raw.agent, event })
    }
}

/// An agent's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It waits for messages.
    Idle,
    /// It works.
    Running,
    /// It is gone, or going; nothing leaves this.
    Disposed,
}

payload! {
    /// An agent is there.
    AgentCreated {
        /// Its model, if one is set.
        model: Option<String>,
        /// Its ancestors, nearest first.
        lineage: Vec<AgentId>,
    }
    /// An agent is gone.
    AgentDisposed {
        /// Messages that were queued and never read.
        dropped: u32,
    }
    /// The status changed.
    AgentStatus {
        /// To what.
        status: Status,
    }
    /// A message was queued.
    AgentQueued {
        /// Its blocks.
        content: Vec<ContentBlock>,
        /// Where it came from.
        source: Source,
        /// Whether it is for the running turn.
        steering: bool,
    }
    /// Queued messages were thrown away.
    AgentDropped {
        /// How many.
        count: u32,
    }
    /// A tool says how far it is.
    ToolProgress {
        /// The turn's number.
        turn: u32,
        /// The step's number.
        step: u32,
        /// The call's id.
        call_id: String,
        /// Whose tool.
        plugin: PluginName,
        /// In words.
        text: String,
        /// From 0 to 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fraction: Option<f32>,
    }
}

/// A live event: never in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveEvent {
    /// An agent is there.
    AgentCreated(AgentCreated),
    /// An agent is gone.
    AgentDisposed(AgentDisposed),
    /// The status changed.
    AgentStatus(AgentStatus),
    /// A message was queued.
    AgentQueued(AgentQueued),
    /// Queued messages were thrown away.
    AgentDropped(AgentDropped),
    /// Something failed; with turn and step 0 when it has no place in the log.
    AgentError(ErrorEvent),
    /// A tool says how far it is.
    ToolProgress(ToolProgress),
    /// The twin of a durable event.
    Twin(Arc<Entry>),
}

impl LiveEvent {
    /// What JSON calls `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            LiveEvent::AgentCreated(_) => "agent/created",
            LiveEvent::AgentDisposed(_) => "agent/disposed",
            LiveEvent::AgentStatus(_) => "agent/status",
            LiveEvent::AgentQueued(_) => "agent/queued",
            LiveEvent::AgentDropped(_) => "agent/dropped",
            LiveEvent::AgentError(_) => "agent/error",
            LiveEvent::ToolProgress(_) => "tool/progress",
            LiveEvent::Twin(entry) => entry.event.live_twin().unwrap_or("agent/unknown"),
        }
    }
}

/// The data alone.
impl Serialize for LiveEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LiveEvent::AgentCreated(data) => data.serialize(serializer),
            LiveEvent::AgentDisposed(data) => data.serialize(serializer),
            LiveEvent::AgentStatus(data) => data.serialize(serializer),
            LiveEvent::AgentQueued(data) => data.serialize(serializer),
            LiveEvent::AgentDropped(data) => data.serialize(serializer),
            LiveEvent::AgentError(data) => data.serialize(serializer),
            LiveEvent::ToolProgress(data) => data.serialize(serializer),
            LiveEvent::Twin(entry) => entry.event.serialize(serializer),
        }
    }
}

/// What an agent shows to the outside: a durable entry or a live event.
#[derive(Debug, Clone)]
pub enum Emitted {
    /// It is in the log.
    Durable(Arc<Entry>),
    /// It is not.
    Live {
        /// The session.
        session: SessionId,
        /// The agent.
        agent: AgentId,
        /// What happened.
        event: Arc<LiveEvent>,
    },
}

impl Emitted {
    /// What JSON calls `type`.
    pub fn kind(&self) -> Cow<'_, str> {
        match self {
            Emitted::Durable(entry) => entry.event.kind(),
            Emitted::Live { event, .. } => Cow::Borrowed(event.kind()),
        }
    }

    /// Whose it is.
    pub fn agent(&self) -> &AgentId {
        match self {
            Emitted::Durable(entry) => &entry.agent,
            Emitted::Live { agent, .. } => agent,
        }
    }
}

/// As a line of `--output jsonl`.
impl Serialize for Emitted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Emitted::Durable(entry) => entry.serialize(serializer),
            Emitted::Live { session, agent, event } => {
                let mut map = serializer.serialize_map(Some(4))?;
                map.serialize_entry("type", event.kind())?;
                map.serialize_entry("session", session)?;
                map.serialize_entry("agent", agent)?;
                map.serialize_entry("data", event.as_ref())?;
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(event: Event, kind: &str, data: Value) {
        let entry = Entry {
            seq: 7,
            time_ms: 9,
            session: SessionId::new("s").expect("valid"),
            agent: AgentId::new("main").expect("valid"),
            event,
        };
        let line = serde_json::to_string(&entry).expect("serializes");
        let expect = json!({"type": kind, "seq": 7, "time": 9, "session": "s", "agent": "main", "data": data});
        assert_eq!(line, expect.to_string());
        assert_eq!(Entry::parse(&line).expect("parses"), entry);
    }

    #[test]
    fn entries_have_the_promised_shape_and_come_back() {
        check(
            Event::TurnStart(TurnStart { turn: 1, trigger: Trigger::Message { source: Source::User } }),
            "turn/start",
            json!({"turn": 1, "trigger": {"type": "message", "source": {"type": "user"}}}),
        );
        check(
            Event::TurnEnd(TurnEnd { turn: 1, reason: TurnReason::plain(ReasonKind::MaxSteps) }),
            "turn/end",
            json!({"turn": 1, "reason": {"type": "max-steps"}}),
        );
        check(
            Event::PluginFailed(PluginFailed {
                turn: 1,
                step: 2,
                call_id: None,
                plugin: PluginName::new("p").expect("valid"),
                seam: Seam::Request,
                kind: FailureKind::Limit,
                message: "m".into(),
            }),
            "plugin/failed",
            json!({"turn": 1, "step": 2, "plugin": "p", "seam": "agent/request", "kind": "limit", "message": "m"}),
        );
        check(
            Event::PluginReloaded(PluginReloaded {
                turn: 2,
                plugin: PluginName::new("p").expect("valid"),
                sha256: Some("ab".into()),
                previous: None,
            }),
            "plugin/reloaded",
            json!({"turn": 2, "plugin": "p", "sha256": "ab"}),
        );
        check(
            Event::PluginState {
                plugin: PluginName::new("p").expect("valid"),
                state: PluginState { key: "k".into(), value: Some(json!([1])) },
            },
            "plugin/p/state",
            json!({"key": "k", "value": [1]}),
        );
        check(
            Event::Foreign(ForeignEvent { kind: "plugin/p/note".into(), data: json!({"x": 1}) }),
            "plugin/p/note",
            json!({"x": 1}),
        );
    }
}
