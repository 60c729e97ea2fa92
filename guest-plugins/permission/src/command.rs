//! Command lines: what an `allow` may match, and what a `deny` or an `ask` must not miss.
//!
//! This is no shell. Allowing is strict (one plain command), tightening is generous: any part, however it is dressed up, and any line
//! whose text does not say what it would run.

use crate::words::{Word, read};
use dsh_glob::Glob;
use std::collections::HashSet;

/// With any of these a line is more than one plain command, or does more than its text says.
const META: [char; 13] = [';', '&', '|', '<', '>', '(', ')', '{', '}', '`', '\n', '\r', '#'];

/// With any of these a word may be another than it looks.
const DRESSED: [char; 8] = ['$', '\'', '"', '\\', '*', '?', '[', ']'];

/// Words that only lead to the command proper.
const LEADING_WORDS: [&str; 21] = [
    "sudo", "doas", "env", "command", "exec", "nohup", "time", "nice", "builtin", "eval", "xargs", "then", "do",
    "else", "if", "while", "until", "!", "bash", "sh", "zsh",
];

/// Words of the shell before a command.
const RESERVED: [&str; 12] = ["{", "}", "!", "if", "then", "elif", "else", "while", "until", "do", "coproc", "time"];

/// Programs that run what their arguments say, somewhere behind options of their own.
const WRAPPERS: [&str; 34] = [
    "sudo",
    "doas",
    "env",
    "command",
    "exec",
    "nohup",
    "nice",
    "builtin",
    "xargs",
    "timeout",
    "stdbuf",
    "setsid",
    "ionice",
    "chrt",
    "taskset",
    "strace",
    "ltrace",
    "watch",
    "parallel",
    "busybox",
    "toybox",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "runuser",
    "setpriv",
    "pkexec",
    "systemd-run",
    "caffeinate",
    "proxychains",
    "script",
    "su",
    "function",
];

/// Programs that run a text as a command line: after `-c`, or from their input.
const SHELLS: [&str; 10] = ["bash", "sh", "zsh", "dash", "ash", "ksh", "mksh", "fish", "su", "script"];

/// Words that run their arguments as a command line.
const RUN_TEXT: [&str; 6] = ["eval", "trap", "alias", "watch", "parallel", "ssh"];

/// Options after which a command stands, of `find` and its like.
const RUN_OPTIONS: [&str; 6] = ["-exec", "-execdir", "-ok", "-okdir", "--exec", "--exec-batch"];

/// How deep command lines in command lines are read.
const MAX_DEPTH: usize = 6;
/// How much is read and kept of one line, in bytes, each as often as it is looked at: a guard has half a second. What needs more cannot
/// be judged.
const BUDGET: usize = 2_000_000;

/// A command line, read.
pub struct CommandLine {
    text: String,
    readings: HashSet<String>,
    /// Whether its text does not say what it would run.
    unclear: bool,
    plain: bool,
}

impl CommandLine {
    /// Reads a line.
    pub fn new(text: &str) -> Self {
        let mut found = Found { readings: HashSet::new(), unclear: false, budget: BUDGET };
        found.crude(text);
        found.line(text, 0);
        // What seems quoted may be a line of its own: in a here-document and in a comment a quote is no quote.
        for (at, _) in text.match_indices('\n') {
            found.commands(&text[at + 1..], 0);
        }
        let plain = is_plain(text) && !found.unclear;
        Self { text: text.to_owned(), readings: found.readings, unclear: found.unclear, plain }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether its text says what the glob is about.
    pub fn says(&self, glob: &Glob) -> bool {
        self.readings.iter().any(|reading| glob.matches(reading))
    }

    /// Whether it could be what the glob is about.
    pub fn may_be(&self, glob: &Glob) -> bool {
        self.unclear || self.says(glob)
    }

    /// Whether it is what the glob is about, and nothing more.
    pub fn is_surely(&self, glob: &Glob) -> bool {
        self.plain && glob.matches(self.text.trim())
    }
}

/// Whether a line is one plain command: no chaining, substitution, redirection, grouping or comment, quoted or not, and a program that
/// is named as it is.
fn is_plain(command: &str) -> bool {
    let program = command.split_whitespace().next().unwrap_or_default();
    !command.contains(META) && !command.contains("$'") && !program.contains(DRESSED)
}

/// The texts that a tightening rule is compared with, and whether something was found that has no text.
struct Found {
    readings: HashSet<String>,
    unclear: bool,
    budget: usize,
}

impl Found {
    /// Whether there is budget for so many bytes.
    fn spend(&mut self, bytes: usize) -> bool {
        match self.budget.checked_sub(bytes) {
            Some(rest) => self.budget = rest,
            None => {
                self.budget = 0;
                self.unclear = true;
            }
        }
        self.budget > 0
    }

    /// Reads a whole line, which must be one that can be read.
    fn line(&mut self, text: &str, depth: usize) {
        self.unclear |= self.commands(text, depth);
    }

    /// Reads a line; true when it could not be read to its end.
    fn commands(&mut self, text: &str, depth: usize) -> bool {
        if depth > MAX_DEPTH || !self.spend(text.len()) {
            return true;
        }
        let line = read(text);
        line.commands.iter().for_each(|words| self.command(words, depth));
        line.broken
    }

    /// Keeps a reading, with the program by its name alone too.
    fn add(&mut self, words: &[&str]) {
        let Some((first, rest)) = words.split_first() else { return };
        let length: usize = words.iter().map(|word| word.len() + 1).sum();
        if !self.spend(length) {
            return;
        }
        if let Some(program) = base_name(first) {
            self.readings.insert(std::iter::once(program).chain(rest.iter().copied()).collect::<Vec<_>>().join(" "));
        }
        self.readings.insert(words.join(" "));
    }

    /// The crude readings: the line, its parts, quoted or not, and each of these without leading words, assignments, options of a
    /// shell, quotes and the program's directory. What is taken for quoted by mistake is found here.
    fn crude(&mut self, command: &str) {
        let parts = command
            .split([';', '&', '|', '(', ')', '{', '}', '`', '\n', '\r', '<', '>'])
            .map(|part| part.trim_end_matches('$'));
        for part in std::iter::once(command).chain(parts) {
            self.add(&[part.trim()]);
            self.add(&part.split_whitespace().collect::<Vec<_>>());
            let unquoted = part.replace(['"', '\'', '\\'], "");
            let mut words: &[&str] = &unquoted.split_whitespace().collect::<Vec<_>>();
            self.add(words);
            while let Some((first, rest)) = words.split_first() {
                if !leads_on(first) || self.budget == 0 {
                    break;
                }
                words = rest;
                self.add(words);
            }
        }
    }

    fn command(&mut self, words: &[Word], depth: usize) {
        if depth > MAX_DEPTH || !self.spend(words.len()) {
            self.unclear = true;
            return;
        }
        let before =
            |word: &&Word| is_assignment(&word.text) || (word.is_static() && RESERVED.contains(&word.text.as_str()));
        let words = &words[words.iter().take_while(before).count()..];
        let Some((program, arguments)) = words.split_first() else { return };
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        self.add(&texts);
        let test = matches!(program.text.as_str(), "[" | "[[");
        self.unclear |= program.expands || (program.globs && !test);
        let name = base_name(&program.text).unwrap_or(&program.text).to_owned();
        if WRAPPERS.contains(&name.as_str()) {
            // Which of its arguments is the program depends on its options, so any may be.
            for at in 1..texts.len() {
                self.add(&texts[at..]);
            }
            let option = |word: &&Word| word.is_static() && is_option(&word.text);
            self.command(&arguments[arguments.iter().take_while(option).count()..], depth + 1);
        }
        for (at, word) in arguments.iter().enumerate() {
            // `{` opens a group, also behind the name of a function.
            if self.budget > 0 && (word.text == "{" || RUN_OPTIONS.contains(&word.text.as_str())) {
                self.command(&arguments[at + 1..], depth + 1);
            }
        }
        if SHELLS.contains(&name.as_str()) {
            self.shell(arguments, depth);
        }
        if RUN_TEXT.contains(&name.as_str()) {
            self.texts(arguments, depth);
        }
        if matches!(name.as_str(), "." | "source") {
            self.unclear |= arguments.first().is_none_or(is_no_file);
        }
    }

    /// A shell: what it is told to run, its script, or its input, which nobody sees.
    fn shell(&mut self, arguments: &[Word], depth: usize) {
        let is_flag = |word: &&Word| word.text.starts_with(['-', '+']);
        let takes_text = arguments.iter().any(|word| {
            word.text.starts_with('-') && !word.text.starts_with("--") && word.text.contains('c')
                || word.text == "--command"
        });
        if takes_text {
            let texts: Vec<Word> = arguments.iter().filter(|word| !is_flag(word)).cloned().collect();
            return self.texts(&texts, depth);
        }
        let script = arguments.iter().find(|word| !is_flag(word));
        self.unclear |= script.is_none_or(is_no_file) && !arguments.iter().any(|word| word.text == "--version");
    }

    /// Arguments that are command lines, each by itself or all together.
    fn texts(&mut self, arguments: &[Word], depth: usize) {
        self.unclear |= arguments.iter().any(|word| word.expands);
        let all = arguments.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        self.line(&all, depth + 1);
        for word in arguments {
            self.commands(&word.text, depth + 1);
            if let Some((_, value)) = word.text.split_once('=') {
                self.commands(value, depth + 1);
            }
        }
    }
}

/// Whether what is to be run is no file that could be looked at.
fn is_no_file(word: &Word) -> bool {
    !word.is_static() || word.text == "-" || word.text.starts_with("/dev/") || word.text.starts_with("/proc/")
}

/// `rm` of `/bin/rm`.
fn base_name(word: &str) -> Option<&str> {
    word.rsplit_once('/').map(|(_, name)| name).filter(|name| !name.is_empty())
}

fn leads_on(word: &str) -> bool {
    let name = base_name(word).unwrap_or(word);
    LEADING_WORDS.contains(&name) || name.starts_with('-') || is_assignment(name)
}

/// An option, an assignment, a number or a duration before the program of a wrapper.
fn is_option(word: &str) -> bool {
    word.starts_with('-') || is_assignment(word) || word.starts_with(|char: char| char.is_ascii_digit())
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let name = name.strip_suffix('+').unwrap_or(name);
        !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that run `rm` with something, one way or another.
    const HIDDEN: &[&str] = &[
        "rm -rf x",
        "  rm   -rf  x ",
        "ls; rm -rf x",
        "ls && rm -rf x",
        "ls || rm -rf x",
        "ls|rm -rf x",
        "ls |& rm -rf x",
        "ls & rm -rf x",
        "echo $(rm -rf x)",
        "echo \"$(rm -rf x)\"",
        "echo `rm -rf x`",
        "echo ${a:-$(rm x)}",
        "echo $((1 + $(rm x)))",
        "echo $((rm x) )",
        "ls\nrm -rf x",
        "ls\r\nrm -rf x",
        "sudo rm -rf x",
        "sudo -u root rm -rf x",
        "A=1 B=2 rm -rf x",
        "A='1 2' rm -rf x",
        "A+=1 rm -rf x",
        "env A=1 rm x",
        "env -u A rm x",
        "command rm x",
        "command -p rm x",
        "builtin exec rm x",
        "exec -a ls rm x",
        "exec rm x",
        "nohup rm x &",
        "timeout 5s rm x",
        "timeout -k 1 5 rm x",
        "nice -n 5 rm x",
        "busybox rm x",
        "/bin/rm -rf x",
        "../../bin/rm x",
        "'rm' -rf x",
        "r'm' x",
        "r\"m\" x",
        "r\"\"m x",
        "r\\m -rf x",
        "r\\\nm x",
        "rm\tx",
        "bash -c 'rm -rf x'",
        "bash -lc 'rm x'",
        "bash --norc -c \"ls; rm x\"",
        "sh -c \"bash -c 'rm x'\"",
        "/usr/bin/env -i bash -c \"rm -rf x\"",
        "eval rm x",
        "eval 'ls; rm x'",
        "eval r'm' x",
        "trap 'rm x' EXIT",
        "alias a='rm x'",
        "xargs rm < list",
        "ls | xargs -n 1 rm -f",
        "xargs -I{} rm {}",
        "find . -name x -exec rm {} \\;",
        "find . -execdir rm {} +",
        "find . -ok rm {} \\;",
        "fd x --exec rm a",
        "if true; then rm -rf x; fi",
        "if rm x; then :; fi",
        "while rm x; do :; done",
        "for a in b; do rm $a; done",
        "case a in a) rm x;; esac",
        "! rm x",
        "time rm x",
        "coproc rm x",
        "(rm -rf x)",
        "( ( rm -rf x ) )",
        "{ rm -rf x; }",
        "f() { rm \"$@\"; }; f x",
        "function f { rm x; }; f",
        ">out rm x",
        "2>/dev/null rm x",
        "{fd}>out rm x",
        "cat <(rm x)",
        "ls > >(rm x)",
        "cat <<EOF\n$(rm x)\nEOF",
        "cat <<EOF\nisn't\nEOF\nrm x\n: '",
        "echo $((1<<EOF))\nrm x\nEOF",
        "ls # isn't\nrm x # '",
        "bash <<EOF\nrm x\nEOF",
    ];

    /// Lines whose text does not say what would run.
    const UNCLEAR: &[&str] = &[
        "rm${IFS}x",
        "$x y",
        "${x} y",
        "\"$x\" y",
        "ls; $x y",
        "r$x y",
        "r${x}m y",
        "$(echo rm) y",
        "`echo rm` y",
        "$'rm' y",
        "r$'m' y",
        "$\"rm\" y",
        "/bin/r? y",
        "/bin/r* y",
        "r[m] y",
        "{rm,y}",
        "r{m,} y",
        "r@(m) y",
        "A=1 $x y",
        "sudo $x y",
        "env A=1 $x y",
        "timeout 5 $x y",
        "exec $x",
        "eval \"$x\"",
        "eval $x y",
        "bash -c \"$x\"",
        "bash -c $x",
        "echo rm y | bash",
        "echo rm y | sh -s",
        "bash < script",
        "bash <<< 'rm y'",
        "bash <<EOF\nrm y\nEOF",
        "bash /dev/stdin",
        "bash <(echo rm y)",
        "source <(echo rm y)",
        ". /dev/stdin",
        "find . -exec $x {} \\;",
        "xargs $x",
        "echo \"$(rm${IFS}y)\"",
        "echo \"`rm${IFS}y`\"",
        "cat <<E\nisn't\nE\nrm${IFS}x #'",
        "ls # isn't\nrm${IFS}x #'",
        "ls 'a",
        "ls \"a",
        "ls $(a",
        "{ $x; }",
        "if $x; then :; fi",
        "f() { $x; }",
    ];

    /// Lines with expansions elsewhere.
    const CLEAR: &[&str] = &[
        "ls $HOME",
        "ls *.rs",
        "ls a{b,c}",
        "echo \"a $x b\"",
        "echo $((1 + $x))",
        "(( $x > 1 )) && ls",
        "[ -f \"$x\" ] && ls",
        "[[ $x == a* ]]",
        "A=$x ls",
        "for a in $b; do ls $a; done",
        "git commit -m \"it's\nmore\"",
        "bash script.sh $x",
        "bash --version",
        "bash -c 'ls; pwd'",
        "find . -name '*.rs' -exec ls {} \\;",
        "xargs -I{} ls {}",
        "timeout 5 ls $x",
        "\"my tool\" x",
        "~/bin/tool x",
        "cat > a <<'EOF'\nline one\nEOF",
        "ls 2>&1 | tee log",
        "source venv/bin/activate",
        "# only a comment",
        "",
    ];

    #[test]
    fn plain() {
        for command in ["ls -l", "git commit -m 'a b'", "echo $HOME", "", "rm *"] {
            assert!(CommandLine::new(command).plain, "{command}");
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
            "$a b",
            "'a' b",
            "a\\b c",
            "/bin/l? b",
            "bash -s",
            "eval \"$a\"",
            "a 'b",
        ] {
            assert!(!CommandLine::new(command).plain, "{command}");
        }
    }

    #[test]
    fn nothing_hides_a_command() {
        let glob = Glob::text("rm *").expect("a glob");
        for command in HIDDEN {
            let line = CommandLine::new(command);
            assert!(line.says(&glob) || command.starts_with("bash <<"), "{command}: {:?}", line.readings);
            assert!(line.may_be(&glob), "{command}");
        }
    }

    fn check_unclear(commands: &[&str], expect: bool) {
        for command in commands {
            let line = CommandLine::new(command);
            assert_eq!(line.unclear, expect, "{command}: {:?}", line.readings);
        }
    }

    #[test]
    fn what_would_run_must_be_written() {
        check_unclear(UNCLEAR, true);
        check_unclear(CLEAR, false);
    }

    #[test]
    fn a_long_line_is_quick() {
        for line in [
            "sudo ".repeat(20_000),
            "a;".repeat(20_000),
            "$(".repeat(20_000),
            "\n".repeat(20_000),
            "{ ".repeat(20_000),
            "a { ".repeat(20_000),
            "a\n'".repeat(20_000),
            "rm ".repeat(20_000),
        ] {
            assert!(CommandLine::new(&line).text().len() >= 20_000);
        }
    }
}
