//! The body of a request. Nothing is kept by the server (`store: false`): each request has the whole conversation, at its end, so that
//! it begins with the bytes of the one before.

use std::sync::Arc;

use dsh_seam::llm::ModelRequest;
use dsh_seam::message::{
    ContentBlock, ImageBlock, Message, ResultBlock, Role, Sampling, ToolResult, ToolSchema, result_text,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::super::network::body::{Body, arguments, complete, extra, image_url, joined};
use super::super::network::{Target, kept, without_opaque};

/// Members that `extra` cannot replace: the adapter could not read the answer, or would send another conversation.
pub(super) const RESERVED: [&str; 7] =
    ["model", "input", "stream", "tools", "background", "conversation", "previous_response_id"];

/// Bytes of the name under which a provider may look for cached prompts: enough that no two agents share one.
const CACHE_KEY_BYTES: usize = 12;

/// The member of a kept block that is the item itself.
pub(super) const ITEM: &str = "item";

/// The member of a kept text that says which part it plays in an answer.
pub(super) const PHASE: &str = "phase";

/// The request as Responses wants it.
pub(super) fn body(target: &Target, request: &ModelRequest) -> Vec<u8> {
    let tools = (!request.tools.is_empty()).then(|| {
        let strict = !target.omits("strict");
        let write = |tools: &[ToolSchema]| Value::from_iter(tools.iter().map(|one| tool(one, strict))).to_string();
        target.tools.get(&target.dialect, &request.tools, write)
    });
    let write = |message: &Message| joined(&items(message, &target.provider.name));
    let messages: Vec<Arc<str>> = request.messages.iter().map(|message| message.wire(&target.dialect, write)).collect();
    let room = messages.iter().map(|text| text.len() + 1).sum();
    let mut body = Body::sized(frame(target, request), tools.as_deref(), "input", room);
    for text in &messages {
        body.push(text);
    }
    body.close()
}

/// Everything in front of the tools and the conversation.
fn frame(target: &Target, request: &ModelRequest) -> Map<String, Value> {
    let sampling = &request.sampling;
    let mut more = extra(&target.known.extra_body, &sampling.extra, &RESERVED).collect();
    let reasoning = reasoning(sampling, &mut more);
    let mut frame = Map::new();
    frame.insert("model".into(), target.model.as_str().into());
    frame.insert("stream".into(), true.into());
    frame.insert("store".into(), false.into());
    frame.insert("prompt_cache_key".into(), cache_key(request).into());
    if !request.system.is_empty() {
        frame.insert("instructions".into(), (*request.system).into());
    }
    if let Some(choice) = sampling.tool_choice.as_deref().filter(|_| !request.tools.is_empty()) {
        frame.insert("tool_choice".into(), tool_choice(choice));
    }
    if let Some(temperature) = sampling.temperature {
        frame.insert("temperature".into(), temperature.into());
    }
    if let Some(max) = sampling.max_tokens {
        frame.insert("max_output_tokens".into(), max.into());
    }
    if !reasoning.is_empty() {
        // A model that does not think refuses to be asked for its thoughts.
        if reasoning.get("effort") != Some(&json!("none")) {
            frame.insert("include".into(), json!(["reasoning.encrypted_content"]));
        }
        frame.insert("reasoning".into(), reasoning.into());
    }
    let text = text(&mut more);
    if !text.is_empty() {
        frame.insert("text".into(), text.into());
    }
    complete(&mut frame, more, target, &RESERVED);
    frame
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
fn tool(tool: &ToolSchema, strict: bool) -> Value {
    let ToolSchema { name, description, parameters, .. } = tool;
    let mut out = json!({ "type": "function", "name": name, "description": description, "parameters": parameters });
    if strict {
        out["strict"] = tool.strict.unwrap_or(false).into();
    }
    out
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
                let arguments = arguments(&call.arguments);
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
        ContentBlock::Other(value) => Some(without_opaque(value)),
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
    json!({ "type": "input_image", "detail": "auto", "image_url": image_url(block) })
}

#[cfg(test)]
mod tests {
    use super::super::super::network::keep;
    use super::super::super::provider::{ModelConfig, ProviderConfig, ProviderKind};
    use super::super::super::support::{request, request_of};
    use super::*;
    use dsh_seam::message::ImageSource;
    use dsh_seam::message::{ReasoningBlock, TextBlock, ToolCall};

    fn target(every_model: ModelConfig) -> Target {
        let provider = ProviderConfig { every_model, ..ProviderConfig::new("p", ProviderKind::OpenAiResponses) };
        Target::new(Arc::new(provider), "m")
    }

    fn text(request: &ModelRequest) -> String {
        String::from_utf8(body(&target(ModelConfig::default()), request)).expect("JSON is text")
    }

    fn parsed(request: &ModelRequest) -> Value {
        serde_json::from_str(&text(request)).expect("JSON")
    }

    fn opaque(provider: &str, name: &str, value: Value) -> Option<Value> {
        Some(keep(provider, Map::from_iter([(name.to_owned(), value)])))
    }

    fn reasoning(provider: &str, id: &str) -> ContentBlock {
        let item = json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "x"});
        ContentBlock::Reasoning(ReasoningBlock { text: String::new(), opaque: opaque(provider, ITEM, item) })
    }

    fn call(id: &str) -> ContentBlock {
        ContentBlock::ToolCall(ToolCall { id: id.into(), name: "t".into(), arguments: String::new(), opaque: None })
    }

    fn picture() -> ImageBlock {
        ImageBlock { mime_type: None, source: ImageSource::Data("AA==".into()), cache: None, opaque: None }
    }

    fn answered(id: &str, content: Vec<ResultBlock>) -> Message {
        let call_id = id.into();
        Message::user(vec![ContentBlock::ToolResult(ToolResult { call_id, content, is_error: false, cache: None })])
    }

    fn conversation() -> Vec<Message> {
        let said = |text: &str, opaque| ContentBlock::Text(TextBlock { text: text.into(), cache: None, opaque });
        let search = json!({"type": "web_search_call", "id": "w"});
        vec![
            Message::user_text("old"),
            Message::assistant(vec![
                reasoning("p", "r1"),
                said("I look", opaque("p", PHASE, json!("commentary"))),
                ContentBlock::Other(json!({"type": "provider-item", "opaque": opaque("p", ITEM, search.clone())})),
                reasoning("other", "r2"),
                call("1"),
                call("2"),
            ]),
            answered("1", vec![ResultBlock::text("x"), ResultBlock::Image(picture())]),
            answered("2", vec![ResultBlock::text("y"), ResultBlock::text("z")]),
            Message::assistant(vec![
                ContentBlock::reasoning("hm"),
                said("well", opaque("other", PHASE, json!("commentary"))),
                ContentBlock::Other(json!({"type": "provider-item", "opaque": opaque("other", ITEM, search)})),
                reasoning("p", "r3"),
            ]),
            Message::user(vec![ContentBlock::Image(picture()), ContentBlock::text("z")]),
        ]
    }

    #[test]
    fn messages_are_mapped() {
        let image = json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="});
        let mut request = (*request("p/m", conversation(), &[])).clone();
        request.system = "be kind".into();
        assert_eq!(
            parsed(&request),
            json!({
                "model": "m", "stream": true, "store": false, "prompt_cache_key": "dsh-1c7ebd05f377f4453a3eca43",
                "instructions": "be kind",
                "input": [
                    {"type": "message", "role": "user", "content": "old"},
                    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "x"},
                    {"type": "message", "role": "assistant", "content": "I look", "phase": "commentary"},
                    {"type": "web_search_call", "id": "w"},
                    {"type": "function_call", "call_id": "1", "name": "t", "arguments": "{}"},
                    {"type": "function_call", "call_id": "2", "name": "t", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}, image]},
                    {"type": "function_call_output", "call_id": "2", "output": "y\nz"},
                    {"type": "message", "role": "assistant", "content": "well"},
                    {"type": "message", "role": "user", "content": [image, {"type": "input_text", "text": "z"}]},
                ]
            })
        );
    }

    #[test]
    fn what_is_kept_is_what_would_be_written() {
        let kept = request("p/m", conversation(), &["t"]);
        let first = text(&kept);
        assert_eq!(text(&kept), first);
        assert_eq!(text(&request("p/m", conversation(), &["t"])), first);
    }

    #[test]
    fn a_step_only_adds_to_the_bytes_of_the_one_before() {
        let all = conversation();
        let bodies: Vec<String> =
            (1..=all.len()).map(|count| text(&request("p/m", all[..count].to_vec(), &["t"]))).collect();
        for pair in bodies.windows(2) {
            let prefix = pair[0].strip_suffix("]}").expect("the input is last");
            assert!(pair[1].starts_with(prefix), "{}\n{}", pair[0], pair[1]);
        }
    }

    #[test]
    fn the_name_of_the_cache_is_the_agents_own() {
        let key = |agent: &str, messages| parsed(&request_of(agent, "p/m", messages, &[]))["prompt_cache_key"].clone();
        assert_eq!(key("main", vec![]), key("main", conversation()));
        assert_ne!(key("main", vec![]), key("main.1", vec![]));
    }

    fn framed(known: ModelConfig, sampling: Value, tools: bool) -> Value {
        let mut request = (*request("p/m", vec![], if tools { &["t"] } else { &[] })).clone();
        request.sampling = Arc::new(serde_json::from_value(sampling).expect("a sampling"));
        let mut value: Value = serde_json::from_slice(&body(&target(known), &request)).expect("JSON");
        let usual = json!({"model": "m", "stream": true, "store": false, "input": []});
        let is_new = |name: &str, value: &Value| name != "prompt_cache_key" && usual.get(name) != Some(value);
        value.as_object_mut().expect("an object").retain(|name, value| is_new(name, value));
        value
    }

    #[test]
    fn tools_and_sampling_are_mapped() {
        let check = |sampling: Value, expect: Value| {
            assert_eq!(framed(ModelConfig::default(), sampling.clone(), false), expect, "{sampling}");
        };
        check(json!({}), json!({}));
        check(json!({"temperature": 0.5, "maxTokens": 9}), json!({"temperature": 0.5, "max_output_tokens": 9}));
        check(json!({"toolChoice": "required"}), json!({}));
        check(
            json!({"reasoningEffort": "low"}),
            json!({"include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low", "summary": "auto"}}),
        );
        check(json!({"reasoningEffort": "none"}), json!({"reasoning": {"effort": "none"}}));
        check(
            json!({"reasoningEffort": "low", "extra": {"reasoning": {"summary": null, "context": "all_turns"}, "include": null}}),
            json!({"reasoning": {"effort": "low", "context": "all_turns"}}),
        );
        check(
            json!({"extra": {"top_p": 0.5, "stream": false, "input": [], "previous_response_id": "x", "store": true}}),
            json!({"store": true, "top_p": 0.5}),
        );
        check(
            json!({"extra": {"text": {"verbosity": "low"}, "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": true}}}}),
            json!({"text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}}}),
        );
        check(
            json!({"extra": {"response_format": {"type": "json_object"}}}),
            json!({"text": {"format": {"type": "json_object"}}}),
        );
        let tool = json!({"type": "function", "name": "t", "description": "", "parameters": {"type": "object"}, "strict": false});
        for (choice, expect) in [("auto", json!("auto")), ("t", json!({"type": "function", "name": "t"}))] {
            assert_eq!(
                framed(ModelConfig::default(), json!({"toolChoice": choice}), true),
                json!({"tools": [tool], "tool_choice": expect})
            );
        }
    }

    #[test]
    fn a_member_is_replaced_or_taken_away() {
        let known: Map<String, Value> =
            serde_json::from_value(json!({"prompt_cache_key": null, "top_p": 0.1, "service_tier": "flex"}))
                .expect("an object");
        let mut request = (*request("p/m", vec![], &[])).clone();
        request.sampling =
            Arc::new(serde_json::from_value(json!({"extra": {"top_p": 0.2, "store": true}})).expect("a sampling"));
        let known = ModelConfig { extra_body: known, ..ModelConfig::default() };
        let written = String::from_utf8(body(&target(known), &request)).expect("JSON is text");
        assert_eq!(written, r#"{"model":"m","stream":true,"store":true,"service_tier":"flex","top_p":0.2,"input":[]}"#);
    }

    #[test]
    fn a_strict_tool_is_said_to_be_one() {
        let mut request = (*request("p/m", vec![], &["t"])).clone();
        request.tools = vec![ToolSchema { strict: Some(true), ..request.tools[0].clone() }].into();
        assert_eq!(parsed(&request)["tools"][0]["strict"], json!(true));
    }
}
