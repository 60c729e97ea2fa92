//! The inbox: two queues, the agent's status and the turn's token, under one lock.
//!
//! `enqueue` wakes the driver, `steer` does not. Which queue a steered message goes to, whether an abort finds a turn, and whether the
//! agent becomes idle are decided under the same lock, so no message is stranded between a turn's end and the next drain.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use dsh_seam::event::{AgentDropped, AgentQueued, AgentStatus, ErrorEvent, LiveEvent, Status};
use dsh_seam::failure::Failure;
use dsh_seam::services::{Budget, NoBudget};
use tokio::sync::{Notify, watch};

use crate::options::QueueMode;
use crate::queued::Queued;
use crate::sync::{Mutex, MutexGuard};
use crate::turn_token::{Above, Cause, TurnToken};

/// Messages in both queues together: more is a runaway sender.
pub const MAX_MESSAGES: usize = 1_024;
/// Bytes in both queues together.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Messages on their way from a queue into the log. What is left when this is dropped is counted as lost: the log takes no more, or
/// the driver itself was dropped.
#[derive(Debug, Default)]
pub struct Drained {
    messages: VecDeque<Queued>,
    lost: Arc<AtomicU32>,
}

impl Drained {
    /// The next one to log.
    pub fn next(&self) -> Option<&Queued> {
        self.messages.front()
    }

    /// The next one is in the log, or known to be lost.
    pub fn taken(&mut self) {
        self.messages.pop_front();
    }
}

impl Drop for Drained {
    fn drop(&mut self) {
        self.lost.fetch_add(count(self.messages.len()), Ordering::Relaxed);
    }
}

/// A turn that is due.
#[derive(Debug)]
pub struct Due {
    /// The drained messages; may be empty when a resumed session owes an answer.
    pub messages: Drained,
    /// The turn's token.
    pub token: Arc<TurnToken>,
}

/// Emits a live event; called under the inbox's lock so that the order of events is the order of what happened. Must not wait.
pub type Emit = Box<dyn Fn(LiveEvent) + Send + Sync>;

/// The inbox of one agent.
pub struct Inbox {
    inner: Mutex<Inner>,
    wake: Notify,
    quiet: watch::Sender<bool>,
    /// Drained, but they never reached the log.
    lost: Arc<AtomicU32>,
    emit: Emit,
    mode: QueueMode,
    max_turns: u32,
    above: Option<Arc<Above>>,
    budget: Arc<dyn Budget>,
}

struct Inner {
    queued: VecDeque<Queued>,
    steering: VecDeque<Queued>,
    bytes: usize,
    status: Status,
    /// From the drain to the end of the flush.
    turn_open: bool,
    token: Option<Arc<TurnToken>>,
    /// Logged user messages that no turn has answered yet (a resumed session).
    owed: bool,
    held: bool,
    /// Turns in a row that only plugins' messages started.
    plugin_turns: u32,
    dispose_reason: Option<String>,
}

impl Inbox {
    /// An empty inbox; `owed` when the log holds unanswered messages, `held` until [`Inbox::release`].
    pub fn new(mode: QueueMode, max_turns: u32, owed: bool, held: bool, emit: Emit) -> Self {
        let inner = Inner {
            queued: VecDeque::new(),
            steering: VecDeque::new(),
            bytes: 0,
            status: Status::Idle,
            turn_open: false,
            token: None,
            owed,
            held,
            plugin_turns: 0,
            dispose_reason: None,
        };
        Self {
            inner: Mutex::new(inner),
            wake: Notify::new(),
            quiet: watch::Sender::new(false),
            lost: Arc::default(),
            emit,
            mode,
            max_turns,
            above: None,
            budget: Arc::new(NoBudget),
        }
    }

    /// The same in a run that has a budget: when that is used up, plugins start no turn any more.
    pub fn within(self, budget: Arc<dyn Budget>) -> Self {
        Self { budget, ..self }
    }

    /// The same for an agent that was made for a call: when that has ended, no turn is opened any more.
    pub fn below(self, above: Option<Arc<Above>>) -> Self {
        Self { above, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn emit(&self, event: LiveEvent) {
        (self.emit)(event);
    }

    fn set_status(&self, inner: &mut Inner, status: Status) {
        if inner.status != status && inner.status != Status::Disposed {
            inner.status = status;
            self.emit(LiveEvent::AgentStatus(AgentStatus { status }));
        }
    }

    fn is_quiet(inner: &Inner) -> bool {
        inner.status == Status::Disposed || (inner.status == Status::Idle && inner.queued.is_empty() && !inner.owed)
    }

    /// Whoever waits for quiet is held back as soon as there is something to do; only [`Inbox::confirm_quiet`] lets them go.
    fn break_quiet(&self, inner: &Inner) {
        if !Self::is_quiet(inner) {
            self.quiet.send_replace(false);
        }
    }

    /// Lets go who waits for quiet, if it is quiet. The driver calls it once everything it emitted has settled, so that a command which
    /// waited for the agent to become idle comes first.
    pub fn confirm_quiet(&self) {
        let inner = self.lock();
        if Self::is_quiet(&inner) {
            self.quiet.send_replace(true);
        }
    }

    /// A message for the next turn; wakes the driver.
    pub fn enqueue(&self, message: Queued) -> Result<(), Failure> {
        let mut inner = self.lock();
        self.push(&mut inner, message, false)
    }

    /// A message for the running turn; while none is open, the same as [`Inbox::enqueue`].
    pub fn steer(&self, message: Queued) -> Result<(), Failure> {
        let mut inner = self.lock();
        let steering = inner.turn_open;
        self.push(&mut inner, message, steering)
    }

    fn push(&self, inner: &mut Inner, message: Queued, steering: bool) -> Result<(), Failure> {
        if inner.status == Status::Disposed {
            return Err(Failure::new("disposed", "the agent is disposed and takes no more messages"));
        }
        let bytes = message.bytes();
        if inner.queued.len() + inner.steering.len() >= MAX_MESSAGES || inner.bytes + bytes > MAX_BYTES {
            return Err(Failure::new(
                "limit",
                format!("the inbox is full: it holds at most {MAX_MESSAGES} messages and {MAX_BYTES} bytes"),
            ));
        }
        inner.bytes += bytes;
        self.emit(LiveEvent::AgentQueued(AgentQueued {
            content: message.content().to_vec(),
            source: message.source().clone(),
            steering,
        }));
        if steering {
            inner.steering.push_back(message);
        } else {
            inner.queued.push_back(message);
            self.break_quiet(inner);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Lets a held driver take its first message.
    pub fn release(&self) {
        self.lock().held = false;
        self.wake.notify_one();
    }

    /// Waits for a turn to be due; none when the agent is disposed. Wakes up as well, with `Some(None)`, when there is something to
    /// settle: `unsettled` says so, [`Inbox::nudge`] was called, or messages were dropped that no turn may answer. What waits for
    /// `agent/queued` so comes before the turn that the message starts. Cancel safe.
    pub async fn wait_for_queued(&self, unsettled: impl Fn() -> bool) -> Option<Option<Due>> {
        loop {
            let woken = self.wake.notified();
            {
                let mut inner = self.lock();
                if inner.status == Status::Disposed {
                    return None;
                }
                if !inner.held {
                    if unsettled() {
                        return Some(None);
                    }
                    let before = (inner.queued.len(), inner.owed);
                    let due = self.drain_queued(&mut inner);
                    if due.is_some() || (inner.queued.len(), inner.owed) != before {
                        return Some(due);
                    }
                }
            }
            woken.await;
            let inner = self.lock();
            if inner.status != Status::Disposed && (inner.held || (inner.queued.is_empty() && !inner.owed)) {
                return Some(None);
            }
        }
    }

    /// Wakes the driver without a message.
    pub fn nudge(&self) {
        self.wake.notify_one();
    }

    /// Takes what is queued, makes the turn's token and sets the status, all at once.
    fn drain_queued(&self, inner: &mut Inner) -> Option<Due> {
        match self.above.as_ref().and_then(|above| above.cause()) {
            None => {}
            Some(Cause::Aborted(_) | Cause::Budget(_)) => {
                self.drop_all(inner);
                inner.owed = false;
            }
            // A dispose is on its way, and counts what is queued.
            Some(Cause::Disposed(_)) => return None,
        }
        self.drop_of_plugins(inner);
        if inner.queued.is_empty() && !inner.owed {
            self.set_status(inner, Status::Idle);
            return None;
        }
        let take = match self.mode {
            QueueMode::All => inner.queued.len(),
            QueueMode::One => inner.queued.len().min(1),
        };
        let messages: VecDeque<Queued> = inner.queued.drain(..take).collect();
        inner.bytes -= messages.iter().map(Queued::bytes).sum::<usize>();
        let only_plugins = !inner.owed && messages.iter().all(Queued::is_from_plugin);
        inner.plugin_turns = if only_plugins { inner.plugin_turns + 1 } else { 0 };
        inner.owed = false;
        inner.turn_open = true;
        let token = Arc::new(TurnToken::new(self.above.clone()));
        inner.token = Some(token.clone());
        self.set_status(inner, Status::Running);
        self.break_quiet(inner);
        Some(Due { messages: self.drained(messages), token })
    }

    /// Past the limit of turns, or of a budget, messages that only plugins sent start no more turns.
    fn drop_of_plugins(&self, inner: &mut Inner) {
        let leading = inner.queued.iter().take_while(|message| message.is_from_plugin()).count();
        let drop = match self.mode {
            QueueMode::All if leading < inner.queued.len() => 0,
            _ => leading,
        };
        if drop == 0 || inner.owed {
            return;
        }
        let past_turns = self.max_turns != 0 && inner.plugin_turns >= self.max_turns;
        let (code, message) = match self.budget.used_up() {
            _ if past_turns => (
                "max-turns".into(),
                format!(
                    "{} turns in a row were started by plugins only; their messages are dropped until a person speaks (`--max-turns`)",
                    self.max_turns
                ),
            ),
            Some(over) => (over.code.into(), format!("{}; messages of plugins start no turn any more", over.message)),
            None => return,
        };
        let dropped: Vec<Queued> = inner.queued.drain(..drop).collect();
        inner.bytes -= dropped.iter().map(Queued::bytes).sum::<usize>();
        self.emit(LiveEvent::AgentDropped(AgentDropped { count: count(dropped.len()) }));
        self.emit(LiveEvent::AgentError(ErrorEvent { turn: 0, step: 0, message, code, plugin: None }));
    }

    /// A message that was taken out of the inbox is lost: the log refused it.
    pub fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn drained(&self, messages: VecDeque<Queued>) -> Drained {
        Drained { messages, lost: self.lost.clone() }
    }

    /// Takes all steering.
    pub fn drain_steering(&self) -> Drained {
        let mut inner = self.lock();
        let messages = std::mem::take(&mut inner.steering);
        inner.bytes -= messages.iter().map(Queued::bytes).sum::<usize>();
        self.drained(messages)
    }

    /// Whether steering waits.
    pub fn has_steering(&self) -> bool {
        !self.lock().steering.is_empty()
    }

    /// The open turn's token, until it is retired.
    pub fn token(&self) -> Option<Arc<TurnToken>> {
        self.lock().token.clone()
    }

    /// Retires the turn's token: an abort from here on finds no turn. Returns what cancelled it.
    pub fn retire_token(&self) -> Option<Cause> {
        let mut inner = self.lock();
        let token = inner.token.take()?;
        match &inner.dispose_reason {
            Some(reason) => Some(Cause::Disposed(reason.clone())),
            None => token.cause(),
        }
    }

    /// The end of a turn: leftover steering goes to the tail of the queue; the next turn, or idle.
    pub fn hand_over(&self) -> Option<Due> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.token = None;
        inner.turn_open = false;
        inner.queued.extend(inner.steering.drain(..));
        if inner.status == Status::Disposed {
            return None;
        }
        self.drain_queued(inner)
    }

    /// Cancels the open turn; while none is open, nothing.
    pub fn abort(&self, reason: &str) {
        if let Some(token) = &self.lock().token {
            token.cancel(Cause::Aborted(reason.to_owned()));
        }
    }

    /// Cancels the open turn and, unless `keep`, throws both queues away.
    pub fn cancel(&self, keep: bool) {
        let mut inner = self.lock();
        if let Some(token) = &inner.token {
            token.cancel(Cause::Aborted("cancelled".into()));
        }
        if !keep {
            self.drop_all(&mut inner);
        }
    }

    /// Throws away what waits, and says so.
    fn drop_all(&self, inner: &mut Inner) {
        let count = self.clear(inner);
        if count > 0 {
            self.emit(LiveEvent::AgentDropped(AgentDropped { count }));
        }
    }

    fn clear(&self, inner: &mut Inner) -> u32 {
        let dropped = inner.queued.len() + inner.steering.len();
        inner.queued.clear();
        inner.steering.clear();
        inner.bytes = 0;
        count(dropped)
    }

    /// The first half of the first link of a dispose: the status. From here on no turn is opened. Returns the reason that stands, which
    /// is that of the first call.
    pub fn mark_disposed(&self, reason: &str) -> String {
        let mut inner = self.lock();
        self.mark(&mut inner, reason);
        inner.dispose_reason.clone().unwrap_or_else(|| reason.to_owned())
    }

    /// The first link of a dispose: status, token, wake. Returns whether this call was the first.
    pub fn dispose(&self, reason: &str) -> bool {
        let mut inner = self.lock();
        let first = self.mark(&mut inner, reason);
        if let (Some(token), Some(reason)) = (&inner.token, &inner.dispose_reason) {
            token.cancel(Cause::Disposed(reason.clone()));
        }
        drop(inner);
        self.wake.notify_one();
        first
    }

    fn mark(&self, inner: &mut Inner, reason: &str) -> bool {
        let first = inner.status != Status::Disposed;
        if first {
            inner.dispose_reason = Some(reason.to_owned());
            self.set_status(inner, Status::Disposed);
            self.quiet.send_replace(true);
        }
        first
    }

    /// Throws away what is left, at the end of a dispose; returns how many messages were never read.
    pub fn dropped(&self) -> u32 {
        let mut inner = self.lock();
        self.clear(&mut inner) + self.lost.swap(0, Ordering::Relaxed)
    }

    /// The status.
    pub fn status(&self) -> Status {
        self.lock().status
    }

    /// Whether anything is queued or owed.
    pub fn has_pending(&self) -> bool {
        let inner = self.lock();
        !inner.queued.is_empty() || inner.owed
    }

    /// Returns when the agent is idle with nothing queued, or disposed.
    pub async fn quiet(&self) {
        let mut quiet = self.quiet.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = quiet.wait_for(|quiet| *quiet).await;
    }
}

fn count(messages: usize) -> u32 {
    u32::try_from(messages).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queued::MAX_MESSAGE_BYTES;
    use dsh_seam::PluginName;
    use dsh_seam::event::Source;
    use dsh_seam::message::ContentBlock;

    struct Bench {
        inbox: Inbox,
        seen: Arc<Mutex<Vec<String>>>,
    }

    fn bench(mode: QueueMode, max_turns: u32) -> Bench {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let sink = seen.clone();
        let emit = move |event: LiveEvent| {
            let data = serde_json::to_value(&event).expect("events are JSON");
            let detail = match &event {
                LiveEvent::AgentQueued(queued) => {
                    format!("{} {}", queued.content[0].as_text().unwrap_or("?"), queued.steering)
                }
                LiveEvent::AgentStatus(status) => format!("{:?}", status.status),
                LiveEvent::AgentDropped(dropped) => dropped.count.to_string(),
                _ => data["code"].as_str().unwrap_or("?").to_owned(),
            };
            sink.lock().expect("no panic while held").push(format!("{} {detail}", event.kind()));
        };
        Bench { inbox: Inbox::new(mode, max_turns, false, false, Box::new(emit)), seen }
    }

    fn text(text: &str) -> Queued {
        Queued::new(vec![ContentBlock::text(text)], Source::User).expect("says something")
    }

    fn plugin(text: &str) -> Queued {
        Queued::new(vec![ContentBlock::text(text)], Source::Plugin { plugin: PluginName::new("p").expect("valid") })
            .expect("says something")
    }

    fn texts(drained: &Drained) -> String {
        drained
            .messages
            .iter()
            .map(|message| message.content()[0].as_text().unwrap_or("?"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    async fn due(bench: &Bench) -> Due {
        bench.inbox.wait_for_queued(|| false).await.expect("not disposed").expect("a turn is due")
    }

    #[tokio::test]
    async fn all_that_is_queued_is_one_turn_or_each_its_own() {
        let b = bench(QueueMode::All, 0);
        b.inbox.enqueue(text("a")).expect("room");
        b.inbox.enqueue(text("b")).expect("room");
        assert_eq!(texts(&due(&b).await.messages), "a b");
        assert!(b.inbox.hand_over().is_none());
        let b = bench(QueueMode::One, 0);
        b.inbox.enqueue(text("a")).expect("room");
        b.inbox.enqueue(text("b")).expect("room");
        assert_eq!(texts(&due(&b).await.messages), "a");
        assert_eq!(b.inbox.hand_over().map(|due| texts(&due.messages)).as_deref(), Some("b"));
        assert!(b.inbox.hand_over().is_none());
        assert_eq!(
            *b.seen.lock().expect("not held"),
            ["agent/queued a false", "agent/queued b false", "agent/status Running", "agent/status Idle"],
            "no idle between chained turns"
        );
    }

    #[tokio::test]
    async fn steering_goes_to_the_open_turn_and_is_never_stranded() {
        let b = bench(QueueMode::All, 0);
        b.inbox.steer(text("early")).expect("room");
        assert_eq!(texts(&due(&b).await.messages), "early");
        b.inbox.steer(text("mid")).expect("room");
        assert!(b.inbox.has_steering());
        b.inbox.retire_token();
        b.inbox.steer(text("late")).expect("room");
        assert_eq!(b.inbox.hand_over().map(|due| texts(&due.messages)).as_deref(), Some("mid late"));
    }

    #[tokio::test]
    async fn the_first_abort_wins_and_dispose_replaces_it() {
        let b = bench(QueueMode::All, 0);
        b.inbox.abort("nobody hears this");
        b.inbox.enqueue(text("a")).expect("room");
        let turn = due(&b).await;
        assert!(!turn.token.token().is_cancelled(), "an abort while idle arms nothing");
        b.inbox.abort("one");
        b.inbox.abort("two");
        assert_eq!(turn.token.cause(), Some(Cause::Aborted("one".into())));
        b.inbox.dispose("bye");
        assert_eq!(b.inbox.retire_token(), Some(Cause::Disposed("bye".into())));
        b.inbox.abort("three");
        assert!(b.inbox.hand_over().is_none());
        assert_eq!(b.inbox.enqueue(text("x")).expect_err("disposed").code, "disposed");
    }

    #[tokio::test]
    async fn cancel_clears_unless_it_keeps() {
        let b = bench(QueueMode::All, 0);
        b.inbox.enqueue(text("a")).expect("room");
        let turn = due(&b).await;
        b.inbox.enqueue(text("b")).expect("room");
        b.inbox.steer(text("c")).expect("room");
        b.inbox.cancel(true);
        assert!(turn.token.token().is_cancelled() && b.inbox.has_pending());
        b.inbox.cancel(false);
        assert!(!b.inbox.has_pending() && !b.inbox.has_steering());
        assert!(b.inbox.hand_over().is_none());
    }

    #[tokio::test]
    async fn plugins_alone_start_only_so_many_turns() {
        let b = bench(QueueMode::All, 2);
        b.inbox.enqueue(plugin("1")).expect("room");
        due(&b).await;
        b.inbox.enqueue(plugin("2")).expect("room");
        assert!(b.inbox.hand_over().is_some());
        b.inbox.enqueue(plugin("3")).expect("room");
        assert!(b.inbox.hand_over().is_none());
        b.inbox.enqueue(text("person")).expect("room");
        b.inbox.enqueue(plugin("4")).expect("room");
        assert_eq!(texts(&due(&b).await.messages), "person 4");
        let seen = b.seen.lock().expect("not held").join(" | ");
        assert!(seen.contains("agent/dropped 1 | agent/error max-turns | agent/status Idle"), "{seen}");
    }

    #[test]
    fn a_full_inbox_refuses_whatever_fills_it() {
        let b = bench(QueueMode::All, 0);
        (0..MAX_MESSAGES).for_each(|_| b.inbox.enqueue(text("a")).expect("room"));
        assert_eq!(b.inbox.enqueue(text("a")).expect_err("full").code, "limit");
        let long = || "x".repeat(MAX_MESSAGE_BYTES - 256);
        for block in [
            serde_json::json!({"type": "text", "text": long()}),
            serde_json::json!({"type": "text", "text": "a", "opaque": long()}),
            serde_json::json!({"type": "image", "data": long()}),
            serde_json::json!({"type": "new", "it": long()}),
        ] {
            let block: ContentBlock = serde_json::from_value(block).expect("a block");
            let message = || Queued::new(vec![block.clone()], Source::User).expect("small enough");
            let b = bench(QueueMode::All, 0);
            (0..4).for_each(|_| b.inbox.enqueue(message()).expect("room"));
            assert_eq!(b.inbox.enqueue(message()).expect_err("full").code, "limit");
            let taken = b.inbox.hand_over().expect("a turn is due");
            (0..4).for_each(|_| b.inbox.enqueue(message()).expect("room again"));
            drop(taken);
            assert_eq!(b.inbox.dropped(), 8);
        }
    }
}
