//! Numbered steps: each says what it does and how far the whole is, so that nobody waits before a silent terminal.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::repo::shown_command;

/// A row of steps whose number is known from the start.
pub struct Steps {
    total: usize,
    done: usize,
    started: Instant,
    failed: Vec<String>,
    times: Vec<(String, Duration)>,
    say: fn(&str),
}

impl Steps {
    /// Starts the clock.
    pub fn new(total: usize) -> Self {
        Self { total, done: 0, started: Instant::now(), failed: Vec::new(), times: Vec::new(), say }
    }

    /// Does one step; a failure ends the row.
    pub fn step<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.done += 1;
        let label = format!("[{}/{}]", self.done, self.total);
        (self.say)(&format!("{label} {what} …"));
        let started = Instant::now();
        let outcome = work();
        let time = started.elapsed();
        self.times.push((what.to_owned(), time));
        let time = shown_time(time);
        match &outcome {
            Ok(_) => (self.say)(&format!("{label} done after {time}")),
            Err(_) => (self.say)(&format!("{label} FAILED after {time}: {what}")),
        }
        outcome.with_context(|| what.to_owned())
    }

    /// Does one step; a failure is kept for the end and the row goes on.
    pub fn check<T>(&mut self, what: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        match self.step(what, work) {
            Ok(value) => Some(value),
            Err(error) => {
                (self.say)(&format!("error: {error:#}"));
                self.failed.push(what.to_owned());
                None
            }
        }
    }

    /// What [`Steps::check`] kept.
    pub fn failed(&self) -> &[String] {
        &self.failed
    }

    /// How many steps were done, of how many.
    pub fn count(&self) -> (usize, usize) {
        (self.done, self.total)
    }

    /// How long each step took, a line each, the longest first.
    pub fn times(&self) -> String {
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        times.iter().map(|(what, time)| format!("{:>8.1} s  {what}\n", time.as_secs_f64())).collect()
    }

    /// How long all of it took so far.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A line of progress. It goes to standard output, in order with what the steps print there.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A closed standard output is no reason to leave the work half done.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// `0.4 s`, `12 s`, `3 min 5 s`.
pub fn shown_time(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

/// How many tests ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were left out.
    pub ignored: u64,
}

impl Counts {
    /// Adds what one line of a test runner says, such as `test result: ok. 6 passed; 0 failed; 0 ignored; …`.
    fn read(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result:") else { return };
        for part in rest.split(['.', ';']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(number)), Some(word)) = (words.next().map(str::parse::<u64>), words.next()) else { continue };
            match word {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// Runs a test command, passes its lines to `say` as they come, and adds up what its runners say.
///
/// # Errors
/// When it cannot be started or fails; `counts` holds what was seen until then.
pub fn run_tests(command: &mut Command, counts: &mut Counts, say: fn(&str)) -> Result<()> {
    let name = shown_command(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{name}`"))?;
    let output = child.stdout.take().expect("invariant: standard output was piped above");
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read the tests' output")?;
        let line = String::from_utf8_lossy(&line);
        say(&line);
        counts.read(&line);
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{name}`"))?;
    anyhow::ensure!(status.success(), "`{name}` failed ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_lines_add_up() {
        let mut counts = Counts::default();
        counts.read("test result: ok. 6 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.67s");
        counts
            .read("test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s");
        counts.read("test a_name ... ok");
        assert_eq!(counts, Counts { passed: 8, failed: 3, ignored: 1 });
    }

    #[test]
    fn a_failing_runner_is_a_failure_and_is_counted() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101"]);
        let mut counts = Counts::default();
        assert!(run_tests(&mut command, &mut counts, |_| {}).is_err());
        assert_eq!(counts, Counts { passed: 1, failed: 1, ignored: 0 });
    }

    #[test]
    fn a_failed_check_is_kept_and_the_row_goes_on() {
        let mut steps = Steps { say: |_| {}, ..Steps::new(2) };
        assert_eq!(steps.check("one", || anyhow::Result::<()>::Err(anyhow::anyhow!("no"))), None);
        assert_eq!(steps.check("two", || Ok(2)), Some(2));
        assert_eq!(steps.failed(), ["one"]);
        assert_eq!(steps.count(), (2, 2));
    }

    #[test]
    fn the_longest_step_is_said_first() {
        let times = [("one", 1_200), ("two", 65_000), ("three", 40)];
        let times = times.map(|(what, millis)| (what.to_owned(), Duration::from_millis(millis))).into();
        let steps = Steps { times, ..Steps::new(3) };
        assert_eq!(steps.times(), "    65.0 s  two\n     1.2 s  one\n     0.0 s  three\n");
    }

    #[test]
    fn times_are_short() {
        let check = |millis: u64, expect: &str| assert_eq!(shown_time(Duration::from_millis(millis)), expect);
        check(412, "0.4 s");
        check(12_900, "12 s");
        check(185_000, "3 min 5 s");
    }
}
