//! One child from its making to its end, on a task of its own, so that nothing of it is left whatever becomes of whoever asked for it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use dsh_seam::event::Status;
use dsh_seam::failure::Failure;
use dsh_seam::ids::AgentId;
use dsh_seam::services::Services;
use dsh_seam::subagents::AgentReport;
use dsh_seam::tools::Profile;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::Inherited;
use super::report::ReportCollector;
use crate::agent::{AgentLoop, AgentOwner};
use crate::core::Core;
use crate::options::{AgentOptions, CreateError};
use crate::queued::Queued;
use crate::sync::sleep;
use crate::turn_token::{Above, Cause};
use crate::under_way::Begun;

/// The reason of a dispose when the work is done.
const DONE: &str = "done";
/// The same when whoever waited for the work is gone: its plugin failed, or its call took too long.
const CALL_ENDED: &str = "its call ended";

/// What a child is made with.
pub(super) struct ChildSpec {
    pub(super) options: AgentOptions,
    pub(super) root: Weak<Core>,
    pub(super) tools: BTreeSet<String>,
    pub(super) profile: Arc<Profile>,
}

/// The task of one child.
pub(super) struct ChildTask {
    pub(super) parent: Arc<Core>,
    pub(super) root: Arc<Core>,
    /// The call that it is made for. What cancels it has cancelled the child's turn in the same step.
    pub(super) above: Arc<Above>,
    /// Nobody waits for the work any more.
    pub(super) call_ended: CancellationToken,
    /// The last field: dropped when all else is.
    pub(super) _begun: Begun,
}

impl ChildTask {
    pub(super) async fn run(
        self,
        spec: ChildSpec,
        prompt: Queued,
        making: OwnedMutexGuard<()>,
    ) -> Result<AgentReport, Failure> {
        let made = self.make(spec).await;
        drop(making);
        let (child, collector) = made.inspect_err(|_| self.root.uncount_child())?;
        // Known to the parent before it is looked whether it is wanted: a dispose finds either the child or no prompt sent.
        self.parent.children.add(&child);
        let done = self.is_wanted() && self.work(&child, prompt).await?;
        let reason = if done { DONE.to_owned() } else { self.wind_up(&child).await };
        child.dispose(&reason).await;
        if done {
            return Ok(collector.report(child.session().clone()));
        }
        let message = format!("the sub-agent `{}` was stopped because the turn was aborted", child.id());
        Err(Failure::new("aborted", message))
    }

    /// Makes the child under the parent's next number whose id is free.
    async fn make(&self, spec: ChildSpec) -> Result<(AgentOwner, Arc<ReportCollector>), Failure> {
        let parent = &self.parent;
        let ChildSpec { options, root, tools, profile } = spec;
        loop {
            let number = parent.children.last.fetch_add(1, Ordering::Relaxed) + 1;
            let id = AgentId::new(format!("{}.{number}", parent.info.agent));
            let id = id.map_err(|error| Failure::new("limit", error.to_string()))?;
            let collector = Arc::new(ReportCollector::new(parent.services.events.clone(), id.clone()));
            let services = Services { events: collector.clone(), ..parent.services.clone() };
            let inherited = Inherited {
                root: root.clone(),
                session: parent.info.session.clone(),
                tools: tools.clone(),
                profile: profile.clone(),
                above: self.above.clone(),
            };
            let agents = AgentLoop::of(services, parent.seams().plugins.clone());
            match agents.create_with(id, options.clone(), Some(inherited)).await {
                Ok(child) => return Ok((child, collector)),
                Err(CreateError::Duplicate(_)) => {}
                Err(error) => {
                    let message = format!("the sub-agent could not be made: {error}");
                    return Err(Failure::new("not-available", message));
                }
            }
        }
    }

    /// Has the child do the work. Returns whether it came to its own end.
    async fn work(&self, child: &AgentOwner, prompt: Queued) -> Result<bool, Failure> {
        if let Err(failure) = child.enqueue(prompt) {
            child.dispose(DONE).await;
            return Err(failure);
        }
        Ok(tokio::select! {
            biased;
            () = self.above.ended() => false,
            () = self.call_ended.cancelled() => false,
            // A parent that is disposed has disposed it before it cancels anything.
            () = child.idle() => self.is_wanted(),
        })
    }

    /// Whether somebody is there for whom the work is.
    fn is_wanted(&self) -> bool {
        self.parent.inbox.status() != Status::Disposed && self.above.cause().is_none()
    }

    /// Lets an aborted turn of the child end by itself, no longer than a dispose may take. Returns the reason of the child's dispose.
    async fn wind_up(&self, child: &AgentOwner) -> String {
        if self.parent.inbox.status() == Status::Disposed {
            // Its children are disposed before its own turn is cancelled, which must not go on with what has come of the call.
            self.parent.life.cancelled().await;
        }
        if let Some(Cause::Aborted(_) | Cause::Budget(_)) = self.above.cause() {
            tokio::select! {
                biased;
                () = child.idle() => {}
                () = sleep(self.parent.options.deadlines.dispose) => {}
            }
        }
        self.above.cause().map_or_else(|| CALL_ENDED.to_owned(), Cause::into_words)
    }
}
