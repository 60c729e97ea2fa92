//! The most a plugin will ever ask for, as it says itself in a custom section, with a reason each; what an operator grants is
//! intersected with it.

use serde::{Deserialize, Serialize};

use crate::difference::nearest_name;
use crate::grants::Grant;
use crate::refusal::Refusal;

/// The custom section in which a plugin says the most it will ever ask for: a JSON list of `{"capability", "reason"}`. It may stand in
/// the component or in a core module directly inside it (that is where compilers put it).
pub const CEILING_SECTION: &str = "dsh-ceiling";

/// A section of this size holds a hundred long reasons.
const MAX_BYTES: usize = 64 * 1024;

/// The words that stand for every grant that begins with them.
const WORDS: [&str; 11] =
    ["llm", "session", "inbox", "agents", "approval", "process", "fs", "fs:read", "fs:write", "net", "env"];

/// One line of a plugin's ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CeilingEntry {
    /// A capability as in a grant, or the first words of one: `fs:read` covers every `fs:read:PATH`.
    pub capability: String,
    /// Why the plugin may need it.
    pub reason: String,
}

/// Reads the sections that were found.
pub(crate) fn parse(sections: &[&[u8]]) -> Result<Option<Vec<CeilingEntry>>, Refusal> {
    let example = "write a JSON list of `{\"capability\": \"llm\", \"reason\": \"to write summaries\"}`; the SDK's `ceiling!` does";
    let refuse = |why: String, change: String| Err(Refusal::Ceiling { why, change });
    let data = match sections {
        [] => return Ok(None),
        [one] => *one,
        many => {
            let why = format!("it has {} sections `{CEILING_SECTION}`", many.len());
            return refuse(why, "say once what the plugin will ask for".into());
        }
    };
    if data.len() > MAX_BYTES {
        let why = format!(
            "its section `{CEILING_SECTION}` has {} KiB; this host reads at most {}",
            data.len() / 1024,
            MAX_BYTES / 1024
        );
        return refuse(why, "write shorter reasons".into());
    }
    let entries: Vec<CeilingEntry> = match serde_json::from_slice(data) {
        Ok(entries) => entries,
        Err(error) => {
            let why = format!("its section `{CEILING_SECTION}` is not a list of capabilities with reasons: {error}");
            return refuse(why, example.into());
        }
    };
    for CeilingEntry { capability, .. } in &entries {
        if WORDS.contains(&capability.as_str()) || capability.parse::<Grant>().is_ok() {
            continue;
        }
        let word = capability.split(':').next().unwrap_or_default();
        let change = match nearest_name(word, WORDS.into_iter()) {
            Some(near) if near != word => format!("did you mean `{near}`?"),
            _ => format!(
                "there are {}, and each grant that begins with one",
                WORDS.map(|word| format!("`{word}`")).join(", ")
            ),
        };
        return refuse(format!("its section `{CEILING_SECTION}` names `{capability}`, which is no capability"), change);
    }
    Ok(Some(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ceiling_is_read_or_refused_with_a_reason() {
        let check = |sections: &[&str], expect: &str| {
            let sections: Vec<&[u8]> = sections.iter().map(|section| section.as_bytes()).collect();
            let found = match parse(&sections) {
                Ok(None) => "none".to_owned(),
                Ok(Some(entries)) => entries.iter().map(|entry| entry.capability.clone()).collect::<Vec<_>>().join(" "),
                Err(refusal) => format!("{refusal} / {}", refusal.hint()),
            };
            assert_eq!(found, expect, "{sections:?}");
        };
        let entry = |capability: &str| format!(r#"[{{"capability":"{capability}","reason":"why"}}]"#);
        check(&[], "none");
        check(&["[]"], "");
        for good in ["llm", "fs", "fs:read", "fs:write:docs", "net", "net:*.a.com", "env", "env:TERM", "agents"] {
            check(&[&entry(good)], good);
        }
        check(&["[]", "[]"], "it has 2 sections `dsh-ceiling` / say once what the plugin will ask for");
        check(&[&entry("lmm")], "its section `dsh-ceiling` names `lmm`, which is no capability / did you mean `llm`?");
        check(
            &[&entry("fs:raed")],
            "its section `dsh-ceiling` names `fs:raed`, which is no capability / there are `llm`, `session`, `inbox`, `agents`, `approval`, `process`, `fs`, `fs:read`, `fs:write`, `net`, `env`, and each grant that begins with one",
        );
        let example = "write a JSON list of `{\"capability\": \"llm\", \"reason\": \"to write summaries\"}`; the SDK's `ceiling!` does";
        check(
            &["llm"],
            &format!(
                "its section `dsh-ceiling` is not a list of capabilities with reasons: expected value at line 1 column 1 / {example}"
            ),
        );
        check(
            &[r#"[{"capability":"llm"}]"#],
            &format!(
                "its section `dsh-ceiling` is not a list of capabilities with reasons: missing field `reason` at line 1 column 21 / {example}"
            ),
        );
        let long = format!(r#"[{{"capability":"llm","reason":"{}"}}]"#, "x".repeat(70_000));
        check(&[&long], "its section `dsh-ceiling` has 68 KiB; this host reads at most 64 / write shorter reasons");
    }
}
