//! A server of Chat Completions on loopback that does what it is told, faults included, and keeps what it was asked.
//!
//! The n-th request gets the n-th [`Reply`]; after the last, requests are answered with status 500. A request whose tool calls and
//! results do not stand together is answered with status 400, as a strict provider would.
//!
//! ```no_run
//! # async fn example() {
//! use dsh_testkit::chat_server::{ChatServer, Reply};
//! let server = ChatServer::start(vec![Reply::status(429, "{}").header("retry-after", "1"), Reply::text("hello")]).await;
//! let base_url = server.base_url(); // http://127.0.0.1:PORT/v1
//! # }
//! ```

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The most that a request may hold; a test never comes near.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// For example `/v1/chat/completions`.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Received {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// What the server does with a connection, one after the other.
#[derive(Debug, Clone)]
enum Part {
    /// Sends bytes in a packet of their own, as far as that can be had.
    Bytes(Vec<u8>),
    /// Sends nothing more and waits until the client hangs up.
    Stall,
    /// Resets the connection.
    Reset,
    /// Closes the connection in the middle of the body.
    Close,
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// None: not even a head is sent.
    status: Option<u16>,
    headers: Vec<(String, String)>,
    parts: Vec<Part>,
}

impl Reply {
    /// A stream of events with these data, without `[DONE]`.
    pub fn events<T: ToString>(data: impl IntoIterator<Item = T>) -> Self {
        Self::stream().data(data)
    }

    /// A stream with one text, its finish, its usage and `[DONE]`.
    pub fn text(text: &str) -> Self {
        Self::events([delta(json!({ "role": "assistant", "content": text })), finish("stop"), usage(10, 5)]).done()
    }

    /// A stream with one tool call.
    pub fn tool_call(id: &str, name: &str, arguments: &str) -> Self {
        let call =
            json!({ "index": 0, "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        Self::events([delta(json!({ "role": "assistant", "tool_calls": [call] })), finish("tool_calls"), usage(10, 5)])
            .done()
    }

    /// A stream that has no event yet.
    pub fn stream() -> Self {
        Self { status: Some(200), headers: vec![], parts: vec![] }.header("content-type", "text/event-stream")
    }

    /// A status with a JSON body.
    pub fn status(status: u16, body: &str) -> Self {
        let reply = Self { status: Some(status), headers: vec![], parts: vec![] };
        reply.header("content-type", "application/json").bytes(body.as_bytes())
    }

    /// No answer: the connection is reset.
    pub fn reset_before() -> Self {
        Self { status: None, headers: vec![], parts: vec![Part::Reset] }
    }

    /// No answer: the server waits until the client hangs up.
    pub fn stall_before() -> Self {
        Self { status: None, headers: vec![], parts: vec![Part::Stall] }
    }

    /// One more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// More events.
    #[must_use]
    pub fn data<T: ToString>(self, data: impl IntoIterator<Item = T>) -> Self {
        data.into_iter().fold(self, |reply, data| reply.bytes(format!("data: {}\n\n", data.to_string()).as_bytes()))
    }

    /// The event `[DONE]`.
    #[must_use]
    pub fn done(self) -> Self {
        self.data(["[DONE]"])
    }

    /// More bytes, as they are.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.part(Part::Bytes(bytes.to_vec()))
    }

    /// From here on nothing comes.
    #[must_use]
    pub fn stall(self) -> Self {
        self.part(Part::Stall)
    }

    /// Here the connection is reset.
    #[must_use]
    pub fn reset(self) -> Self {
        self.part(Part::Reset)
    }

    /// Here the connection is closed in the middle of the body.
    #[must_use]
    pub fn close(self) -> Self {
        self.part(Part::Close)
    }

    /// All bytes so far with `\r\n` for `\n`.
    #[must_use]
    pub fn crlf(self) -> Self {
        self.map(|bytes| vec![String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes()])
    }

    /// All bytes so far one at a time, so that characters and line ends are cut.
    #[must_use]
    pub fn bytewise(self) -> Self {
        self.map(|bytes| bytes.into_iter().map(|byte| vec![byte]).collect())
    }

    fn part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    fn map(mut self, split: impl Fn(Vec<u8>) -> Vec<Vec<u8>>) -> Self {
        self.parts = self
            .parts
            .into_iter()
            .flat_map(|part| match part {
                Part::Bytes(bytes) => split(bytes).into_iter().map(Part::Bytes).collect(),
                other => vec![other],
            })
            .collect();
        self
    }
}

/// A piece with a delta.
pub fn delta(delta: Value) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

/// A piece with a finish reason.
pub fn finish(reason: &str) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

/// A piece with nothing but counts.
pub fn usage(prompt: u32, completion: u32) -> Value {
    json!({ "id": "c", "object": "chat.completion.chunk", "choices": [], "usage": { "prompt_tokens": prompt, "completion_tokens": completion } })
}

/// The server. Dropping it stops it.
pub struct ChatServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    received: Mutex<Vec<Received>>,
    hung_up: watch::Sender<usize>,
}

impl ChatServer {
    /// Listens on a free port of loopback.
    ///
    /// # Panics
    /// When loopback cannot be listened on: then no test here means anything.
    pub async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback can be listened on");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            replies: Mutex::new(replies.into()),
            received: Mutex::default(),
            hung_up: watch::Sender::new(0),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, task }
    }

    /// For `--base-url`.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    /// Waits until a client hung up on a reply that stalls, `count` times altogether.
    pub async fn hung_up(&self, count: usize) {
        let mut watched = self.shared.hung_up.subscribe();
        // An error means that the server is gone, and so are its clients.
        let _ = watched.wait_for(|seen| *seen >= count).await;
    }
}

impl Drop for ChatServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        // A client that goes away is part of the game.
        connections.spawn(async move { drop(serve(stream, &shared).await) });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(received) = read(&mut stream).await? else { return Ok(()) };
    let parted = parted(&received.json());
    lock(&shared.received).push(received);
    let next = lock(&shared.replies).pop_front();
    let reply = match parted {
        Some(what) => Reply::status(400, &json!({ "error": { "message": what } }).to_string()),
        None => next.unwrap_or_else(|| Reply::status(500, r#"{"error":{"message":"no reply is left"}}"#)),
    };
    if let Some(status) = reply.status {
        let mut head = format!("HTTP/1.1 {status} Said\r\ntransfer-encoding: chunked\r\nconnection: close\r\n");
        for (name, value) in &reply.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await?;
    }
    for part in reply.parts {
        match part {
            Part::Bytes(bytes) if bytes.is_empty() => {}
            Part::Bytes(bytes) => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend(bytes);
                chunk.extend(b"\r\n");
                stream.write_all(&chunk).await?;
                tokio::task::yield_now().await;
            }
            Part::Stall => {
                let mut rest = [0; 64];
                while matches!(stream.read(&mut rest).await, Ok(1..)) {}
                shared.hung_up.send_modify(|seen| *seen += 1);
                return Ok(());
            }
            Part::Reset => return stream.set_zero_linger(),
            Part::Close => return stream.shutdown().await,
        }
    }
    stream.write_all(b"0\r\n\r\n").await?;
    stream.shutdown().await
}

async fn read(stream: &mut TcpStream) -> io::Result<Option<Received>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await? == 0 || bytes.len() > MAX_REQUEST_BYTES {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let length: usize = length.unwrap_or(0).min(MAX_REQUEST_BYTES);
    let mut body = bytes.split_off(head_end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(Received { path, headers, body: String::from_utf8_lossy(&body).into_owned() }))
}

/// What is wrong with the places of tool calls and results, if anything is.
fn parted(request: &Value) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for message in request["messages"].as_array().into_iter().flatten() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|known| *known == id) {
                Some(at) => drop(open.remove(at)),
                None => return Some(format!("a message of role `tool` for `{id}` follows no such call")),
            }
            continue;
        }
        if let Some(id) = open.first() {
            return Some(format!("the call `{id}` is not followed by its result"));
        }
        open = message["tool_calls"].as_array().into_iter().flatten().filter_map(|call| call["id"].as_str()).collect();
    }
    open.first().map(|id| format!("the call `{id}` has no result"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parted_calls_are_found() {
        let check = |messages: Value, expect: Option<&str>| {
            assert_eq!(parted(&json!({ "messages": messages })).as_deref(), expect)
        };
        let call = json!({"role": "assistant", "tool_calls": [{"id": "a"}]});
        let result = json!({"role": "tool", "tool_call_id": "a"});
        let user = json!({"role": "user"});
        check(json!([user, call, result, user]), None);
        check(json!([call]), Some("the call `a` has no result"));
        check(json!([call, user, result]), Some("the call `a` is not followed by its result"));
        check(json!([result]), Some("a message of role `tool` for `a` follows no such call"));
    }
}
