//! Providers over a wire: what a wrong key, model or address is told, lists of models, headers, proxies, certificates, connections.
//!
//! Servers are on loopback. Those that are somewhere else by name are reached through a proxy that the test is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use dsh_testkit::provider_server::chat::{delta, finish};
use dsh_testkit::provider_server::{Answer, Protocol, ProviderServer, Received, Reply};
use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::sandbox::Sandbox;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::{Value, json};

const KEY: &str = "test-key-5f3a9c71d2e8";

/// Runs the program with this configuration; `{roots}` in it is a PEM file with the test's own authority.
fn run(config: &str, args: &[&str], env: &[(&str, &str)]) -> Outcome {
    let sandbox = Sandbox::new().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = sandbox.case.join(name);
        std::fs::write(&path, text).expect("the folder is there");
        path.to_string_lossy().into_owned()
    };
    file("roots.pem", &AUTHORITY.pem);
    let config = file("dsh.toml", config);
    let mut all: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    all.extend(["--config".to_owned(), config]);
    let mut environment = sandbox.environment();
    environment.retain(|(name, _)| !env.iter().any(|(own, _)| own == name));
    environment.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let run = Run { args: all, env: environment, dir: sandbox.workspace.clone(), ..Run::default() };
    let outcome = host::run(&run).unwrap_or_else(|problem| panic!("{problem}"));
    assert!(!format!("{outcome:?}").contains(KEY), "the key is shown: {outcome:?}");
    outcome
}

const ASK: [&str; 5] = ["--no-save", "--no-default-plugins", "--model", "local/m", "hi"];

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn table(kind: &str, base_url: &str, more: &str) -> String {
    format!("[providers.local]\nkind = \"{kind}\"\nbase-url = \"{base_url}\"\napi-key-env = \"LOCAL_KEY\"\n{more}\n")
}

/// Asks a provider of this kind, whose server answers so. The server's address is `SERVER` in what is said.
fn told(kind: &str, reply: Reply, args: &[&str]) -> (Outcome, Vec<Received>) {
    let runtime = runtime();
    let server = runtime.block_on(ProviderServer::start(vec![reply]));
    let base_url = server.base_url();
    let mut outcome = run(&table(kind, &base_url, ""), args, &[("LOCAL_KEY", KEY)]);
    let server_name = base_url.trim_start_matches("http://").trim_end_matches("/v1");
    outcome.stderr = outcome.stderr.replace(server_name, "SERVER");
    outcome.stdout = outcome.stdout.replace(server_name, "SERVER");
    (outcome, server.received())
}

#[test]
fn a_refused_key_says_which_and_by_whom() {
    let check = |status: u16, body: &str, expect: &str| {
        let (outcome, _) = told("compatible", Reply::status(status, body), &ASK);
        assert_eq!((outcome.exit, outcome.stderr.trim_end()), (3, expect), "{body}");
    };
    check(
        401,
        &json!({"error": {"message": format!("Incorrect API key provided: {KEY}")}}).to_string(),
        "error: the key in `LOCAL_KEY` was refused by the provider `local` (POST http://SERVER/v1/chat/completions): the provider answered with status 401: Incorrect API key provided: *** (auth)",
    );
    check(
        403,
        r#"{"error":{"message":"no access to this"}}"#,
        "error: the provider `local` does not allow this with the key in `LOCAL_KEY` (POST http://SERVER/v1/chat/completions): the provider answered with status 403: no access to this (auth)",
    );
}

#[test]
fn an_unknown_model_is_named_in_every_servers_words() {
    let check = |kind: &str, status: u16, body: Value, near: &str| {
        let args = ["--no-save", "--no-default-plugins", "--model", "local/gpt-5-mni", "hi"];
        let (outcome, _) = told(kind, Reply::status(status, &body.to_string()), &args);
        let lead = format!(
            "error: the provider `local` does not know the model `gpt-5-mni`{near}; `dsh-host models --ask local` lists those that it knows: the provider answered with status {status}: "
        );
        assert!(outcome.stderr.starts_with(&lead), "{body}: {}", outcome.stderr);
        assert!(outcome.stderr.ends_with(" (invalid-request)\n"), "{}", outcome.stderr);
    };
    let error = |message: &str, more: Value| {
        let mut error = more;
        error["message"] = message.into();
        json!({ "error": error })
    };
    let near = " (did you mean `local/gpt-5-mini`?)";
    let code = json!({"type": "invalid_request_error", "code": "model_not_found"});
    check("openai", 404, error("The model `gpt-5-mni` does not exist or you do not have access to it.", code), near);
    check("anthropic", 404, error("model: gpt-5-mni", json!({"type": "not_found_error"})), "");
    check("deepseek", 400, error("Model Not Exist", json!({"type": "invalid_request_error"})), "");
    check("compatible", 404, error("model 'gpt-5-mni' not found", json!({"type": "api_error"})), "");
    check("compatible", 400, error("gpt-5-mni is not a valid model ID", json!({"code": 400})), "");
    check("compatible", 404, json!({"object": "error", "message": "The model `gpt-5-mni` does not exist."}), "");
}

#[test]
fn a_wrong_address_says_what_was_asked_and_what_is_usual() {
    let check = |reply: Reply, code: &str, expect: &str| {
        let (outcome, _) = told("compatible", reply, &ASK);
        assert_eq!(outcome.stderr.trim_end(), format!("error: {expect} ({code})"));
        assert_eq!(outcome.exit, 3);
    };
    let usual = "`base-url` usually looks like `http://127.0.0.1:8080/v1`";
    let asked = "to POST http://SERVER/v1/chat/completions";
    let none = |status: u16| {
        format!("the provider `local` has no Chat Completions at this address: status {status} {asked}; {usual}")
    };
    check(Reply::status(404, "{\"detail\":\"Not Found\"}"), "invalid-request", &none(404));
    check(Reply::status(405, ""), "invalid-request", &none(405));
    check(
        Reply::page(403, "text/html", "<html>blocked</html>"),
        "auth",
        &format!("the provider `local` answered with a web page, not as Chat Completions: status 403 {asked}; {usual}"),
    );
    check(
        Reply::page(200, "text/html; charset=utf-8", "<!DOCTYPE html><html>sign in</html>"),
        "malformed-response",
        &format!("the provider `local` answered with a web page, not as Chat Completions: status 200 {asked}; {usual}"),
    );
    check(
        Reply::status(308, "").header("location", "https://user:pw@example.com/api/v1/chat/completions?token=s"),
        "invalid-request",
        &format!(
            "the provider `local` has moved, and redirects are not followed: status 308 to https://example.com/api/v1/chat/completions, asked by POST http://SERVER/v1/chat/completions; {usual}"
        ),
    );
    check(
        Reply::status(400, "Client sent an HTTP request to an HTTPS server.\n"),
        "invalid-request",
        "the provider `local` speaks TLS there; write `https://` in `base-url` (POST http://SERVER/v1/chat/completions): the provider answered with status 400: Client sent an HTTP request to an HTTPS server.",
    );
}

#[test]
fn headers_are_sent_and_replace_those_of_the_protocol() {
    let runtime = runtime();
    let hello = Reply::answer(Protocol::Messages, &Answer::new().text("hello"));
    let quoted = Reply::status(500, r#"{"error":{"message":"gate-canary-1 is bad"}}"#);
    let server = runtime.block_on(ProviderServer::start(vec![hello, quoted]));
    let more = "headers = { anthropic-version = \"2099-01-01\", X-Title = \"mine\" }\nheaders-env = { x-gate = \"GATE\" }\nextra-body = { top_k = 5 }";
    let config = table("anthropic", &server.base_url(), more);
    let env = [("LOCAL_KEY", KEY), ("GATE", "gate-canary-1")];
    let outcome = run(&config, &ASK, &env);
    assert_eq!((outcome.exit, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "hello\n", ""));
    let received = &server.received()[0];
    let header = |name: &str| {
        received.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(header("anthropic-version"), ["2099-01-01"]);
    assert_eq!((header("x-title"), header("x-gate")), (vec!["mine"], vec!["gate-canary-1"]));
    assert_eq!(header("x-api-key"), [KEY]);
    assert_eq!(received.json()["top_k"], json!(5));
    let outcome = run(&config, &ASK, &env);
    assert!(outcome.stderr.contains("*** is bad"), "{}", outcome.stderr);
    let missing = run(&config, &ASK, &[("LOCAL_KEY", KEY)]);
    assert_eq!(
        (missing.exit, missing.stderr.as_str()),
        (
            2,
            "error: the model `local/m` needs a value for its header `x-gate`, and `GATE` is not set\nhint: set the environment variable `GATE`\n"
        )
    );
}

#[test]
fn a_provider_lists_its_models() {
    let list = json!({"object": "list", "data": [{"id": "zeta"}, {"id": "alpha", "max_model_len": 4096}]}).to_string();
    let args = ["models", "--ask", "local", "--output", "json"];
    let (outcome, received) = told("compatible", Reply::status(200, &list), &args);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(
        report["providers"][0]["asked"],
        json!({"models": [{"name": "alpha", "contextWindow": 4096}, {"name": "zeta"}]})
    );
    assert_eq!(report["providers"][0]["key"], json!({"variable": "LOCAL_KEY", "set": true, "needed": true}));
    assert_eq!(
        (received[0].path.as_str(), received[0].header("authorization")),
        ("/v1/models", Some(format!("Bearer {KEY}").as_str()))
    );

    let page = json!({"data": [{"type": "model", "id": "claude-x", "display_name": "X"}], "has_more": false, "last_id": "claude-x"}).to_string();
    let (outcome, received) = told("anthropic", Reply::status(200, &page), &["models", "local", "--ask"]);
    assert_eq!(outcome.stdout, "local (anthropic, http://SERVER/v1): usable: `LOCAL_KEY` is set\n  local/claude-x\n");
    assert_eq!((received[0].path.as_str(), received[0].header("x-api-key")), ("/v1/models?limit=1000", Some(KEY)));
    assert_eq!(received[0].header("anthropic-version"), Some("2023-06-01"));

    let refused = |reply: Reply, expect: &str| {
        let (outcome, _) = told("compatible", reply, &["models", "--ask", "local"]);
        let line = outcome.stdout.lines().nth(1).unwrap_or_default().trim();
        assert_eq!((outcome.exit, line), (3, expect));
    };
    refused(
        Reply::status(401, "{\"error\":{\"message\":\"no\"}}"),
        "asked, and failed: the key in `LOCAL_KEY` was refused by the provider `local` (GET http://SERVER/v1/models): the provider answered with status 401: no (auth)",
    );
    refused(
        Reply::status(404, ""),
        "asked, and failed: the provider `local` has no list of models at this address: status 404 to GET http://SERVER/v1/models; `base-url` usually looks like `http://127.0.0.1:8080/v1`, or the server has none (invalid-request)",
    );
    refused(
        Reply::status(200, "{}"),
        "asked, and failed: the provider sent something else than a list of models (malformed-response)",
    );
}

#[test]
fn connections_are_used_again() {
    let runtime = runtime();
    let call = Answer::new().call("a", "echo", r#"{"text":"x"}"#);
    let replies = vec![
        Reply::answer(Protocol::Chat, &call).keep_alive(),
        Reply::answer(Protocol::Chat, &call).keep_alive(),
        Reply::answer(Protocol::Chat, &Answer::new().text("done")).keep_alive(),
    ];
    let server = runtime.block_on(ProviderServer::start(replies));
    let args = ["--plugin", "echo", "--no-save", "--no-default-plugins", "--model", "local/m", "hi"];
    let outcome = run(&table("compatible", &server.base_url(), ""), &args, &[("LOCAL_KEY", KEY)]);
    assert_eq!((outcome.exit, outcome.stdout.as_str()), (0, "done\n"), "{}", outcome.stderr);
    // The end of a body may come too late for the very next request.
    assert_eq!((server.received().len(), server.connections() < 3), (3, true), "{} connections", server.connections());
}

#[test]
fn nobody_there_is_said_in_words() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let check = |base_url: &str, more: &str, env: &[(&str, &str)], expect: &str| {
        let env = [&[("LOCAL_KEY", KEY)], env].concat();
        let outcome = run(&table("compatible", base_url, more), &ASK, &env);
        assert_eq!((outcome.exit, outcome.stderr.trim_end()), (3, format!("error: {expect}").as_str()));
    };
    check(
        &format!("http://{free}/v1"),
        "",
        &[],
        &format!(
            "the provider `local` cannot be reached at http://{free}: the connection was refused; is the server running, and is the port of `base-url` right? (transport)"
        ),
    );
    check(
        "http://nobody.invalid/v1",
        "proxy = \"none\"",
        &[("HTTP_PROXY", "http://127.0.0.1:1"), ("http_proxy", "http://127.0.0.1:1")],
        "the provider `local` cannot be reached at http://nobody.invalid: there is no host `nobody.invalid`; is the name in `base-url` right, and is there a network? (transport)",
    );
    check(
        "https://nobody.invalid/v1",
        "",
        &[("https_proxy", &format!("http://u:canary-pw@{free}"))],
        "the provider `local` cannot be reached at https://nobody.invalid (`https_proxy` names a proxy): the connection was refused; is the server running, and is the port of `base-url` right? (transport)",
    );
}

/// A proxy that answers requests itself: what it was asked, line by line.
fn proxy() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (port, asked) = (listener.local_addr().expect("an address").port(), Arc::new(Mutex::new(Vec::new())));
    let lines = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, &lines);
        }
    });
    (port, asked)
}

fn serve(mut stream: TcpStream, lines: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
        let text = std::mem::take(&mut line).trim_end().to_owned();
        if let Some(value) = text.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.parse().expect("a length");
        }
        lines.lock().expect("nobody panics with it").push(text);
    }
    let _ = reader.read_exact(&mut vec![0; length]);
    let body = [delta(json!({"content": "by proxy"})).to_string(), finish("stop").to_string(), "[DONE]".to_owned()];
    let body: String = body.iter().map(|data| format!("data: {data}\n\n")).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
}

#[test]
fn a_proxy_is_asked_where_it_is_set_and_loopback_goes_direct() {
    let through = |more: &str, env: &[(&str, &str)], base_url: &str| {
        let (port, asked) = proxy();
        let fill = |text: &str| text.replace("PORT", &port.to_string());
        let env: Vec<(String, String)> = env.iter().map(|(name, value)| ((*name).to_owned(), fill(value))).collect();
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let outcome =
            run(&table("compatible", base_url, &fill(more)), &ASK, &[&[("LOCAL_KEY", KEY)], &env[..]].concat());
        let asked = asked.lock().expect("nobody panics with it").clone();
        (outcome, asked)
    };
    let away = "http://models.invalid/v1";
    let first = |asked: &[String]| asked.first().cloned().unwrap_or_default();
    let (outcome, asked) = through("proxy = \"http://127.0.0.1:PORT\"", &[], away);
    assert_eq!((outcome.stdout.as_str(), outcome.exit), ("by proxy\n", 0), "{}", outcome.stderr);
    assert_eq!(first(&asked), "POST http://models.invalid/v1/chat/completions HTTP/1.1");
    let (outcome, asked) = through("", &[("http_proxy", "http://127.0.0.1:PORT")], away);
    assert_eq!(outcome.stdout, "by proxy\n");
    assert_eq!(first(&asked), "POST http://models.invalid/v1/chat/completions HTTP/1.1");
    let (outcome, asked) = through("proxy-env = \"P\"", &[("P", "http://name:canary@127.0.0.1:PORT")], away);
    assert_eq!(outcome.stdout, "by proxy\n");
    let authorized = asked.iter().any(|line| line.eq_ignore_ascii_case("proxy-authorization: Basic bmFtZTpjYW5hcnk="));
    assert!(authorized, "{asked:?}");
    let (outcome, asked) = through("", &[("http_proxy", "http://127.0.0.1:PORT")], "http://127.0.0.1:1/v1");
    assert_eq!((outcome.exit, asked.len()), (3, 0), "{asked:?}");
    assert!(outcome.stderr.contains("at http://127.0.0.1:1: the connection was refused"), "{}", outcome.stderr);
    let (outcome, _) = through("proxy-env = \"P\"", &[], away);
    assert_eq!(
        (outcome.exit, outcome.stderr.as_str()),
        (
            2,
            "error: the model `local/m` needs the address of its proxy, and `P` is not set\nhint: set the environment variable `P`\n"
        )
    );
}

/// The authority of a company.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

static AUTHORITY: std::sync::LazyLock<Authority> = std::sync::LazyLock::new(|| {
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    Authority { pem, issuer: Issuer::new(params, key) }
});

/// A server of TLS whose certificate is for these names and good until that year, and that offers HTTP/1.1 alone.
fn tls_server(name: &str, until: i32) -> u16 {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &AUTHORITY.issuer).expect("a certificate").der().clone();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
    let config =
        config.with_no_client_auth().with_single_cert(vec![certificate], PrivateKeyDer::from(key)).expect("a pair");
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = Stream::new(&mut connection, &mut stream);
            if stream.read(&mut [0; 1 << 16]).is_ok_and(|bytes| bytes > 0) {
                let body =
                    [delta(json!({"content": "over TLS"})).to_string(), finish("stop").to_string(), "[DONE]".into()];
                let body: String = body.iter().map(|data| format!("data: {data}\n\n")).collect();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            }
        }
    });
    port
}

#[test]
fn certificates_are_checked_and_a_companys_authority_can_be_added() {
    let check = |name: &str, until: i32, more: &str, exit: i32, expect: &str| {
        let port = tls_server(name, until);
        let outcome =
            run(&table("compatible", &format!("https://localhost:{port}/v1"), more), &ASK, &[("LOCAL_KEY", KEY)]);
        let said = if exit == 0 { outcome.stdout.clone() } else { outcome.stderr.replace(&port.to_string(), "PORT") };
        assert_eq!((outcome.exit, said.trim_end()), (exit, expect), "{}", outcome.stderr);
    };
    let failed = |why: &str| {
        format!("error: the provider `local` cannot be reached at https://localhost:PORT: {why} (transport)")
    };
    let trusted = "ca-file = \"roots.pem\"";
    check("localhost", 2200, trusted, 0, "over TLS");
    check(
        "localhost",
        2200,
        "",
        3,
        &failed(
            "nobody that this machine trusts has signed the server's certificate; for a company's own authority set `ca-file`",
        ),
    );
    check(
        "localhost",
        2021,
        trusted,
        3,
        &failed("the server's certificate has expired; is the clock of this machine right?"),
    );
    check(
        "other.test",
        2200,
        trusted,
        3,
        &failed("the server's certificate is for another name than `localhost`; is the host in `base-url` right?"),
    );
}

#[test]
fn tls_and_plain_http_are_not_mixed_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // As servers of plain HTTP answer what they do not understand.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
        }
    });
    let outcome = run(&table("compatible", &format!("https://{server}/v1"), ""), &ASK, &[("LOCAL_KEY", KEY)]);
    assert_eq!(
        outcome.stderr,
        format!(
            "error: the provider `local` cannot be reached at https://{server}: the server does not speak TLS there; for plain HTTP write `http://` in `base-url` (transport)\n"
        )
    );
}
