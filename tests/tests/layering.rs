//! Who may import whom: the first invariant of `docs/ARCHITECTURE.md`, checked over `cargo metadata` and over the sources.
//!
//! The rules are three tables below. An import that is not in a table fails the test; a new crate of ours must be given a row.
//! The last tests run the same check functions on doctored input, so that it is known that they can fail.

use std::fmt;
use std::process::Command;

use dsh_tests::root;
use serde_json::Value;

/// Our crates: who it is, which of ours it may import, and which only in its tests.
const CRATES: &[Row] = &[
    Row { name: "dsh-seam", imports: &[], tests_import: &[] },
    // The loop is tested with the real providers, not with mocks of them.
    Row { name: "dsh-loop", imports: &["dsh-seam"], tests_import: &["dsh-services", "dsh-testkit"] },
    Row { name: "dsh-services", imports: &["dsh-seam"], tests_import: &["dsh-testkit"] },
    Row { name: "dsh-wasm", imports: &["dsh-seam"], tests_import: &["dsh-testkit", "dsh-text-guests"] },
    Row { name: "dsh-testkit", imports: &["dsh-seam"], tests_import: &[] },
    Row {
        name: "dsh-host",
        imports: &["dsh-seam", "dsh-loop", "dsh-services", "dsh-wasm"],
        tests_import: &["dsh-testkit"],
    },
    // It measures the parts beside each other, and nobody imports it.
    Row {
        name: "dsh-bench",
        imports: &["dsh-seam", "dsh-loop", "dsh-services", "dsh-wasm", "dsh-testkit"],
        tests_import: &[],
    },
    Row {
        name: "dsh-tests",
        imports: &["dsh-testkit"],
        tests_import: &["dsh-seam", "dsh-services", "dsh-faults", "dsh-text-guests"],
    },
    // Preloaded into the built binary by the tests, never linked.
    Row { name: "dsh-faults", imports: &[], tests_import: &[] },
    Row { name: "dsh-text-guests", imports: &[], tests_import: &[] },
    Row { name: "xtask", imports: &["dsh-text-guests"], tests_import: &[] },
];

/// Crates of others that only some of ours may name, and why.
const FOREIGN: &[Foreign] = &[
    Foreign { prefix: "wasmtime", only: &["dsh-wasm"], reason: "only dsh-wasm knows wasmtime" },
    Foreign { prefix: "wasmparser", only: &["dsh-wasm"], reason: "only dsh-wasm knows components" },
    Foreign {
        prefix: "wit-parser",
        only: &["dsh-wasm", "dsh-tests", "dsh-text-guests"],
        reason: "only dsh-wasm, the tests of `wit/` and guests of text know WIT",
    },
    Foreign { prefix: "reqwest", only: &["dsh-services"], reason: "only model adapters know HTTP" },
    Foreign {
        prefix: "hyper",
        only: &["dsh-services", "dsh-tests", "dsh-wasm"],
        reason: "only model adapters know HTTP, the requests of guests, and the tests' server",
    },
    Foreign { prefix: "clap", only: &["dsh-host", "xtask"], reason: "only the binaries know arguments" },
    Foreign { prefix: "anyhow", only: &["dsh-host", "xtask"], reason: "libraries have typed errors" },
];

/// Words that only some sources of the native crates may hold, outside of their tests.
const WORDS: &[Word] = &[
    Word { word: "reqwest", below: &["dsh-services/src/llm"], reason: "only model adapters know HTTP" },
    Word {
        word: "hyper",
        below: &["dsh-services/src/llm", "dsh-wasm/src/wasi"],
        reason: "only model adapters and the requests of guests know HTTP",
    },
    Word { word: "env::args", below: BINARIES, reason: "only dsh-host knows arguments" },
    Word { word: "env::var", below: ENVIRONMENT, reason: "only dsh-host knows the environment" },
    Word { word: "env::set_var", below: &[], reason: "nobody changes the environment" },
    Word { word: "println!", below: BINARIES, reason: "only dsh-host knows the terminal" },
    Word { word: "eprintln!", below: BINARIES, reason: "only dsh-host knows the terminal" },
    Word { word: "io::stdout", below: BINARIES, reason: "only dsh-host knows the terminal" },
    Word { word: "io::stderr", below: BINARIES, reason: "only dsh-host knows the terminal" },
    Word { word: "io::stdin", below: BINARIES, reason: "only dsh-host knows the terminal" },
];

/// `dsh-bench` and what it is compared with are programs too.
const BINARIES: &[&str] = &["dsh-host/src", "dsh-bench/src", "dsh-bench/rivals/src"];

/// Whoever starts a program needs `PATH` to find it, and hands some variables of our own on to it, chosen by name.
const ENVIRONMENT: &[&str] = &["dsh-host/src", "dsh-bench/src", "dsh-testkit/src", "dsh-services/src/processes"];

struct Row {
    name: &'static str,
    imports: &'static [&'static str],
    tests_import: &'static [&'static str],
}

struct Foreign {
    /// Matches the crate of this name and those that go on with `-`.
    prefix: &'static str,
    only: &'static [&'static str],
    reason: &'static str,
}

struct Word {
    word: &'static str,
    /// Folders or files below `host/`.
    below: &'static [&'static str],
    reason: &'static str,
}

/// One crate that names another in its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edge {
    from: String,
    to: String,
    /// Named under `[dev-dependencies]`.
    tests_only: bool,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = if self.tests_only { "-(tests)->" } else { "->" };
        write!(f, "{} {arrow} {}", self.from, self.to)
    }
}

/// Every import that the workspace's manifests state, as cargo reads them.
fn workspace_edges() -> Vec<Edge> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().expect("a list of packages") {
        let from = package["name"].as_str().expect("a package has a name");
        // A crate without imports still has to have a row: it imports itself here.
        edges.push(Edge { from: from.to_owned(), to: from.to_owned(), tests_only: false });
        for dependency in package["dependencies"].as_array().expect("a list of dependencies") {
            edges.push(Edge {
                from: from.to_owned(),
                to: dependency["name"].as_str().expect("a dependency has a name").to_owned(),
                tests_only: dependency["kind"] == "dev",
            });
        }
    }
    edges
}

/// What is wrong with these imports, a line each.
fn check_edges(edges: &[Edge]) -> Vec<String> {
    edges.iter().filter_map(|edge| edge_fault(edge).map(|fault| format!("{edge}: {fault}"))).collect()
}

fn edge_fault(edge: &Edge) -> Option<String> {
    let Some(row) = CRATES.iter().find(|row| row.name == edge.from) else {
        return Some("a crate without a row in this test".to_owned());
    };
    if edge.from == edge.to {
        return None;
    }
    if CRATES.iter().any(|other| other.name == edge.to) {
        let to = edge.to.as_str();
        let allowed = row.imports.contains(&to) || edge.tests_only && row.tests_import.contains(&to);
        return (!allowed).then(|| "not in the table of imports".to_owned());
    }
    let rule = FOREIGN.iter().find(|rule| {
        edge.to.strip_prefix(rule.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
    })?;
    (!rule.only.contains(&edge.from.as_str())).then(|| rule.reason.to_owned())
}

/// Every Rust source below `host/`, with its path relative to it.
fn host_sources() -> Vec<(String, String)> {
    let host = root().join("host");
    let mut found = Vec::new();
    let mut folders = vec![host.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&host).expect("below host").to_string_lossy().replace('\\', "/");
                found.push((name, std::fs::read_to_string(&path).expect("a source is UTF-8")));
            }
        }
    }
    found.sort();
    found
}

/// Which sources hold words that they must not, a line each. Comments, and what follows the first `#[cfg(test)]`, are not looked at.
fn check_words(sources: &[(String, String)]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, text) in sources.iter().filter(|(name, _)| name.contains("/src/") && !is_test_file(name)) {
        let code = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").enumerate();
        for (index, line) in code.filter(|(_, line)| !line.trim_start().starts_with("//")) {
            let broken = WORDS.iter().filter(|rule| holds_word(line, rule.word) && !is_below(name, rule.below));
            faults.extend(broken.map(|rule| format!("host/{name}:{}: `{}`: {}", index + 1, rule.word, rule.reason)));
        }
    }
    faults
}

/// A module that is compiled for tests only is told by its name.
fn is_test_file(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

fn is_below(name: &str, places: &[&str]) -> bool {
    places.iter().any(|place| {
        name.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest.starts_with('.'))
    })
}

/// Whether `word` stands in `line` and does not go on to the left, so that `eprintln!` is not `println!`.
fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word)
        .any(|(at, _)| !line[..at].chars().next_back().is_some_and(|before| before.is_alphanumeric() || before == '_'))
}

#[test]
fn crates_import_only_what_the_tables_allow() {
    let faults = check_edges(&workspace_edges());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_crate_of_the_table_exists() {
    let edges = workspace_edges();
    let missing: Vec<_> =
        CRATES.iter().filter(|row| !edges.iter().any(|edge| edge.from == row.name)).map(|row| row.name).collect();
    assert!(missing.is_empty(), "no such crate in the workspace: {missing:?}");
}

#[test]
fn sources_hold_only_words_of_their_layer() {
    let faults = check_words(&host_sources());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Adds one import to the real ones and expects exactly that one to be reported.
fn check_doctored(from: &str, to: &str, tests_only: bool, expect: &str) {
    let mut edges = workspace_edges();
    edges.push(Edge { from: from.to_owned(), to: to.to_owned(), tests_only });
    let known = check_edges(&workspace_edges());
    let new: Vec<_> = check_edges(&edges).into_iter().filter(|fault| !known.contains(fault)).collect();
    let expected: Vec<_> = (!expect.is_empty()).then(|| expect.to_owned()).into_iter().collect();
    assert_eq!(new, expected);
}

#[test]
fn a_forbidden_import_is_reported() {
    check_doctored("dsh-services", "dsh-loop", false, "dsh-services -> dsh-loop: not in the table of imports");
    check_doctored("dsh-wasm", "dsh-loop", true, "dsh-wasm -(tests)-> dsh-loop: not in the table of imports");
    check_doctored("dsh-seam", "dsh-testkit", false, "dsh-seam -> dsh-testkit: not in the table of imports");
    check_doctored("dsh-loop", "dsh-testkit", false, "dsh-loop -> dsh-testkit: not in the table of imports");
    check_doctored("dsh-host", "wasmtime", false, "dsh-host -> wasmtime: only dsh-wasm knows wasmtime");
    check_doctored("dsh-loop", "wasmtime-wasi", false, "dsh-loop -> wasmtime-wasi: only dsh-wasm knows wasmtime");
    check_doctored("dsh-wasm", "reqwest", false, "dsh-wasm -> reqwest: only model adapters know HTTP");
    check_doctored("dsh-services", "clap", false, "dsh-services -> clap: only the binaries know arguments");
    check_doctored("dsh-seam", "anyhow", false, "dsh-seam -> anyhow: libraries have typed errors");
    check_doctored("dsh-extra", "serde", false, "dsh-extra -> serde: a crate without a row in this test");
}

#[test]
fn an_allowed_import_is_not_reported() {
    check_doctored("dsh-wasm", "wasmtime-wasi-http", false, "");
    check_doctored("dsh-services", "dsh-testkit", true, "");
    check_doctored("dsh-seam", "hyperloglog", false, "");
}

#[test]
fn a_forbidden_word_is_reported() {
    let check = |name: &str, text: &str, expect: &[&str]| {
        assert_eq!(check_words(&[(name.to_owned(), text.to_owned())]), expect);
    };
    check(
        "dsh-loop/src/driver.rs",
        "//! Not `reqwest`.\nuse std::time;\nfn f() { let _ = std::env::args(); }\n",
        &["host/dsh-loop/src/driver.rs:3: `env::args`: only dsh-host knows arguments"],
    );
    check(
        "dsh-wasm/src/log.rs",
        "fn f() { eprintln!(\"x\") }\n",
        &["host/dsh-wasm/src/log.rs:1: `eprintln!`: only dsh-host knows the terminal"],
    );
    check(
        "dsh-services/src/tools.rs",
        "use reqwest::Client;\n",
        &["host/dsh-services/src/tools.rs:1: `reqwest`: only model adapters know HTTP"],
    );
    check("dsh-services/src/llm/http.rs", "use reqwest::Client;\n", &[]);
    check("dsh-services/src/llm.rs", "use reqwest::Client;\n", &[]);
    check("dsh-loop/src/inbox.rs", "#[cfg(test)]\nmod tests { fn f() { println!(\"x\") } }\n", &[]);
    check("dsh-loop/tests/turn.rs", "fn f() { println!(\"x\") }\n", &[]);
}
