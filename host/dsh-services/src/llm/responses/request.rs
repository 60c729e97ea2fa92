//! The body of a request. Nothing is kept by the server (`store: false`): each request has the whole conversation, at its end, so that
//! it begins with the bytes of the one before.

use dsh_seam::llm::ModelRequest;
use dsh_seam::message::{
    ContentBlock, ImageBlock, ImageSource, Message, ResultBlock, Role, Sampling, ToolResult, ToolSchema, result_text,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::network::body::{Body, extra, joined};
use super::super::network::{Target, kept};

/// Members that `extra` cannot replace: the adapter could not read the answer, or would send another conversation.
const RESERVED: [&str; 7] = ["model", "input", "stream", "tools", "background", "conversation", "previous_response_id"];

/// What an image without a type most probably is.
const DEFAULT_IMAGE_TYPE: &str = "image/png";

/// Bytes of the name under which a provider may look for cached prompts: enough that no two agents share one.
const CACHE_KEY_BYTES: usize = 12;

/// The member of a kept block that is the item itself.
pub(super) const ITEM: &str = "item";

/// The member of a kept text that says which part it plays in an answer.
pub(super) const PHASE: &str = "phase";

/// The request as Responses wants it.
pub(super) fn body(target: &Target, request: &ModelRequest) -> Vec<u8> {
    let mut more = extra(&target.known.extra_body, &request.sampling.extra, &RESERVED).collect();
    let reasoning = reasoning(&request.sampling, &mut more);
    let mut frame = Map::new();
    frame.insert("model".into(), target.model.as_str().into());
    frame.insert("stream".into(), true.into());
    frame.insert("store".into(), false.into());
    if !reasoning.is_empty() && reasoning.get("effort") != Some(&json!("none")) {
        frame.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    frame.insert("prompt_cache_key".into(), cache_key(request).into());
    if !request.system.is_empty() {
        frame.insert("instructions".into(), (*request.system).into());
    }
    if !request.tools.is_empty() {
        frame.insert("tools".into(), request.tools.iter().map(tool).collect());
        if let Some(choice) = &request.sampling.tool_choice {
            frame.insert("tool_choice".into(), tool_choice(choice));
        }
    }
    if let Some(temperature) = request.sampling.temperature {
        frame.insert("temperature".into(), temperature.into());
    }
    if let Some(max) = request.sampling.max_tokens {
        frame.insert("max_output_tokens".into(), max.into());
    }
    if !reasoning.is_empty() {
        frame.insert("reasoning".into(), reasoning.into());
    }
    let text = text(&mut more);
    if !text.is_empty() {
        frame.insert("text".into(), text.into());
    }
    // `null` takes away what a server does not know.
    for (name, value) in more {
        match value {
            Value::Null => drop(frame.shift_remove(&name)),
            value => drop(frame.insert(name, value)),
        }
    }
    let mut body = Body::open(frame, "input", request);
    for message in request.messages.iter() {
        body.push(&message.wire(&target.dialect, |message| joined(&items(message, &target.provider.name))));
    }
    body.close()
}

/// The same for all requests of an agent, and says nothing about its session.
fn cache_key(request: &ModelRequest) -> String {
    let hash = Sha256::digest(format!("{}\n{}", request.session, request.agent));
    hash[..CACHE_KEY_BYTES].iter().fold("dsh-".to_owned(), |key, byte| key + &format!("{byte:02x}"))
}

/// How hard to think, with a summary to show; members of `extra.reasoning` go before.
fn reasoning(sampling: &Sampling, more: &mut Map<String, Value>) -> Map<String, Value> {
    let mut out = Map::new();
    if let Some(effort) = &sampling.reasoning_effort {
        out.insert("effort".into(), effort.as_str().into());
        if effort != "none" {
            out.insert("summary".into(), "auto".into());
        }
    }
    if let Some(Value::Object(given)) = more.shift_remove("reasoning") {
        out.extend(given);
    }
    out.retain(|_, value| !value.is_null());
    out
}

/// The form of the answer: `extra.text`, and `extra.response_format` of Chat Completions in the words of Responses.
fn text(more: &mut Map<String, Value>) -> Map<String, Value> {
    let mut out = match more.shift_remove("text") {
        Some(Value::Object(given)) => given,
        _ => Map::new(),
    };
    let format = match more.shift_remove("response_format") {
        Some(Value::Object(mut format)) => match format.shift_remove("json_schema") {
            Some(Value::Object(schema)) => format.into_iter().chain(schema).collect(),
            _ => format,
        },
        _ => return out,
    };
    out.insert("format".into(), Value::Object(format));
    out
}

/// A schema is enforced only when that is asked for; to leave `strict` out would mean yes.
fn tool(tool: &ToolSchema) -> Value {
    json!({
        "type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters,
        "strict": tool.strict.unwrap_or(false),
    })
}

fn tool_choice(choice: &str) -> Value {
    match choice {
        "auto" | "none" | "required" => choice.into(),
        name => json!({ "type": "function", "name": name }),
    }
}

/// One message as the items that stand for it.
fn items(message: &Message, provider: &str) -> Vec<Value> {
    match message.role {
        Role::Assistant => assistant(message, provider),
        Role::User | Role::System => user(message),
    }
}

/// What the model did, in its order. Items get no ids of their own: nothing is stored under them, and a call with its id is refused
/// where the reasoning before it is left out.
fn assistant(message: &Message, provider: &str) -> Vec<Value> {
    let item = |opaque: Option<&Value>| kept(opaque, provider)?.get(ITEM).cloned();
    let mut out: Vec<Value> = message
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text(block) if block.text.is_empty() => None,
            ContentBlock::Text(block) => {
                let mut out = json!({ "type": "message", "role": "assistant", "content": block.text });
                if let Some(phase) = kept(block.opaque.as_ref(), provider).and_then(|kept| kept.get(PHASE)) {
                    out[PHASE] = phase.clone();
                }
                Some(out)
            }
            ContentBlock::Reasoning(block) => item(block.opaque.as_ref()),
            ContentBlock::ToolCall(call) => {
                let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
                Some(json!({ "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments }))
            }
            ContentBlock::Other(value) => item(value.get("opaque")),
            ContentBlock::ToolResult(_) | ContentBlock::Image(_) => None,
        })
        .collect();
    // Reasoning that nothing came of is refused.
    while out.last().is_some_and(|item| item["type"] == "reasoning") {
        out.pop();
    }
    out
}

fn user(message: &Message) -> Vec<Value> {
    let mut out: Vec<Value> = message.tool_results().map(result).collect();
    let spoken: Vec<&ContentBlock> =
        message.content.iter().filter(|block| !matches!(block, ContentBlock::ToolResult(_))).collect();
    let content = match spoken[..] {
        [] => return out,
        [ContentBlock::Text(only)] => only.text.as_str().into(),
        _ => spoken.into_iter().filter_map(part).collect::<Value>(),
    };
    out.push(json!({ "type": "message", "role": "user", "content": content }));
    out
}

fn part(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Text(block) => Some(input_text(&block.text)),
        ContentBlock::Image(block) => Some(image(block)),
        ContentBlock::Other(value) => Some(value.clone()),
        ContentBlock::Reasoning(_) | ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) => None,
    }
}

/// A result is one text where that is enough, for servers that know nothing else; otherwise a list.
fn result(result: &ToolResult) -> Value {
    let output: Value = match result.content.iter().any(|block| matches!(block, ResultBlock::Image(_))) {
        false => result_text(&result.content).into(),
        true => result
            .content
            .iter()
            .filter_map(|block| match block {
                ResultBlock::Text(block) => Some(input_text(&block.text)),
                ResultBlock::Image(block) => Some(image(block)),
                ResultBlock::Other(_) => None,
            })
            .collect(),
    };
    json!({ "type": "function_call_output", "call_id": result.call_id, "output": output })
}

fn input_text(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn image(block: &ImageBlock) -> Value {
    let url = match &block.source {
        ImageSource::Url(url) => url.clone(),
        ImageSource::Data(data) => {
            format!("data:{};base64,{data}", block.mime_type.as_deref().unwrap_or(DEFAULT_IMAGE_TYPE))
        }
    };
    json!({ "type": "input_image", "detail": "auto", "image_url": url })
}
