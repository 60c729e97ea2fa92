//! Capabilities and what an operator grants of them. Deny by default; a plugin's ceiling can only take away.

use std::fmt;
use std::str::FromStr;

use dsh_seam::tools::normalize_path;

use crate::wasi::host::{Host, parse_port};

/// One thing that a plugin may do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Grant {
    /// Call a model.
    Llm,
    /// Read the session's log and append own entries.
    Session,
    /// Talk to the agent.
    Inbox,
    /// Have sub-agents do work, inside `call-tool`.
    Agents,
    /// Ask the person.
    Approval,
    /// Run programs, inside `call-tool`.
    Process,
    /// Read below a directory of the workspace.
    FsRead(GrantPath),
    /// Read and write below a directory of the workspace.
    FsWrite(GrantPath),
    /// Connect to a host.
    Net(NetRule),
    /// See an environment variable.
    Env(String),
}

/// A directory as it was granted: the guest sees it under the text as written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantPath {
    /// As written.
    pub written: String,
    /// Relative to the workspace, without `.` and doubled `/`; `.` is the workspace itself.
    pub normal: String,
}

/// A host that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetRule {
    /// The host in lower case: a name, an IPv4 address, an IPv6 address without brackets. Behind `*.` one or more labels are left open.
    pub host: String,
    /// Whether `host` stands for names below it.
    pub subdomains: bool,
    /// The port; none: https on 443 and nothing else.
    pub port: Option<u16>,
}

impl NetRule {
    /// Whether it lets a connection to `host` (without brackets) on `port` through; `tls` is whether it is https.
    #[must_use]
    pub fn allows(&self, host: &str, port: u16, tls: bool) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let host_fits = if self.subdomains {
            host.strip_suffix(&self.host)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.') && !rest.starts_with('.'))
        } else {
            host == self.host
        };
        let port_fits = match self.port {
            Some(allowed) => allowed == port,
            None => tls && port == 443,
        };
        host_fits && port_fits
    }
}

/// A grant that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no capability: {why}")]
pub struct GrantError {
    /// As written.
    pub text: String,
    /// What is wrong with it, and the nearest right form.
    pub why: String,
}

const NAMES: [&str; 10] = [
    "llm",
    "session",
    "inbox",
    "agents",
    "approval",
    "process",
    "fs:read:PATH",
    "fs:write:PATH",
    "net:HOST[:PORT]",
    "env:NAME",
];

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let bad = |why: String| GrantError { text: text.to_owned(), why };
        let error = |why: String| Err(bad(why));
        let (word, rest) = text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest)));
        let plain = |grant: Grant| match rest {
            None => Ok(grant),
            Some(_) => error(format!("`{word}` takes nothing behind it; write `{word}`")),
        };
        match word {
            "llm" => plain(Self::Llm),
            "session" => plain(Self::Session),
            "inbox" => plain(Self::Inbox),
            "agents" => plain(Self::Agents),
            "approval" => plain(Self::Approval),
            "process" => plain(Self::Process),
            "fs" => match rest.unwrap_or("").split_once(':') {
                Some(("read", path)) => Ok(Self::FsRead(parse_path(path).map_err(bad)?)),
                Some(("write", path)) => Ok(Self::FsWrite(parse_path(path).map_err(bad)?)),
                Some((other, _)) => error(format!("`fs:{other}` is unknown; write `fs:read:PATH` or `fs:write:PATH`")),
                None => error(
                    "a path is missing; write `fs:read:PATH` or `fs:write:PATH`, `.` for the whole workspace".into(),
                ),
            },
            "net" => Ok(Self::Net(parse_net(rest.unwrap_or("")).map_err(bad)?)),
            "env" => Ok(Self::Env(parse_env(rest.unwrap_or("")).map_err(bad)?)),
            other => error(unknown(other)),
        }
    }
}

fn unknown(word: &str) -> String {
    let words = ["llm", "session", "inbox", "agents", "approval", "process", "fs", "net", "env"];
    let near = words
        .iter()
        .map(|known| (crate::difference::distance(word, known), known))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    let all = NAMES.map(|name| format!("`{name}`")).join(", ");
    match near {
        Some((_, known)) => format!("did you mean `{known}`? There are {all}"),
        None => format!("there are {all}"),
    }
}

fn parse_path(path: &str) -> Result<GrantPath, String> {
    if path.is_empty() {
        return Err("a path is missing; `.` is the whole workspace".into());
    }
    match normalize_path(path) {
        Some(normal) => Ok(GrantPath { written: path.to_owned(), normal }),
        None => Err("the path must be relative to the workspace, with `/` and without `..`".into()),
    }
}

fn parse_net(text: &str) -> Result<NetRule, String> {
    if text.contains("//") || text.contains('@') || text.contains('?') {
        return Err(
            "write a host and at most a port, no address: `net:api.example.com` or `net:api.example.com:8443`".into()
        );
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("behind `]` only `:PORT` may stand")?)),
            None => return Err("the closing `]` is missing; write `net:[::1]:80`".into()),
        },
        None if text.matches(':').count() > 1 => {
            return Err("an IPv6 address stands in brackets: `net:[::1]:80`".into());
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        None => None,
        Some(port) => Some(parse_port(port).ok_or_else(|| format!("`{port}` is no port (1 to 65535)"))?),
    };
    let (host, subdomains) = host.strip_prefix("*.").map_or((host, false), |rest| (rest, true));
    let host = if text.starts_with('[') { Host::parse_bracketed(host) } else { Host::parse(host) };
    match host {
        Ok(Host::Address(_)) if subdomains => Err("there is nothing below an address; write it without `*.`".into()),
        Ok(host) => Ok(NetRule { host: host.to_string(), subdomains, port }),
        Err(why) => Err(format!(
            "that is no host: {why}; write `net:api.example.com`, `net:*.example.com`, `net:127.0.0.1:8080` or `net:[::1]:80`"
        )),
    }
}

fn parse_env(name: &str) -> Result<String, String> {
    let strange = |c: char| c.is_whitespace() || c.is_control() || "=*$".contains(c);
    if !name.is_empty() && !name.contains(strange) {
        Ok(name.to_owned())
    } else {
        Err("write the name of one variable: `env:TERM`".into())
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Llm => f.write_str("llm"),
            Self::Session => f.write_str("session"),
            Self::Inbox => f.write_str("inbox"),
            Self::Agents => f.write_str("agents"),
            Self::Approval => f.write_str("approval"),
            Self::Process => f.write_str("process"),
            Self::FsRead(path) => write!(f, "fs:read:{}", path.written),
            Self::FsWrite(path) => write!(f, "fs:write:{}", path.written),
            Self::Net(rule) => {
                let star = if rule.subdomains { "*." } else { "" };
                let host = if rule.host.contains(':') { format!("[{}]", rule.host) } else { rule.host.clone() };
                match rule.port {
                    Some(port) => write!(f, "net:{star}{host}:{port}"),
                    None => write!(f, "net:{star}{host}"),
                }
            }
            Self::Env(name) => write!(f, "env:{name}"),
        }
    }
}

/// Everything that was granted to one plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants(Vec<Grant>);

impl Grants {
    /// These grants, each once.
    #[must_use]
    pub fn new(grants: impl IntoIterator<Item = Grant>) -> Self {
        let mut all: Vec<Grant> = grants.into_iter().collect();
        all.sort();
        all.dedup();
        Self(all)
    }

    /// All of them, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }

    /// Whether exactly this was granted.
    #[must_use]
    pub fn has(&self, grant: &Grant) -> bool {
        self.0.contains(grant)
    }

    /// Whether some host may be connected to.
    #[must_use]
    pub fn has_net(&self) -> bool {
        self.0.iter().any(|grant| matches!(grant, Grant::Net(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_and_written_alike() {
        let check = |text: &str| assert_eq!(text.parse::<Grant>().expect("a grant").to_string(), text);
        for text in [
            "llm",
            "session",
            "inbox",
            "agents",
            "approval",
            "process",
            "fs:read:.",
            "fs:write:docs/",
            "env:TERM",
            "net:api.example.com",
        ] {
            check(text);
        }
        // The system's names differ by case, and may look like anything.
        for name in ["term", "Term", "CI_2", "_", "1", "a.b", "a-b", "a:b", "(x)", "ÄÖ", "TERM_"] {
            check(&format!("env:{name}"));
        }
        check("net:*.example.com:8443");
        check("net:[::1]:80");
        check("net:127.0.0.1:8080");
        let normal = |text: &str, expect: &str| assert_eq!(text.parse::<Grant>().expect("a grant").to_string(), expect);
        normal("net:API.example.com.", "net:api.example.com");
        normal("net:[0:0::0:1]:0080", "net:[::1]:80");
        normal("net:[::ffff:127.0.0.1]:80", "net:127.0.0.1:80");
    }

    #[test]
    fn typing_errors_name_the_right_form() {
        let check = |text: &str, expect: &str| {
            let why = text.parse::<Grant>().expect_err("no grant").why;
            assert!(why.contains(expect), "{text}: {why}");
        };
        check("lmm", "did you mean `llm`?");
        check("proces", "did you mean `process`?");
        check("agent", "did you mean `agents`?");
        check("llm:x", "write `llm`");
        check("fs", "fs:read:PATH");
        check("fs:raed:docs", "`fs:read:PATH` or `fs:write:PATH`");
        check("fs:read:", "a path is missing");
        check("fs:read:/etc", "relative to the workspace");
        check("fs:write:a/../b", "without `..`");
        check("net:https://x.y", "no address");
        check("net:::1", "in brackets");
        check("net:a:99999", "no port");
        check("net:*", "no host");
        check("net:0x7f.1", "that is no host: an IPv4 address is four decimal numbers without leading zeros");
        check("net:0177.0.0.1:80", "that is no host: an IPv4 address is four decimal numbers without leading zeros");
        check("net:*.127.0.0.1", "nothing below an address");
        check("net:аpple.com", "punycode");
        check("net:[fe80::1%eth0]:80", "no zone");
        check("net:a.com:0", "no port");
        check("net:a.com:+80", "no port");
        for name in ["", "*", "CI*", "CI=1", "=", "$CI", " CI", "CI ", "A B", "A\nB", "A\0", "\u{1b}[2J"] {
            check(&format!("env:{name}"), "write the name of one variable: `env:TERM`");
        }
        check("env", "write the name of one variable: `env:TERM`");
        check("everything", "there are `llm`");
    }

    #[test]
    fn hosts_are_matched_exactly() {
        let check = |rule: &str, host: &str, port: u16, tls: bool, expect: bool| {
            let Ok(Grant::Net(rule)) = format!("net:{rule}").parse() else { panic!("{rule}") };
            assert_eq!(rule.allows(host, port, tls), expect, "{rule:?} {host} {port}");
        };
        check("a.com", "a.com", 443, true, true);
        check("a.com", "A.COM.", 443, true, true);
        check("a.com", "a.com", 80, false, false);
        check("a.com", "a.com", 443, false, false);
        check("a.com", "b.a.com", 443, true, false);
        check("a.com", "evila.com", 443, true, false);
        check("*.a.com", "b.a.com", 443, true, true);
        check("*.a.com", "c.b.a.com", 443, true, true);
        check("*.a.com", "a.com", 443, true, false);
        check("*.a.com", "evila.com", 443, true, false);
        check("*.a.com", ".a.com", 443, true, false);
        check("a.com:8080", "a.com", 8080, false, true);
        check("a.com:8080", "a.com", 443, true, false);
        check("[::1]:80", "::1", 80, false, true);
    }
}
