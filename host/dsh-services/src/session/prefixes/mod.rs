//! How much of each request is the beginning of the one before, from a log: what a provider's prompt cache can have of it, where that
//! ends, and who ended it.
//!
//! Requests are compared in the order in which providers cache: tools, then the system prompt, then the messages; another model has
//! another cache. A request costs what was added since the one before, whatever the length of the session.

mod blame;
mod frame;
mod messages;
mod report;
#[cfg(test)]
mod tests;

use dsh_seam::PluginName;
use dsh_seam::event::{Entry, Event, RequestSent};
use dsh_seam::failure::Seam;
use dsh_seam::message::Chunk;

use blame::{Changes, Listeners};
use frame::Frame;
use messages::{Messages, View};
pub use report::{
    Break, Breaks, Change, Culprit, Kind, Place, RequestPrefix, SamplingChange, SectionChange, Size, Summary,
};

/// How long providers keep a prefix at least that nobody asks for again: the shortest time that one promises.
pub const FORGOTTEN_AFTER_MS: u64 = 5 * 60 * 1000;

/// Compares each request of a log with the one before while it is shown the log, entry by entry from its beginning.
#[derive(Debug, Default)]
pub struct Prefixes {
    view: View,
    /// What listeners changed since the step began or the last request was sent.
    changes: Changes,
    reloaded: Vec<PluginName>,
    last: Option<Last>,
}

/// The request that was sent last.
#[derive(Debug)]
struct Last {
    /// When, in Unix milliseconds.
    time: u64,
    frame: Frame,
    messages: Messages,
    changes: Changes,
    /// What is told of it; none: it was told.
    report: Option<RequestPrefix>,
}

impl Prefixes {
    /// Takes the log's next entry. What is told of a request is known when the next is sent, or when there are no more entries.
    pub fn apply(&mut self, entry: &Entry) -> Option<RequestPrefix> {
        match &entry.event {
            Event::RequestSent(sent) => {
                let told = self.end();
                self.sent(entry, sent);
                return told;
            }
            Event::StepStart(_) => self.changes = Changes::default(),
            Event::WaterfallChanged(changed) if changed.waterfall == Seam::Request => {
                self.changes.add(&changed.plugin, &changed.what);
            }
            Event::PluginReloaded(reloaded) => self.reloaded.push(reloaded.plugin.clone()),
            Event::AssistantChunk(chunk) => {
                if let (Chunk::Usage { usage }, Some(report)) = (&chunk.chunk, self.report()) {
                    report.usage = Some(*usage);
                }
            }
            Event::RequestFailed(failed) => {
                if let Some(report) = self.report() {
                    report.failed = Some(failed.code.clone());
                }
            }
            event => self.view.apply(event),
        }
        None
    }

    /// There are no more entries: what is told of the last request.
    pub fn end(&mut self) -> Option<RequestPrefix> {
        self.last.as_mut()?.report.take()
    }

    fn report(&mut self) -> Option<&mut RequestPrefix> {
        self.last.as_mut()?.report.as_mut()
    }

    fn sent(&mut self, entry: &Entry, sent: &RequestSent) {
        let changes = std::mem::take(&mut self.changes);
        let frame = self.last.as_ref().map(|last| &last.frame).unwrap_or(&Frame::default()).next(sent);
        let messages = self.view.edited(&sent.edits);
        let count = messages.len();
        let mut report = RequestPrefix {
            turn: sent.turn,
            step: sent.step,
            attempt: sent.attempt,
            seq: entry.seq,
            time: entry.time_ms,
            model: sent.model.clone(),
            messages: u32::try_from(count).unwrap_or(u32::MAX),
            size: frame.size().plus(self.view.size_of(&messages, count)),
            common: None,
            broken: None,
            sampling: None,
            pause_ms: None,
            usage: None,
            failed: None,
        };
        if let Some(last) = &self.last {
            let listeners = Listeners { before: &last.changes, now: &changes, reloaded: &self.reloaded };
            let (common, broken) = self.compared(last, &frame, &messages, listeners);
            (report.common, report.broken) = (Some(common), broken);
            report.sampling = frame.sampling_change(&last.frame, listeners);
            let pause = entry.time_ms.saturating_sub(last.time);
            report.pause_ms = (pause > FORGOTTEN_AFTER_MS).then_some(pause);
        }
        self.view.sent();
        self.reloaded.clear();
        self.last = Some(Last { time: entry.time_ms, frame, messages, changes, report: Some(report) });
    }

    /// How much a request has in common with the last, and where that ends.
    fn compared(
        &self,
        last: &Last,
        frame: &Frame,
        messages: &Messages,
        listeners: Listeners<'_>,
    ) -> (Size, Option<Break>) {
        if let Some((broken, common)) = frame.broken(&last.frame, listeners) {
            return (common, Some(broken));
        }
        let count = self.view.common(messages, &last.messages);
        let common = frame.size().plus(self.view.size_of(messages, count));
        (common, self.view.broken(messages, &last.messages, count))
    }
}
