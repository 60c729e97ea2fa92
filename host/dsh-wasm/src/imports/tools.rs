//! `dsh:tools`: the registry, the running call, the rest of `tools/execute`, approvals and processes.

use std::sync::Arc;

use wasmtime::component::Resource;

use crate::bindings::dsh::llm::llm_types::{Failure as WitFailure, ResultBlock, ToolCall};
use crate::bindings::dsh::tools::{approval, process, registry, running, tool_types};
use crate::clock::Wait;
use crate::convert;
use crate::grants::Grant;
use crate::handles::{ExecuteNext, ToolOutcome};
use crate::heavy;
use crate::output::clean;
use crate::store::GuestState;
use crate::words::{ApprovalAnswer, Execution, Failure};

type Res<T> = wasmtime::Result<T>;
type Answer<T> = wasmtime::Result<Result<T, WitFailure>>;

impl tool_types::Host for GuestState {}

impl tool_types::HostToolOutcome for GuestState {
    fn is_error(&mut self, handle: Resource<ToolOutcome>) -> Res<bool> {
        self.enter()?;
        Ok(self.handles.get(&handle)?.0.is_error)
    }

    fn code(&mut self, handle: Resource<ToolOutcome>) -> Res<Option<String>> {
        self.enter()?;
        let code = self.handles.get(&handle)?.0.code.clone();
        Ok(self.gives(code))
    }

    fn bytes(&mut self, handle: Resource<ToolOutcome>) -> Res<u32> {
        self.enter()?;
        Ok(convert::clamp(self.handles.get(&handle)?.0.bytes()))
    }

    async fn content(&mut self, handle: Resource<ToolOutcome>) -> Answer<Vec<ResultBlock>> {
        self.enter()?;
        let outcome = self.handles.get(&handle)?.0.clone();
        let weight = outcome.bytes().saturating_add(outcome.content.len().saturating_mul(heavy::ITEM_WEIGHT));
        let blocks = Self::work(&self.clock, weight, move || convert::result_blocks(&outcome.content)).await;
        Ok(Ok(self.gives(blocks)))
    }

    fn drop(&mut self, handle: Resource<ToolOutcome>) -> Res<()> {
        self.handles.dropped(handle.rep());
        Ok(())
    }
}

impl tool_types::HostExecuteNext for GuestState {
    async fn run(&mut self, handle: Resource<ExecuteNext>, call: ToolCall) -> Answer<Resource<ToolOutcome>> {
        self.enter()?;
        self.takes(&call);
        let call = match convert::tool_call_in("call", call) {
            Ok(call) => call,
            Err(ill) => return Ok(Err(convert::invalid(&ill))),
        };
        let behind = self.handles.get(&handle)?;
        let execution =
            Execution { call, profile: behind.profile.clone(), changed_by: behind.given.changed_by.clone() };
        match Self::waiting(&self.clock, Wait::Excluded, behind.next.run(execution)).await {
            Ok(outcome) => Ok(Ok(self.handles.give(ToolOutcome(outcome))?)),
            Err(error) => Ok(Err(convert::failure(error.to_failure()))),
        }
    }

    fn restrict(&mut self, handle: Resource<ExecuteNext>, profile: tool_types::Profile) -> Answer<()> {
        self.enter()?;
        self.check_lists(&profile)?;
        self.takes(&profile);
        let profile = match convert::profile_in(profile) {
            Ok(profile) => profile,
            Err(failure) => return Ok(Err(convert::failure(failure))),
        };
        let behind = self.handles.get(&handle)?;
        let narrowed = behind.profile.intersect(&profile);
        if let Err(failure) = behind.next.context().about.enforceable(&narrowed) {
            return Ok(Err(convert::failure(failure)));
        }
        behind.profile = Arc::new(narrowed);
        Ok(Ok(()))
    }

    fn profile(&mut self, handle: Resource<ExecuteNext>) -> Res<tool_types::Profile> {
        self.enter()?;
        let profile = convert::profile(&self.handles.get(&handle)?.profile);
        Ok(self.gives(profile))
    }

    fn drop(&mut self, handle: Resource<ExecuteNext>) -> Res<()> {
        self.handles.dropped(handle.rep());
        Ok(())
    }
}

impl registry::Host for GuestState {
    fn tools(&mut self) -> Res<Vec<tool_types::ToolInfo>> {
        self.enter()?;
        let tools = self.session.as_ref().map(|session| session.tools()).unwrap_or_default();
        let tools = tools.iter().map(convert::tool_info).collect();
        Ok(self.gives(tools))
    }

    fn find(&mut self, name: String) -> Res<Option<tool_types::Definition>> {
        self.enter()?;
        self.takes(&name);
        let found = self.session.as_ref().and_then(|session| session.find_tool(&name));
        Ok(self.gives(found.as_ref().map(convert::definition)))
    }
}

impl running::Host for GuestState {
    fn progress(&mut self, text: String, fraction: Option<f32>) -> Res<()> {
        self.enter()?;
        self.takes(&text);
        self.call.reports += 1;
        if self.call.reports > self.core.limits.progress_reports {
            return Ok(());
        }
        if let Some(tool) = &self.call.tool {
            let fraction = fraction.filter(|fraction| fraction.is_finite()).map(|fraction| fraction.clamp(0.0, 1.0));
            tool.progress.report(&clean(text.as_bytes()), fraction);
        }
        Ok(())
    }

    fn limits(&mut self) -> Res<Option<tool_types::Profile>> {
        self.enter()?;
        let profile = self.call.tool.as_ref().map(|tool| convert::profile(&tool.profile));
        Ok(self.gives(profile))
    }
}

impl approval::Host for GuestState {
    async fn ask(&mut self, question: tool_types::Question) -> Answer<approval::Reply> {
        self.enter()?;
        self.takes(&question);
        let session = match self.granted(Grant::Approval).await {
            Ok(session) => session,
            Err(refused) => return Ok(Err(refused)),
        };
        self.outside_call()?;
        let answer = Self::waiting(&self.clock, Wait::Excluded, session.ask(convert::question_in(question))).await;
        Ok(match answer {
            Ok(ApprovalAnswer::AllowOnce) => Ok(approval::Reply::AllowOnce),
            Ok(ApprovalAnswer::AllowAlways) => Ok(approval::Reply::AllowAlways),
            Ok(ApprovalAnswer::Deny) => Ok(approval::Reply::Deny),
            Ok(ApprovalAnswer::Aborted) => Err(convert::failure(Failure::aborted())),
            Err(failure) => Err(convert::failure(failure)),
        })
    }
}

impl process::Host for GuestState {
    async fn run(&mut self, command: process::Command) -> Answer<process::Exit> {
        self.enter()?;
        self.takes(&command);
        if let Err(refused) = self.granted(Grant::Process).await {
            return Ok(Err(refused));
        }
        let Some(tool) = self.call.tool.clone() else {
            let message = format!("a process can be run inside `call-tool` only, not in `{}`", self.call.seam);
            return Ok(Err(convert::failure(Failure::new("not-available", message))));
        };
        self.check_lists(&command)?;
        self.outside_call()?;
        let env = self.core.granted_env();
        let command = convert::command_in(command);
        let run = tool.processes.run(command, &tool.profile, &env, &tool.cancel);
        let exit = Self::waiting(&self.clock, Wait::Excluded, run).await;
        let exit = exit.map(convert::exit).map_err(convert::failure);
        Ok(self.gives(exit))
    }
}
