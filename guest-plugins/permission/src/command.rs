//! Command lines: what an `allow` may match, and what a `deny` or an `ask` must not miss.
//!
//! This is no shell. Allowing is strict (one plain command), tightening is generous (any part, however it is dressed up).

/// With any of these a line is more than one plain command, or does more than its text says.
const META: [char; 13] = [';', '&', '|', '<', '>', '(', ')', '{', '}', '`', '\n', '\r', '#'];

/// Words that only lead to the command proper.
const LEADING_WORDS: [&str; 21] = [
    "sudo", "doas", "env", "command", "exec", "nohup", "time", "nice", "builtin", "eval", "xargs", "then", "do",
    "else", "if", "while", "until", "!", "bash", "sh", "zsh",
];

/// Whether a line is one plain command: no chaining, substitution, redirection, grouping or comment. Quotes do not excuse any.
pub fn is_plain(command: &str) -> bool {
    !command.contains(META) && !command.contains("$'") && !command.contains("${")
}

/// The texts that a tightening rule is compared with: the line, its parts, and each of these without leading words, assignments,
/// options of a shell, quotes and the program's directory.
pub fn readings(command: &str) -> Vec<String> {
    let mut readings: Vec<String> = Vec::new();
    let mut add = |text: String| {
        if !text.is_empty() && !readings.contains(&text) {
            readings.push(text);
        }
    };
    let parts = command
        .split([';', '&', '|', '(', ')', '{', '}', '`', '\n', '\r', '<', '>'])
        .map(|part| part.trim_end_matches('$'));
    for part in std::iter::once(command).chain(parts) {
        add(part.trim().to_owned());
        add(one_blank(part));
        let unquoted = one_blank(&part.replace(['"', '\'', '\\'], ""));
        add(unquoted.clone());
        let mut words: &[&str] = &unquoted.split(' ').collect::<Vec<_>>();
        while let Some((first, rest)) = words.split_first() {
            if let Some(program) = base_name(first) {
                add(std::iter::once(program).chain(rest.iter().copied()).collect::<Vec<_>>().join(" "));
            }
            if !leads_on(first) {
                break;
            }
            words = rest;
            add(words.join(" "));
        }
    }
    readings
}

fn one_blank(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `rm` of `/bin/rm`.
fn base_name(word: &str) -> Option<&str> {
    word.rsplit_once('/').map(|(_, name)| name).filter(|name| !name.is_empty())
}

fn leads_on(word: &str) -> bool {
    let name = base_name(word).unwrap_or(word);
    LEADING_WORDS.contains(&name) || name.starts_with('-') || is_assignment(name)
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain() {
        for command in ["ls -l", "git commit -m 'a b'", "echo $HOME", ""] {
            assert!(is_plain(command), "{command}");
        }
        for command in [
            "a; b",
            "a && b",
            "a | b",
            "echo $(b)",
            "echo `b`",
            "a\nb",
            "a > b",
            "a < b",
            "a & ",
            "echo \"a;b\"",
            "${a:-b}",
            "a #b",
        ] {
            assert!(!is_plain(command), "{command}");
        }
    }

    fn check(command: &str, expect: &str) {
        let got = readings(command);
        assert!(got.iter().any(|reading| reading == expect), "{command}: {got:?}");
    }

    #[test]
    fn nothing_hides_a_command() {
        for command in [
            "rm -rf x",
            "  rm   -rf  x ",
            "ls; rm -rf x",
            "ls && rm -rf x",
            "ls|rm -rf x",
            "echo $(rm -rf x)",
            "echo `rm -rf x`",
            "ls\nrm -rf x",
            "sudo rm -rf x",
            "A=1 B=2 rm -rf x",
            "/bin/rm -rf x",
            "'rm' -rf x",
            "r\\m -rf x",
            "bash -c 'rm -rf x'",
            "/usr/bin/env -i bash -c \"rm -rf x\"",
            "if true; then rm -rf x; fi",
            "(rm -rf x)",
        ] {
            check(command, "rm -rf x");
        }
    }
}
