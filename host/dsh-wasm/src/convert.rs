//! Values of the contract to values of the host and back, in one place. What comes from a guest is checked here: JSON texts parse, blocks
//! of other kinds have a type, numbers are finite. What cannot be said in the host's words is [`IllFormed`], with the field's name.

use crate::limits::MAX_JSON_BYTES;
use crate::words as seam;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::bindings::dsh::agent::{agent_types as agent, agents};
use crate::bindings::dsh::llm::{llm_types as llm, model};
use crate::bindings::dsh::tools::{process, tool_types as tools};
use crate::bindings::exports::dsh::system_prompt::section;
use crate::bindings::exports::dsh::tools::guard;

/// A value of a guest that the host cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` {why}")]
pub(crate) struct IllFormed {
    pub field: String,
    pub why: String,
}

impl IllFormed {
    pub(crate) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

type Result<T> = std::result::Result<T, IllFormed>;

/// Parses a field of type `json`.
pub(crate) fn json(field: &str, text: &str) -> Result<Value> {
    if text.len() > MAX_JSON_BYTES {
        let why = format!("has {} bytes of JSON, and a text may have {MAX_JSON_BYTES}", text.len());
        return Err(IllFormed::new(field, why));
    }
    serde_json::from_str(text).map_err(|error| IllFormed::new(field, format!("is not valid JSON: {error}")))
}

fn optional_json(field: &str, text: Option<&str>) -> Result<Option<Value>> {
    text.map(|text| json(field, text)).transpose()
}

fn text_of(value: Option<&Value>) -> Option<String> {
    value.map(Value::to_string)
}

pub(crate) fn failure(failure: seam::Failure) -> llm::Failure {
    llm::Failure { code: failure.code, message: failure.message }
}

pub(crate) fn failure_in(failure: llm::Failure) -> seam::Failure {
    seam::Failure { code: failure.code, message: failure.message }
}

pub(crate) fn invalid(ill: &IllFormed) -> llm::Failure {
    failure(seam::Failure::invalid_argument(ill.to_string()))
}

pub(crate) fn step(at: seam::StepRef) -> agent::Step {
    agent::Step { turn: at.turn, step: at.step }
}

pub(crate) fn role(role: seam::Role) -> llm::Role {
    match role {
        seam::Role::System => llm::Role::System,
        seam::Role::User => llm::Role::User,
        seam::Role::Assistant => llm::Role::Assistant,
    }
}

fn role_in(role: llm::Role) -> seam::Role {
    match role {
        llm::Role::System => seam::Role::System,
        llm::Role::User => seam::Role::User,
        llm::Role::Assistant => seam::Role::Assistant,
    }
}

fn cache(cache: Option<seam::CacheHint>) -> Option<llm::CacheHint> {
    cache.map(|seam::CacheHint::Ephemeral| llm::CacheHint::Ephemeral)
}

fn cache_in(cache: Option<llm::CacheHint>) -> Option<seam::CacheHint> {
    cache.map(|llm::CacheHint::Ephemeral| seam::CacheHint::Ephemeral)
}

pub(crate) fn message(message: &seam::Message) -> llm::Message {
    llm::Message { role: role(message.role), content: message.content.iter().map(block).collect() }
}

pub(crate) fn message_in(field: &str, message: llm::Message) -> Result<seam::Message> {
    Ok(seam::Message { role: role_in(message.role), content: blocks_in(&format!("{field}.content"), message.content)? })
}

pub(crate) fn messages_in(field: &str, messages: Vec<llm::Message>) -> Result<Vec<seam::Message>> {
    messages.into_iter().enumerate().map(|(n, message)| message_in(&format!("{field}[{n}]"), message)).collect()
}

pub(crate) fn blocks_in(field: &str, blocks: Vec<llm::ContentBlock>) -> Result<Vec<seam::ContentBlock>> {
    blocks.into_iter().enumerate().map(|(n, block)| block_in(&format!("{field}[{n}]"), block)).collect()
}

fn block(block: &seam::ContentBlock) -> llm::ContentBlock {
    match block {
        seam::ContentBlock::Text(text) => llm::ContentBlock::Text(llm::TextBlock {
            text: text.text.clone(),
            cache: cache(text.cache),
            opaque: text_of(text.opaque.as_ref()),
        }),
        seam::ContentBlock::Reasoning(text) => llm::ContentBlock::Reasoning(llm::ReasoningBlock {
            text: text.text.clone(),
            opaque: text_of(text.opaque.as_ref()),
        }),
        seam::ContentBlock::ToolCall(call) => llm::ContentBlock::ToolCall(tool_call(call)),
        seam::ContentBlock::ToolResult(result) => llm::ContentBlock::ToolResult(llm::ToolResult {
            call_id: result.call_id.clone(),
            content: result_blocks(&result.content),
            is_error: result.is_error,
            cache: cache(result.cache),
        }),
        seam::ContentBlock::Image(picture) => llm::ContentBlock::Image(image(picture)),
        seam::ContentBlock::Other(value) => llm::ContentBlock::Other(value.to_string()),
    }
}

fn block_in(field: &str, block: llm::ContentBlock) -> Result<seam::ContentBlock> {
    let opaque = |text: Option<String>| optional_json(&format!("{field}.opaque"), text.as_deref());
    Ok(match block {
        llm::ContentBlock::Text(text) => seam::ContentBlock::Text(seam::TextBlock {
            text: text.text,
            cache: cache_in(text.cache),
            opaque: opaque(text.opaque)?,
        }),
        llm::ContentBlock::Reasoning(text) => {
            seam::ContentBlock::Reasoning(seam::ReasoningBlock { text: text.text, opaque: opaque(text.opaque)? })
        }
        llm::ContentBlock::ToolCall(call) => seam::ContentBlock::ToolCall(tool_call_in(field, call)?),
        llm::ContentBlock::ToolResult(result) => seam::ContentBlock::ToolResult(seam::ToolResult {
            call_id: result.call_id,
            content: result_blocks_in(&format!("{field}.content"), result.content)?,
            is_error: result.is_error,
            cache: cache_in(result.cache),
        }),
        llm::ContentBlock::Image(picture) => seam::ContentBlock::Image(image_in(field, picture)?),
        llm::ContentBlock::Other(text) => seam::ContentBlock::Other(other_in(field, &text)?),
    })
}

/// A block of a kind that the host does not know: an object with a `type`, and not one of ours in disguise.
fn other_in(field: &str, text: &str) -> Result<Value> {
    const OURS: [&str; 5] = ["text", "reasoning", "tool-call", "tool-result", "image"];
    let value = json(field, text)?;
    match value.get("type").and_then(Value::as_str) {
        None => Err(IllFormed::new(field, "is no block: a block is an object with a `type`")),
        Some(ours) if OURS.contains(&ours) => {
            Err(IllFormed::new(field, format!("has type `{ours}`, which has a case of its own")))
        }
        Some(_) => Ok(value),
    }
}

fn image(image: &seam::ImageBlock) -> llm::ImageBlock {
    let source = match &image.source {
        seam::ImageSource::Url(url) => llm::ImageSource::Url(url.clone()),
        // What an adapter or a person put in as base64 may not decode; the guest then gets no bytes rather than none of the block.
        seam::ImageSource::Data(data) => llm::ImageSource::Bytes(STANDARD.decode(data).unwrap_or_default()),
    };
    llm::ImageBlock {
        source,
        mime_type: image.mime_type.clone(),
        cache: cache(image.cache),
        opaque: text_of(image.opaque.as_ref()),
    }
}

fn image_in(field: &str, image: llm::ImageBlock) -> Result<seam::ImageBlock> {
    let source = match image.source {
        llm::ImageSource::Url(url) => seam::ImageSource::Url(url),
        llm::ImageSource::Bytes(bytes) => seam::ImageSource::Data(STANDARD.encode(bytes)),
    };
    let opaque = optional_json(&format!("{field}.opaque"), image.opaque.as_deref())?;
    Ok(seam::ImageBlock { mime_type: image.mime_type, source, cache: cache_in(image.cache), opaque })
}

pub(crate) fn tool_call(call: &seam::ToolCall) -> llm::ToolCall {
    llm::ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        opaque: text_of(call.opaque.as_ref()),
    }
}

pub(crate) fn tool_call_in(field: &str, call: llm::ToolCall) -> Result<seam::ToolCall> {
    let opaque = optional_json(&format!("{field}.opaque"), call.opaque.as_deref())?;
    Ok(seam::ToolCall { id: call.id, name: call.name, arguments: call.arguments, opaque })
}

pub(crate) fn result_blocks(blocks: &[seam::ResultBlock]) -> Vec<llm::ResultBlock> {
    let convert = |block: &seam::ResultBlock| match block {
        seam::ResultBlock::Text(text) => llm::ResultBlock::Text(text.text.clone()),
        seam::ResultBlock::Image(picture) => llm::ResultBlock::Image(image(picture)),
        seam::ResultBlock::Other(value) => llm::ResultBlock::Other(value.to_string()),
    };
    blocks.iter().map(convert).collect()
}

pub(crate) fn result_blocks_in(field: &str, blocks: Vec<llm::ResultBlock>) -> Result<Vec<seam::ResultBlock>> {
    let convert = |(n, block): (usize, llm::ResultBlock)| {
        let field = format!("{field}[{n}]");
        Ok(match block {
            llm::ResultBlock::Text(text) => seam::ResultBlock::text(text),
            llm::ResultBlock::Image(picture) => seam::ResultBlock::Image(image_in(&field, picture)?),
            llm::ResultBlock::Other(text) => seam::ResultBlock::Other(other_in(&field, &text)?),
        })
    };
    blocks.into_iter().enumerate().map(convert).collect()
}

pub(crate) fn usage(usage: seam::Usage) -> llm::Usage {
    llm::Usage {
        input: usage.input,
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        reasoning: usage.reasoning,
    }
}

pub(crate) fn finish(finish: &seam::FinishReason) -> llm::FinishReason {
    match finish {
        seam::FinishReason::Stop => llm::FinishReason::Stop,
        seam::FinishReason::ToolCalls => llm::FinishReason::ToolCalls,
        seam::FinishReason::MaxTokens => llm::FinishReason::MaxTokens,
        seam::FinishReason::Aborted => llm::FinishReason::Aborted,
        seam::FinishReason::Refused => llm::FinishReason::Refused,
        seam::FinishReason::Error(error) => llm::FinishReason::Error(failure(error.clone())),
        seam::FinishReason::Other(reason) => llm::FinishReason::Other(reason.clone()),
    }
}

pub(crate) fn tool_schema(schema: &seam::ToolSchema) -> llm::ToolSchema {
    llm::ToolSchema {
        name: schema.name.clone(),
        description: schema.description.clone(),
        parameters: schema.parameters.to_string(),
        strict: schema.strict,
    }
}

pub(crate) fn tool_schemas_in(schemas: Vec<llm::ToolSchema>) -> Result<Vec<seam::ToolSchema>> {
    let convert = |(n, schema): (usize, llm::ToolSchema)| {
        let parameters = json(&format!("tools[{n}].parameters"), &schema.parameters)?;
        Ok(seam::ToolSchema { name: schema.name, description: schema.description, parameters, strict: schema.strict })
    };
    schemas.into_iter().enumerate().map(convert).collect()
}

pub(crate) fn sampling(sampling: &seam::Sampling) -> llm::Sampling {
    llm::Sampling {
        temperature: sampling.temperature,
        max_tokens: sampling.max_tokens,
        stop: sampling.stop.clone(),
        tool_choice: sampling.tool_choice.clone(),
        reasoning_effort: sampling.reasoning_effort.clone(),
        extra: sampling.extra.iter().map(|(key, value)| (key.clone(), value.to_string())).collect(),
    }
}

pub(crate) fn sampling_in(sampling: llm::Sampling) -> Result<seam::Sampling> {
    if sampling.temperature.is_some_and(|temperature| !temperature.is_finite()) {
        return Err(IllFormed::new("sampling.temperature", "is not a finite number"));
    }
    let extra = sampling.extra.into_iter().map(|(key, text)| {
        let value = json(&format!("sampling.extra.{key}"), &text)?;
        Ok((key, value))
    });
    Ok(seam::Sampling {
        temperature: sampling.temperature,
        max_tokens: sampling.max_tokens,
        stop: sampling.stop,
        tool_choice: sampling.tool_choice,
        reasoning_effort: sampling.reasoning_effort,
        extra: extra.collect::<Result<_>>()?,
    })
}

pub(crate) fn outline(message: &seam::ModelMessage) -> agent::MessageOutline {
    let calls =
        message.message.tool_calls().map(|call| agent::CallOutline { id: call.id.clone(), name: call.name.clone() });
    let results = message.message.tool_results().map(|result| agent::ResultOutline {
        call_id: result.call_id.clone(),
        bytes: clamp(result_bytes(&result.content)),
        is_error: result.is_error,
    });
    agent::MessageOutline {
        role: role(message.message.role),
        origin: origin(message.origin),
        bytes: message.bytes,
        estimated_tokens: message.tokens,
        tool_calls: calls.collect(),
        tool_results: results.collect(),
    }
}

/// Bytes of text and data in a tool's result.
fn result_bytes(content: &[seam::ResultBlock]) -> usize {
    let bytes = |block: &seam::ResultBlock| match block {
        seam::ResultBlock::Text(text) => text.text.len(),
        seam::ResultBlock::Image(image) => match &image.source {
            seam::ImageSource::Url(text) | seam::ImageSource::Data(text) => text.len(),
        },
        seam::ResultBlock::Other(value) => value.to_string().len(),
    };
    content.iter().map(bytes).sum()
}

pub(crate) fn clamp(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn origin(origin: seam::Origin) -> agent::Origin {
    match origin {
        seam::Origin::User => agent::Origin::User,
        seam::Origin::Steering => agent::Origin::Steering,
        seam::Origin::Context => agent::Origin::Context,
        seam::Origin::Assistant => agent::Origin::Assistant,
        seam::Origin::Tool => agent::Origin::Tool,
        seam::Origin::Summary => agent::Origin::Summary,
        seam::Origin::Edit => agent::Origin::Edit,
    }
}

pub(crate) fn request_failure(failed: &seam::RequestFailure) -> agent::RequestFailure {
    agent::RequestFailure {
        failure: llm::Failure { code: failed.failure.code.clone(), message: failed.failure.message.clone() },
        status: failed.failure.status,
        retry_after_ms: failed.failure.retry_after_ms,
        attempt: failed.attempt,
    }
}

pub(crate) fn recovery(recovery: seam::Recovery) -> agent::Recovery {
    match recovery {
        seam::Recovery::GiveUp => agent::Recovery::GiveUp,
        seam::Recovery::RetryAfterMs(ms) => agent::Recovery::RetryAfterMs(ms),
    }
}

pub(crate) fn recovery_in(recovery: agent::Recovery) -> seam::Recovery {
    match recovery {
        agent::Recovery::GiveUp => seam::Recovery::GiveUp,
        agent::Recovery::RetryAfterMs(ms) => seam::Recovery::RetryAfterMs(ms),
    }
}

pub(crate) fn decision(decision: &seam::Decision) -> agent::Decision {
    match decision {
        seam::Decision::Stop => agent::Decision::Stop,
        seam::Decision::OutOfBudget(text) => agent::Decision::OutOfBudget(text.clone()),
        seam::Decision::Proceed(text) => agent::Decision::Proceed(text.clone()),
    }
}

pub(crate) fn decision_in(decision: agent::Decision) -> seam::Decision {
    match decision {
        agent::Decision::Stop => seam::Decision::Stop,
        agent::Decision::OutOfBudget(text) => seam::Decision::OutOfBudget(text),
        agent::Decision::Proceed(text) => seam::Decision::Proceed(text),
    }
}

pub(crate) fn step_summary(summary: &seam::StepSummary) -> agent::StepSummary {
    agent::StepSummary {
        finish: finish(&summary.finish),
        tool_calls: summary.tool_calls,
        steered: summary.steered,
        usage: summary.usage.map(usage),
        session_usage: usage(summary.session_usage),
    }
}

pub(crate) fn annotations(annotations: seam::Annotations) -> tools::Annotations {
    tools::Annotations {
        read_only: annotations.read_only,
        destructive: annotations.destructive,
        idempotent: annotations.idempotent,
        open_world: annotations.open_world,
        parallel_safe: annotations.parallel_safe,
    }
}

pub(crate) fn tool_info(info: &seam::ToolInfo) -> tools::ToolInfo {
    tools::ToolInfo {
        name: info.name.clone(),
        plugin: info.plugin.as_str().to_owned(),
        annotations: annotations(info.annotations),
    }
}

pub(crate) fn definition(definition: &seam::ToolDefinition) -> tools::Definition {
    tools::Definition {
        name: definition.name.clone(),
        description: definition.description.clone(),
        parameters: definition.parameters.to_string(),
        annotations: annotations(definition.annotations),
    }
}

pub(crate) fn definition_in(n: usize, definition: tools::Definition) -> Result<seam::ToolDefinition> {
    let field = format!("tools[{n}].parameters");
    let parameters = json(&field, &definition.parameters)?;
    if !parameters.is_object() {
        return Err(IllFormed::new(field, "is not a JSON Schema object"));
    }
    let hints = definition.annotations;
    Ok(seam::ToolDefinition {
        name: definition.name,
        description: definition.description,
        parameters,
        annotations: seam::Annotations {
            read_only: hints.read_only,
            destructive: hints.destructive,
            idempotent: hints.idempotent,
            open_world: hints.open_world,
            parallel_safe: hints.parallel_safe,
        },
    })
}

/// An outcome of a plugin. It may say `denied` or a code of its own that begins with its name and a `-`; any other code becomes
/// `tool-failed`, and an outcome that is no error has none.
/// `refused`: the host refused the plugin a capability in this call.
pub(crate) fn outcome_in(plugin: &seam::PluginName, outcome: tools::Outcome, refused: bool) -> Result<seam::Outcome> {
    let content = result_blocks_in("outcome.content", outcome.content)?;
    let code = outcome.is_error.then(|| outcome_code(plugin, outcome.code.as_deref(), refused));
    Ok(seam::Outcome { content, is_error: outcome.is_error, code, plugin: None })
}

/// A code that a plugin may set, the host's `not-granted` that it hands on, or `tool-failed`.
pub(crate) fn outcome_code(plugin: &seam::PluginName, code: Option<&str>, refused: bool) -> String {
    let own =
        |code: &str| code.strip_prefix(plugin.as_str()).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_code);
    match code {
        Some(code) if code == "denied" || own(code) || (refused && code == "not-granted") => code.to_owned(),
        _ => "tool-failed".to_owned(),
    }
}

/// Kebab-case, and short enough to be a code.
fn is_code(text: &str) -> bool {
    const LONGEST: usize = 64;
    !text.is_empty()
        && text.len() <= LONGEST
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

pub(crate) fn question_in(question: tools::Question) -> seam::Question {
    seam::Question { title: question.title, detail: question.detail, remember: question.remember }
}

pub(crate) fn verdict_in(verdict: guard::Verdict) -> seam::Verdict {
    match verdict {
        guard::Verdict::Abstain => seam::Verdict::Abstain,
        guard::Verdict::Ask(question) => seam::Verdict::Ask(question_in(question)),
        guard::Verdict::Deny(reason) => seam::Verdict::Deny(reason),
    }
}

fn access(access: seam::Access) -> tools::Access {
    match access {
        seam::Access::Read => tools::Access::Read,
        seam::Access::Write => tools::Access::Write,
    }
}

fn access_in(access: tools::Access) -> seam::Access {
    match access {
        tools::Access::Read => seam::Access::Read,
        tools::Access::Write => seam::Access::Write,
    }
}

pub(crate) fn profile(profile: &seam::Profile) -> tools::Profile {
    let grants = |grants: &[seam::PathGrant]| {
        grants.iter().map(|grant| tools::PathGrant { path: grant.path.clone(), access: access(grant.access) }).collect()
    };
    tools::Profile {
        paths: grants(&profile.paths),
        denied: grants(&profile.denied),
        network: match &profile.network {
            seam::NetworkPolicy::Closed => tools::NetworkPolicy::Closed,
            seam::NetworkPolicy::Hosts(hosts) => tools::NetworkPolicy::Hosts(hosts.clone()),
            seam::NetworkPolicy::Open => tools::NetworkPolicy::Open,
        },
        processes: profile.processes,
        env: profile.env.clone(),
        timeout_ms: profile.timeout_ms,
        max_output_bytes: profile.max_output_bytes,
    }
}

pub(crate) fn profile_in(profile: tools::Profile) -> std::result::Result<seam::Profile, seam::Failure> {
    let grants = |grants: Vec<tools::PathGrant>| {
        grants.into_iter().map(|grant| seam::PathGrant { path: grant.path, access: access_in(grant.access) }).collect()
    };
    let profile = seam::Profile {
        paths: grants(profile.paths),
        denied: grants(profile.denied),
        network: match profile.network {
            tools::NetworkPolicy::Closed => seam::NetworkPolicy::Closed,
            tools::NetworkPolicy::Hosts(hosts) => seam::NetworkPolicy::Hosts(hosts),
            tools::NetworkPolicy::Open => seam::NetworkPolicy::Open,
        },
        processes: profile.processes,
        env: profile.env,
        timeout_ms: profile.timeout_ms,
        max_output_bytes: profile.max_output_bytes,
    };
    profile.normalize()
}

pub(crate) fn command_in(command: process::Command) -> seam::ProcessCommand {
    seam::ProcessCommand {
        program: command.program,
        args: command.args,
        cwd: command.cwd,
        env: command.env,
        stdin: command.stdin,
        timeout_ms: command.timeout_ms,
    }
}

pub(crate) fn exit(exit: seam::ProcessExit) -> process::Exit {
    process::Exit {
        code: exit.code,
        stdout: exit.stdout,
        stderr: exit.stderr,
        timed_out: exit.timed_out,
        truncated: exit.truncated,
    }
}

pub(crate) fn generate_in(request: model::GenerateRequest) -> Result<seam::GenerateRequest> {
    Ok(seam::GenerateRequest {
        model: request.model,
        system: request.system,
        messages: messages_in("messages", request.messages)?,
        tools: tool_schemas_in(request.tools)?,
        sampling: sampling_in(request.sampling)?,
    })
}

pub(crate) fn generated(response: &seam::GenerateResponse) -> model::GenerateResponse {
    model::GenerateResponse {
        message: message(&response.message),
        usage: response.usage.map(usage),
        finish: finish(&response.finish),
    }
}

pub(crate) fn agent_task_in(task: agents::Task) -> Result<seam::AgentTask> {
    let agents::Task { prompt, start_from, model, tools, system, max_steps } = task;
    let prompt = blocks_in("prompt", prompt)?;
    let start_from = match start_from {
        agents::StartFrom::Fresh => seam::StartFrom::Fresh,
        agents::StartFrom::Fork => seam::StartFrom::Fork,
    };
    Ok(seam::AgentTask { prompt, start_from, model, tools, system, max_steps })
}

pub(crate) fn agent_report(report: &seam::AgentReport) -> agents::Report {
    let reason = &report.reason;
    let ending = match reason.kind {
        seam::ReasonKind::Completed => agents::Ending::Completed,
        seam::ReasonKind::Aborted => agents::Ending::Aborted,
        seam::ReasonKind::Error => agents::Ending::Error,
        // A turn is `interrupted` in the log of a process that is gone.
        seam::ReasonKind::Disposed | seam::ReasonKind::Interrupted => agents::Ending::Disposed,
        seam::ReasonKind::Budget => agents::Ending::Budget,
        seam::ReasonKind::MaxSteps => agents::Ending::MaxSteps,
        seam::ReasonKind::MaxTokens => agents::Ending::MaxTokens,
    };
    agents::Report {
        agent: report.agent.as_str().to_owned(),
        session: report.session.as_str().to_owned(),
        text: report.text.clone(),
        ending,
        code: reason.code.clone(),
        message: reason.message.clone().or_else(|| reason.reason.clone()),
        usage: usage(report.usage),
        turns: report.turns,
        steps: report.steps,
    }
}

pub(crate) fn part_in(part: section::Part) -> seam::Section {
    seam::Section { name: part.name, order: part.order, text: part.text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_survive_the_round_trip() {
        let check = |value: Value| {
            let before: seam::Message = serde_json::from_value(value).expect("a message");
            assert_eq!(message_in("message", message(&before)), Ok(before));
        };
        check(
            json!({"role": "user", "content": [{"type": "text", "text": "hi", "cache": "ephemeral", "opaque": {"a": 1.5}}]}),
        );
        check(json!({"role": "assistant", "content": [
            {"type": "reasoning", "text": "hm", "opaque": "sig"},
            {"type": "tool-call", "id": "1", "name": "t", "arguments": "{not json"},
            {"type": "image", "data": "AAEC", "mimeType": "image/png"},
            {"type": "video", "x": [1, null]},
        ]}));
        check(json!({"role": "user", "content": [{"type": "tool-result", "callId": "1", "content": [
            {"type": "text", "text": "x"}, {"type": "image", "url": "https://a"}, {"type": "audio", "y": 2},
        ], "isError": true}]}));
    }

    #[test]
    fn what_is_ill_formed_is_named() {
        let check = |block: llm::ContentBlock, expect: &str| {
            assert_eq!(blocks_in("content", vec![block]).expect_err("ill-formed").to_string(), expect);
        };
        let text = |opaque: &str| llm::TextBlock { text: String::new(), cache: None, opaque: Some(opaque.into()) };
        check(
            llm::ContentBlock::Text(text("{")),
            "`content[0].opaque` is not valid JSON: EOF while parsing an object at line 1 column 1",
        );
        check(llm::ContentBlock::Other("3".into()), "`content[0]` is no block: a block is an object with a `type`");
        check(
            llm::ContentBlock::Other(r#"{"type":"text"}"#.into()),
            "`content[0]` has type `text`, which has a case of its own",
        );
    }

    #[test]
    fn codes_of_plugins_cannot_pass_for_the_hosts() {
        let name = seam::PluginName::new("permission").expect("valid");
        let check = |code: Option<&str>, expect: &str| assert_eq!(outcome_code(&name, code, false), expect, "{code:?}");
        check(Some("denied"), "denied");
        check(Some("permission-rule"), "permission-rule");
        check(Some("permission"), "tool-failed");
        check(Some("permission-"), "tool-failed");
        check(Some("permission-Bad"), "tool-failed");
        check(Some("permissionx-rule"), "tool-failed");
        check(Some("plugin-failed"), "tool-failed");
        check(Some("approval-denied"), "tool-failed");
        check(None, "tool-failed");
    }
}
