//! The service `system_prompt`: joins the sections of all plugins and the agent's own suffix.

use std::ops::Range;

use async_trait::async_trait;
use dsh_seam::session::{Assembled, PromptPart, RegisteredSections, Section, SystemPrompt};
use dsh_seam::waterfall::{FailureReport, RunError};
use dsh_seam::{FailureMode, PluginName, StepRef};
use tokio_util::sync::CancellationToken;

/// What stands between two sections.
const BETWEEN: &str = "\n\n";

/// Asks each plugin in turn and joins what they give.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemPromptSections;

#[async_trait]
impl SystemPrompt for SystemPromptSections {
    async fn assemble(
        &self,
        at: StepRef,
        sections: &[RegisteredSections],
        suffix: &str,
        report: &dyn FailureReport,
        cancel: &CancellationToken,
    ) -> Result<Assembled, RunError> {
        let mut found: Vec<(&PluginName, Section)> = Vec::new();
        for source in sections {
            let given = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(RunError::Aborted),
                given = source.sections.sections(at, cancel) => given,
            };
            match given {
                Ok(given) => found.extend(given.into_iter().map(|section| (&source.plugin, section))),
                // A guest that was stopped because of the abort did not fail on its own account.
                Err(_) if cancel.is_cancelled() => return Err(RunError::Aborted),
                Err(error) => {
                    report.plugin_failed(&error).await?;
                    if source.mode == FailureMode::Closed {
                        return Err(RunError::Plugin(error));
                    }
                }
            }
        }
        Ok(join(found, suffix))
    }
}

/// The sort is stable, so that the plugin order decides between equals.
fn join(mut sections: Vec<(&PluginName, Section)>, suffix: &str) -> Assembled {
    sections.sort_by(|(_, a), (_, b)| a.order.cmp(&b.order).then_with(|| a.name.cmp(&b.name)));
    let mut joined = Assembled::default();
    for (plugin, section) in sections {
        if let Some(place) = add(&mut joined.text, &section.text) {
            joined.parts.push(PromptPart { plugin: plugin.clone(), name: section.name, place });
        }
    }
    add(&mut joined.text, suffix);
    joined
}

/// Adds a text, if there is anything in it; where it stands.
fn add(whole: &mut String, text: &str) -> Option<Range<usize>> {
    if text.trim().is_empty() {
        return None;
    }
    if !whole.is_empty() {
        whole.push_str(BETWEEN);
    }
    let start = whole.len();
    whole.push_str(text);
    Some(start..whole.len())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use dsh_seam::session::Sections;
    use dsh_seam::{FailureKind, PluginError, PluginName, Seam};

    use super::*;

    fn section(name: &str, order: i32, text: &str) -> Section {
        Section { name: name.into(), order, text: text.into() }
    }

    #[test]
    fn sections_are_joined_in_order() {
        let plugin = PluginName::new("p").unwrap();
        let check = |sections: &[Section], suffix: &str, expect: &str, parts: &[&str]| {
            let joined = join(sections.iter().map(|section| (&plugin, section.clone())).collect(), suffix);
            assert_eq!(joined.text, expect);
            let part =
                |part: &PromptPart| format!("{} {} {}", part.plugin, part.name, &joined.text[part.place.clone()]);
            assert_eq!(joined.parts.iter().map(part).collect::<Vec<_>>(), parts);
        };
        check(&[], "", "", &[]);
        check(&[], "me", "me", &[]);
        let three = [section("b", 5, "B"), section("a", 5, "A"), section("z", -1, "Z")];
        check(&three, "me", "Z\n\nA\n\nB\n\nme", &["p z Z", "p a A", "p b B"]);
        let twice = [section("a", 0, "first"), section("a", 0, "second"), section("e", 0, "")];
        check(&twice, "", "first\n\nsecond", &["p a first", "p a second"]);
        check(&[section("a", 0, " \n")], "", "", &[]);
    }

    struct Gives(Result<Vec<Section>, PluginError>);

    #[async_trait]
    impl Sections for Gives {
        async fn sections(&self, _at: StepRef, _cancel: &CancellationToken) -> Result<Vec<Section>, PluginError> {
            self.0.clone()
        }
    }

    struct Hangs;

    #[async_trait]
    impl Sections for Hangs {
        async fn sections(&self, _at: StepRef, cancel: &CancellationToken) -> Result<Vec<Section>, PluginError> {
            cancel.cancel();
            std::future::pending().await
        }
    }

    #[derive(Default)]
    struct Reported(Mutex<Vec<PluginError>>);

    #[async_trait]
    impl FailureReport for Reported {
        async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError> {
            self.0.lock().unwrap().push(error.clone());
            Ok(())
        }
    }

    fn failure() -> PluginError {
        PluginError {
            plugin: PluginName::new("bad").unwrap(),
            seam: Seam::Section,
            kind: FailureKind::Trap,
            message: "boom".into(),
            code: None,
        }
    }

    async fn assemble(middle: Arc<dyn Sections>, mode: FailureMode) -> (Result<String, RunError>, Vec<PluginError>) {
        let source =
            |name: &str, mode, sections| RegisteredSections { plugin: PluginName::new(name).unwrap(), mode, sections };
        let sources = [
            source("one", FailureMode::Closed, Arc::new(Gives(Ok(vec![section("x", 2, "two")]))) as Arc<dyn Sections>),
            source("bad", mode, middle),
            source("three", FailureMode::Closed, Arc::new(Gives(Ok(vec![section("x", 1, "one")])))),
        ];
        let reported = Reported::default();
        let cancel = CancellationToken::new();
        let text = SystemPromptSections.assemble(StepRef::default(), &sources, "me", &reported, &cancel).await;
        (text.map(|assembled| assembled.text), reported.0.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_closed_failure_ends_it_and_an_open_one_is_left_out() {
        let bad = || Arc::new(Gives(Err(failure())));
        assert_eq!(assemble(bad(), FailureMode::Closed).await, (Err(RunError::Plugin(failure())), vec![failure()]));
        assert_eq!(assemble(bad(), FailureMode::Open).await, (Ok("one\n\ntwo\n\nme".into()), vec![failure()]));
    }

    #[tokio::test]
    async fn an_abort_does_not_wait_for_a_section() {
        assert_eq!(assemble(Arc::new(Hangs), FailureMode::Closed).await, (Err(RunError::Aborted), vec![]));
    }
}
