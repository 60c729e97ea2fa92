//! The chain that ends an agent, each link awaited: the driver unwinds, what is open is closed, a last flush, unregister,
//! `agent/disposed`, the session is let go.

use std::sync::Arc;

use dsh_seam::event::{AgentDisposed, ErrorEvent, Event, LiveEvent, ReasonKind, TurnReason};
use dsh_seam::services::Registration;
use tokio::sync::watch;

use crate::core::Core;
use crate::driver::drive;
use crate::repair::{self, Cut};
use crate::sync::{JoinError, JoinHandle, sleep, spawn};
use crate::turn_token::Cause;
use crate::under_way::in_time;

/// Runs the driver and, once it is over or its time is up after a dispose, the rest of the chain.
pub(crate) async fn supervise(core: Arc<Core>, registration: Registration, done: watch::Sender<bool>) {
    let mut driver = spawn(drive(core.clone()));
    let deadline = async {
        core.life.cancelled().await;
        sleep(core.options.deadlines.dispose).await;
    };
    let ended = tokio::select! {
        biased;
        ended = &mut driver => Some(ended),
        () = deadline => None,
    };
    // Boxed, so that an idle agent does not keep room for its end.
    Box::pin(finish(&core, ended, driver, registration)).await;
    done.send_replace(true);
}

/// The chain behind the driver. One that panicked or was dropped leaves open what it had opened; that is closed first.
async fn finish(core: &Core, ended: Option<Result<(), JoinError>>, driver: JoinHandle<()>, registration: Registration) {
    match ended {
        Some(Ok(())) => {}
        Some(Err(panic)) => {
            let error = internal(core, format!("the driver panicked: {panic}"));
            close_open(core, Some(&error)).await;
            core.live(LiveEvent::AgentError(error)).await;
        }
        None => {
            driver.abort();
            // What it holds is free once it is dropped; a driver that blocks its thread is not waited for.
            let _ = tokio::time::timeout(core.options.deadlines.flush, driver).await;
            let deadline = core.options.deadlines.dispose.as_millis();
            let error = internal(core, format!("the agent did not unwind within {deadline} ms and was dropped"));
            close_open(core, None).await;
            core.live(LiveEvent::AgentError(error)).await;
        }
    }
    core.dispose("the driver ended");
    core.children_gone().await;
    // Calls outside of any turn were cancelled with the agent; their results are logged while the log is open.
    let deadline = core.options.deadlines.dispose;
    in_time(deadline, "a tool call", async { drop(core.outside.write().await) }).await;
    core.journal.until_done().await;
    in_time(deadline, "a write to the session", core.journal.seal()).await;
    core.journal.until_done().await;
    core.journal.settle_all().await;
    core.flush_turn().await;
    end(core, registration).await;
}

/// The last links: detach the plugins, unregister, `agent/disposed`, let go of the session.
pub(crate) async fn end(core: &Core, registration: Registration) {
    for lifecycle in &core.seams().lifecycles {
        lifecycle.detached();
    }
    drop(registration);
    let dropped = core.inbox.dropped().saturating_add(u32::try_from(core.held.left()).unwrap_or(u32::MAX));
    core.live(LiveEvent::AgentDisposed(AgentDisposed { dropped })).await;
    core.journal.settle_all().await;
    core.journal.close().await;
}

impl Core {
    /// The first link of the chain; the rest follows on the supervisor's task.
    pub(crate) fn dispose(&self, reason: &str) {
        let reason = &self.inbox.mark_disposed(reason);
        // Before the turn is cancelled, which cancels theirs: each says that it is disposed before its turn ends.
        self.children.dispose(reason);
        self.inbox.dispose(reason);
        self.life.cancel();
    }
}

fn internal(core: &Core, message: String) -> ErrorEvent {
    tracing::error!("{message}");
    let at = core.journal.state().at();
    ErrorEvent { turn: at.turn, step: at.step, message, code: "internal".into(), plugin: None }
}

/// Closes the turn that a driver has left open. `error` is what ended it, unless it was the dispose.
async fn close_open(core: &Core, error: Option<&ErrorEvent>) {
    let why = core.inbox.retire_token().map(Cause::into_words);
    let reason = TurnReason { reason: why, ..TurnReason::plain(ReasonKind::Disposed) };
    let owed = repair::owed(&core.journal.state(), Cut::Driver { reason, error: error.cloned() });
    for event in owed {
        if matches!(event, Event::StepEnd(_)) {
            // A failed append has reported itself.
            let _ = core.log_held().await;
        }
        if core.journal.append(event).await.is_err() {
            return;
        }
    }
}
