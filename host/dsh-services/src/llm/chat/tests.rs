//! The adapter against a server on loopback that misbehaves in every way we know of.

use dsh_seam::llm::{ChunkStream, Llm};
use dsh_seam::message::{ContentBlock, Message, ResultBlock, ToolCall, ToolResult};
use dsh_testkit::chat_server::{ChatServer, Reply, delta, finish, usage};
use futures::StreamExt;
use serde_json::json;

use super::super::support::{all, request};
use super::super::{Models, ModelsConfig, ProviderConfig, ProviderKind, Secret};

const KEY: &str = "sk-very-secret";

/// Where nothing comes at all.
const SHORT_MS: u64 = 60;

/// Where something must come first: long enough for a loaded machine, short enough to wait for.
const LONG_MS: u64 = 800;

fn models(server: &ChatServer, change: impl Fn(&mut ProviderConfig)) -> Models {
    let mut provider = ProviderConfig {
        base_url: Some(server.base_url()),
        api_key: Some(Secret::new(KEY)),
        ..ProviderConfig::new("local", ProviderKind::Compatible)
    };
    change(&mut provider);
    Models::new(ModelsConfig { providers: vec![provider], ..ModelsConfig::default() })
}

async fn open(models: &Models) -> Result<ChunkStream, dsh_seam::ModelFailure> {
    let model = models.model("local/some-model").expect("it is configured");
    model.stream(request("local/some-model", vec![Message::user_text("hi")], &[])).await
}

async fn answer(reply: Reply) -> String {
    let server = ChatServer::start(vec![reply]).await;
    all(open(&models(&server, |_| {})).await).await.replace(&server.base_url(), "SERVER")
}

async fn check(reply: Reply, expect: &[&str]) {
    assert_eq!(answer(reply.clone()).await, expect.join(" "), "{reply:?}");
}

const START: &str = r#"{"type":"block-start","index":0,"blockType":"text"}"#;
const STOP: &str = r#"{"type":"finish","reason":"stop"}"#;
const USAGE: &str = r#"{"type":"usage","usage":{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"reasoning":0}}"#;
const TEXT: &str = r#"{"type":"text-delta","index":0,"text":"häl👍"}"#;
const END: &str = r#"{"type":"block-end","index":0,"block":{"type":"text","text":"häl👍"}}"#;

#[tokio::test]
async fn an_answer_comes_the_same_however_it_is_sent() {
    let whole = [START, TEXT, END, USAGE, STOP];
    check(Reply::text("häl👍"), &whole).await;
    check(Reply::text("häl👍").crlf(), &whole).await;
    check(Reply::text("häl👍").bytewise(), &whole).await;
    check(Reply::text("häl👍").crlf().bytewise(), &whole).await;
    let comments = Reply::stream().bytes(b": hello\n\n\xef").bytes(b"").data([delta(json!({ "content": "x" }))]);
    assert!(answer(comments).await.starts_with("!malformed-response"));
    check(
        Reply::stream()
            .bytes(b": keep-alive\n\n")
            .data([delta(json!({ "content": "häl👍" })), finish("stop")])
            .bytes(b": bye\n\n")
            .data([usage(10, 5)])
            .done(),
        &whole,
    )
    .await;
    // A server that does not stream.
    let body = json!({ "choices": [{ "index": 0, "message": { "role": "assistant", "content": "häl👍" }, "finish_reason": "stop" }], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } });
    check(Reply::status(200, &body.to_string()), &whole).await;
    // After `[DONE]` nobody waits for the end of the body.
    check(Reply::text("häl👍").stall(), &whole).await;
}

#[tokio::test]
async fn a_body_that_ends_early_leaves_its_blocks_open() {
    let text = delta(json!({ "content": "häl👍" }));
    check(Reply::events([text.clone()]), &[START, TEXT]).await;
    check(Reply::events([text.clone(), finish("stop")]), &[START, TEXT, END, STOP]).await;
    check(Reply::events([text.clone()]).bytes(b"data: {\"choices\":[{\"del"), &[START, TEXT]).await;
    let broken = answer(Reply::events([text.clone()]).close()).await;
    assert!(broken.starts_with(&format!("{START} {TEXT} !transport the connection broke: ")), "{broken}");
    let reset = answer(Reply::events([text.clone()]).reset()).await;
    assert!(reset.contains("!transport "), "{reset}");
    // The provider had said that the answer is whole.
    check(Reply::events([text, finish("stop")]).close(), &[START, TEXT, END, STOP]).await;
}

#[tokio::test]
async fn failures_have_codes() {
    let body = |message: &str| json!({ "error": { "message": message } }).to_string();
    check(
        Reply::status(429, &body("slow down")).header("retry-after", "2"),
        &["!rate-limit the provider answered with status 429: slow down status=429 retry=2000"],
    )
    .await;
    check(Reply::status(500, &body("oops")), &["!server the provider answered with status 500: oops status=500"]).await;
    check(
        Reply::status(401, &body(&format!("wrong key {KEY}!"))),
        &["!auth the key of the provider `local` was refused (POST SERVER/chat/completions): the provider answered with status 401: wrong key ***! status=401"],
    )
    .await;
    check(
        Reply::status(307, "").header("location", "http://127.0.0.1:1/"),
        &["!invalid-request the provider `local` has moved, and redirects are not followed: status 307 to http://127.0.0.1:1, asked by POST SERVER/chat/completions; `base-url` usually looks like `http://127.0.0.1:8080/v1` status=307"],
    )
    .await;
    check(Reply::stream(), &["!empty-response the provider answered with nothing"]).await;
    check(Reply::status(200, ""), &["!empty-response the provider answered with nothing"]).await;
    check(Reply::status(200, &body("busy")), &["!server the provider failed: busy"]).await;
    let text = delta(json!({ "content": "häl👍" }));
    check(
        Reply::events([text.clone(), json!({ "error": { "message": "gone", "code": 503 } })]),
        &[START, TEXT, "!server the provider failed: gone status=503"],
    )
    .await;
    let malformed =
        "!malformed-response the provider sent a piece that is not valid JSON: key must be a string at line 1 column 2";
    check(Reply::events([text]).data(["{x"]).done(), &[START, TEXT, malformed]).await;
    let reset = answer(Reply::reset_before()).await;
    assert!(reset.starts_with("!transport the request could not be sent: "), "{reset}");
}

#[tokio::test]
async fn nobody_listens() {
    // A port that is taken, so that no other test comes to listen there, and on which nobody listens.
    let taken = tokio::net::TcpSocket::new_v4().expect("a socket");
    taken.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let base_url = format!("http://{}/v1", taken.local_addr().expect("an address"));
    let server = ChatServer::start(vec![]).await;
    let models = models(&server, |provider| provider.base_url = Some(base_url.clone()));
    let failed = all(open(&models).await).await;
    assert!(
        failed.starts_with("!transport the provider `local` cannot be reached at http://127.0.0.1:")
            && failed
                .ends_with(": the connection was refused; is the server running, and is the port of `base-url` right?"),
        "{failed}"
    );
}

#[tokio::test]
async fn every_wait_has_its_end() {
    let check = async |reply: Reply, change: fn(&mut ProviderConfig), expect: &str| {
        let server = ChatServer::start(vec![reply]).await;
        assert_eq!(all(open(&models(&server, change)).await).await, expect);
        server.hung_up(1).await;
    };
    let text = || Reply::events([delta(json!({ "content": "häl👍" }))]).stall();
    let first = "!timeout no answer began within 60 ms (`first-byte-timeout-ms`)";
    check(Reply::stall_before(), |p| p.first_byte_timeout_ms = SHORT_MS, first).await;
    check(Reply::stream().stall(), |p| p.first_byte_timeout_ms = SHORT_MS, first).await;
    check(
        text(),
        |p| p.idle_timeout_ms = LONG_MS,
        &format!("{START} {TEXT} !timeout the answer stood still for 800 ms (`idle-timeout-ms`)"),
    )
    .await;
    check(
        text(),
        |p| p.total_timeout_ms = LONG_MS,
        &format!("{START} {TEXT} !timeout the answer took longer than 800 ms (`total-timeout-ms`)"),
    )
    .await;
}

#[tokio::test]
async fn dropping_the_stream_hangs_up() {
    let server = ChatServer::start(vec![Reply::events([delta(json!({ "content": "x" }))]).stall()]).await;
    let models = models(&server, |_| {});
    let mut stream = open(&models).await.expect("it answers");
    stream.next().await;
    drop(stream);
    server.hung_up(1).await;
}

#[tokio::test]
async fn a_request_has_its_headers_and_the_key_is_in_one_of_them_only() {
    let server = ChatServer::start(vec![Reply::tool_call("c", "t", "{}"), Reply::text("x"), Reply::text("y")]).await;
    let models = models(&server, |_| {});
    all(open(&models).await).await;
    let call =
        ContentBlock::ToolCall(ToolCall { id: "c".into(), name: "t".into(), arguments: "{}".into(), opaque: None });
    let result =
        ToolResult { call_id: "c".into(), content: vec![ResultBlock::text("r")], is_error: false, cache: None };
    let messages = vec![
        Message::user_text("hi"),
        Message::assistant(vec![call]),
        Message::user(vec![ContentBlock::ToolResult(result)]),
    ];
    let model = models.model("local/some-model").expect("it is configured");
    all(model.stream(request("local/some-model", messages.clone(), &["t"])).await).await;
    let parted = all(model.stream(request("local/some-model", messages[..2].to_vec(), &[])).await).await;
    assert!(parted.starts_with("!invalid-request"), "the server is strict: {parted}");
    let received = server.received();
    let headers = |name: &str| received[0].header(name).map(str::to_owned);
    assert_eq!(received[0].path, "/v1/chat/completions");
    assert_eq!(headers("authorization"), Some(format!("Bearer {KEY}")));
    assert_eq!(headers("user-agent"), Some(concat!("dsh-host/", env!("CARGO_PKG_VERSION")).into()));
    assert_eq!(
        received[0].body,
        r#"{"model":"some-model","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}"#
    );
    assert_eq!(received[1].json()["messages"][2], json!({ "role": "tool", "tool_call_id": "c", "content": "r" }));
    for one in &received {
        let elsewhere =
            one.headers.iter().filter(|(name, value)| name != "authorization" && value.contains(KEY)).count();
        assert_eq!((elsewhere, one.body.contains(KEY)), (0, false));
    }
}

#[tokio::test]
async fn without_a_key_there_is_no_header() {
    let server = ChatServer::start(vec![Reply::text("x")]).await;
    all(open(&models(&server, |provider| provider.api_key = None)).await).await;
    assert_eq!(server.received()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_key_in_the_place_of_an_encoding_is_not_shown() {
    let failed = |encoding: &'static str| async move {
        let server = ChatServer::start(vec![Reply::text("x").header("content-encoding", encoding)]).await;
        all(open(&models(&server, |_| {})).await).await
    };
    let expect =
        |what: &str| format!("!malformed-response the provider sent an answer in {what}, which was not asked for");
    assert_eq!(failed(KEY).await, expect("an unknown encoding"));
    assert_eq!(failed("br").await, expect("the encoding `br`"));
}
