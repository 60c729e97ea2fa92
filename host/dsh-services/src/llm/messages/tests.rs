//! The adapter against a server on loopback. What all protocols share is tested with Chat Completions, beside it.

use std::sync::Arc;

use dsh_seam::llm::{ChunkStream, Llm, ModelRequest};
use dsh_seam::message::{Chunk, ContentBlock, Message, ResultBlock, ToolResult};
use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Reply, Stage, Stopped};
use futures::StreamExt;
use serde_json::json;

use super::super::support::{all, request};
use super::super::{Models, ModelsConfig, ProviderConfig, ProviderKind, Secret};

const KEY: &str = "sk-ant-very-secret";

/// `p`, where the server is, and `q`, another name for the same one.
fn models(base_url: &str) -> Models {
    let provider = |name: &str| ProviderConfig {
        base_url: Some(base_url.to_owned()),
        api_key: Some(Secret::new(KEY)),
        ..ProviderConfig::new(name, ProviderKind::Anthropic)
    };
    Models::new(ModelsConfig { providers: vec![provider("p"), provider("q")], ..ModelsConfig::default() })
}

async fn open(models: &Models, request: Arc<ModelRequest>) -> Result<ChunkStream, dsh_seam::ModelFailure> {
    models.model(&request.model).expect("it is configured").stream(request).await
}

fn asked(messages: Vec<Message>) -> Arc<ModelRequest> {
    request("p/m", messages, &["t"])
}

async fn answer(reply: Reply) -> String {
    let server = ProviderServer::start(vec![reply]).await;
    all(open(&models(&server.base_url()), asked(vec![Message::user_text("hi")])).await).await
}

const TEXT: &str = concat!(
    r#"{"type":"block-start","index":0,"blockType":"text"} {"type":"text-delta","index":0,"text":"häl👍"} "#,
    r#"{"type":"block-end","index":0,"block":{"type":"text","text":"häl👍"}}"#
);

fn finish(reason: &str) -> String {
    format!(r#"{{"type":"finish","reason":"{reason}"}}"#)
}

#[tokio::test]
async fn an_answer_comes_the_same_however_it_is_sent() {
    let said = Answer::new().text("häl👍").usage(None);
    let whole = format!("{TEXT} {}", finish("stop"));
    let reply = || Reply::answer(Protocol::Messages, &said);
    let unstreamed = Reply::status(200, &Protocol::Messages.whole(&said).to_string());
    // Nobody waits for the end of the body, or needs it.
    for reply in [reply(), reply().crlf().bytewise(), unstreamed, reply().stall(), reply().close(), reply().done()] {
        assert_eq!(answer(reply.clone()).await, whole, "{reply:?}");
    }
    // The reason to stop has come: the answer is whole.
    let stopped = Reply::until(Protocol::Messages, &said, Stage::Last);
    assert_eq!(answer(stopped.close()).await, whole);
    let cut = answer(Reply::answer(Protocol::Messages, &said.stopped(Stopped::Length))).await;
    assert_eq!(cut, format!("{TEXT} {}", finish("max-tokens")));
}

#[tokio::test]
async fn what_was_counted_is_known_before_the_answer_is_over() {
    let said = Answer::new().text("häl👍");
    let begun = answer(Reply::until(Protocol::Messages, &said, Stage::Close)).await;
    assert!(begun.starts_with(r#"{"type":"usage","usage":{"input":10,"output":1,"#), "{begun}");
    assert!(!begun.contains("block-end"), "a body that ends closes nothing: {begun}");
}

#[tokio::test]
async fn failures_have_codes() {
    let check = async |reply: Reply, expect: &str| assert_eq!(answer(reply.clone()).await, expect, "{reply:?}");
    let refused =
        |status: u16, kind: &str, message: &str| Reply::status(status, &Protocol::Messages.error_body(kind, message));
    let shown = |code: &str, status: u16, message: &str| {
        format!("!{code} the provider answered with status {status}: {message} status={status}")
    };
    for (status, kind, code) in [
        (400, "invalid_request_error", "invalid-request"),
        (402, "billing_error", "quota"),
        (413, "request_too_large", "context-window-exceeded"),
        (429, "rate_limit_error", "rate-limit"),
        (500, "api_error", "server"),
        (529, "overloaded_error", "server"),
    ] {
        check(refused(status, kind, "no"), &shown(code, status, "no")).await;
    }
    let long = "prompt is too long: 205000 tokens > 200000 maximum";
    check(refused(400, "invalid_request_error", long), &shown("context-window-exceeded", 400, long)).await;
    let with_output = "input length and `max_tokens` exceed context limit: 199000 + 32000 > 200000";
    check(refused(400, "invalid_request_error", with_output), &shown("context-window-exceeded", 400, with_output))
        .await;
    let poor = "Your credit balance is too low to access the Anthropic API.";
    check(refused(400, "invalid_request_error", poor), &shown("quota", 400, poor)).await;
    check(
        refused(429, "rate_limit_error", "slow down").header("retry-after", "2"),
        "!rate-limit the provider answered with status 429: slow down status=429 retry=2000",
    )
    .await;
    let code = async |reply: Reply| {
        let shown = answer(reply).await;
        shown.split(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(code(refused(401, "authentication_error", "invalid x-api-key")).await, "!auth");
    assert_eq!(code(refused(403, "permission_error", "no")).await, "!auth");
    assert_eq!(code(refused(404, "not_found_error", "model: m")).await, "!invalid-request");
    let begun = Reply::until(Protocol::Messages, &Answer::new().text("häl👍").usage(None), Stage::Close);
    let broken = answer(begun.and(&[Protocol::Messages.error_event("overloaded_error", "Overloaded")])).await;
    assert!(broken.ends_with("!server the provider failed: Overloaded"), "{broken}");
}

#[tokio::test]
async fn dropping_the_stream_hangs_up() {
    let begun = Reply::until(Protocol::Messages, &Answer::new().text("x"), Stage::Close);
    let server = ProviderServer::start(vec![begun.stall()]).await;
    let models = models(&server.base_url());
    let mut stream = open(&models, asked(vec![Message::user_text("hi")])).await.expect("it answers");
    stream.next().await;
    drop(stream);
    server.hung_up(1).await;
}

/// The message that a stream makes, as the loop puts it together.
async fn message(stream: Result<ChunkStream, dsh_seam::ModelFailure>) -> Message {
    let chunks: Vec<Chunk> = stream.expect("it answers").map(|item| item.expect("no failure")).collect().await;
    let blocks = chunks.into_iter().filter_map(|chunk| match chunk {
        Chunk::BlockEnd { block, .. } => Some(block),
        _ => None,
    });
    Message::assistant(blocks.collect())
}

#[tokio::test]
async fn thoughts_travel_back_to_their_provider_as_they_came() {
    let called = Answer::new().reasoning("so", Some("EqQB")).text("I look").call("toolu_1", "t", "{}");
    let done = Answer::new().text("done");
    let replies = [&called, &done, &done].map(|said| Reply::answer(Protocol::Messages, said));
    let server = ProviderServer::start(replies.into()).await;
    let models = models(&server.base_url());
    let hi = Message::user_text("hi");
    let said = message(open(&models, asked(vec![hi.clone()])).await).await;
    let result =
        ToolResult { call_id: "toolu_1".into(), content: vec![ResultBlock::text("r")], is_error: false, cache: None };
    let messages = vec![hi, said, Message::user(vec![ContentBlock::ToolResult(result)])];
    all(open(&models, asked(messages.clone())).await).await;
    all(open(&models, request("q/m", messages, &["t"])).await).await;
    let sent: Vec<_> =
        server.received().iter().map(|received| received.json()["messages"][1]["content"].clone()).collect();
    let text = json!({"type": "text", "text": "I look"});
    let used = json!({"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}});
    assert_eq!(sent[1], json!([{"type": "thinking", "thinking": "so", "signature": "EqQB"}, text, used]));
    assert_eq!(sent[2], json!([text, used]));
}

#[tokio::test]
async fn a_request_has_its_headers_and_the_key_is_in_one_of_them_only() {
    let said = Reply::answer(Protocol::Messages, &Answer::new().text("x"));
    let server = ProviderServer::start(vec![said.clone(), said]).await;
    // With the version in the address, and without.
    let base = server.base_url();
    for base in [&*base, base.strip_suffix("/v1").expect("it names the version")] {
        all(open(&models(base), request("p/m", vec![Message::user_text("hi")], &[])).await).await;
    }
    for received in server.received() {
        assert_eq!(received.path, "/v1/messages");
        assert_eq!(received.header("x-api-key"), Some(KEY));
        assert_eq!(received.header("anthropic-version"), Some("2023-06-01"));
        assert_eq!(received.header("authorization"), None);
        assert_eq!(
            received.body,
            r#"{"model":"m","max_tokens":32000,"stream":true,"cache_control":{"type":"ephemeral"},"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#
        );
        let elsewhere = received.headers.iter().filter(|(name, value)| name != "x-api-key" && value.contains(KEY));
        assert_eq!((elsewhere.count(), received.body.contains(KEY)), (0, false));
    }
}
