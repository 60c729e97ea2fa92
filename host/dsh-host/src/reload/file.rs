//! A file that is looked at again and again: whether it changed, and whether whoever writes it is done.
//!
//! Looking is asking for the file's times, size and place on disk; it is read only when one of them changed and then stayed as it is for
//! a while. No event of the system is needed, so it is the same for a file that is written in place, replaced by a rename, behind a link,
//! or on another machine.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// How often files are looked at: twice within what a person calls at once, and next to nothing for a machine.
pub const POLL: Duration = Duration::from_millis(100);
/// How long a changed file must stay as it is before it is read: compilers write in pieces, editors remove and rename.
pub const QUIET: Duration = Duration::from_millis(100);
/// How long it must stay as it is before it is called broken or gone: one that is still being written is neither.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How coarse a file system's times may be: a change within this time of another may not show in them.
const COARSE: Duration = Duration::from_secs(2);

/// What is seen of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// It cannot be seen.
    Unseen(io::ErrorKind),
    /// It is there.
    Seen {
        /// Which file it is.
        place: (u64, u64),
        /// Its size.
        bytes: u64,
        /// When its contents and when anything about it changed, in seconds and nanoseconds.
        times: [(i64, i64); 2],
    },
}

impl Stamp {
    /// Looks at the file; a link is followed.
    pub fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Err(error) => Self::Unseen(error.kind()),
            Ok(data) => Self::Seen {
                place: (data.dev(), data.ino()),
                bytes: data.len(),
                times: [(data.mtime(), data.mtime_nsec()), (data.ctime(), data.ctime_nsec())],
            },
        }
    }

    /// Whether it changed so lately that a change after it may look the same.
    fn is_young(self) -> bool {
        let Self::Seen { times: [(seconds, _), _], .. } = self else { return false };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(seconds).is_ok_and(|seconds| now.as_secs() < seconds + COARSE.as_secs())
    }
}

/// What is known of a file.
#[derive(Debug, Default)]
pub struct WatchedFile {
    /// How it looked when it was last read.
    read: Option<Stamp>,
    /// How it looks, and since when.
    seen: Option<(Stamp, Instant)>,
    /// When it is read once more although it looks as it did.
    again_at: Option<Instant>,
    /// What is wrong with it, while it is not sure that it is more than half written.
    complaint: Option<String>,
    /// What was said of it as it is.
    said: Option<String>,
}

impl WatchedFile {
    /// Takes a look into account. Returns whether the file is to be read.
    pub fn look(&mut self, stamp: Stamp, now: Instant) -> bool {
        let since = match self.seen {
            Some((seen, since)) if seen == stamp => since,
            _ => {
                self.seen = Some((stamp, now));
                self.complaint = None;
                self.said = None;
                return false;
            }
        };
        if self.read == Some(stamp) {
            return self.again_at.take_if(|at| *at <= now).is_some();
        }
        let wait = if let Stamp::Unseen(_) = stamp { PATIENCE } else { QUIET };
        now.duration_since(since) >= wait
    }

    /// It was read while it looked like this.
    pub fn was_read(&mut self, stamp: Stamp, now: Instant) {
        if self.read != Some(stamp) && stamp.is_young() {
            self.again_at = Some(now + COARSE);
        }
        self.read = Some(stamp);
    }

    /// What was read is no good; said unless it changes within [`PATIENCE`].
    pub fn is_broken(&mut self, complaint: String) {
        self.complaint = Some(complaint);
    }

    /// What is to be said of it now. What is read once more and is as it was is not told again.
    pub fn complaint(&mut self, now: Instant) -> Option<String> {
        let (_, since) = self.seen?;
        if now.duration_since(since) < PATIENCE {
            return None;
        }
        let complaint = self.complaint.take().filter(|complaint| self.said.as_ref() != Some(complaint))?;
        self.said = Some(complaint.clone());
        Some(complaint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(bytes: u64) -> Stamp {
        Stamp::Seen { place: (1, 1), bytes, times: [(0, 0); 2] }
    }

    /// What looks at these times, in milliseconds, find; a file that is to be read is read. `!` is a look at which it is.
    fn check(looks: &[(u64, Stamp)], expect: &str) {
        let start = Instant::now();
        let mut file = WatchedFile::default();
        let mut found = String::new();
        for (at, stamp) in looks {
            let now = start + Duration::from_millis(*at);
            let due = file.look(*stamp, now);
            if due {
                file.was_read(*stamp, now);
            }
            found.push(if due { '!' } else { '.' });
        }
        assert_eq!(found, expect, "{looks:?}");
    }

    #[test]
    fn a_change_is_read_once_it_is_quiet() {
        let gone = Stamp::Unseen(io::ErrorKind::NotFound);
        let (a, b, c) = (stamp(1), stamp(2), stamp(3));
        check(&[(0, a), (100, a), (200, a), (300, a)], ".!..");
        // Written in pieces.
        check(&[(0, a), (100, a), (200, b), (300, c), (400, b), (500, b), (600, b)], ".!...!.");
        // Looked at too soon.
        check(&[(0, a), (50, a), (99, a), (100, a)], "...!");
        // Gone for a moment, and back as it was or as another.
        check(&[(0, a), (100, a), (200, gone), (300, a), (400, a)], ".!...");
        check(&[(0, a), (100, a), (200, gone), (300, b), (400, b)], ".!..!");
        // Gone for good.
        check(&[(0, a), (100, a), (200, gone), (1100, gone), (1200, gone), (1300, gone)], ".!..!.");
    }

    #[test]
    fn what_changed_lately_is_read_once_more_when_times_can_tell() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        let young = Stamp::Seen { place: (1, 1), bytes: 1, times: [(i64::try_from(now).expect("small"), 0); 2] };
        check(&[(0, young), (100, young), (2000, young), (2100, young), (2200, young), (9000, young)], ".!.!..");
    }

    #[test]
    fn a_complaint_is_made_when_the_file_stays_as_it_is() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut file = WatchedFile::default();
        let broken = |file: &mut WatchedFile, bytes, ms| {
            file.look(stamp(bytes), at(ms));
            file.was_read(stamp(bytes), at(ms));
            file.is_broken("cut off".into());
        };
        broken(&mut file, 1, 0);
        assert_eq!(file.complaint(at(900)), None);
        // It goes on being written: nothing is ever said of the half.
        broken(&mut file, 2, 950);
        assert_eq!(file.complaint(at(1900)), None);
        assert_eq!(file.complaint(at(1950)).as_deref(), Some("cut off"));
        assert_eq!(file.complaint(at(3000)), None);
        // Read once more, it is the same.
        broken(&mut file, 2, 3100);
        assert_eq!(file.complaint(at(3200)), None);
        // Another change takes back what was not said yet.
        broken(&mut file, 3, 4000);
        file.look(stamp(4), at(4500));
        assert_eq!(file.complaint(at(6000)), None);
    }
}
