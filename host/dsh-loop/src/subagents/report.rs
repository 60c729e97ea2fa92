//! What the maker of a sub-agent is told of it, collected from its events.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use dsh_seam::event::{Emitted, Event, LiveEvent, ReasonKind, TurnReason};
use dsh_seam::ids::{AgentId, SessionId};
use dsh_seam::message::{ContentBlock, Usage};
use dsh_seam::plugin::EventSink;
use dsh_seam::subagents::AgentReport;

use crate::journal::WRITE_FAILED;
use crate::queued::MAX_MESSAGE_BYTES;
use crate::sync::Mutex;

/// Keeps of a child's events what its parent is told, and hands all of them on.
pub(super) struct ReportCollector {
    events: Arc<dyn EventSink>,
    child: AgentId,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    text: String,
    reason: Option<TurnReason>,
    usage: Usage,
    turns: u32,
    steps: u32,
}

impl ReportCollector {
    pub(super) fn new(events: Arc<dyn EventSink>, child: AgentId) -> Self {
        Self { events, child, collected: Mutex::default() }
    }

    /// The report on the child, whose session that is.
    pub(super) fn report(&self, session: SessionId) -> AgentReport {
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        let Collected { mut text, reason, usage, turns, steps } = std::mem::take(&mut *collected);
        if text.len() > MAX_MESSAGE_BYTES {
            text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        }
        let reason = reason.unwrap_or_else(|| TurnReason::plain(ReasonKind::Disposed));
        AgentReport { agent: self.child.clone(), session, text, reason, usage, turns, steps }
    }
}

impl Collected {
    /// Takes an event of the child into account. The end of a turn that a fork's repair closes is followed by that of the child's own.
    fn add(&mut self, event: &Event) {
        match event {
            Event::TurnStart(_) => self.turns += 1,
            Event::StepStart(_) => self.steps += 1,
            Event::Usage(data) => self.usage = self.usage.plus(data.usage),
            Event::AssistantMessage(data) => {
                let text: String = data.content.iter().filter_map(ContentBlock::as_text).collect();
                if !text.trim().is_empty() {
                    self.text = text;
                }
            }
            Event::TurnEnd(data) => self.reason = Some(data.reason.clone()),
            _ => {}
        }
    }
}

#[async_trait]
impl EventSink for ReportCollector {
    fn emit(&self, emitted: &Emitted) {
        self.events.emit(emitted);
        if *emitted.agent() != self.child {
            return;
        }
        let mut collected = self.collected.lock().unwrap_or_else(PoisonError::into_inner);
        match emitted {
            Emitted::Durable(entry) => collected.add(&entry.event),
            // A log that cannot be written does not say how its turn ended.
            Emitted::Live { event, .. } => {
                if let LiveEvent::AgentError(error) = &**event
                    && error.code == WRITE_FAILED
                {
                    let (code, message) = (Some(error.code.clone()), Some(error.message.clone()));
                    collected.reason = Some(TurnReason { kind: ReasonKind::Error, reason: None, code, message });
                }
            }
        }
    }

    async fn settled(&self, emitted: &Emitted) {
        self.events.settled(emitted).await;
    }
}
