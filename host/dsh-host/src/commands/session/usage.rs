//! `session usage`: the tokens and the money of a session, by step and turn, those of plugins and sub-agents apart.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use dsh_seam::event::{Entry, Event, UsageEvent};
use dsh_seam::message::Usage;
use dsh_seam::session::{Replay, SessionHeader, Sessions};
use dsh_seam::{AgentId, PluginName, SessionId};
use serde::Serialize;

use super::sessions;
use crate::args::{SessionPlace, Shape};
use crate::commands::{columns, print, print_json};
use crate::diagnostics;
use crate::env::Environment;
use crate::exit::{Code, Stop};
use crate::output::chat::tame;

/// What a session used, and what the sub-agents that it made did.
pub async fn usage(id: &str, place: &SessionPlace, shape: Shape, environment: &Environment) -> Result<Code, Stop> {
    let id = SessionId::new(id).map_err(|error| Stop::usage(error.to_string()).hint("see `dsh-host session list`"))?;
    let sessions = sessions(place, environment)?;
    let session = read(sessions.as_ref(), &id).await?;
    let mut sub_agents = Vec::new();
    for id in descendants(sessions.as_ref(), &id).await? {
        sub_agents.push(read(sessions.as_ref(), &id).await?.whole());
    }
    let whole = session.whole();
    let total = sub_agents.iter().fold(whole.used.all(), |sum, child| sum.plus(child.used.all()));
    let report = Report { whole, turns: session.turns(), sub_agents, total };
    if shape == Shape::Json {
        print_json(&report)?;
    } else {
        print(&tame(&columns(&report.rows())))?;
    }
    Ok(Code::Success)
}

const HEAD: [&str; 9] = ["TURN", "STEP", "INPUT", "OUTPUT", "CACHE-READ", "CACHE-WRITE", "REASONING", "COST", "BY"];

/// The sessions of the sub-agents that a session made, those of its sub-agents included, the oldest first.
async fn descendants(sessions: &dyn Sessions, id: &SessionId) -> Result<Vec<SessionId>, Stop> {
    let mut list = sessions.list().await?;
    list.sort_by(|one, other| (one.header.created, &one.header.id).cmp(&(other.header.created, &other.header.id)));
    let mut found = vec![id.clone()];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].clone();
        next += 1;
        // A copy of a session has a parent too; only what an agent made has ancestors.
        let made = list.iter().filter(|it| it.header.parent.as_ref() == Some(&parent) && !it.header.lineage.is_empty());
        found.extend(made.map(|it| it.header.id.clone()));
    }
    Ok(found.split_off(1))
}

async fn read(sessions: &dyn Sessions, id: &SessionId) -> Result<Used, Stop> {
    let calls = Arc::new(Mutex::new(Calls::default()));
    let (header, notices) = sessions.replay(id, false, calls.clone()).await?;
    notices.iter().for_each(diagnostics::note);
    let Calls(mut calls) = std::mem::take(&mut *calls.lock().unwrap_or_else(PoisonError::into_inner));
    // What a copy begins with was used by the session that it is a copy of.
    calls.retain(|call| header.forked_at.is_none_or(|copied| call.seq > copied));
    Ok(Used { header, calls })
}

/// The model calls of one step by the loop, or by one plugin.
#[derive(Debug)]
struct CallUse {
    /// Of the last entry about it.
    seq: u64,
    turn: u32,
    step: u32,
    plugin: Option<PluginName>,
    /// None of a plugin's call, whose request is not in the log.
    model: Option<String>,
    usage: Option<Usage>,
}

#[derive(Debug, Default)]
struct Calls(Vec<CallUse>);

impl Calls {
    fn at(&mut self, seq: u64, (turn, step): (u32, u32), plugin: Option<PluginName>) -> &mut CallUse {
        let mut of_step =
            self.0.iter().enumerate().rev().take_while(|(_, call)| (call.turn, call.step) == (turn, step));
        let at = of_step.find(|(_, call)| call.plugin == plugin).map_or(self.0.len(), |(at, _)| at);
        if at == self.0.len() {
            self.0.push(CallUse { seq, turn, step, plugin, model: None, usage: None });
        }
        let call = &mut self.0[at];
        call.seq = seq;
        call
    }
}

impl Replay for Calls {
    fn entry(&mut self, entry: Entry) {
        match entry.event {
            Event::RequestSent(sent) => self.at(entry.seq, (sent.turn, sent.step), None).model = Some(sent.model),
            Event::Usage(UsageEvent { turn, step, usage, plugin }) => {
                let call = self.at(entry.seq, (turn, step), plugin);
                call.usage = Some(call.usage.unwrap_or_default().plus(usage));
            }
            _ => {}
        }
    }
}

/// What one session used.
struct Used {
    header: SessionHeader,
    calls: Vec<CallUse>,
}

impl Used {
    fn whole(&self) -> Whole {
        Whole { session: self.header.id.clone(), agent: self.header.agent.clone(), used: Sums::of(&self.calls) }
    }

    fn turns(&self) -> Vec<TurnUse<'_>> {
        let of_turn = |calls| TurnUse { turn: first(calls).turn, used: Sums::of(calls), steps: steps(calls) };
        self.calls.chunk_by(|one, next| one.turn == next.turn).map(of_turn).collect()
    }
}

fn steps(calls: &[CallUse]) -> Vec<StepUse<'_>> {
    let of_step = |calls| {
        let loops = |call: &&CallUse| call.plugin.is_none();
        let own: Option<&CallUse> = <[CallUse]>::iter(calls).find(loops);
        StepUse { step: first(calls).step, model: own.and_then(|call| call.model.as_deref()), used: Sums::of(calls) }
    };
    calls.chunk_by(|one, next| one.step == next.step).map(of_step).collect()
}

fn first(calls: &[CallUse]) -> &CallUse {
    calls.first().expect("invariant: `chunk_by` gives no empty piece")
}

/// What the loop used, and each plugin.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sums {
    /// Of the loop; none when no provider has counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    plugins: BTreeMap<PluginName, Usage>,
}

impl Sums {
    fn of(calls: &[CallUse]) -> Self {
        let mut sums = Self::default();
        for call in calls {
            let Some(usage) = call.usage else { continue };
            match &call.plugin {
                None => sums.usage = Some(sums.usage.unwrap_or_default().plus(usage)),
                Some(plugin) => {
                    let sum = sums.plugins.entry(plugin.clone()).or_default();
                    *sum = sum.plus(usage);
                }
            }
        }
        sums
    }

    fn all(&self) -> Usage {
        self.plugins.values().fold(self.usage.unwrap_or_default(), |sum, usage| sum.plus(*usage))
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    #[serde(flatten)]
    whole: Whole,
    turns: Vec<TurnUse<'a>>,
    sub_agents: Vec<Whole>,
    total: Usage,
}

impl Report<'_> {
    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
        rows.extend(self.turns.iter().flat_map(TurnUse::rows));
        let by = |child: &Whole| format!("sub-agent {} ({})", child.agent, child.session);
        rows.extend(self.sub_agents.iter().map(|child| row("", "", Some(child.used.all()), &by(child))));
        rows.push(row("all", "", Some(self.total), ""));
        rows
    }
}

#[derive(Serialize)]
struct Whole {
    session: SessionId,
    agent: AgentId,
    #[serde(flatten)]
    used: Sums,
}

#[derive(Serialize)]
struct TurnUse<'a> {
    turn: u32,
    #[serde(flatten)]
    used: Sums,
    steps: Vec<StepUse<'a>>,
}

#[derive(Serialize)]
struct StepUse<'a> {
    step: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(flatten)]
    used: Sums,
}

impl TurnUse<'_> {
    /// A row for each step and for each plugin in it, and one for the turn.
    fn rows(&self) -> Vec<Vec<String>> {
        let turn = self.turn.to_string();
        let mut rows = Vec::new();
        for StepUse { step, model, used } in &self.steps {
            let step = step.to_string();
            if let Some(model) = model {
                rows.push(row(&turn, &step, used.usage, model));
            }
            rows.extend(
                used.plugins.iter().map(|(by, usage)| row(&turn, &step, Some(*usage), &format!("plugin {by}"))),
            );
        }
        rows.push(row(&turn, "all", Some(self.used.all()), ""));
        rows
    }
}

fn row(turn: &str, step: &str, usage: Option<Usage>, by: &str) -> Vec<String> {
    let mut cells = vec![turn.to_owned(), step.to_owned()];
    match usage {
        None => cells.extend(vec!["-".to_owned(); 6]),
        Some(Usage { input, output, cache_read, cache_write, reasoning, cost, estimated }) => {
            let counts = [input, output, cache_read, cache_write, reasoning].map(|count| count.to_string());
            cells.extend(counts);
            cells.push(cost.map_or_else(|| "-".into(), |cost| cost.to_string()));
            if estimated {
                cells.push(format!("{by} (estimated)").trim_start().to_owned());
                return cells;
            }
        }
    }
    cells.push(by.to_owned());
    cells
}
