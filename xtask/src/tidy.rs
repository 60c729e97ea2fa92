//! `cargo xtask tidy`: the rules of this repository that no other tool checks. Each rule is a function over the files, and has a test
//! in which it finds something.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::progress::say;
use crate::repo::Repo;

/// Folders that hold no sources of ours.
const SKIPPED: &[&str] = &[".git", "target", "node_modules"];

/// Files that a newcomer looks for in the root.
const ROOT_FILES: &[&str] =
    &["README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Folders below the root whose names begin with this are tools' own and need no README.
const HIDDEN: char = '.';

/// The most lines of a function, signature and braces included: what a person sees at once.
const FUNCTION_LINES: usize = 70;

/// How many levels of folders must say what is in them.
const README_LEVELS: usize = 2;

/// One file: its path from the root with `/`, and its text when it is UTF-8.
struct File {
    path: String,
    text: String,
}

/// A rule: a line for each place that breaks it.
type Rule = fn(&[File]) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("root files", root_files),
    ("a README in every folder", readmes),
    ("no paths of one machine", machine_paths),
    ("no left-overs", leftovers),
    ("a function fits a screen", long_functions),
    ("a paragraph is one line", paragraphs),
    ("links lead somewhere", links),
    ("quoted files are quoted as they are", quotations),
];

/// Checks all rules.
pub fn run(repo: &Repo) -> Result<()> {
    let mut files = Vec::new();
    read_files(&repo.root, &repo.root, &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut broken = 0;
    for (name, rule) in RULES {
        for fault in rule(&files) {
            say(&format!("{fault} ({name})"));
            broken += 1;
        }
    }
    if broken > 0 {
        bail!("{broken} places break the rules above");
    }
    say(&format!("{} rules hold over {} files", RULES.len(), files.len()));
    Ok(())
}

fn read_files(root: &Path, folder: &Path, files: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            read_files(root, &path, files)?;
            continue;
        }
        let bytes = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let shown = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
        files.push(File { path: shown, text: String::from_utf8(bytes).unwrap_or_default() });
    }
    Ok(())
}

fn root_files(files: &[File]) -> Vec<String> {
    let missing = ROOT_FILES.iter().filter(|name| !files.iter().any(|file| file.path == **name));
    missing.map(|name| format!("{name}: missing")).collect()
}

fn readmes(files: &[File]) -> Vec<String> {
    let mut folders: Vec<&str> = Vec::new();
    for file in files.iter().filter(|file| !file.path.starts_with(HIDDEN)) {
        let ends = file.path.match_indices('/').map(|(at, _)| at).take(README_LEVELS);
        folders.extend(ends.map(|end| &file.path[..end]));
    }
    folders.sort_unstable();
    folders.dedup();
    folders.retain(|folder| !files.iter().any(|file| file.path == format!("{folder}/README.md")));
    folders
        .iter()
        .map(|folder| format!("{folder}/README.md: missing; it says what is in the folder and how to add to it"))
        .collect()
}

fn machine_paths(files: &[File]) -> Vec<String> {
    let homes = ["work", "root"].map(|name| format!("/{name}/"));
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| !file.path.ends_with(".lock")) {
        for (index, line) in file.text.lines().enumerate() {
            let starts_path = |home: &String| {
                line.match_indices(home.as_str()).any(|(at, _)| {
                    !line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "_.-}*~".contains(c))
                })
            };
            if homes.iter().any(starts_path) {
                faults.push(format!("{}:{}: a path of one machine", file.path, index + 1));
            }
        }
    }
    faults
}

fn leftovers(files: &[File]) -> Vec<String> {
    // Written in two parts, so that this file does not report itself.
    let words = [
        (concat!("todo", "!("), "finish it"),
        (concat!("unimplemented", "!("), "finish it"),
        (concat!("dbg", "!("), "remove it"),
        (concat!("#[", "allow("), "use `#[expect(…, reason = \"…\")]`"),
        (concat!("#[", "ignore]"), "say why: `#[ignore = \"…\"]`"),
    ];
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        for (index, line) in file.text.lines().enumerate() {
            let found = words.iter().filter(|(word, _)| line.contains(word) && !line.trim_start().starts_with("//"));
            faults.extend(found.map(|(word, what)| format!("{}:{}: `{word}`: {what}", file.path, index + 1)));
        }
    }
    faults
}

/// Formatted code closes a function with a brace that stands as far to the right as its first line begins. A test may be longer:
/// what makes it long is a table of inputs and outputs.
fn long_functions(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let lines: Vec<_> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let indent = line.len() - code.len();
            let is_function = code.split('(').next().unwrap_or_default().split_whitespace().any(|word| word == "fn");
            // A function of a trait may have no body.
            let opens = lines[index..].iter().find(|line| line.ends_with(['{', ';', '}']));
            let is_test =
                index > 0 && lines[index - 1].trim_start().starts_with("#[") && lines[index - 1].contains("test");
            if !is_function || is_test || code.starts_with("//") || !opens.is_some_and(|line| line.ends_with('{')) {
                continue;
            }
            let ends =
                |line: &&str| line.len() == indent + 1 && line.ends_with('}') && line[..indent].trim().is_empty();
            let Some(length) = lines[index..].iter().position(ends).map(|last| last + 1) else { continue };
            if length > FUNCTION_LINES {
                faults.push(format!("{}:{}: {length} lines, {FUNCTION_LINES} are the most", file.path, index + 1));
            }
        }
    }
    faults
}

/// Documents of ours, not Markdown that is somebody's data.
fn documents(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        file.path.ends_with(".md")
            && (name == "README.md" || file.path.starts_with("docs/") || !file.path.contains('/'))
    })
}

/// The lines of a document outside of code blocks, with their numbers from 1; a code block is one empty line.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
            lines.push((index + 1, ""));
        } else if !inside {
            lines.push((index + 1, line));
        }
    }
    lines
}

fn paragraphs(files: &[File]) -> Vec<String> {
    // What begins a line that is complete in itself, or a block of its own.
    let begins_block = |line: &str| {
        let line = line.trim_start();
        let numbered = line.split_once(". ").is_some_and(|(number, _)| number.chars().all(|c| c.is_ascii_digit()));
        line.is_empty()
            || numbered
            || ["#", "|", ">", "- ", "* ", "<", "[^", "---"].iter().any(|mark| line.starts_with(mark))
    };
    let stands_alone =
        |line: &str| line.is_empty() || ["#", "|", "<", "---"].iter().any(|mark| line.trim_start().starts_with(mark));
    let mut faults = Vec::new();
    for file in documents(files) {
        for pair in prose(&file.text).windows(2) {
            let ((_, before), (number, line)) = (pair[0], pair[1]);
            if !begins_block(line) && !stands_alone(before) {
                faults.push(format!("{}:{number}: goes on from the line before", file.path));
            }
        }
    }
    faults
}

fn links(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in documents(files) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, line) in prose(&file.text) {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()) {
                let target = target.split('#').next().unwrap_or_default();
                if target.is_empty() || target.contains(':') {
                    continue;
                }
                let path = joined(folder, target);
                let leads = files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")));
                if !leads && !path.is_empty() {
                    faults.push(format!("{}:{number}: `{target}` is not there", file.path));
                }
            }
        }
    }
    faults
}

/// A relative link, resolved in the folder of its document.
fn joined(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// A code block after the line `<!-- file: PATH -->` is that file, word for word.
fn quotations(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in documents(files) {
        let lines: Vec<_> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(path) = line.strip_prefix("<!-- file: ").and_then(|rest| rest.strip_suffix(" -->")) else {
                continue;
            };
            let block = lines[index + 1..].iter().skip(1).take_while(|line| !line.starts_with("```")).copied();
            let quoted = files.iter().find(|other| other.path == path).map(|other| other.text.lines().eq(block));
            match quoted {
                Some(true) => {}
                Some(false) => faults.push(format!("{}:{}: differs from `{path}`", file.path, index + 1)),
                None => faults.push(format!("{}:{}: `{path}` is not there", file.path, index + 1)),
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: Rule, files: &[(&str, &str)], expect: &[&str]) {
        let files: Vec<_> =
            files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        assert_eq!(rule(&files), expect);
    }

    #[test]
    fn missing_root_files_are_found() {
        let all: Vec<_> = ROOT_FILES.iter().map(|name| (*name, "")).collect();
        check(root_files, &all, &[]);
        check(root_files, &all[1..], &["README.md: missing"]);
    }

    #[test]
    fn folders_without_a_readme_are_found() {
        let told = "missing; it says what is in the folder and how to add to it";
        check(readmes, &[("a/README.md", ""), ("a/b/README.md", ""), ("a/b/c/d.rs", ""), (".ci/run", "")], &[]);
        check(readmes, &[("a/README.md", ""), ("a/b/c/d.rs", "")], &[&format!("a/b/README.md: {told}")]);
        check(readmes, &[("a/b.rs", "")], &[&format!("a/README.md: {told}")]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let path = format!("see /{}/main/x", "work");
        check(machine_paths, &[("a.md", path.as_str()), ("b.lock", path.as_str())], &["a.md:1: a path of one machine"]);
        let other = format!("see frame{0}x a.{0}x ${{dir}}{0}x", format_args!("/{}/", "work"));
        check(machine_paths, &[("a.md", other.as_str())], &[]);
    }

    #[test]
    fn leftovers_are_found() {
        let text = format!("fn a() {{\n    {}\"x\")\n}}\n// {}\n", concat!("todo", "!("), concat!("dbg", "!("));
        check(
            leftovers,
            &[("a.rs", text.as_str()), ("b.md", text.as_str())],
            &[concat!("a.rs:2: `todo", "!(`: finish it")],
        );
    }

    #[test]
    fn long_functions_are_found() {
        let function = |lines: usize| {
            let body = "        c();\n".repeat(lines);
            format!("trait A {{\n    fn a(\n    );\n    async fn b<T: A>(&self) {{\n{body}    }}\n}}\n")
        };
        check(long_functions, &[("a.rs", function(68).as_str())], &[]);
        check(long_functions, &[("a.rs", function(69).as_str())], &["a.rs:4: 71 lines, 70 are the most"]);
        check(long_functions, &[("a.md", function(69).as_str())], &[]);
        let test = function(69).replace("    async fn", "    #[tokio::test]\n    async fn");
        check(long_functions, &[("a.rs", test.as_str())], &[]);
    }

    #[test]
    fn wrapped_paragraphs_are_found() {
        let good =
            "# Title\nText of a paragraph.\n\n- one\n- two\n  1. three\n\n```text\na\nb\n```\n\n| a |\n|---|\n| b |\n";
        check(paragraphs, &[("docs/a.md", good)], &[]);
        check(paragraphs, &[("docs/a.md", "One\ntwo.\n")], &["docs/a.md:2: goes on from the line before"]);
        check(paragraphs, &[("a/README.md", "- one\n  two\n")], &["a/README.md:2: goes on from the line before"]);
        check(paragraphs, &[("tests/cases/data.md", "One\ntwo.\n")], &[]);
    }

    #[test]
    fn dead_links_are_found() {
        let text = "[a](b.md#part) [c](../README.md) [d](https://example.com) [e](#here) [f](decisions/)";
        let files = [("docs/a.md", text), ("docs/b.md", ""), ("README.md", ""), ("docs/decisions/1.md", "")];
        check(links, &files, &[]);
        check(links, &files[..3], &["docs/a.md:1: `decisions/` is not there"]);
        check(links, &[("docs/a.md", "[a](b.md)")], &["docs/a.md:1: `b.md` is not there"]);
    }

    #[test]
    fn quotations_that_differ_are_found() {
        let page = "<!-- file: a/b.rs -->\n```rust\nfn b() {}\n```\n";
        check(quotations, &[("docs/a.md", page), ("a/b.rs", "fn b() {}\n")], &[]);
        check(quotations, &[("docs/a.md", page), ("a/b.rs", "fn b() {}\n\n")], &["docs/a.md:1: differs from `a/b.rs`"]);
        check(quotations, &[("docs/a.md", page)], &["docs/a.md:1: `a/b.rs` is not there"]);
    }
}
