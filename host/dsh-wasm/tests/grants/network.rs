//! Requests: what may be reached, by which name and at which address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use async_trait::async_trait;
use dsh_seam::tools::NetworkPolicy;
use dsh_wasm::Resolve;

use super::server::Server;
use super::*;

/// Plays DNS: the answers of each name, in their order; the last one stays.
#[derive(Default)]
struct Dns {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Dns {
    fn new(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let dns = Self::default();
        for (name, answers) in names {
            let read = |answer: &&[&str]| answer.iter().map(|ip| ip.parse().expect("an address")).collect();
            dns.answers.lock().expect("not poisoned").insert((*name).to_owned(), answers.iter().map(read).collect());
        }
        Arc::new(dns)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("not poisoned"))
    }
}

#[async_trait]
impl Resolve for Dns {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.asked.lock().expect("not poisoned").push(name.to_owned());
        let mut answers = self.answers.lock().expect("not poisoned");
        let answers = answers.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Ok(answer.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

async fn enter(grants: &[&str], dns: &Arc<Dns>) -> Intruder {
    Intruder::enter(Entry { grants, network: Network::new(dns.clone()), ..Entry::default() }).await
}

fn get(url: &str) -> Value {
    json!({ "do": "get", "url": url })
}

fn well() -> Value {
    ok(json!({ "status": 200, "body": "ok" }))
}

const DENIED: &str = "HttpRequestDenied";
const PROHIBITED: &str = "DestinationIpProhibited";
const NO_URI: &str = "HttpRequestUriInvalid";

#[tokio::test]
async fn a_granted_address_is_reached_and_nothing_beside_it() {
    let server = Server::start().await;
    let port = server.port();
    let grant = format!("net:127.0.0.1:{port}");
    let intruder = enter(&[&grant], &Dns::new(&[])).await;
    assert_eq!(intruder.step(get(&format!("http://127.0.0.1:{port}/"))).await, well());
    let heads = server.requests();
    assert_eq!(heads, [format!("GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n")]);
    let check = async |url: &str, grant: &str| {
        assert_eq!(intruder.step(get(url)).await, error(DENIED), "{url}");
        assert_eq!(intruder.refused(), [format!("{grant} --grant p={grant}")], "{url}");
    };
    check("http://127.0.0.1/", "net:127.0.0.1:80").await;
    check("https://127.0.0.1/", "net:127.0.0.1").await;
    check(&format!("http://localhost:{port}/"), &format!("net:localhost:{port}")).await;
    check(&format!("http://127.0.0.2:{port}/"), &format!("net:127.0.0.2:{port}")).await;
    check(&format!("http://[::1]:{port}/"), &format!("net:[::1]:{port}")).await;
    check(&format!("http://127.0.0.1.evil.test:{port}/"), &format!("net:127.0.0.1.evil.test:{port}")).await;
    check("http://169.254.169.254/latest/meta-data/", "net:169.254.169.254:80").await;
    check("http://[::ffff:169.254.169.254]/", "net:169.254.169.254:80").await;
    check("http://[fd00:ec2::254]/", "net:[fd00:ec2::254]:80").await;
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
async fn an_address_is_read_in_one_way_only() {
    let server = Server::start().await;
    let port = server.port();
    let grant = format!("net:127.0.0.1:{port}");
    let intruder = enter(&[&grant, "net:*.test:80"], &Dns::new(&[])).await;
    for same in ["127.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]"] {
        assert_eq!(intruder.step(get(&format!("http://{same}:{port}/"))).await, well(), "{same}");
        assert!(server.requests()[0].contains(&format!("\r\nhost: 127.0.0.1:{port}\r\n")), "{same}");
    }
    for other in [
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "0x7f000001",
        "017700000001",
        "127.1",
        "127.0.0.01",
        "127.0.0.1..",
        "127.0.0.1.0x",
        "a..test",
        ".",
        "a*b.test",
    ] {
        assert_eq!(intruder.step(get(&format!("http://{other}:{port}/"))).await, error(NO_URI), "{other}");
    }
    for authority in [
        "user@127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:4294967376",
        "127.0.0.1:+80",
        "[fe80::1%25eth0]",
    ] {
        let step = json!({ "do": "get", "url": "http://127.0.0.1/", "authority": authority });
        assert_eq!(intruder.step(step).await, error(NO_URI), "{authority}");
    }
    // What is no authority at all does not get past the interface.
    for authority in ["[::1", "a b", "a/b", "a\r\nx: y", "a\0", "аpple.test", ""] {
        let step = json!({ "do": "get", "url": "http://127.0.0.1/", "authority": authority });
        assert_eq!(intruder.step(step).await, error("no such authority"), "{authority}");
    }
    assert_eq!(server.requests(), [""; 0]);
    assert_eq!(intruder.refused(), [""; 0]);
}

#[tokio::test]
async fn a_name_does_not_lead_into_somebodys_network() {
    let addresses = [
        "127.0.0.1",
        "127.8.9.1",
        "::1",
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "fd12:3456::1",
        "169.254.169.254",
        "fe80::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "192.0.2.1",
        "2001:db8::1",
        "198.18.0.1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ];
    let names: Vec<_> = (0..addresses.len()).map(|n| format!("n{n}.test")).collect();
    let answers: Vec<_> = addresses.iter().map(std::slice::from_ref).collect();
    let table: Vec<_> = names.iter().zip(&answers).map(|(name, a)| (name.as_str(), std::slice::from_ref(a))).collect();
    let dns = Dns::new(&table);
    let intruder = enter(&["net:*.test:8080"], &dns).await;
    for (name, address) in names.iter().zip(addresses) {
        let told = intruder.step(get(&format!("http://{name}:8080/"))).await;
        assert_eq!(told, error(PROHIBITED), "{address}");
        let ip = address.parse::<IpAddr>().expect("an address").to_canonical();
        let grant = if ip.is_ipv6() { format!("net:[{ip}]:8080") } else { format!("net:{ip}:8080") };
        assert_eq!(intruder.refused(), [format!("{grant} --grant p={grant}")], "{address}");
        assert_eq!(dns.asked(), [name.as_str()]);
    }
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_each_request() {
    let server = Server::start().await;
    let port = server.port();
    let other = Server::start_at([127, 0, 0, 2].into(), port).await;
    // First it leads where it may, then to loopback.
    let dns = Dns::new(&[("rebind.test", &[&["127.0.0.2"], &["127.0.0.1"]])]);
    let grants = [format!("net:rebind.test:{port}"), format!("net:127.0.0.2:{port}")];
    let intruder = enter(&grants.each_ref().map(String::as_str), &dns).await;
    let url = format!("http://rebind.test:{port}/");
    assert_eq!(intruder.step(get(&url)).await, well());
    assert_eq!((dns.asked().len(), other.requests().len(), server.requests().len()), (1, 1, 0));
    assert_eq!(intruder.step(get(&url)).await, error(PROHIBITED));
    assert_eq!((dns.asked().len(), other.requests().len(), server.requests().len()), (1, 0, 0));
    assert_eq!(intruder.refused(), [format!("net:127.0.0.1:{port} --grant p=net:127.0.0.1:{port}")]);
}

#[tokio::test]
async fn of_several_addresses_the_good_ones_are_tried() {
    let server = Server::start().await;
    let port = server.port();
    let dns = Dns::new(&[
        ("mixed.test", &[&["169.254.169.254", "10.0.0.1", "127.0.0.1"]]),
        ("dead-first.test", &[&["127.0.0.3", "127.0.0.1"]]),
        ("none.test", &[&[]]),
    ]);
    let grants = [format!("net:*.test:{port}"), format!("net:127.0.0.1:{port}"), format!("net:127.0.0.3:{port}")];
    let intruder = enter(&grants.each_ref().map(String::as_str), &dns).await;
    assert_eq!(intruder.step(get(&format!("http://mixed.test:{port}/"))).await, well());
    assert_eq!(intruder.step(get(&format!("http://dead-first.test:{port}/"))).await, well());
    assert!(server.requests()[0].contains(&format!("\r\nhost: mixed.test:{port}\r\n")));
    let no_name = "dns-error: the name has no address";
    assert_eq!(intruder.step(get(&format!("http://none.test:{port}/"))).await, error(no_name));
    assert_eq!(intruder.step(get(&format!("http://unknown.test:{port}/"))).await, error(no_name));
    assert_eq!(intruder.refused(), [""; 0]);
}

#[tokio::test]
async fn localhost_is_this_machine_and_is_not_looked_up() {
    let server = Server::start().await;
    let port = server.port();
    let dns = Dns::new(&[("localhost", &[&["169.254.169.254"]]), ("a.localhost", &[&["10.0.0.1"]])]);
    let grants = [format!("net:localhost:{port}"), format!("net:*.localhost:{port}")];
    let intruder = enter(&grants.each_ref().map(String::as_str), &dns).await;
    for name in ["localhost", "LOCALHOST", "localhost.", "a.localhost"] {
        assert_eq!(intruder.step(get(&format!("http://{name}:{port}/"))).await, well(), "{name}");
    }
    assert_eq!(intruder.step(get(&format!("http://notlocalhost:{port}/"))).await, error(DENIED));
    assert_eq!(dns.asked(), [""; 0]);
}

#[tokio::test]
async fn a_redirect_is_a_request_of_its_own() {
    let server = Server::start().await;
    let port = server.port();
    let other = Server::start_at([127, 0, 0, 2].into(), port).await;
    let dns = Dns::new(&[("inside.test", &[&["127.0.0.2"]])]);
    let grants = [format!("net:127.0.0.1:{port}"), format!("net:inside.test:{port}")];
    let intruder = enter(&grants.each_ref().map(String::as_str), &dns).await;
    let follow =
        |to: &str| json!({ "do": "get", "url": format!("http://127.0.0.1:{port}/redirect?{to}"), "follow": 3 });
    // The host does not follow.
    let told = intruder.step(get(&format!("http://127.0.0.1:{port}/redirect?http://127.0.0.1:{port}/"))).await;
    assert_eq!(told, ok(json!({ "status": 302, "body": "" })));
    assert_eq!(intruder.step(follow(&format!("http://127.0.0.1:{port}/"))).await, well());
    assert_eq!(intruder.step(follow("http://169.254.169.254/")).await, error(DENIED));
    assert_eq!(intruder.step(follow(&format!("http://inside.test:{port}/"))).await, error(PROHIBITED));
    assert_eq!(intruder.step(follow("http://0x7f.1/")).await, error(NO_URI));
    let refused = [
        "net:169.254.169.254:80 --grant p=net:169.254.169.254:80".to_owned(),
        format!("net:127.0.0.2:{port} --grant p=net:127.0.0.2:{port}"),
    ];
    assert_eq!(intruder.refused(), refused);
    assert_eq!(other.requests(), [""; 0]);
}

#[tokio::test]
async fn a_profile_narrows_what_was_granted() {
    let server = Server::start().await;
    let port = server.port();
    let dns = Dns::new(&[("good.test", &[&["127.0.0.1"]])]);
    let grants = [format!("net:good.test:{port}"), format!("net:127.0.0.1:{port}")];
    let intruder = enter(&grants.each_ref().map(String::as_str), &dns).await;
    let check = async |network: NetworkPolicy, url: &str, expect: Value| {
        let profile = Profile { network: network.clone(), ..Profile::unrestricted() };
        let told = intruder.take_under(profile, json!([get(&format!("{url}:{port}/"))])).await;
        assert_eq!(told, [expect], "{network:?} {url}");
    };
    let hosts = |hosts: &[&str]| NetworkPolicy::Hosts(hosts.iter().map(|host| format!("{host}:{port}")).collect());
    check(NetworkPolicy::Open, "http://good.test", well()).await;
    check(NetworkPolicy::Closed, "http://good.test", error(DENIED)).await;
    check(hosts(&["127.0.0.1"]), "http://127.0.0.1", well()).await;
    check(hosts(&["127.0.0.1"]), "http://good.test", error(DENIED)).await;
    // The address of a name that the profile allows is nothing that it allows.
    check(hosts(&["good.test"]), "http://good.test", error(PROHIBITED)).await;
    check(hosts(&["good.test", "127.0.0.1"]), "http://good.test", well()).await;
    // No grant would help, so none is named.
    assert_eq!(intruder.refused(), [""; 0]);
}

#[tokio::test]
async fn headers_that_frame_a_message_are_the_hosts() {
    let server = Server::start().await;
    let port = server.port();
    let grant = format!("net:127.0.0.1:{port}");
    let intruder = enter(&[&grant], &Dns::new(&[])).await;
    let with = |name: &str, value: &str| {
        let url = format!("http://127.0.0.1:{port}/");
        json!({ "do": "get", "url": url, "headers": [[name, value]] })
    };
    for name in [
        "host",
        "Host",
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "te",
        "trailer",
    ] {
        assert_eq!(intruder.step(with(name, "x")).await, error("forbidden"), "{name}");
    }
    for (name, value) in [
        ("x", "a\r\nhost: evil.test"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        ("x\r\nhost", "a"),
        ("x y", "a"),
        ("x:", "a"),
        ("", "a"),
        ("content-length", "+2"),
        ("content-length", "2, 2"),
    ] {
        assert_eq!(intruder.step(with(name, value)).await, error("invalid-syntax"), "{name:?} {value:?}");
    }
    // A length that is not that of the body.
    let mut step = with("content-length", "5");
    assert_eq!(intruder.step(step.clone()).await, error("HttpRequestBodySize"));
    step["body"] = json!("hi");
    step["method"] = json!("POST");
    assert_eq!(intruder.step(step).await, error("HttpRequestBodySize"));
    let connect = json!({ "do": "get", "url": format!("http://127.0.0.1:{port}/"), "method": "CONNECT" });
    assert_eq!(intruder.step(connect).await, error("HttpRequestMethodInvalid"));
    server.requests();
    assert_eq!(intruder.step(with("authorization", "Basic eA==")).await, well());
    let expect = format!("GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Basic eA==\r\n\r\n");
    assert_eq!(server.requests(), [expect]);
}

#[tokio::test]
async fn what_a_server_can_stretch_has_a_bound() {
    let server = Server::start().await;
    let port = server.port();
    let grant = format!("net:127.0.0.1:{port}");
    let intruder = enter(&[&grant], &Dns::new(&[])).await;
    let to = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let check = async |step: Value, expect: Value| assert_eq!(intruder.step(step.clone()).await, expect, "{step}");
    check(get(&to("/fields?100")), ok(json!({ "status": 200, "body": "" }))).await;
    check(get(&to("/fields?200")), error("HttpResponseHeaderSectionSize")).await;
    check(get(&to("/field?30000")), ok(json!({ "status": 200, "body": "" }))).await;
    check(get(&to("/field?300000")), error("HttpResponseHeaderSectionSize")).await;
    check(get(&to("/close")), error("HttpResponseIncomplete")).await;
    check(get(&to("/garbage")), error("HttpProtocolError")).await;
    let cut = ok(json!({ "status": 200, "body": "hel", "end": "incomplete HTTP response" }));
    check(get(&to("/cut")), cut).await;
    check(get(&to("/big?8")), ok(json!({ "status": 200, "bytes": 8 << 20 }))).await;
    let silent = json!({ "do": "get", "url": to("/silent"), "first-byte-ms": 20 });
    check(silent, error("ConnectionReadTimeout")).await;
    let drip = json!({ "do": "get", "url": to("/drip"), "between-ms": 20 });
    check(drip, ok(json!({ "status": 200, "body": "x", "end": "connection read timeout" }))).await;
    // No TLS is spoken there.
    check(get(&format!("https://127.0.0.1:{port}/")), error("TlsProtocolError")).await;
    // All answers of a call together: the second does not fit.
    let steps = json!([get(&to("/big?200")), get(&to("/big?100")), get(&to("/big?1"))]);
    let told = intruder.take(steps).await;
    assert_eq!(told[0], ok(json!({ "status": 200, "bytes": 200 << 20 })));
    let over = json!("HTTP response body size exceeds limit: 268435456 bytes");
    assert_eq!((&told[1]["ok"]["end"], &told[2]["ok"]["end"]), (&over, &over));
    // The next call has it all again.
    check(get(&to("/big?8")), ok(json!({ "status": 200, "bytes": 8 << 20 }))).await;
}

#[tokio::test]
async fn connections_and_requests_are_counted() {
    let server = Server::start().await;
    let port = server.port();
    let grant = format!("net:127.0.0.1:{port}");
    let intruder = enter(&[&grant], &Dns::new(&[])).await;
    // None of the answers is read, so all connections stay.
    let url = format!("http://127.0.0.1:{port}/drip");
    let many = json!({ "do": "get-many", "url": url, "count": 40, "connect-ms": 100 });
    assert_eq!(intruder.step(many).await, ok(json!({ "well": 16, "error": "ConnectionLimitReached" })));
    // They were given back.
    assert_eq!(intruder.step(get(&format!("http://127.0.0.1:{port}/"))).await, well());
    let limits = Limits { requests: 3, ..Limits::default() };
    let intruder = Intruder::enter(Entry { grants: &[&grant], limits, ..Entry::default() }).await;
    let ok_url = format!("http://127.0.0.1:{port}/");
    let many = json!({ "do": "get-many", "url": ok_url, "count": 5 });
    let told = intruder.step(many.clone()).await;
    assert_eq!(told, ok(json!({ "well": 3, "error": "ConnectionLimitReached" })));
    assert_eq!(intruder.step(many).await["ok"]["well"], json!(3), "the next call has them all again");
}

#[tokio::test]
async fn a_request_that_waits_ends_with_the_wall_clock() {
    let server = Server::start().await;
    let grant = format!("net:127.0.0.1:{}", server.port());
    let limits = Limits { tool_wall_ms: 100, tool_cpu_ms: 100, ..Limits::default() };
    let intruder = Intruder::enter(Entry { grants: &[&grant], limits, ..Entry::default() }).await;
    let message = intruder.fails(json!([get(&format!("http://127.0.0.1:{}/silent", server.port()))])).await;
    assert!(message.starts_with("it took longer than the limit `tool-wall-ms` of 100 ms"), "{message}");
    assert_eq!(intruder.step(get(&format!("http://127.0.0.1:{}/", server.port()))).await, well());
}

#[tokio::test]
async fn a_guest_that_asks_for_everything_is_not_listed_for_ever() {
    let intruder = enter(&[], &Dns::new(&[])).await;
    for n in 0..3 {
        let steps: Vec<_> = (0..100).map(|m| get(&format!("http://h{n}-{m}.test/"))).collect();
        assert_eq!(intruder.take(json!(steps)).await, vec![error(DENIED); 100]);
    }
}
