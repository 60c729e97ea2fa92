//! A model provider on loopback that does what it is told, faults included, and keeps what it was asked.
//!
//! The n-th request gets the n-th [`Reply`]; after the last, requests are answered with status 500. A request whose tool calls and
//! results do not stand together is answered with status 400, as a strict provider would. It speaks every protocol: an [`Answer`] is
//! given once as data and written in the events of a [`Protocol`]. The behaviours that providers should not have are [`faults`].
//!
//! ```no_run
//! # async fn example() {
//! use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Reply};
//! let hello = Reply::answer(Protocol::Messages, &Answer::new().text("hello"));
//! let server = ProviderServer::start(vec![Reply::status(429, "{}").header("retry-after", "1"), hello]).await;
//! let base_url = server.base_url(); // http://127.0.0.1:PORT/v1
//! # }
//! ```

pub mod chat;
pub mod faults;
mod messages;
mod reply;
mod responses;
mod strict;
mod wire;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use reply::Reply;
use reply::{Framing, Part};
pub use wire::{Answer, Block, Counts, Protocol, Stage, Stopped, WireEvent};

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
    /// The connection on which it came, from 1.
    pub connection: usize,
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

/// The server. Dropping it stops it.
pub struct ProviderServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    received: Mutex<Vec<Received>>,
    seen: watch::Sender<Seen>,
}

/// What the server has seen of its clients.
#[derive(Default)]
struct Seen {
    connections: usize,
    requests: usize,
    /// Replies that were sent to their end.
    answered: usize,
    /// Replies that the client did not want to the end.
    hung_up: usize,
    /// Connections that the client has closed.
    closed: usize,
}

impl ProviderServer {
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
            seen: watch::Sender::default(),
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

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.shared.seen.borrow().connections
    }

    /// Waits until `count` connections were accepted.
    pub async fn connected(&self, count: usize) {
        self.until(|seen| seen.connections >= count).await;
    }

    /// Waits until `count` requests were read.
    pub async fn asked(&self, count: usize) {
        self.until(|seen| seen.requests >= count).await;
    }

    /// Waits until `count` replies were sent to the end of their bodies.
    pub async fn answered(&self, count: usize) {
        self.until(|seen| seen.answered >= count).await;
    }

    /// Waits until a client hung up on a reply that was not over, `count` times altogether.
    pub async fn hung_up(&self, count: usize) {
        self.until(|seen| seen.hung_up >= count).await;
    }

    /// Waits until the clients have closed all connections that they made.
    pub async fn left_alone(&self) {
        self.until(|seen| seen.closed >= seen.connections).await;
    }

    async fn until(&self, reached: impl FnMut(&Seen) -> bool) {
        let mut watched = self.shared.seen.subscribe();
        // An error means that the server is gone, and so are its clients.
        let _ = watched.wait_for(reached).await;
    }
}

impl Drop for ProviderServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut tasks = tokio::task::JoinSet::new();
    let mut connection = 0;
    while let Ok((mut stream, _)) = listener.accept().await {
        let shared = shared.clone();
        connection += 1;
        shared.seen.send_modify(|seen| seen.connections += 1);
        tasks.spawn(async move {
            // A client that goes away is part of the game.
            if let Ok(true) = serve(&mut stream, &shared, connection).await {
                wait_for_the_end(&mut stream).await;
            }
            shared.seen.send_modify(|seen| seen.closed += 1);
        });
    }
}

/// Answers what comes on a connection. False: the connection is gone already.
async fn serve(stream: &mut TcpStream, shared: &Shared, connection: usize) -> io::Result<bool> {
    stream.set_nodelay(true)?;
    loop {
        let Some(received) = read(stream, connection).await? else { return Ok(false) };
        let refused = strict::refusal(&received.path, &received.json());
        lock(&shared.received).push(received);
        shared.seen.send_modify(|seen| seen.requests += 1);
        let next = lock(&shared.replies).pop_front();
        let reply = match refused {
            Some(what) => Reply::status(400, &json!({ "error": { "message": what } }).to_string()),
            None => next.unwrap_or_else(|| Reply::status(500, r#"{"error":{"message":"no reply is left"}}"#)),
        };
        let sent = send(stream, &reply).await;
        if matches!(sent, Ok(Sent::Whole)) {
            shared.seen.send_modify(|seen| seen.answered += 1);
        }
        match sent {
            Ok(Sent::Whole) if reply.keeps => {}
            Ok(Sent::Whole) => {
                stream.shutdown().await?;
                return Ok(true);
            }
            Ok(Sent::Closed) => return Ok(true),
            Ok(Sent::Reset) => {
                stream.set_zero_linger()?;
                return Ok(false);
            }
            Ok(Sent::HungUp) | Err(_) => {
                shared.seen.send_modify(|seen| seen.hung_up += 1);
                return Ok(false);
            }
        }
    }
}

/// How sending ended.
enum Sent {
    Whole,
    /// We have closed our side.
    Closed,
    /// The connection is to be reset.
    Reset,
    /// The client did not wait for the end.
    HungUp,
}

async fn send(stream: &mut TcpStream, reply: &Reply) -> io::Result<Sent> {
    stream.write_all(&head(reply)).await?;
    for part in &reply.parts {
        match part {
            Part::Bytes(bytes) => write(stream, reply.framing, bytes).await?,
            Part::Pause(pause) => {
                if left_within(stream, *pause).await {
                    return Ok(Sent::HungUp);
                }
            }
            Part::Slowly(bytes, every) => {
                for byte in bytes {
                    if left_within(stream, *every).await {
                        return Ok(Sent::HungUp);
                    }
                    write(stream, reply.framing, &[*byte]).await?;
                }
            }
            Part::Endless(bytes, every) => loop {
                write(stream, reply.framing, bytes).await?;
                if !every.is_zero() && left_within(stream, *every).await {
                    return Ok(Sent::HungUp);
                }
            },
            Part::Stall => {
                wait_for_the_end(stream).await;
                return Ok(Sent::HungUp);
            }
            Part::Reset => return Ok(Sent::Reset),
            Part::Close => {
                stream.shutdown().await?;
                return Ok(Sent::Closed);
            }
        }
    }
    if reply.framing == Framing::Chunked {
        stream.write_all(b"0\r\n\r\n").await?;
    }
    Ok(Sent::Whole)
}

fn head(reply: &Reply) -> Vec<u8> {
    let mut head = reply.before.clone();
    if reply.framing == Framing::Raw {
        return head;
    }
    let mut lines = vec![format!("HTTP/1.1 {} Said", reply.status)];
    match reply.framing {
        Framing::Chunked => lines.push("transfer-encoding: chunked".to_owned()),
        Framing::Length(length) => lines.push(format!("content-length: {length}")),
        Framing::Close | Framing::Raw => {}
    }
    if !reply.keeps {
        lines.push("connection: close".to_owned());
    }
    lines.extend(reply.headers.iter().map(|(name, value)| format!("{name}: {value}")));
    head.extend(lines.iter().flat_map(|line| line.bytes().chain(*b"\r\n")));
    head.extend(b"\r\n");
    head
}

async fn write(stream: &mut TcpStream, framing: Framing, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    if framing == Framing::Chunked {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        stream.write_all(&chunk).await?;
    } else {
        stream.write_all(bytes).await?;
    }
    tokio::task::yield_now().await;
    Ok(())
}

/// Whether the client hangs up within this time, in which nothing is sent: the pace of a slow server.
async fn left_within(stream: &mut TcpStream, pace: Duration) -> bool {
    tokio::time::timeout(pace, wait_for_the_end(stream)).await.is_ok()
}

/// Reads until the client hangs up.
async fn wait_for_the_end(stream: &mut TcpStream) {
    let mut rest = [0; 64];
    while matches!(stream.read(&mut rest).await, Ok(1..)) {}
}

async fn read(stream: &mut TcpStream, connection: usize) -> io::Result<Option<Received>> {
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
    Ok(Some(Received { path, headers, body: String::from_utf8_lossy(&body).into_owned(), connection }))
}
