//! The plugins' parts in one agent's life, and their exchange for those of other versions between two turns.
//!
//! ```text
//! AgentLoop::exchange ─▶ the set has other versions ─▶ … the next turn ─▶ flush ─▶ attach new ─▶ detach old ─▶ `plugin/reloaded`
//! ```
//!
//! A turn that is under way keeps what it began with, and so do its sub-agents, whose set is what their parent had.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use dsh_seam::event::{Event, PluginReloaded};
use dsh_seam::failure::Failure;
use dsh_seam::ids::{PluginName, StepRef};
use dsh_seam::plugin::{Attached, Lifecycle, Plugin, PluginContext};
use dsh_seam::session::{Observer, RegisteredSections};
use dsh_seam::tools::{AgentTools, Approvals, Profile, RegisteredGuard, ToolSetup};
use dsh_seam::waterfall::{Listener, Registered, Waterfall};
use dsh_seam::waterfalls::{Request, RequestError, StepResult, TurnContinuation};

use crate::context::Context;
use crate::core::Core;
use crate::driver::NamedFlush;

/// Plugins in waterfall order, the first outermost.
pub(crate) type PluginList = Arc<[Arc<dyn Plugin>]>;

/// The plugins that agents are to have: at once when they are made, and otherwise from their next turn on.
#[derive(Clone)]
pub(crate) struct PluginSet(Arc<RwLock<PluginList>>);

impl PluginSet {
    pub(crate) fn new(plugins: PluginList) -> Self {
        Self(Arc::new(RwLock::new(plugins)))
    }

    fn current(&self) -> PluginList {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts each of `versions` in the place of the plugin with its name; one that has no such place is left out.
    pub(crate) fn exchange(&self, versions: &[Arc<dyn Plugin>]) {
        let mut plugins = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let version = |plugin: &Arc<dyn Plugin>| {
            let other = versions.iter().find(|version| version.name() == plugin.name());
            other.unwrap_or(plugin).clone()
        };
        *plugins = plugins.iter().map(version).collect();
    }
}

/// A plugin in one agent's life.
pub(crate) struct Part {
    plugin: Arc<dyn Plugin>,
    /// Stays when the plugin is exchanged.
    context: Arc<dyn PluginContext>,
    seams: Attached,
}

impl Part {
    fn name(&self) -> &PluginName {
        self.plugin.name()
    }

    fn is_of(&self, plugin: &Arc<dyn Plugin>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.plugin), Arc::as_ptr(plugin))
    }
}

/// The plugins' parts in one agent's life, in plugin order.
pub(crate) struct Seams {
    /// The versions that are in force.
    pub(crate) plugins: PluginList,
    pub(crate) request: Arc<[Registered<Request>]>,
    pub(crate) request_error: Arc<[Registered<RequestError>]>,
    pub(crate) step_result: Arc<[Registered<StepResult>]>,
    pub(crate) turn_continuation: Arc<[Registered<TurnContinuation>]>,
    pub(crate) sections: Vec<RegisteredSections>,
    pub(crate) flushes: Vec<NamedFlush>,
    pub(crate) lifecycles: Vec<Arc<dyn Lifecycle>>,
    pub(crate) order: Vec<PluginName>,
    pub(crate) tools: Arc<dyn AgentTools>,
    pub(crate) approvals: Arc<dyn Approvals>,
    /// What the plugins keep for this agent: dropped when they leave.
    parts: Vec<Arc<Part>>,
}

impl Seams {
    pub(crate) fn observers(&self) -> Vec<(PluginName, Arc<dyn Observer>)> {
        named(&self.parts, |seams| seams.observer.clone())
    }

    /// A turn is over.
    pub(crate) fn turn_ended(&self) {
        self.lifecycles.iter().for_each(|lifecycle| lifecycle.turn_ended());
    }
}

impl Core {
    /// Attaches the plugins to an agent that is being made.
    pub(crate) fn attach(self: &Arc<Self>) -> Result<(), Failure> {
        let plugins = self.plugins.current();
        let part = |plugin: &Arc<dyn Plugin>| {
            let context = Context::new(plugin.name().clone(), self.info.clone(), Arc::downgrade(self));
            attached(plugin, Arc::new(context))
        };
        let parts = plugins.iter().map(part).collect();
        let log = self.journal.place(StepRef::default(), None);
        let services = &self.services;
        let approvals = services.approvals.for_agent(self.info.clone(), services.approver.clone(), log);
        let seams = self.sorted(plugins, parts, approvals)?;
        self.journal.observe(seams.observers());
        self.set_seams(seams);
        Ok(())
    }

    /// Takes the versions that plugins were exchanged for since the last turn began, before anything of the next one is logged.
    ///
    /// Nothing of a turn is under way here. A call outside of any turn may be; then all stays as it is until the turn after this.
    pub(crate) async fn exchange_plugins(&self) {
        let plugins = self.plugins.current();
        if Arc::ptr_eq(&plugins, &self.seams().plugins) {
            return;
        }
        let Ok(_nobody_calls) = self.outside.try_write() else { return };
        self.journal.until_done().await;
        // What came since the last turn, such as context, is flushed by those that were told of it.
        self.flush_turn().await;
        let before = self.seams();
        let part = |plugin: &Arc<dyn Plugin>| {
            let known = before.parts.iter().find(|part| part.name() == plugin.name());
            let known = known.expect("invariant: a plugin is exchanged for one of the same name");
            if known.is_of(plugin) { known.clone() } else { attached(plugin, known.context.clone()) }
        };
        let parts = plugins.iter().map(part).collect();
        let seams = match self.sorted(plugins, parts, before.approvals.clone()) {
            Ok(seams) => seams,
            Err(failure) => return tracing::warn!("the plugins stay as they are: {}", failure.message),
        };
        self.journal.observe(seams.observers());
        self.set_seams(seams);
        // What came in that moment was shown to the old ones.
        self.journal.until_done().await;
        self.flush_plugins(&before.flushes, Vec::new()).await;
        self.replaced(&before).await;
    }

    /// Lets go of those parts of `before` that are no longer in force, and logs by what they were replaced.
    async fn replaced(&self, before: &Seams) {
        let now = self.seams();
        let turn = self.journal.state().last_turn + 1;
        for (old, new) in before.parts.iter().zip(&now.parts).filter(|(old, new)| !Arc::ptr_eq(old, new)) {
            if let Some(lifecycle) = &old.seams.lifecycle {
                lifecycle.detached();
            }
            let hash = |part: &Part| part.plugin.sha256().map(str::to_owned);
            let (sha256, previous) = (hash(new), hash(old));
            let reloaded = PluginReloaded { turn, plugin: new.name().clone(), sha256, previous };
            // A failed append reports itself and ends the agent.
            let _ = self.journal.append(Event::PluginReloaded(reloaded)).await;
        }
    }

    /// Sorts the parts by seam. Fails when their tools do not go together.
    fn sorted(
        &self,
        plugins: PluginList,
        parts: Vec<Arc<Part>>,
        approvals: Arc<dyn Approvals>,
    ) -> Result<Seams, Failure> {
        let tools = self.services.tools.for_agent(self.tool_setup(&parts, approvals.clone()))?;
        let sections = parts.iter().filter_map(|part| {
            Some(RegisteredSections {
                plugin: part.name().clone(),
                mode: part.plugin.failure_mode(),
                sections: part.seams.sections.clone()?,
            })
        });
        Ok(Seams {
            plugins,
            request: listeners(&parts, |seams| seams.request.clone()),
            request_error: listeners(&parts, |seams| seams.request_error.clone()),
            step_result: listeners(&parts, |seams| seams.step_result.clone()),
            turn_continuation: listeners(&parts, |seams| seams.turn_continuation.clone()),
            sections: sections.collect(),
            flushes: named(&parts, |seams| seams.flush.clone()),
            lifecycles: parts.iter().filter_map(|part| part.seams.lifecycle.clone()).collect(),
            order: parts.iter().map(|part| part.name().clone()).collect(),
            tools,
            approvals,
            parts,
        })
    }

    fn tool_setup(&self, parts: &[Arc<Part>], approvals: Arc<dyn Approvals>) -> ToolSetup {
        let guards = parts.iter().filter_map(|part| {
            Some(RegisteredGuard {
                plugin: part.name().clone(),
                mode: part.plugin.failure_mode(),
                guard: part.seams.guard.clone()?,
            })
        });
        let inherited = self.inherited.as_ref();
        ToolSetup {
            agent: self.info.clone(),
            providers: named(parts, |seams| seams.provider.clone()),
            listeners: listeners(parts, |seams| seams.execute.clone()),
            guards: guards.collect(),
            approvals,
            log: self.journal.place(StepRef::default(), None),
            only: inherited.map(|inherited| -> BTreeSet<String> { inherited.tools.clone() }),
            profile: inherited.map_or_else(|| Arc::new(Profile::unrestricted()), |inherited| inherited.profile.clone()),
        }
    }
}

fn attached(plugin: &Arc<dyn Plugin>, context: Arc<dyn PluginContext>) -> Arc<Part> {
    let seams = plugin.attach(context.clone());
    Arc::new(Part { plugin: plugin.clone(), context, seams })
}

fn named<T>(parts: &[Arc<Part>], pick: impl Fn(&Attached) -> Option<T>) -> Vec<(PluginName, T)> {
    parts.iter().filter_map(|part| Some((part.name().clone(), pick(&part.seams)?))).collect()
}

fn listeners<W: Waterfall>(
    parts: &[Arc<Part>],
    pick: impl Fn(&Attached) -> Option<Arc<dyn Listener<W>>>,
) -> Arc<[Registered<W>]> {
    let registered = |part: &Arc<Part>| {
        let (plugin, mode) = (part.name().clone(), part.plugin.failure_mode());
        Some(Registered { plugin, mode, listener: pick(&part.seams)? })
    };
    parts.iter().filter_map(registered).collect()
}
