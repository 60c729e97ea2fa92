//! The documentation against what it describes: options, commands, events, plugins, each in both directions.
//!
//! Needs the built binary (`cargo build --release -p dsh-host`) and the plugins (`cargo xtask guests`).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use dsh_tests::host::binary;
use dsh_tests::root;

type Names = BTreeSet<String>;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What the built binary prints to standard output.
fn host(arguments: &[&str]) -> String {
    let binary = binary();
    let output = Command::new(&binary)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("`{}` cannot be started: {error}", binary.display()));
    assert!(output.status.success(), "dsh-host {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the help is UTF-8")
}

/// The part of a page below one heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading `{heading}`"));
    let level = heading.split(' ').next().unwrap_or_default();
    let rest = &page[start + heading.len() + 2..];
    rest.find(&format!("\n{level} ")).map_or(rest, |end| &rest[..end])
}

/// The long options in a text: `--` and what follows it, where a word begins.
fn options(text: &str) -> Names {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    let mut found = Names::new();
    for (at, _) in text.match_indices("--") {
        let name: String = text[at + 2..].chars().take_while(|c| is_name(*c)).collect();
        let begins = !text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '-');
        if begins && name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.insert(name);
        }
    }
    found
}

/// The options a help text defines: those that begin a line, with or without a short form before them.
fn defined_options(help: &str) -> Names {
    let mut found = Names::new();
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        let long = line.split(", ").find(|part| part.starts_with("--")).unwrap_or(line);
        found.extend(options(long.split([' ', '=', '[']).next().unwrap_or_default()));
    }
    found
}

/// The first columns of the tables in a text.
fn first_columns(text: &str) -> String {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.filter_map(|line| line.split('|').nth(1)).collect::<Vec<_>>().join("\n")
}

/// The event types in a text: what stands in `quote` and looks like `turn/start`.
fn event_types(text: &str, quote: char) -> Names {
    let is_type = |word: &str| {
        let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        word.split_once('/').is_some_and(|(left, right)| plain(left) && plain(right))
    };
    let pieces = text.split(quote).map(|piece| piece.split('{').next().unwrap_or_default());
    pieces.filter(|word| is_type(word)).map(str::to_owned).collect()
}

/// What is only on one side, a line each.
fn differences(left: (&str, &Names), right: (&str, &Names)) -> Vec<String> {
    let only = |(here, names): (&str, &Names), (there, others): (&str, &Names)| {
        names.difference(others).map(|name| format!("`{name}` is in {here}, not in {there}")).collect::<Vec<_>>()
    };
    let mut found = only(left, right);
    found.extend(only(right, left));
    found
}

fn assert_same(left: (&str, &Names), right: (&str, &Names)) {
    let found = differences(left, right);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_option_is_documented_and_every_documented_option_exists() {
    let page = read("docs/command-line.md");
    let documented = options(&first_columns(section(&page, "## Running an agent")));
    let mut defined = defined_options(&host(&["--help"]));
    // What every program has needs no row.
    for name in ["help", "version"] {
        assert!(defined.remove(name), "`--{name}` is missing");
    }
    // `-v` and `-q` are documented by their short forms.
    for name in ["verbose", "quiet"] {
        defined.remove(name);
    }
    assert_same(("docs/command-line.md", &documented), ("dsh-host --help", &defined));
}

#[test]
fn every_event_is_documented_and_every_documented_event_exists() {
    let page = read("docs/command-line.md");
    let documented = event_types(section(&page, "## Events").split("\nValues.").next().unwrap_or_default(), '`');
    let source = read("host/dsh-seam/src/event.rs");
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    // Waterfalls, and the name of a live event that a later version may add.
    let others = ["agent/request", "agent/step-result", "tools/execute", "agent/unknown"].map(str::to_owned);
    let defined: Names = event_types(source, '"').into_iter().filter(|name| !others.contains(name)).collect();
    assert!(defined.len() > 20, "only {} events were found in the source", defined.len());
    assert_same(("docs/command-line.md", &documented), ("host/dsh-seam/src/event.rs", &defined));
}

#[test]
fn every_shipped_plugin_is_in_the_readme() {
    let page = read("README.md");
    let table = first_columns(section(&page, "## The shipped plugins").replace("[`", "`").as_str());
    let documented: Names = table.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let entries = std::fs::read_dir(root().join("guest-plugins")).expect("the plugins can be read");
    let folders = entries.map(|entry| entry.expect("an entry can be read").path());
    let is_plugin =
        |path: &PathBuf| std::fs::read_to_string(path.join("Cargo.toml")).is_ok_and(|text| text.contains("cdylib"));
    let shipped: Names = folders
        .filter(is_plugin)
        .map(|path| path.file_name().expect("a folder has a name").to_string_lossy().into_owned())
        .collect();
    assert_same(("README.md", &documented), ("guest-plugins/", &shipped));
}

/// The commands of a console block and what the page says they print.
fn console(text: &str) -> Vec<(String, String)> {
    let block = text.split("```console\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a console block");
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => *output += &format!("{line}\n"),
            (None, None) => panic!("a console block begins with a command"),
        }
    }
    commands
}

#[test]
fn the_example_of_the_readme_prints_what_it_says() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    std::fs::create_dir(folder.path().join("docs")).expect("the folder is empty");
    for file in ["docs/README.md", "Cargo.toml"] {
        std::fs::copy(root().join(file), folder.path().join(file)).expect("the file is there");
    }
    let page = read("README.md");
    for (command, expect) in console(section(&page, "## Ten lines")) {
        let typed = command.replace("target/release/dsh-host", &binary().display().to_string());
        let output = Command::new("sh")
            .args(["-c", &typed])
            .current_dir(folder.path())
            .env("DSH_HOME", folder.path().join("home"))
            .stdin(Stdio::null())
            .output()
            .expect("a shell can be started");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expect, "{command}\n{told}");
    }
}

#[test]
fn what_is_on_one_side_only_is_reported() {
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Names>();
    let found = differences(("a", &names(&["one", "two"])), ("b", &names(&["two", "three"])));
    assert_eq!(found, ["`one` is in a, not in b", "`three` is in b, not in a"]);
}

#[test]
fn names_are_found_in_texts() {
    let check =
        |found: Names, expect: &[&str]| assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), expect);
    check(options("| `--max-steps N`, `--max-turns N` |---|"), &["max-steps", "max-turns"]);
    let help = "Options:\n      --plugin <[NAME=]REF>  Add (see --grant)\n  -v, --verbose...  More\n  -q  Less\n";
    check(defined_options(help), &["plugin", "verbose"]);
    check(event_types("`turn/start{turn}`, `usage{turn}`, `plugin/<name>/state{key}`, `DIR/a`", '`'), &["turn/start"]);
    check(event_types("TurnStart(TurnStart) = \"turn/start\",", '"'), &["turn/start"]);
    assert_eq!(section("# A\n\n## B\nb\n\n## C\nc\n", "## B"), "b\n");
    let pair = |command: &str, output: &str| (command.to_owned(), output.to_owned());
    assert_eq!(console("a\n```console\n$ b\nc\nd\n$ e\n```\n"), [pair("b", "c\nd\n"), pair("e", "")]);
    assert_eq!(first_columns("| a |\n|---|\n| `b` | c |\n"), " `b` ");
}
