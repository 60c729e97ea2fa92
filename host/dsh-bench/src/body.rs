//! The body of a provider's request, against the least that must be done for it: copying its bytes and knowing that they are text.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dsh_seam::event::{AssistantMessage, Event, Source, ToolResultEvent, UserMessage};
use dsh_seam::ids::{AgentId, SessionId, StepRef};
use dsh_seam::llm::{ModelRequest, RequestedBy};
use dsh_seam::message::{ContentBlock, ResultBlock, ToolCall};
use dsh_seam::view::{History, MessageList};
use dsh_services::llm::{ProviderKind, request_body};

use crate::Rows;
use crate::measure::{Pair, micros};
use crate::report::{Reach, Row};

/// Bytes of text in the history.
const HISTORY_BYTES: usize = 1 << 20;
/// Bytes of one tool's result: a page of source.
const RESULT_BYTES: usize = 4 << 10;
const ROUNDS: usize = 41;

/// A conversation of calls and results, in which the results are source code.
fn history() -> History {
    let mut history = History::default();
    history.apply(&Event::UserMessage(UserMessage {
        content: vec![ContentBlock::text("Read everything.")],
        source: Source::User,
    }));
    let line = "    let name = \"a name\";  // as it is typed\n";
    let page = line.repeat(RESULT_BYTES / line.len());
    for step in 1..=u32::try_from(HISTORY_BYTES / RESULT_BYTES).unwrap_or(u32::MAX) {
        let id = format!("call-{step}");
        let call = ToolCall {
            id: id.clone(),
            name: "read".into(),
            arguments: format!(r#"{{"path":"src/{step}.rs"}}"#),
            opaque: None,
        };
        let content = vec![ContentBlock::text("The next one."), ContentBlock::ToolCall(call)];
        history.apply(&Event::AssistantMessage(AssistantMessage { turn: 1, step, content, interrupted: None }));
        let content = vec![ResultBlock::text(page.clone())];
        history.apply(&Event::ToolResult(ToolResultEvent {
            turn: 1,
            step,
            call_id: id,
            content,
            is_error: false,
            code: None,
            plugin: None,
        }));
    }
    history
}

pub async fn rows() -> Rows {
    let request = ModelRequest {
        by: RequestedBy::Loop,
        agent: AgentId::new("main")?,
        session: SessionId::new("bench")?,
        at: StepRef { turn: 1, step: 1 },
        attempt: 1,
        model: "openai/model".into(),
        system: "You are measured.".into(),
        messages: MessageList::new(Arc::new(history())),
        tools: Arc::new([]),
        sampling: Arc::default(),
    };
    let body = || request_body(ProviderKind::OpenAi, "model", &request);
    let first = body();
    let mut copy = vec![0_u8; first.len()];
    let mut pair = Pair::default();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(body());
        let built = micros(start.elapsed());
        let start = Instant::now();
        copy.copy_from_slice(black_box(&first));
        black_box(std::str::from_utf8(black_box(&copy))?);
        pair.push(built, micros(start.elapsed()));
    }
    let detail =
        format!("{:.0} µs against {:.0} µs, {} KiB", pair.this.median(), pair.other.median(), first.len() >> 10);
    let what = "the body of a request at 1 MiB of history, against copying it and checking that it is UTF-8";
    Ok(vec![Row::new(what, Reach::at_most(3.0, "×"), pair.ratios()).detail(detail)])
}
