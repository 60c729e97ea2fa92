//! Edits whatever a waterfall carries, as its configuration says: a well-behaved listener on five waterfalls. Without
//! configuration it passes everything on.

use dsh_sdk::{
    Answer, ContentBlock, Decision, ExecuteNext, Failure, LlmRequest, Message, Outcome, Plugin, Recovery,
    RequestErrorListener, RequestErrorNext, RequestFailure, RequestListener, RequestNext, ResultBlock, Role, Step,
    StepResultListener, StepResultNext, StepSummary, ToolCall, ToolExecuteListener, ToolInfo, TurnContinuationListener,
    TurnContinuationNext, inbox, log,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Replaces messages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Range {
    start: u32,
    count: u32,
    /// The one message of the user that takes their place; none removes them.
    text: Option<String>,
}

/// A tool call to add.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewCall {
    #[serde(default)]
    id: String,
    name: String,
    arguments: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Describe {
    name: String,
    description: String,
}

/// What to answer instead of running a call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Veto {
    text: String,
    /// An error with this code; none is no error.
    code: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Continue {
    Proceed,
    Stop,
    OutOfBudget,
}

/// Every edit is off unless it is named.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Config {
    /// Only in this step.
    step: Option<u32>,
    /// Only for calls of this tool.
    tool: Option<String>,
    /// Only for calls whose arguments hold this text.
    arguments: Option<String>,

    set_model: Option<String>,
    set_system: Option<String>,
    append_system: Option<String>,
    temperature: Option<f64>,
    drop_tool: Option<String>,
    describe_tool: Option<Describe>,
    /// Adds a message of the user at the end.
    push: Option<String>,
    /// Adds a message of the system at the end, which is refused.
    push_system: Option<String>,
    splice: Option<Range>,
    compact: Option<Range>,
    /// Reverses the order of the tools on offer.
    reverse_tools: bool,
    /// Edits the request after the rest of the waterfall, not before.
    late: bool,
    /// Runs the rest of the request's waterfall so many times.
    request_runs: Option<u32>,
    /// Appends `plugin/<name>/saw` with the count of messages before and after the rest (with the grant `session`).
    count_messages: bool,
    /// Says the outcome of `compact`, `splice` and `push-system` in the log instead of failing.
    tolerant: bool,

    /// On a failed request: tries again after so many milliseconds, at most `retries` times.
    retry_after_ms: Option<u32>,
    retries: u32,

    /// Replaces one text by another in the message of the assistant.
    replace_text: Option<(String, String)>,
    add_tool_call: Option<NewCall>,
    drop_tool_calls: bool,
    /// Takes the place of every call in the message; its id stays unless one is given.
    change_tool_calls: Option<NewCall>,

    call_name: Option<String>,
    call_arguments: Option<String>,
    veto: Option<Veto>,
    /// Runs the call so many times and answers the last outcome.
    runs: Option<u32>,
    /// Replaces one text by another in the outcome.
    replace_outcome: Option<(String, String)>,

    decide: Option<Continue>,
    /// What goes with `decide`.
    decide_text: Option<String>,
    /// Steers with this text before it decides (with the grant `inbox`).
    steer: Option<String>,
}

struct Editor {
    config: Config,
}

impl Plugin for Editor {
    type Config = Config;

    fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { config })
    }
}

impl Editor {
    fn due(&self, at: Step) -> bool {
        self.config.step.is_none_or(|step| step == at.step)
    }

    fn edit(&self, request: &LlmRequest) -> Result<(), Failure> {
        self.edit_frame(request)?;
        self.edit_messages(request)
    }

    fn edit_frame(&self, request: &LlmRequest) -> Result<(), Failure> {
        let config = &self.config;
        if let Some(model) = &config.set_model {
            request.set_model(model)?;
        }
        if let Some(system) = &config.set_system {
            request.set_system(system)?;
        }
        if let Some(more) = &config.append_system {
            request.set_system(&format!("{}{more}", request.system()))?;
        }
        if let Some(temperature) = config.temperature {
            let mut sampling = request.sampling();
            sampling.temperature = Some(temperature);
            request.set_sampling(&sampling)?;
        }
        if config.drop_tool.is_some() || config.describe_tool.is_some() || config.reverse_tools {
            let mut tools = request.tools();
            tools.retain(|tool| Some(&tool.name) != config.drop_tool.as_ref());
            for tool in &mut tools {
                if let Some(describe) = config.describe_tool.as_ref().filter(|describe| describe.name == tool.name) {
                    tool.description = describe.description.clone();
                }
            }
            if config.reverse_tools {
                tools.reverse();
            }
            request.set_tools(&tools)?;
        }
        Ok(())
    }

    fn edit_messages(&self, request: &LlmRequest) -> Result<(), Failure> {
        let config = &self.config;
        if let Some(range) = &config.compact {
            self.tolerate("compact", request.compact(range.start, range.count, &replacement(range)))?;
        }
        if let Some(range) = &config.splice {
            self.tolerate("splice", request.splice(range.start, range.count, &replacement(range)))?;
        }
        if let Some(text) = &config.push {
            request.splice(request.message_count(), 0, &[Message::user(text)])?;
        }
        if let Some(text) = &config.push_system {
            let message = Message { role: Role::System, ..Message::user(text) };
            self.tolerate("push-system", request.splice(request.message_count(), 0, &[message]))?;
        }
        Ok(())
    }

    fn tolerate(&self, what: &str, result: Result<(), Failure>) -> Result<(), Failure> {
        match result {
            Err(failure) if self.config.tolerant => {
                dsh_sdk::log!(Warn, "{what}: {}: {}", failure.code, failure.message);
                Ok(())
            }
            other => other,
        }
    }
}

fn replacement(range: &Range) -> Vec<Message> {
    range.text.iter().map(Message::user).collect()
}

impl RequestListener for Editor {
    fn on_request(&self, at: Step, request: &LlmRequest, next: &RequestNext) -> Result<(), Failure> {
        if !self.due(at) {
            return next.run();
        }
        if !self.config.late {
            self.edit(request)?;
        }
        let before = request.message_count();
        for _ in 0..self.config.request_runs.unwrap_or(1) {
            next.run()?;
        }
        if self.config.late {
            self.edit(request)?;
        }
        if self.config.count_messages {
            let saw = format!(r#"{{"before":{before},"after":{}}}"#, request.message_count());
            log::append("saw", &saw)?;
        }
        Ok(())
    }
}

impl RequestErrorListener for Editor {
    fn on_request_error(
        &self,
        at: Step,
        failed: &RequestFailure,
        next: &RequestErrorNext,
    ) -> Result<Recovery, Failure> {
        match self.config.retry_after_ms {
            Some(wait) if self.due(at) && failed.attempt <= self.config.retries => Ok(Recovery::RetryAfterMs(wait)),
            _ => next.run(),
        }
    }
}

impl StepResultListener for Editor {
    fn on_step_result(&self, at: Step, message: Message, next: &StepResultNext) -> Result<Message, Failure> {
        let mut message = next.run(&message)?;
        if !self.due(at) {
            return Ok(message);
        }
        if let Some((from, to)) = &self.config.replace_text {
            for block in &mut message.content {
                if let ContentBlock::Text(text) = block {
                    text.text = text.text.replace(from, to);
                }
            }
        }
        if self.config.drop_tool_calls {
            message.content.retain(|block| !matches!(block, ContentBlock::ToolCall(_)));
        }
        if let Some(new) = &self.config.change_tool_calls {
            for block in &mut message.content {
                if let ContentBlock::ToolCall(call) = block {
                    call.name.clone_from(&new.name);
                    call.arguments.clone_from(&new.arguments);
                    if !new.id.is_empty() {
                        call.id.clone_from(&new.id);
                    }
                }
            }
        }
        if let Some(call) = &self.config.add_tool_call {
            let call = ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                opaque: None,
            };
            message.content.push(ContentBlock::ToolCall(call));
        }
        Ok(message)
    }
}

impl ToolExecuteListener for Editor {
    fn on_execute(
        &self,
        at: Step,
        mut call: ToolCall,
        _tool: Option<&ToolInfo>,
        next: &ExecuteNext,
    ) -> Result<Answer, Failure> {
        let config = &self.config;
        let due = self.due(at)
            && config.tool.as_ref().is_none_or(|tool| *tool == call.name)
            && config.arguments.as_ref().is_none_or(|text| call.arguments.contains(text));
        if !due {
            return next.run(&call).map(Answer::Pass);
        }
        if let Some(veto) = &config.veto {
            return Ok(Answer::Replace(match &veto.code {
                Some(code) => Outcome::error(code, &veto.text),
                None => Outcome::text(&veto.text),
            }));
        }
        if let Some(name) = &config.call_name {
            call.name.clone_from(name);
        }
        if let Some(arguments) = &config.call_arguments {
            call.arguments.clone_from(arguments);
        }
        let mut outcome = next.run(&call)?;
        for _ in 1..config.runs.unwrap_or(1) {
            outcome = next.run(&call)?;
        }
        let Some((from, to)) = &config.replace_outcome else {
            return Ok(Answer::Pass(outcome));
        };
        let mut content = outcome.content()?;
        for block in &mut content {
            if let ResultBlock::Text(text) = block {
                *text = text.replace(from, to);
            }
        }
        Ok(Answer::Replace(Outcome { content, is_error: outcome.is_error(), code: outcome.code() }))
    }
}

impl TurnContinuationListener for Editor {
    fn on_turn_continuation(
        &self,
        at: Step,
        _summary: &StepSummary,
        proposal: Decision,
        next: &TurnContinuationNext,
    ) -> Result<Decision, Failure> {
        if let Some(text) = self.config.steer.as_ref().filter(|_| self.due(at)) {
            inbox::steer(&[ContentBlock::text(text)])?;
        }
        let text = || self.config.decide_text.clone();
        match self.config.decide {
            Some(decision) if self.due(at) => Ok(match decision {
                Continue::Proceed => Decision::Proceed(text()),
                Continue::Stop => Decision::Stop,
                Continue::OutOfBudget => {
                    Decision::OutOfBudget(text().unwrap_or_else(|| "the budget of a test ran out".to_owned()))
                }
            }),
            _ => next.run(&proposal),
        }
    }
}

dsh_sdk::export!(Editor: request, request_error, step_result, execute, turn_continuation, configure);
