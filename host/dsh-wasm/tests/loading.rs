//! What is refused at load, in which words, and what is kept of a compilation.

mod support;

use std::sync::{Arc, Mutex};

use dsh_seam::Seam;
use dsh_wasm::{CompileStage, Compiler, Engine, EngineOptions, LoadError, PluginSpec, inspect};
use support::*;

fn check_refused(bytes: &[u8], expect: &str, hint: &str) {
    let refusal = inspect(bytes).expect_err("it does not fit");
    assert!(refusal.to_string().contains(expect), "{refusal}");
    assert!(refusal.hint().contains(hint), "{}", refusal.hint());
}

fn with_package(text: &str) -> wit_parser::Resolve {
    let mut resolve = dsh_text_guests::contract();
    resolve.push_str("other.wit", text).expect("the package parses");
    resolve
}

#[test]
fn a_component_shows_its_hooks_and_capabilities() {
    let world = "import dsh:agent/agent-types@0.1.0; import dsh:llm/model@0.1.0; import dsh:agent/inbox@0.1.0; export dsh:agent/request@0.1.0;";
    let core = request_core("", DONE)
        .replace("(memory", "(import \"dsh:llm/model@0.1.0\" \"generate\" (func (param i32 i32))) (import \"dsh:agent/inbox@0.1.0\" \"send\" (func (param i32 i32 i32))) (memory");
    let bytes = component(world, &core);
    let inspection = inspect(&bytes).expect("it fits");
    assert_eq!(inspection.seams, [Seam::Request]);
    assert_eq!(inspection.capabilities, ["llm", "inbox"]);
    assert_eq!(inspection.size, bytes.len());
    assert_eq!(inspection.sha256.len(), 64);
    assert_eq!(inspection.ceiling, None);
}

#[test]
fn a_component_that_does_not_fit_is_told_what_and_what_to_change() {
    check_refused(b"export const request = {}", "it looks like JavaScript source", "jco componentize");
    check_refused(b"(component)", "text format", "wasm-tools parse");
    let whole = request_listener("", DONE);
    check_refused(&whole[..whole.len() / 2], "the component is cut off", "build or copy it again");
    check_refused(&whole[..whole.len() - 1], "the component is cut off", "build or copy it again");
    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    broken[middle] ^= 0xff;
    assert!(inspect(&broken).is_err() || inspect(&broken) != inspect(&whole), "a changed byte is noticed");
    let empty = component("export run: func();", "(module (func (export \"run\")))");
    check_refused(&empty, "exports none of this host's seams: it exports `run`", "export dsh:tools/provider@0.1.0");
}

#[test]
fn other_versions_and_unknown_names_are_named() {
    let resolve = with_package("package dsh:agent@0.2.0; interface request { handle: func(); }");
    let bytes = component_with(
        resolve,
        "export dsh:agent/request@0.2.0;",
        "(module (func (export \"dsh:agent/request@0.2.0#handle\")))",
    );
    check_refused(
        &bytes,
        "exports `dsh:agent/request@0.2.0`, and this host takes `dsh:agent/request@0.1.0`",
        "build it against the WIT of this host",
    );
    let resolve = with_package("package wasi:nn@0.2.0; interface graph { load: func(); }");
    let world = format!("{REQUEST_WORLD} import wasi:nn/graph@0.2.0;");
    let core = request_core("", DONE).replace("(memory", "(import \"wasi:nn/graph@0.2.0\" \"load\" (func)) (memory");
    check_refused(
        &component_with(resolve, &world, &core),
        "imports `wasi:nn/graph@0.2.0`, which this host never provides",
        "ask a model with `dsh:llm/model` instead",
    );
}

#[test]
fn a_ceiling_is_read_from_a_custom_section() {
    let ceiling = r#"[{"capability": "llm", "reason": "summaries"}]"#;
    let core = request_core("", DONE).replace("(memory", &format!("(@custom \"dsh-ceiling\" {ceiling:?}) (memory"));
    let inspection = inspect(&component(REQUEST_WORLD, &core)).expect("it fits");
    let ceiling = inspection.ceiling.expect("it has one");
    assert_eq!((ceiling[0].capability.as_str(), ceiling[0].reason.as_str()), ("llm", "summaries"));
}

#[tokio::test]
async fn seams_that_are_not_exported_cannot_be_chosen() {
    let spec = PluginSpec { seams: Some(vec![Seam::Guard]), ..spec("p") };
    let error = load(&engine(), &request_listener("", DONE), spec).await.expect_err("it has no guard");
    assert_eq!(error, LoadError::NoSuchSeam { seam: Seam::Guard, exports: vec![Seam::Request] });
}

#[tokio::test]
async fn seams_can_be_left_out() {
    let spec = PluginSpec { seams: Some(vec![]), ..spec("p") };
    let (attached, _) = attach(&engine(), &request_listener("", DONE), spec).await;
    assert!(attached.request.is_none());
}

/// An engine over a cache, and what it compiled.
fn caching(directory: &std::path::Path) -> (Engine, Arc<Mutex<Vec<String>>>) {
    let compiled = Arc::new(Mutex::new(Vec::new()));
    let seen = compiled.clone();
    let engine = Engine::new(EngineOptions {
        cache_dir: Some(directory.to_owned()),
        on_compile: Some(Arc::new(move |compiling| {
            if compiling.stage == CompileStage::Begun {
                seen.lock().expect("not poisoned").push(compiling.plugin.to_owned());
            }
        })),
        ..EngineOptions::new(Compiler::InProcess)
    });
    (engine.expect("an engine"), compiled)
}

#[tokio::test]
async fn a_component_is_compiled_once() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let bytes = request_listener("", DONE);
    let run = async |expect: &[&str]| {
        let (engine, compiled) = caching(&home.path().join("cache"));
        let (attached, _) = attach(&engine, &bytes, spec("p")).await;
        run_request(&[&attached], draft(1), nothing()).await.expect("no failure");
        assert_eq!(*compiled.lock().expect("not poisoned"), expect);
    };
    run(&["p"]).await;
    run(&[]).await;
    // Whatever happens to the kept file, it is never trusted.
    let kept = std::fs::read_dir(home.path().join("cache"))
        .expect("the cache")
        .next()
        .expect("an entry")
        .expect("readable")
        .path();
    let mut code = std::fs::read(&kept).expect("the entry");
    let last = code.len() - 1;
    code[last] ^= 1;
    std::fs::write(&kept, code).expect("to write");
    run(&["p"]).await;
    run(&[]).await;
    std::fs::write(&kept, b"").expect("to write");
    run(&["p"]).await;
}

#[tokio::test]
async fn a_cache_that_cannot_be_used_only_costs_time() {
    let home = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(home.path().join("cache"), "a file").expect("to write");
    let (engine, compiled) = caching(&home.path().join("cache"));
    assert!(!engine.is_cached());
    attach(&engine, &request_listener("", DONE), spec("p")).await;
    assert_eq!(*compiled.lock().expect("not poisoned"), ["p"]);
}
