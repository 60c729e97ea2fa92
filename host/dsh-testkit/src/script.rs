//! A model in this process that answers from a list for each agent. What a file can say is better said to `script:FILE`, which is a
//! provider that users have too; this one also hangs, fails in the middle and sends pieces that no file could hold.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dsh_seam::failure::ModelFailure;
use dsh_seam::llm::{ChunkStream, Model, ModelRequest};
use dsh_seam::message::{Chunk, ContentBlock, FinishReason, ToolCall, Usage};
use futures::StreamExt;

/// One answer.
#[derive(Debug, Clone)]
pub enum Answer {
    /// A text as one block, at the price of one token.
    Text(&'static str),
    /// One tool call: its name and arguments.
    Call(&'static str, &'static str),
    /// Tool calls. The ids of an agent's calls are c1, c2, ….
    Calls(&'static [(&'static str, &'static str)]),
    /// A text in pieces, and then nothing for ever.
    Hangs(&'static [&'static str]),
    /// A failure with this code.
    Fails(&'static str),
    /// These pieces.
    Raw(Vec<Chunk>),
}

/// A piece, or nothing for ever.
type Piece = Result<Option<Chunk>, ModelFailure>;

/// What is left to say to one agent.
#[derive(Default)]
struct Lines {
    answers: VecDeque<Answer>,
    calls: u32,
}

impl Lines {
    fn next(&mut self) -> Vec<Piece> {
        let finish = |reason| Ok(Some(Chunk::Finish { reason }));
        match self.answers.pop_front().unwrap_or(Answer::Fails("script-exhausted")) {
            Answer::Text(said) => vec![
                Ok(Some(Chunk::BlockEnd { index: 0, block: ContentBlock::text(said) })),
                Ok(Some(Chunk::Usage { usage: Usage { output: 1, ..Usage::default() } })),
                finish(FinishReason::Stop),
            ],
            Answer::Call(name, arguments) => vec![self.call(0, name, arguments), finish(FinishReason::ToolCalls)],
            Answer::Calls(calls) => {
                let call = |(index, (name, arguments)): (u32, &(&str, &str))| self.call(index, name, arguments);
                (0..).zip(calls).map(call).chain([finish(FinishReason::ToolCalls)]).collect()
            }
            Answer::Hangs(pieces) => {
                let delta = |text: &&str| Ok(Some(Chunk::TextDelta { index: 0, text: (*text).into() }));
                pieces.iter().map(delta).chain([Ok(None)]).collect()
            }
            Answer::Fails(code) => vec![Err(ModelFailure::new(code, format!("the model said {code}")))],
            Answer::Raw(chunks) => chunks.into_iter().map(|chunk| Ok(Some(chunk))).collect(),
        }
    }

    fn call(&mut self, index: u32, name: &str, arguments: &str) -> Piece {
        self.calls += 1;
        let id = format!("c{}", self.calls);
        let call = ToolCall { id, name: name.into(), arguments: arguments.into(), opaque: None };
        Ok(Some(Chunk::BlockEnd { index, block: ContentBlock::ToolCall(call) }))
    }
}

/// The model. It refuses a request in which tool calls and results do not stand together, as a strict provider would.
pub struct Script {
    lines: Mutex<BTreeMap<String, Lines>>,
    print: fn(&ModelRequest) -> String,
    /// Every request, as `print` writes it.
    pub requests: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    /// What is said to each agent; an agent without answers, or without more, is told `script-exhausted`.
    pub fn new<'a>(
        answers: impl IntoIterator<Item = (&'a str, Vec<Answer>)>,
        print: fn(&ModelRequest) -> String,
    ) -> Self {
        let lines = |answers: Vec<Answer>| Lines { answers: answers.into(), calls: 0 };
        let lines = answers.into_iter().map(|(agent, answers)| (agent.to_owned(), lines(answers))).collect();
        Self { lines: Mutex::new(lines), print, requests: Mutex::default() }
    }
}

/// The messages of a request: texts, `+ID` for a call, `=ID` for a result.
pub fn messages(request: &ModelRequest) -> String {
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => block.text.clone(),
        ContentBlock::ToolCall(call) => format!("+{}", call.id),
        ContentBlock::ToolResult(result) => format!("={}", result.call_id),
        _ => "?".into(),
    };
    let blocks = request.messages.iter().flat_map(|message| &message.message.content);
    blocks.map(block).collect::<Vec<_>>().join(" ")
}

#[async_trait]
impl Model for Script {
    async fn stream(&self, request: Arc<ModelRequest>) -> Result<ChunkStream, ModelFailure> {
        request.messages.check_pairs().map_err(|parted| ModelFailure::new("invalid-request", parted.to_string()))?;
        lock(&self.requests).push((self.print)(&request));
        let pieces = lock(&self.lines).entry(request.agent.to_string()).or_default().next();
        let piece = |piece: Piece| async move {
            match piece? {
                Some(chunk) => Ok(chunk),
                None => std::future::pending().await,
            }
        };
        Ok(futures::stream::iter(pieces).then(piece).boxed())
    }
}
