//! The adapter against a server on loopback. What all protocols share is tested with Chat Completions, beside it.

use std::sync::Arc;

use dsh_seam::llm::{ChunkStream, Llm, ModelRequest};
use dsh_seam::message::{Chunk, ContentBlock, Message, ResultBlock, ToolResult};
use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Reply, Stopped};
use futures::StreamExt;
use serde_json::{Value, json};

use super::super::support::{all, request};
use super::super::{Models, ModelsConfig, ProviderConfig, ProviderKind, Secret};

const KEY: &str = "sk-very-secret";

fn models(server: &ProviderServer) -> Models {
    let provider = ProviderConfig {
        base_url: Some(server.base_url()),
        api_key: Some(Secret::new(KEY)),
        ..ProviderConfig::new("p", ProviderKind::OpenAiResponses)
    };
    Models::new(ModelsConfig { providers: vec![provider], ..ModelsConfig::default() })
}

async fn open(models: &Models, request: Arc<ModelRequest>) -> Result<ChunkStream, dsh_seam::ModelFailure> {
    models.model("p/m").expect("it is configured").stream(request).await
}

fn asked(messages: Vec<Message>) -> Arc<ModelRequest> {
    request("p/m", messages, &["t"])
}

async fn answer(reply: Reply) -> String {
    let server = ProviderServer::start(vec![reply]).await;
    all(open(&models(&server), asked(vec![Message::user_text("hi")])).await).await
}

const TEXT: &str = concat!(
    r#"{"type":"block-start","index":0,"blockType":"text"} {"type":"text-delta","index":0,"text":"häl👍"} "#,
    r#"{"type":"block-end","index":0,"block":{"type":"text","text":"häl👍"}}"#
);

#[tokio::test]
async fn an_answer_comes_the_same_however_it_is_sent() {
    let said = Answer::new().text("häl👍");
    let usage = r#"{"type":"usage","usage":{"input":10,"output":5,"cacheRead":0,"cacheWrite":0,"reasoning":0}}"#;
    let whole = format!("{TEXT} {usage} {}", r#"{"type":"finish","reason":"stop"}"#);
    let reply = || Reply::answer(Protocol::Responses, &said);
    let unstreamed = Reply::status(200, &Protocol::Responses.whole(&said).to_string());
    // Nobody waits for the end of the body, or needs it.
    for reply in [reply(), reply().crlf().bytewise(), unstreamed, reply().stall(), reply().close(), reply().done()] {
        assert_eq!(answer(reply.clone()).await, whole, "{reply:?}");
    }
    let stopped = Answer::new().text("häl👍").usage(None).stopped(Stopped::Length);
    let cut = answer(Reply::answer(Protocol::Responses, &stopped)).await;
    assert_eq!(cut, format!("{TEXT} {}", r#"{"type":"finish","reason":"max-tokens"}"#));
}

#[tokio::test]
async fn a_failure_in_mid_answer_asks_to_wait() {
    let failed = json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}}});
    assert_eq!(
        answer(Reply::events([failed])).await,
        "!rate-limit the provider failed: Please try again in 1.5s. retry=1500"
    );
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
async fn reasoning_travels_back_to_its_provider_as_it_came() {
    let called = Answer::new().reasoning("so", Some("gAAA")).text("I look").call("c", "t", "{}");
    let replies = vec![
        Reply::answer(Protocol::Responses, &called),
        Reply::answer(Protocol::Responses, &Answer::new().text("done")),
    ];
    let server = ProviderServer::start(replies).await;
    let models = models(&server);
    let asked_first = vec![Message::user_text("hi")];
    let answered = message(open(&models, asked(asked_first.clone())).await).await;
    let result =
        ToolResult { call_id: "c".into(), content: vec![ResultBlock::text("r")], is_error: false, cache: None };
    let mut messages = asked_first;
    messages.extend([answered, Message::user(vec![ContentBlock::ToolResult(result)])]);
    message(open(&models, asked(messages)).await).await;
    let received = server.received();
    let bodies: Vec<&str> = received.iter().map(|one| one.body.as_str()).collect();
    let prefix = bodies[0].strip_suffix("]}").expect("the input is last");
    assert!(bodies[1].starts_with(prefix), "{bodies:?}");
    assert_eq!(
        received[1].json()["input"],
        json!([
            {"type": "message", "role": "user", "content": "hi"},
            {"id": "rs_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "gAAA"},
            {"type": "message", "role": "assistant", "content": "I look"},
            {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ])
    );
}

#[tokio::test]
async fn a_request_has_its_place_and_its_key() {
    let server = ProviderServer::start(vec![Reply::answer(Protocol::Responses, &Answer::new().text("x"))]).await;
    all(open(&models(&server), asked(vec![Message::user_text("hi")])).await).await;
    let received = &server.received()[0];
    assert_eq!(received.path, "/v1/responses");
    assert_eq!(received.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert!(!received.body.contains(KEY));
}

#[tokio::test]
async fn texts_to_stop_at_are_refused_before_anything_is_sent() {
    let server = ProviderServer::start(vec![]).await;
    let refused = async |sampling: Value| {
        let mut request = (*asked(vec![])).clone();
        request.sampling = Arc::new(serde_json::from_value(sampling).expect("a sampling"));
        all(open(&models(&server), Arc::new(request)).await).await
    };
    assert_eq!(
        refused(json!({"stop": ["END"]})).await,
        "!invalid-request Responses, which the provider `p` speaks, has no texts to stop at: leave out `stop`, or send it as `extra.stop` to a server that knows it"
    );
    assert_eq!(server.received().len(), 0);
    refused(json!({"extra": {"stop": ["END"]}})).await;
    assert_eq!(server.received()[0].json()["stop"], json!(["END"]));
}

#[tokio::test]
async fn dropping_the_stream_hangs_up() {
    let begun = json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "x"});
    let server = ProviderServer::start(vec![Reply::events([begun]).stall()]).await;
    let mut stream = open(&models(&server), asked(vec![])).await.expect("it answers");
    stream.next().await;
    drop(stream);
    server.hung_up(1).await;
}
