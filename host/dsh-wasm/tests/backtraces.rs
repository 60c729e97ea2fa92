//! Lines of source in what is told of a trap. A process of its own: who listens to diagnostics is the process's.

mod support;

use std::sync::{Arc, Mutex};

use dsh_wasm::{Compiler, Engine, EngineOptions};
use support::*;

/// Takes the lines of diagnostics.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl std::io::Write for Told {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.lock().expect("not poisoned").extend(text.lines().map(str::to_owned));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The line of `text` that holds `what`, counted from 1.
fn line_of(text: &str, what: &str) -> usize {
    1 + text.lines().position(|line| line.contains(what)).expect("it is there")
}

#[tokio::test]
async fn a_backtrace_has_the_lines_of_the_source_from_the_cache_too() {
    let told = Told::default();
    let writer = told.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .with_level(false)
        .with_target(false)
        .finish();
    tracing::subscriber::set_global_default(subscriber).expect("there is no other");
    let core = request_core("(func $inner\n unreachable)\n(func $outer\n call $inner)", "call $outer\nunreachable");
    let bytes = dsh_text_guests::component_with_lines(REQUEST_WORLD, &core, "rules.wat");
    let cache = tempfile::tempdir().expect("a folder");
    let (inner, outer, handle) =
        (line_of(&core, " unreachable)"), line_of(&core, " call $inner)"), line_of(&core, "call $outer"));
    for _ in 0..2 {
        let options =
            EngineOptions { cache_dir: Some(cache.path().join("cache")), ..EngineOptions::new(Compiler::InProcess) };
        let engine = Engine::new(options).expect("an engine");
        let (attached, _) = attach(&engine, &bytes, spec("p")).await;
        run_request(&[&attached], draft(1), nothing()).await.expect_err("it traps");
        let lines = std::mem::take(&mut *told.0.lock().expect("not poisoned"));
        let expect = [
            "it failed in `agent/request` (`handle`, turn 1, step 1): it panicked or aborted plugin=p".to_owned(),
            format!("   0: inner at ./rules.wat:{inner}:2 plugin=p"),
            format!("   1: outer at ./rules.wat:{outer}:2 plugin=p"),
            format!("   2: function 8 at ./rules.wat:{handle}:17 plugin=p"),
        ];
        assert_eq!(lines, expect);
    }
}
