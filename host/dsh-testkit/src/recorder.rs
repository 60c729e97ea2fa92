//! Records what agents show, and does something when an event has settled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use dsh_seam::event::Emitted;
use dsh_seam::plugin::EventSink;
use futures::future::BoxFuture;

/// What is done once when an event has settled, with the agent it is about.
type Hook<A> = Box<dyn Fn(Arc<A>) -> BoxFuture<'static, ()> + Send + Sync>;

/// A sink that keeps one line an event. `A` is the agent that its hooks get.
pub struct Recorder<A> {
    print: fn(&Emitted) -> String,
    lines: Mutex<Vec<String>>,
    hooks: Mutex<Vec<(String, Hook<A>)>>,
    /// Whom hooks get; as long as there is none, they wait.
    pub agent: Mutex<Option<Arc<A>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<A> Recorder<A> {
    /// A sink whose lines `print` makes.
    pub fn new(print: fn(&Emitted) -> String) -> Self {
        Self { print, lines: Mutex::default(), hooks: Mutex::default(), agent: Mutex::default() }
    }

    /// Does `then` once, when an event has settled whose line is `line` or goes on after it with a blank.
    pub fn on(&self, line: &str, then: impl Fn(Arc<A>) -> BoxFuture<'static, ()> + Send + Sync + 'static) {
        lock(&self.hooks).push((line.into(), Box::new(then)));
    }

    /// Hooks get this agent from now on.
    pub fn is_about(&self, agent: Arc<A>) {
        *lock(&self.agent) = Some(agent);
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    fn take_hook(&self, line: &str) -> Option<Hook<A>> {
        let mut hooks = lock(&self.hooks);
        let is_meant = |on: &str| line.strip_prefix(on).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        hooks.iter().position(|(on, _)| is_meant(on)).map(|at| hooks.remove(at).1)
    }
}

#[async_trait]
impl<A: Send + Sync> EventSink for Recorder<A> {
    fn emit(&self, emitted: &Emitted) {
        lock(&self.lines).push((self.print)(emitted));
    }

    async fn settled(&self, emitted: &Emitted) {
        let Some(agent) = lock(&self.agent).clone() else { return };
        if let Some(hook) = self.take_hook(&(self.print)(emitted)) {
            hook(agent).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_hook_is_taken_once_and_by_whole_words() {
        let recorder = Recorder::<()>::new(|_| String::new());
        recorder.on("tool/call c1", |_| async {}.boxed());
        assert!(recorder.take_hook("tool/call c12").is_none());
        assert!(recorder.take_hook("tool/call").is_none());
        assert!(recorder.take_hook("tool/call c1 more").is_some());
        assert!(recorder.take_hook("tool/call c1").is_none());
    }
}
