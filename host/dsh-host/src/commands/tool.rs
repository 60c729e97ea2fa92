//! `tool list` and `tool call`: an agent without a model's turn, for CI and for authors.

use std::sync::Arc;

use dsh_loop::{AgentLoop, AgentOwner};
use dsh_seam::message::result_text;
use dsh_seam::plugin::Plugin as _;
use dsh_seam::tools::{Dispatch, Outcome};
use serde::Serialize;
use serde_json::Value;

use super::{columns, print, print_json};
use crate::args::{Options, Output};
use crate::env::Environment;
use crate::exit::{self, Code, Ledger, Stop};
use crate::output::Sink;
use crate::output::chat::tame;
use crate::output::pump::Pump;
use crate::output::receipts::Recorder;
use crate::resolve::{self, Plan};
use crate::run::signals::{self, Signals};
use crate::run::watch::Watch;
use crate::{approve, compose, diagnostics, names, why};

/// An agent that gets no messages.
struct Bench {
    agent: AgentOwner,
    watch: Arc<Watch>,
    pump: Pump,
    writer: std::thread::JoinHandle<()>,
    /// Says what plugin calls cost when it is dropped.
    _recorder: Option<Recorder>,
}

impl Bench {
    async fn new(plan: &Plan, environment: &Environment) -> Result<Self, Stop> {
        let models = compose::models(plan)?;
        let recorder = compose::recorder(plan)?;
        let plugins = compose::plugins(plan, environment, recorder.as_ref()).await?;
        let modes = plugins.iter().map(|plugin| (plugin.name().clone(), plugin.failure_mode()));
        let prompted = plan.prompted();
        let ledger = Ledger::new(prompted.id.clone(), plan.strict, modes).for_tool_call();
        let (pump, writer) = Pump::start(Box::new(|| {}));
        let sink = if plan.output == Output::Jsonl { Sink::Jsonl } else { Sink::Json };
        let witness = recorder.as_ref().map(Recorder::witness);
        let watch = Watch::new(prompted.id.clone(), ledger, sink, pump.clone()).with_witness(witness);
        let watch = Arc::new(watch);
        let services = compose::services(plan, models, approve::approver(plan.approve, None), watch.clone());
        let agents = AgentLoop::new(services, compose::as_listeners(plan, &plugins));
        let options = compose::agent_options(plan, prompted, plan.session.clone(), true);
        let agent = agents.create(prompted.id.clone(), options).await?;
        Ok(Self { agent, watch, pump, writer, _recorder: recorder })
    }

    async fn end(self) -> Arc<Watch> {
        self.agent.dispose("done").await;
        if let Err(problem) = self.pump.end(self.writer) {
            diagnostics::complain(problem);
            self.watch.earn(Code::Interrupted);
        }
        self.watch
    }
}

#[derive(Serialize)]
struct Listed {
    name: String,
    plugin: Option<String>,
    description: String,
    parameters: Value,
    annotations: Value,
}

/// The tools that a model would be offered, in that order.
pub async fn list(options: &Options, environment: &Environment) -> Result<Code, Stop> {
    let plan = resolve::tool(options, environment)?;
    let bench = Bench::new(&plan, environment).await?;
    let describe = |tool: &dsh_seam::tools::ToolDefinition| Listed {
        name: tool.name.clone(),
        plugin: bench.agent.tool_info(&tool.name).map(|info| info.plugin.to_string()),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
        annotations: serde_json::to_value(tool.annotations).unwrap_or_default(),
    };
    let tools: Vec<Listed> = bench.agent.tools().iter().map(describe).collect();
    bench.end().await;
    if plan.output != Output::Text {
        return print_json(&tools).map(|()| Code::Success);
    }
    let row = |tool: &Listed| {
        let first_line = tool.description.trim().lines().next().unwrap_or_default();
        vec![tool.name.clone(), tool.plugin.clone().unwrap_or_default(), first_line.to_owned()]
    };
    print(&columns(&tools.iter().map(row).collect::<Vec<_>>()))?;
    Ok(Code::Success)
}

/// One call through the whole `tools/execute` waterfall and the guards.
pub async fn call(options: &Options, name: &str, arguments: &str, environment: &Environment) -> Result<Code, Stop> {
    if !arguments.trim().is_empty() {
        serde_json::from_str::<Value>(arguments).map_err(|error| {
            Stop::usage(format!("the arguments of `{name}` are no JSON: {error}"))
                .hint("quote them: '{\"key\": \"value\"}'")
        })?;
    }
    let plan = resolve::tool(options, environment)?;
    let bench = Bench::new(&plan, environment).await?;
    bench.pump.open();
    let tools: Vec<String> = bench.agent.tools().iter().map(|tool| tool.name.clone()).collect();
    let (called, interrupted) = interruptible(&bench.agent, bench.agent.call_tool(name, arguments)).await?;
    let Dispatch { outcome, fatal } = called;
    let watch = bench.end().await;
    if let Some(error) = &fatal {
        diagnostics::complain(error);
    }
    let of_outcome = exit::outcome_code(&outcome, fatal.as_ref());
    show(&outcome, of_outcome, plan.output, environment.stdout_is_terminal)?;
    if fatal.is_none() && outcome.code.as_deref() == Some(why::UNANSWERED) {
        diagnostics::hint(why::ANSWER_FOR_ME);
    }
    decided_by(of_outcome, &watch);
    // Most near names are in the text of the outcome already.
    let is_unknown = outcome.code.as_deref() == Some("unknown-tool") && fatal.is_none();
    let is_told = result_text(&outcome.content).contains("did you mean");
    let near = names::nearest(name, tools.iter().map(String::as_str));
    if let Some(near) = near.filter(|_| is_unknown && !is_told) {
        diagnostics::hint(format_args!("did you mean `{near}`?"));
    }
    // What the call came to is shown; a signal decides all the same.
    if interrupted {
        watch.earn(Code::Interrupted);
    }
    Ok(exit::tool_call_code(of_outcome, &watch.ledger()))
}

/// Says what else than the outcome earned the exit code, if anything did.
fn decided_by(of_outcome: Code, watch: &Watch) {
    let ledger = watch.ledger();
    let code = exit::tool_call_code(of_outcome, &ledger);
    if code != of_outcome
        && let Some(why) = ledger.untold(code)
    {
        diagnostics::complain(why);
    }
}

/// Awaits the call; a signal aborts it, a second one ends the process. Returns also whether there was a signal.
async fn interruptible<T>(
    agent: &AgentOwner,
    call: impl Future<Output = Result<T, dsh_seam::Failure>>,
) -> Result<(T, bool), Stop> {
    let mut signals = Signals::listen().map_err(|error| Stop::new(Code::Internal, error.to_string()))?;
    tokio::pin!(call);
    let mut asked = false;
    loop {
        tokio::select! {
            done = &mut call => return done.map(|done| (done, asked)).map_err(|failure| match asked {
                // An agent that is disposed may no longer log what came of the call.
                true => Stop::new(Code::Interrupted, "the call was interrupted"),
                false => Stop::new(exit::failure_code(&failure.code), failure.message),
            }),
            _ = signals.next() => {}
        }
        if std::mem::replace(&mut asked, true) {
            signals::exit_now();
        }
        agent.start_dispose("interrupted");
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    content: &'a [dsh_seam::message::ResultBlock],
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
}

fn show(outcome: &Outcome, code: Code, output: Output, to_terminal: bool) -> Result<(), Stop> {
    if output == Output::Json {
        let shown = Shown { content: &outcome.content, is_error: outcome.is_error, code: outcome.code.as_deref() };
        let mut line = Vec::new();
        crate::output::line(&shown, &mut line);
        return print(&String::from_utf8_lossy(&line));
    }
    let text = result_text(&outcome.content);
    let text = if to_terminal { tame(&text) } else { text };
    match code {
        Code::Success | Code::ToolError if output == Output::Text => {
            let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            print(&format!("{text}{newline}"))?;
        }
        // What others say of the call is no text of the tool.
        Code::Success => {}
        _ => diagnostics::complain(text.trim_end()),
    }
    Ok(())
}
