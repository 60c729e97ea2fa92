//! Outgoing requests of guests (`wasi:http`): only to hosts that were granted and that the profile in force lets through, at addresses that
//! a name may lead to (`address`), on connections of our own (`connect`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http::uri::Scheme;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks,
};

use super::address::why_special;
use super::connect::{Answer, Received, Sending, Target, default_port};
use super::host::{Host, parse_port};
use crate::fault::shorten;
use crate::grants::{Grant, NetRule};
use crate::output::clean;
use crate::plugin::Core;
use crate::words::{NetworkPolicy, PluginContext, Profile};

/// Connections that one instance may have at once; a request beyond them waits for one to end.
const MAX_INSTANCE_CONNECTIONS: usize = 16;
/// What the bodies of all answers that one call reads may have together. They pass through, so this is no question of memory.
const MAX_RECEIVED_BYTES: u64 = 256 * 1024 * 1024;
/// Fields in the head of a request.
const MAX_FIELDS: usize = 128;
/// Bytes of the fields that a guest makes, as wasmtime counts them.
pub(crate) const MAX_FIELD_BYTES: usize = 64 * 1024;
/// Warnings of one instance about requests that no grant would let through.
const MAX_WARNINGS: u32 = 20;

/// What one call has used of the network.
#[derive(Debug, Default)]
pub(crate) struct Used {
    requests: AtomicU32,
    received: Arc<Received>,
    /// Set when the host refuses something; none outside of `call-tool`.
    refused: Option<Arc<AtomicBool>>,
}

impl Used {
    pub(crate) fn new(refused: Option<Arc<AtomicBool>>) -> Arc<Self> {
        Arc::new(Self { requests: AtomicU32::new(0), received: Arc::default(), refused })
    }

    /// Counts a request; false when there were `most` before it.
    fn count(&self, most: u32) -> bool {
        self.requests.fetch_add(1, Ordering::Relaxed) < most
    }
}

/// Decides over each request of one instance.
pub(crate) struct NetHooks {
    gate: Arc<Gate>,
    slots: Arc<Semaphore>,
    /// Of the call under way.
    pub used: Arc<Used>,
}

impl NetHooks {
    pub(crate) fn new(core: Arc<Core>, session: Option<Arc<dyn PluginContext>>, profile: Option<Arc<Profile>>) -> Self {
        let gate = Arc::new(Gate { core, session, profile, warned: AtomicU32::new(0) });
        Self { gate, slots: Arc::new(Semaphore::new(MAX_INSTANCE_CONNECTIONS)), used: Arc::default() }
    }
}

impl WasiHttpHooks for NetHooks {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(is_forbidden)
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _sent: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Answer, Error>> + Send> {
        let (gate, used) = (self.gate.clone(), self.used.clone());
        let slots = self.slots.clone();
        let target = gate.read(&request);
        Box::new(async move {
            let target = target?;
            let most = gate.core.limits.requests;
            if !used.count(most) {
                gate.warn(&format!("a request was refused: the call made more than the limit `requests` of {most}"));
                return Err(Error::ConnectionLimitReached);
            }
            gate.admit(&target, &used).await?;
            let sending = Sending {
                plugin: gate.core.name.clone(),
                network: gate.core.network.clone(),
                target: target.clone(),
                options,
                received: used.received.clone(),
                max_received: MAX_RECEIVED_BYTES,
                slots,
            };
            let sent = sending.send(request, async |found| gate.judge(&target, found, &used).await).await;
            if matches!(sent, Err(Error::ConnectionLimitReached)) {
                gate.warn(&format!("it has {MAX_INSTANCE_CONNECTIONS} connections open and none became free"));
            }
            sent
        })
    }
}

/// Fields that say how a message travels. They are the host's: a guest could smuggle a second request in with them, or speak as another
/// host.
fn is_forbidden(name: &http::HeaderName) -> bool {
    DEFAULT_FORBIDDEN_HEADERS.contains(name) || *name == http::header::TE || *name == http::header::TRAILER
}

/// What may be reached.
struct Gate {
    core: Arc<Core>,
    session: Option<Arc<dyn PluginContext>>,
    profile: Option<Arc<Profile>>,
    warned: AtomicU32,
}

impl Gate {
    /// Where a request goes, if it is one that can be sent at all.
    fn read(&self, request: &http::Request<WasiBody>) -> Result<Target, Error> {
        let target = target_of(request.uri()).map_err(|why| {
            // No more than the host: passwords stand before it, and tokens behind it.
            let authority = request.uri().authority().map_or("", http::uri::Authority::as_str);
            let shown = shorten(&clean(authority.rsplit('@').next().unwrap_or("").as_bytes()));
            self.warn(&format!("a request to `{shown}` was refused: {why}"));
            Error::HttpRequestUriInvalid
        })?;
        if request.method() == http::Method::CONNECT {
            self.warn("a request was refused: the method `CONNECT` is for proxies");
            return Err(Error::HttpRequestMethodInvalid);
        }
        // wasmtime refuses these when the guest makes the fields; it has let some through before.
        let forbidden = |name: &&http::HeaderName| **name != http::header::HOST && is_forbidden(name);
        if let Some(name) = request.headers().keys().find(forbidden) {
            self.warn(&format!("a request was refused: the header `{name}` is the host's to set"));
            return Err(Error::HttpRequestDenied);
        }
        if request.headers().len() > MAX_FIELDS {
            self.warn(&format!("a request was refused: it has more than {MAX_FIELDS} headers"));
            return Err(Error::HttpRequestHeaderSectionSize(None));
        }
        Ok(target)
    }

    /// Whether it may go there, before any name is looked up.
    async fn admit(&self, target: &Target, used: &Used) -> Result<(), Error> {
        let host = target.host.to_string();
        if !self.granted(&host, target) {
            self.refuse(&grant_for(&host, target), None, used).await;
            return Err(Error::HttpRequestDenied);
        }
        if !self.in_profile(&host, target) {
            self.warn_of_profile(&host, target);
            return Err(Error::HttpRequestDenied);
        }
        Ok(())
    }

    /// Of the addresses that a name leads to, those that may be connected to: what is reached from everywhere, and what was granted as an
    /// address. An address that was asked for is one that was granted, and `localhost` is not looked up.
    async fn judge(&self, target: &Target, found: Vec<SocketAddr>, used: &Used) -> Result<Vec<SocketAddr>, Error> {
        let Host::Name(name) = &target.host else { return Ok(found) };
        if target.host.is_localhost() {
            return Ok(found);
        }
        let mut refused = None;
        let mut good = Vec::with_capacity(found.len());
        for mut address in found {
            address.set_ip(address.ip().to_canonical());
            let text = address.ip().to_string();
            match why_special(address.ip()) {
                None => good.push(address),
                Some(_) if self.granted(&text, target) && self.in_profile(&text, target) => good.push(address),
                Some(why) => {
                    refused.get_or_insert((text, why));
                }
            }
        }
        match refused {
            Some((address, why)) if good.is_empty() => {
                if self.granted(&address, target) {
                    self.warn_of_profile(&address, target);
                } else {
                    let grant = grant_for(&address, target);
                    let lead = format!("`{name}` leads to {address} ({why})");
                    self.refuse(&grant, Some(&lead), used).await;
                }
                Err(Error::DestinationIpProhibited)
            }
            _ => Ok(good),
        }
    }

    fn granted(&self, host: &str, target: &Target) -> bool {
        self.core
            .grants
            .iter()
            .any(|grant| matches!(grant, Grant::Net(rule) if rule.allows(host, target.port, target.tls)))
    }

    /// Whether the profile of the call lets it through. Its hosts are written as in a grant, without `net:`.
    fn in_profile(&self, host: &str, target: &Target) -> bool {
        match self.profile.as_deref().map(|profile| &profile.network) {
            None | Some(NetworkPolicy::Open) => true,
            Some(NetworkPolicy::Closed) => false,
            Some(NetworkPolicy::Hosts(hosts)) => hosts.iter().any(|allowed| {
                let rule = format!("net:{allowed}").parse();
                matches!(rule, Ok(Grant::Net(rule)) if rule.allows(host, target.port, target.tls))
            }),
        }
    }

    /// Refuses what a grant would allow.
    async fn refuse(&self, grant: &Grant, lead: Option<&str>, used: &Used) {
        if let Some(refused) = &used.refused {
            refused.store(true, Ordering::Relaxed);
        }
        self.core.refuse_because(self.session.as_deref(), grant, lead).await;
    }

    fn warn_of_profile(&self, host: &str, target: &Target) {
        let grant = grant_for(host, target);
        self.warn(&format!(
            "it was refused `{grant}` by the profile in force, which a plugin narrowed for this call; no grant widens it"
        ));
    }

    /// Says what no grant would change.
    fn warn(&self, what: &str) {
        if self.warned.fetch_add(1, Ordering::Relaxed) < MAX_WARNINGS {
            tracing::warn!(target: "dsh::plugin", plugin = %self.core.name, "{what}");
        }
    }
}

/// Where an address leads, or why nowhere.
fn target_of(uri: &http::Uri) -> Result<Target, &'static str> {
    let tls = match uri.scheme() {
        None => true,
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        Some(scheme) if *scheme == Scheme::HTTP => false,
        Some(_) => return Err("there are requests by `http` and `https` only"),
    };
    let authority = uri.authority().ok_or("a host is missing")?.as_str();
    // A name with user information is not the host that it seems to be.
    if authority.contains('@') {
        return Err("an address has no user information here; send a header `authorization`");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the closing `]` is missing")?;
            (Host::parse_bracketed(host)?, port)
        }
        None => {
            let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            (Host::parse(host)?, port)
        }
    };
    let port = match port {
        "" => default_port(tls),
        port => port.strip_prefix(':').and_then(parse_port).ok_or("a port is a number from 1 to 65535")?,
    };
    Ok(Target { host, port, tls })
}

/// The narrowest grant that would let a request through.
fn grant_for(host: &str, target: &Target) -> Grant {
    let port = if target.tls && target.port == 443 { None } else { Some(target.port) };
    Grant::Net(NetRule { host: host.to_owned(), subdomains: false, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_the_grant_it_needs_or_why_there_is_none() {
        let check = |uri: &str, expect: Result<&str, &str>| {
            let target = uri.parse().map_err(|_| "no address").and_then(|uri| target_of(&uri));
            let grant = target.map(|target| grant_for(&target.host.to_string(), &target).to_string());
            assert_eq!(grant.as_deref().map_err(|why| *why), expect, "{uri}");
        };
        check("https://API.example.com/x", Ok("net:api.example.com"));
        check("https://api.example.com./x", Ok("net:api.example.com"));
        check("https://a.b:8443/", Ok("net:a.b:8443"));
        check("https://a.b:0443/", Ok("net:a.b"));
        check("http://a.b/", Ok("net:a.b:80"));
        check("http://a.b:443/", Ok("net:a.b:443"));
        check("http://[::1]:99/", Ok("net:[::1]:99"));
        check("http://[0:0:0:0:0:0:0:1]:99/", Ok("net:[::1]:99"));
        check("http://[::FFFF:169.254.169.254]/", Ok("net:169.254.169.254:80"));
        check("http://[::ffff:a9fe:a9fe]/", Ok("net:169.254.169.254:80"));
        check("http://169.254.169.254./latest", Ok("net:169.254.169.254:80"));
        check("https://xn--pple-43d.com/", Ok("net:xn--pple-43d.com"));
        for spelling in ["2130706433", "0177.0.0.1", "0x7f.1", "0x7f000001", "127.1", "017700000001", "127.0.0.01"] {
            let why = "an IPv4 address is four decimal numbers without leading zeros";
            check(&format!("http://{spelling}:8080/"), Err(why));
        }
        let user = "an address has no user information here; send a header `authorization`";
        check("https://good.com@evil.com/", Err(user));
        check("https://good.com:443@evil.com/", Err(user));
        check("https://@evil.com/", Err(user));
        let port = "a port is a number from 1 to 65535";
        for other in ["0", "65536", "99999", "4294967376", "", "+80", "8o"] {
            check(&format!("http://a.b:{other}/"), Err(port));
        }
        check("http://[::1]x/", Err(port));
        check("http://[fe80::1%25eth0]/", Err("an address has no zone here"));
        check("http://[::1/", Err("no address"));
        check("http://a_b*c/", Err("a name has labels of at most 63 letters, digits, `-` and `_`"));
        check("http://a..b/", Err("a name has labels of at most 63 letters, digits, `-` and `_`"));
        check("http://./", Err("a host is missing"));
        check("http://аpple.com/", Err("no address"));
        for other in ["ftp", "ws", "wss", "gopher", "file", "unix", "httpx", "javascript"] {
            check(&format!("{other}://a.b/"), Err("there are requests by `http` and `https` only"));
        }
        check("HTTPS://a.b/", Ok("net:a.b"));
        check("HTTP://a.b/", Ok("net:a.b:80"));
        check("/relative", Err("a host is missing"));
    }
}
