//! Which commands wait for which event, and how often each type of event has happened.

use std::collections::HashMap;

use super::command::{After, Verb};

/// The one type whose commands are applied when it is emitted, before anybody sees it: the stream is not polled in between.
const AT_ONCE: &str = "assistant/chunk";

/// Whether commands for this type, of whichever agent, are applied when it is emitted.
fn is_at_once(kind: &str) -> bool {
    kind.strip_prefix(AT_ONCE).is_some_and(|agent| agent.is_empty() || agent.starts_with('@'))
}

/// A command with the number of its line.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbered {
    /// From 1.
    pub line: u64,
    /// What to do.
    pub verb: Verb,
}

/// Counts events and keeps commands until theirs has happened.
#[derive(Debug, Default)]
pub struct Waiting {
    emitted: HashMap<String, u64>,
    settled: HashMap<String, u64>,
    pending: Vec<(After, Numbered)>,
}

impl Waiting {
    /// Takes a command in; gives it back when it is due already: its event was emitted before it was read.
    pub fn take(&mut self, command: Numbered, after: Option<After>) -> Option<Numbered> {
        match after {
            Some(after) if self.emitted.get(&after.kind).is_none_or(|count| *count < after.n) => {
                self.pending.push((after, command));
                None
            }
            _ => Some(command),
        }
    }

    /// An event was emitted. Gives the commands that are due now, in input order.
    pub fn emitted(&mut self, kind: &str) -> Vec<Numbered> {
        count(&mut self.emitted, kind);
        if is_at_once(kind) { self.due(kind) } else { Vec::new() }
    }

    /// An event's observers are done. Gives the commands that are due now, in input order.
    pub fn settled(&mut self, kind: &str) -> Vec<Numbered> {
        count(&mut self.settled, kind);
        if is_at_once(kind) { Vec::new() } else { self.due(kind) }
    }

    /// The lines of the commands that still wait, and for what; they wait no longer.
    pub fn take_left(&mut self) -> Vec<(u64, After)> {
        std::mem::take(&mut self.pending).into_iter().map(|(after, command)| (command.line, after)).collect()
    }

    fn happened(&self, after: &After) -> bool {
        let counts = if is_at_once(&after.kind) { &self.emitted } else { &self.settled };
        counts.get(&after.kind).is_some_and(|count| *count >= after.n)
    }

    fn due(&mut self, kind: &str) -> Vec<Numbered> {
        if self.pending.is_empty() {
            return Vec::new();
        }
        let (due, pending) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|(after, _)| after.kind == kind && self.happened(after));
        self.pending = pending;
        let due: Vec<(After, Numbered)> = due;
        due.into_iter().map(|(_, command)| command).collect()
    }
}

fn count(counts: &mut HashMap<String, u64>, kind: &str) {
    match counts.get_mut(kind) {
        Some(count) => *count += 1,
        None => drop(counts.insert(kind.to_owned(), 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(commands: &[(u64, &str, u64)]) -> Waiting {
        let mut waiting = Waiting::default();
        for (line, kind, n) in commands {
            let command = Numbered { line: *line, verb: Verb::Dispose };
            assert_eq!(waiting.take(command, Some(After { kind: (*kind).into(), n: *n })), None);
        }
        waiting
    }

    fn lines(commands: &[Numbered]) -> Vec<u64> {
        commands.iter().map(|command| command.line).collect()
    }

    #[test]
    fn a_command_is_due_when_its_event_has_settled() {
        let mut waiting = waiting(&[(1, "tool/call", 2), (2, "tool/call", 1), (3, "tool/call", 2), (4, "usage", 1)]);
        assert_eq!(lines(&waiting.emitted("tool/call")), [0; 0]);
        assert_eq!(lines(&waiting.settled("tool/call")), [2]);
        waiting.emitted("tool/call");
        assert_eq!(lines(&waiting.settled("tool/call")), [1, 3]);
        assert_eq!(waiting.take_left().into_iter().map(|(line, _)| line).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_chunk_is_due_when_it_is_emitted() {
        let mut waiting = waiting(&[(1, AT_ONCE, 2)]);
        assert_eq!(lines(&waiting.emitted(AT_ONCE)), [0; 0]);
        assert_eq!(lines(&waiting.settled(AT_ONCE)), [0; 0]);
        assert_eq!(lines(&waiting.emitted(AT_ONCE)), [1]);
        let kind = "assistant/chunk@main.1";
        let mut waiting = self::waiting(&[(1, kind, 1)]);
        assert_eq!(lines(&waiting.emitted(AT_ONCE)), [0; 0], "the prompted agent's");
        assert_eq!(lines(&waiting.emitted(kind)), [1]);
    }

    #[test]
    fn what_has_happened_is_due_at_once() {
        let mut waiting = Waiting::default();
        waiting.emitted("agent/created");
        let command = Numbered { line: 1, verb: Verb::Dispose };
        assert_eq!(
            waiting.take(command.clone(), Some(After { kind: "agent/created".into(), n: 1 })),
            Some(command.clone())
        );
        assert_eq!(waiting.take(command.clone(), None), Some(command.clone()));
        assert_eq!(waiting.take(command, Some(After { kind: "agent/created".into(), n: 2 })), None);
    }
}
