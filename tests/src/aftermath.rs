//! What holds when a process went on with a session whose last process ended at any moment.

use serde_json::Value;

use crate::checks::{provider, repair, requests, shape, stream};
use crate::conversation::Acted;
use crate::log::Log;

/// The log as its last process left it.
#[derive(Debug, Clone)]
pub struct Left {
    /// The whole lines.
    pub log: Log,
    /// The same, as they are written.
    pub whole: String,
    /// What stands behind them.
    pub torn: String,
}

impl Left {
    /// Takes a log's text apart; its whole lines must be a good beginning.
    pub fn parse(id: &str, text: &str) -> Result<Left, String> {
        let (whole, torn) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
        let log = Log::parse(id, whole)?;
        none_of(shape::check(&log, true))?;
        Ok(Left { log, whole: whole.to_owned(), torn: torn.to_owned() })
    }

    /// Whether a line of standard output is a durable event of this session.
    pub fn is_own(&self, line: &str) -> bool {
        line.contains("\"seq\":") && line.contains(&format!("\"session\":\"{}\"", self.log.id))
    }

    /// All durable events that the process printed, which knew `known` entries before, are in the log.
    pub fn holds_what_was_printed(&self, known: usize, stdout: &str) -> Result<(), String> {
        // The process may have been killed in the middle of a line.
        let whole = &stdout[..stdout.rfind('\n').map_or(0, |end| end + 1)];
        let printed: Vec<&str> = whole.lines().filter(|line| self.is_own(line)).collect();
        let logged = self.log.lines.iter().skip(known).map(String::as_str);
        match printed
            .iter()
            .zip(logged.chain(std::iter::repeat("nothing")))
            .find(|(printed, logged)| *printed != logged)
        {
            None => Ok(()),
            Some((printed, logged)) => Err(format!("printed `{printed}`, logged `{logged}`")),
        }
    }

    /// What a process did that went on with this log, which reads `after` now: nothing is lost or changed, what was owed was paid
    /// first, and every request is one that its log explains and every provider takes.
    pub fn gone_on(&self, after: &str, acted: &Acted) -> Result<Log, String> {
        let Left { log, torn, .. } = self.gone_on_for_a_while(after, acted)?;
        let known = self.log.entries.len();
        let mut problems = shape::check(&log, false);
        problems.extend(repair::check(&self.log, &log, false));
        problems.extend(requests::check(&log, known, &acted.requests));
        problems.extend(stream::check(&log, Some(known), &acted.outcome.stdout));
        let end = log.entries.iter().rfind(|entry| entry["type"] == "turn/end");
        let reason = end.map_or(&Value::Null, |end| &end["data"]["reason"]["type"]);
        // A turn may fail when the model's line for it says so; what the process exits with is for the caller to judge.
        if reason == "interrupted" || acted.outcome.exit == 0 && reason != "completed" {
            problems.push(format!("the last turn is {reason}"));
        }
        if !torn.is_empty() {
            problems.push(format!("the last line is torn: {torn}"));
        }
        none_of(problems)?;
        Ok(log)
    }

    /// The same for a process that was killed in its turn.
    pub fn gone_on_for_a_while(&self, after: &str, acted: &Acted) -> Result<Left, String> {
        if !after.starts_with(&self.whole) {
            return Err("what was in the log has changed".to_owned());
        }
        let left = Left::parse(&self.log.id, after)?;
        left.holds_what_was_printed(self.log.entries.len(), &acted.outcome.stdout)?;
        let mut problems = repair::check(&self.log, &left.log, true);
        problems.extend(acted.requests.iter().filter(|request| request["by"] == "loop").flat_map(provider::check));
        none_of(problems)?;
        Ok(left)
    }
}

/// No problem, or all of them.
pub fn none_of(problems: Vec<String>) -> Result<(), String> {
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}
