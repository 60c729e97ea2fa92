//! What stands before the conversation: the same from step to step.

use std::sync::Arc;

use dsh_seam::llm::ModelRequest;
use dsh_seam::message::ToolSchema;
use serde_json::{Map, Value, json};

use super::super::network::Target;
use super::super::network::body::{complete, extra};
use super::super::provider::{PromptCache, ThinkingForm};
use super::blocks;

/// Members that `extra` cannot replace: the adapter could not read the answer, or would send another conversation.
pub(super) const RESERVED: [&str; 5] = ["model", "messages", "stream", "tools", "system"];

/// How structured output is asked for, in the form of Chat Completions.
const RESPONSE_FORMAT: &str = "response_format";

/// The most tokens of an answer where nothing is known: the protocol wants a number, a number over a model's own is refused, and this is
/// the least that models since Claude Opus 4 put out. Thinking is part of it.
const DEFAULT_MAX_TOKENS: u32 = 32_000;

/// The least tokens for thinking that the protocol takes.
const MIN_BUDGET: u32 = 1024;

/// Parts of the names of Anthropic's models before 4.6, which know thinking by a number of tokens only.
const BEFORE_4_6: [&str; 6] = ["claude-3", "-4-0", "-4-1", "-4-5", "-4-2025", "-4@2025"];

/// How the prompt is marked to be kept by the provider, for its usual short time.
pub(super) fn cache_control() -> Value {
    json!({ "type": "ephemeral" })
}

/// All members but tools and conversation. Those of `extra` win over ours; `null` is a way to take one away.
pub(super) fn frame(target: &Target, request: &ModelRequest) -> Map<String, Value> {
    let mut more: Map<String, Value> = extra(&target.known.extra_body, &request.sampling.extra, &RESERVED).collect();
    let mut frame = Map::new();
    frame.insert("model".into(), target.model.as_str().into());
    frame.insert("max_tokens".into(), max_tokens(target, request).into());
    frame.insert("stream".into(), true.into());
    output(&mut frame, target, request, &mut more);
    sampling(&mut frame, request, &more);
    if prompt_cache(target) == PromptCache::Auto {
        frame.insert("cache_control".into(), cache_control());
    }
    if let Some(choice) = tool_choice(request) {
        frame.insert("tool_choice".into(), choice);
    }
    system(&mut frame, target, request);
    complete(&mut frame, more, target, &RESERVED);
    frame
}

/// Who says what of the prompt is kept.
pub(super) fn prompt_cache(target: &Target) -> PromptCache {
    target.known.prompt_cache.unwrap_or(PromptCache::Auto)
}

fn max_tokens(target: &Target, request: &ModelRequest) -> u32 {
    request.sampling.max_tokens.or(target.known.max_output_tokens).unwrap_or(DEFAULT_MAX_TOKENS)
}

/// How the model thinks, how much it says, and in what form.
fn output(frame: &mut Map<String, Value>, target: &Target, request: &ModelRequest, more: &mut Map<String, Value>) {
    let mut config = Map::new();
    if let Some(effort) = request.sampling.reasoning_effort.as_deref() {
        let form = target.known.thinking.unwrap_or_else(|| thinking_form(&target.model));
        if let Some(thinking) = thinking(form, effort, target, request) {
            frame.insert("thinking".into(), thinking);
        }
        if form == ThinkingForm::Adaptive && effort != "none" {
            config.insert("effort".into(), if effort == "minimal" { "low" } else { effort }.into());
        }
    }
    if let Some(schema) = more.remove(RESPONSE_FORMAT).as_ref().and_then(|format| format.pointer("/json_schema/schema"))
    {
        config.insert("format".into(), json!({ "type": "json_schema", "schema": schema }));
    }
    match more.remove("output_config") {
        Some(Value::Object(own)) => config.extend(own),
        Some(own) => {
            more.insert("output_config".into(), own);
        }
        None => {}
    }
    if !config.is_empty() {
        frame.insert("output_config".into(), config.into());
    }
}

/// Which form of thinking a model knows. Servers of others copied the older one.
fn thinking_form(model: &str) -> ThinkingForm {
    let name = model.to_lowercase().replace('.', "-");
    let older = BEFORE_4_6.iter().any(|part| name.contains(part)) || name.ends_with("-4");
    if name.contains("claude") && !older { ThinkingForm::Adaptive } else { ThinkingForm::Budget }
}

/// The member `thinking`; none where it must not stand: a tool that must be called leaves no room for thoughts, and a round of tools that
/// began without them goes on without them.
fn thinking(form: ThinkingForm, effort: &str, target: &Target, request: &ModelRequest) -> Option<Value> {
    if effort == "none" {
        return Some(json!({ "type": "disabled" }));
    }
    let forced = request.sampling.tool_choice.as_deref().is_some_and(|choice| !matches!(choice, "auto" | "none"));
    if forced && !request.tools.is_empty() {
        return None;
    }
    if form == ThinkingForm::Adaptive {
        // Without `display` newer models send the proof of their thoughts and no word of them.
        return Some(json!({ "type": "adaptive", "display": "summarized" }));
    }
    let tokens = match effort {
        "minimal" => MIN_BUDGET,
        "low" => 4096,
        "medium" => 10_240,
        "high" => 20_480,
        _ => u32::MAX,
    };
    // Thinking is part of `max_tokens`; a quarter is left for the answer.
    let max = max_tokens(target, request);
    let budget = tokens.min(max - max / 4);
    (budget >= MIN_BUDGET && blocks::round_begins_with_thinking(request, &target.provider.name))
        .then(|| json!({ "type": "enabled", "budget_tokens": budget }))
}

fn sampling(frame: &mut Map<String, Value>, request: &ModelRequest, more: &Map<String, Value>) {
    let sampling = &request.sampling;
    let thinking = more.get("thinking").or_else(|| frame.get("thinking"));
    let thinks = thinking.is_some_and(|thinking| thinking.get("type").is_some_and(|kind| kind != "disabled"));
    // A model that thinks takes no other temperature than its own.
    if let Some(temperature) = sampling.temperature.filter(|_| !thinks) {
        frame.insert("temperature".into(), temperature.into());
    }
    let stop: Vec<&String> = sampling.stop.iter().filter(|text| !text.trim().is_empty()).collect();
    if !stop.is_empty() {
        frame.insert("stop_sequences".into(), stop.into_iter().map(String::as_str).collect());
    }
}

fn tool_choice(request: &ModelRequest) -> Option<Value> {
    if request.tools.is_empty() {
        return blocks::called_tools(request).next().map(|_| json!({ "type": "none" }));
    }
    request.sampling.tool_choice.as_deref().map(|choice| match choice {
        "auto" | "none" => json!({ "type": choice }),
        "required" => json!({ "type": "any" }),
        name => json!({ "type": "tool", "name": name }),
    })
}

/// The list of tools as text, none when there are none. Calls and results are refused where no tool is described: then those that were
/// called are named, and none of them can be called.
pub(super) fn tools(target: &Target, request: &ModelRequest) -> Option<Arc<str>> {
    if request.tools.is_empty() {
        let mut names: Vec<&str> = Vec::new();
        for name in blocks::called_tools(request) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let named = |name: &&str| json!({ "name": name, "input_schema": { "type": "object" } });
        let list: Value = names.iter().map(named).collect();
        return (!names.is_empty()).then(|| list.to_string().into());
    }
    let strict = !target.omits("strict");
    let write = |tools: &[ToolSchema]| tools.iter().map(|schema| tool(schema, strict)).collect::<Value>().to_string();
    Some(target.tools.get(&target.dialect, &request.tools, write))
}

fn tool(schema: &ToolSchema, strict: bool) -> Value {
    let mut input = schema.parameters.clone();
    if let Some(members) = input.as_object_mut() {
        members.entry("type").or_insert_with(|| "object".into());
    }
    let mut tool = json!({ "name": schema.name });
    if !schema.description.is_empty() {
        tool["description"] = schema.description.as_str().into();
    }
    tool["input_schema"] = input;
    if strict && schema.strict == Some(true) {
        tool["strict"] = true.into();
    }
    tool
}

/// The system prompt. It has a mark of its own, so that tools and system stay kept when a compaction replaces the conversation.
fn system(frame: &mut Map<String, Value>, target: &Target, request: &ModelRequest) {
    if request.system.trim().is_empty() {
        return;
    }
    let mut block = json!({ "type": "text", "text": &*request.system });
    if prompt_cache(target) == PromptCache::Auto {
        block["cache_control"] = cache_control();
    }
    frame.insert("system".into(), json!([block]));
}
