//! Where commands become deeds: applied in the order read, or when the event that they wait for has happened.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dsh_loop::LoopAgent;
use dsh_seam::AgentId;
use dsh_seam::event::{Emitted, LiveEvent, Source};
use futures::FutureExt as _;
use tokio::sync::watch;

use super::after::{Numbered, Waiting};
use super::command::{self, Verb};
use super::stdin::NumberedLine;
use crate::approve::InputApprover;
use crate::diagnostics;

/// The commands of one run and the agent they are for.
pub struct Desk {
    prompted: AgentId,
    agent: OnceLock<Arc<LoopAgent>>,
    waiting: Mutex<Waiting>,
    /// The other agents that have begun to live: what is logged before repairs their session and does not count.
    begun: Mutex<HashSet<AgentId>>,
    /// Events that were emitted and whose observers are not done.
    unsettled: watch::Sender<u64>,
    approver: Option<Arc<InputApprover>>,
    messages: AtomicU64,
    complaints: AtomicU64,
}

impl Desk {
    /// A desk for the prompted agent. `approver` is there when questions are answered by commands.
    pub fn new(prompted: AgentId, approver: Option<Arc<InputApprover>>) -> Self {
        Self {
            prompted,
            agent: OnceLock::new(),
            waiting: Mutex::default(),
            begun: Mutex::default(),
            unsettled: watch::Sender::new(0),
            approver,
            messages: AtomicU64::new(0),
            complaints: AtomicU64::new(0),
        }
    }

    /// The agent is there; from here on its durable events count, those of a repair do not.
    pub fn attach(&self, agent: Arc<LoopAgent>) {
        let _ = self.agent.set(agent);
    }

    /// Takes a line in. Blank ones are skipped. Returns whether it was one.
    pub async fn line(&self, line: NumberedLine) -> bool {
        let number = line.number;
        let text = match line.text {
            Ok(text) if text.trim().is_empty() => return false,
            Ok(text) => text,
            Err(problem) => {
                self.complain(number, &problem);
                return true;
            }
        };
        match command::parse(&text) {
            Ok((verb, mut after)) => {
                if let Some(after) = &mut after
                    && let Some(kind) = after.kind.strip_suffix(&format!("@{}", self.prompted))
                {
                    after.kind = kind.to_owned();
                }
                let due = self.waiting().take(Numbered { line: number, verb }, after);
                if let Some(command) = due {
                    self.apply(command).await;
                }
            }
            Err(problem) => self.complain(number, &problem),
        }
        true
    }

    /// How many messages were taken so far.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Whether a line was ill-formed, refused or left over.
    pub fn complained(&self) -> bool {
        self.complaints.load(Ordering::Relaxed) > 0
    }

    /// An event was emitted. Commands for a chunk are applied here; nothing they do waits, because a step is open.
    pub fn emitted(&self, emitted: &Emitted) {
        let Some(kind) = self.counted(emitted) else { return };
        self.unsettled.send_modify(|count| *count += 1);
        let due = self.waiting().emitted(&kind);
        for command in due {
            if self.apply(command).now_or_never().is_none() {
                tracing::error!("a command that waited for a chunk could not be applied at once");
            }
        }
    }

    /// An event's observers are done.
    pub async fn settled(&self, emitted: &Emitted) {
        let Some(kind) = self.counted(emitted) else { return };
        let due = self.waiting().settled(&kind);
        for command in due {
            self.apply(command).await;
        }
        self.unsettled.send_modify(|count| *count = count.saturating_sub(1));
    }

    /// Returns when no event is on its way: whatever was to be done after one is done.
    pub async fn quiet(&self) {
        // The sender is a field of `self`, so waiting cannot fail.
        let _ = self.unsettled.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Reports the commands whose event never came, and drops them.
    pub fn report_left(&self) {
        let left = self.waiting().take_left();
        for (line, after) in left {
            self.complain(line, &format!("its event `{after}` never came, so it was not applied"));
        }
    }

    /// An event as `after` names it, if it is one that counts.
    fn counted(&self, emitted: &Emitted) -> Option<String> {
        let (agent, kind) = (emitted.agent(), emitted.kind());
        if *agent == self.prompted {
            let counts = matches!(emitted, Emitted::Live { .. }) || self.agent.get().is_some();
            return counts.then(|| kind.into_owned());
        }
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = match emitted {
            Emitted::Durable(_) => begun.contains(agent),
            Emitted::Live { event, .. } => {
                if !matches!(**event, LiveEvent::AgentCreated(_)) {
                    begun.insert(agent.clone());
                }
                true
            }
        };
        counts.then(|| format!("{kind}@{agent}"))
    }

    async fn apply(&self, command: Numbered) {
        let Some(agent) = self.agent.get() else { return };
        let content_taken = matches!(command.verb, Verb::Send(_) | Verb::Steer(_) | Verb::Inject(_));
        let done = match command.verb {
            Verb::Send(content) => agent.send(content, Source::User).map_err(|failure| failure.message),
            Verb::Steer(content) => agent.steer(content, Source::User).map_err(|failure| failure.message),
            Verb::Inject(content) => agent.inject(content, Source::User).await.map_err(|failure| failure.message),
            Verb::Abort(reason) => {
                agent.abort(&reason);
                Ok(())
            }
            Verb::Cancel { keep_inbox } => {
                agent.cancel(keep_inbox);
                Ok(())
            }
            Verb::Dispose => {
                agent.start_dispose("disposed by a command");
                Ok(())
            }
            Verb::Approve { agent, id, answer } => match &self.approver {
                Some(approver) => approver.answer(agent.as_deref(), id.as_deref(), answer),
                None => Err("no question is open: `--approve` answers all".into()),
            },
        };
        match done {
            Ok(()) => drop(self.messages.fetch_add(u64::from(content_taken), Ordering::Relaxed)),
            Err(problem) => self.complain(command.line, &problem),
        }
    }

    fn complain(&self, line: u64, problem: &str) {
        self.complaints.fetch_add(1, Ordering::Relaxed);
        diagnostics::complain(format_args!("standard input, line {line}: {problem}"));
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
