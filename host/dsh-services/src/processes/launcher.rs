//! Starts programs on one thread that lives as long as the host.
//!
//! The kernel kills a program when the *thread* that started it ends (`PR_SET_PDEATHSIG`), and the threads of a runtime come and go.

use std::io;
use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};

use rustix::process::Signal;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::kill;

/// What starts programs; its thread begins with the first one.
#[derive(Default)]
pub(super) struct Launcher {
    requests: Mutex<Option<mpsc::Sender<Request>>>,
}

struct Request {
    program: Command,
    runtime: Handle,
    answer: oneshot::Sender<io::Result<Started>>,
}

/// A program that runs. Dropping it kills it with all it started.
pub(super) struct Started {
    pub(super) child: Child,
    /// The id of the process and of its group; none when all of it is known to be over.
    pub(super) root: Option<u32>,
}

impl Drop for Started {
    fn drop(&mut self) {
        match self.root {
            Some(root) if self.child.id().is_some() => kill::kill_tree(root),
            // The program itself has ended; its number may be another's by now, its group's cannot while the group has members.
            Some(root) => kill::signal_group(root, Signal::KILL),
            None => {}
        }
    }
}

impl Launcher {
    /// Starts `program`. When the future is dropped, what was started meanwhile is killed.
    pub(super) async fn start(&self, program: Command) -> io::Result<Started> {
        let (answer, answered) = oneshot::channel();
        self.send(Request { program, runtime: Handle::current(), answer })?;
        answered.await.map_err(io::Error::other)?
    }

    fn send(&self, request: Request) -> io::Result<()> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = match &*requests {
            Some(sender) => sender,
            None => {
                let (sender, receiver) = mpsc::channel();
                std::thread::Builder::new().name("dsh-launcher".into()).spawn(move || serve(&receiver))?;
                requests.insert(sender)
            }
        };
        sender.send(request).map_err(|_| io::Error::other("the launcher's thread is gone"))
    }
}

fn serve(requests: &mpsc::Receiver<Request>) {
    while let Ok(Request { program, runtime, answer }) = requests.recv() {
        let _entered = runtime.enter();
        let started = tokio::process::Command::from(program).kill_on_drop(true).spawn().map(|child| {
            let root = child.id();
            Started { child, root }
        });
        // When nobody waits any more, the answer comes back and is dropped, which kills it.
        let _ = answer.send(started);
    }
}
