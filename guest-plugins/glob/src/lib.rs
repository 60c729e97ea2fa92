//! Globs for policies and file tools, matched in time proportional to pattern times text, whatever the pattern.
//!
//! | in a pattern | matches |
//! |---|---|
//! | `*` | any characters; in a path not `/` |
//! | `**` as a whole segment of a path | any number of segments, none included: `docs/**` matches `docs` too |
//! | `?` | one character; in a path not `/` |
//! | `[a-z]`, `[!a-z]` | one character of a set, or one outside of it |
//! | `{a,b}` | one of the alternatives; may be nested |
//! | `\x` | the character `x` itself |

mod path;

pub use path::{NormalPath, normalise, normalise_slashes};

use std::fmt;

/// How many patterns `{a,b}` may stand for: a bound, since groups multiply.
const MAX_ALTERNATIVES: usize = 256;
/// How long a pattern may be, in bytes: groups are expanded recursively, and patterns come from models too.
const MAX_PATTERN_BYTES: usize = 4_096;

/// Why a text is not a glob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlobError {
    /// A `[` without its `]`.
    OpenClass,
    /// A `{` without its `}`.
    OpenGroup,
    /// A `\` at the end.
    OpenEscape,
    /// `{a,b}` groups that stand for more than 256 patterns.
    TooMany,
    /// More than 4,096 bytes.
    TooLong,
}

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenClass => "`[` is not closed; write `\\[` for the character",
            Self::OpenGroup => "`{` is not closed; write `\\{` for the character",
            Self::OpenEscape => "`\\` at the end escapes nothing",
            Self::TooMany => "`{…}` groups stand for more than 256 patterns",
            Self::TooLong => "it is longer than 4,096 bytes",
        })
    }
}

impl std::error::Error for GlobError {}

/// A parsed glob.
#[derive(Debug, Clone)]
pub struct Glob {
    alternatives: Vec<Pattern>,
}

#[derive(Debug, Clone)]
enum Pattern {
    /// Matched as one run of characters.
    Text(Vec<Token>),
    /// Matched segment by segment.
    Path(Vec<Segment>),
}

#[derive(Debug, Clone)]
enum Segment {
    /// `**`
    Any,
    One(Vec<Token>),
}

#[derive(Debug, Clone)]
enum Token {
    Char(char),
    AnyChar,
    AnyChars,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// A glob over names and command lines, where `*` matches any characters.
    pub fn text(pattern: &str) -> Result<Self, GlobError> {
        let parse = |alternative: &String| Ok(Pattern::Text(tokens(alternative)?));
        Ok(Self { alternatives: expand(pattern)?.iter().map(parse).collect::<Result<_, _>>()? })
    }

    /// A glob over `/`-separated paths. `./`, doubled and trailing slashes in the pattern do not count.
    pub fn path(pattern: &str) -> Result<Self, GlobError> {
        let parse = |alternative: &String| Ok(Pattern::Path(segments(alternative)?));
        Ok(Self { alternatives: expand(pattern)?.iter().map(parse).collect::<Result<_, _>>()? })
    }

    /// Whether the whole of `text` matches. A path is to be normalised before: `.` is the path without segments.
    pub fn matches(&self, text: &str) -> bool {
        self.alternatives.iter().any(|pattern| match pattern {
            Pattern::Text(tokens) => matches_tokens(tokens, text),
            Pattern::Path(segments) => matches_segments(segments, &split_path(text)),
        })
    }

    /// Whether something below `path` could match. Only for a glob over paths.
    pub fn reaches_below(&self, path: &str) -> bool {
        self.alternatives.iter().any(|pattern| match pattern {
            Pattern::Text(_) => true,
            // What is left over can be matched by further names.
            Pattern::Path(segments) => {
                reached_segments(segments, &split_path(path)).iter().take(segments.len()).any(|reached| *reached)
            }
        })
    }

    /// Whether `path` and all below it surely match. Only for a glob over paths.
    pub fn covers_below(&self, path: &str) -> bool {
        self.alternatives.iter().any(|pattern| match pattern {
            Pattern::Text(_) => false,
            Pattern::Path(segments) => {
                matches!(segments.last(), Some(Segment::Any))
                    && reached_segments(segments, &split_path(path))[segments.len() - 1]
            }
        })
    }
}

/// The segments of a path; an absolute one starts with an empty segment.
fn split_path(path: &str) -> Vec<&str> {
    let absolute = path.starts_with('/');
    let rest = path.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
    if absolute { std::iter::once("").chain(rest).collect() } else { rest.collect() }
}

fn segments(pattern: &str) -> Result<Vec<Segment>, GlobError> {
    let segment = |text: &str| if text == "**" { Ok(Segment::Any) } else { tokens(text).map(Segment::One) };
    split_path(pattern).into_iter().map(segment).collect()
}

fn tokens(pattern: &str) -> Result<Vec<Token>, GlobError> {
    let mut tokens = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        let token = match char {
            '*' => Token::AnyChars,
            '?' => Token::AnyChar,
            '\\' => Token::Char(chars.next().ok_or(GlobError::OpenEscape)?),
            '[' => class(&mut chars)?,
            other => Token::Char(other),
        };
        // Two stars in a row are one.
        if !(matches!(token, Token::AnyChars) && matches!(tokens.last(), Some(Token::AnyChars))) {
            tokens.push(token);
        }
    }
    Ok(tokens)
}

/// The rest of `[…]`; a `]` right after the start stands for itself.
fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token, GlobError> {
    let negated = chars.next_if(|char| matches!(char, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let mut from = chars.next().ok_or(GlobError::OpenClass)?;
        if from == ']' && !ranges.is_empty() {
            return Ok(Token::Class { negated, ranges });
        }
        if from == '\\' {
            from = chars.next().ok_or(GlobError::OpenClass)?;
        }
        let mut to = from;
        if chars.peek() == Some(&'-') {
            chars.next();
            match chars.peek() {
                // A `-` before the end stands for itself.
                Some(']') => ranges.push(('-', '-')),
                _ => to = chars.next().ok_or(GlobError::OpenClass)?,
            }
        }
        ranges.push((from, to));
    }
}

/// All patterns that the `{a,b}` groups of one stand for.
fn expand(pattern: &str) -> Result<Vec<String>, GlobError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(GlobError::TooLong);
    }
    let Some((before, alternatives, after)) = first_group(pattern)? else {
        return Ok(vec![pattern.to_owned()]);
    };
    let mut expanded = Vec::new();
    for alternative in alternatives {
        expanded.extend(expand(&format!("{before}{alternative}{after}"))?);
        if expanded.len() > MAX_ALTERNATIVES {
            return Err(GlobError::TooMany);
        }
    }
    Ok(expanded)
}

/// What stands before, in and after the first group.
type Group<'a> = (&'a str, Vec<&'a str>, &'a str);

fn first_group(pattern: &str) -> Result<Option<Group<'_>>, GlobError> {
    let (mut depth, mut open, mut start) = (0_usize, 0, 0);
    let mut alternatives = Vec::new();
    let (mut escaped, mut in_class) = (false, false);
    for (at, char) in pattern.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match char {
            '\\' => escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            _ if in_class => {}
            '{' => {
                depth += 1;
                if depth == 1 {
                    (open, start) = (at, at + 1);
                }
            }
            ',' if depth == 1 => {
                alternatives.push(&pattern[start..at]);
                start = at + 1;
            }
            '}' if depth == 1 => {
                alternatives.push(&pattern[start..at]);
                return Ok(Some((&pattern[..open], alternatives, &pattern[at + 1..])));
            }
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if depth > 0 { Err(GlobError::OpenGroup) } else { Ok(None) }
}

/// What is written out before the first wildcard is compared as it stands, and decides most texts.
fn matches_tokens(mut tokens: &[Token], text: &str) -> bool {
    let mut chars = text.chars();
    while let Some((Token::Char(expected), rest)) = tokens.split_first() {
        if chars.next() != Some(*expected) {
            return false;
        }
        tokens = rest;
    }
    match tokens {
        [] => chars.next().is_none(),
        [Token::AnyChars] => true,
        _ => matches_wildcards(tokens, chars.as_str()),
    }
}

/// `reached[i]`: the first `i` tokens match the text read so far.
fn matches_wildcards(tokens: &[Token], text: &str) -> bool {
    let mut reached = vec![false; tokens.len() + 1];
    let mut next = reached.clone();
    reached[0] = true;
    skip_stars(tokens, &mut reached);
    for char in text.chars() {
        next.fill(false);
        for (at, token) in tokens.iter().enumerate().filter(|(at, _)| reached[*at]) {
            match token {
                Token::AnyChars => next[at] = true,
                Token::AnyChar => next[at + 1] = true,
                Token::Char(expected) => next[at + 1] |= *expected == char,
                Token::Class { negated, ranges } => {
                    let inside = ranges.iter().any(|(from, to)| (*from..=*to).contains(&char));
                    next[at + 1] |= inside != *negated;
                }
            }
        }
        skip_stars(tokens, &mut next);
        std::mem::swap(&mut reached, &mut next);
    }
    reached[tokens.len()]
}

/// A star may match nothing.
fn skip_stars(tokens: &[Token], reached: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        if reached[at] && matches!(token, Token::AnyChars) {
            reached[at + 1] = true;
        }
    }
}

/// The same over segments, where `**` is the star.
fn matches_segments(mut segments: &[Segment], mut path: &[&str]) -> bool {
    while let Some((Segment::One(tokens), rest)) = segments.split_first() {
        match path.split_first() {
            Some((name, names)) if matches_tokens(tokens, name) => (segments, path) = (rest, names),
            _ => return false,
        }
    }
    match segments {
        [] => path.is_empty(),
        [Segment::Any] => true,
        _ => reached_segments(segments, path)[segments.len()],
    }
}

fn reached_segments(segments: &[Segment], path: &[&str]) -> Vec<bool> {
    let skip = |reached: &mut [bool]| {
        for (at, segment) in segments.iter().enumerate() {
            if reached[at] && matches!(segment, Segment::Any) {
                reached[at + 1] = true;
            }
        }
    };
    let mut reached = vec![false; segments.len() + 1];
    reached[0] = true;
    skip(&mut reached);
    for name in path {
        let mut next = vec![false; segments.len() + 1];
        for (at, segment) in segments.iter().enumerate().filter(|(at, _)| reached[*at]) {
            match segment {
                Segment::Any => next[at] = true,
                Segment::One(tokens) => next[at + 1] |= matches_tokens(tokens, name),
            }
        }
        skip(&mut next);
        reached = next;
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_path(pattern: &str, yes: &[&str], no: &[&str]) {
        let glob = Glob::path(pattern).expect(pattern);
        for path in yes {
            assert!(glob.matches(path), "`{pattern}` should match `{path}`");
        }
        for path in no {
            assert!(!glob.matches(path), "`{pattern}` should not match `{path}`");
        }
    }

    fn check_text(pattern: &str, yes: &[&str], no: &[&str]) {
        let glob = Glob::text(pattern).expect(pattern);
        for text in yes {
            assert!(glob.matches(text), "`{pattern}` should match `{text}`");
        }
        for text in no {
            assert!(!glob.matches(text), "`{pattern}` should not match `{text}`");
        }
    }

    #[test]
    fn paths() {
        check_path("docs/*.md", &["docs/a.md", "docs/.md"], &["docs/a/b.md", "a.md", "docs"]);
        check_path("docs/**", &["docs", "docs/a", "docs/a/b"], &["docsa", "a/docs"]);
        check_path("**/*.rs", &["a.rs", "a/b/c.rs"], &["a.rs/b"]);
        check_path("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["a/x", "b"]);
        check_path("./docs//a.md/", &["docs/a.md"], &[]);
        check_path("**", &[".", "a", "a/b"], &[]);
        check_path(".", &["."], &["a"]);
        check_path("/etc/**", &["/etc/passwd"], &["etc/passwd"]);
        check_path("etc/*", &["etc/passwd"], &["/etc/passwd"]);
        check_path("src/{a,b/{c,d}}.rs", &["src/a.rs", "src/b/c.rs", "src/b/d.rs"], &["src/b.rs"]);
        check_path("?[!0-9]", &["1a", "é_"], &["11", "a"]);
    }

    fn check_below(pattern: &str, path: &str, reaches: bool, covers: bool) {
        let glob = Glob::path(pattern).expect(pattern);
        assert_eq!((glob.reaches_below(path), glob.covers_below(path)), (reaches, covers), "{pattern} {path}");
    }

    #[test]
    fn below_a_path() {
        check_below("secret/**", ".", true, false);
        check_below("secret/**", "secret", true, true);
        check_below("secret/**", "secret/a/b", true, true);
        check_below("secret/**", "src", false, false);
        check_below("secret", ".", true, false);
        check_below("secret", "secret", false, false);
        check_below("**", ".", true, true);
        check_below("**/*.key", "src/a", true, false);
        check_below("docs/*", "docs", true, false);
        check_below("docs/*", "docs/a", false, false);
        check_below("{a,b/**}", "b/c", true, true);
        check_below("/etc/**", "etc", false, false);
        check_below(".", ".", false, false);
    }

    #[test]
    fn texts() {
        check_text("git *", &["git add a/b", "git "], &["git", "agit x"]);
        check_text("*", &["", "a\nb"], &[]);
        check_text("\\[*\\]", &["[a]"], &["a"]);
        check_text("a**b", &["ab", "a/x/b"], &["a"]);
        check_text("[]-]", &["]", "-"], &["a"]);
        check_text("{read,list}", &["read", "list"], &["write"]);
    }

    #[test]
    fn not_globs() {
        let long = "{a}".repeat(2_000);
        for (pattern, expect) in [
            (long.as_str(), GlobError::TooLong),
            ("[a", GlobError::OpenClass),
            ("{a,b", GlobError::OpenGroup),
            ("a\\", GlobError::OpenEscape),
            ("{1,2,3,4,5,6,7,8}{1,2,3,4,5,6,7,8}{1,2,3,4,5,6,7,8}", GlobError::TooMany),
        ] {
            assert_eq!(Glob::text(pattern).map(|_| ()), Err(expect), "{pattern}");
        }
    }

    #[test]
    fn a_hard_pattern_is_quick() {
        let glob = Glob::text(&"*a".repeat(40)).expect("a glob");
        assert!(!glob.matches(&"a".repeat(5_000).replace('a', "ab")));
    }
}
