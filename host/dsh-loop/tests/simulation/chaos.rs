//! The one place that decides: at every await of every service and plugin of a run, how long it yields and what happens meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use dsh_loop::{AgentOwner, LoopAgent};
use dsh_seam::event::Source;
use dsh_seam::message::ContentBlock;
use dsh_seam::plugin::PluginContext;
use dsh_testkit::Chance;
use serde_json::{Value, json};

use crate::plan::{Fault, Plan};
use crate::record::{Record, Transcript};
use crate::services::{AnyBudget, BudgetEnd};

/// What may be done to the agent at any point.
const ACTIONS: [Fault; 8] = [
    Fault::Send,
    Fault::Steer,
    Fault::Inject,
    Fault::Abort,
    Fault::Cancel,
    Fault::Dispose,
    Fault::OwnerDropped,
    Fault::BudgetEnds,
];
/// Of so many points one is an occasion for an action.
const POINTS_WITHOUT_ACTION: u32 = 6;
/// Actions of one run: enough to meet each other, few enough for the run to come to its end.
const MOST_ACTIONS: u32 = 50;

/// What a run is made of.
pub struct Chaos {
    pub plan: Plan,
    pub transcript: Transcript,
    pub budget: Arc<AnyBudget>,
    chance: Mutex<Chance>,
    struck: Mutex<Vec<String>>,
    agent: Mutex<Weak<LoopAgent>>,
    owner: Mutex<Option<AgentOwner>>,
    contexts: Mutex<Vec<Arc<dyn PluginContext>>>,
    actions: AtomicU32,
    texts: AtomicU32,
}

impl Chaos {
    pub fn new(plan: Plan, chance: Chance) -> Arc<Self> {
        Arc::new(Self {
            plan,
            transcript: Transcript::default(),
            budget: Arc::default(),
            chance: Mutex::new(chance),
            struck: Mutex::default(),
            agent: Mutex::default(),
            owner: Mutex::default(),
            contexts: Mutex::default(),
            actions: AtomicU32::new(0),
            texts: AtomicU32::new(0),
        })
    }

    /// Takes a new agent in.
    pub fn take(&self, owner: AgentOwner) -> Arc<LoopAgent> {
        let agent = owner.agent();
        *lock(&self.agent) = Arc::downgrade(&agent);
        *lock(&self.owner) = Some(owner);
        agent
    }

    /// Lets go of the agent's owner.
    pub fn owner(&self) -> Option<AgentOwner> {
        lock(&self.owner).take()
    }

    /// Keeps what a plugin was given.
    pub fn keep(&self, context: Arc<dyn PluginContext>) {
        lock(&self.contexts).push(context);
    }

    /// What the plugins were given.
    pub fn contexts(&self) -> Vec<Arc<dyn PluginContext>> {
        lock(&self.contexts).clone()
    }

    /// What struck so far, and where.
    pub fn struck(&self) -> Vec<String> {
        lock(&self.struck).clone()
    }

    pub fn note(&self, kind: &str, data: Value) {
        self.transcript.add(Record::world(kind, data));
    }

    pub fn below(&self, n: u32) -> u32 {
        lock(&self.chance).below(n)
    }

    pub fn pick<T: Copy>(&self, of: &[T]) -> T {
        lock(&self.chance).pick(of)
    }

    /// Whether `fault` strikes here; if so it is written down.
    pub fn strikes(&self, fault: Fault, place: &str) -> bool {
        let strikes = self.plan.odds.get(&fault).is_some_and(|odds| lock(&self.chance).one_in(*odds));
        if strikes {
            lock(&self.struck).push(format!("line {}: {fault:?} at {place}", self.transcript.len()));
        }
        strikes
    }

    /// One await: something may be done to the agent, and others go on for a while.
    pub async fn point(self: &Arc<Self>, place: &str) {
        if self.below(POINTS_WITHOUT_ACTION) == 0 {
            for action in ACTIONS {
                if self.strikes(action, place) {
                    tokio::spawn(self.clone().act(action));
                }
            }
        }
        for _ in 0..self.below(4) {
            tokio::task::yield_now().await;
        }
        if self.plan.slow != 0 && self.below(self.plan.slow) == 0 {
            tokio::time::sleep(Duration::from_millis(self.below(1_500).into())).await;
        }
    }

    /// A text that no other message has.
    fn text(&self) -> (String, Vec<ContentBlock>) {
        let text = format!("m{}", self.texts.fetch_add(1, Ordering::Relaxed) + 1);
        let content = vec![ContentBlock::text(text.as_str())];
        (text, content)
    }

    /// Does one thing to the agent, as a person or as one of its plugins.
    pub async fn act(self: Arc<Self>, action: Fault) {
        if self.actions.fetch_add(1, Ordering::Relaxed) >= MOST_ACTIONS {
            return;
        }
        let contexts = self.contexts();
        let plugin = match contexts.len() {
            0 => None,
            plugins if self.below(3) == 0 => contexts.get(self.below(plugins as u32) as usize).cloned(),
            _ => None,
        };
        match (action, plugin) {
            (Fault::Send | Fault::Steer | Fault::Inject, Some(context)) => self.say_as_plugin(action, &*context).await,
            (Fault::BudgetEnds, _) => {
                let end = self.pick(&[BudgetEnd::UsedUp, BudgetEnd::Exceeded, BudgetEnd::Time]);
                if self.budget.end(end) {
                    self.note("budget", json!(format!("{end:?}")));
                }
            }
            (Fault::OwnerDropped, _) => drop(self.owner().inspect(|_| self.note("dispose", json!("owner dropped")))),
            _ => {
                let agent = lock(&self.agent).upgrade();
                if let Some(agent) = agent {
                    self.act_on(action, &agent).await;
                }
            }
        }
    }

    async fn act_on(&self, action: Fault, agent: &LoopAgent) {
        match action {
            Fault::Send | Fault::Steer => {
                let (text, content) = self.text();
                let source = Source::User;
                let taken =
                    if action == Fault::Send { agent.send(content, source) } else { agent.steer(content, source) };
                self.said(if action == Fault::Send { "send" } else { "steer" }, &text, taken);
            }
            Fault::Inject => {
                let (text, content) = self.text();
                self.note("inject begins", json!({"text": text}));
                let taken = agent.inject(content, Source::User).await;
                self.said("inject", &text, taken);
            }
            Fault::Abort => {
                let reason = format!("a{}", self.below(1_000));
                self.note("abort", json!(reason));
                agent.abort(&reason);
            }
            Fault::Cancel => {
                let keep = self.below(2) == 0;
                self.note("abort", json!("cancelled"));
                agent.cancel(keep);
            }
            _ => {
                let reason = format!("d{}", self.below(1_000));
                self.note("dispose", json!(reason));
                if self.below(2) == 0 {
                    agent.start_dispose(&reason);
                } else {
                    agent.dispose(&reason).await;
                    self.note("disposed", json!(reason));
                }
            }
        }
    }

    /// One of the plugins says something.
    pub async fn say_as_plugin(&self, action: Fault, context: &dyn PluginContext) {
        let (text, content) = self.text();
        match action {
            Fault::Send => self.said("send", &text, context.send(content).await),
            Fault::Steer => self.said("steer", &text, context.steer(content).await),
            _ => {
                self.note("inject begins", json!({"text": text}));
                self.said("inject", &text, context.inject(content).await);
            }
        }
    }

    fn said(&self, call: &str, text: &str, taken: Result<(), dsh_seam::Failure>) {
        self.note(call, json!({"text": text, "refused": taken.err().map(|failure| failure.code)}));
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("not poisoned")
}
