//! Rules, and the judgement over a call.

use crate::arguments::{PathSubject, Subjects, subjects};
use crate::command::CommandLine;
use dsh_glob::Glob;
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
    /// Globs over the names of tools that look at everything below their `path`, or at everything without one.
    #[serde(default = "search_tools")]
    pub search_tools: Vec<String>,
}

fn search_tools() -> Vec<String> {
    vec!["grep".to_owned(), "glob".to_owned()]
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
    search_tools: Vec<Glob>,
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
    /// All paths of the call, sorted.
    all_paths: Vec<String>,
    /// Whether the call looks at all below the path.
    below: bool,
    command: Option<String>,
    /// Whether no rule's pattern but the way the command is written decided.
    unclear: bool,
}

impl Judgement {
    /// `, path `a`` or `, command `ls`` or nothing.
    pub fn about(&self) -> String {
        let below = if self.below { " and all below it" } else { "" };
        let path = self.path.as_ref().map(|path| format!(", path `{path}`{below}")).unwrap_or_default();
        let command = self.command.as_ref().map(|command| format!(", command `{command}`")).unwrap_or_default();
        path + &command
    }

    /// What to do about it, as a sentence of its own, or nothing.
    pub fn hint(&self) -> &'static str {
        if self.unclear {
            ". What it would run cannot be told from its text: name each program plainly"
        } else if self.below {
            ". It would look at what the rule is about: name a `path` that holds nothing of it"
        } else {
            ""
        }
    }

    /// What an answer "always" is kept for: this tool with these paths and this command line, each as JSON, so that no text can look
    /// like two.
    pub fn remember_key(&self, tool: &str) -> String {
        let quoted = |text: &String| serde_json::Value::from(text.as_str()).to_string();
        let paths: String = self.all_paths.iter().map(|path| format!(" path {}", quoted(path))).collect();
        let below = if self.below { " and below" } else { "" };
        let command = self.command.as_ref().map(|command| format!(" command {}", quoted(command))).unwrap_or_default();
        format!("{tool}{paths}{below}{command}")
    }
}

impl Rules {
    /// Parses the globs; the message names the rule by its place from 1.
    pub fn new(config: Config) -> Result<Self, String> {
        let rules =
            config.rules.into_iter().enumerate().map(|(at, rule)| Rule::new(at + 1, rule)).collect::<Result<_, _>>()?;
        let search_tool = |name: &String| {
            Glob::text(name).map_err(|error| format!("`search-tools`: `{name}` is not a glob: {error}"))
        };
        let search_tools = config.search_tools.iter().map(search_tool).collect::<Result<_, _>>()?;
        Ok(Self { default: config.default, rules, search_tools })
    }

    /// Judges a call. Each path among the arguments is judged by itself and the strictest judgement holds: to be allowed, all of
    /// them must be.
    pub fn judge(&self, tool: &str, arguments: &str) -> Result<Judgement, String> {
        let searches = self.search_tools.iter().any(|glob| glob.matches(tool));
        let subjects = subjects(tool, arguments, searches)?;
        let command = subjects.command.as_deref().map(CommandLine::new);
        let command = command.as_ref();
        let mut strictest = self.strictest(tool, subjects.paths.first(), command);
        for path in subjects.paths.iter().skip(1) {
            let found = self.strictest(tool, Some(path), command);
            if found.action > strictest.action {
                strictest = found;
            }
        }
        Ok(strictest.judgement(&subjects, command))
    }

    /// What the rules say about one of a call's paths.
    fn strictest<'a>(&'a self, tool: &str, path: Option<&'a PathSubject>, command: Option<&CommandLine>) -> Found<'a> {
        let matching = self.rules.iter().filter(|rule| rule.matches(tool, path, command));
        // `max_by_key` takes the last of equals; the first is what a reader of the rules expects.
        let rule = matching.rev().max_by_key(|rule| rule.action);
        Found { action: rule.map_or(self.default, |rule| rule.action), rule, path }
    }
}

/// The strictest rule for one path of a call, or that none matches.
struct Found<'a> {
    action: Action,
    rule: Option<&'a Rule>,
    path: Option<&'a PathSubject>,
}

impl Found<'_> {
    fn judgement(&self, subjects: &Subjects, command: Option<&CommandLine>) -> Judgement {
        let mut all_paths: Vec<String> =
            subjects.paths.iter().map(|subject| subject.path.as_str().to_owned()).collect();
        all_paths.sort();
        let by_command = self.rule.and_then(|rule| rule.command.as_ref()).zip(command);
        Judgement {
            action: self.action,
            reason: self.rule.map_or("no rule matches and the default", |rule| &rule.label).to_owned(),
            path: self.path.map(|subject| subject.path.as_str().to_owned()),
            all_paths,
            below: self.path.is_some_and(|subject| subject.below) && self.rule.is_some_and(|rule| rule.path.is_some()),
            command: command.map(|command| command.text().to_owned()),
            unclear: self.action != Action::Allow && by_command.is_some_and(|(glob, command)| !command.says(glob)),
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
    fn matches(&self, tool: &str, path: Option<&PathSubject>, command: Option<&CommandLine>) -> bool {
        let tightens = self.action != Action::Allow;
        let of_command = |glob: &Glob, command: &CommandLine| {
            if tightens { command.may_be(glob) } else { command.is_surely(glob) }
        };
        self.tool.matches(tool)
            && self.path.as_ref().is_none_or(|rule| path.is_some_and(|path| rule.matches(path, tightens)))
            && self.command.as_ref().is_none_or(|glob| command.is_some_and(|command| of_command(glob, command)))
    }
}

impl PathRule {
    fn new(pattern: &str) -> Result<Self, dsh_glob::GlobError> {
        let first = if pattern.starts_with('/') { "" } else { pattern.split('/').next().unwrap_or_default() };
        Ok(Self { glob: Glob::path(pattern)?, first: first.to_owned() })
    }

    /// A path that leaves the workspace by its text may still end in it, so a tightening rule looks at its tails too; a rule that
    /// allows must have named the outside. Where all below a path is meant, a tightening rule matches when it could match some of it,
    /// and a rule that allows when it matches all of it.
    fn matches(&self, subject: &PathSubject, tightens: bool) -> bool {
        let path = &subject.path;
        let matches = |path: &str| match (subject.below, tightens) {
            (false, _) => self.glob.matches(path),
            (true, true) => self.glob.matches(path) || self.glob.reaches_below(path),
            (true, false) => self.glob.covers_below(path),
        };
        if !path.is_outside() {
            return matches(path.as_str());
        }
        let first = path.as_str().split('/').next().unwrap_or_default();
        let named = first == self.first && matches(path.as_str());
        // The workspace, or a name like the rule's, may be anywhere below; only two absolute paths can be compared.
        let anywhere = subject.below && !(first.is_empty() && self.first.is_empty());
        named || (tightens && (anywhere || matches(path.as_str()) || path.tails().any(matches)))
    }
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
    fn a_search_is_judged_for_all_it_looks_at() {
        let denied = rules(r#"{"default":"allow","rules":[{"tool":"*","path":"secret/**","action":"deny"}]}"#);
        check(&denied, "grep", r#"{"pattern":"n"}"#, Deny);
        check(&denied, "grep", r#"{"pattern":"n","path":"."}"#, Deny);
        check(&denied, "grep", r#"{"pattern":"n","path":"secret/a"}"#, Deny);
        check(&denied, "grep", r#"{"pattern":"n","path":"src/.."}"#, Deny);
        check(&denied, "grep", r#"{"pattern":"n","path":"src"}"#, Allow);
        check(&denied, "grep", r#"{"pattern":"n","glob":"secret/*"}"#, Deny);
        check(&denied, "grep", r#"{"pattern":"n","glob":"k"}"#, Deny);
        check(&denied, "glob", r#"{"pattern":"secret/*"}"#, Deny);
        check(&denied, "glob", r#"{"pattern":"s*/*"}"#, Deny);
        check(&denied, "glob", r#"{"pattern":"src/**"}"#, Allow);
        check(&denied, "glob", r#"{"pattern":"**","path":"src"}"#, Allow);
        check(&denied, "glob", r#"{"pattern":"**","path":".."}"#, Deny);
        check(&denied, "glob", r#"{"pattern":"**","path":"/"}"#, Deny);
        check(&denied, "list", r#"{"path":"."}"#, Allow);
        check(&denied, "read", r#"{"path":"secret/x\\../../k"}"#, Deny);
        check(&denied, "read", r#"{"path":"secret/x\\../k"}"#, Deny);
        let asked = rules(r#"{"default":"allow","rules":[{"tool":"*","path":"**/*.key","action":"ask"}]}"#);
        check(&asked, "grep", r#"{"pattern":"n","path":"src"}"#, Ask);
        let allowed = rules(
            r#"{"default":"deny","rules":[{"tool":"*","path":"docs/**","action":"allow"},{"tool":"*","path":"src/*","action":"allow"}]}"#,
        );
        check(&allowed, "grep", r#"{"pattern":"n","path":"docs"}"#, Allow);
        check(&allowed, "grep", r#"{"pattern":"n","path":"docs/a/b"}"#, Allow);
        check(&allowed, "glob", r#"{"pattern":"docs/a/*"}"#, Allow);
        check(&allowed, "grep", r#"{"pattern":"n","path":"src"}"#, Deny);
        check(&allowed, "grep", r#"{"pattern":"n","path":"src/a"}"#, Deny);
        check(&allowed, "grep", r#"{"pattern":"n"}"#, Deny);
        let other = rules(
            r#"{"default":"allow","search-tools":["find*"],"rules":[{"tool":"*","path":"secret/**","action":"deny"}]}"#,
        );
        check(&other, "grep", r#"{"pattern":"n"}"#, Allow);
        check(&other, "find-text", r#"{"path":"."}"#, Deny);
    }

    #[test]
    fn always_is_kept_for_all_that_was_asked_about() {
        let rules = rules("{}");
        let key = |arguments: &str| rules.judge("copy", arguments).expect(arguments).remember_key("copy");
        assert_eq!(key(r#"{"source":"b","target":"a"}"#), r#"copy path "a" path "b""#);
        assert_ne!(key(r#"{"source":"b","target":"a"}"#), key(r#"{"source":"b","target":"c"}"#));
        assert_ne!(key(r#"{"path":"a path b"}"#), key(r#"{"paths":["a","b"]}"#));
        assert_eq!(key(r#"{"command":"ls \"a\""}"#), r#"copy command "ls \"a\"""#);
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
        check(&rules, "shell", r#"{"command":"rm${IFS}x"}"#, Deny);
        check(&rules, "shell", r#"{"command":"git status; $x"}"#, Deny);
        check(&rules, "shell", r#"{"command":"g''it status"}"#, Ask);
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
        check(r#"{"rule":[]}"#, "unknown field `rule`, expected one of `default`, `rules`, `search-tools`");
        check(r#"{"rules":[{"action":"ask"}]}"#, "missing field `tool`");
        check(
            r#"{"rules":[{"tool":"a","action":"ask"},{"tool":"a","path":"[x","action":"ask"}]}"#,
            "rule 2: `path = \"[x\"` is not a glob: `[` is not closed",
        );
    }
}
