//! Misbehaves on one seam in one way, both named by the configuration; on all others it passes everything on.

mod fault;

use dsh_sdk::{
    Answer, Decision, Entry, ExecuteNext, Failure, Flush, Guard, LlmRequest, Message, Observer, Outcome, Part, Plugin,
    Recovery, RequestErrorListener, RequestErrorNext, RequestFailure, RequestListener, RequestNext, ResultBlock,
    Sections, Step, StepResultListener, StepResultNext, StepSummary, Tool, ToolCall, ToolExecuteListener, ToolInfo,
    ToolProvider, TurnContinuationListener, TurnContinuationNext, Verdict, tool,
};
use fault::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Seam {
    Request,
    RequestError,
    StepResult,
    Execute,
    TurnContinuation,
    Guard,
    ListTools,
    CallTool,
    Observer,
    Flush,
    Sections,
    Configure,
}

/// Where and how to misbehave.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    seam: Seam,
    fault: Fault,
    /// Only in this turn.
    turn: Option<u32>,
    /// Only in this step.
    step: Option<u32>,
    /// Only for calls of this tool.
    tool: Option<String>,
    /// Only for calls whose arguments hold this text.
    arguments: Option<String>,
}

struct Faulty {
    config: Config,
}

impl Plugin for Faulty {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        if config.seam == Seam::Configure {
            fault::strike(config.fault)?;
        }
        Ok(Self { config })
    }
}

impl Faulty {
    /// Whether the fault is due here.
    fn due(&self, seam: Seam, at: Step, call: Option<&ToolCall>) -> bool {
        let config = &self.config;
        config.seam == seam
            && config.turn.is_none_or(|turn| turn == at.turn)
            && config.step.is_none_or(|step| step == at.step)
            && call.is_none_or(|call| {
                config.tool.as_ref().is_none_or(|tool| *tool == call.name)
                    && config.arguments.as_ref().is_none_or(|text| call.arguments.contains(text))
            })
    }

    /// A seam that has the rest of a waterfall to run.
    fn around<T>(
        &self,
        due: bool,
        run: impl Fn() -> Result<T, Failure>,
        instead: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        if due { fault::around(self.config.fault, run, instead) } else { run() }
    }

    /// A seam that has none.
    fn plain(&self, due: bool) -> Result<(), Failure> {
        if due { fault::strike(self.config.fault) } else { Ok(()) }
    }
}

impl RequestListener for Faulty {
    fn on_request(&self, at: Step, request: &LlmRequest, next: &RequestNext) -> Result<(), Failure> {
        let due = self.due(Seam::Request, at, None);
        if due && self.config.fault.edits_first() {
            request.set_system("edited by faulty")?;
            request.splice(0, 1, &[Message::user("spliced by faulty")])?;
        }
        if due && self.config.fault == Fault::HostCalls {
            loop {
                std::hint::black_box(request.estimated_tokens());
            }
        }
        self.around(due, || next.run(), || ())
    }
}

impl RequestErrorListener for Faulty {
    fn on_request_error(
        &self,
        at: Step,
        _failed: &RequestFailure,
        next: &RequestErrorNext,
    ) -> Result<Recovery, Failure> {
        self.around(self.due(Seam::RequestError, at, None), || next.run(), || Recovery::RetryAfterMs(0))
    }
}

impl StepResultListener for Faulty {
    fn on_step_result(&self, at: Step, message: Message, next: &StepResultNext) -> Result<Message, Failure> {
        let due = self.due(Seam::StepResult, at, None);
        if due && self.config.fault == Fault::BadValue {
            return Ok(fault::bad_message());
        }
        self.around(due, || next.run(&message), || Message::assistant("instead, by faulty"))
    }
}

impl ToolExecuteListener for Faulty {
    fn on_execute(
        &self,
        at: Step,
        call: ToolCall,
        _tool: Option<&ToolInfo>,
        next: &ExecuteNext,
    ) -> Result<Answer, Failure> {
        let due = self.due(Seam::Execute, at, Some(&call));
        if due && self.config.fault == Fault::BadValue {
            return Ok(Answer::Replace(fault::bad_outcome()));
        }
        self.around(due, || next.run(&call).map(Answer::Pass), || Answer::Replace(Outcome::text("instead, by faulty")))
    }
}

impl TurnContinuationListener for Faulty {
    fn on_turn_continuation(
        &self,
        at: Step,
        _summary: &StepSummary,
        proposal: Decision,
        next: &TurnContinuationNext,
    ) -> Result<Decision, Failure> {
        self.around(self.due(Seam::TurnContinuation, at, None), || next.run(&proposal), || Decision::Proceed(None))
    }
}

impl Guard for Faulty {
    fn check(&self, at: Step, call: &ToolCall, _tool: &ToolInfo) -> Result<Verdict, Failure> {
        self.plain(self.due(Seam::Guard, at, Some(call)))?;
        Ok(Verdict::Abstain)
    }
}

impl ToolProvider for Faulty {
    fn tools(&self) -> Vec<Tool<'_>> {
        let listing = Step { turn: 0, step: 0 };
        if self.config.seam != Seam::ListTools {
            return vec![self.tool("faulty", r#"{"type":"object"}"#)];
        }
        match self.config.fault {
            Fault::BadValue => vec![self.tool("faulty", "no json")],
            Fault::BadSchema => vec![self.tool("faulty", r#"{"type":12}"#)],
            Fault::BadName => vec![self.tool("Not a name!", r#"{"type":"object"}"#)],
            Fault::Twice => {
                vec![self.tool("faulty", r#"{"type":"object"}"#), self.tool("faulty", r#"{"type":"object"}"#)]
            }
            fault if self.due(Seam::ListTools, listing, None) => {
                fault::strike(fault).expect("a failure is a trap here: making the tools cannot fail");
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}

impl Faulty {
    fn tool(&self, name: &'static str, schema: &str) -> Tool<'_> {
        tool(name, "Misbehaves when it was told to.").raw(schema, |call| {
            if !self.due(Seam::CallTool, call.at, Some(&call.call)) {
                return Ok(Outcome::text("fine"));
            }
            match self.config.fault {
                Fault::BadValue => Ok(fault::bad_outcome()),
                Fault::BadCode => Ok(Outcome::error("Not A Code", "an error with a code that is none")),
                Fault::ForeignCode => Ok(Outcome::error("plugin-missing", "an error with a code of the host")),
                Fault::Output => Ok(Outcome {
                    content: vec![ResultBlock::text("x".repeat(fault::OUTPUT_BYTES))],
                    is_error: false,
                    code: None,
                }),
                fault => fault::strike(fault).map(|()| Outcome::text("done all the same")),
            }
        })
    }
}

impl Observer for Faulty {
    fn on_entries(&self, _entries: Vec<Entry>) {
        if self.config.seam == Seam::Observer {
            // An observer cannot fail, it can only trap.
            fault::strike(self.config.fault).expect("a failure is a trap here");
        }
    }
}

impl Flush for Faulty {
    fn flush(&self) -> Result<(), Failure> {
        self.plain(self.config.seam == Seam::Flush)
    }
}

impl Sections for Faulty {
    fn sections(&self, at: Step) -> Result<Vec<Part>, Failure> {
        self.plain(self.due(Seam::Sections, at, None))?;
        Ok(Vec::new())
    }
}

dsh_sdk::export!(
    Faulty: request,
    request_error,
    step_result,
    execute,
    turn_continuation,
    guard,
    tools,
    observer,
    flush,
    sections,
    configure
);
