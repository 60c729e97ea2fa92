//! Where a guest's lines go: its standard output and error, and `log`. They are diagnostics under the plugin's name, one line at a time,
//! without control characters, bounded per call; the last lines of standard error are kept, because in many languages the message of a
//! panic is only there.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use dsh_seam::PluginName;
use dsh_seam::printable::is_hidden;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::limits::{KEPT_STDERR_LINES, Limits, MAX_LOG_LINE_BYTES};

/// How much a stream takes at once; it never waits, so this only bounds one copy.
const WRITE_BUDGET: usize = 64 * 1024;

/// How bad a line is, in the words of `dsh:plugin/runtime.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Every detail.
    Trace,
    /// For the plugin's author.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is wrong but work goes on.
    Warn,
    /// Something failed.
    Error,
}

/// Which stream of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The lines of one instance.
#[derive(Debug)]
pub(crate) struct Output {
    plugin: PluginName,
    limits: Limits,
    /// Whether the call under way, or the one before, has written anything: most never do, and then nothing is locked.
    touched: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Unfinished lines of standard output and error; what is over the longest line is not kept.
    open: [Vec<u8>; 2],
    last: VecDeque<String>,
    /// The last lines of any kind, also of levels that are not shown.
    recent: VecDeque<String>,
    /// What went to the diagnostics in this call.
    lines: u32,
    line_bytes: usize,
    /// What did not, and over which limit the first of it was.
    dropped: u32,
    over: Option<Over>,
    /// What was written to both streams in this call.
    written: usize,
}

/// A limit on lines.
#[derive(Debug, Clone, Copy)]
enum Over {
    Lines,
    Bytes,
}

impl Output {
    pub(crate) fn new(plugin: PluginName, limits: &Limits) -> Arc<Self> {
        Arc::new(Self { plugin, limits: *limits, touched: AtomicBool::new(false), state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins: its bounds are fresh and nothing of an earlier call is in its messages.
    pub(crate) fn begin_call(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            return;
        }
        self.touched.store(false, Ordering::Relaxed);
        let mut state = self.state();
        state.last.clear();
        state.recent.clear();
        (state.lines, state.line_bytes, state.dropped, state.written) = (0, 0, 0, 0);
    }

    /// A call is over: open lines are finished, and dropped ones are counted.
    pub(crate) fn end_call(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let line = std::mem::take(&mut state.open[stream as usize]);
            if !line.is_empty() {
                self.line(&mut state, stream, &line);
            }
        }
        if let Some(over) = state.over.take() {
            let (plugin, dropped) = (&self.plugin, std::mem::take(&mut state.dropped));
            let limit = match over {
                Over::Lines => format!("`log-lines` of {}", self.limits.log_lines),
                Over::Bytes => format!("`log-kib` of {} KiB", self.limits.log_kib),
            };
            tracing::warn!(target: "dsh::plugin", %plugin, "{dropped} lines of output were dropped: the call wrote more than the limit {limit}");
        }
    }

    /// One line of `dsh:plugin/runtime.log`.
    pub(crate) fn log(&self, level: LogLevel, message: &str) {
        self.touched.store(true, Ordering::Relaxed);
        let mut state = self.state();
        let message = clean(message.as_bytes());
        keep(&mut state.recent, &message);
        if state.may_write(message.len(), &self.limits) {
            let plugin = &self.plugin;
            match level {
                LogLevel::Trace => tracing::trace!(target: "dsh::plugin", %plugin, "{message}"),
                LogLevel::Debug => tracing::debug!(target: "dsh::plugin", %plugin, "{message}"),
                LogLevel::Info => tracing::info!(target: "dsh::plugin", %plugin, "{message}"),
                LogLevel::Warn => tracing::warn!(target: "dsh::plugin", %plugin, "{message}"),
                LogLevel::Error => tracing::error!(target: "dsh::plugin", %plugin, "{message}"),
            }
        }
    }

    /// Bytes of a stream; false when the call has written more than it may.
    pub(crate) fn write(&self, stream: Stream, mut bytes: &[u8]) -> bool {
        self.touched.store(true, Ordering::Relaxed);
        let mut state = self.state();
        state.written = state.written.saturating_add(bytes.len());
        if state.written > self.limits.output_bytes() {
            return false;
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut state.open[stream as usize]);
            extend(&mut line, &bytes[..end]);
            self.line(&mut state, stream, &line);
            line.clear();
            state.open[stream as usize] = line;
            bytes = &bytes[end + 1..];
        }
        extend(&mut state.open[stream as usize], bytes);
        true
    }

    fn line(&self, state: &mut State, stream: Stream, line: &[u8]) {
        let text = clean(line);
        if stream == Stream::Stderr {
            keep(&mut state.last, &text);
        }
        keep(&mut state.recent, &text);
        if state.may_write(text.len(), &self.limits) {
            let plugin = &self.plugin;
            match stream {
                Stream::Stdout => tracing::info!(target: "dsh::plugin", %plugin, "{text}"),
                Stream::Stderr => tracing::warn!(target: "dsh::plugin", %plugin, "{text}"),
            }
        }
    }

    /// Bytes that the call has written to its streams.
    pub(crate) fn bytes(&self) -> usize {
        self.state().written
    }

    /// The last lines in this call that it logged or wrote to a stream, oldest first.
    pub(crate) fn recent(&self) -> Vec<String> {
        self.state().recent.iter().cloned().collect()
    }

    /// The last lines of standard error in this call, oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        self.state().last.iter().cloned().collect()
    }
}

impl State {
    /// Whether one more line of so many bytes goes to the diagnostics.
    fn may_write(&mut self, bytes: usize, limits: &Limits) -> bool {
        let line_bytes = self.line_bytes.saturating_add(bytes.min(MAX_LOG_LINE_BYTES));
        let over = if self.lines >= limits.log_lines {
            Over::Lines
        } else if line_bytes > limits.log_kib as usize * 1024 {
            Over::Bytes
        } else {
            (self.lines, self.line_bytes) = (self.lines + 1, line_bytes);
            return true;
        };
        self.dropped = self.dropped.saturating_add(1);
        self.over.get_or_insert(over);
        false
    }
}

/// Keeps a line that says something, and lets go of the oldest.
fn keep(kept: &mut VecDeque<String>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    if kept.len() == KEPT_STDERR_LINES {
        kept.pop_front();
    }
    kept.push_back(line.to_owned());
}

fn extend(line: &mut Vec<u8>, bytes: &[u8]) {
    let room = MAX_LOG_LINE_BYTES.saturating_sub(line.len());
    line.extend_from_slice(&bytes[..bytes.len().min(room)]);
}

/// Text that can stand in a terminal and in a log: control characters, with which a guest could move the cursor or forge a line, and
/// those that turn the direction of a line are shown as `\u{1b}`.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_LOG_LINE_BYTES)]);
    let text = text.trim_end_matches('\r');
    if !text.chars().any(|c| is_hidden(c) && c != '\t') {
        return text.to_owned();
    }
    text.chars().fold(String::with_capacity(text.len() + 16), |mut out, c| {
        match c {
            '\t' => out.push(c),
            c if is_hidden(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
        out
    })
}

/// The WASI side of one stream.
#[derive(Debug, Clone)]
pub(crate) struct GuestStream {
    output: Arc<Output>,
    stream: Stream,
}

impl GuestStream {
    pub(crate) fn new(output: Arc<Output>, stream: Stream) -> Self {
        Self { output, stream }
    }

    fn put(&self, bytes: &[u8]) -> Result<(), OutputLimit> {
        if self.output.write(self.stream, bytes) { Ok(()) } else { Err(OutputLimit) }
    }
}

/// The call wrote more to its streams than `output-mib`.
#[derive(Debug)]
pub(crate) struct OutputLimit;

impl std::fmt::Display for OutputLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it wrote more to its output than the limit `output-mib`")
    }
}

impl std::error::Error for OutputLimit {}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(self.put(bytes).map(|()| bytes.len()).map_err(std::io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for GuestStream {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for GuestStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.put(&bytes).map_err(|limit| wasmtime_wasi::p2::StreamError::Trap(wasmtime::Error::new(limit)))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BUDGET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(limits: Limits) -> Arc<Output> {
        Output::new(PluginName::new("p").expect("valid"), &limits)
    }

    #[test]
    fn the_last_lines_of_standard_error_are_kept() {
        let output = output(Limits::default());
        for n in 0..20 {
            assert!(output.write(Stream::Stderr, format!("line {n}\n").as_bytes()));
        }
        assert!(output.write(Stream::Stderr, b"half"));
        output.end_call();
        assert_eq!(output.last_lines().last().map(String::as_str), Some("half"));
        assert_eq!(output.last_lines().len(), KEPT_STDERR_LINES);
        output.begin_call();
        assert!(output.last_lines().is_empty());
    }

    #[test]
    fn output_over_the_limit_is_refused() {
        let output = output(Limits { output_mib: 1, ..Limits::default() });
        let half = vec![b'x'; 512 * 1024];
        assert!(output.write(Stream::Stdout, &half));
        assert!(output.write(Stream::Stderr, &half));
        assert!(!output.write(Stream::Stdout, b"x"));
        output.begin_call();
        assert!(output.write(Stream::Stdout, b"x"));
    }

    #[test]
    fn lines_are_bounded_and_cannot_move_the_cursor() {
        let output = output(Limits::default());
        assert!(output.write(Stream::Stderr, &vec![b'x'; 100_000]));
        output.end_call();
        assert_eq!(output.last_lines()[0].len(), MAX_LOG_LINE_BYTES);
        assert_eq!(clean(b"\x1b[2Jgone\rforged\tok\r"), "\\u{1b}[2Jgone\\rforged\tok");
        assert_eq!(clean("zwölf".as_bytes()), "zwölf");
        assert_eq!(clean("a\u{202e}b\u{2028}".as_bytes()), "a\\u{202e}b\\u{2028}");
    }

    #[test]
    fn lines_beyond_the_bound_are_counted() {
        let output = output(Limits::default());
        for _ in 0..1_005 {
            output.log(LogLevel::Trace, "x");
        }
        let state = output.state();
        assert_eq!((state.lines, state.dropped), (1_000, 5));
    }

    #[test]
    fn bytes_of_lines_beyond_the_bound_are_dropped() {
        let output = output(Limits { log_kib: 10, ..Limits::default() });
        // A line keeps 4 KiB, so two of them fit, and 2 KiB.
        for _ in 0..3 {
            output.log(LogLevel::Trace, &"x".repeat(100_000));
        }
        output.log(LogLevel::Trace, &"x".repeat(2_048));
        output.log(LogLevel::Trace, "x");
        let state = output.state();
        assert_eq!((state.lines, state.dropped), (3, 2));
    }
}
