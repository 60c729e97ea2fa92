//! Signals. The first asks for an orderly end, the second ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Code;

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Ctrl-C.
    Interrupt,
    /// `kill`.
    Terminate,
    /// The terminal is gone.
    HangUp,
}

impl Asked {
    /// As `signal(7)` writes it.
    pub fn name(self) -> &'static str {
        match self {
            Asked::Interrupt => "SIGINT",
            Asked::Terminate => "SIGTERM",
            Asked::HangUp => "SIGHUP",
        }
    }
}

/// The three signals.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// From here on they no longer end the process by themselves.
    ///
    /// # Errors
    /// When the system does not let a handler in.
    pub fn listen() -> std::io::Result<Self> {
        // A limit on the size of files is to be a write that fails, not the end; the handler stays for the process's whole life.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next one. Cancel safe.
    pub async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Interrupt,
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.hang_up.recv() => Asked::HangUp,
        }
    }
}

/// Ends the process at once.
pub fn exit_now() -> ! {
    std::process::exit(Code::Interrupted.number().into());
}
