//! Starts programs on one thread that lives as long as the host.
//!
//! The kernel kills a program when the *thread* that started it ends (`PR_SET_PDEATHSIG`), and the threads of a runtime come and go.

use std::io;
use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};

use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::keeper;

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

/// A program that runs: the child is its keeper, which ends as the program does once nothing is left of it. Dropping it has the
/// keeper kill all it keeps.
pub(super) struct Started {
    pub(super) child: Child,
}

impl Started {
    /// Signals the keeper, unless it is over.
    pub(super) fn signal(&self, signal: libc::c_int) {
        // A child has its id until it is reaped.
        if let Some(keeper) = self.child.id() {
            keeper::signal(keeper, signal);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.signal(keeper::END);
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
        // Killing the keeper would set free what it keeps, so it is told instead.
        let started = tokio::process::Command::from(program).kill_on_drop(false).spawn().map(|child| Started { child });
        // When nobody waits any more, the answer comes back and is dropped, which kills it.
        let _ = answer.send(started);
    }
}
