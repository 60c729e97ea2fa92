//! What is said on standard error while plugins are compiled: a line for each when it is done, and a live one where somebody watches.

use std::sync::Arc;

use dsh_wasm::{CompileNotice, CompileStage, Compiling};

use crate::diagnostics;

/// A component of this size takes long enough to be announced before it is compiled.
const LARGE_BYTES: usize = 1024 * 1024;

/// Says on standard error what is compiled and how long it took.
pub fn notice() -> CompileNotice {
    Arc::new(|compiling| {
        if let Some(line) = line(compiling) {
            diagnostics::note(line);
        }
    })
}

fn line(compiling: &Compiling<'_>) -> Option<String> {
    let Compiling { plugin, bytes, cached, stage } = compiling;
    let kib = bytes.div_ceil(1024);
    let why = if *cached { "once; the result is kept" } else { "there is no cache to keep the result in" };
    match stage {
        CompileStage::Begun if *bytes >= LARGE_BYTES => {
            Some(format!("compiling plugin `{plugin}` ({kib} KiB) to machine code ({why})"))
        }
        CompileStage::Done(took) => {
            let seconds = took.as_secs_f64();
            Some(format!("compiled plugin `{plugin}` ({kib} KiB) to machine code in {seconds:.1} s ({why})"))
        }
        CompileStage::Begun | CompileStage::Failed => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_large_component_is_announced_and_every_one_reported() {
        let check = |bytes, cached, stage, expect: Option<&str>| {
            assert_eq!(line(&Compiling { plugin: "p", bytes, cached, stage }).as_deref(), expect);
        };
        check(1_000, true, CompileStage::Begun, None);
        check(1_000, true, CompileStage::Failed, None);
        check(
            1_025,
            true,
            CompileStage::Done(Duration::from_millis(1_250)),
            Some("compiled plugin `p` (2 KiB) to machine code in 1.2 s (once; the result is kept)"),
        );
        check(
            1_048_576,
            false,
            CompileStage::Begun,
            Some("compiling plugin `p` (1024 KiB) to machine code (there is no cache to keep the result in)"),
        );
    }
}
