//! What is said on standard error while plugins are compiled: a line for each when it is done, and a live one where somebody watches.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dsh_wasm::{CompileNotice, CompileStage, Compiling};

use crate::diagnostics;

/// A component of this size takes long enough to be announced before it is compiled.
const LARGE_BYTES: usize = 1024 * 1024;
/// How often the live line is drawn: its seconds have one digit after the point.
const REDRAW: Duration = Duration::from_millis(100);

/// Says on standard error what is compiled and how long it took; on a terminal that `redraws` lines, also what goes on.
pub fn notice(redraws: bool) -> CompileNotice {
    let live = redraws.then(Arc::<Live>::default);
    Arc::new(move |compiling| {
        if let Some(live) = &live {
            match compiling.stage {
                CompileStage::Begun => return live.clone().begin(compiling.plugin),
                CompileStage::Done(_) | CompileStage::Failed => live.end(compiling.plugin),
            }
        }
        if let Some(line) = line(compiling) {
            diagnostics::note(line);
        }
    })
}

/// The plugins that are compiled right now, on a line that is drawn until there is none.
#[derive(Default)]
struct Live {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: Vec<(String, Instant)>,
    /// Whether there is a thread that draws.
    drawn: bool,
}

impl Live {
    fn begin(self: Arc<Self>, plugin: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.running.push((plugin.to_owned(), Instant::now()));
        if !state.drawn {
            let live = self.clone();
            // Without a thread there is no live line, and that is all.
            let thread = std::thread::Builder::new().name("dsh-progress".into()).spawn(move || live.draw());
            state.drawn = thread.is_ok();
        }
    }

    fn end(&self, plugin: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = state.running.iter().position(|(name, _)| name == plugin) {
            state.running.remove(at);
        }
        diagnostics::draw("");
        self.changed.notify_all();
    }

    fn draw(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.running.is_empty() {
            diagnostics::draw(&live_line(&state.running, Instant::now()));
            let waited = self.changed.wait_timeout(state, REDRAW);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        diagnostics::draw("");
        state.drawn = false;
    }
}

fn live_line(running: &[(String, Instant)], now: Instant) -> String {
    let one = |(name, since): &(String, Instant)| {
        format!("`{name}` {:.1} s", now.saturating_duration_since(*since).as_secs_f64())
    };
    format!("compiling {}", running.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn line(compiling: &Compiling<'_>) -> Option<String> {
    let Compiling { plugin, bytes, cached, stage } = compiling;
    let kib = bytes.div_ceil(1024);
    let why = if *cached { "once; the result is kept" } else { "there is nowhere to keep the result" };
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
            Some("compiling plugin `p` (1024 KiB) to machine code (there is nowhere to keep the result)"),
        );
    }

    #[test]
    fn the_live_line_has_all_that_is_compiled() {
        let begun = Instant::now();
        let running = [("files".to_owned(), begun), ("shell".to_owned(), begun + Duration::from_millis(500))];
        let line = live_line(&running, begun + Duration::from_millis(1_500));
        assert_eq!(line, "compiling `files` 1.5 s, `shell` 1.0 s");
    }
}
