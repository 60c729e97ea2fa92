//! The body of a request. The messages stand last and nothing in front of them changes from step to step, so that a request begins
//! with the bytes of the one before.

use std::sync::Arc;

use dsh_seam::llm::ModelRequest;
use dsh_seam::message::{
    ContentBlock, ImageBlock, ImageSource, Message, ResultBlock, Role, Sampling, ToolSchema, result_text,
};
use dsh_seam::view::ModelMessage;
use serde_json::{Map, Value, json};

use super::super::network::Target;
use super::super::network::body::{Body, extra, joined};
use super::super::provider::ProviderKind;

/// Members that `extra` cannot replace: the adapter could not read the answer, or would send another conversation.
const RESERVED: [&str; 4] = ["model", "messages", "stream", "tools"];

/// What an image without a type most probably is.
const DEFAULT_IMAGE_TYPE: &str = "image/png";

/// The request as Chat Completions wants it.
pub(super) fn body(target: &Target, request: &ModelRequest) -> Vec<u8> {
    let kind = target.provider.kind;
    let mut frame = Map::new();
    frame.insert("model".into(), target.model.as_str().into());
    frame.insert("stream".into(), true.into());
    frame.insert("stream_options".into(), json!({ "include_usage": true }));
    sampling(&mut frame, target, &request.sampling, !request.tools.is_empty());
    if !request.tools.is_empty() {
        frame.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    let mut body = Body::open(frame, "messages", request);
    messages(&mut body, kind, &target.dialect, request);
    body.close()
}

fn sampling(body: &mut Map<String, Value>, target: &Target, sampling: &Sampling, tools: bool) {
    if let Some(temperature) = sampling.temperature {
        body.insert("temperature".into(), temperature.into());
    }
    if let Some(max) = sampling.max_tokens {
        let name = if target.provider.kind == ProviderKind::OpenAi { "max_completion_tokens" } else { "max_tokens" };
        body.insert(name.into(), max.into());
    }
    if !sampling.stop.is_empty() {
        body.insert("stop".into(), sampling.stop.clone().into());
    }
    if let Some(effort) = &sampling.reasoning_effort {
        body.insert("reasoning_effort".into(), effort.clone().into());
    }
    if let Some(choice) = sampling.tool_choice.as_deref().filter(|_| tools) {
        let choice = match choice {
            "auto" | "none" | "required" => choice.into(),
            name => json!({ "type": "function", "function": { "name": name } }),
        };
        body.insert("tool_choice".into(), choice);
    }
    body.extend(extra(&target.known.extra_body, &sampling.extra, &RESERVED));
}

fn tool(tool: &ToolSchema) -> Value {
    let mut function = json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
    if let Some(strict) = tool.strict {
        function["strict"] = strict.into();
    }
    json!({ "type": "function", "function": function })
}

/// The messages. Those that are written alike wherever they stand are kept as they were written.
fn messages(out: &mut Body, kind: ProviderKind, dialect: &Arc<str>, request: &ModelRequest) {
    let list: Vec<&Arc<ModelMessage>> = request.messages.iter().collect();
    // DeepSeek wants its reasoning back while a round of tools goes on, and not after it.
    let round = match kind {
        ProviderKind::DeepSeek => list.iter().rposition(|message| is_spoken(&message.message)).unwrap_or(0),
        _ => list.len(),
    };
    if !request.system.is_empty() {
        out.push(&json!({ "role": "system", "content": &*request.system }).to_string());
    }
    let mut images = Vec::new();
    for (at, message) in list.iter().enumerate() {
        let in_round = at > round;
        if images.is_empty() && stands_alone(&message.message, in_round) {
            out.push(&message.wire(dialect, |message| joined(&written(message, false, &mut Vec::new()))));
        } else {
            out.push(&joined(&written(&message.message, in_round, &mut images)));
        }
    }
    let mut rest = Vec::new();
    flush(&mut rest, &mut images);
    out.push(&joined(&rest));
}

/// Whether a message is written in the same way wherever it stands: without pictures that follow it, and without reasoning that is
/// sent back in some places only.
fn stands_alone(message: &Message, in_round: bool) -> bool {
    let pictures = || {
        message.tool_results().any(|result| result.content.iter().any(|block| matches!(block, ResultBlock::Image(_))))
    };
    let reasoning = || message.content.iter().any(|block| matches!(block, ContentBlock::Reasoning(_)));
    match message.role {
        Role::Assistant => !in_round || !reasoning(),
        Role::User | Role::System => !pictures(),
    }
}

/// One message as those that stand for it.
fn written(message: &Message, in_round: bool, images: &mut Vec<Value>) -> Vec<Value> {
    let mut out = Vec::new();
    match message.role {
        Role::Assistant => {
            flush(&mut out, images);
            out.push(assistant(message, in_round));
        }
        Role::User | Role::System => user(&mut out, images, message),
    }
    out
}

/// Whether somebody speaks in it, and not only a tool.
fn is_spoken(message: &Message) -> bool {
    message.role == Role::User && message.content.iter().any(|block| !matches!(block, ContentBlock::ToolResult(_)))
}

/// Results become messages of role `tool`; those take no images, which follow the batch in a message of their own.
fn user(out: &mut Vec<Value>, images: &mut Vec<Value>, message: &Message) {
    for result in message.tool_results() {
        let pictures = result.content.iter().filter_map(|block| match block {
            ResultBlock::Image(block) => Some(image(block)),
            _ => None,
        });
        let before = images.len();
        images.extend(pictures);
        let mut text = result_text(&result.content);
        if images.len() > before {
            let note =
                format!("[the images of this result are in the message that follows: {}]", images.len() - before);
            text = if text.is_empty() { note } else { format!("{text}\n{note}") };
        }
        out.push(json!({ "role": "tool", "tool_call_id": result.call_id, "content": text }));
    }
    if is_spoken(message) {
        flush(out, images);
        out.push(json!({ "role": "user", "content": content(&message.content) }));
    }
}

fn flush(out: &mut Vec<Value>, images: &mut Vec<Value>) {
    if !images.is_empty() {
        out.push(json!({ "role": "user", "content": std::mem::take(images) }));
    }
}

/// One string where that is enough, for servers that know nothing else; otherwise a list of parts.
fn content(blocks: &[ContentBlock]) -> Value {
    let texts: Vec<&str> = blocks.iter().filter_map(ContentBlock::as_text).collect();
    if !blocks.iter().any(|block| matches!(block, ContentBlock::Image(_) | ContentBlock::Other(_))) {
        return texts.join("\n").into();
    }
    let part = |block: &ContentBlock| match block {
        ContentBlock::Text(block) => Some(json!({ "type": "text", "text": block.text })),
        ContentBlock::Image(block) => Some(image(block)),
        ContentBlock::Other(value) => Some(value.clone()),
        ContentBlock::Reasoning(_) | ContentBlock::ToolCall(_) | ContentBlock::ToolResult(_) => None,
    };
    blocks.iter().filter_map(part).collect()
}

fn image(block: &ImageBlock) -> Value {
    let url = match &block.source {
        ImageSource::Url(url) => url.clone(),
        ImageSource::Data(data) => {
            format!("data:{};base64,{data}", block.mime_type.as_deref().unwrap_or(DEFAULT_IMAGE_TYPE))
        }
    };
    json!({ "type": "image_url", "image_url": { "url": url } })
}

fn assistant(message: &Message, in_round: bool) -> Value {
    let calls: Vec<Value> = message
        .tool_calls()
        .map(|call| {
            let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
            json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": arguments } })
        })
        .collect();
    let text = message.text().unwrap_or_default();
    let mut out = json!({ "role": "assistant", "content": if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() } });
    let reasoning: String = message
        .content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Reasoning(block) => Some(block.text.as_str()),
            _ => None,
        })
        .collect();
    if in_round && !reasoning.is_empty() {
        out["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        out["tool_calls"] = calls.into();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::super::provider::ProviderConfig;
    use super::super::super::support::request;
    use super::*;
    use dsh_seam::message::{ToolCall, ToolResult};

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
    fn deepseek_gets_its_reasoning_back_inside_a_round_of_tools() {
        let mut messages = conversation();
        messages.pop();
        let reasoning = |messages: Vec<Message>| {
            let body = parsed(ProviderKind::DeepSeek, &request("x/m", messages, &[]));
            let list = body["messages"].as_array().expect("a list").clone();
            list.iter()
                .map(|message| message["reasoning_content"].as_str().unwrap_or("-").to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(reasoning(messages.clone()), "- - - hm - - -");
        messages.push(Message::user_text("next"));
        assert_eq!(reasoning(messages), "- - - - - - - -");
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
        let bodies: Vec<String> = [3, 6, 7]
            .iter()
            .map(|count| {
                let body = body(ProviderKind::OpenAi, "m", &request("x/m", all[..*count].to_vec(), &["t"]));
                String::from_utf8(body).expect("JSON is text")
            })
            .collect();
        for pair in bodies.windows(2) {
            let prefix = pair[0].strip_suffix("]}").expect("the messages are last");
            assert!(pair[1].starts_with(prefix), "{}\n{}", pair[0], pair[1]);
        }
    }
}
