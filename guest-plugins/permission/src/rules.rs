//! Rules, and the judgement over a call.

use crate::arguments::subjects;
use crate::command::{is_plain, readings};
use dsh_glob::{Glob, NormalPath};
use schemars::JsonSchema;
use serde::Deserialize;

/// What is to happen with a call; the order is that of strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It runs.
    Allow,
    /// A person is asked.
    Ask,
    /// It does not run.
    Deny,
}

/// Which tool calls run, which are asked about, which are denied.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// What happens with a call that no rule matches.
    #[serde(default = "ask")]
    pub default: Action,
    /// Of the matching rules the strictest wins, whatever their order.
    #[serde(default)]
    pub rules: Vec<RuleConfig>,
}

fn ask() -> Action {
    Action::Ask
}

/// One rule; all that it names must match.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleConfig {
    /// A glob over the tool's name.
    pub tool: String,
    /// A glob over a path among the arguments, normalised, relative to the workspace.
    pub path: Option<String>,
    /// A glob over the argument `command`.
    pub command: Option<String>,
    /// What to do.
    pub action: Action,
}

/// The rules, ready to judge.
#[derive(Debug)]
pub struct Rules {
    default: Action,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    tool: Glob,
    path: Option<PathRule>,
    command: Option<Glob>,
    action: Action,
    /// `rule 2 (tool `*`, path `secrets/**`)`
    label: String,
}

#[derive(Debug)]
struct PathRule {
    glob: Glob,
    /// The first segment of the pattern as written, `/` for an absolute one.
    first: String,
}

/// What the rules say about a call.
#[derive(Debug, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub action: Action,
    /// The rule, or that none matched.
    pub reason: String,
    path: Option<String>,
    command: Option<String>,
}

impl Judgement {
    /// `, path `a`` or `, command `ls`` or nothing.
    pub fn about(&self) -> String {
        let path = self.path.as_ref().map(|path| format!(", path `{path}`")).unwrap_or_default();
        let command = self.command.as_ref().map(|command| format!(", command `{command}`")).unwrap_or_default();
        path + &command
    }

    /// What an answer "always" is kept for: this tool with this path and this command line.
    pub fn remember_key(&self, tool: &str) -> String {
        let path = self.path.as_ref().map(|path| format!(" path {path}")).unwrap_or_default();
        let command = self.command.as_ref().map(|command| format!(" command {command}")).unwrap_or_default();
        format!("{tool}{path}{command}")
    }
}

impl Rules {
    /// Parses the globs; the message names the rule by its place from 1.
    pub fn new(config: Config) -> Result<Self, String> {
        let rules =
            config.rules.into_iter().enumerate().map(|(at, rule)| Rule::new(at + 1, rule)).collect::<Result<_, _>>()?;
        Ok(Self { default: config.default, rules })
    }

    /// Judges a call. Each path among the arguments is judged by itself and the strictest judgement holds: to be allowed, all of
    /// them must be.
    pub fn judge(&self, tool: &str, arguments: &str) -> Result<Judgement, String> {
        let subjects = subjects(arguments)?;
        let command = subjects.command.as_deref();
        let paths: Vec<Option<&NormalPath>> =
            if subjects.paths.is_empty() { vec![None] } else { subjects.paths.iter().map(Some).collect() };
        let mut strictest: Option<Judgement> = None;
        for path in paths {
            let judgement = self.judge_one(tool, path, command);
            if strictest.as_ref().is_none_or(|found| judgement.action > found.action) {
                strictest = Some(judgement);
            }
        }
        Ok(strictest.expect("invariant: there is at least one subject"))
    }

    fn judge_one(&self, tool: &str, path: Option<&NormalPath>, command: Option<&str>) -> Judgement {
        let matching = self.rules.iter().filter(|rule| rule.matches(tool, path, command));
        // `max_by_key` takes the last of equals; the first is what a reader of the rules expects.
        let (action, reason) = match matching.rev().max_by_key(|rule| rule.action) {
            Some(rule) => (rule.action, rule.label.clone()),
            None => (self.default, "no rule matches and the default".to_owned()),
        };
        Judgement {
            action,
            reason,
            path: path.map(|path| path.as_str().to_owned()),
            command: command.map(str::to_owned),
        }
    }
}

impl Rule {
    fn new(number: usize, config: RuleConfig) -> Result<Self, String> {
        let bad = |key: &str, text: &str, error: dsh_glob::GlobError| {
            format!("rule {number}: `{key} = \"{text}\"` is not a glob: {error}")
        };
        let tool = Glob::text(&config.tool).map_err(|error| bad("tool", &config.tool, error))?;
        let mut label = format!("rule {number} (tool `{}`", config.tool);
        let path = match &config.path {
            None => None,
            Some(text) => {
                label += &format!(", path `{text}`");
                Some(PathRule::new(text).map_err(|error| bad("path", text, error))?)
            }
        };
        let command = match &config.command {
            None => None,
            Some(text) => {
                label += &format!(", command `{text}`");
                Some(Glob::text(text).map_err(|error| bad("command", text, error))?)
            }
        };
        Ok(Self { tool, path, command, action: config.action, label: label + ")" })
    }

    /// A rule that names a path or a command matches only calls that have one.
    fn matches(&self, tool: &str, path: Option<&NormalPath>, command: Option<&str>) -> bool {
        let tightens = self.action != Action::Allow;
        self.tool.matches(tool)
            && self.path.as_ref().is_none_or(|rule| path.is_some_and(|path| rule.matches(path, tightens)))
            && self
                .command
                .as_ref()
                .is_none_or(|glob| command.is_some_and(|command| matches_command(glob, command, tightens)))
    }
}

impl PathRule {
    fn new(pattern: &str) -> Result<Self, dsh_glob::GlobError> {
        let first = if pattern.starts_with('/') { "" } else { pattern.split('/').next().unwrap_or_default() };
        Ok(Self { glob: Glob::path(pattern)?, first: first.to_owned() })
    }

    /// A path that leaves the workspace by its text may still end in it, so a tightening rule looks at its tails too; a rule that
    /// allows must have named the outside.
    fn matches(&self, path: &NormalPath, tightens: bool) -> bool {
        if !path.is_outside() {
            return self.glob.matches(path.as_str());
        }
        let first = path.as_str().split('/').next().unwrap_or_default();
        let named = first == self.first && self.glob.matches(path.as_str());
        named || (tightens && (self.glob.matches(path.as_str()) || path.tails().any(|tail| self.glob.matches(tail))))
    }
}

fn matches_command(glob: &Glob, command: &str, tightens: bool) -> bool {
    if tightens {
        return readings(command).iter().any(|reading| glob.matches(reading));
    }
    is_plain(command) && glob.matches(command.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::{Allow, Ask, Deny};

    fn rules(json: &str) -> Rules {
        Rules::new(serde_json::from_str(json).expect(json)).expect(json)
    }

    fn check(rules: &Rules, tool: &str, arguments: &str, expect: Action) {
        let got = rules.judge(tool, arguments).expect(arguments);
        assert_eq!(got.action, expect, "{tool} {arguments}: {got:?}");
    }

    #[test]
    fn the_strictest_wins_whatever_the_order() {
        let rules = rules(
            r#"{"rules":[{"tool":"*","path":"secrets/**","action":"deny"},{"tool":"read","action":"allow"},
                {"tool":"read","path":"docs/**","action":"ask"}]}"#,
        );
        check(&rules, "read", r#"{"path":"a"}"#, Allow);
        check(&rules, "read", r#"{"path":"docs/a"}"#, Ask);
        check(&rules, "read", r#"{"path":"secrets/a"}"#, Deny);
        check(&rules, "read", r#"{"path":"docs/../secrets/a"}"#, Deny);
        check(&rules, "read", r#"{"path":"docs\\..\\secrets//a"}"#, Deny);
        check(&rules, "read", r#"{"path":"/srv/secrets/a"}"#, Deny);
        check(&rules, "read", r#"{"path":"../ws/secrets/a"}"#, Deny);
        check(&rules, "read", "{}", Allow);
        check(&rules, "write", r#"{"path":"a"}"#, Ask);
    }

    #[test]
    fn an_allowed_call_is_allowed_for_all_its_paths() {
        let rules = rules(
            r#"{"default":"deny","rules":[{"tool":"*","path":"docs/**","action":"allow"},{"tool":"*","path":"src/*","action":"allow"}]}"#,
        );
        check(&rules, "copy", r#"{"source":"docs/a","target":"src/b"}"#, Allow);
        check(&rules, "copy", r#"{"source":"docs/a","target":"lib/b"}"#, Deny);
        check(&rules, "copy", "{}", Deny);
        check(&rules, "list", r#"{"path":"docs"}"#, Allow);
    }

    #[test]
    fn allowing_stays_inside_unless_the_outside_is_named() {
        let inside = rules(r#"{"rules":[{"tool":"*","path":"**","action":"allow"}]}"#);
        check(&inside, "read", r#"{"path":"a/b"}"#, Allow);
        check(&inside, "read", r#"{"path":"/etc/passwd"}"#, Ask);
        check(&inside, "read", r#"{"path":"../x"}"#, Ask);
        check(&inside, "read", r#"{"path":"~/x"}"#, Ask);
        let named = rules(
            r#"{"rules":[{"tool":"*","path":"/tmp/**","action":"allow"},{"tool":"*","path":"../lib/**","action":"allow"}]}"#,
        );
        check(&named, "read", r#"{"path":"/tmp/x"}"#, Allow);
        check(&named, "read", r#"{"path":"../lib/x"}"#, Allow);
        check(&named, "read", r#"{"path":"/tmp/../etc/x"}"#, Ask);
    }

    #[test]
    fn commands() {
        let rules = rules(
            r#"{"rules":[{"tool":"shell","command":"git *","action":"allow"},{"tool":"shell","command":"git push*","action":"deny"},
                {"tool":"shell","command":"rm *","action":"deny"}]}"#,
        );
        check(&rules, "shell", r#"{"command":"git status"}"#, Allow);
        check(&rules, "shell", r#"{"command":"git push origin"}"#, Deny);
        check(&rules, "shell", r#"{"command":"git status; ls"}"#, Ask);
        check(&rules, "shell", r#"{"command":"git status > x"}"#, Ask);
        check(&rules, "shell", r#"{"command":"git log $(id)"}"#, Ask);
        check(&rules, "shell", r#"{"command":"git status\nls"}"#, Ask);
        check(&rules, "shell", r#"{"command":"git status && rm -rf x"}"#, Deny);
        check(&rules, "shell", r#"{"command":"ls"}"#, Ask);
        check(&rules, "other", r#"{"command":"git status"}"#, Ask);
        check(&rules, "shell", "{}", Ask);
    }

    #[test]
    fn bad_configurations() {
        fn check(json: &str, expect: &str) {
            let got = match serde_json::from_str::<Config>(json) {
                Err(error) => error.to_string(),
                Ok(config) => Rules::new(config).map(|_| String::new()).unwrap_or_else(|message| message),
            };
            assert!(got.starts_with(expect), "{json}: {got}");
        }
        check(
            r#"{"rules":[{"tool":"a","action":"alow"}]}"#,
            "unknown variant `alow`, expected one of `allow`, `ask`, `deny`",
        );
        check(
            r#"{"rules":[{"tool":"a","paths":"b","action":"ask"}]}"#,
            "unknown field `paths`, expected one of `tool`, `path`, `command`, `action`",
        );
        check(r#"{"rule":[]}"#, "unknown field `rule`, expected `default` or `rules`");
        check(r#"{"rules":[{"action":"ask"}]}"#, "missing field `tool`");
        check(
            r#"{"rules":[{"tool":"a","action":"ask"},{"tool":"a","path":"[x","action":"ask"}]}"#,
            "rule 2: `path = \"[x\"` is not a glob: `[` is not closed",
        );
    }
}
