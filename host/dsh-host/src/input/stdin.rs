//! Reads standard input on a thread of its own, so that nothing waits for it, and cuts it into lines.

use std::io::Read as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc;

/// How much is read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that wait to be looked at; a program that writes faster than commands are applied is slowed down.
const PIECES: usize = 64;
/// A line of commands; above the largest message (4 MiB) in JSON with every character escaped.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// A stream of pieces.
pub struct Stdin {
    pieces: mpsc::Receiver<std::io::Result<Vec<u8>>>,
    /// A piece that was looked at and not taken.
    looked_at: Option<std::io::Result<Vec<u8>>>,
}

impl Stdin {
    /// Starts to read. The thread ends with the input, or with the process.
    pub fn start() -> Self {
        let (sender, pieces) = mpsc::channel(PIECES);
        std::thread::spawn(move || {
            let mut stdin = std::io::stdin().lock();
            let mut buffer = vec![0; PIECE_BYTES];
            loop {
                let piece = match stdin.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(length) => Ok(buffer[..length].to_vec()),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let failed = piece.is_err();
                if sender.blocking_send(piece).is_err() || failed {
                    return;
                }
            }
        });
        Self { pieces, looked_at: None }
    }

    /// The next piece; none at the end. Cancel safe.
    pub async fn next(&mut self) -> Option<std::io::Result<Vec<u8>>> {
        match self.looked_at.take() {
            Some(piece) => Some(piece),
            None => self.pieces.recv().await,
        }
    }

    /// A piece that is there already.
    pub fn try_next(&mut self) -> Option<std::io::Result<Vec<u8>>> {
        self.looked_at.take().or_else(|| self.pieces.try_recv().ok())
    }

    /// Whether it is over and held nothing but white space. It is not when it has brought nothing for so long: it may bring something yet.
    pub async fn is_empty(&mut self, silence: Duration) -> bool {
        let mut seen = Vec::new();
        while seen.iter().all(u8::is_ascii_whitespace) {
            match tokio::time::timeout(silence, self.next()).await {
                Ok(Some(Ok(piece))) => seen.extend(piece),
                Ok(Some(Err(_)) | None) => return true,
                Err(_) => break,
            }
        }
        self.looked_at = Some(Ok(seen));
        false
    }

    /// The whole of it as one text; no more than one message may hold.
    pub async fn read_whole(mut self) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await {
            bytes.extend(piece?);
            if bytes.len() > dsh_loop::MAX_MESSAGE_BYTES {
                let most = dsh_loop::MAX_MESSAGE_BYTES;
                return Err(std::io::Error::other(format!(
                    "it has more than {most} bytes, the most that one message may have"
                )));
            }
        }
        String::from_utf8(bytes).map_err(|_| std::io::Error::other("standard input is not UTF-8"))
    }
}

/// Whether standard input has something to read right now, its end included, that the thread has not read yet.
pub fn is_readable() -> bool {
    let stdin = std::io::stdin();
    let mut descriptors = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut descriptors, Some(&at_once)).unwrap_or(0);
    // `HUP` alone is the end of a pipe: the thread may have seen it, so it does not count as more to come.
    ready > 0 && descriptors[0].revents().contains(PollFlags::IN)
}

/// Cuts pieces into lines.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
    number: u64,
    overlong: bool,
}

/// One line, without its newline, and its number from 1.
#[derive(Debug, PartialEq, Eq)]
pub struct NumberedLine {
    /// From 1.
    pub number: u64,
    /// The text, or what is wrong with it.
    pub text: Result<String, String>,
}

impl Lines {
    /// Takes a piece in and gives the lines that it completes.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<NumberedLine> {
        let mut lines = Vec::new();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            match part.strip_suffix(b"\n") {
                Some(part) => {
                    self.push(part);
                    lines.push(self.cut());
                }
                None => self.push(part),
            }
        }
        lines
    }

    /// The last line, when the input ended without a newline.
    pub fn end(&mut self) -> Option<NumberedLine> {
        (!self.rest.is_empty() || self.overlong).then(|| self.cut())
    }

    fn push(&mut self, part: &[u8]) {
        self.overlong |= self.rest.len() + part.len() > MAX_LINE_BYTES;
        if self.overlong {
            self.rest.clear();
        } else {
            self.rest.extend_from_slice(part);
        }
    }

    fn cut(&mut self) -> NumberedLine {
        self.number += 1;
        let bytes = std::mem::take(&mut self.rest);
        let text = if std::mem::take(&mut self.overlong) {
            Err(format!("the line is longer than {MAX_LINE_BYTES} bytes"))
        } else {
            String::from_utf8(bytes).map_err(|_| "the line is not UTF-8".into())
        };
        NumberedLine { number: self.number, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_wherever_they_are_cut() {
        let check = |pieces: &[&[u8]], expect: &[&str]| {
            let mut lines = Lines::default();
            let mut seen: Vec<NumberedLine> = pieces.iter().flat_map(|piece| lines.feed(piece)).collect();
            seen.extend(lines.end());
            let texts: Vec<String> = seen
                .iter()
                .map(|line| format!("{}:{}", line.number, line.text.as_ref().unwrap_or_else(|problem| problem)))
                .collect();
            assert_eq!(texts, expect);
        };
        check(&[b"a\nb\n"], &["1:a", "2:b"]);
        check(&[b"a", b"b\n", b"c"], &["1:ab", "2:c"]);
        check(&[b"\n\nx"], &["1:", "2:", "3:x"]);
        check(&[b"\xc3", b"\xa4\n"], &["1:ä"]);
        check(&[b"\xff\nok\n"], &["1:the line is not UTF-8", "2:ok"]);
        check(&[], &[]);
    }
}
