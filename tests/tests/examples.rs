//! The examples: every folder below `examples/` with a `command.txt` runs as it is, in a copy, and its output is compared with
//! `expect.txt`.
//!
//! `command.txt` has a line of shell each. `UPDATE_EXPECT=1` writes `expect.txt` anew.

use std::path::Path;

use dsh_tests::host::{self, Run};
use dsh_tests::normal::Normal;
use dsh_tests::sandbox::{Sandbox, copy};

/// Files that only this test reads; they are not part of the example's own copy.
const COMMANDS: &str = "command.txt";
const EXPECT: &str = "expect.txt";

/// The environment of a run, with the built binary where a user would have it.
fn environment(sandbox: &Sandbox) -> Vec<(String, String)> {
    let mut environment = sandbox.environment();
    let binary = host::binary();
    let folder = binary.parent().expect("the binary is in a folder").to_string_lossy().into_owned();
    for (name, value) in &mut environment {
        if name == "PATH" {
            *value = format!("{folder}:{value}");
        }
    }
    environment
}

/// What the lines of `commands` print, each behind its line, with its exit status when that is not 0.
fn play(sandbox: &Sandbox, commands: &str) -> Result<String, String> {
    let mut session = String::new();
    for line in commands.lines().filter(|line| !line.trim().is_empty()) {
        let run = Run {
            args: vec!["-c".into(), line.into()],
            env: environment(sandbox),
            dir: sandbox.workspace.clone(),
            ..Run::default()
        };
        let outcome = host::run_program(Path::new("/bin/sh"), &run)?;
        session += &format!("$ {line}\n{}", outcome.stdout);
        if !session.ends_with('\n') {
            session.push('\n');
        }
        if outcome.exit != 0 {
            session += format!("[exit {}] {}", outcome.exit, outcome.stderr).trim_end();
            session.push('\n');
        }
    }
    Ok(session)
}

fn check(example: &Path) -> Result<(), String> {
    let commands = std::fs::read_to_string(example.join(COMMANDS)).map_err(|error| error.to_string())?;
    let sandbox = Sandbox::new().map_err(|error| error.to_string())?;
    copy(example, &sandbox.workspace).map_err(|error| error.to_string())?;
    let found = Normal::new(&sandbox, &[])?.apply(&play(&sandbox, &commands)?);
    let expect_file = example.join(EXPECT);
    if std::env::var_os("UPDATE_EXPECT").is_some_and(|value| value != "0") {
        return std::fs::write(&expect_file, &found).map_err(|error| error.to_string());
    }
    let expect = std::fs::read_to_string(&expect_file).unwrap_or_default();
    if found == expect {
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&expect, &found).unified_diff().context_radius(2).to_string();
    Err(format!("{} differs (- expected, + found):\n{diff}", expect_file.display()))
}

#[test]
fn every_example_prints_what_it_promises() {
    let mut examples: Vec<_> = std::fs::read_dir(dsh_tests::root().join("examples"))
        .expect("there are examples")
        .map(|entry| entry.expect("an entry can be read").path())
        .filter(|path| path.join(COMMANDS).is_file())
        .collect();
    examples.sort();
    assert!(examples.len() >= 3, "found only {examples:?}");
    let failed: Vec<_> = examples.iter().filter_map(|example| check(example).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn another_output_is_noticed() {
    let example = tempfile::tempdir().expect("a folder");
    std::fs::write(example.path().join(COMMANDS), "echo one; exit 3\n").expect("written");
    std::fs::write(example.path().join(EXPECT), "$ echo one; exit 3\none\n[exit 3]\n").expect("written");
    if std::env::var_os("UPDATE_EXPECT").is_none() {
        assert_eq!(check(example.path()), Ok(()));
        std::fs::write(example.path().join(EXPECT), "$ echo one; exit 3\ntwo\n").expect("written");
        assert!(check(example.path()).is_err());
    }
}
