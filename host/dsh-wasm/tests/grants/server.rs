//! A server on loopback that behaves as the path of a request asks it to.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A server; it stops with the test's runtime.
pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_at([127, 0, 0, 1].into(), 0).await
    }

    pub async fn start_at(ip: IpAddr, port: u16) -> Self {
        let listener = TcpListener::bind((ip, port)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, seen.clone()));
            }
        });
        Self { address, requests }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The heads of the requests that came since this was asked last.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().expect("not poisoned"))
    }
}

/// Answers one request.
pub async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            // The first byte of a TLS handshake, which is not spoken here.
            Ok(n) if n > 0 && piece[0] == 0x16 => {
                return drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await);
            }
            Ok(n) if n > 0 => head.extend_from_slice(&piece[..n]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("").to_owned();
    seen.lock().expect("not poisoned").push(head);
    let (what, argument) = path.split_once('?').unwrap_or((&path, ""));
    match what {
        "/redirect" => {
            let answer = format!("HTTP/1.1 302 Found\r\nlocation: {argument}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        // Never an answer.
        "/silent" => std::future::pending().await,
        // A head, one byte, and then nothing.
        "/drip" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx").await;
            std::future::pending().await
        }
        "/cut" => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await;
        }
        "/close" => {}
        "/garbage" => {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
        }
        "/fields" => {
            let fields: String = (0..argument.parse().unwrap_or(0)).map(|n| format!("x-{n}: y\r\n")).collect();
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n").as_bytes()).await;
        }
        "/field" => {
            let field = "y".repeat(argument.parse().unwrap_or(0));
            let answer = format!("HTTP/1.1 200 OK\r\nx: {field}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
        "/big" => {
            let mebibytes: usize = argument.parse().unwrap_or(0);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", mebibytes << 20);
            let _ = stream.write_all(head.as_bytes()).await;
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..mebibytes {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
            }
        }
        _ => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    }
    let _ = stream.shutdown().await;
}
