//! What the calls of plugins cost: `--receipts`, `--trace-plugins`, and the totals of `-v`.
//!
//! Agents hand receipts and events in and go on; a thread of its own writes the files. What it cannot take in time is counted, dropped and
//! said at the end, and an end of any kind but being killed waits for it, though not for ever.

use std::convert::Infallible;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dsh_seam::event::Emitted;
use dsh_wasm::{Receipt, ReceiptSink};

use super::timeline::{Happening, Timeline};
use super::totals::Totals;
use crate::diagnostics;

/// Receipts and events that may wait to be written: some megabytes, and what a busy agent makes while a disk pauses for a second.
const WAITING: usize = 16_384;
/// How long the end of a run waits for the rest to be written: a slow disk needs less, a pipe that nobody empties needs for ever.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// What is to be written, each file open and empty.
#[derive(Default)]
pub struct Wanted {
    /// One receipt a line.
    pub receipts: Option<Target>,
    /// A timeline for a viewer of traces.
    pub timeline: Option<Target>,
    /// Totals by plugin, on standard error at the end.
    pub totals: bool,
}

/// An open file.
pub struct Target {
    /// Where it is.
    pub path: PathBuf,
    /// The file.
    pub file: File,
}

/// Takes receipts and events until it is dropped.
pub struct Recorder {
    shared: Arc<Shared>,
    /// Ends when all is written; none when nothing is.
    written: Option<Receiver<Infallible>>,
}

/// Hands events in.
#[derive(Clone)]
pub struct Witness(Arc<Shared>);

struct Shared {
    begun: Instant,
    queue: SyncSender<Item>,
    /// Whether nothing more comes.
    over: AtomicBool,
    /// Whether a thread takes from the queue.
    writes: bool,
    /// Whether events are wanted.
    timeline: bool,
    dropped: AtomicU64,
    totals: Option<Mutex<Totals>>,
}

enum Item {
    Receipt(Box<Receipt>),
    Event(Box<Happening>),
    End,
}

impl Recorder {
    /// Starts; none when nothing is wanted.
    pub fn start(wanted: Wanted) -> Option<Self> {
        let Wanted { receipts, timeline, totals } = wanted;
        let writes = receipts.is_some() || timeline.is_some();
        if !writes && !totals {
            return None;
        }
        let begun = Instant::now();
        let (queue, items) = sync_channel(WAITING);
        let shared = Arc::new(Shared {
            begun,
            queue,
            over: AtomicBool::new(false),
            writes,
            timeline: timeline.is_some(),
            dropped: AtomicU64::new(0),
            totals: totals.then(Mutex::default),
        });
        let writer = Writer {
            receipts: receipts.map(Lines::new),
            timeline: timeline.map(Lines::new),
            trace: Timeline::default(),
        };
        let written = writes.then(|| {
            let (writing, written) = sync_channel(0);
            let shared = shared.clone();
            std::thread::spawn(move || {
                writer.run(&items, &shared);
                drop(writing);
            });
            written
        });
        Some(Self { shared, written })
    }

    /// For the engine.
    pub fn sink(&self) -> ReceiptSink {
        let shared = self.shared.clone();
        ReceiptSink { begun: shared.begun, take: Arc::new(move |receipt| shared.receipt(receipt)) }
    }

    /// For whoever sees the events.
    pub fn witness(&self) -> Witness {
        Witness(self.shared.clone())
    }

    /// Nothing more comes; whether all is written in time.
    fn is_written_within(&mut self, wait: Duration) -> bool {
        let Some(written) = self.written.take() else { return true };
        // A full queue needs no item: the thread looks here when it is empty.
        self.shared.over.store(true, Ordering::Release);
        let _ = self.shared.queue.try_send(Item::End);
        written.recv_timeout(wait) != Err(RecvTimeoutError::Timeout)
    }
}

impl Drop for Recorder {
    /// Waits until all is written, and says what was not and what it came to.
    fn drop(&mut self) {
        if !self.is_written_within(LAST_WAIT) {
            diagnostics::complain(format_args!(
                "what was left for the files of `--receipts` and `--trace-plugins` could not be written within {} s: they are not complete",
                LAST_WAIT.as_secs()
            ));
        }
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            diagnostics::complain(format_args!(
                "{dropped} receipts and events came faster than they could be written and are missing from the files of `--receipts` and `--trace-plugins`"
            ));
        }
        if let Some(totals) = &self.shared.totals {
            let table = totals.lock().unwrap_or_else(PoisonError::into_inner).table();
            if let Some(table) = table {
                eprint!("{table}");
            }
        }
    }
}

impl Witness {
    /// Something happened.
    pub fn emitted(&self, emitted: &Emitted) {
        if !self.0.timeline {
            return;
        }
        if let Some(happening) = Happening::of(emitted, self.0.begun.elapsed()) {
            self.0.put(Item::Event(Box::new(happening)));
        }
    }
}

impl Shared {
    fn receipt(&self, receipt: Receipt) {
        if let Some(totals) = &self.totals {
            totals.lock().unwrap_or_else(PoisonError::into_inner).add(&receipt);
        }
        if self.writes {
            self.put(Item::Receipt(Box::new(receipt)));
        }
    }

    fn put(&self, item: Item) {
        // Without a receiver the end has come, and what happens later is nobody's.
        if let Err(TrySendError::Full(_)) = self.queue.try_send(item) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread's part.
struct Writer {
    receipts: Option<Lines>,
    timeline: Option<Lines>,
    trace: Timeline,
}

impl Writer {
    fn run(mut self, items: &Receiver<Item>, shared: &Shared) {
        if let Some(file) = &mut self.timeline {
            file.write(Timeline::FIRST);
        }
        loop {
            let item = match items.try_recv() {
                // Nothing more is there at the moment: whoever reads along sees all so far.
                Err(TryRecvError::Empty) => {
                    self.each(Lines::flush);
                    if shared.over.load(Ordering::Acquire) { Item::End } else { items.recv().unwrap_or(Item::End) }
                }
                Err(TryRecvError::Disconnected) => Item::End,
                Ok(item) => item,
            };
            match item {
                Item::Receipt(receipt) => self.receipt(&receipt),
                Item::Event(happening) => self.trace.happened(*happening),
                Item::End => break,
            }
            self.drain();
        }
        self.trace.end(shared.begun.elapsed());
        self.drain();
        if let Some(file) = &mut self.timeline {
            file.write(Timeline::LAST);
        }
        self.each(Lines::flush);
    }

    fn receipt(&mut self, receipt: &Receipt) {
        if let Some(file) = &mut self.receipts {
            let mut line =
                serde_json::to_vec(receipt).expect("invariant: a receipt has string keys and finite numbers");
            line.push(b'\n');
            file.write(&line);
        }
        if self.timeline.is_some() {
            self.trace.receipt(receipt);
        }
    }

    fn drain(&mut self) {
        let events = self.trace.take();
        if let Some(file) = &mut self.timeline {
            file.write(&events);
        }
    }

    fn each(&mut self, act: impl Fn(&mut Lines)) {
        self.receipts.iter_mut().chain(self.timeline.iter_mut()).for_each(act);
    }
}

/// A file that is written until that fails.
struct Lines {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Lines {
    fn new(target: Target) -> Self {
        Self { path: target.path, file: Some(BufWriter::new(target.file)) }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.attempt(|file| file.write_all(bytes));
    }

    fn flush(&mut self) {
        self.attempt(BufWriter::flush);
    }

    /// What fails is said once; the run goes on without the file.
    fn attempt(&mut self, act: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>) {
        let Some(file) = &mut self.file else { return };
        if let Err(error) = act(file) {
            complain(&self.path, &error);
            if let Some(file) = self.file.take() {
                // Its rest would be tried again when it is dropped.
                drop(file.into_parts());
            }
        }
    }
}

fn complain(path: &Path, error: &std::io::Error) {
    diagnostics::complain(format_args!("`{}` could not be written and is not complete: {error}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::os::fd::OwnedFd;

    /// A recorder whose timeline is a pipe that takes nothing more, with the end to read from.
    fn stuck() -> (Recorder, std::io::PipeReader) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut file = File::from(OwnedFd::from(writer));
        let flags = fcntl_getfl(&file).expect("it has flags");
        fcntl_setfl(&file, flags | OFlags::NONBLOCK).expect("they can be set");
        while file.write(&[b' '; 4_096]).is_ok() {}
        fcntl_setfl(&file, flags).expect("they can be set");
        let timeline = Some(Target { path: "pipe".into(), file });
        (Recorder::start(Wanted { timeline, ..Wanted::default() }).expect("a file is wanted"), reader)
    }

    #[test]
    fn a_pipe_that_nobody_empties_does_not_hold_up_the_end() {
        let (mut recorder, _reader) = stuck();
        assert!(!recorder.is_written_within(Duration::from_millis(20)));
    }

    #[test]
    fn one_that_is_emptied_gets_all() {
        let (mut recorder, mut reader) = stuck();
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut reader, &mut text).map(|_| text)
        });
        assert!(recorder.is_written_within(LAST_WAIT));
        drop(recorder);
        let text = read.join().expect("no panic").expect("it is text");
        assert_eq!(text.trim_start(), "[\n\n]\n");
    }
}
