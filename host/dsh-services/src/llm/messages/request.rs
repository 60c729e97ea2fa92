//! The body of a request. The conversation stands last, and nothing in front of what a step adds changes, so that a request begins with
//! the bytes of the one before.
//!
//! Neighbours of one role are one message of the protocol: what is kept of each of ours is its blocks, and the message around them is
//! written when the role changes.

use std::sync::Arc;

use dsh_seam::llm::ModelRequest;
use dsh_seam::message::{ContentBlock, Message, Role};
use dsh_seam::view::ModelMessage;

use super::super::network::Target;
use super::super::network::body::{Body, joined};
use super::super::provider::PromptCache;
use super::blocks;
use super::frame::{frame, prompt_cache, tools};

/// What is written around the text of a message, in bytes, for the first allocation.
const ROOM_PER_MESSAGE: usize = 128;

/// The most marks that a request may have.
const MAX_MARKS: usize = 4;

/// Those that are set by the frame when the cache is looked after here: on the system prompt, and on the end of the conversation.
const OWN_MARKS: usize = 2;

/// What the user is made to say where a conversation begins with the assistant: the protocol wants it the other way round.
const BEGIN: &str = r#"{"role":"user","content":[{"type":"text","text":"[what came before is left out]"}]}"#;

/// What the user is made to say where a conversation ends with the assistant: today's models do not finish other people's sentences.
const GO_ON: &str = r#"{"role":"user","content":[{"type":"text","text":"Go on."}]}"#;

/// The request as Messages wants it.
pub(super) fn body(target: &Target, request: &ModelRequest) -> Vec<u8> {
    let list: Vec<&Arc<ModelMessage>> = request.messages.iter().collect();
    let room = list.iter().map(|message| message.bytes as usize + ROOM_PER_MESSAGE).sum();
    let mut out = Body::sized(frame(target, request), tools(target, request).as_deref(), "messages", room);
    let marks = marks(target, &list);
    let mut writer = Writer { out: &mut out, target, turn: None };
    for (message, hints) in list.into_iter().zip(marks) {
        writer.message(message, hints);
    }
    writer.end();
    out.close()
}

/// How many cache hints of each message are sent: the last ones of all.
fn marks(target: &Target, list: &[&Arc<ModelMessage>]) -> Vec<usize> {
    let mut left = match prompt_cache(target) {
        PromptCache::Auto => MAX_MARKS - OWN_MARKS,
        PromptCache::Hints => MAX_MARKS,
        PromptCache::Off => 0,
    };
    let mut marks = vec![0; list.len()];
    for (at, message) in list.iter().enumerate().rev() {
        if left == 0 {
            break;
        }
        marks[at] = blocks::hints(&message.message).min(left);
        left -= marks[at];
    }
    marks
}

/// Neighbours of one role: their blocks as text, the results of tools before all others.
struct Turn {
    role: Role,
    results: Vec<Arc<str>>,
    rest: Vec<Arc<str>>,
    /// Whether it ends with a block that is nothing to us: the provider goes on from there by itself.
    goes_on: bool,
}

struct Writer<'a> {
    out: &'a mut Body,
    target: &'a Target,
    turn: Option<Turn>,
}

impl Writer<'_> {
    fn message(&mut self, message: &ModelMessage, hints: usize) {
        let role = match message.message.role {
            Role::Assistant => Role::Assistant,
            Role::User | Role::System => Role::User,
        };
        let (results, rest) = self.written(message, hints);
        if results.is_empty() && rest.is_empty() {
            return;
        }
        if self.turn.as_ref().is_none_or(|turn| turn.role != role) {
            self.flush();
            if self.turn.is_none() && role == Role::Assistant {
                self.out.push(BEGIN);
            }
            self.turn = Some(Turn { role, results: Vec::new(), rest: Vec::new(), goes_on: false });
        }
        if let Some(turn) = &mut self.turn {
            turn.results.push(results);
            turn.rest.push(rest);
            turn.goes_on = matches!(message.message.content.last(), Some(ContentBlock::Other(_)));
        }
    }

    /// The results of tools in a message and its other blocks. A message that has one of both and no mark is written alike wherever it
    /// stands, and kept so.
    fn written(&self, message: &ModelMessage, hints: usize) -> (Arc<str>, Arc<str>) {
        let provider = &*self.target.provider.name;
        let results = |message: &Message| joined(&blocks::results(message, hints));
        let rest = |message: &Message| joined(&blocks::rest(message, provider, hints));
        let dialect = &self.target.dialect;
        let answers = message.message.tool_results().count();
        match answers {
            _ if hints > 0 => (results(&message.message).into(), rest(&message.message).into()),
            0 => ("".into(), message.wire(dialect, rest)),
            _ if answers == message.message.content.len() => (message.wire(dialect, results), "".into()),
            _ => (results(&message.message).into(), rest(&message.message).into()),
        }
    }

    /// Writes the turn, and leaves it there as the one before the next.
    fn flush(&mut self) {
        let Some(turn) = &self.turn else { return };
        let open = match turn.role {
            Role::Assistant => r#"{"role":"assistant","content":["#,
            Role::User | Role::System => r#"{"role":"user","content":["#,
        };
        self.out.push(open);
        for written in turn.results.iter().chain(&turn.rest) {
            self.out.push(written);
        }
        self.out.shut("]}");
    }

    fn end(&mut self) {
        self.flush();
        if self.turn.as_ref().is_some_and(|turn| turn.role == Role::Assistant && !turn.goes_on) {
            self.out.push(GO_ON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::provider::{ProviderConfig, ProviderKind, ThinkingForm};
    use super::super::super::support::request;
    use super::*;
    use dsh_seam::message::{
        CacheHint, ImageBlock, ImageSource, ReasoningBlock, ResultBlock, Sampling, TextBlock, ToolCall, ToolResult,
        ToolSchema,
    };
    use serde_json::{Value, json};

    const MODEL: &str = "claude-sonnet-4-6";

    fn target(model: &str, change: impl Fn(&mut ProviderConfig)) -> Target {
        let mut provider = ProviderConfig::new("p", ProviderKind::Anthropic);
        change(&mut provider);
        Target::new(Arc::new(provider), model)
    }

    fn parsed(target: &Target, request: &ModelRequest) -> Value {
        serde_json::from_slice(&body(target, request)).expect("JSON")
    }

    /// The messages that are sent for these.
    fn sent(messages: Vec<Message>) -> Value {
        parsed(&target(MODEL, |_| {}), &request("p/m", messages, &["t"]))["messages"].take()
    }

    fn call(id: &str, arguments: &str) -> ContentBlock {
        ContentBlock::ToolCall(ToolCall { id: id.into(), name: "t".into(), arguments: arguments.into(), opaque: None })
    }

    fn result(id: &str, content: Vec<ResultBlock>, is_error: bool) -> ContentBlock {
        ContentBlock::ToolResult(ToolResult { call_id: id.into(), content, is_error, cache: None })
    }

    fn answered(id: &str) -> Message {
        Message::user(vec![result(id, vec![ResultBlock::text("r")], false)])
    }

    fn thought(text: &str, opaque: Value) -> ContentBlock {
        ContentBlock::Reasoning(ReasoningBlock { text: text.into(), opaque: Some(opaque) })
    }

    fn picture() -> ImageBlock {
        ImageBlock { mime_type: None, source: ImageSource::Data("AA==".into()), cache: None, opaque: None }
    }

    fn hinted(text: &str) -> ContentBlock {
        ContentBlock::Text(TextBlock { text: text.into(), cache: Some(CacheHint::Ephemeral), opaque: None })
    }

    fn text(text: &str) -> Value {
        json!({"type": "text", "text": text})
    }

    fn conversation() -> Vec<Message> {
        vec![
            Message::user_text("old"),
            Message::assistant(vec![
                thought("hm", json!({"provider": "p", "signature": "S"})),
                ContentBlock::text("yes"),
                call("1", "{\"x\":1}"),
                call("2", ""),
            ]),
            answered("1"),
            answered("2"),
            Message::user_text("steered"),
            Message::assistant(vec![ContentBlock::text("done \n")]),
            Message::user(vec![ContentBlock::Image(picture()), ContentBlock::text("z")]),
        ]
    }

    #[test]
    fn messages_are_mapped() {
        let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": [text("r")]});
        let used = |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "t", "input": input});
        let mut request = (*request("p/m", conversation(), &["t"])).clone();
        request.system = "be kind".into();
        assert_eq!(
            parsed(&target(MODEL, |_| {}), &request),
            json!({
                "model": MODEL, "max_tokens": 32_000, "stream": true, "cache_control": {"type": "ephemeral"},
                "system": [{"type": "text", "text": "be kind", "cache_control": {"type": "ephemeral"}}],
                "tools": [{"name": "t", "input_schema": {"type": "object"}}],
                "messages": [
                    {"role": "user", "content": [text("old")]},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "S"}, text("yes"), used("1", json!({"x": 1})), used("2", json!({})),
                    ]},
                    {"role": "user", "content": [result("1"), result("2"), text("steered")]},
                    {"role": "assistant", "content": [text("done")]},
                    {"role": "user", "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}, text("z"),
                    ]},
                ]
            })
        );
    }

    #[test]
    fn a_request_begins_with_the_bytes_of_the_one_before() {
        let messages = conversation();
        let target = target(MODEL, |_| {});
        let bodies: Vec<String> = (1..=messages.len())
            .map(|count| {
                String::from_utf8(body(&target, &request("p/m", messages[..count].to_vec(), &["t"]))).expect("text")
            })
            .collect();
        for pair in bodies.windows(2) {
            // What closes the lists is not there yet, nor is what the user is made to say.
            let before = pair[0].strip_suffix("]}").expect("it is closed");
            let before = before.strip_suffix(GO_ON).map_or(before, |rest| rest.trim_end_matches(','));
            let before = before.strip_suffix("]}").expect("the last message is closed");
            assert!(pair[1].starts_with(before), "{}\n{}", pair[0], pair[1]);
        }
    }

    #[test]
    fn what_is_kept_is_what_would_be_written() {
        let target = target(MODEL, |_| {});
        let kept = request("p/m", conversation(), &["t"]);
        let first = body(&target, &kept);
        assert_eq!(body(&target, &kept), first);
        assert_eq!(body(&target, &request("p/m", conversation(), &["t"])), first);
    }

    #[test]
    fn neighbours_are_one_message_with_results_first() {
        let messages = vec![
            Message::user_text("a"),
            Message::assistant(vec![ContentBlock::text("  ")]),
            Message::user(vec![ContentBlock::text("\n"), ContentBlock::text("b")]),
            Message::assistant(vec![ContentBlock::text("c")]),
            Message::assistant(vec![call("1", "{}")]),
            Message::user(vec![ContentBlock::text("before"), result("1", vec![], false)]),
            Message::user_text("after"),
        ];
        assert_eq!(
            sent(messages),
            json!([
                {"role": "user", "content": [text("a"), text("b")]},
                {"role": "assistant", "content": [text("c"), {"type": "tool_use", "id": "1", "name": "t", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}, text("before"), text("after")]},
            ])
        );
    }

    #[test]
    fn a_conversation_begins_and_ends_with_the_user() {
        let said = |messages: Vec<Message>| {
            let sent = sent(messages);
            let list = sent.as_array().expect("a list").clone();
            list.iter()
                .map(|message| format!("{}:{}", message["role"], message["content"][0]["text"]).replace('"', ""))
                .collect::<Vec<_>>()
        };
        let assistant = |text: &str| Message::assistant(vec![ContentBlock::text(text)]);
        assert_eq!(
            said(vec![assistant("a"), Message::user_text("b")]),
            ["user:[what came before is left out]", "assistant:a", "user:b"]
        );
        assert_eq!(said(vec![Message::user_text("a"), assistant("b")]), ["user:a", "assistant:b", "user:Go on."]);
        assert_eq!(said(vec![]), Vec::<String>::new());
        assert_eq!(said(vec![assistant(" ")]), Vec::<String>::new());
        // The provider itself goes on from a block that is its own.
        let paused = Message::assistant(vec![ContentBlock::Other(
            json!({"type": "provider-item", "opaque": {"provider": "p", "block": {"type": "server_tool_use", "id": "s"}}}),
        )]);
        assert_eq!(said(vec![Message::user_text("a"), paused]), ["user:a", "assistant:null"]);
    }

    #[test]
    fn what_was_kept_goes_back_to_its_provider_only() {
        let block = json!({"type": "web_search_tool_result", "content": []});
        let blocks = |provider: &str| {
            let of = |member: &str, value: Value| json!({"provider": provider, member: value});
            let cited =
                TextBlock { text: "x".into(), cache: None, opaque: Some(of("citations", json!([{"type": "c"}]))) };
            vec![
                Message::user_text("a"),
                Message::assistant(vec![
                    thought("", of("redacted", json!("D"))),
                    thought("no proof", of("signature", json!(""))),
                    ContentBlock::reasoning("no provider"),
                    ContentBlock::Other(json!({"type": "provider-item", "opaque": of("block", block.clone())})),
                    ContentBlock::Text(cited),
                    thought("last", of("signature", json!("S"))),
                ]),
                Message::user_text("b"),
            ]
        };
        assert_eq!(
            sent(blocks("p"))[1]["content"],
            json!([
                {"type": "redacted_thinking", "data": "D"},
                {"type": "thinking", "thinking": "no proof", "signature": ""},
                block,
                {"type": "text", "text": "x", "citations": [{"type": "c"}]},
            ])
        );
        assert_eq!(sent(blocks("another"))[1]["content"], json!([text("x")]));
    }

    #[test]
    fn blocks_of_others_pass_through() {
        let document = json!({"type": "document", "source": {"type": "text", "data": "x"}});
        let messages = vec![Message::user(vec![ContentBlock::Other(document.clone())])];
        assert_eq!(sent(messages)[0]["content"], json!([document]));
    }

    #[test]
    fn results_are_what_the_server_takes() {
        let content = |content: Vec<ResultBlock>, is_error: bool| {
            let messages = vec![
                Message::user_text("a"),
                Message::assistant(vec![call("1", "{}")]),
                Message::user(vec![result("1", content, is_error)]),
            ];
            let mut block = sent(messages)[2]["content"][0].take();
            (block["content"].take(), block["is_error"].take())
        };
        let url = |url: &str| {
            ResultBlock::Image(ImageBlock {
                mime_type: None,
                source: ImageSource::Url(url.into()),
                cache: None,
                opaque: None,
            })
        };
        let at = |url: &str| json!({"type": "image", "source": {"type": "url", "url": url}});
        assert_eq!(content(vec![], false), (Value::Null, Value::Null));
        assert_eq!(content(vec![ResultBlock::text(" ")], false), (Value::Null, Value::Null));
        assert_eq!(content(vec![], true), (json!([text("the tool failed and said nothing")]), json!(true)));
        assert_eq!(content(vec![ResultBlock::text("x")], true), (json!([text("x")]), json!(true)));
        assert_eq!(
            content(vec![ResultBlock::text("x"), url("https://x/y.png")], true),
            (json!([text("x"), at("https://x/y.png")]), Value::Null)
        );
        assert_eq!(
            content(vec![url("data:image/gif;base64,R0=")], false).0,
            json!([{"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0="}}])
        );
        let other = json!({"type": "search_result", "source": "x"});
        assert_eq!(content(vec![ResultBlock::Other(other.clone())], false).0, json!([other]));
    }

    #[test]
    fn ids_and_arguments_are_what_the_server_takes() {
        let used = |id: &str, arguments: &str| {
            let messages = vec![Message::user_text("a"), Message::assistant(vec![call(id, arguments)]), answered(id)];
            let sent = sent(messages);
            let block = &sent[1]["content"][0];
            assert_eq!(block["id"], sent[2]["content"][0]["tool_use_id"]);
            (block["id"].clone(), block["input"].clone())
        };
        assert_eq!(used("toolu_01-A", "{\"b\": [1.50]}"), (json!("toolu_01-A"), json!({"b": [1.5]})));
        assert_eq!(used("functions.t:0", "").0, json!("functions_2e_t_3a_0"));
        assert_eq!(used("ä", " ").0, json!("_e4_"));
        assert_eq!(used("1", "{\"a\": ").1, json!({"invalid": "{\"a\": "}));
        assert_eq!(used("1", "[1]").1, json!({"invalid": "[1]"}));
    }

    #[test]
    fn the_last_hints_are_sent() {
        let many = vec![
            Message::user(vec![hinted("1"), hinted("2"), hinted("  ")]),
            Message::assistant(vec![hinted("3"), call("c", "{}")]),
            Message::user(vec![ContentBlock::ToolResult(ToolResult {
                call_id: "c".into(),
                content: vec![],
                is_error: false,
                cache: Some(CacheHint::Ephemeral),
            })]),
            Message::user(vec![
                ContentBlock::Image(ImageBlock { cache: Some(CacheHint::Ephemeral), ..picture() }),
                ContentBlock::text("end"),
            ]),
        ];
        let marked = |cache: Option<PromptCache>| {
            let target = target(MODEL, |provider| provider.every_model.prompt_cache = cache);
            let mut request = (*request("p/m", many.clone(), &["t"])).clone();
            request.system = "s".into();
            let body = parsed(&target, &request);
            let blocks = body["messages"]
                .as_array()
                .expect("a list")
                .iter()
                .flat_map(|message| message["content"].as_array().expect("a list"));
            let marks: String =
                blocks.map(|block| if block.get("cache_control").is_some() { 'x' } else { '-' }).collect();
            (body.get("cache_control").is_some(), body["system"][0].get("cache_control").is_some(), marks)
        };
        assert_eq!(marked(None), (true, true, "----xx-".into()));
        assert_eq!(marked(Some(PromptCache::Hints)), (false, false, "-xx-xx-".into()));
        assert_eq!(marked(Some(PromptCache::Off)), (false, false, "-------".into()));
    }

    /// What `sampling` makes of the frame of a model.
    fn framed(model: &str, sampling: Value, change: impl Fn(&mut ProviderConfig)) -> Value {
        let mut request = (*request("p/m", vec![Message::user_text("a")], &["t"])).clone();
        request.sampling = Arc::new(serde_json::from_value::<Sampling>(sampling).expect("a sampling"));
        let mut body = parsed(&target(model, change), &request);
        let members = body.as_object_mut().expect("an object");
        for usual in ["model", "stream", "cache_control", "tools", "messages"] {
            members.remove(usual);
        }
        body
    }

    #[test]
    fn sampling_is_mapped() {
        let check = |sampling: Value, expect: Value| assert_eq!(framed(MODEL, sampling, |_| {}), expect);
        check(json!({}), json!({"max_tokens": 32_000}));
        check(
            json!({"maxTokens": 9, "temperature": 0.5, "stop": ["END", " "]}),
            json!({"max_tokens": 9, "temperature": 0.5, "stop_sequences": ["END"]}),
        );
        check(json!({"toolChoice": "auto"}), json!({"max_tokens": 32_000, "tool_choice": {"type": "auto"}}));
        check(json!({"toolChoice": "none"}), json!({"max_tokens": 32_000, "tool_choice": {"type": "none"}}));
        check(json!({"toolChoice": "required"}), json!({"max_tokens": 32_000, "tool_choice": {"type": "any"}}));
        check(json!({"toolChoice": "t"}), json!({"max_tokens": 32_000, "tool_choice": {"type": "tool", "name": "t"}}));
        check(
            json!({"extra": {"top_k": 3, "stream": false, "system": "x"}}),
            json!({"max_tokens": 32_000, "top_k": 3}),
        );
        let schema = json!({"type": "object"});
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}});
        let asked = json!({"type": "json_schema", "schema": schema});
        check(
            json!({"extra": {"response_format": format}}),
            json!({"max_tokens": 32_000, "output_config": {"format": asked}}),
        );
        check(
            json!({"reasoningEffort": "low", "extra": {"response_format": format, "output_config": {"effort": "max"}, "thinking": null}}),
            json!({"max_tokens": 32_000, "output_config": {"effort": "max", "format": asked}}),
        );
        check(json!({"extra": {"response_format": {"type": "json_object"}}}), json!({"max_tokens": 32_000}));
        let known = framed(MODEL, json!({"extra": {"top_k": 1}}), |provider| {
            provider.every_model.max_output_tokens = Some(77);
            provider.every_model.omit = vec!["top_k".into(), "max_tokens".into(), "model".into()];
        });
        assert_eq!(known, json!({}));
    }

    #[test]
    fn thinking_is_asked_for_in_the_form_of_the_model() {
        let adaptive = json!({"type": "adaptive", "display": "summarized"});
        let check = |model: &str, sampling: Value, thinking: Value, effort: Value| {
            let framed = framed(model, sampling, |_| {});
            assert_eq!((&framed["thinking"], &framed["output_config"]["effort"]), (&thinking, &effort), "{model}");
        };
        let effort = |effort: &str| json!({"reasoningEffort": effort});
        let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
        for model in [
            "claude-opus-4-6",
            "claude-sonnet-4.6",
            "anthropic/claude-opus-4.8",
            "claude-opus-5",
            "us.anthropic.claude-sonnet-5-v1:0",
        ] {
            check(model, effort("high"), adaptive.clone(), json!("high"));
        }
        check(MODEL, json!({}), Value::Null, Value::Null);
        check(MODEL, effort("minimal"), adaptive.clone(), json!("low"));
        check(MODEL, effort("none"), json!({"type": "disabled"}), Value::Null);
        for model in [
            "claude-haiku-4-5-20251001",
            "claude-opus-4-1",
            "claude-sonnet-4",
            "claude-sonnet-4-20250514",
            "claude-3-7-sonnet-latest",
            "claude-opus-4@20250514",
            "kimi-k2",
        ] {
            check(model, effort("low"), budget(4096), Value::Null);
        }
        check("kimi-k2", effort("minimal"), budget(1024), Value::Null);
        check("kimi-k2", effort("max"), budget(24_000), Value::Null);
        check("kimi-k2", json!({"reasoningEffort": "high", "maxTokens": 4000}), budget(3000), Value::Null);
        check("kimi-k2", json!({"reasoningEffort": "high", "maxTokens": 1100}), Value::Null, Value::Null);
        // A tool that must be called leaves no room for thoughts.
        check(MODEL, json!({"reasoningEffort": "high", "toolChoice": "required"}), Value::Null, json!("high"));
        check(MODEL, json!({"reasoningEffort": "high", "toolChoice": "auto"}), adaptive, json!("high"));
        let told =
            framed("kimi-k2", effort("high"), |provider| provider.every_model.thinking = Some(ThinkingForm::Adaptive));
        assert_eq!(told["output_config"]["effort"], "high");
        // A model that thinks has its own temperature.
        let with = |extra: Value| {
            framed(MODEL, json!({"reasoningEffort": "low", "temperature": 0.0, "extra": extra}), |_| {})["temperature"]
                .take()
        };
        assert_eq!(with(json!({})), Value::Null);
        assert_eq!(with(json!({"thinking": {"type": "disabled"}})), json!(0.0));
        assert_eq!(with(json!({"temperature": 1})), json!(1));
    }

    #[test]
    fn a_round_that_began_without_thoughts_goes_on_without() {
        let thinks = |first: ContentBlock, spoken: bool| {
            let mut messages =
                vec![Message::user_text("a"), Message::assistant(vec![first, call("1", "{}")]), answered("1")];
            if spoken {
                messages.push(Message::user_text("b"));
            }
            let mut request = (*request("p/m", messages, &["t"])).clone();
            request.sampling = Arc::new(Sampling { reasoning_effort: Some("low".into()), ..Sampling::default() });
            parsed(&target("claude-haiku-4-5", |_| {}), &request).get("thinking").is_some()
        };
        let of = |provider: &str| thought("hm", json!({"provider": provider, "signature": "S"}));
        assert!(thinks(of("p"), false));
        assert!(!thinks(of("another"), false));
        assert!(!thinks(ContentBlock::text("x"), false));
        assert!(thinks(ContentBlock::text("x"), true));
    }

    #[test]
    fn tools_are_mapped() {
        let mut request = (*request("p/m", vec![Message::user_text("a")], &["t"])).clone();
        let tool = ToolSchema {
            description: "d".into(),
            parameters: json!({}),
            strict: Some(true),
            ..request.tools[0].clone()
        };
        request.tools =
            vec![tool.clone(), ToolSchema { strict: Some(false), description: String::new(), ..tool }].into();
        let tools = |omit: &[&str]| {
            let target = target(MODEL, |provider| {
                provider.every_model.omit = omit.iter().map(|name| (*name).to_owned()).collect()
            });
            parsed(&target, &request)["tools"].take()
        };
        let plain = json!({"name": "t", "input_schema": {"type": "object"}});
        let mut strict = json!({"name": "t", "description": "d", "input_schema": {"type": "object"}, "strict": true});
        assert_eq!(tools(&[]), json!([strict, plain]));
        strict.as_object_mut().expect("an object").remove("strict");
        assert_eq!(tools(&["strict"]), json!([strict, plain]));
    }

    #[test]
    fn without_tools_those_that_were_called_are_named() {
        let messages = vec![
            Message::user_text("a"),
            Message::assistant(vec![call("1", "{}"), call("2", "{}")]),
            answered("1"),
            answered("2"),
        ];
        let body = parsed(&target(MODEL, |_| {}), &request("p/m", messages, &[]));
        assert_eq!(body["tools"], json!([{"name": "t", "input_schema": {"type": "object"}}]));
        assert_eq!(body["tool_choice"], json!({"type": "none"}));
        let none = parsed(&target(MODEL, |_| {}), &request("p/m", vec![Message::user_text("a")], &[]));
        assert_eq!((none.get("tools"), none.get("tool_choice")), (None, None));
    }
}
