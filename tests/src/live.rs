//! A run that a test talks to while it lives: lines in, events and diagnostics out.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use serde_json::Value;

use crate::host::{DEADLINE, Run, binary};

/// A process and what it has said so far.
pub struct Live {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines,
    stderr: Lines,
}

/// The lines of one stream.
struct Lines {
    from: Receiver<String>,
    all: Vec<String>,
}

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (to, from) = mpsc::channel();
        thread::spawn(move || {
            // Nobody listens any more once the test is over.
            BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| to.send(line))
        });
        Self { from, all: Vec::new() }
    }

    /// The next line that is `wanted`; those before it are passed by. None at the end of the stream.
    fn next(&mut self, wanted: impl Fn(&str) -> bool) -> Result<Option<String>, ()> {
        loop {
            match self.from.recv_timeout(DEADLINE) {
                Ok(line) => {
                    self.all.push(line.clone());
                    if wanted(&line) {
                        return Ok(Some(line));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => return Err(()),
            }
        }
    }

    /// Reads to the end.
    fn rest(&mut self) -> String {
        self.all.extend(self.from.iter());
        self.all.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Ended {
    /// The events.
    pub events: Vec<Value>,
    /// Standard error.
    pub stderr: String,
    /// The exit status.
    pub exit: i32,
}

impl Ended {
    /// The data of all events of a type, in order.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).map(|event| &event["data"]).collect()
    }
}

impl Live {
    /// Starts the binary. Its standard input stays open; what `run` has for it is written at once.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(run: &Run) -> Self {
        let mut command = Command::new(binary());
        command.args(&run.args).env_clear().envs(run.env.iter().cloned()).current_dir(&run.dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts; build it with `cargo build --release -p dsh-host`");
        let stdout = Lines::of(child.stdout.take().expect("standard output is a pipe"));
        let stderr = Lines::of(child.stderr.take().expect("standard error is a pipe"));
        let mut live = Self { stdin: child.stdin.take(), child, stdout, stderr };
        if !run.stdin.is_empty() {
            live.send(&run.stdin);
        }
        live
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    ///
    /// # Panics
    /// When it has closed it.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        let sent = stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n")).and_then(|()| stdin.flush());
        if let Err(error) = sent {
            self.give_up(&format!("`{line}` cannot be sent: {error}"));
        }
    }

    /// The next event of that type; those before it are passed by.
    ///
    /// # Panics
    /// When there is none.
    pub fn event(&mut self, kind: &str) -> Value {
        let start = format!("{{\"type\":\"{kind}\",");
        match self.stdout.next(|line| line.starts_with(&start)) {
            Ok(Some(line)) => serde_json::from_str(&line).expect("an event is JSON"),
            _ => self.give_up(&format!("there is no event `{kind}`")),
        }
    }

    /// The next line of its diagnostics that has `words` in it; those before it are passed by.
    ///
    /// # Panics
    /// When there is none.
    pub fn said(&mut self, words: &str) -> String {
        match self.stderr.next(|line| line.contains(words)) {
            Ok(Some(line)) => line,
            _ => self.give_up(&format!("nobody said `{words}`")),
        }
    }

    /// Ends its input and waits for its end.
    ///
    /// # Panics
    /// When an event is no JSON.
    pub fn end(mut self) -> Ended {
        self.stdin = None;
        let events = self.stdout.rest();
        let events = events.lines().map(|line| serde_json::from_str(line).expect("an event is JSON")).collect();
        let status = self.child.wait().expect("it can be waited for");
        Ended { events, stderr: self.stderr.rest(), exit: status.code().unwrap_or(-1) }
    }

    fn give_up(&mut self, what: &str) -> ! {
        // Its end closes the streams, which are then read to theirs.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let (stdout, stderr) = (self.stdout.rest(), self.stderr.rest());
        panic!("{what}\nstandard output:\n{stdout}\nstandard error:\n{stderr}");
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
