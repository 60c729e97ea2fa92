//! When plugins are asked to flush: all that is new is flushed, and nothing twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use dsh_seam::event::Source;
use dsh_seam::failure::FailureMode;
use dsh_seam::plugin::{Attached, PluginContext};
use dsh_seam::session::{Flush, FlushError};

use crate::bench::{Answer, Bench, Recorder, plugin, text};

/// What happens while a plugin is flushed for the first time.
enum Meanwhile {
    Nothing,
    /// It logs an entry of its own.
    Own(Arc<dyn PluginContext>),
    /// Somebody else puts context into the log.
    Others(Arc<Recorder>),
}

struct Counts {
    flushes: Arc<AtomicU32>,
    meanwhile: Meanwhile,
}

#[async_trait]
impl Flush for Counts {
    async fn flush(&self) -> Result<(), FlushError> {
        if self.flushes.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        match &self.meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::Own(context) => {
                context.append_log("note", serde_json::json!({}), 0).await.expect("it is logged");
            }
            Meanwhile::Others(recorder) => {
                let agent = recorder.agent.lock().expect("not poisoned").clone().expect("there is one");
                agent.inject(text("late"), Source::User).await.expect("it is logged");
            }
        }
        Ok(())
    }
}

/// How often a plugin is flushed in one turn and the end of the agent.
async fn flushes(meanwhile: fn(Arc<dyn PluginContext>, Arc<Recorder>) -> Meanwhile) -> u32 {
    let flushes: Arc<AtomicU32> = Arc::default();
    let bench = Bench::new(vec![Answer::Text("a")]);
    let (count, recorder) = (flushes.clone(), bench.recorder.clone());
    let counts = plugin("counts", FailureMode::Closed, move |context| {
        let counts = Counts { flushes: count.clone(), meanwhile: meanwhile(context, recorder.clone()) };
        Attached { flush: Some(Arc::new(counts)), ..Attached::default() }
    });
    bench.with(counts).run(&["go"]).await;
    flushes.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_plugins_flush_is_flushed_at_the_end() {
    assert_eq!(flushes(|_, _| Meanwhile::Nothing).await, 1, "nothing is asked for twice");
    assert_eq!(flushes(|context, _| Meanwhile::Own(context)).await, 1, "what it logs itself it knows of");
    assert_eq!(flushes(|_, recorder| Meanwhile::Others(recorder)).await, 2);
}
