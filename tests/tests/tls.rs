//! Whom a plugin's https request trusts: the authorities of this machine, for the name that was asked for, today.
//!
//! The machine is told of an authority of the test's own by `SSL_CERT_FILE`, as an operator would tell it of a company's; the program has
//! no other way to be told.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::sandbox::Sandbox;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::json;

/// An authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }
}

/// The one that the machine trusts, and one that it does not.
static TRUSTED: LazyLock<Authority> = LazyLock::new(|| Authority::new("trusted"));
static OTHER: LazyLock<Authority> = LazyLock::new(|| Authority::new("other"));

fn named(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("names")
}

fn valid_in(mut params: CertificateParams, from: i32, to: i32) -> CertificateParams {
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params
}

/// A certificate with its key.
type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn signed(params: &CertificateParams, by: &Authority) -> Pair {
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &by.issuer).expect("a certificate");
    (certificate.der().clone(), key.into())
}

fn self_signed(params: &CertificateParams) -> Pair {
    let key = KeyPair::generate().expect("a key");
    (params.self_signed(&key).expect("a certificate").der().clone(), key.into())
}

/// A server on loopback: its port, and how many requests it has read.
fn server((certificate, key): Pair) -> (u16, Arc<AtomicUsize>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).expect("a certificate");
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let (port, read) = (listener.local_addr().expect("an address").port(), Arc::new(AtomicUsize::new(0)));
    let count = read.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = Stream::new(&mut connection, &mut stream);
            if stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                count.fetch_add(1, Ordering::Relaxed);
                // It hangs up without a word, as many servers do: the answer is whole all the same.
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nreached");
            }
        }
    });
    (port, read)
}

/// Has a plugin ask `host` at `port`; `host` is granted.
fn ask(host: &str, port: u16) -> Outcome {
    let sandbox = Sandbox::new().expect("a folder");
    let roots = sandbox.case.join("roots.pem");
    std::fs::write(&roots, &TRUSTED.pem).expect("the folder is there");
    let arguments = json!({ "steps": [{ "do": "get", "url": format!("https://{host}:{port}/") }] }).to_string();
    let grant = format!("intruder=net:{host}:{port}");
    let args = ["tool", "call", "intrude", &arguments, "--plugin", "{guests}/intruder.wasm", "--grant", &grant];
    let mut env = sandbox.environment();
    env.push(("SSL_CERT_FILE".into(), roots.to_string_lossy().into_owned()));
    let args = args.iter().map(|arg| sandbox.expand(arg)).collect();
    let run = Run { args, env, dir: sandbox.workspace.clone(), ..Run::default() };
    host::run(&run).unwrap_or_else(|problem| panic!("{problem}"))
}

const REACHED: &str = "[{\"ok\":{\"body\":\"reached\",\"status\":200}}]\n";
const UNTRUSTED: &str = "[{\"error\":\"TlsCertificateError\"}]\n";

#[test]
fn a_good_certificate_is_good_for_its_names_only() {
    let (port, read) = server(signed(&named(&["localhost", "127.0.0.1"]), &TRUSTED));
    for host in ["localhost", "127.0.0.1"] {
        let told = ask(host, port);
        assert_eq!((told.stdout.as_str(), told.stderr.as_str()), (REACHED, ""), "{host}");
    }
    assert_eq!(ask("a.localhost", port).stdout, UNTRUSTED);
    assert_eq!(read.load(Ordering::Relaxed), 2);
}

#[test]
fn what_is_wrong_with_a_certificate_is_told_and_nothing_is_sent() {
    let localhost = || named(&["localhost"]);
    let check = |pair: Pair, why: &str| {
        let (port, read) = server(pair);
        let told = ask("localhost", port);
        assert_eq!(told.stdout, UNTRUSTED, "{why}");
        let lead = format!("warning: plugin `intruder`: no TLS with `localhost:{port}`: invalid peer certificate: ");
        let line = told.stderr.lines().find_map(|line| line.strip_prefix(&lead));
        let line = line.unwrap_or_else(|| panic!("{why}: {}", told.stderr));
        assert!(line.starts_with(why), "{line}");
        assert!(line.ends_with("; trusted is whom this machine trusts"), "{line}");
        assert_eq!(told.stderr.lines().count(), 1, "{}", told.stderr);
        assert_eq!(read.load(Ordering::Relaxed), 0, "{why}");
    };
    check(self_signed(&localhost()), "UnknownIssuer");
    check(signed(&localhost(), &OTHER), "UnknownIssuer");
    check(signed(&valid_in(localhost(), 2020, 2021), &TRUSTED), "certificate expired");
    check(signed(&valid_in(localhost(), 2200, 2300), &TRUSTED), "certificate not valid yet");
    check(signed(&named(&["other.test"]), &TRUSTED), "certificate not valid for name \"localhost\"");
    check(signed(&named(&["*.localhost"]), &TRUSTED), "certificate not valid for name \"localhost\"");
    check(signed(&named(&["127.0.0.1"]), &TRUSTED), "certificate not valid for name \"localhost\"");
    check(signed(&named(&[]), &TRUSTED), "certificate not valid for name \"localhost\"");
    let mut authority = localhost();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    check(signed(&authority, &TRUSTED), "");
}
