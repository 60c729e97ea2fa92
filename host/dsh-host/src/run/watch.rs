//! Sees every event of a run: prints it, counts it for the exit code, and applies the commands that wait for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dsh_seam::AgentId;
use dsh_seam::event::{Emitted, Event, LiveEvent, PluginReloaded, Status};
use dsh_seam::plugin::EventSink;
use tokio::sync::watch;

use super::chat::PROMPT;
use crate::approve::InputApprover;
use crate::budget;
use crate::diagnostics;
use crate::exit::{self, Code, Ledger};
use crate::hash::short;
use crate::input::desk::Desk;
use crate::output::Sink;
use crate::output::pump::Pump;
use crate::output::receipts::Witness;
use crate::why;

/// The one subscriber of a run.
pub struct Watch {
    prompted: AgentId,
    ledger: Mutex<Ledger>,
    sink: Mutex<Sink>,
    pump: Pump,
    desk: Option<Arc<Desk>>,
    approver: Option<Arc<InputApprover>>,
    witness: Option<Witness>,
    status: watch::Sender<Status>,
    /// Whether errors are said on standard error; a chat shows them itself.
    says_errors: bool,
}

impl Watch {
    /// A watch over the agents of a run, of which `prompted` gets the prompts.
    pub fn new(prompted: AgentId, ledger: Ledger, sink: Sink, pump: Pump) -> Self {
        let says_errors = !matches!(sink, Sink::Chat(_));
        Self {
            prompted,
            ledger: Mutex::new(ledger),
            sink: Mutex::new(sink),
            pump,
            desk: None,
            approver: None,
            witness: None,
            status: watch::Sender::new(Status::Idle),
            says_errors,
        }
    }

    /// Commands from standard input, and the questions that they may answer.
    #[must_use]
    pub fn with_commands(mut self, desk: Arc<Desk>, approver: Option<Arc<InputApprover>>) -> Self {
        self.desk = Some(desk);
        self.approver = approver;
        self
    }

    /// Somebody who writes a timeline.
    #[must_use]
    pub fn with_witness(mut self, witness: Option<Witness>) -> Self {
        self.witness = witness;
        self
    }

    /// What the run has come to so far.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something outside of the events earned a code.
    pub fn earn(&self, code: Code) {
        self.ledger().earn(code);
    }

    /// The prompted agent's status, as far as everything before it is done.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Prints what stands at the end.
    pub fn finish(&self) {
        let result = self.ledger().result();
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        self.pump.write(|out| sink.finish(&result, out));
    }

    /// Where warnings are not shown: says what decided the exit code, unless an error has said it.
    pub fn explain(&self) {
        let ledger = self.ledger();
        if self.says_errors
            && !diagnostics::shows_warnings()
            && let Some(why) = ledger.untold(ledger.code())
        {
            diagnostics::complain(why);
        }
    }

    /// Says what the run used, with `-v`.
    pub fn say_usage(&self) {
        let usage = self.ledger().result().usage;
        if usage.tokens() > 0 || usage.cost.is_some() {
            tracing::info!("the run used {}", budget::in_words(&usage));
        }
    }

    /// Ends an open line of text, for a chat that is about to write one of its own.
    pub fn end_line(&self) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        if let Sink::Chat(sink) = &mut *sink {
            self.pump.write(|out| sink.end_line(out));
        }
    }

    /// Says something on standard error that nobody asked for. In a chat it stands on lines of its own, and a prompt that it came in the
    /// way of stands there again.
    pub fn aside(&self, say: impl FnOnce()) {
        let is_chat = matches!(&*self.sink.lock().unwrap_or_else(PoisonError::into_inner), Sink::Chat(_));
        let prompted = is_chat && *self.status.borrow() == Status::Idle;
        self.end_line();
        if prompted {
            self.pump.write(|out| out.push(b'\n'));
        }
        if is_chat {
            self.pump.drain();
        }
        say();
        if prompted {
            self.pump.write(|out| out.extend_from_slice(PROMPT.as_bytes()));
        }
    }

    /// Warns of what a run in which nobody reads the events would end with and say nothing. How a sub-agent ended, its parent is told.
    fn warn(&self, agent: &AgentId, event: &Event) {
        let warning = match event {
            Event::ToolResult(result) if result.turn > 0 => why::denial(result),
            Event::TurnEnd(end) if *agent == self.prompted => why::limit(end),
            _ => None,
        };
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
    }

    /// Says which version of a plugin serves from now on.
    fn reloaded(&self, agent: &AgentId, reloaded: &PluginReloaded) {
        let PluginReloaded { turn, plugin, sha256, .. } = reloaded;
        let whose = if *agent == self.prompted { String::new() } else { format!("agent `{agent}`: ") };
        let hash = short(sha256.as_deref().unwrap_or_default());
        let note = format!("{whose}reloaded plugin `{plugin}` at turn {turn} (SHA-256 {hash})");
        self.aside(|| diagnostics::note(note));
    }

    /// Says an error on standard error. Of a plugin outside of a turn, and of itself, the loop has said more already.
    fn say(&self, agent: &AgentId, event: &LiveEvent) {
        let LiveEvent::AgentError(error) = event else { return };
        let said = error.code == "internal" || (error.turn == 0 && error.plugin.is_some());
        if self.says_errors && !said {
            let whose = if *agent == self.prompted { String::new() } else { format!("agent `{agent}`: ") };
            diagnostics::complain(format_args!("{whose}{} ({})", error.message, error.code));
            if error.code == exit::NOT_WRITTEN {
                diagnostics::hint(exit::KEEP_ELSEWHERE);
            }
            self.ledger().told(error);
        }
    }
}

#[async_trait]
impl EventSink for Watch {
    fn emit(&self, emitted: &Emitted) {
        self.ledger().observe(emitted);
        if let Some(witness) = &self.witness {
            witness.emitted(emitted);
        }
        // Whoever reads of a question may answer it at once, so it is open before it is printed.
        if let Some(approver) = &self.approver {
            approver.observe(emitted);
        }
        {
            let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
            self.pump.write(|out| sink.emit(emitted, out));
        }
        match emitted {
            Emitted::Live { agent, event, .. } => self.say(agent, event),
            Emitted::Durable(entry) if let Event::PluginReloaded(reloaded) = &entry.event => {
                self.reloaded(&entry.agent, reloaded);
            }
            Emitted::Durable(entry) if self.says_errors => self.warn(&entry.agent, &entry.event),
            Emitted::Durable(_) => {}
        }
        // No lock of ours is held here: a command may emit again.
        if let Some(desk) = &self.desk {
            desk.emitted(emitted);
        }
    }

    async fn settled(&self, emitted: &Emitted) {
        if let Some(desk) = &self.desk {
            desk.settled(emitted).await;
        }
        if let Emitted::Live { agent, event, .. } = emitted
            && *agent == self.prompted
            && let LiveEvent::AgentStatus(status) = event.as_ref()
        {
            self.status.send_replace(status.status);
        }
    }
}
