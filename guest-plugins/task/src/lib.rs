//! The plugin `task`: one tool that has a sub-agent do a piece of work and answers with what it said last.

mod answer;

use answer::{ended, refused};
use dsh_sdk::{Call, ContentBlock, Failure, NoConfig, Outcome, Plugin, Tool, ToolProvider, agents, tool};
use schemars::JsonSchema;
use serde::Deserialize;

const DESCRIPTION: &str = "Has a sub-agent do a piece of work, waits until it is done, and answers with the last thing it said. The \
     sub-agent sees nothing of this conversation unless `context` is `fork`, and only its answer comes back, so say in `prompt` all that it \
     must know and what it is to answer. Several calls in one message run side by side.";

/// What a sub-agent knows when it begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Context {
    #[default]
    Fresh,
    Fork,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Args {
    /// What the sub-agent is to do and to answer.
    prompt: String,
    /// The work in a few words, shown to people.
    description: Option<String>,
    /// What it knows when it begins: nothing but the prompt (`fresh`), or this conversation up to here (`fork`).
    #[serde(default)]
    context: Context,
    /// Its model, as `PROVIDER/MODEL`; left out: the same as yours.
    model: Option<String>,
    /// The names of the tools it may use, of those that you have; left out: all of them.
    tools: Option<Vec<String>>,
    /// Its own instructions, at the end of its system prompt.
    system: Option<String>,
    /// How many steps it may take.
    #[schemars(range(min = 1))]
    max_steps: Option<u32>,
}

struct Task;

impl Plugin for Task {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl ToolProvider for Task {
    fn tools(&self) -> Vec<Tool<'_>> {
        vec![tool("task", DESCRIPTION).parallel_safe().typed(run)]
    }
}

fn run(args: Args, call: &Call) -> Result<Outcome, Failure> {
    if let Some(description) = args.description.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        call.progress(description, None);
    }
    let report = agents::run(&agents::Task {
        prompt: vec![ContentBlock::text(args.prompt)],
        start_from: match args.context {
            Context::Fresh => agents::StartFrom::Fresh,
            Context::Fork => agents::StartFrom::Fork,
        },
        model: args.model,
        tools: args.tools,
        system: args.system,
        max_steps: args.max_steps,
    });
    report.map(|report| ended(&report)).or_else(refused)
}

dsh_sdk::ceiling!("agents": "to have sub-agents do work");
dsh_sdk::export!(Task: tools, configure);
