//! The log as tools and listeners see it from one place of the agent's life: what is reported there carries its turn, step and call.

use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::event::{Event, LiveEvent, PluginFailed, ToolProgress};
use dsh_seam::failure::{Failure, PluginError};
use dsh_seam::ids::{PluginName, StepRef};
use dsh_seam::tools::{ToolEvent, ToolLog};
use dsh_seam::waterfall::{FailureReport, RunError};
use futures::future::BoxFuture;

use super::Journal;
use crate::options::Durability;
use crate::sync::spawn;

/// The log, seen from one place.
pub(crate) struct Place {
    journal: Arc<Journal>,
    at: StepRef,
    call_id: Option<String>,
}

#[async_trait]
impl FailureReport for Place {
    async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError> {
        self.journal.append_whole(failed_event(self.at, self.call_id.clone(), error), 0).await.map(drop)
    }
}

#[async_trait]
impl ToolLog for Place {
    async fn append(&self, event: ToolEvent) -> Result<(), RunError> {
        let event = match event {
            ToolEvent::Dispatched(data) => Event::ToolDispatched(data),
            ToolEvent::Asked(data) => Event::ApprovalAsked(data),
            ToolEvent::Decided(data) => Event::ApprovalDecided(data),
            ToolEvent::Changed(data) => Event::WaterfallChanged(data),
        };
        self.journal.append_whole(event, 0).await.map(drop)
    }

    fn remembers(&self, plugin: &PluginName, key: &str) -> bool {
        self.journal.state().remembers(plugin, key)
    }

    fn progress(&self, at: StepRef, call_id: &str, plugin: &PluginName, text: &str, fraction: Option<f32>) {
        let event = ToolProgress {
            turn: at.turn,
            step: at.step,
            call_id: call_id.to_owned(),
            plugin: plugin.clone(),
            text: text.to_owned(),
            fraction,
        };
        self.journal.live_later(LiveEvent::ToolProgress(event));
    }

    async fn before_tool(&self, read_only: bool) -> Result<(), RunError> {
        if read_only || self.journal.durability == Durability::Turn {
            return Ok(());
        }
        self.journal.flush().await.map_err(|message| RunError::Host(Failure::new("flush-failed", message)))
    }

    fn owe(&self, work: BoxFuture<'static, ()>) {
        let owed = self.journal.owed.begin();
        spawn(async move {
            work.await;
            drop(owed);
        });
    }

    fn for_call(&self, at: StepRef, call_id: &str) -> Arc<dyn ToolLog> {
        self.journal.place(at, Some(call_id.to_owned()))
    }
}

impl Journal {
    /// A log for what happens at one place of the agent's life.
    pub(crate) fn place(self: &Arc<Self>, at: StepRef, call_id: Option<String>) -> Arc<Place> {
        Arc::new(Place { journal: self.clone(), at, call_id })
    }
}

pub(super) fn failed_event(at: StepRef, call_id: Option<String>, error: &PluginError) -> Event {
    Event::PluginFailed(PluginFailed {
        turn: at.turn,
        step: at.step,
        call_id,
        plugin: error.plugin.clone(),
        seam: error.seam,
        kind: error.kind,
        message: error.message.clone(),
    })
}
