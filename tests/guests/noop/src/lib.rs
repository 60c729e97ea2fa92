//! Passes everything on, on four waterfalls: what a listener costs that does nothing.

use dsh_sdk::{
    Answer, Decision, ExecuteNext, Failure, LlmRequest, Message, NoConfig, Plugin, RequestListener, RequestNext, Step,
    StepResultListener, StepResultNext, StepSummary, ToolCall, ToolExecuteListener, ToolInfo, TurnContinuationListener,
    TurnContinuationNext,
};

struct Noop;

impl Plugin for Noop {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl RequestListener for Noop {
    fn on_request(&self, _at: Step, _request: &LlmRequest, next: &RequestNext) -> Result<(), Failure> {
        next.run()
    }
}

impl StepResultListener for Noop {
    fn on_step_result(&self, _at: Step, message: Message, next: &StepResultNext) -> Result<Message, Failure> {
        next.run(&message)
    }
}

impl ToolExecuteListener for Noop {
    fn on_execute(
        &self,
        _at: Step,
        call: ToolCall,
        _tool: Option<&ToolInfo>,
        next: &ExecuteNext,
    ) -> Result<Answer, Failure> {
        next.run(&call).map(Answer::Pass)
    }
}

impl TurnContinuationListener for Noop {
    fn on_turn_continuation(
        &self,
        _at: Step,
        _summary: &StepSummary,
        proposal: Decision,
        next: &TurnContinuationNext,
    ) -> Result<Decision, Failure> {
        next.run(&proposal)
    }
}

dsh_sdk::export!(Noop: request, step_result, execute, turn_continuation);
