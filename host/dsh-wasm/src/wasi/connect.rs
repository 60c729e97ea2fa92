//! The way from a request to a server, ours from the look-up to the last byte: a name is looked up once, the connection goes to exactly one
//! of the addresses that were judged, and everything that a server could stretch has a bound.
//!
//! Proxies from the environment are not used: a grant names the host that is really connected to. Redirects are not followed: they are
//! answers like any other, and a guest that follows one makes a new request.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::host::Host;
use crate::words::PluginName;

/// Connections of guests at once in the process: each is a file descriptor and up to [`MAX_HEAD_BYTES`] of buffer. More wait.
const MAX_CONNECTIONS: usize = 256;
/// Names that the system looks up at once, of all plugins: an eighth of the threads that tokio has for what blocks.
const MAX_LOOK_UPS: usize = 64;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Looking up, connecting and TLS together, when the guest does not say; the limit on wall time is the last word.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Until the head of the answer, when the guest does not say: as long as a call of a tool may take.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(600);
/// Between two pieces of the body, when the guest does not say.
const BETWEEN_BYTES_TIMEOUT: Duration = Duration::from_secs(600);
/// The head of an answer, and what is read ahead of its body.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Fields in the head of an answer.
const MAX_HEAD_FIELDS: usize = 128;

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolve: Send + Sync {
    /// The addresses of `name`, with `port` put in; none is the same as an error.
    ///
    /// # Errors
    /// When the name cannot be looked up.
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The system's resolver. It cannot be interrupted: who asks and gives up leaves a thread behind that waits for a server, so there are
/// only so many of these, and the threads that serve files and sessions are never all taken.
struct System {
    running: Arc<Semaphore>,
    ask: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
}

impl System {
    fn new(ask: fn(&str, u16) -> io::Result<Vec<SocketAddr>>) -> Self {
        Self { running: Arc::new(Semaphore::new(MAX_LOOK_UPS)), ask }
    }
}

/// As the system finds it: in its files, then by DNS.
fn ask_system(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let running = self.running.clone().acquire_owned().await.map_err(io::Error::other)?;
        let (name, ask) = (name.to_owned(), self.ask);
        let asked = tokio::task::spawn_blocking(move || {
            let _until_it_is_over = running;
            ask(&name, port)
        });
        asked.await.map_err(io::Error::other)?
    }
}

/// How requests of guests leave: who looks names up, which certificates are trusted, how many connections there are.
#[derive(Clone)]
pub struct Network {
    resolver: Arc<dyn Resolve>,
    tls: Arc<OnceCell<Arc<rustls::ClientConfig>>>,
    connections: Arc<Semaphore>,
}

impl Default for Network {
    /// The machine's resolver and the certificates that the machine trusts.
    fn default() -> Self {
        Self::new(Arc::new(System::new(ask_system)))
    }
}

impl Network {
    /// With another resolver.
    #[must_use]
    pub fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, tls: Arc::default(), connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }

    /// The addresses of a host; none of them is judged.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, Error> {
        let found = match &target.host {
            Host::Address(address) => vec![SocketAddr::new(*address, target.port)],
            host if host.is_localhost() => vec![
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), target.port),
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), target.port),
            ],
            Host::Name(name) => self.resolver.resolve(name, target.port).await.map_err(|_| no_such_name())?,
        };
        if found.is_empty() { Err(no_such_name()) } else { Ok(found) }
    }

    async fn tls(&self) -> Result<Arc<rustls::ClientConfig>, Error> {
        let made = self.tls.get_or_try_init(|| async {
            // The machine's certificates are read from files.
            tokio::task::spawn_blocking(tls_config).await.unwrap_or_else(|_| Err(Error::ConfigurationError))
        });
        made.await.cloned()
    }
}

fn no_such_name() -> Error {
    Error::DnsError { rcode: Some("the name has no address".into()), info_code: None }
}

/// TLS as the model adapters have it: the machine says whom it trusts. A container without certificates trusts Mozilla's list.
fn tls_config() -> Result<Arc<rustls::ClientConfig>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|_| Error::ConfigurationError)?;
    let mut config = match rustls_platform_verifier::Verifier::new(provider) {
        Ok(verifier) => builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth(),
        Err(_) => {
            let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Where a request goes, read from its address in one way only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub host: Host,
    pub port: u16,
    pub tls: bool,
}

impl Target {
    /// As in a header `host`.
    fn authority(&self) -> String {
        let host = match &self.host {
            Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
            host => host.to_string(),
        };
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }

    fn server_name(&self) -> Result<ServerName<'static>, Error> {
        match &self.host {
            Host::Address(address) => Ok(ServerName::from(*address)),
            Host::Name(name) => Ok(ServerName::try_from(name.clone())?),
        }
    }
}

/// The port that a scheme stands for.
pub(crate) fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// What one call may still take from servers.
#[derive(Debug, Default)]
pub(crate) struct Received(AtomicU64);

/// The three time-outs of a request.
struct Times {
    connected_by: Instant,
    first_byte: Duration,
    between_bytes: Duration,
}

impl Times {
    fn of(options: Option<RequestOptions>) -> Self {
        let options = options.unwrap_or_default();
        // A guest can be less patient than we are, not more.
        let or = |wish: Option<Duration>, most: Duration| wish.map_or(most, |wish| wish.min(most));
        Self {
            connected_by: Instant::now() + or(options.connect_timeout, CONNECT_TIMEOUT),
            first_byte: or(options.first_byte_timeout, FIRST_BYTE_TIMEOUT),
            between_bytes: or(options.between_bytes_timeout, BETWEEN_BYTES_TIMEOUT),
        }
    }
}

/// A response, and the future that drives its connection.
pub(crate) type Answer = (http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

/// One request on its way.
pub(crate) struct Sending {
    pub plugin: PluginName,
    pub network: Network,
    pub target: Target,
    pub options: Option<RequestOptions>,
    /// What all responses of the call have brought, and how much that may be.
    pub received: Arc<Received>,
    pub max_received: u64,
    /// The connections that the instance may have.
    pub slots: Arc<Semaphore>,
}

impl Sending {
    /// Sends `request` to the first address that `judge` leaves and that answers.
    ///
    /// # Errors
    /// As the guest is to see it. `judge` says why it left no address.
    pub(crate) async fn send(
        self,
        request: http::Request<WasiBody>,
        judge: impl AsyncFnOnce(Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Error>,
    ) -> Result<Answer, Error> {
        let times = Times::of(self.options);
        let (stream, permits) = {
            let own = free(&self.slots, times.connected_by).await?;
            let permits = (own, free(&self.network.connections, times.connected_by).await?);
            let found = timeout_at(times.connected_by, self.network.addresses(&self.target));
            let found = found.await.map_err(|_| Error::DnsTimeout)??;
            let allowed = judge(found).await?;
            (self.connect(&allowed, times.connected_by).await?, permits)
        };
        let request = on_the_wire(request, &self.target)?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEAD_FIELDS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(of_response)?;
        let mut connection = Box::pin(connection);
        let mut ended = false;
        let response = timeout(times.first_byte, async {
            let mut response = pin!(sender.send_request(request));
            tokio::select! {
                biased;
                response = &mut response => response,
                _ = &mut connection => {
                    ended = true;
                    // It may have ended badly behind a whole answer, which is an answer then; what went wrong before it is told here.
                    response.await
                }
            }
        });
        let response = response.await.map_err(|_| Error::ConnectionReadTimeout)?.map_err(of_response)?;
        let Self { received, max_received, .. } = self;
        let response = response.map(|incoming| {
            let (patience, timer) = (times.between_bytes, Box::pin(sleep(times.between_bytes)));
            Bounded { incoming, patience, timer, received, max_received }.boxed_unsync()
        });
        let io = async move {
            let _held = permits;
            // What went wrong with the connection is told by the body.
            if !ended {
                let _ = connection.await;
            }
            Ok(())
        };
        Ok((response, Box::new(io)))
    }

    /// Connects to one of `addresses`, in their order. A silent one does not use up the time of those behind it.
    async fn connect(&self, addresses: &[SocketAddr], by: Instant) -> Result<Box<dyn Stream>, Error> {
        let addresses = &addresses[..addresses.len().min(MAX_ADDRESSES)];
        let mut last = Error::DestinationNotFound;
        for (n, address) in addresses.iter().enumerate() {
            let left = by.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - n).unwrap_or(1);
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return self.secure(stream, by).await;
                }
                Ok(Err(error)) => last = of_connect(&error),
                Err(_) => last = Error::ConnectionTimeout,
            }
        }
        Err(last)
    }

    async fn secure(&self, stream: TcpStream, by: Instant) -> Result<Box<dyn Stream>, Error> {
        if !self.target.tls {
            return Ok(Box::new(stream));
        }
        let name = self.target.server_name()?;
        let connector = tokio_rustls::TlsConnector::from(self.network.tls().await?);
        match timeout_at(by, connector.connect(name, stream)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(self.of_tls(&error)),
            Err(_) => Err(Error::ConnectionTimeout),
        }
    }

    /// The guest learns the kind of the error only.
    fn of_tls(&self, error: &io::Error) -> Error {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        let (told, hint) = match cause {
            Some(rustls::Error::InvalidCertificate(_)) => {
                (Error::TlsCertificateError, "; trusted is whom this machine trusts")
            }
            Some(rustls::Error::AlertReceived(alert)) => {
                let (alert_id, alert_message) = (Some(u8::from(*alert)), Some(format!("{alert:?}")));
                (Error::TlsAlertReceived { alert_id, alert_message }, "")
            }
            Some(_) => (Error::TlsProtocolError, ""),
            None => (Error::ConnectionTerminated, ""),
        };
        let (plugin, host) = (&self.plugin, self.target.authority());
        tracing::warn!(target: "dsh::plugin", %plugin, "no TLS with `{host}`: {error}{hint}");
        told
    }
}

/// Waits until a connection may be made. What is held is given back when the connection is gone.
async fn free(connections: &Arc<Semaphore>, by: Instant) -> Result<OwnedSemaphorePermit, Error> {
    let permit = timeout_at(by, connections.clone().acquire_owned()).await;
    permit.map_err(|_| Error::ConnectionLimitReached)?.map_err(|_| Error::ConfigurationError)
}

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The request as it is written: its target is a path, its host is the one that was checked.
fn on_the_wire(mut request: http::Request<WasiBody>, target: &Target) -> Result<http::Request<WasiBody>, Error> {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    let host = target.authority().parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    request.headers_mut().insert(http::header::HOST, host);
    Ok(request)
}

fn of_connect(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => Error::ConnectionTerminated,
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Error::DestinationUnavailable,
        io::ErrorKind::AddrNotAvailable => Error::DestinationIpUnroutable,
        _ => Error::InternalError(Some(format!("no connection: {error}"))),
    }
}

fn of_response(error: hyper::Error) -> Error {
    if error.is_parse_too_large() {
        return Error::HttpResponseHeaderSectionSize(u32::try_from(MAX_HEAD_BYTES).ok());
    }
    if error.is_incomplete_message() || error.is_closed() {
        return Error::HttpResponseIncomplete;
    }
    if error.is_canceled() || error.is_body_write_aborted() {
        return Error::ConnectionTerminated;
    }
    if error.is_parse() || error.is_user() {
        return Error::HttpProtocolError;
    }
    Error::Hyper(error)
}

/// The body of a response: it may not pause for too long, and all bodies of a call together may not be too large.
struct Bounded {
    incoming: Incoming,
    patience: Duration,
    timer: Pin<Box<Sleep>>,
    received: Arc<Received>,
    max_received: u64,
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                this.timer.as_mut().reset(Instant::now() + this.patience);
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                let all = this.received.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
                if all > this.max_received {
                    return Poll::Ready(Some(Err(Error::HttpResponseBodySize(Some(this.max_received)))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(match of_response(error) {
                Error::Hyper(_) => Error::HttpResponseIncomplete,
                told => told,
            }))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match this.timer.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Some(Err(Error::ConnectionReadTimeout))),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Look-ups that began, and whether they may end.
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static END: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// A server of DNS that does not answer.
    fn hangs(_: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        BEGUN.fetch_add(1, Ordering::SeqCst);
        let _ended = END.1.wait_while(END.0.lock().expect("not poisoned"), |end| !*end).expect("not poisoned");
        Err(io::ErrorKind::NotFound.into())
    }

    #[tokio::test]
    async fn look_ups_that_nobody_waits_for_leave_threads_for_others() {
        let system = Arc::new(System::new(hangs));
        for n in 0..1_000 {
            let (system, name) = (system.clone(), format!("n{n}.test"));
            let mut asking = Box::pin(async move { system.resolve(&name, 443).await });
            assert!(futures::poll!(&mut asking).is_pending());
        }
        // Something else that blocks, while all of these are given up.
        assert_eq!(tokio::task::spawn_blocking(|| 7).await.expect("it runs"), 7);
        assert!(BEGUN.load(Ordering::SeqCst) <= MAX_LOOK_UPS);
        *END.0.lock().expect("not poisoned") = true;
        END.1.notify_all();
        assert!(system.resolve("again.test", 443).await.is_err());
        assert_eq!(BEGUN.load(Ordering::SeqCst), MAX_LOOK_UPS + 1);
    }
}
