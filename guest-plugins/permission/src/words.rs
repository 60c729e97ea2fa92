//! Splits a command line into commands and words, nearly as a shell does, so that nothing that would run is missed.

/// How deep substitutions may be nested; what is deeper is not read.
const MAX_DEPTH: usize = 16;

/// A word of a command.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Word {
    /// Without quotes; what an expansion would give is not in it.
    pub text: String,
    /// Whether a variable or a substitution is in it, so that `text` is not what a program would get.
    pub expands: bool,
    /// Whether unquoted globs or braces are in it, which may stand for other words.
    pub globs: bool,
}

impl Word {
    /// Whether `text` is all there is to it.
    pub fn is_static(&self) -> bool {
        !self.expands && !self.globs
    }
}

/// What a line holds.
#[derive(Debug, Default)]
pub struct Line {
    /// Every command with its words, also those of substitutions.
    pub commands: Vec<Vec<Word>>,
    /// Whether it could not be read to its end: a quote is not closed, or it is nested too deeply.
    pub broken: bool,
}

/// Reads a line.
pub fn read(text: &str) -> Line {
    let text = text.replace("\\\n", "");
    let mut reader = Reader { chars: text.chars().collect(), at: 0, line: Line::default() };
    while reader.at < reader.chars.len() {
        // A closing bracket that nothing opened ends a round.
        reader.commands(None, 0);
    }
    reader.line
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    line: Line,
}

/// The command and the word that are being read.
#[derive(Default)]
struct Open {
    words: Vec<Word>,
    word: Option<Word>,
    /// Whether the next word is where a redirection leads, and no word of the command.
    target: bool,
}

impl Open {
    fn word(&mut self) -> &mut Word {
        self.word.get_or_insert_default()
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if std::mem::take(&mut self.target) {
            return;
        }
        self.words.push(word);
    }
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn end_command(&mut self, open: &mut Open) {
        open.end_word();
        open.target = false;
        let words = std::mem::take(&mut open.words);
        if !words.is_empty() {
            self.line.commands.push(words);
        }
    }

    /// Reads commands up to `until`, which is read too, or to the end.
    fn commands(&mut self, until: Option<char>, depth: usize) {
        let mut open = Open::default();
        if depth > MAX_DEPTH {
            self.line.broken = true;
            self.at = self.chars.len();
        }
        while let Some(char) = self.peek(0) {
            self.at += 1;
            match char {
                _ if Some(char) == until => return self.end_command(&mut open),
                ' ' | '\t' => open.end_word(),
                '\n' | '\r' | ';' | '|' => self.end_command(&mut open),
                '&' if self.peek(0) == Some('>') => open.end_word(),
                '&' => self.end_command(&mut open),
                '(' => self.bracket(&mut open, depth),
                ')' => return self.end_command(&mut open),
                '<' | '>' => self.redirection(char, &mut open),
                '#' if open.word.is_none() => self.comment(),
                _ => self.part_of_word(char, &mut open, depth),
            }
        }
        self.line.broken |= until.is_some();
        self.end_command(&mut open);
    }

    /// What is behind a `#` is skipped up to the end of the line; every line is read by itself too.
    fn comment(&mut self) {
        while self.peek(0).is_some_and(|char| char != '\n') {
            self.at += 1;
        }
    }

    /// A subshell, a function's brackets, a pattern: what is inside is read as commands.
    fn bracket(&mut self, open: &mut Open, depth: usize) {
        if self.arithmetic() {
            return;
        }
        // `r@(m)`: a word with a pattern in it.
        if let Some(word) = &mut open.word {
            word.globs |= word.text.ends_with(['@', '?', '*', '+', '!']);
        }
        self.end_command(open);
        self.commands(Some(')'), depth + 1);
    }

    /// Skips `(…))` of `((…))`, when nothing in it can run.
    fn arithmetic(&mut self) -> bool {
        if self.peek(0) != Some('(') {
            return false;
        }
        let rest = &self.chars[self.at + 1..];
        let Some(end) = rest.iter().position(|char| matches!(char, '(' | ')' | '`' | '\'' | '"' | ';' | '\n')) else {
            return false;
        };
        let closed = rest[end] == ')' && rest.get(end + 1) == Some(&')');
        if closed {
            self.at += end + 3;
        }
        closed
    }

    /// `>`, `2>&1`, `<<EOF`, `<(…)`: a number or `{name}` before it, and the word after it, are no words of the command.
    fn redirection(&mut self, char: char, open: &mut Open) {
        if self.peek(0) == Some('(') {
            self.at += 1;
            open.word().expands = true;
            self.commands(Some(')'), 1);
            return;
        }
        let before = open.word.as_ref().map(|word| word.text.as_str()).unwrap_or_default();
        let descriptor =
            before.chars().all(|char| char.is_ascii_digit()) || (before.starts_with('{') && before.ends_with('}'));
        if descriptor {
            open.word = None;
        }
        open.end_word();
        while self.peek(0).is_some_and(|next| next == char || matches!(next, '&' | '|' | '>' | '-')) {
            self.at += 1;
        }
        open.target = true;
    }

    fn part_of_word(&mut self, char: char, open: &mut Open, depth: usize) {
        let word = open.word();
        match char {
            '\\' => {
                if let Some(next) = self.peek(0) {
                    word.text.push(next);
                    self.at += 1;
                }
            }
            '\'' => self.single_quoted(word),
            '"' => self.double_quoted(word, depth),
            '$' => self.dollar(word, depth, true),
            '`' => self.backticks(word, depth),
            '*' | '?' | '[' => {
                word.globs = true;
                word.text.push(char);
            }
            '}' => {
                // `{a,b}` and `{a..b}`; a bracket alone is a group.
                let inside =
                    word.text.rsplit_once('{').is_some_and(|(_, inside)| inside.contains(',') || inside.contains(".."));
                word.globs |= inside || word.expands;
                word.text.push(char);
            }
            other => word.text.push(other),
        }
    }

    fn single_quoted(&mut self, word: &mut Word) {
        while let Some(char) = self.peek(0) {
            self.at += 1;
            if char == '\'' {
                return;
            }
            word.text.push(char);
        }
        self.line.broken = true;
    }

    fn double_quoted(&mut self, word: &mut Word, depth: usize) {
        while let Some(char) = self.peek(0) {
            self.at += 1;
            match char {
                '"' => return,
                '\\' if self.peek(0).is_some_and(|next| matches!(next, '$' | '`' | '"' | '\\')) => {
                    word.text.extend(self.peek(0));
                    self.at += 1;
                }
                '$' => self.dollar(word, depth, false),
                '`' => self.backticks(word, depth),
                other => word.text.push(other),
            }
        }
        self.line.broken = true;
    }

    /// `$x`, `${…}`, `$(…)`, `$((…))`, and outside of quotes `$'…'`.
    fn dollar(&mut self, word: &mut Word, depth: usize, unquoted: bool) {
        match self.peek(0) {
            Some('(') => {
                word.expands = true;
                self.at += 1;
                if !self.arithmetic() {
                    self.commands(Some(')'), depth + 1);
                }
            }
            Some('{') => {
                word.expands = true;
                self.at += 1;
                // What is inside may hold substitutions, which are read as words of a command of their own.
                self.commands(Some('}'), depth + 1);
            }
            Some('\'') if unquoted => {
                word.expands = true;
                self.at += 1;
                while let Some(char) = self.peek(0) {
                    self.at += if char == '\\' { 2 } else { 1 };
                    if char == '\'' {
                        return;
                    }
                }
                self.line.broken = true;
            }
            // `$"…"` is translated, and the same where there is no translation.
            Some('"') if unquoted => word.expands = true,
            Some(char)
                if char.is_ascii_alphanumeric() || matches!(char, '_' | '@' | '*' | '#' | '?' | '-' | '$' | '!') =>
            {
                word.expands = true;
                self.at += 1;
                while char.is_ascii_alphabetic()
                    && self.peek(0).is_some_and(|next| next.is_ascii_alphanumeric() || next == '_')
                {
                    self.at += 1;
                }
            }
            _ => word.text.push('$'),
        }
    }

    fn backticks(&mut self, word: &mut Word, depth: usize) {
        word.expands = true;
        let mut inside = String::new();
        loop {
            match self.peek(0) {
                None => {
                    self.line.broken = true;
                    break;
                }
                Some('`') => {
                    self.at += 1;
                    break;
                }
                Some('\\') if self.peek(1).is_some_and(|next| matches!(next, '`' | '\\' | '$')) => {
                    inside.extend(self.peek(1));
                    self.at += 2;
                }
                Some(char) => {
                    inside.push(char);
                    self.at += 1;
                }
            }
        }
        let mut reader = Reader { chars: inside.chars().collect(), at: 0, line: Line::default() };
        while reader.at < reader.chars.len() && !reader.line.broken {
            reader.commands(None, depth + 1);
        }
        self.line.broken |= reader.line.broken;
        self.line.commands.append(&mut reader.line.commands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands with ` / ` between, words with a blank between, `$` behind a word that expands and `*` behind one that globs.
    fn check(text: &str, expect: &str) {
        let line = read(text);
        let word = |word: &Word| {
            format!("{}{}{}", word.text, if word.expands { "$" } else { "" }, if word.globs { "*" } else { "" })
        };
        let command = |words: &Vec<Word>| words.iter().map(word).collect::<Vec<_>>().join(" ");
        let mut got = line.commands.iter().map(command).collect::<Vec<_>>().join(" / ");
        if line.broken {
            got += " BROKEN";
        }
        assert_eq!(got, expect, "{text}");
    }

    #[test]
    fn lines() {
        check("rm -rf 'a b' \"c\"d", "rm -rf a b cd");
        check("a; b && c || d | e |& f & g\nh", "a / b / c / d / e / f / g / h");
        check("r'm' x; r\\m y; \"rm\" z", "rm x / rm y / rm z");
        check("r\\\nm x", "rm x");
        check("rm${IFS}x", "IFS / rmx$");
        check("$x y; ${x} y; \"$x\" y", "$ y / x / $ y / $ y");
        check("$'rm' x", "$ x");
        check("`echo rm` x", "echo rm / $ x");
        check("echo $(rm x) \"$(rm y)\"", "rm x / rm y / echo $ $");
        check("echo $((1 + $x)) ${a:-$(rm y)}", "rm y / a:-$ / echo $ $");
        check("echo $((rm x) )", "rm x / echo $");
        check("/bin/r? x; r[m] x; {rm,x}; rm *", "/bin/r?* x / r[m]* x / {rm,x}* / rm **");
        check("{ rm x; }", "{ rm x / }");
        check("(rm x)", "rm x");
        check(">a rm x 2>&1 </dev/null", "rm x");
        check("{fd}>a rm x", "rm x");
        check("a &>b; a >&2 c", "a / a c");
        check("a # b 'c\nrm x", "a / rm x");
        check("a <(rm x) b", "rm x / a $ b");
        check("f() { rm \"$@\"; }", "f / { rm $ / }");
        check("r@(m) x", "r@* / m / x");
        check("a 'b", "a b BROKEN");
        check(&"$(".repeat(100), "$ / $ / $ / $ / $ / $ / $ / $ / $ / $ / $ / $ / $ / $ / $ / $ / $ BROKEN");
    }
}
