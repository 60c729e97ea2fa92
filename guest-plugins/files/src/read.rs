//! The tool `read`.

use crate::problem::Problem;
use crate::root::{Place, Root, Verb};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// What one call reads at most, in bytes: a larger text would crowd out the conversation.
pub const MAX_READ_BYTES: u64 = 1024 * 1024;
/// A zero byte among the first so many says that a file is not text.
const SNIFFED_BYTES: usize = 8_192;

/// The whole file as it is, or `lines` lines from `start_line` on.
pub fn read(root: &Root, path: &str, start_line: Option<u64>, lines: Option<u64>) -> Result<String, Problem> {
    let place = root.place(path, Verb::Read)?;
    let (file, bytes) = open(root, &place)?;
    if start_line.is_none() && lines.is_none() {
        if bytes > MAX_READ_BYTES {
            return Err(Problem::TooLarge { path: place.shown, bytes, most: MAX_READ_BYTES });
        }
        return whole(root, &place, file);
    }
    some_lines(root, &place, file, start_line.unwrap_or(1).max(1), lines.unwrap_or(u64::MAX))
}

/// Opens a file, and refuses a directory and what a read might wait for without end.
fn open(root: &Root, place: &Place) -> Result<(File, u64), Problem> {
    let metadata = root.metadata(place)?;
    if metadata.is_dir() {
        return Err(Problem::NotAFile { path: place.shown.clone() });
    }
    if !metadata.is_file() {
        return Err(Problem::NotRegular { path: place.shown.clone() });
    }
    let file = File::open(&place.real).map_err(|error| root.explain(place, Verb::Read, &error))?;
    Ok((file, metadata.len()))
}

/// A whole text file, for the other tools too.
pub fn text(root: &Root, place: &Place) -> Result<String, Problem> {
    let (file, bytes) = open(root, place)?;
    if bytes > MAX_READ_BYTES {
        return Err(Problem::TooLarge { path: place.shown.clone(), bytes, most: MAX_READ_BYTES });
    }
    whole(root, place, file)
}

/// The file may grow while it is read, so the bound holds here too.
fn whole(root: &Root, place: &Place, file: File) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES + 1).read_to_end(&mut bytes).map_err(|error| root.explain(place, Verb::Read, &error))?;
    if bytes.len() as u64 > MAX_READ_BYTES {
        return Err(Problem::TooLarge { path: place.shown.clone(), bytes: bytes.len() as u64, most: MAX_READ_BYTES });
    }
    if looks_binary(&bytes) {
        return Err(Problem::Binary { path: place.shown.clone() });
    }
    String::from_utf8(bytes).map_err(|_| Problem::Binary { path: place.shown.clone() })
}

/// Whether the start of a file says that it is no text.
pub fn looks_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(SNIFFED_BYTES)].contains(&0)
}

fn some_lines(root: &Root, place: &Place, file: File, start: u64, lines: u64) -> Result<String, Problem> {
    let mut reader = BufReader::new(file);
    let mut taken: Vec<u8> = Vec::new();
    let mut line: Vec<u8> = Vec::new();
    let mut number = 0;
    while number < start.saturating_add(lines).saturating_sub(1) {
        line.clear();
        // A line is bounded too: a file without newlines is one line.
        let mut bounded = reader.by_ref().take(MAX_READ_BYTES + 1);
        let read = bounded.read_until(b'\n', &mut line).map_err(|error| root.explain(place, Verb::Read, &error))?;
        if read == 0 {
            break;
        }
        let so_far = (taken.len() + line.len()) as u64;
        let too_long = line.len() as u64 > MAX_READ_BYTES;
        number += 1;
        if number >= start {
            taken.extend_from_slice(&line);
        }
        if too_long || (number >= start && so_far > MAX_READ_BYTES) {
            return Err(Problem::TooLarge { path: place.shown.clone(), bytes: so_far, most: MAX_READ_BYTES });
        }
        if number % 4_096 == 0 {
            root.go_on()?;
        }
    }
    if number < start && !(start == 1 && number == 0) {
        return Err(Problem::NoSuchLine { path: place.shown.clone(), lines: number });
    }
    if looks_binary(&taken) {
        return Err(Problem::Binary { path: place.shown.clone() });
    }
    String::from_utf8(taken).map_err(|_| Problem::Binary { path: place.shown.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::root;

    fn check(content: &[u8], start: Option<u64>, lines: Option<u64>, expect: Result<&str, &str>) {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("a"), content).expect("a file");
        let got = read(&root(dir.path()), "a", start, lines).map_err(|problem| problem.to_string());
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn contents() {
        let text = b"one\r\ntwo\nthree";
        check(text, None, None, Ok("one\r\ntwo\nthree"));
        check(text, Some(2), None, Ok("two\nthree"));
        check(text, Some(2), Some(1), Ok("two\n"));
        check(text, None, Some(2), Ok("one\r\ntwo\n"));
        check(text, Some(3), Some(9), Ok("three"));
        check(text, Some(4), None, Err("`a` has only 3 lines"));
        check(b"x", Some(2), Some(1), Err("`a` has only 1 line"));
        check(b"", None, None, Ok(""));
        check(b"", Some(1), Some(5), Ok(""));
        check(b"a\0b", None, None, Err("`a` is not a text file (it is not UTF-8 text)"));
        check(b"\xff\xfe", None, None, Err("`a` is not a text file (it is not UTF-8 text)"));
    }

    #[test]
    fn too_large() {
        let text = "line\n".repeat(300_000);
        let message = "`a` is too large: 1500000 bytes, at most 1048576 are read at once; use `start-line` and `lines`, or `grep`";
        check(text.as_bytes(), None, None, Err(message));
        check(text.as_bytes(), Some(299_999), Some(1), Ok("line\n"));
    }

    #[test]
    fn kinds() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("d")).expect("a directory");
        let got = read(&root(dir.path()), "d", None, None).map_err(|problem| problem.to_string());
        assert_eq!(got, Err("`d` is a directory, not a file; use `list`".to_owned()));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let root = crate::root::tests::root(dir.path());
        let expect = "`socket` is no regular file but a pipe, a socket or a device";
        assert_eq!(read(&root, "socket", None, None).map_err(|problem| problem.to_string()), Err(expect.to_owned()));
        let written = crate::write::write(&root, "socket", "x").map_err(|problem| problem.to_string());
        assert_eq!(written, Err(expect.to_owned()));
    }
}
