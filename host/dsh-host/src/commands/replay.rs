//! A log that is printed while it is read, so that its length does not matter. It is read twice: nothing is printed of one that turns out
//! to be damaged.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::{Arc, Mutex, PoisonError};

use dsh_seam::SessionId;
use dsh_seam::event::Entry;
use dsh_seam::session::{Replay, SessionHeader, Sessions};

use crate::diagnostics;
use crate::exit::Stop;

/// What is printed of each entry.
pub trait EntryPrinter: Default + Send + 'static {
    /// Adds what is to be printed.
    fn print(&mut self, entry: &Entry, out: &mut Vec<u8>);
}

/// Prints what an [`EntryPrinter`] gives, entry by entry.
struct Printing<P> {
    printer: P,
    text: Vec<u8>,
    out: BufWriter<Stdout>,
    /// Why nothing more is printed.
    problem: Option<io::Error>,
}

impl<P> Printing<P> {
    /// Prints the text, unless an earlier one could not be printed.
    fn print(&mut self) {
        if self.problem.is_none() {
            self.problem = self.out.write_all(&self.text).err();
        }
    }

    /// Prints the rest.
    fn end(&mut self) -> Result<(), Stop> {
        super::written(self.problem.take().map_or_else(|| self.out.flush(), Err))
    }
}

impl<P: EntryPrinter> Replay for Printing<P> {
    fn entry(&mut self, entry: Entry) {
        self.text.clear();
        self.printer.print(&entry, &mut self.text);
        self.print();
    }

    fn wants_more(&self) -> bool {
        self.problem.is_none()
    }
}

/// Prints a session: what `begin` prints of the header, then what it gives for the entries.
pub async fn printed<P: EntryPrinter>(
    sessions: &dyn Sessions,
    id: &str,
    salvage: bool,
    begin: impl FnOnce(&SessionHeader, &mut Vec<u8>) -> P,
) -> Result<(SessionHeader, P), Stop> {
    let id = SessionId::new(id).map_err(|error| Stop::usage(error.to_string()).hint("see `dsh-host session list`"))?;
    let (header, notices) = sessions.replay(&id, salvage, Arc::new(Mutex::new(()))).await?;
    notices.iter().for_each(diagnostics::note);
    let mut text = Vec::new();
    let printer = begin(&header, &mut text);
    let mut printing = Printing { printer, text, out: BufWriter::new(io::stdout()), problem: None };
    printing.print();
    let printing = Arc::new(Mutex::new(printing));
    sessions.replay(&id, salvage, printing.clone()).await?;
    let mut printing = printing.lock().unwrap_or_else(PoisonError::into_inner);
    printing.end()?;
    Ok((header, std::mem::take(&mut printing.printer)))
}
