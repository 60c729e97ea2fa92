//! Has sub-agents work by the capability `agents`, shows what came of it whole, and fails behind them; asks for one where there can be
//! none; narrows what the calls of one tool may touch.

use dsh_sdk::agents::{self, StartFrom, Task};
use dsh_sdk::{
    Access, Answer, Call, ContentBlock, ExecuteNext, Failure, NetworkPolicy, Outcome, PathGrant, Plugin, Profile, Step,
    Tool, ToolCall, ToolExecuteListener, ToolInfo, ToolProvider, runtime, tool,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// What it does as a listener.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Config {
    /// Narrows the calls of this tool to reading.
    read_only: Option<String>,
    /// Asks for a sub-agent around the calls of this tool, and answers with what it was told.
    asks_around: Option<String>,
}

/// What to do behind the sub-agent.
#[derive(Debug, Default, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Then {
    #[default]
    Answer,
    Trap,
    Loop,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Hire {
    prompt: String,
    model: Option<String>,
    #[serde(default)]
    then: Then,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Foreman {
    config: Config,
}

impl Plugin for Foreman {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { config })
    }
}

impl ToolProvider for Foreman {
    fn tools(&self) -> Vec<Tool<'_>> {
        vec![
            tool("hire", "Has a sub-agent work and shows its report.")
                .parallel_safe()
                .typed(|args: Hire, _call| hire(args)),
            tool("who", "Says on whose behalf it runs.")
                .read_only()
                .parallel_safe()
                .typed(|_: Nothing, _call: &Call| Ok(who())),
        ]
    }
}

fn work(prompt: &str, model: Option<String>) -> Task {
    Task {
        prompt: vec![ContentBlock::text(prompt)],
        start_from: StartFrom::Fresh,
        model,
        tools: None,
        system: None,
        max_steps: None,
    }
}

fn hire(args: Hire) -> Result<Outcome, Failure> {
    let report = agents::run(&work(&args.prompt, args.model))?;
    match args.then {
        Then::Answer => {}
        Then::Trap => panic!("foreman traps, as it was told to"),
        Then::Loop => loop {
            std::hint::spin_loop();
        },
    }
    let usage = json!({"input": report.usage.input, "output": report.usage.output});
    let shown = json!({
        "agent": report.agent,
        "text": report.text,
        "ending": format!("{:?}", report.ending),
        "code": report.code,
        "message": report.message,
        "usage": usage,
        "turns": report.turns,
        "steps": report.steps,
    });
    Ok(Outcome::text(shown.to_string()))
}

fn who() -> Outcome {
    let agent = runtime::agent().map(|info| json!({"agent": info.agent, "lineage": info.lineage}));
    Outcome::text(json!(agent).to_string())
}

impl ToolExecuteListener for Foreman {
    fn on_execute(
        &self,
        _at: Step,
        call: ToolCall,
        _tool: Option<&ToolInfo>,
        next: &ExecuteNext,
    ) -> Result<Answer, Failure> {
        if self.config.read_only.as_ref() == Some(&call.name) {
            next.restrict(&Profile {
                paths: vec![PathGrant { path: ".".to_owned(), access: Access::Read }],
                denied: Vec::new(),
                network: NetworkPolicy::Closed,
                processes: false,
                env: vec!["*".to_owned()],
                timeout_ms: None,
                max_output_bytes: None,
            })?;
        }
        if self.config.asks_around.as_ref() == Some(&call.name) {
            let told = match agents::run(&work("out of place", None)) {
                Ok(report) => report.text,
                Err(failure) => format!("{}: {}", failure.code, failure.message),
            };
            return Ok(Outcome::text(told).into());
        }
        next.run(&call).map(Answer::Pass)
    }
}

dsh_sdk::export!(Foreman: execute, tools, configure);
