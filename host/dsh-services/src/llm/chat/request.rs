//! The body of a request. The messages stand last and nothing in front of them changes from step to step, so that a request begins
//! with the bytes of the one before.

use std::borrow::Cow;
use std::sync::Arc;

use dsh_seam::llm::ModelRequest;
use dsh_seam::message::{
    ContentBlock, ImageBlock, Message, ResultBlock, Role, Sampling, ToolCall, ToolResult, ToolSchema, result_text,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::network::body::{Body, arguments, complete, extra, image_url};
use super::super::network::{Target, kept, without_opaque};
use super::super::provider::{ProviderKind, SendReasoning, SystemRole};
use super::written::{Draft, Written};

/// Members that `extra` cannot replace: the adapter could not read the answer, or would send another conversation.
pub(super) const RESERVED: [&str; 4] = ["model", "messages", "stream", "tools"];

/// The model of DeepSeek that does not think unless it is told to.
const DEEPSEEK_CHAT: &str = "deepseek-chat";

/// Members of the model's message and of its calls that a server wants back as it sent them.
pub(super) const KEPT_OF_MESSAGES: [&str; 2] = ["reasoning_details", "thinking_blocks"];
pub(super) const KEPT_OF_CALLS: [&str; 2] = ["extra_content", "provider_specific_fields"];

/// The request as Chat Completions wants it.
pub(super) fn body(target: &Target, request: &ModelRequest) -> Vec<u8> {
    let frame = frame(target, &request.sampling, !request.tools.is_empty());
    let reasoning = wants_reasoning(target, &frame, !request.tools.is_empty());
    let tools = (!request.tools.is_empty()).then(|| {
        let strict = !target.omits("strict");
        target.tools.get(&target.dialect, &request.tools, |tools| written_tools(tools, strict))
    });
    let messages: Vec<(Role, Arc<str>)> = request
        .messages
        .iter()
        .map(|message| {
            let text = message.wire(&target.dialect, |message| draft(target, message).into_text());
            (message.message.role, text)
        })
        .collect();
    let room = request.system.len() + messages.iter().map(|(_, text)| text.len()).sum::<usize>();
    let mut body = Body::sized(frame, tools.as_deref(), "messages", room);
    if !request.system.is_empty() {
        body.push(&json!({ "role": system_role(target), "content": &*request.system }).to_string());
    }
    let mut pictures = Vec::new();
    for (role, text) in &messages {
        let Written { before, held, after } = Written::of(text);
        if *role == Role::Assistant {
            flush(&mut body, &mut pictures);
            body.push_parts(&[before, if reasoning { held } else { "" }, after]);
            continue;
        }
        body.push(before);
        pictures.extend((!held.is_empty()).then_some(held));
        if !after.is_empty() {
            flush(&mut body, &mut pictures);
            body.push(after);
        }
    }
    flush(&mut body, &mut pictures);
    body.close()
}

/// Everything in front of the tools and the messages.
fn frame(target: &Target, sampling: &Sampling, tools: bool) -> Map<String, Value> {
    let known = &target.known;
    let mut frame = Map::new();
    frame.insert("model".into(), target.model.as_str().into());
    frame.insert("stream".into(), true.into());
    frame.insert("stream_options".into(), json!({ "include_usage": true }));
    if let Some(temperature) = sampling.temperature {
        frame.insert("temperature".into(), temperature.into());
    }
    if let Some(max) = sampling.max_tokens {
        let completion = known.max_completion_tokens.unwrap_or(target.provider.kind == ProviderKind::OpenAi);
        let name = if completion { "max_completion_tokens" } else { "max_tokens" };
        frame.insert(name.into(), max.into());
    }
    if !sampling.stop.is_empty() {
        frame.insert("stop".into(), sampling.stop.clone().into());
    }
    if let Some(effort) = &sampling.reasoning_effort {
        frame.insert("reasoning_effort".into(), effort.clone().into());
    }
    if let Some(choice) = sampling.tool_choice.as_deref().filter(|_| tools) {
        let choice = match choice {
            "auto" | "none" | "required" => choice.into(),
            name => json!({ "type": "function", "function": { "name": name } }),
        };
        frame.insert("tool_choice".into(), choice);
    }
    complete(&mut frame, extra(&known.extra_body, &sampling.extra, &RESERVED), target, &RESERVED);
    frame
}

fn system_role(target: &Target) -> SystemRole {
    target.known.system_role.unwrap_or(SystemRole::System)
}

/// When the model is sent its reasoning. What DeepSeek demands is in `docs/providers.md`.
fn send_reasoning(target: &Target) -> SendReasoning {
    let usual = match target.provider.kind {
        ProviderKind::DeepSeek => SendReasoning::WithTools,
        _ => SendReasoning::Never,
    };
    target.known.send_reasoning.unwrap_or(usual)
}

/// Whether this request sends the model's reasoning back.
fn wants_reasoning(target: &Target, frame: &Map<String, Value>, tools: bool) -> bool {
    let off = frame.get("thinking").and_then(|thinking| thinking.get("type")).is_some_and(|kind| kind == "disabled");
    match send_reasoning(target) {
        SendReasoning::Never => false,
        SendReasoning::WithTools => tools && !off,
        SendReasoning::Always => !off,
    }
}

/// Whether a message with calls must have the member although the model thought nothing, or another model called.
fn must_show_reasoning(target: &Target) -> bool {
    send_reasoning(target) != SendReasoning::Never && target.model != DEEPSEEK_CHAT
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

fn written_tools(tools: &[ToolSchema], strict: bool) -> String {
    let tool = |tool: &'_ ToolSchema| {
        let function = Function {
            name: &tool.name,
            description: &tool.description,
            parameters: &tool.parameters,
            strict: tool.strict.filter(|_| strict),
        };
        text_of(&Tool { r#type: "function", function })
    };
    format!("[{}]", tools.iter().map(tool).collect::<Vec<_>>().join(","))
}

fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("invariant: nothing but JSON is in it")
}

/// The images that the results so far have brought, in a message of their own: one of role `tool` takes none.
fn flush(body: &mut Body, pictures: &mut Vec<&str>) {
    if !pictures.is_empty() {
        let pictures = std::mem::take(pictures).join(",");
        body.push_parts(&["{\"role\":\"user\",\"content\":[", &pictures, "]}"]);
    }
}

/// Writes a message.
fn draft(target: &Target, message: &Message) -> Draft {
    match message.role {
        Role::Assistant => assistant(target, message),
        Role::User | Role::System => user(message),
    }
}

#[derive(Serialize)]
struct ResultMessage<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    content: &'a str,
}

#[derive(Serialize)]
struct UserMessage<C> {
    role: &'static str,
    content: C,
}

/// Results become messages of role `tool`, what is said beside them a message of its own.
fn user(message: &Message) -> Draft {
    let mut draft = Draft::default();
    for result in message.tool_results() {
        let pictures: Vec<String> = result.content.iter().filter_map(picture).map(|part| text_of(&part)).collect();
        if !draft.before.is_empty() {
            draft.before.push(',');
        }
        let content = noted(result, pictures.len());
        draft.before += &text_of(&ResultMessage { role: "tool", tool_call_id: &result.call_id, content: &content });
        for picture in pictures {
            if !draft.held.is_empty() {
                draft.held.push(',');
            }
            draft.held += &picture;
        }
    }
    let said: Vec<&ContentBlock> =
        message.content.iter().filter(|block| !matches!(block, ContentBlock::ToolResult(_))).collect();
    if !said.is_empty() {
        draft.after = spoken(&said);
    }
    draft
}

fn picture(block: &ResultBlock) -> Option<Value> {
    match block {
        ResultBlock::Image(block) => Some(image(block)),
        ResultBlock::Text(_) | ResultBlock::Other(_) => None,
    }
}

/// A result's text, with a note of the images that follow.
fn noted(result: &ToolResult, pictures: usize) -> Cow<'_, str> {
    let text = match &result.content[..] {
        [ResultBlock::Text(block)] => Cow::Borrowed(block.text.as_str()),
        content => Cow::Owned(result_text(content)),
    };
    if pictures == 0 {
        return text;
    }
    let line = if text.is_empty() { "" } else { "\n" };
    format!("{text}{line}[the images of this result are in the message that follows: {pictures}]").into()
}

/// One string where that is enough, for servers that know nothing else; otherwise a list of parts.
fn spoken(blocks: &[&ContentBlock]) -> String {
    if !blocks.iter().any(|block| matches!(block, ContentBlock::Image(_) | ContentBlock::Other(_))) {
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block.as_text()).collect();
        return text_of(&UserMessage { role: "user", content: texts.join("\n") });
    }
    let part = |block: &&ContentBlock| match block {
        ContentBlock::Text(block) => Some(json!({ "type": "text", "text": block.text })),
        ContentBlock::Image(block) => Some(image(block)),
        ContentBlock::Other(value) => Some(without_opaque(value)),
        ContentBlock::Reasoning(_) | ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) => None,
    };
    text_of(&UserMessage { role: "user", content: blocks.iter().filter_map(part).collect::<Vec<_>>() })
}

fn image(block: &ImageBlock) -> Value {
    json!({ "type": "image_url", "image_url": { "url": image_url(block) } })
}

/// A message of the model. One that has nothing for this provider is not sent.
fn assistant(target: &Target, message: &Message) -> Draft {
    let provider = &target.provider.name;
    let calls: Vec<Value> = message.tool_calls().map(|one| call(one, target)).collect();
    let text = message.text().unwrap_or_default();
    let (reasoning, details) = reasoning(message, provider);
    let silent = reasoning.is_empty() || send_reasoning(target) == SendReasoning::Never;
    if calls.is_empty() && text.is_empty() && silent && details.is_empty() {
        return Draft::default();
    }
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut draft = Draft { before: format!("{{\"role\":\"assistant\",\"content\":{content}"), ..Draft::default() };
    for (name, value) in details {
        draft.before += &format!(",\"{name}\":{value}");
    }
    if !reasoning.is_empty() || (!calls.is_empty() && must_show_reasoning(target)) {
        draft.held = format!(",\"reasoning_content\":{}", Value::from(reasoning));
    }
    if !calls.is_empty() {
        draft.after = format!(",\"tool_calls\":{}", Value::from(calls));
    }
    draft.after.push('}');
    draft
}

/// What the model thought that this provider may see, and what this provider wants back as it sent it.
fn reasoning<'a>(message: &'a Message, provider: &str) -> (String, Vec<(&'static str, &'a Value)>) {
    let (mut text, mut details): (String, Vec<(&str, &Value)>) = (String::new(), Vec::new());
    for block in &message.content {
        let ContentBlock::Reasoning(block) = block else { continue };
        let kept = kept(block.opaque.as_ref(), provider);
        if block.opaque.is_none() || kept.is_some() {
            text += &block.text;
        }
        for name in KEPT_OF_MESSAGES {
            if let Some(value) = kept.and_then(|kept| kept.get(name))
                && details.iter().all(|(known, _)| *known != name)
            {
                details.push((name, value));
            }
        }
    }
    (text, details)
}

fn call(call: &ToolCall, target: &Target) -> Value {
    let provider = &target.provider.name;
    // OpenAI takes any text.
    let arguments = match target.provider.kind {
        ProviderKind::OpenAi if !call.arguments.trim().is_empty() => call.arguments.as_str().into(),
        _ => arguments(&call.arguments),
    };
    let mut out =
        json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } });
    for name in KEPT_OF_CALLS {
        if let Some(value) = kept(call.opaque.as_ref(), provider).and_then(|kept| kept.get(name)) {
            out[name] = value.clone();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::network::keep;
    use super::super::super::provider::{ModelConfig, ProviderConfig};
    use super::super::super::support::request;
    use super::*;
    use dsh_seam::message::ImageSource;
    use dsh_seam::message::ReasoningBlock;

    fn conversation() -> Vec<Message> {
        let call = |id: &str| {
            ContentBlock::ToolCall(ToolCall { id: id.into(), name: "t".into(), arguments: String::new(), opaque: None })
        };
        let picture =
            ImageBlock { mime_type: None, source: ImageSource::Data("AA==".into()), cache: None, opaque: None };
        let result = |id: &str, content: Vec<ResultBlock>| {
            Message::user(vec![ContentBlock::ToolResult(ToolResult {
                call_id: id.into(),
                content,
                is_error: false,
                cache: None,
            })])
        };
        vec![
            Message::user_text("old"),
            Message::assistant(vec![ContentBlock::reasoning("first"), ContentBlock::text("yes")]),
            Message::user(vec![ContentBlock::text("a"), ContentBlock::text("b")]),
            Message::assistant(vec![ContentBlock::reasoning("hm"), call("1"), call("2")]),
            result("1", vec![ResultBlock::text("x"), ResultBlock::Image(picture.clone())]),
            result("2", vec![ResultBlock::text("y")]),
            Message::user(vec![ContentBlock::Image(picture), ContentBlock::text("z")]),
        ]
    }

    fn body(kind: ProviderKind, model: &str, request: &ModelRequest) -> Vec<u8> {
        super::body(&Target::new(Arc::new(ProviderConfig::new("x", kind)), model), request)
    }

    fn parsed(kind: ProviderKind, request: &ModelRequest) -> Value {
        serde_json::from_slice(&body(kind, "m", request)).expect("JSON")
    }

    #[test]
    fn messages_are_mapped() {
        let mut request = (*request("x/m", conversation(), &[])).clone();
        request.system = "be kind".into();
        let part = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}});
        assert_eq!(
            parsed(ProviderKind::OpenAi, &request),
            json!({
                "model": "m", "stream": true, "stream_options": {"include_usage": true},
                "messages": [
                    {"role": "system", "content": "be kind"},
                    {"role": "user", "content": "old"},
                    {"role": "assistant", "content": "yes"},
                    {"role": "user", "content": "a\nb"},
                    {"role": "assistant", "content": null, "tool_calls": [call("1"), call("2")]},
                    {"role": "tool", "tool_call_id": "1", "content": "x\n[the images of this result are in the message that follows: 1]"},
                    {"role": "tool", "tool_call_id": "2", "content": "y"},
                    {"role": "user", "content": [part]},
                    {"role": "user", "content": [part, {"type": "text", "text": "z"}]},
                ]
            })
        );
    }

    #[test]
    fn what_is_kept_is_what_would_be_written() {
        for kind in [ProviderKind::OpenAi, ProviderKind::DeepSeek, ProviderKind::Compatible] {
            let kept = request("x/m", conversation(), &["t"]);
            let first = body(kind, "m", &kept);
            assert_eq!(body(kind, "m", &kept), first);
            let fresh = request("x/m", conversation(), &["t"]);
            assert_eq!(body(kind, "m", &fresh), first);
        }
    }

    #[test]
    fn a_message_is_kept_whatever_its_place() {
        let result = |id: &str, content: Vec<ResultBlock>| {
            ContentBlock::ToolResult(ToolResult { call_id: id.into(), content, is_error: false, cache: None })
        };
        let picture = |data: &str| {
            ResultBlock::Image(ImageBlock {
                mime_type: Some("image/gif".into()),
                source: ImageSource::Data(data.into()),
                cache: None,
                opaque: None,
            })
        };
        // A plugin may put into one message what the loop keeps apart.
        let all = [
            Message::user(vec![result("1", vec![picture("A"), picture("B")])]),
            Message::user(vec![result("2", vec![]), result("3", vec![picture("C")]), ContentBlock::text("so")]),
            Message::user(vec![result("4", vec![picture("D")])]),
            Message::assistant(vec![ContentBlock::text("aha")]),
        ];
        let shown = |list: &[Message]| {
            let body = parsed(ProviderKind::Compatible, &request("x/m", list.to_vec(), &[]));
            let list = body["messages"].as_array().expect("a list").clone();
            let one = |message: &Value| match &message["content"] {
                Value::Array(parts) => parts
                    .iter()
                    .map(|part| {
                        part["image_url"]["url"].as_str().unwrap_or("?").trim_start_matches("data:image/gif;base64,")
                    })
                    .collect::<String>(),
                _ => message["tool_call_id"].as_str().or(message["content"].as_str()).unwrap_or("?").to_owned(),
            };
            list.iter().map(one).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&all), "1 2 3 ABC so 4 D aha");
        assert_eq!(shown(&all[..1]), "1 AB");
        assert_eq!(shown(&all[2..]), "4 D aha");
    }

    /// `reasoning_content` of each message, `-` where there is none.
    fn reasoning_sent(target: &Target, messages: &[Message], tools: &[&str], extra: Value) -> String {
        let mut request = (*request("x/m", messages.to_vec(), tools)).clone();
        let extra = serde_json::from_value(extra).expect("an object");
        request.sampling = Arc::new(Sampling { extra, ..Sampling::default() });
        let body: Value = serde_json::from_slice(&super::body(target, &request)).expect("JSON");
        let list = body["messages"].as_array().expect("a list");
        let one =
            |message: &Value| message["reasoning_content"].as_str().map_or("-".to_owned(), |text| format!("<{text}>"));
        list.iter().map(one).collect::<Vec<_>>().join("")
    }

    fn target(kind: ProviderKind, model: &str, known: ModelConfig) -> Target {
        Target::new(Arc::new(ProviderConfig { every_model: known, ..ProviderConfig::new("x", kind) }), model)
    }

    #[test]
    fn deepseek_gets_its_reasoning_back_in_requests_with_tools_and_in_no_others() {
        let call = |id: &str| {
            ContentBlock::ToolCall(ToolCall { id: id.into(), name: "t".into(), arguments: String::new(), opaque: None })
        };
        let result = |id: &str| {
            let call_id = id.into();
            Message::user(vec![ContentBlock::ToolResult(ToolResult {
                call_id,
                content: vec![],
                is_error: false,
                cache: None,
            })])
        };
        let foreign =
            ReasoningBlock { text: "theirs".into(), opaque: Some(json!({"provider": "y", "signature": "s"})) };
        let all = [
            // A turn without calls.
            Message::user_text("1"),
            Message::assistant(vec![ContentBlock::reasoning("a"), ContentBlock::text("x")]),
            // A turn with calls: one that thought, one that did not, one of another model.
            Message::user_text("2"),
            Message::assistant(vec![ContentBlock::reasoning("b"), call("1")]),
            result("1"),
            Message::assistant(vec![call("2")]),
            result("2"),
            Message::assistant(vec![ContentBlock::Reasoning(foreign), call("3")]),
            result("3"),
            Message::assistant(vec![ContentBlock::reasoning("c"), ContentBlock::text("y")]),
            // A turn of a model that does not think.
            Message::user_text("3"),
            Message::assistant(vec![ContentBlock::text("z")]),
            Message::user_text("4"),
        ];
        let deepseek = |model: &str| target(ProviderKind::DeepSeek, model, ModelConfig::default());
        let reasoner = deepseek("deepseek-reasoner");
        // The running turn, after its first call.
        assert_eq!(reasoning_sent(&reasoner, &all[2..5], &["t"], json!({})), "-<b>-");
        // All turns before.
        assert_eq!(reasoning_sent(&reasoner, &all, &["t"], json!({})), "-<a>-<b>-<>-<>-<c>---");
        // Without tools it would be passed over.
        assert_eq!(reasoning_sent(&reasoner, &all, &[], json!({})), "-".repeat(13));
        // Without thinking too.
        let (off, on) = (json!({"thinking": {"type": "disabled"}}), json!({"thinking": {"type": "enabled"}}));
        assert_eq!(reasoning_sent(&reasoner, &all, &["t"], off), "-".repeat(13));
        // A model that need not think has nothing to show where it did not.
        assert_eq!(reasoning_sent(&deepseek("deepseek-chat"), &all, &["t"], on), "-<a>-<b>-----<c>---");
        // What others think stays here, unless the configuration says that it is wanted.
        for kind in [ProviderKind::OpenAi, ProviderKind::Compatible] {
            assert_eq!(
                reasoning_sent(&target(kind, "m", ModelConfig::default()), &all, &["t"], json!({})),
                "-".repeat(13)
            );
        }
        let wanted = |send| ModelConfig { send_reasoning: Some(send), ..ModelConfig::default() };
        let always = target(ProviderKind::Compatible, "m", wanted(SendReasoning::Always));
        assert_eq!(reasoning_sent(&always, &all, &[], json!({})), "-<a>-<b>-<>-<>-<c>---");
        let never = target(ProviderKind::DeepSeek, "m", wanted(SendReasoning::Never));
        assert_eq!(reasoning_sent(&never, &all, &["t"], json!({})), "-".repeat(13));
    }

    #[test]
    fn what_a_provider_keeps_goes_back_to_it_alone() {
        let details = json!([{"type": "reasoning.encrypted", "data": "e", "id": null, "index": 0}]);
        let signature = json!({"google": {"thought_signature": "s"}});
        let messages = |provider: &str| {
            let kept =
                |name: &str, value: &Value| Some(keep(provider, Map::from_iter([(name.to_owned(), value.clone())])));
            let reasoning = ReasoningBlock { text: "hm".into(), opaque: kept("reasoning_details", &details) };
            let call = ToolCall {
                id: "1".into(),
                name: "t".into(),
                arguments: "{}".into(),
                opaque: kept("extra_content", &signature),
            };
            vec![
                Message::assistant(vec![ContentBlock::Reasoning(reasoning.clone())]),
                Message::assistant(vec![ContentBlock::Reasoning(reasoning), ContentBlock::ToolCall(call)]),
            ]
        };
        let sent = |messages| parsed(ProviderKind::Compatible, &request("x/m", messages, &[]))["messages"].clone();
        let plain = json!({"id": "1", "type": "function", "function": {"name": "t", "arguments": "{}"}});
        let mut signed = plain.clone();
        signed["extra_content"] = signature.clone();
        assert_eq!(
            sent(messages("x")),
            json!([
                {"role": "assistant", "content": "", "reasoning_details": details},
                {"role": "assistant", "content": null, "reasoning_details": details, "tool_calls": [signed]},
            ])
        );
        assert_eq!(sent(messages("y")), json!([{"role": "assistant", "content": null, "tool_calls": [plain]}]));
    }

    #[test]
    fn arguments_that_are_no_object_do_not_spoil_the_conversation() {
        let check = |kind: ProviderKind, raw: &str, expect: &str| {
            let call = ToolCall { id: "1".into(), name: "t".into(), arguments: raw.into(), opaque: None };
            let request = request("x/m", vec![Message::assistant(vec![ContentBlock::ToolCall(call)])], &[]);
            assert_eq!(parsed(kind, &request)["messages"][0]["tool_calls"][0]["function"]["arguments"], expect);
        };
        check(ProviderKind::OpenAi, r#"{"a": b"#, r#"{"a": b"#);
        check(ProviderKind::OpenAi, "", "{}");
        check(ProviderKind::Compatible, r#"{"a": b"#, r#"{"invalid":"{\"a\": b"}"#);
        check(ProviderKind::DeepSeek, r#"{"a": b"#, r#"{"invalid":"{\"a\": b"}"#);
    }

    #[test]
    fn servers_differ_in_what_they_know() {
        let known = ModelConfig {
            omit: ["stream_options", "strict", "model", "temperature"].map(str::to_owned).to_vec(),
            max_completion_tokens: Some(true),
            system_role: Some(SystemRole::Developer),
            extra_body: serde_json::from_value(json!({"a": 1, "b": 2, "messages": []})).expect("an object"),
            ..ModelConfig::default()
        };
        let mut request = (*request("x/m", vec![], &["t"])).clone();
        request.system = "s".into();
        request.tools = vec![ToolSchema { strict: Some(true), ..request.tools[0].clone() }].into();
        let extra = serde_json::from_value(json!({"b": null, "c": 3, "max_completion_tokens": 8})).expect("an object");
        request.sampling =
            Arc::new(Sampling { temperature: Some(1.0), max_tokens: Some(9), extra, ..Sampling::default() });
        let sent = super::body(&target(ProviderKind::Compatible, "m", known), &request);
        assert_eq!(
            String::from_utf8_lossy(&sent),
            r#"{"model":"m","stream":true,"max_completion_tokens":8,"a":1,"c":3,"tools":[{"type":"function","function":{"name":"t","description":"","parameters":{"type":"object"}}}],"messages":[{"role":"developer","content":"s"}]}"#
        );
    }

    #[test]
    fn tools_and_sampling_are_mapped() {
        let mut request = (*request("x/m", vec![], &["t"])).clone();
        request.tools = vec![ToolSchema { strict: Some(true), ..request.tools[0].clone() }].into();
        request.sampling = Arc::new(Sampling {
            temperature: Some(0.5),
            max_tokens: Some(9),
            stop: vec!["END".into()],
            tool_choice: Some("t".into()),
            reasoning_effort: Some("low".into()),
            extra: serde_json::from_value(json!({"top_k": 3, "stream": false, "temperature": 1})).expect("an object"),
        });
        let tools = json!([{"type": "function", "function": {"name": "t", "description": "", "parameters": {"type": "object"}, "strict": true}}]);
        let expect = |max: &str| {
            json!({
                "model": "m", "stream": true, "stream_options": {"include_usage": true}, "temperature": 1, max: 9, "stop": ["END"],
                "reasoning_effort": "low", "tool_choice": {"type": "function", "function": {"name": "t"}}, "top_k": 3,
                "tools": tools, "messages": []
            })
        };
        assert_eq!(parsed(ProviderKind::OpenAi, &request), expect("max_completion_tokens"));
        assert_eq!(parsed(ProviderKind::Compatible, &request), expect("max_tokens"));
    }

    #[test]
    fn a_step_only_adds_to_the_bytes_of_the_one_before() {
        let all = conversation();
        for kind in [ProviderKind::OpenAi, ProviderKind::DeepSeek, ProviderKind::Compatible] {
            // As the loop sends them: after a whole batch of results, or after somebody spoke.
            let bodies: Vec<String> = [1, 3, 6, 7]
                .iter()
                .map(|count| {
                    let body = body(kind, "m", &request("x/m", all[..*count].to_vec(), &["t"]));
                    String::from_utf8(body).expect("JSON is text")
                })
                .collect();
            for pair in bodies.windows(2) {
                let prefix = pair[0].strip_suffix("]}").expect("the messages are last");
                assert!(pair[1].starts_with(prefix), "{}\n{}", pair[0], pair[1]);
            }
        }
    }
}
