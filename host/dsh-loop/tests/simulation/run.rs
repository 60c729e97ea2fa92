//! One run: an agent is made, worked and ended as its seed says; then another agent goes on with what it left.

use std::sync::Arc;
use std::time::Duration;

use dsh_loop::{AgentLoop, AgentOptions, LoopAgent, SessionChoice};
use dsh_seam::event::Entry;
use dsh_seam::ids::{AgentId, SessionId};
use dsh_seam::message::ContentBlock;
use dsh_seam::plugin::Plugin;
use dsh_seam::services::{Agents, Services};
use dsh_seam::session::Sessions;
use dsh_services::agents::AgentRegistry;
use dsh_services::approvals::ApprovalDesks;
use dsh_services::session::MemorySessions;
use dsh_services::system_prompt::SystemPromptSections;
use dsh_services::tools::ToolServices;
use dsh_testkit::{Chance, NoProcesses};
use serde_json::{Value, json};

use crate::chaos::Chaos;
use crate::model::AnyModel;
use crate::plan::{Fault, Plan};
use crate::plugins::{AnyPlugin, SomeTools};
use crate::record::{Record, printed};
use crate::services::{AnyApprover, AnyClock, Sink, any_sessions};

/// When nobody else does, this ends what hangs: longer than all that is merely slow.
const PATIENCE: Duration = Duration::from_secs(200);
/// A run in which so many turns had to be ended from outside does not end by itself.
const MOST_RESCUES: u32 = 100;
/// Longer than every deadline of an end together.
const END: Duration = Duration::from_secs(1_000);

/// What is left to see when an agent is gone.
pub struct Life {
    pub plan: Plan,
    /// What struck, and where.
    pub struck: Vec<String>,
    /// What was in the log when this agent took it over.
    pub before: Vec<Record>,
    /// All that happened since.
    pub records: Vec<Record>,
    /// The whole log in the end.
    pub log: Vec<Record>,
    /// What is left of it; empty if all is well.
    pub left: Vec<String>,
    /// Why it did not come to its end.
    pub stuck: Option<String>,
}

impl Life {
    /// Everything a person needs to understand it.
    pub fn story(&self) -> String {
        format!("{:?}\n\nwhat struck:\n{}\n\n{}", self.plan, self.struck.join("\n"), printed(&self.records))
    }
}

/// One seed: the life of an agent, and of the one that goes on with its session.
pub fn run(seed: u64) -> Vec<Life> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let mut chance = Chance::new(seed);
        let plan = Plan::new(&mut chance);
        let clock = Arc::new(AnyClock::new(Chaos::new(plan.clone().calm(), Chance::new(0))));
        let sessions = MemorySessions::new(clock);
        let id = SessionId::new("first").expect("valid");
        let first = live(plan.clone(), chance.clone(), &sessions, SessionChoice::Named(id.clone()), Vec::new()).await;
        // A copy of a part of its log is what a killed process would have left.
        let whole = first.log.is_empty() || chance.one_in(2);
        let choice = if whole {
            SessionChoice::Resume(id)
        } else {
            let at = u64::from(chance.below(u32::try_from(first.log.len()).expect("short")));
            SessionChoice::Fork { id, at: Some(at) }
        };
        let before = match &choice {
            SessionChoice::Fork { at: Some(at), .. } => first.log[..=usize::try_from(*at).expect("short")].to_vec(),
            _ => first.log.clone(),
        };
        if first.log.is_empty() || first.stuck.is_some() {
            return vec![first];
        }
        let second = live(plan.calm(), chance, &sessions, choice, before).await;
        vec![first, second]
    })
}

/// The life of one agent.
async fn live(
    plan: Plan,
    chance: Chance,
    sessions: &MemorySessions,
    session: SessionChoice,
    before: Vec<Record>,
) -> Life {
    let chaos = Chaos::new(plan.clone(), chance);
    let alive = Arc::new(());
    let agents = Arc::new(AgentRegistry::new());
    let options = options(&plan, session);
    let calls = u32::try_from(before.iter().filter(|record| record.is("tool/call")).count()).expect("few");
    let made = agent_loop(&chaos, &alive, &agents, sessions, calls).create(name(), options).await;
    let (stuck, id) = match made {
        Err(error) => {
            chaos.note("not made", json!(error.to_string()));
            (None, None)
        }
        Ok(owner) => {
            let agent = chaos.take(owner);
            chaos.note("made", Value::Null);
            let id = agent.session().clone();
            (work(&chaos, agent).await.err(), Some(id))
        }
    };
    tokio::time::sleep(END).await;
    let left = what_is_left(&chaos, &alive, &agents).await;
    let log = match &id {
        Some(id) => read(sessions, id).await,
        None => Vec::new(),
    };
    Life { plan, struck: chaos.struck(), before, records: chaos.transcript.records(), log, left, stuck }
}

fn name() -> AgentId {
    AgentId::new("main").expect("valid")
}

fn options(plan: &Plan, session: SessionChoice) -> AgentOptions {
    AgentOptions {
        model: Some("any".into()),
        workspace: "/w".into(),
        queue_mode: plan.queue_mode,
        max_steps: plan.max_steps,
        max_turns: plan.max_turns,
        durability: plan.durability,
        session,
        held: true,
        ..AgentOptions::default()
    }
}

fn agent_loop(
    chaos: &Arc<Chaos>,
    alive: &Arc<()>,
    agents: &Arc<AgentRegistry>,
    sessions: &MemorySessions,
    calls: u32,
) -> AgentLoop {
    let mut plugins: Vec<Arc<dyn Plugin>> = vec![Arc::new(SomeTools::new(chaos.clone(), alive.clone()))];
    let mut outermost = true;
    for plan in &chaos.plan.plugins {
        let first = outermost && plan.listens;
        outermost &= !first;
        plugins.push(Arc::new(AnyPlugin::new(plan.clone(), chaos.clone(), alive.clone(), first)));
    }
    let services = Services {
        agents: agents.clone(),
        sessions: any_sessions(sessions.clone(), chaos.clone()),
        llm: Arc::new(AnyModel::new(chaos.clone(), calls)),
        tools: Arc::new(ToolServices::new(Arc::new(NoProcesses))),
        system_prompt: Arc::new(SystemPromptSections),
        approver: Arc::new(AnyApprover(chaos.clone())),
        approvals: Arc::new(ApprovalDesks),
        processes: Arc::new(NoProcesses),
        events: Arc::new(Sink(chaos.clone())),
        clock: Arc::new(AnyClock::new(chaos.clone())),
        budget: chaos.budget.clone(),
    };
    AgentLoop::new(services, plugins)
}

/// Gives it work, lets the actors at it, and ends it. An error says what did not come to an end.
async fn work(chaos: &Arc<Chaos>, agent: Arc<LoopAgent>) -> Result<(), String> {
    for _ in 0..chaos.plan.prompts {
        chaos.clone().act(Fault::Send).await;
    }
    chaos.point("before the release").await;
    agent.release();
    let mut actors = tokio::task::JoinSet::new();
    for _ in 0..chaos.plan.actors {
        actors.spawn(actor(chaos.clone()));
    }
    quiet(chaos, &agent).await?;
    let over = async { while actors.join_next().await.is_some() {} };
    tokio::time::timeout(END, over).await.map_err(|_| "a call to the agent does not return")?;
    quiet(chaos, &agent).await?;
    end(chaos, agent).await
}

/// Does things at times of its own.
async fn actor(chaos: Arc<Chaos>) {
    let actions = [Fault::Send, Fault::Steer, Fault::Steer, Fault::Inject, Fault::Abort];
    for _ in 0..chaos.below(6) {
        tokio::time::sleep(Duration::from_millis(chaos.below(8_000).into())).await;
        chaos.point("an actor").await;
        chaos.clone().act(chaos.pick(&actions)).await;
    }
}

/// Waits for the agent to become idle; what hangs is ended.
async fn quiet(chaos: &Chaos, agent: &LoopAgent) -> Result<(), String> {
    for _ in 0..MOST_RESCUES {
        if tokio::time::timeout(PATIENCE, agent.idle()).await.is_ok() {
            return Ok(());
        }
        chaos.note("abort", json!("rescued"));
        agent.abort("rescued");
    }
    Err(format!("it does not become idle; its status is {:?}", agent.status()))
}

/// Ends the agent in one of several ways, or several at once.
async fn end(chaos: &Arc<Chaos>, agent: Arc<LoopAgent>) -> Result<(), String> {
    chaos.note("dispose", json!("end"));
    let ending = async {
        match chaos.below(3) {
            0 => agent.dispose("end").await,
            1 => {
                drop(chaos.owner());
                agent.dispose("end").await;
            }
            _ => drop(tokio::join!(agent.dispose("end"), agent.dispose("end"))),
        }
    };
    tokio::time::timeout(END, ending).await.map_err(|_| "a dispose does not return")?;
    chaos.note("disposed", json!("end"));
    drop(chaos.owner());
    Ok(())
}

/// What should not be there any more.
async fn what_is_left(chaos: &Arc<Chaos>, alive: &Arc<()>, agents: &AgentRegistry) -> Vec<String> {
    let mut left = Vec::new();
    if !agents.list().is_empty() {
        left.push("the agent's id is still taken".into());
    }
    for context in chaos.contexts() {
        match context.send(vec![ContentBlock::text("too late")]).await {
            Err(failure) if failure.code == "not-available" => {}
            other => left.push(format!("a plugin's context still reaches the agent: {other:?}")),
        }
    }
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if tasks > 0 {
        left.push(format!("{tasks} tasks"));
    }
    let parts = Arc::strong_count(alive) - 1;
    if parts > 0 {
        left.push(format!("{parts} parts of plugins"));
    }
    left
}

async fn read(sessions: &MemorySessions, id: &SessionId) -> Vec<Record> {
    let entries: Vec<Entry> = sessions.read(id, false).await.map(|(_, entries, _)| entries).unwrap_or_default();
    entries.iter().map(|entry| Record::read(serde_json::to_value(entry).expect("JSON"))).collect()
}
