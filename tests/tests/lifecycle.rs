//! The specification of the loop against `tests/cases/LIFECYCLE.md`: every statement of the page is there with what shows it, and what
//! is named exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dsh_tests::root;

/// The page and the list that follows it word by word.
const PAGE: &str = "docs/lifecycle.md";
const LIST: &str = "tests/cases/LIFECYCLE.md";
/// Between a statement and what shows it.
const SHOWN_BY: &str = " ⇒ ";
/// What may stand instead of a reference.
const NEEDS_NONE: [&str; 2] = ["(what a word means)", "(not built)"];

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines below each heading of the second level, in order.
fn sections(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("## "), sections.last_mut()) {
            (Some(heading), _) => sections.push((heading, Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    sections
}

/// What a section of the page states: without its diagrams, which say the same again, and the rules of its tables.
fn stated(lines: &[&str]) -> String {
    let mut in_diagram = false;
    let mut stated = String::new();
    for line in lines {
        if line.starts_with("```") {
            in_diagram = !in_diagram;
        } else if !in_diagram && !line.starts_with("|--") {
            stated.push_str(line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")).unwrap_or(line));
        }
    }
    without_blanks(&stated)
}

fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

/// A row of the list: the piece of the page, and what is said to show it.
fn rows<'a>(lines: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let row = |line: &&'a str| line.strip_prefix("- ").map(|row| row.split_once(SHOWN_BY).unwrap_or((row, "")));
    lines.iter().filter_map(row).collect()
}

/// From where on two texts differ.
fn difference(page: &str, list: &str) -> Option<String> {
    let same = page.chars().zip(list.chars()).take_while(|(left, right)| left == right).count();
    let rest = |text: &str| text.chars().skip(same).take(60).collect::<String>();
    let (page, list) = (rest(page), rest(list));
    (!page.is_empty() || !list.is_empty()).then(|| format!("the page goes on with `{page}`, the list with `{list}`"))
}

#[test]
fn every_statement_of_the_page_is_in_the_list() {
    let (page, list) = (read(PAGE), read(LIST));
    let (page, list) = (sections(&page), sections(&list));
    let headings =
        |sections: &[(&str, Vec<&str>)]| sections.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    assert_eq!(headings(&page), headings(&list), "the sections of {PAGE} and {LIST}");
    let mut problems = Vec::new();
    for ((heading, of_page), (_, of_list)) in page.iter().zip(&list) {
        let listed: String = rows(of_list).iter().map(|(piece, _)| without_blanks(piece)).collect();
        problems.extend(difference(&stated(of_page), &listed).map(|problem| format!("{heading}: {problem}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_statement_is_shown_by_something_that_exists() {
    let list = read(LIST);
    let mut sources = Sources::default();
    let mut problems = Vec::new();
    for (heading, lines) in sections(&list) {
        for (piece, shown_by) in rows(&lines) {
            let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
            if names.is_empty() && !NEEDS_NONE.contains(&shown_by) {
                problems.push(format!("{heading}: nothing shows `{piece}`"));
            }
            let missing = names.iter().filter(|name| !sources.exists(name));
            problems.extend(missing.map(|name| format!("{heading}: there is no `{name}`, which is to show `{piece}`")));
        }
    }
    assert!(problems.is_empty(), "{} gaps:\n{}", problems.len(), problems.join("\n"));
}

/// The sources of the crates, read when asked for.
#[derive(Default)]
struct Sources(BTreeMap<String, String>);

impl Sources {
    fn exists(&mut self, name: &str) -> bool {
        match name.split_once("::") {
            Some((krate, test)) => {
                let source = self.0.entry(krate.to_owned()).or_insert_with(|| source_of(krate));
                has_test(source, test)
            }
            None if name.ends_with(".rs") => root().join(name).is_file(),
            None => root().join("tests/cases").join(name).join("case.toml").is_file(),
        }
    }
}

/// Whether a source holds a test of that name: a function of this name right below an attribute that makes it one.
fn has_test(source: &str, name: &str) -> bool {
    let (sync, asynchronous) = (format!("fn {name}() {{"), format!("async fn {name}() {{"));
    let mut attributes: Vec<&str> = Vec::new();
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
            continue;
        }
        let is_test = |attribute: &&str| attribute.starts_with("#[test]") || attribute.starts_with("#[tokio::test");
        if (line == sync || line == asynchronous) && attributes.iter().any(is_test) {
            return true;
        }
        attributes.clear();
    }
    false
}

#[test]
fn only_a_test_is_taken_for_one() {
    let check = |source: &str, expect: bool| assert_eq!(has_test(source, "it_works"), expect, "{source}");
    check("    #[test]\n    fn it_works() {\n", true);
    check("#[tokio::test(start_paused = true)]\nasync fn it_works() {\n", true);
    check("#[test]\n#[should_panic]\nfn it_works() {\n", true);
    check("fn it_works() {\n", false);
    check("#[test]\nfn other() {\n}\nfn it_works() {\n", false);
    check("#[test]\nfn it_works_too() {\n", false);
    check("// as in fn it_works() {\n", false);
}

/// All of a crate's Rust.
fn source_of(krate: &str) -> String {
    let mut files = Vec::new();
    find(&root().join("host").join(krate), &mut files);
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
