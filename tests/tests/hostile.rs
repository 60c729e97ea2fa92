//! Every hostile guest is run by a data case, and every other guest of the tests by some test: a guest that nothing loads shows nothing.

use std::collections::BTreeSet;
use std::path::Path;

use dsh_tests::root;

/// The stems of the files in `folder` that end with `.EXTENSION`, or the names of its folders that hold the file `extension`.
fn names(folder: &Path, is: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| is(path));
    paths.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
}

fn guests() -> BTreeSet<String> {
    names(&root().join("tests/guests/hostile"), |path| path.extension().is_some_and(|extension| extension == "wat"))
}

#[test]
fn a_hostile_guest_has_a_case_and_a_case_has_a_guest() {
    let cases = root().join("tests/cases/hostile");
    let with_case = names(&cases, |path| path.join("case.toml").is_file());
    let (guests, mut wrong) = (guests(), Vec::new());
    assert!(guests.len() >= 60, "the suite has {} guests", guests.len());
    wrong.extend(guests.difference(&with_case).map(|name| format!("tests/guests/hostile/{name}.wat has no case")));
    for name in &with_case {
        let text = std::fs::read_to_string(cases.join(name).join("case.toml")).expect("it is there");
        let loads = |guest: &String| text.contains(&format!("{{guests}}/hostile/{guest}.wasm"));
        if guests.contains(name) && !loads(name) || !guests.iter().any(loads) {
            wrong.push(format!("tests/cases/hostile/{name} does not load its guest"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_guest_of_the_tests_has_a_test() {
    let mut texts = String::new();
    for folder in ["tests/cases", "tests/conversations", "tests/tests", "host/dsh-wasm/tests", "host/dsh-bench/src"] {
        read_all(&root().join(folder), &mut texts);
    }
    let guests = names(&root().join("tests/guests"), |path| path.join("Cargo.toml").is_file());
    let loads = |name: &String| texts.contains(&format!("{name}.wasm")) || texts.contains(&format!("\"{name}\""));
    let idle: Vec<&String> = guests.iter().filter(|name| !loads(name)).collect();
    assert!(idle.is_empty(), "no test loads {idle:?}");
}

/// Appends the text of every file below `folder` that can load a guest.
fn read_all(folder: &Path, texts: &mut String) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().expect("a name").to_string_lossy();
        if path.is_dir() {
            read_all(&path, texts);
        } else if name.ends_with(".toml") || name.ends_with(".rs") {
            texts.push_str(&std::fs::read_to_string(&path).unwrap_or_default());
        }
    }
}
