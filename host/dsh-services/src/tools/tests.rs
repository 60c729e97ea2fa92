//! The dispatcher against native fakes: every case asserts the outcome and the whole log.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dsh_seam::event::{ApprovalAnswer, ApprovalBy, ApprovalDecided};
use dsh_seam::failure::FailureKind;
use dsh_seam::message::{ToolCall, result_text};
use dsh_seam::tools::*;
use dsh_seam::waterfall::{FailureReport, Listener, Next, Registered, RunContext, RunError};
use dsh_seam::waterfalls::{Execution, ToolsExecute};
use dsh_seam::{AgentId, AgentInfo, Failure, FailureMode, PluginError, PluginName, Seam, SessionId, StepRef};
use dsh_testkit::NoProcesses;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ToolServices;

const AT: StepRef = StepRef { turn: 1, step: 2 };

fn name(text: &str) -> PluginName {
    PluginName::new(text).expect("a valid name")
}

fn error(plugin: &str, seam: Seam, kind: FailureKind) -> PluginError {
    PluginError { plugin: name(plugin), seam, kind, message: "boom".into(), code: None }
}

/// A log in memory, one line an entry. The second part: the line at which it breaks.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>, Option<&'static str>);

impl Log {
    fn push(&self, line: impl Into<String>) {
        self.0.lock().expect("no test panics while holding it").push(line.into());
    }

    fn entry(&self, line: String) -> Result<(), RunError> {
        if self.1.is_some_and(|broken| line.starts_with(broken)) {
            return Err(RunError::Host(Failure::new("session-write-failed", "the disk is full")));
        }
        self.push(line);
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no test panics while holding it").clone()
    }
}

#[async_trait]
impl FailureReport for Log {
    async fn plugin_failed(&self, error: &PluginError) -> Result<(), RunError> {
        self.entry(format!("plugin/failed {} {} {:?}", error.plugin, error.seam, error.kind))
    }
}

#[async_trait]
impl ToolLog for Log {
    async fn append(&self, event: ToolEvent) -> Result<(), RunError> {
        self.entry(match event {
            ToolEvent::Dispatched(e) => {
                format!(
                    "dispatched {} n={} {} {} by={:?}",
                    e.call_id,
                    e.n,
                    e.name,
                    e.arguments,
                    e.plugin.map(|p| p.to_string())
                )
            }
            ToolEvent::Changed(e) => format!("changed {} {} {:?} {:?}", e.waterfall, e.plugin, e.call_id, e.what),
            other => format!("{other:?}"),
        })
    }
    fn remembers(&self, _plugin: &PluginName, _key: &str) -> bool {
        false
    }
    fn progress(&self, _at: StepRef, call_id: &str, plugin: &PluginName, text: &str, _fraction: Option<f32>) {
        self.push(format!("progress {call_id} {plugin} {text}"));
    }
    async fn before_tool(&self, read_only: bool) -> Result<(), RunError> {
        self.entry(format!("before-tool read-only={read_only}"))
    }
    fn owe(&self, work: futures::future::BoxFuture<'static, ()>) {
        tokio::spawn(work);
    }
    fn for_call(&self, _at: StepRef, _call_id: &str) -> Arc<dyn ToolLog> {
        Arc::new(self.clone())
    }
}

/// Answers every question the same way, and logs what was asked.
struct Answers(Log, ApprovalAnswer, ApprovalBy);

#[async_trait]
impl Approvals for Answers {
    async fn ask(&self, request: ApprovalRequest, cancel: &CancellationToken) -> Result<ApprovalDecided, RunError> {
        let call = request.call.expect("guards ask about calls");
        let asked: Vec<String> = request.questions.iter().map(|q| format!("{}:{}", q.plugin, q.title)).collect();
        self.0.push(format!("asked {} {} {} {asked:?}", call.id, call.name, call.arguments));
        if self.1 == ApprovalAnswer::Aborted {
            cancel.cancelled().await;
            self.0.push("decided aborted");
        }
        Ok(ApprovalDecided {
            turn: 1,
            step: 2,
            call_id: Some(call.id),
            id: "approval-1".into(),
            answer: self.1,
            by: self.2,
        })
    }
}

type Tool = Arc<dyn Fn(ToolContext, ToolCall) -> BoxFuture<'static, Result<Outcome, PluginError>> + Send + Sync>;

/// Native tools, each a function.
struct Provider(Vec<ToolDefinition>, HashMap<String, Tool>);

#[async_trait]
impl ToolProvider for Provider {
    fn definitions(&self) -> &[ToolDefinition] {
        &self.0
    }
    async fn call(&self, cx: &ToolContext, call: ToolCall) -> Result<Outcome, PluginError> {
        self.1[&call.name](cx.clone(), call).await
    }
}

fn tool<F>(name: &str, run: impl Fn(ToolContext, ToolCall) -> F + Send + Sync + 'static) -> (String, Tool)
where
    F: Future<Output = Result<Outcome, PluginError>> + Send + 'static,
{
    (name.into(), Arc::new(move |cx, call| Box::pin(run(cx, call))))
}

fn provider(tools: Vec<(String, Tool)>) -> Arc<dyn ToolProvider> {
    let parameters =
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": false});
    let definition = |name: &String| ToolDefinition {
        name: name.clone(),
        description: String::new(),
        parameters: parameters.clone(),
        annotations: Annotations::default(),
    };
    let definitions = tools.iter().map(|(name, _)| definition(name)).collect();
    Arc::new(Provider(definitions, tools.into_iter().collect()))
}

/// What a test listener does.
#[derive(Clone)]
enum Does {
    Pass,
    Change(&'static str, &'static str),
    OtherId,
    Twice,
    Answer(Outcome),
    Rewrite(&'static str),
    Deny,
    Narrow(Profile),
    FailBefore(FailureKind),
    FailAfter(FailureKind),
    Swallow,
    Hang,
}

#[async_trait]
impl Listener<ToolsExecute> for Does {
    async fn handle(
        &self,
        cx: &RunContext<ToolsExecute>,
        value: Execution,
        next: Next<ToolsExecute>,
    ) -> Result<Arc<Outcome>, PluginError> {
        let told = |told: RunError| match told {
            RunError::Plugin(error) => error,
            other => PluginError { message: other.to_string(), ..error("told", Seam::Execute, FailureKind::Error) },
        };
        let with = |name: &str, arguments: &str| Execution {
            call: ToolCall { name: name.into(), arguments: arguments.into(), ..value.call.clone() },
            ..value.clone()
        };
        match self.clone() {
            Does::Pass => next.run(value).await.map_err(told),
            Does::Change(name, arguments) => next.run(with(name, arguments)).await.map_err(told),
            Does::OtherId => {
                let call = ToolCall { id: "other".into(), ..value.call.clone() };
                next.run(Execution { call, ..value }).await.map_err(told)
            }
            Does::Twice => {
                next.run(value.clone()).await.map_err(told)?;
                next.run(value).await.map_err(told)
            }
            Does::Answer(outcome) => Ok(Arc::new(outcome)),
            Does::Rewrite(text) => {
                let inner = next.run(value).await.map_err(told)?;
                Ok(Arc::new(Outcome {
                    content: vec![dsh_seam::message::ResultBlock::text(text)],
                    plugin: None,
                    ..(*inner).clone()
                }))
            }
            Does::Deny => {
                next.run(value).await.map_err(told)?;
                Ok(Arc::new(Outcome::error("denied", "no")))
            }
            Does::Narrow(profile) => {
                let profile = Arc::new(value.profile.intersect(&profile));
                next.run(Execution { profile, ..value }).await.map_err(told)
            }
            Does::FailBefore(kind) => Err(error("filled-in", Seam::Execute, kind)),
            Does::FailAfter(kind) => {
                next.run(value).await.map_err(told)?;
                Err(error("filled-in", Seam::Execute, kind))
            }
            Does::Swallow => Ok(next.run(value).await.unwrap_or_else(|_| Arc::new(Outcome::text("swallowed")))),
            Does::Hang => {
                cx.cancel.cancelled().await;
                std::future::pending().await
            }
        }
    }
}

/// A listener whose failures carry its own name.
struct Named(PluginName, Does);

#[async_trait]
impl Listener<ToolsExecute> for Named {
    async fn handle(
        &self,
        cx: &RunContext<ToolsExecute>,
        value: Execution,
        next: Next<ToolsExecute>,
    ) -> Result<Arc<Outcome>, PluginError> {
        self.1.handle(cx, value, next).await.map_err(|error| match error.plugin.as_str() {
            "filled-in" => PluginError { plugin: self.0.clone(), ..error },
            _ => error,
        })
    }
}

/// What a test guard says.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Abstain,
    Ask,
    Deny,
    DenyText(&'static str),
    Fail(FailureKind),
    Hang,
}

struct NamedGuard(PluginName, Says);

#[async_trait]
impl Guard for NamedGuard {
    async fn check(
        &self,
        _at: StepRef,
        call: &ToolCall,
        _tool: &ToolInfo,
        _cancel: &CancellationToken,
    ) -> Result<Verdict, PluginError> {
        match self.1 {
            Says::Abstain => Ok(Verdict::Abstain),
            Says::Ask => Ok(Verdict::Ask(Question { title: "may it?".into(), detail: "x".into(), remember: None })),
            Says::Deny => Ok(Verdict::Deny("not today".into())),
            Says::DenyText(text) if call.arguments.contains(text) => {
                Ok(Verdict::Deny(format!("`{text}` is not allowed")))
            }
            Says::DenyText(_) => Ok(Verdict::Abstain),
            Says::Fail(kind) => Err(PluginError { plugin: self.0.clone(), ..error("x", Seam::Guard, kind) }),
            Says::Hang => std::future::pending().await,
        }
    }
}

struct World {
    log: Log,
    listeners: Vec<Registered<ToolsExecute>>,
    guards: Vec<RegisteredGuard>,
    providers: Vec<(PluginName, Arc<dyn ToolProvider>)>,
    answer: (ApprovalAnswer, ApprovalBy),
    cancel: CancellationToken,
    only: Option<BTreeSet<String>>,
    profile: Profile,
}

use FailureMode::{Closed, Open};

impl World {
    fn new() -> Self {
        let log = Log::default();
        let seen = log.clone();
        let echo = tool("echo", move |cx, call| {
            let seen = seen.clone();
            async move {
                seen.push(format!("ran {} {} {}", call.id, call.name, call.arguments));
                assert_eq!(cx.call_id, call.id);
                let value: Value = serde_json::from_str(&call.arguments).expect("checked");
                Ok(Outcome::text(value["text"].as_str().unwrap_or("nothing").to_uppercase()))
            }
        });
        let fails = tool("fails", |_, _| async { Ok(Outcome { code: None, ..Outcome::error("", "no luck") }) });
        let traps = tool("traps", |_, _| async { Err(error("tools", Seam::Provider, FailureKind::Trap)) });
        let providers = vec![(name("tools"), provider(vec![echo, fails, traps]))];
        let answer = (ApprovalAnswer::AllowOnce, ApprovalBy::Person);
        let cancel = CancellationToken::new();
        let (only, profile) = (None, Profile::unrestricted());
        Self { log, listeners: vec![], guards: vec![], providers, answer, cancel, only, profile }
    }

    fn listener(mut self, plugin: &str, mode: FailureMode, does: Does) -> Self {
        self.listeners.push(Registered { plugin: name(plugin), mode, listener: Arc::new(Named(name(plugin), does)) });
        self
    }

    fn guard(mut self, plugin: &str, mode: FailureMode, says: Says) -> Self {
        self.guards.push(RegisteredGuard {
            plugin: name(plugin),
            mode,
            guard: Arc::new(NamedGuard(name(plugin), says)),
        });
        self
    }

    fn tools(mut self, plugin: &str, tools: Vec<(String, Tool)>) -> Self {
        self.providers.push((name(plugin), provider(tools)));
        self
    }

    fn answering(mut self, answer: ApprovalAnswer, by: ApprovalBy) -> Self {
        self.answer = (answer, by);
        self
    }

    fn build(&self) -> Result<Arc<dyn AgentTools>, Failure> {
        ToolServices::new(Arc::new(NoProcesses)).for_agent(ToolSetup {
            agent: AgentInfo {
                agent: AgentId::new("main").expect("valid"),
                session: SessionId::new("s").expect("valid"),
                lineage: vec![],
            },
            providers: self.providers.clone(),
            listeners: self.listeners.clone().into(),
            guards: self.guards.clone().into(),
            approvals: Arc::new(Answers(self.log.clone(), self.answer.0, self.answer.1)),
            log: Arc::new(self.log.clone()),
            only: self.only.clone(),
            profile: Arc::new(self.profile.clone()),
        })
    }

    async fn call(&self, name: &str, arguments: &str) -> Dispatch {
        let call = ToolCall { id: "c1".into(), name: name.into(), arguments: arguments.into(), opaque: None };
        self.build().expect("good tools").dispatch(AT, call, &self.cancel).await
    }

    /// Calls `echo{text: "hi"}` and asserts outcome (`text` or `code [plugin] text`), whether it is fatal, and the log.
    async fn check(self, outcome: &str, fatal: Option<&str>, log: &[&str]) {
        self.check_call("echo", r#"{"text":"hi"}"#, outcome, fatal, log).await;
    }

    async fn check_call(self, name: &str, arguments: &str, outcome: &str, fatal: Option<&str>, log: &[&str]) {
        let dispatch = self.call(name, arguments).await;
        assert_eq!(shown(&dispatch.outcome), outcome);
        assert_eq!(dispatch.fatal.map(|error| error.to_string()).as_deref(), fatal);
        assert_eq!(self.log.lines(), log);
    }
}

fn shown(outcome: &Outcome) -> String {
    let plugin = outcome.plugin.as_ref().map(|plugin| format!("[{plugin}] ")).unwrap_or_default();
    let code = outcome.code.as_ref().map(|code| format!("{code} ")).unwrap_or_default();
    assert_eq!(outcome.is_error, outcome.code.is_some());
    format!("{code}{plugin}{}", result_text(&outcome.content))
}

const RAN: [&str; 2] = ["before-tool read-only=false", r#"ran c1 echo {"text":"hi"}"#];

#[tokio::test]
async fn a_tool_runs_with_the_models_arguments() {
    World::new().check("HI", None, &RAN).await;
    World::new().check_call("echo", "", "NOTHING", None, &[RAN[0], "ran c1 echo {}"]).await;
    World::new().listener("p", Closed, Does::Pass).check("HI", None, &RAN).await;
}

#[tokio::test]
async fn bad_calls_are_outcomes_that_help() {
    let check = async |name: &str, arguments: &str, outcome: &str| {
        World::new().guard("g", Closed, Says::Deny).check_call(name, arguments, outcome, None, &[]).await
    };
    check(
        "echo",
        "{",
        "invalid-arguments the arguments are not valid JSON: EOF while parsing an object at line 1 column 1",
    )
    .await;
    check(
        "echo",
        r#"{"text":1}"#,
        "invalid-arguments the arguments do not match the tool's schema:\n- `$.text`: 1 is not of type \"string\"",
    )
    .await;
    check("ecko", "{}", "unknown-tool there is no tool `ecko`; did you mean `echo`?").await;
    check("zzz", "{}", "unknown-tool there is no tool `zzz`; there are `echo`, `fails`, `traps`").await;
}

#[tokio::test]
async fn a_failing_tool_is_an_outcome_and_the_turn_goes_on() {
    World::new().check_call("fails", "", "tool-failed no luck", None, &RAN[..1]).await;
    World::new()
        .check_call(
            "traps",
            "",
            "plugin-failed [tools] plugin `tools` failed while it ran the tool `traps`: boom",
            None,
            &[RAN[0], "plugin/failed tools tools/provider Trap"],
        )
        .await;
    let limit = tool("limit", |_, _| async { Err(error("big", Seam::Provider, FailureKind::Limit)) });
    World::new()
        .tools("big", vec![limit])
        .check_call(
            "limit",
            "",
            "plugin-limit [big] plugin `big` exceeded a limit while it ran the tool `limit`: boom",
            None,
            &[RAN[0], "plugin/failed big tools/provider Limit"],
        )
        .await;
}

#[tokio::test]
async fn a_failing_listener_ends_the_turn_and_the_result_tells_the_truth() {
    let before =
        |kind| World::new().listener("outer", Closed, Does::Swallow).listener("x", Closed, Does::FailBefore(kind));
    before(FailureKind::Trap)
        .check(
            "plugin-failed [x] not run: plugin `x` failed in `tools/execute`: boom",
            Some("plugin `x` failed in `tools/execute`: boom"),
            &["plugin/failed x tools/execute Trap"],
        )
        .await;
    before(FailureKind::Limit)
        .check(
            "plugin-limit [x] not run: plugin `x` exceeded a limit in `tools/execute`: boom",
            Some("plugin `x` failed in `tools/execute`: boom"),
            &["plugin/failed x tools/execute Limit"],
        )
        .await;
    World::new()
        .listener("x", Closed, Does::FailAfter(FailureKind::Trap))
        .check(
            "plugin-failed [x] it ran, its outcome was withheld because plugin `x` failed",
            Some("plugin `x` failed in `tools/execute`: boom"),
            &[RAN[0], RAN[1], "plugin/failed x tools/execute Trap"],
        )
        .await;
}

#[tokio::test]
async fn an_open_listener_that_fails_is_passed_over() {
    World::new()
        .listener("x", Open, Does::FailBefore(FailureKind::Trap))
        .check("HI", None, &["plugin/failed x tools/execute Trap", RAN[0], RAN[1]])
        .await;
    World::new()
        .listener("x", Open, Does::FailAfter(FailureKind::Trap))
        .check("HI", None, &[RAN[0], RAN[1], "plugin/failed x tools/execute Trap"])
        .await;
}

#[tokio::test]
async fn a_changed_call_is_logged_run_and_judged_as_changed() {
    World::new()
        .listener("a", Closed, Does::Change("echo", r#"{"text":"other"}"#))
        .guard("g", Closed, Says::DenyText("hi"))
        .check(
            "OTHER",
            None,
            &[
                r#"dispatched c1 n=1 echo {"text":"other"} by=Some("a")"#,
                RAN[0],
                r#"ran c1 echo {"text":"other"}"#,
                r#"changed tools/execute a Some("c1") [Call]"#,
            ],
        )
        .await;
    // An inner listener changes the call after an outer one passed it: guards see the final call.
    World::new()
        .listener("permission", Closed, Does::Pass)
        .listener("evil", Closed, Does::Change("echo", r#"{"text":"rm"}"#))
        .guard("g", Closed, Says::DenyText("rm"))
        .check(
            "denied [g] denied by policy `g`: `rm` is not allowed",
            None,
            &[r#"changed tools/execute evil Some("c1") [Call]"#],
        )
        .await;
    // A call that was unknown can be repaired.
    World::new()
        .listener("a", Closed, Does::Change("echo", "{}"))
        .check_call(
            "shout",
            "{}",
            "NOTHING",
            None,
            &[
                r#"dispatched c1 n=1 echo {} by=Some("a")"#,
                RAN[0],
                "ran c1 echo {}",
                r#"changed tools/execute a Some("c1") [Call]"#,
            ],
        )
        .await;
}

#[tokio::test]
async fn the_models_call_id_stays() {
    World::new().listener("a", Closed, Does::OtherId).check("HI", None, &RAN).await;
}

#[tokio::test]
async fn running_again_is_logged() {
    World::new()
        .listener("a", Closed, Does::Twice)
        .check("HI", None, &[RAN[0], RAN[1], r#"dispatched c1 n=2 echo {"text":"hi"} by=Some("a")"#, RAN[0], RAN[1]])
        .await;
}

#[tokio::test]
async fn whoever_answers_in_the_tools_place_is_named() {
    let changed = |plugin: &str| format!("changed tools/execute {plugin} Some(\"c1\") [Outcome]");
    World::new()
        .listener("plan", Closed, Does::Answer(Outcome::error("denied", "plan first")))
        .guard("g", Closed, Says::Deny)
        .check("denied [plan] plan first", None, &[&changed("plan")])
        .await;
    World::new()
        .listener("outer", Closed, Does::Pass)
        .listener("cache", Closed, Does::Answer(Outcome::text("cached")))
        .check("[cache] cached", None, &[&changed("cache")])
        .await;
    World::new().listener("a", Closed, Does::Deny).check("denied [a] no", None, &[RAN[0], RAN[1], &changed("a")]).await;
    World::new()
        .listener("redact", Closed, Does::Rewrite("***"))
        .check("***", None, &[RAN[0], RAN[1], &changed("redact")])
        .await;
    World::new()
        .listener("redact", Closed, Does::Rewrite("***"))
        .guard("g", Closed, Says::Deny)
        .check("denied [g] ***", None, &[&changed("redact")])
        .await;
}

#[tokio::test]
async fn guards_fold_the_same_way_in_every_order() {
    use FailureKind::Trap;
    let all = [Says::Abstain, Says::Ask, Says::Deny, Says::Fail(Trap)];
    for a in all {
        for b in all {
            for c in all {
                let world = World::new().guard("g", Closed, a).guard("g", Closed, b).guard("g", Closed, c);
                let outcome = world.call("echo", "{}").await.outcome;
                let has = |says: Says| [a, b, c].contains(&says);
                let expect = if has(Says::Deny) {
                    Some("denied")
                } else if has(Says::Fail(Trap)) {
                    Some("plugin-failed")
                } else {
                    None
                };
                assert_eq!(outcome.code.as_deref(), expect);
                let asked = world.log.lines().iter().filter(|line| line.starts_with("asked")).count();
                assert_eq!(asked, usize::from(expect.is_none() && has(Says::Ask)));
            }
        }
    }
}

#[tokio::test]
async fn all_denials_are_told() {
    World::new()
        .guard("a", Closed, Says::Deny)
        .guard("b", Closed, Says::Ask)
        .guard("c", Closed, Says::DenyText("hi"))
        .check("denied [a] denied by policy `a`: not today\ndenied by policy `c`: `hi` is not allowed", None, &[])
        .await;
}

#[tokio::test]
async fn a_failing_guard_stops_the_call_unless_it_is_open() {
    World::new()
        .guard("g", Closed, Says::Fail(FailureKind::Limit))
        .check(
            "plugin-limit [g] not run: plugin `g` exceeded a limit in `tools/guard`: boom",
            None,
            &["plugin/failed g tools/guard Limit"],
        )
        .await;
    World::new()
        .guard("g", Open, Says::Fail(FailureKind::Trap))
        .check("HI", None, &["plugin/failed g tools/guard Trap", RAN[0], RAN[1]])
        .await;
}

#[tokio::test]
async fn several_asks_are_one_question_about_the_final_call() {
    let world = || {
        World::new()
            .listener("x", Closed, Does::Change("echo", r#"{"text":"new"}"#))
            .guard("a", Closed, Says::Ask)
            .guard("b", Closed, Says::Abstain)
            .guard("c", Closed, Says::Ask)
    };
    let asked = r#"asked c1 echo {"text":"new"} ["a:may it?", "c:may it?"]"#;
    let changed = r#"changed tools/execute x Some("c1") [Call]"#;
    let dispatched = r#"dispatched c1 n=1 echo {"text":"new"} by=Some("x")"#;
    world().check("NEW", None, &[asked, dispatched, RAN[0], r#"ran c1 echo {"text":"new"}"#, changed]).await;
    world()
        .answering(ApprovalAnswer::Deny, ApprovalBy::Person)
        .check(
            "approval-denied not run: policy `a` (may it?) and policy `c` (may it?) asked for approval, and it was denied",
            None,
            &[asked, changed],
        )
        .await;
    world()
        .answering(ApprovalAnswer::Deny, ApprovalBy::Headless)
        .check(
            "approval-unavailable not run: policy `a` (may it?) and policy `c` (may it?) asked for approval, and nobody is there to give it",
            None,
            &[asked, changed],
        )
        .await;
}

#[tokio::test]
async fn bad_registrations_are_refused_and_named() {
    let nothing = || async { Ok(Outcome::text("")) };
    let check = |world: World, expect: &str| {
        assert_eq!(world.build().err().map(|failure| failure.message).as_deref(), Some(expect));
    };
    check(
        World::new().tools("more", vec![tool("echo", move |_, _| nothing())]),
        "the tool `echo` is there twice: plugins `tools` and `more` both have it",
    );
    check(
        World::new().tools("more", vec![tool("a b", move |_, _| nothing())]),
        "plugin `more`: `a b` is not a valid tool name: use letters, digits, `_` and `-`, at most 64",
    );
    let with_schema = |parameters: Value| {
        let definition = ToolDefinition {
            name: "t".into(),
            description: String::new(),
            parameters,
            annotations: Annotations::default(),
        };
        let mut world = World::new();
        world.providers.push((name("bad"), Arc::new(Provider(vec![definition], HashMap::new()))));
        world
    };
    let prefix = "plugin `bad`: the parameters of the tool `t` are no usable JSON Schema: ";
    check(with_schema(json!(true)), &format!("{prefix}it must be an object"));
    check(with_schema(json!({"type": "string"})), &format!("{prefix}it must have `\"type\": \"object\"`"));
    let remote = with_schema(json!({"type": "object", "properties": {"x": {"$ref": "https://example.com/s.json"}}}));
    let message = remote.build().err().expect("a remote reference").message;
    assert!(message.starts_with(prefix) && message.contains("example.com"), "{message}");
}

#[tokio::test]
async fn a_removed_tool_is_unknown_and_a_running_call_finishes() {
    let world = World::new();
    let (started, begun) = tokio::sync::oneshot::channel::<()>();
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let parts = Mutex::new(Some((started, finished)));
    let slow = tool("slow", move |_, _| {
        let (started, finished) = parts.lock().expect("unpoisoned").take().expect("called once");
        async move {
            started.send(()).expect("the test waits");
            finished.await.expect("the test lets it go on");
            Ok(Outcome::text("done"))
        }
    });
    let tools = world.tools("more", vec![slow]).build().expect("good tools");
    let call = ToolCall { id: "c1".into(), name: "slow".into(), arguments: String::new(), opaque: None };
    let running = tokio::spawn({
        let (tools, call) = (tools.clone(), call.clone());
        async move { tools.dispatch(AT, call, &CancellationToken::new()).await }
    });
    begun.await.expect("it runs");
    tools.remove(&name("more"));
    assert_eq!((tools.find("slow"), tools.definitions().len()), (None, 3));
    finish.send(()).expect("it waits");
    assert_eq!(shown(&running.await.expect("no panic").outcome), "done");
    let again = tools.dispatch(AT, call, &CancellationToken::new()).await;
    assert_eq!(again.outcome.code.as_deref(), Some("unknown-tool"));
}

#[tokio::test(start_paused = true)]
async fn a_profile_limits_time_and_output() {
    let narrow = Profile { timeout_ms: Some(50), max_output_bytes: Some(3), ..Profile::unrestricted() };
    let hang = tool("hang", |_, _| async { std::future::pending().await });
    let world = || World::new().listener("sandbox", Closed, Does::Narrow(narrow.clone()));
    world()
        .tools("more", vec![hang])
        .check_call("hang", "", "timed-out the tool `hang` was stopped after 50 ms", None, &RAN[..1])
        .await;
    world()
        .check_call(
            "echo",
            r#"{"text":"long"}"#,
            "LON\n[output cut: 3 of 4 bytes are shown, the limit is 3]",
            None,
            &[RAN[0], r#"ran c1 echo {"text":"long"}"#],
        )
        .await;
}

/// Runs a call and cancels once it waits; paused time goes on by itself.
async fn aborted(world: World, tool: &str, outcome: &str, log: &[&str]) {
    let cancel = world.cancel.clone();
    let (dispatch, ()) = tokio::join!(world.call(tool, ""), async {
        tokio::task::yield_now().await;
        cancel.cancel();
    });
    assert_eq!(shown(&dispatch.outcome), outcome);
    assert_eq!(dispatch.fatal, None);
    assert_eq!(world.log.lines(), log);
}

#[tokio::test(start_paused = true)]
async fn an_abort_awaits_the_tool_and_drops_all_else() {
    let polite = tool("polite", |cx, _| async move {
        cx.progress.report("waiting", Some(0.5));
        cx.cancel.cancelled().await;
        Ok(Outcome::text("stopped well"))
    });
    let deaf = tool("deaf", |_, _| async { std::future::pending().await });
    let stopped = tool("stopped", |cx, _| async move {
        cx.cancel.cancelled().await;
        Err(PluginError { code: Some("aborted".into()), ..error("more", Seam::Provider, FailureKind::Error) })
    });
    let world = || World::new().tools("more", vec![polite.clone(), deaf.clone(), stopped.clone()]);
    let progress = "progress c1 more waiting";
    aborted(world(), "polite", "stopped well", &[RAN[0], progress]).await;
    let dropped =
        |tool| format!("aborted the turn was aborted while the tool `{tool}` ran; what it had done stays done");
    aborted(world(), "deaf", &dropped("deaf"), &RAN[..1]).await;
    aborted(world(), "stopped", &dropped("stopped"), &RAN[..1]).await;
    let not_run = "aborted not run: the turn was aborted";
    aborted(world().listener("x", Closed, Does::Hang), "echo", not_run, &[]).await;
    aborted(world().guard("g", Closed, Says::Hang), "echo", not_run, &[]).await;
    aborted(
        world().guard("g", Closed, Says::Ask).answering(ApprovalAnswer::Aborted, ApprovalBy::Abort),
        "echo",
        not_run,
        &[r#"asked c1 echo {} ["g:may it?"]"#, "decided aborted"],
    )
    .await;
    // A listener still sees the outcome of a tool that was awaited.
    let changed = r#"changed tools/execute redact Some("c1") [Outcome]"#;
    aborted(world().listener("redact", Closed, Does::Rewrite("***")), "polite", "***", &[RAN[0], progress, changed])
        .await;
}

#[tokio::test]
async fn a_log_that_cannot_be_written_ends_the_turn() {
    let broken = |at| {
        let mut world = World::new();
        world.log.1 = Some(at);
        world
    };
    let full = Some("the disk is full");
    broken("before-tool").check("skipped not run: the disk is full", full, &[]).await;
    broken("dispatched")
        .listener("a", Closed, Does::Twice)
        .check("outcome-unknown it ran, its outcome is lost: the disk is full", full, &RAN)
        .await;
    broken("plugin/failed")
        .guard("g", Closed, Says::Fail(FailureKind::Trap))
        .check("skipped not run: the disk is full", full, &[])
        .await;
    broken("changed").listener("r", Closed, Does::Rewrite("***")).check("***", full, &RAN).await;
}

#[tokio::test]
async fn a_tool_outside_of_the_set_is_unknown_whoever_calls_it() {
    let only = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
    let world = World { only: only(&["fails", "nowhere"]), ..World::new() };
    let tools = world.build().expect("good tools");
    assert_eq!(tools.definitions().iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["fails"]);
    assert_eq!(tools.find("echo"), None);
    world.check("unknown-tool there is no tool `echo`; there are `fails`", None, &[]).await;
    let rewritten = World { only: only(&["fails"]), ..World::new() };
    let rewritten = rewritten.listener("outer", Closed, Does::Change("echo", "{}"));
    let outcome = rewritten.call("fails", "{}").await.outcome;
    assert_eq!(outcome.code.as_deref(), Some("unknown-tool"), "a listener that rewrites the call finds no more");
    let none = World { only: only(&[]), ..World::new() };
    none.check("unknown-tool there is no tool `echo`; there are no tools", None, &[]).await;
}

#[tokio::test]
async fn every_call_is_under_the_profile_that_the_agent_was_given() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = seen.clone();
    let look = tool("look", move |cx, _| {
        let keep = keep.clone();
        async move {
            keep.lock().expect("not poisoned").push((cx.profile.processes, cx.profile.timeout_ms));
            Ok(Outcome::text("seen"))
        }
    });
    let profile = Profile { processes: false, ..Profile::unrestricted() };
    let world = World { profile, providers: vec![(name("tools"), provider(vec![look]))], ..World::new() };
    world.call("look", "{}").await;
    let narrow = Profile { timeout_ms: Some(50), ..Profile::unrestricted() };
    let world = world.listener("sandbox", Closed, Does::Narrow(narrow));
    world.call("look", "{}").await;
    assert_eq!(*seen.lock().expect("not poisoned"), [(false, None), (false, Some(50))]);
}
