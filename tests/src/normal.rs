//! Replaces what differs from run to run: temporary paths, session ids, times.

use regex::{Captures, Regex};

use crate::sandbox::Sandbox;

/// Knows the texts to replace.
pub struct Normal {
    literal: Vec<(String, String)>,
    patterns: Vec<(Regex, String)>,
    sessions: Vec<String>,
}

impl Normal {
    /// For a case's folder; `more` are the case's own patterns.
    pub fn new(sandbox: &Sandbox, more: &[(String, String)]) -> Result<Normal, String> {
        let target = crate::target_dir();
        let places = [
            (sandbox.workspace.clone(), "WORKSPACE"),
            (sandbox.case.clone(), "CASE"),
            (sandbox.data.clone(), "DATA"),
            (sandbox.root(), "OUTSIDE"),
            (target.join("plugins"), "PLUGINS"),
            (target.join("test-guests"), "GUESTS"),
        ];
        let literal = places.map(|(path, name)| (path.to_string_lossy().into_owned(), name.to_owned())).into();
        let built_in = [
            // Unix milliseconds of this century's second half of the twenties and later.
            (r"\b1[7-9]\d{11}\b", "TIME"),
            (r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?", "TIME"),
            (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "ULID"),
            (r"\b[0-9a-f]{64}\b", "HASH"),
            (r"thread '[^']*' \(\d+\) panicked at \S+:\d+:\d+", "thread panicked at PLACE"),
            (r"\(\d+ ms of it waiting", "(N ms of it waiting"),
        ];
        let patterns = built_in
            .iter()
            .map(|(pattern, with)| ((*pattern).to_owned(), (*with).to_owned()))
            .chain(more.iter().cloned());
        let compile = |(pattern, with): (String, String)| {
            Regex::new(&pattern).map(|regex| (regex, with)).map_err(|error| error.to_string())
        };
        Ok(Normal { literal, patterns: patterns.map(compile).collect::<Result<_, _>>()?, sessions: Vec::new() })
    }

    /// A session's id; the first is `SESSION`, the next `SESSION-2`.
    pub fn session(&mut self, id: &str) {
        if !self.sessions.iter().any(|known| known == id) {
            self.sessions.push(id.to_owned());
        }
    }

    /// The ids of all sessions, in the order they were made.
    pub fn sessions(&self) -> &[String] {
        &self.sessions
    }

    /// The id of the session that came last.
    pub fn last_session(&self) -> Option<&str> {
        self.sessions.last().map(String::as_str)
    }

    /// `text` with all of it replaced.
    pub fn apply(&self, text: &str) -> String {
        let mut text = self.literal.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        for (at, id) in self.sessions.iter().enumerate().filter(|(_, id)| is_made_up(id)) {
            let name = if at == 0 { "SESSION".to_owned() } else { format!("SESSION-{}", at + 1) };
            text = text.replace(id.as_str(), &name);
        }
        self.patterns.iter().fold(text, |text, (pattern, with)| {
            pattern.replace_all(&text, |_: &Captures<'_>| with.clone()).into_owned()
        })
    }
}

/// Ids that the case chose itself are short and stay.
fn is_made_up(id: &str) -> bool {
    id.len() >= 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_replaced() {
        let sandbox = Sandbox::new().expect("a folder");
        let mut normal = Normal::new(&sandbox, &[(r"\d+ ms".into(), "N ms".into())]).expect("patterns");
        normal.session("01JABCDEFGHJKMNPQRSTVWXYZ0");
        normal.session("01JABCDEFGHJKMNPQRSTVWXYZ1");
        normal.session("mine");
        let check = |text: &str, expect: &str| assert_eq!(normal.apply(text), expect);
        check(&format!("{}/x", sandbox.workspace.display()), "WORKSPACE/x");
        check("01JABCDEFGHJKMNPQRSTVWXYZ1 01JABCDEFGHJKMNPQRSTVWXYZ0 mine", "SESSION-2 SESSION mine");
        check("at 1796051234567, 12345678", "at TIME, 12345678");
        check("2026-11-30T15:00:00Z", "TIME");
        check("took 17 ms", "took N ms");
        check(&format!("sha256 {}", "0f".repeat(32)), "sha256 HASH");
    }
}
