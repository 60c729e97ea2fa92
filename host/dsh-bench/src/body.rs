//! The body of a provider's request, against the least that must be done for it: copying its bytes and knowing that they are text.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use dsh_seam::event::{AssistantMessage, Event, Source, ToolResultEvent, UserMessage};
use dsh_seam::ids::{AgentId, SessionId, StepRef};
use dsh_seam::llm::{ModelRequest, RequestedBy};
use dsh_seam::message::{ContentBlock, ImageBlock, ImageSource, ReasoningBlock, ResultBlock, ToolCall, ToolSchema};
use dsh_seam::view::{History, MessageList};
use dsh_services::llm::{ProviderKind, bodies};
use serde_json::{Value, json};

use crate::Rows;
use crate::measure::{Pair, micros};
use crate::report::{Reach, Row};

/// Bytes of text in the history.
const HISTORY_BYTES: usize = 1 << 20;
/// Bytes of one tool's result: a page of source.
const RESULT_BYTES: usize = 4 << 10;
/// Every so many results has an image as well.
const IMAGE_EVERY: usize = 16;
/// Tools on offer: an agent with its own and those of an MCP server or two.
const TOOLS: usize = 40;
const ROUNDS: usize = 41;

/// A conversation in which the model thinks, says something and calls two tools at once, and in which the results are source code with
/// an image now and then; every other message has what its provider wants back.
fn history(provider: &str) -> History {
    let mut history = History::default();
    let line = "    let name = \"a name\";  // as it is typed\n";
    let page = line.repeat(RESULT_BYTES / line.len());
    let image = ImageBlock {
        mime_type: Some("image/png".into()),
        source: ImageSource::Data("iVBORw0KGgo".repeat(RESULT_BYTES / 11)),
        cache: None,
        opaque: None,
    };
    for step in 1..=HISTORY_BYTES / (2 * RESULT_BYTES) {
        let turn_and_step = (1, u32::try_from(step).unwrap_or(u32::MAX));
        if step % 8 == 1 {
            let content = vec![ContentBlock::text("Read everything.")];
            history.apply(&Event::UserMessage(UserMessage { content, source: Source::User }));
        }
        let kept = (step % 2 == 0).then(|| json!({ "provider": provider, "signature": "c2lnbmVk".repeat(16) }));
        let ids = [format!("call-{step}-1"), format!("call-{step}-2")];
        let call = |id: &String| {
            let arguments = format!(r#"{{"path":"src/{step}.rs"}}"#);
            ContentBlock::ToolCall(ToolCall { id: id.clone(), name: "read".into(), arguments, opaque: kept.clone() })
        };
        let thought = ReasoningBlock { text: "Which one is next?".into(), opaque: kept.clone() };
        let said = ContentBlock::text("The next one.");
        let content = vec![ContentBlock::Reasoning(thought), said, call(&ids[0]), call(&ids[1])];
        let (turn, step) = turn_and_step;
        history.apply(&Event::AssistantMessage(AssistantMessage { turn, step, content, interrupted: None }));
        for call_id in ids {
            let mut content = vec![ResultBlock::text(page.clone())];
            if history.len() % IMAGE_EVERY == 0 {
                content.push(ResultBlock::Image(image.clone()));
            }
            history.apply(&Event::ToolResult(ToolResultEvent {
                turn,
                step,
                call_id,
                content,
                is_error: false,
                code: None,
                plugin: None,
            }));
        }
    }
    history
}

fn tools() -> Arc<[ToolSchema]> {
    let parameter =
        || json!({ "type": "string", "description": "What it is for, in a sentence or two, as it is usual." });
    let tool = |number: usize| ToolSchema {
        name: format!("tool_{number}"),
        description: "Does what its name says, and here it is said again in a sentence that is long enough.".into(),
        parameters: json!({ "type": "object", "properties": { "a": parameter(), "b": parameter(), "c": parameter() } }),
        strict: None,
    };
    (0..TOOLS).map(tool).collect()
}

fn request(kind: ProviderKind) -> Result<ModelRequest, dsh_seam::ids::InvalidName> {
    Ok(ModelRequest {
        by: RequestedBy::Loop,
        agent: AgentId::new("main")?,
        session: SessionId::new("bench")?,
        at: StepRef { turn: 1, step: 1 },
        attempt: 1,
        model: format!("{kind}/model", kind = kind.as_str()).into(),
        system: "You are measured.".into(),
        messages: MessageList::new(Arc::new(history(kind.as_str()))),
        tools: tools(),
        sampling: Arc::default(),
    })
}

/// The first body of a session, and one when all its messages are known.
fn measured(kind: ProviderKind) -> crate::Fallible<(f64, Pair, usize)> {
    let request = request(kind)?;
    let body = bodies(kind, "model");
    let start = Instant::now();
    let first = body(&request);
    let cold = micros(start.elapsed());
    serde_json::from_slice::<Value>(&first)?;
    let mut copy = vec![0_u8; first.len()];
    let mut pair = Pair::default();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        black_box(body(&request));
        let built = micros(start.elapsed());
        let start = Instant::now();
        copy.copy_from_slice(black_box(&first));
        black_box(std::str::from_utf8(black_box(&copy))?);
        pair.push(built, micros(start.elapsed()));
    }
    Ok((cold, pair, first.len()))
}

pub async fn rows() -> Rows {
    let mut rows = Vec::new();
    for kind in ProviderKind::ALL {
        let (cold, pair, bytes) = measured(kind)?;
        let (built, copied) = (pair.this.median(), pair.other.median());
        let detail = format!("{built:.0} µs against {copied:.0} µs, {} KiB; the first {cold:.0} µs", bytes >> 10);
        let what = format!(
            "`{}`: the body of a request at 1 MiB of history, against copying it and checking that it is UTF-8",
            kind.as_str()
        );
        rows.push(Row::new(what, Reach::at_most(3.0, "×"), pair.ratios()).detail(detail));
    }
    Ok(rows)
}
