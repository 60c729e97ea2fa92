//! Who changed what of a request.

use dsh_seam::PluginName;
use dsh_seam::event::ChangeKind;

use super::report::Culprit;

/// The listeners that changed a request, and what.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes(Vec<(ChangeKind, PluginName)>);

impl Changes {
    /// Takes a `waterfall/changed` of a request into account.
    pub(super) fn add(&mut self, plugin: &PluginName, what: &[ChangeKind]) {
        self.0.extend(what.iter().map(|kind| (*kind, plugin.clone())));
    }

    fn of(&self, kind: ChangeKind) -> impl Iterator<Item = &PluginName> {
        self.0.iter().filter(move |(changed, _)| *changed == kind).map(|(_, plugin)| plugin)
    }

    fn has(&self, kind: ChangeKind, plugin: &PluginName) -> bool {
        self.of(kind).any(|known| known == plugin)
    }
}

/// The listeners of two requests in a row.
#[derive(Clone, Copy)]
pub(super) struct Listeners<'a> {
    pub(super) before: &'a Changes,
    pub(super) now: &'a Changes,
    /// The plugins that were exchanged between the two.
    pub(super) reloaded: &'a [PluginName],
}

impl Listeners<'_> {
    /// Who made `kind` differ. `others` did so in another way, if there are any.
    ///
    /// A listener that changed it in one of the two requests and not in the other is to blame, and so are `others`. Otherwise it is one
    /// that was exchanged, then one that changed it in both, in two ways. Where nobody did, the request began as something else.
    pub(super) fn blame(&self, kind: ChangeKind, others: impl IntoIterator<Item = PluginName>) -> Vec<Culprit> {
        let began = self.now.of(kind).filter(|plugin| !self.before.has(kind, plugin));
        let stopped = self.before.of(kind).filter(|plugin| !self.now.has(kind, plugin));
        let mut found: Vec<PluginName> = others.into_iter().collect();
        found.extend(began.chain(stopped).cloned());
        if found.is_empty() && kind != ChangeKind::Model {
            found.extend_from_slice(self.reloaded);
        }
        if found.is_empty() {
            found.extend(self.now.of(kind).cloned());
        }
        if found.is_empty() { vec![Culprit::Configuration] } else { plugins(found) }
    }
}

/// Each of them once.
pub(super) fn plugins(found: impl IntoIterator<Item = PluginName>) -> Vec<Culprit> {
    let mut culprits = Vec::new();
    for plugin in found {
        let culprit = Culprit::Plugin { plugin };
        if !culprits.contains(&culprit) {
            culprits.push(culprit);
        }
    }
    culprits
}
