//! Outgoing requests of guests (`wasi:http`): only to hosts that were granted and that the profile in force lets through.

use std::sync::Arc;

use http::uri::Scheme;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks, default_send_request};

use crate::grants::{Grant, NetRule};
use crate::plugin::Core;
use crate::words::{NetworkPolicy, PluginContext, Profile};

/// Decides over each request of one instance.
pub(crate) struct NetHooks {
    core: Arc<Core>,
    session: Option<Arc<dyn PluginContext>>,
    profile: Option<Arc<Profile>>,
}

/// Where a request goes.
struct Target {
    host: String,
    port: u16,
    tls: bool,
}

impl Target {
    fn of(uri: &http::Uri) -> Option<Self> {
        let tls = uri.scheme() != Some(&Scheme::HTTP);
        let authority = uri.authority()?;
        // A name with user information is not the host that it seems to be.
        if authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let host = host.parse::<std::net::Ipv6Addr>().map_or(host, |address| address.to_string());
        Some(Self { host, port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }), tls })
    }

    /// The narrowest grant that would let it through.
    fn grant(&self) -> Grant {
        let port = if self.tls && self.port == 443 { None } else { Some(self.port) };
        Grant::Net(NetRule { host: self.host.clone(), subdomains: false, port })
    }
}

impl NetHooks {
    pub(crate) fn new(core: Arc<Core>, session: Option<Arc<dyn PluginContext>>, profile: Option<Arc<Profile>>) -> Self {
        Self { core, session, profile }
    }

    fn allowed(&self, target: &Target) -> bool {
        self.core
            .grants
            .iter()
            .any(|grant| matches!(grant, Grant::Net(rule) if rule.allows(&target.host, target.port, target.tls)))
    }

    /// Whether the profile of the call lets it through. Its hosts are written as in a grant, without `net:`.
    fn in_profile(&self, target: &Target) -> bool {
        match self.profile.as_deref().map(|profile| &profile.network) {
            None | Some(NetworkPolicy::Open) => true,
            Some(NetworkPolicy::Closed) => false,
            Some(NetworkPolicy::Hosts(hosts)) => hosts.iter().any(|host| {
                let rule = format!("net:{host}").parse();
                matches!(rule, Ok(Grant::Net(rule)) if rule.allows(&target.host, target.port, target.tls))
            }),
        }
    }
}

type Answer = Result<(http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for NetHooks {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _sent: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Answer> + Send> {
        let target = Target::of(request.uri());
        let allowed = target.as_ref().is_some_and(|target| self.allowed(target));
        let in_profile = target.as_ref().is_some_and(|target| self.in_profile(target));
        let (core, session) = (self.core.clone(), self.session.clone());
        Box::new(async move {
            let Some(target) = target else { return Err(Error::HttpRequestUriInvalid) };
            if !allowed {
                core.refuse(session.as_deref(), &target.grant()).await;
                return Err(Error::HttpRequestDenied);
            }
            if !in_profile {
                tracing::warn!(target: "dsh::plugin", plugin = %core.name, host = %target.host, "a request was refused: the profile in force does not let it through");
                return Err(Error::HttpRequestDenied);
            }
            let (response, io) = default_send_request(request, options).await?;
            let io: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(io);
            Ok((response.map(http_body_util::BodyExt::boxed_unsync), io))
        })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Serves one request with `ok`; returns its port.
    async fn server() -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        });
        port
    }

    async fn request(grants: &[&str], network: Option<NetworkPolicy>, port: u16) -> Result<u16, String> {
        let grants = crate::Grants::new(grants.iter().map(|grant| grant.parse().expect("a grant")));
        let profile = network.map(|network| Arc::new(Profile { network, ..Profile::unrestricted() }));
        let mut hooks = NetHooks::new(Arc::new(Core::with_grants(grants)), None, profile);
        let body = http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync();
        let request = http::Request::get(format!("http://127.0.0.1:{port}/")).body(body).expect("a request");
        let answer = Box::into_pin(hooks.send_request(request, None, Box::new(async { Ok(()) }))).await;
        let (response, io) = answer.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let read = async { response.into_body().collect().await.map(|body| body.to_bytes()).expect("a body") };
        let (body, _) = tokio::join!(read, Box::into_pin(io));
        assert_eq!(&body[..], b"ok");
        Ok(status)
    }

    #[tokio::test]
    async fn only_granted_hosts_are_reached() {
        let port = server().await;
        let grant = format!("net:127.0.0.1:{port}");
        let denied = Err("HTTP request denied".to_owned());
        assert_eq!(request(&[], None, port).await, denied);
        assert_eq!(request(&["net:127.0.0.1", "net:localhost:1"], None, port).await, denied);
        assert_eq!(request(&[&grant], Some(NetworkPolicy::Closed), port).await, denied);
        assert_eq!(request(&[&grant], Some(NetworkPolicy::Hosts(vec!["a.com".into()])), port).await, denied);
        assert_eq!(
            request(&[&grant], Some(NetworkPolicy::Hosts(vec![format!("127.0.0.1:{port}")])), port).await,
            Ok(200)
        );
    }

    #[test]
    fn a_request_names_the_grant_it_needs() {
        let check = |uri: &str, expect: Option<&str>| {
            let target = Target::of(&uri.parse().expect("an address"));
            assert_eq!(target.map(|target| target.grant().to_string()).as_deref(), expect, "{uri}");
        };
        check("https://API.example.com/x", Some("net:api.example.com"));
        check("https://a.b:8443/", Some("net:a.b:8443"));
        check("http://a.b/", Some("net:a.b:80"));
        check("http://[::1]:99/", Some("net:[::1]:99"));
        check("https://good.com@evil.com/", None);
        check("/relative", None);
    }
}
