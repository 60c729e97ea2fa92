//! Names and numbers that identify things: newtypes, so that an agent is never mistaken for a session.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {what}: {rule}")]
pub struct InvalidName {
    /// The text as given.
    pub text: String,
    /// What it should have named.
    pub what: &'static str,
    /// The rule it breaks.
    pub rule: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` against the rule for this kind of name.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
                let text = text.as_ref();
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidName { text: text.to_owned(), what: $what, rule: $rule })
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Longest agent or session id, in bytes; it becomes part of a file name, whose usual limit is 255.
pub const MAX_ID_BYTES: usize = 128;

fn is_id(text: &str) -> bool {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty()
        && text.len() <= MAX_ID_BYTES
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(ok)
}

fn is_plugin_name(text: &str) -> bool {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(ok)
        && !matches!(text, "failed" | "builtin")
}

name!(
    /// An agent's id, unique among the agents of one process.
    AgentId, "agent id", "use letters, digits, `-`, `_` and `.`, at most 128, beginning with a letter or digit", is_id
);
name!(
    /// A session's id: the name of its log without `.jsonl`.
    SessionId, "session id", "use letters, digits, `-`, `_` and `.`, at most 128, beginning with a letter or digit", is_id
);
name!(
    /// A plugin's name, unique among the plugins of one process; `builtin` stands for the host itself.
    PluginName, "plugin name", "use `[a-z][a-z0-9-]{0,63}`; `failed` and `builtin` are taken", is_plugin_name
);

impl PluginName {
    /// The name under which the host's own tools and listeners appear.
    pub fn builtin() -> Self {
        Self("builtin".into())
    }
}

/// A place in an agent's life; both numbers count from 1, and are 0 outside of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepRef {
    /// The turn's number, continued over a resume.
    pub turn: u32,
    /// The step's number inside its turn.
    pub step: u32,
}

/// On whose behalf something runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentInfo {
    /// The agent.
    pub agent: AgentId,
    /// Its session.
    pub session: SessionId,
    /// Its ancestors, nearest first; empty for an agent that no agent made.
    pub lineage: Vec<AgentId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_names_follow_the_rule() {
        let check = |text: &str, valid: bool| assert_eq!(PluginName::new(text).is_ok(), valid, "{text:?}");
        check("compaction", true);
        check("a", true);
        check("plan-mode2", true);
        check("", false);
        check("Echo", false);
        check("2fast", false);
        check("failed", false);
        check("builtin", false);
        check(&"a".repeat(64), true);
        check(&"a".repeat(65), false);
    }

    #[test]
    fn ids_cannot_leave_their_folder() {
        let check = |text: &str, valid: bool| assert_eq!(SessionId::new(text).is_ok(), valid, "{text:?}");
        check("01JABC", true);
        check("my.session_1", true);
        check("../x", false);
        check(".hidden", false);
        check("a/b", false);
        check("", false);
    }
}
