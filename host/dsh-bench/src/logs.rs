//! Long sessions, written by the product's own writer: what they are made of is what a run would have logged.

use dsh_seam::event::{
    AssistantChunk, AssistantMessage, CompactionApplied, Entry, Event, PluginState, ReasonKind, RequestSent, Source,
    StepMark, ToolCallEvent, ToolResultEvent, Trigger, TurnEnd, TurnReason, TurnStart, UsageEvent, UserMessage,
};
use dsh_seam::ids::{AgentId, PluginName, SessionId};
use dsh_seam::message::{
    BlockType, Chunk, ContentBlock, FinishReason, Message, ResultBlock, Sampling, ToolCall, Usage,
};
use dsh_seam::session::{NewSession, SessionWriter, Sessions};
use dsh_seam::view::History;

use crate::Fallible;

/// Steps of a turn.
const STEPS: u32 = 10;
/// A plugin keeps its state so often.
const STEPS_PER_STATE: u32 = 5;
/// A view that is compacted has at most so many messages.
const VIEW: usize = 400;
/// Bytes of a tool's result.
const RESULT_BYTES: usize = 1_000;

/// What a session is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Long answers, no tools.
    Prose,
    /// Short answers, a tool call in each step.
    Tools,
    /// The same with a compaction whenever the view has grown.
    Compacted,
}

impl Mix {
    /// The name of the session.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Prose => "prose",
            Mix::Tools => "tools",
            Mix::Compacted => "compacted",
        }
    }

    /// Pieces of text in one answer.
    fn pieces(self) -> u32 {
        if self == Mix::Prose { 100 } else { 12 }
    }
}

/// What was written.
pub struct Written {
    pub entries: u64,
    /// Of the texts in the model's view at the end.
    pub view_bytes: u64,
}

/// Writes a session of at least `entries` entries that ends with a turn.
pub async fn write(sessions: &dyn Sessions, mix: Mix, id: &str, entries: u64) -> Fallible<Written> {
    let (id, agent) = (SessionId::new(id)?, AgentId::new("main")?);
    let new = NewSession {
        id: Some(id.clone()),
        agent: agent.clone(),
        workspace: "/".into(),
        model: Some("bench/model".into()),
        lineage: Vec::new(),
        parent: None,
    };
    let writer = sessions.create(new).await?.writer;
    let plugin = PluginName::new("bench")?;
    let mut author = Author { mix, id, agent, plugin, writer, seq: 0, history: History::default(), turn: 0, step: 0 };
    while author.seq < entries {
        author.turn()?;
    }
    author.writer.flush().await?;
    let view_bytes = author.history.messages().iter().map(|message| u64::from(message.bytes)).sum();
    Ok(Written { entries: author.seq, view_bytes })
}

struct Author {
    mix: Mix,
    id: SessionId,
    agent: AgentId,
    plugin: PluginName,
    writer: Box<dyn SessionWriter>,
    seq: u64,
    history: History,
    turn: u32,
    step: u32,
}

impl Author {
    fn log(&mut self, event: Event) -> Fallible<()> {
        self.history.apply(&event);
        let (session, agent) = (self.id.clone(), self.agent.clone());
        self.writer.append(&Entry { seq: self.seq, time_ms: 1_700_000_000_000 + self.seq, session, agent, event })?;
        self.seq += 1;
        Ok(())
    }

    fn chunk(&mut self, chunk: Chunk) -> Fallible<()> {
        self.log(Event::AssistantChunk(AssistantChunk { turn: self.turn, step: self.step, chunk }))
    }

    fn turn(&mut self) -> Fallible<()> {
        self.turn += 1;
        let text = format!("This is what I want done in turn {}.", self.turn);
        self.log(Event::UserMessage(UserMessage { content: vec![ContentBlock::text(text)], source: Source::User }))?;
        let trigger = Trigger::Message { source: Source::User };
        self.log(Event::TurnStart(TurnStart { turn: self.turn, trigger }))?;
        for step in 1..=STEPS {
            self.step = step;
            self.step(step == STEPS)?;
        }
        let reason = TurnReason::plain(ReasonKind::Completed);
        self.log(Event::TurnEnd(TurnEnd { turn: self.turn, reason }))
    }

    fn step(&mut self, last: bool) -> Fallible<()> {
        let (turn, step) = (self.turn, self.step);
        self.log(Event::StepStart(StepMark { turn, step }))?;
        if self.mix == Mix::Compacted && step == 1 && self.history.len() > VIEW {
            self.compact()?;
        }
        self.request()?;
        let mut content = vec![self.text()?];
        if self.mix != Mix::Prose && !last {
            content.push(self.call()?);
        }
        let usage = Usage { input: 12_345, output: 678, cache_read: 9_000, ..Usage::default() };
        self.chunk(Chunk::Usage { usage })?;
        let calls: Vec<ToolCall> = Message::assistant(content.clone()).tool_calls().cloned().collect();
        let reason = if calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        self.chunk(Chunk::Finish { reason })?;
        self.log(Event::AssistantMessage(AssistantMessage { turn, step, content, interrupted: None }))?;
        self.log(Event::Usage(UsageEvent { turn, step, usage, plugin: None }))?;
        for call in calls {
            self.run(call)?;
        }
        if self.step.is_multiple_of(STEPS_PER_STATE) {
            let value = Some(serde_json::json!({ "calls": self.seq, "seen": ["src/main.rs", "src/lib.rs"] }));
            let state = PluginState { key: "notes".into(), value };
            self.log(Event::PluginState { plugin: self.plugin.clone(), state })?;
        }
        self.log(Event::StepEnd(StepMark { turn, step }))
    }

    /// All but the newest message give way to a summary.
    fn compact(&mut self) -> Fallible<()> {
        let count = u32::try_from(self.history.len() - 1)?;
        let summary = Message::user_text("What happened so far, in a few sentences.".repeat(20));
        self.log(Event::CompactionApplied(CompactionApplied {
            turn: self.turn,
            step: self.step,
            start: 0,
            count,
            replacement: vec![summary],
            plugin: self.plugin.clone(),
        }))
    }

    fn request(&mut self) -> Fallible<()> {
        let messages = u32::try_from(self.history.len())?;
        self.log(Event::RequestSent(RequestSent {
            turn: self.turn,
            step: self.step,
            attempt: 1,
            model: "bench/model".into(),
            sampling: Sampling::default(),
            system: (self.seq < 10).then(|| "You are measured.".into()),
            sections: None,
            tools: (self.seq < 10).then(|| [].into()),
            edits: Vec::new(),
            messages,
            hash: "0123456789abcdef".repeat(4),
        }))
    }

    /// An answer's text, piece by piece.
    fn text(&mut self) -> Fallible<ContentBlock> {
        self.chunk(Chunk::BlockStart { index: 0, block_type: BlockType::Text })?;
        let mut whole = String::new();
        for piece in 0..self.mix.pieces() {
            let text = format!(" and \"piece\" {piece}\n");
            whole.push_str(&text);
            self.chunk(Chunk::TextDelta { index: 0, text })?;
        }
        let block = ContentBlock::text(whole);
        self.chunk(Chunk::BlockEnd { index: 0, block: block.clone() })?;
        Ok(block)
    }

    /// A tool call, piece by piece.
    fn call(&mut self) -> Fallible<ContentBlock> {
        let id = format!("call_{}_{}", self.turn, self.step);
        let pieces = [r#"{"path":"#, r#""src/"#, &format!("file-{}.rs", self.seq), r#""}"#];
        self.chunk(Chunk::BlockStart { index: 1, block_type: BlockType::ToolCall })?;
        for (place, piece) in pieces.iter().enumerate() {
            let name = (place == 0).then(|| "read".to_owned());
            self.chunk(Chunk::ToolCallDelta { index: 1, id: id.clone(), name, arguments_delta: (*piece).into() })?;
        }
        let call = ToolCall { id, name: "read".into(), arguments: pieces.concat(), opaque: None };
        let block = ContentBlock::ToolCall(call);
        self.chunk(Chunk::BlockEnd { index: 1, block: block.clone() })?;
        Ok(block)
    }

    fn run(&mut self, call: ToolCall) -> Fallible<()> {
        let (turn, step, call_id) = (self.turn, self.step, call.id);
        let (name, arguments) = (call.name, call.arguments);
        self.log(Event::ToolCall(ToolCallEvent { turn, step, call_id: call_id.clone(), name, arguments }))?;
        let mut text = format!("fn main() {{}} // {}\n", self.seq).repeat(RESULT_BYTES / 20);
        text.truncate(RESULT_BYTES);
        self.log(Event::ToolResult(ToolResultEvent {
            turn,
            step,
            call_id,
            content: vec![ResultBlock::text(text)],
            is_error: false,
            code: None,
            plugin: None,
        }))
    }
}
