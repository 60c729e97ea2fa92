//! Where commands become deeds: applied in the order read, or when the event that they wait for has happened.

use std::collections::HashMap;
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

/// How far an agent has come. What is logged before it begins to live repairs its session and does not count, whenever it settles.
#[derive(Default)]
struct Life {
    begun: bool,
    /// The last entry of the repair.
    repaired: Option<u64>,
}

/// The commands of one run and the agent they are for.
pub struct Desk {
    prompted: AgentId,
    agent: OnceLock<Arc<LoopAgent>>,
    waiting: Mutex<Waiting>,
    lives: Mutex<HashMap<AgentId, Life>>,
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
            lives: Mutex::default(),
            unsettled: watch::Sender::new(0),
            approver,
            messages: AtomicU64::new(0),
            complaints: AtomicU64::new(0),
        }
    }

    /// The agent is there; from here on its durable events count, those of a repair do not.
    pub fn attach(&self, agent: Arc<LoopAgent>) {
        let _ = self.agent.set(agent);
        self.lives().entry(self.prompted.clone()).or_default().begun = true;
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
        self.look(emitted);
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
        self.unsettled.send_modify(|count| match count.checked_sub(1) {
            Some(fewer) => *count = fewer,
            None => tracing::error!("`{kind}` has settled, and nothing was on its way"),
        });
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

    /// Learns from an event that is emitted how far its agent has come.
    fn look(&self, emitted: &Emitted) {
        let mut lives = self.lives();
        let life = lives.entry(emitted.agent().clone()).or_default();
        match emitted {
            Emitted::Durable(entry) if !life.begun => life.repaired = Some(entry.seq),
            // The prompted agent begins when it is attached.
            Emitted::Live { agent, event, .. } if *agent != self.prompted => {
                life.begun |= !matches!(**event, LiveEvent::AgentCreated(_));
            }
            Emitted::Durable(_) | Emitted::Live { .. } => {}
        }
    }

    /// An event as `after` names it, if it is one that counts. The answer is the same when it is emitted and when it has settled.
    fn counted(&self, emitted: &Emitted) -> Option<String> {
        let (agent, kind) = (emitted.agent(), emitted.kind());
        if let Emitted::Durable(entry) = emitted
            && self.lives().get(agent).and_then(|life| life.repaired).is_some_and(|repaired| entry.seq <= repaired)
        {
            return None;
        }
        Some(if *agent == self.prompted { kind.into_owned() } else { format!("{kind}@{agent}") })
    }

    fn lives(&self) -> MutexGuard<'_, HashMap<AgentId, Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use dsh_seam::SessionId;
    use dsh_seam::event::{AgentStatus, Entry, Event, Status, StepMark};

    use super::*;

    fn durable(agent: &str, seq: u64) -> Emitted {
        let session = SessionId::new("s").expect("an id");
        let event = Event::StepEnd(StepMark { turn: 1, step: 1 });
        let agent = AgentId::new(agent).expect("an id");
        Emitted::Durable(Arc::new(Entry { seq, time_ms: 0, session, agent, event }))
    }

    fn running(agent: &str) -> Emitted {
        let (agent, session) = (AgentId::new(agent).expect("an id"), SessionId::new("s").expect("an id"));
        Emitted::Live {
            agent,
            session,
            event: Arc::new(LiveEvent::AgentStatus(AgentStatus { status: Status::Running })),
        }
    }

    #[tokio::test]
    async fn what_repaired_a_session_does_not_count_whenever_it_settles() {
        let desk = Desk::new(AgentId::new("main").expect("an id"), None);
        let (repair, begins, first) = (durable("main.1", 3), running("main.1"), durable("main.1", 4));
        desk.emitted(&repair);
        desk.emitted(&begins);
        desk.emitted(&first);
        assert_eq!(*desk.unsettled.borrow(), 2);
        desk.settled(&repair).await;
        assert_eq!(*desk.unsettled.borrow(), 2, "it was not on its way");
        desk.settled(&first).await;
        desk.settled(&begins).await;
        assert_eq!(*desk.unsettled.borrow(), 0);
    }
}
