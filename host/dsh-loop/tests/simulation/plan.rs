//! What a seed decides: the shape of the agent, which faults may strike it and how often, and, point by point, whether one does.
//!
//! A new fault is a variant of [`Fault`] with its odds in [`Fault::odds`], and one `chaos.strikes(Fault::…, place)` where it does
//! its work.

use std::collections::BTreeMap;

use dsh_loop::{Durability, QueueMode};
use dsh_seam::failure::FailureMode;
use dsh_testkit::Chance;

/// What may happen to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Send,
    Steer,
    Inject,
    Abort,
    Cancel,
    Dispose,
    OwnerDropped,
    BudgetEnds,
    ListenerFails,
    ListenerFailsAfter,
    ListenerHangs,
    ListenerRunsTwice,
    ListenerVetoes,
    ListenerChanges,
    ListenerActs,
    GuardFails,
    GuardHangs,
    GuardAsks,
    GuardDenies,
    NobodyAnswers,
    SectionFails,
    SectionHangs,
    ObserverFails,
    ObserverHangs,
    ObserverActs,
    FlushFails,
    FlushHangs,
    PluginFlushFails,
    PluginFlushHangs,
    AppendFails,
    SinkIsSlow,
    ClockGoesBack,
    ModelFails,
    StreamFails,
    StreamEnds,
    StreamHangs,
    OutputCut,
    NothingSaid,
    BadCall,
    ToolFails,
    ToolBreaks,
    ToolHangs,
    ToolIgnoresCancel,
}

impl Fault {
    /// All of them, each with its odds: it strikes about once in so many occasions, in a run where it may strike at all.
    pub const ODDS: &[(Fault, u32)] = &[
        (Fault::Send, 7),
        (Fault::Steer, 7),
        (Fault::Inject, 8),
        (Fault::Abort, 10),
        (Fault::Cancel, 20),
        (Fault::Dispose, 30),
        (Fault::OwnerDropped, 50),
        (Fault::BudgetEnds, 30),
        (Fault::ListenerFails, 25),
        (Fault::ListenerFailsAfter, 25),
        (Fault::ListenerHangs, 60),
        (Fault::ListenerRunsTwice, 20),
        (Fault::ListenerVetoes, 15),
        (Fault::ListenerChanges, 10),
        (Fault::ListenerActs, 8),
        (Fault::GuardFails, 10),
        (Fault::GuardHangs, 30),
        (Fault::GuardAsks, 4),
        (Fault::GuardDenies, 10),
        (Fault::NobodyAnswers, 6),
        (Fault::SectionFails, 30),
        (Fault::SectionHangs, 60),
        (Fault::ObserverFails, 30),
        (Fault::ObserverHangs, 80),
        (Fault::ObserverActs, 25),
        (Fault::FlushFails, 6),
        (Fault::FlushHangs, 12),
        (Fault::PluginFlushFails, 6),
        (Fault::PluginFlushHangs, 12),
        (Fault::AppendFails, 100),
        (Fault::SinkIsSlow, 150),
        (Fault::ClockGoesBack, 10),
        (Fault::ModelFails, 8),
        (Fault::StreamFails, 8),
        (Fault::StreamEnds, 10),
        (Fault::StreamHangs, 15),
        (Fault::OutputCut, 10),
        (Fault::NothingSaid, 12),
        (Fault::BadCall, 8),
        (Fault::ToolFails, 6),
        (Fault::ToolBreaks, 8),
        (Fault::ToolHangs, 10),
        (Fault::ToolIgnoresCancel, 20),
    ];
}

/// One plugin of a run.
#[derive(Debug, Clone)]
pub struct PluginPlan {
    pub name: String,
    pub mode: FailureMode,
    pub listens: bool,
    pub guards: bool,
    pub observes: bool,
    pub flushes: bool,
    pub has_sections: bool,
}

/// What is decided before a run begins.
#[derive(Debug, Clone)]
pub struct Plan {
    pub queue_mode: QueueMode,
    pub max_steps: u32,
    pub max_turns: u32,
    pub durability: Durability,
    pub plugins: Vec<PluginPlan>,
    /// Messages sent before the driver may take the first.
    pub prompts: u32,
    /// Tasks that do things to the agent at times of their own.
    pub actors: u32,
    /// Every so many points the work there takes time.
    pub slow: u32,
    pub odds: BTreeMap<Fault, u32>,
}

impl Plan {
    /// What chance decides. Of all faults a run gets about half, so that each can strike where another would have hidden it.
    pub fn new(chance: &mut Chance) -> Self {
        let plugin = |at: u32, chance: &mut Chance| PluginPlan {
            name: format!("p{at}"),
            mode: chance.pick(&[FailureMode::Closed, FailureMode::Open]),
            listens: chance.one_in(2),
            guards: chance.one_in(2),
            observes: chance.one_in(2),
            flushes: chance.one_in(3),
            has_sections: chance.one_in(3),
        };
        let plugins = (0..chance.below(4)).map(|at| plugin(at, chance)).collect();
        let mut odds = BTreeMap::new();
        for (fault, often) in Fault::ODDS {
            if chance.one_in(2) {
                odds.insert(*fault, often.div_ceil(chance.pick(&[1, 1, 2, 4])).max(2));
            }
        }
        // The session is over after one of these, the agent after one of those: most runs should go on.
        for (fault, keep) in [
            (Fault::AppendFails, 3),
            (Fault::Dispose, 2),
            (Fault::OwnerDropped, 2),
            (Fault::BudgetEnds, 3),
            (Fault::SinkIsSlow, 3),
        ] {
            if !chance.one_in(keep) {
                odds.remove(&fault);
            }
        }
        Self {
            queue_mode: chance.pick(&[QueueMode::All, QueueMode::All, QueueMode::One]),
            max_steps: chance.pick(&[1, 2, 3, 5, 8]),
            max_turns: chance.pick(&[0, 2, 100]),
            durability: chance.pick(&[Durability::Turn, Durability::Tool]),
            plugins,
            prompts: 1 + chance.below(3),
            actors: chance.below(3),
            slow: chance.pick(&[0, 6, 20]),
            odds,
        }
    }

    /// The same agent in a world without faults: for what comes after a run.
    pub fn calm(mut self) -> Self {
        self.odds.clear();
        self.actors = 0;
        self
    }
}
