//! Plugins that are exchanged for other versions while an agent lives: when, in which order, and that nothing of the old ones is left.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dsh_loop::{AgentLoop, AgentOwner, LoopAgent};
use dsh_seam::event::{Entry, Source};
use dsh_seam::failure::{FailureMode, PluginError, Seam};
use dsh_seam::ids::{AgentId, PluginName};
use dsh_seam::message::ToolCall;
use dsh_seam::plugin::{Attached, Lifecycle, Plugin, PluginContext};
use dsh_seam::session::{Flush, FlushError, Observer};
use dsh_seam::tools::{Annotations, Outcome, ToolContext, ToolDefinition, ToolProvider};
use futures::FutureExt;

use crate::bench::{Answer, Bench, broken, text};
use crate::{check, from};

/// What versions do, a line each.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn write(&self, line: String) {
        self.0.lock().expect("not poisoned").push(line);
    }

    /// What was written since the last call.
    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().expect("not poisoned")).join("\n")
    }
}

/// A version of the plugin `p`: it writes down what happens to it, and has one tool.
struct Version {
    name: PluginName,
    version: &'static str,
    tool: &'static str,
    fails: bool,
    diary: Diary,
    meanwhile: Meanwhile,
}

/// An agent that gets context while the plugin flushes.
type Meanwhile = Arc<Mutex<Option<Arc<LoopAgent>>>>;

impl Version {
    fn named(name: &str, version: &'static str, tool: &'static str, diary: &Diary) -> Self {
        let name = PluginName::new(name).expect("valid");
        Self { name, version, tool, fails: false, diary: diary.clone(), meanwhile: Meanwhile::default() }
    }
}

/// A version of `p`.
fn version(version: &'static str, diary: &Diary) -> Arc<dyn Plugin> {
    Arc::new(Version::named("p", version, "look", diary))
}

impl Drop for Version {
    fn drop(&mut self) {
        self.diary.write(format!("{} is gone", self.version));
    }
}

impl Plugin for Version {
    fn name(&self) -> &PluginName {
        &self.name
    }
    fn failure_mode(&self) -> FailureMode {
        FailureMode::Closed
    }
    fn sha256(&self) -> Option<&str> {
        Some(self.version)
    }
    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached {
        let tool = ToolDefinition {
            name: self.tool.into(),
            description: self.version.into(),
            parameters: serde_json::json!({"type": "object"}),
            annotations: Annotations::default(),
        };
        let kinds = ["user/message", "context/message", "plugin/*"].map(str::to_owned).to_vec();
        let (version, fails, diary, meanwhile) = (self.version, self.fails, self.diary.clone(), self.meanwhile.clone());
        let part = Arc::new(Part { version, fails, diary, meanwhile, tools: vec![tool], kinds, context });
        Attached {
            provider: Some(part.clone()),
            observer: Some(part.clone()),
            flush: Some(part.clone()),
            lifecycle: Some(part),
            ..Attached::default()
        }
    }
}

/// Its part in one agent's life.
struct Part {
    version: &'static str,
    fails: bool,
    diary: Diary,
    meanwhile: Meanwhile,
    tools: Vec<ToolDefinition>,
    kinds: Vec<String>,
    context: Arc<dyn PluginContext>,
}

impl Part {
    fn write(&self, what: &str) {
        self.diary.write(format!("{} {what}", self.version));
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.write("is dropped");
    }
}

#[async_trait]
impl ToolProvider for Part {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.tools
    }
    async fn call(&self, _cx: &ToolContext, _call: ToolCall) -> Result<Outcome, PluginError> {
        self.write("is called");
        let changes = vec![("by".to_owned(), Some(serde_json::json!(self.version)))];
        self.context.commit_state(changes, 0).await.expect("it is kept");
        Ok(Outcome::text(self.version))
    }
}

#[async_trait]
impl Observer for Part {
    fn kinds(&self) -> &[String] {
        &self.kinds
    }
    async fn on_entries(&self, entries: &[Arc<Entry>], _depth: u32) -> Result<(), PluginError> {
        for entry in entries {
            let kept = self.context.state("by").unwrap_or_else(|| "nothing".into());
            self.write(&format!("sees {}, keeps {kept}", entry.event.kind()));
        }
        if self.fails { Err(broken(Seam::Observer)) } else { Ok(()) }
    }
}

#[async_trait]
impl Flush for Part {
    async fn flush(&self) -> Result<(), FlushError> {
        self.write("flushes");
        let meanwhile = self.meanwhile.lock().expect("not poisoned").take();
        if let Some(agent) = meanwhile {
            agent.inject(text("meanwhile"), Source::User).await.expect("it is logged");
        }
        Ok(())
    }
}

impl Lifecycle for Part {
    fn turn_ended(&self) {}
    fn detached(&self) {
        self.write("is detached");
    }
}

/// An agent whose plugin `p` is `v1`, and the loop that it is from.
async fn made(bench: &Bench) -> (AgentLoop, AgentOwner) {
    let agents = bench.agent_loop();
    let agent = agents.create(AgentId::new("main").expect("valid"), bench.options.clone()).await.expect("it is made");
    bench.recorder.is_about(agent.agent());
    (agents, agent)
}

async fn say(agent: &AgentOwner, message: &str) {
    agent.send(text(message), Source::User).expect("there is room");
    agent.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_version_takes_over_at_the_next_turn_and_nothing_is_left_of_the_one_before() {
    let diary = Diary::default();
    let call = || Answer::Calls(&[("look", "{}")]);
    let bench = Bench::new(vec![call(), Answer::Text("a"), call(), Answer::Text("b")]).with(version("v1", &diary));
    let (agents, agent) = made(&bench).await;
    say(&agent, "go").await;
    check(
        &diary.take(),
        "
        v1 sees user/message, keeps nothing
        v1 is called
        v1 flushes",
    );
    agents.exchange(&[version("v2", &diary)]);
    agent.inject(text("between"), Source::User).await.expect("it is logged");
    check(&diary.take(), r#"v1 sees context/message, keeps "v1""#);
    assert_eq!(agent.tools()[3].description, "v1", "nothing happens before the turn");
    say(&agent, "again").await;
    check(
        &diary.take(),
        r#"
        v1 flushes
        v1 is detached
        v1 is dropped
        v2 sees user/message, keeps "v1"
        v2 is called
        v2 flushes"#,
    );
    assert_eq!(agent.tools()[3].description, "v2");
    assert_eq!(Arc::strong_count(&bench.plugins()[1]), 1, "nobody but the bench has the old version");
    agent.dispose("done").await;
    let transcript = bench.transcript();
    check(
        from(&transcript, "context/message between"),
        "
        context/message between
        agent/queued again
        agent/status running
        plugin/reloaded p 2 v1 v2
        user/message again
        turn/start
        step/start
        request/sent
        assistant/message c2
        tool/call c2
        plugin/p/state
        tool/result c2 ok
        step/end
        step/start
        request/sent
        assistant/message b
        usage 1
        step/end
        turn/end completed
        agent/status idle
        agent/status disposed
        agent/disposed 0",
    );
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_the_old_one_flushes_is_flushed_too() {
    let diary = Diary::default();
    let v1 = Version::named("p", "v1", "look", &diary);
    let meanwhile = v1.meanwhile.clone();
    let bench = Bench::new(vec![Answer::Text("a"), Answer::Text("b")]).with(Arc::new(v1));
    let (agents, agent) = made(&bench).await;
    say(&agent, "go").await;
    agents.exchange(&[version("v2", &diary)]);
    agent.inject(text("between"), Source::User).await.expect("it is logged");
    *meanwhile.lock().expect("not poisoned") = Some(agent.agent());
    diary.take();
    say(&agent, "again").await;
    check(
        &diary.take(),
        "
        v1 flushes
        v1 sees context/message, keeps nothing
        v1 flushes
        v1 is detached
        v1 is dropped
        v2 sees user/message, keeps nothing
        v2 flushes",
    );
}

#[tokio::test(start_paused = true)]
async fn of_several_versions_between_two_turns_the_last_counts() {
    let diary = Diary::default();
    let bench = Bench::new(vec![Answer::Text("a"), Answer::Text("b")]).with(version("v1", &diary));
    let first = bench.plugins()[1].clone();
    let (agents, agent) = made(&bench).await;
    // Changed and changed back: nothing happens.
    agents.exchange(&[version("v2", &diary)]);
    agents.exchange(&[first]);
    say(&agent, "go").await;
    check(&diary.take(), "v2 is gone\nv1 sees user/message, keeps nothing\nv1 flushes");
    agents.exchange(&[version("v3", &diary)]);
    agents.exchange(&[version("v4", &diary), Arc::new(Version::named("q", "unknown", "other", &diary))]);
    say(&agent, "again").await;
    check(
        &diary.take(),
        "
        v3 is gone
        unknown is gone
        v1 is detached
        v1 is dropped
        v4 sees user/message, keeps nothing
        v4 flushes",
    );
    agent.dispose("done").await;
    assert_eq!(bench.transcript().matches("plugin/reloaded").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_turn_under_way_keeps_what_it_began_with() {
    let diary = Diary::default();
    let bench = Bench::new(vec![Answer::Calls(&[("ok", "{}")]), Answer::Calls(&[("look", "{}")]), Answer::Text("a")])
        .with(version("v1", &diary));
    let agents = bench.agent_loop();
    let (exchanged, of) = (agents.clone(), diary.clone());
    bench.recorder.on("tool/call", move |_| {
        let (agents, diary) = (exchanged.clone(), of.clone());
        async move { agents.exchange(&[version("v2", &diary)]) }.boxed()
    });
    let agent = agents.create(AgentId::new("main").expect("valid"), bench.options.clone()).await.expect("it is made");
    bench.recorder.is_about(agent.agent());
    say(&agent, "go").await;
    check(&diary.take(), "v1 sees user/message, keeps nothing\nv1 is called\nv1 flushes");
    agent.dispose("done").await;
    assert!(!bench.transcript().contains("plugin/reloaded"), "there was no next turn");
    check(&diary.take(), "v1 is detached");
}

#[tokio::test(start_paused = true)]
async fn tools_that_clash_leave_all_as_it_was() {
    let diary = Diary::default();
    let bench = Bench::new(vec![Answer::Text("a")]).with(version("v1", &diary));
    let (agents, agent) = made(&bench).await;
    agents.exchange(&[Arc::new(Version::named("p", "v2", "ok", &diary))]);
    say(&agent, "go").await;
    check(&diary.take(), "v2 is dropped\nv1 sees user/message, keeps nothing\nv1 flushes");
    // One that fits comes in at the next turn.
    agents.exchange(&[version("v3", &diary)]);
    say(&agent, "again").await;
    check(
        &diary.take(),
        "
        v2 is gone
        v1 is detached
        v1 is dropped
        v3 sees user/message, keeps nothing
        v3 flushes",
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_was_off_is_on_in_another_version() {
    let diary = Diary::default();
    let mut bad = Version::named("p", "v1", "look", &diary);
    bad.fails = true;
    let answers = ["a", "b", "c", "d", "e"].map(Answer::Text).to_vec();
    let bench = Bench::new(answers).with(Arc::new(bad));
    let (agents, agent) = made(&bench).await;
    for message in ["1", "2", "3", "4"] {
        say(&agent, message).await;
    }
    let told = diary.take();
    assert_eq!(told.matches("sees").count(), 3, "{told}");
    agents.exchange(&[version("v2", &diary)]);
    // One that is off has nothing to flush either.
    agent.inject(text("between"), Source::User).await.expect("it is logged");
    say(&agent, "5").await;
    check(&diary.take(), "v1 is detached\nv1 is dropped\nv2 sees user/message, keeps nothing\nv2 flushes");
}

#[tokio::test(start_paused = true)]
async fn agents_take_a_version_each_at_its_own_turn() {
    let diary = Diary::default();
    let bench = Bench::new(vec![Answer::Text("a")]).with(version("v1", &diary));
    let (agents, agent) = made(&bench).await;
    let other = agents.create(AgentId::new("other").expect("valid"), bench.options.clone()).await.expect("it is made");
    agents.exchange(&[version("v2", &diary)]);
    say(&agent, "go").await;
    check(&diary.take(), "v1 is detached\nv1 is dropped\nv2 sees user/message, keeps nothing\nv2 flushes");
    assert_eq!((&*agent.tools()[3].description, &*other.tools()[3].description), ("v2", "v1"));
    // One that is made now has the new version from the start.
    let third = agents.create(AgentId::new("third").expect("valid"), bench.options.clone()).await.expect("it is made");
    assert_eq!(third.tools()[3].description, "v2");
    for agent in [agent, other, third] {
        agent.dispose("done").await;
    }
    check(
        &diary.take(),
        "
        v2 is detached
        v1 is detached
        v1 is dropped
        v2 is detached
        v2 is dropped",
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_outside_of_any_turn_ends_with_what_it_began_with() {
    let diary = Diary::default();
    let bench = Bench::new(vec![Answer::Text("a"), Answer::Text("b")]).with(version("v1", &diary));
    let (agents, agent) = made(&bench).await;
    let outside = agent.agent();
    let outside = tokio::spawn(async move { outside.call_tool("wait", "{}").await });
    tokio::task::yield_now().await;
    agents.exchange(&[version("v2", &diary)]);
    say(&agent, "go").await;
    check(&diary.take(), "v1 sees user/message, keeps nothing\nv1 flushes");
    outside.abort();
    let _ = outside.await;
    say(&agent, "again").await;
    let told = diary.take();
    assert!(told.contains("v1 is dropped\nv2 sees user/message"), "{told}");
}
