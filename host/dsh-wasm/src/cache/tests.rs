//! Tests of the cache: what is loaded, what never is, and what stays.

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::SystemTime;

use super::*;
use crate::compile::wanting;

struct Bed {
    home: tempfile::TempDir,
    cache: Cache,
}

impl Bed {
    fn new() -> Self {
        Self::with(0)
    }

    fn with(max_mib: u32) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let cache = Cache::open(&home.path().join("cache"), max_mib, Readers::User).expect("a cache");
        Self { home, cache }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("cache").join(key(name).file_name())
    }

    fn store(&self, name: &str, code: &[u8]) {
        self.cache.store(&key(name), Stored { plugin: "p", component_bytes: 7, target: Target::Native, code });
    }

    fn load(&self, name: &str) -> Option<Vec<u8>> {
        self.cache.load(&key(name), "p")
    }

    fn names(&self) -> Vec<String> {
        self.cache.folder.list().expect("the directory").into_iter().map(|listed| listed.name).collect()
    }

    fn used(&self, name: &str, seconds: u64) {
        let file = OpenOptions::new().append(true).open(self.path(name)).expect("the entry");
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).expect("to set");
    }
}

fn key(name: &str) -> Key {
    Key::of(name)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn what_is_stored_is_loaded_and_only_the_user_can_read_it() {
    let bed = Bed::new();
    assert_eq!(bed.load("a"), None);
    bed.store("a", b"code");
    assert_eq!(bed.load("a").as_deref(), Some(&b"code"[..]));
    assert_eq!(bed.names(), ["a.cwasm"]);
    assert_eq!((mode(&bed.path("a")), mode(&bed.home.path().join("cache"))), (0o600, 0o700));
}

#[test]
fn a_cache_for_everybody_can_be_read_and_not_written() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let directory = home.path().join("cache");
    let cache = Cache::open(&directory, 0, Readers::Everybody).expect("a cache");
    cache.store(&key("a"), Stored { plugin: "p", component_bytes: 7, target: Target::Native, code: b"code" });
    assert_eq!((mode(&directory.join("a.cwasm")), mode(&directory)), (0o644, 0o755));
    assert!(cache.load(&key("a"), "p").is_some());
}

#[test]
fn an_entry_that_is_not_whole_is_not_loaded() {
    let check = |changed: Vec<u8>| {
        let bed = Bed::new();
        bed.store("a", b"some code");
        fs::write(bed.path("a"), &changed).expect("to write");
        assert_eq!(bed.load("a"), None, "{changed:?}");
        assert!(!bed.path("a").exists(), "it is removed");
    };
    let bed = Bed::new();
    bed.store("a", b"some code");
    let whole = fs::read(bed.path("a")).expect("the entry");
    for length in 0..whole.len() {
        check(whole[..length].to_vec());
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        check(changed);
    }
    check([&whole[..], b"more"].concat());
    check(vec![0; whole.len()]);
    check(b"\x7fELF".to_vec());
}

#[test]
fn an_entry_of_the_layout_before_is_not_loaded() {
    let bed = Bed::new();
    bed.store("a", b"some code");
    let mut entry = fs::read(bed.path("a")).expect("the entry");
    entry[7] = b'1';
    fs::write(bed.path("a"), entry).expect("to write");
    assert_eq!(bed.load("a"), None);
}

#[test]
fn a_file_that_only_claims_its_size_is_not_read() {
    let bed = Bed::new();
    bed.store("a", b"some code");
    OpenOptions::new().write(true).open(bed.path("a")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    assert_eq!(bed.load("a"), None);
}

#[test]
fn an_entry_cannot_stand_in_for_another() {
    let bed = Bed::new();
    bed.store("a", b"code");
    fs::rename(bed.path("a"), bed.path("b")).expect("to rename");
    assert_eq!(bed.load("b"), None);
}

#[test]
fn what_somebody_else_may_have_written_is_not_loaded() {
    let check = |change: fn(&Bed, &Path)| {
        let bed = Bed::new();
        bed.store("a", b"code");
        change(&bed, &bed.path("a"));
        assert_eq!(bed.load("a"), None);
        bed.store("a", b"again");
        assert_eq!(bed.load("a").as_deref(), Some(&b"again"[..]), "it is replaced");
    };
    check(|_, path| fs::set_permissions(path, Permissions::from_mode(0o620)).expect("to open it"));
    check(|_, path| fs::set_permissions(path, Permissions::from_mode(0o602)).expect("to open it"));
    check(|bed, path| fs::hard_link(path, bed.home.path().join("other")).expect("to link"));
    check(|bed, path| {
        let other = bed.home.path().join("other");
        fs::rename(path, &other).and_then(|()| symlink(&other, path)).expect("to link");
    });
    check(|_, path| fs::remove_file(path).and_then(|()| fs::create_dir(path)).expect("a directory in its place"));
    check(|_, path| {
        fs::remove_file(path).expect("to remove");
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("a pipe in its place");
    });
}

#[test]
fn a_directory_that_is_not_ours_alone_is_refused() {
    let check = |prepare: fn(&Path), expect: &str| {
        let home = tempfile::tempdir().expect("a temporary directory");
        let path = home.path().join("cache");
        prepare(&path);
        match Cache::open(&path, 0, Readers::User) {
            Err(CacheError::Unsafe { why, .. }) => assert_eq!(why, expect),
            other => panic!("{other:?}, expected {expect}"),
        }
    };
    check(|path| make(path, 0o777), "other users can write to it");
    check(|path| make(path, 0o770), "other users can write to it");
    check(|path| fs::write(path, "").expect("to write"), "it is not a directory");
    check(
        |path| {
            let other = path.with_file_name("other");
            make(&other, 0o700);
            symlink(other, path).expect("to link");
        },
        "it is a symbolic link",
    );
}

fn make(path: &Path, mode: u32) {
    fs::create_dir(path).and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode))).expect("to make it");
}

#[test]
fn what_was_not_used_for_the_longest_time_goes_first() {
    let bed = Bed::with(1);
    let third = vec![0; 400 * 1024];
    for (n, name) in ["a", "b"].into_iter().enumerate() {
        bed.store(name, &third);
        bed.used(name, n as u64);
    }
    assert!(bed.load("a").is_some(), "it is used now");
    bed.store("c", &third);
    assert_eq!(bed.names(), ["a.cwasm", "c.cwasm"]);
    bed.store("too-large", &vec![0; 1024 * 1024]);
    assert_eq!(bed.names(), ["a.cwasm", "c.cwasm"]);
}

#[test]
fn an_entry_that_goes_while_it_is_read_is_read_to_its_end() {
    let bed = Bed::new();
    bed.store("a", b"code");
    let file = bed.cache.folder.look_at("a.cwasm").expect("good").expect("there");
    bed.cache.folder.remove("a.cwasm").expect("to remove");
    let bytes = file.read(HEAD_BYTES).expect("to read");
    assert_eq!(entry::code(&key("a"), bytes).as_deref(), Some(&b"code"[..]));
}

#[test]
fn what_a_dead_process_left_goes_and_what_a_living_one_writes_stays() {
    let bed = Bed::new();
    let directory = bed.home.path().join("cache");
    for (name, age) in [(".a.1-0.tmp", 7_200), (".a.2-0.tmp", 60), (".b.lock", 7_200), ("mine.tmp", 7_200)] {
        let file = fs::File::create(directory.join(name)).expect("to write");
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("to set");
    }
    bed.store("a", b"code");
    assert_eq!(bed.names(), [".a.2-0.tmp", "a.cwasm", "mine.tmp"]);
}

#[test]
fn a_cache_that_vanishes_or_is_full_only_costs_time() {
    let bed = Bed::new();
    fs::remove_dir(bed.home.path().join("cache")).expect("to remove");
    bed.store("a", b"code");
    assert_eq!(bed.load("a"), None);
    let (_wanting, wanted) = wanting().expect("a pipe");
    assert!(bed.cache.turn(&key("a"), Duration::from_secs(1), &wanted).is_none());
}

#[test]
fn one_at_a_time_compiles_the_same() {
    let bed = Bed::new();
    let (wanting, wanted) = wanting().expect("a pipe");
    let turn = bed.cache.turn(&key("a"), Duration::ZERO, &wanted).expect("nobody has it");
    assert!(bed.cache.turn(&key("a"), Duration::ZERO, &wanted).is_none(), "the time is over");
    assert!(bed.cache.turn(&key("b"), Duration::ZERO, &wanted).is_some(), "another component");
    drop(turn);
    let turn = bed.cache.turn(&key("a"), Duration::ZERO, &wanted);
    assert!(turn.is_some());
    drop(wanting);
    assert!(bed.cache.turn(&key("a"), Duration::from_secs(60), &wanted).is_none(), "nobody wants it any more");
    drop(turn);
    assert_eq!(bed.names(), Vec::<String>::new());
}

#[test]
fn a_view_says_what_is_there() {
    let bed = Bed::new();
    let tag =
        crate::classes::compiling_engine(Target::Native, false).map(|engine| engine_tag(&engine)).expect("an engine");
    let (ours, other) = (format!("{}-{tag}", "ab".repeat(32)), format!("{}-0123456789abcdef", "cd".repeat(32)));
    bed.store(&ours, b"code");
    bed.store(&other, b"code");
    fs::write(bed.path("ef-0123456789abcdef"), "junk").expect("to write");
    fs::write(bed.home.path().join("cache/else"), "junk").expect("to write");
    for (name, seconds) in [(ours.as_str(), 3), (other.as_str(), 2), ("ef-0123456789abcdef", 1)] {
        bed.used(name, seconds);
    }
    let view = CacheView::open(&bed.home.path().join("cache")).expect("good").expect("there");
    let entries = view.entries().expect("to list");
    let seen: Vec<_> =
        entries.iter().map(|entry| (&entry.sha256[..2], entry.plugin.as_deref(), entry.usable)).collect();
    assert_eq!(seen, [("ab", Some("p"), true), ("cd", Some("p"), false), ("ef", None, false)]);
    assert_eq!(entries[0].component_bytes, Some(7));
    for entry in &entries {
        view.remove(entry).and_then(|()| view.remove(entry)).expect("gone is gone");
    }
    assert_eq!(bed.names(), ["else"]);
    assert!(CacheView::open(&bed.home.path().join("no")).expect("no error").is_none());
}
