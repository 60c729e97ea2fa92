//! Files: what may be reached below the granted directories, by whichever path, link or descriptor.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dsh_seam::tools::{Access, PathGrant};
use rustix::time::{ClockId, clock_gettime};

use super::*;

/// A workspace in a folder with a secret beside it.
struct Home {
    root: tempfile::TempDir,
}

impl Home {
    fn new(files: &[&str]) -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(root.path().join("secret"), "secret").expect("to write");
        std::fs::create_dir(root.path().join("w")).expect("to make");
        let home = Self { root };
        for path in files {
            home.write(path, path);
        }
        home
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join("w").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().expect("below the workspace")).expect("to make");
        std::fs::write(path, text).expect("to write");
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap_or_else(|error| format!("{:?}", error.kind()))
    }

    fn link(&self, path: &str, to: &str) {
        symlink(to, self.at(path)).expect("to link");
    }

    async fn enter(&self, grants: &[&str]) -> Intruder {
        self.enter_with(grants, Limits::default()).await
    }

    async fn enter_with(&self, grants: &[&str], limits: Limits) -> Intruder {
        Intruder::enter(Entry { grants, workspace: Some(&self.root.path().join("w")), limits, ..Entry::default() })
            .await
    }
}

fn cat(path: &str) -> Value {
    json!({ "do": "cat", "path": path, "follow": true })
}

fn open(path: &str, with: &[&str]) -> Value {
    json!({ "do": "open", "path": path, "follow": true, "with": with })
}

#[tokio::test]
async fn no_path_leads_out() {
    let home = Home::new(&["d/file", "d/sub/deep", "beside"]);
    let secret = home.root.path().join("secret");
    home.link("d/absolute", secret.to_str().expect("UTF-8"));
    home.link("d/relative", "../../secret");
    home.link("d/parent", "..");
    home.link("d/up", "../beside");
    home.link("d/folder", home.root.path().to_str().expect("UTF-8"));
    home.link("d/environ", "/proc/self/environ");
    home.link("d/root", "/proc/self/root");
    home.link("d/cwd", "/proc/self/cwd");
    home.link("d/inside", "sub");
    home.link("d/chain", "parent");
    home.link("d/loop", "loop");
    // The same two grants: in one the whole directory has one access, in the other it has not.
    for grants in [&["fs:read:d"][..], &["fs:read:d", "fs:write:d/w"]] {
        let intruder = home.enter(grants).await;
        let check = async |path: &str, expect: &Value| {
            assert_eq!(&intruder.step(cat(path)).await, expect, "{grants:?} {path}");
            let slash = intruder.step(cat(&format!("{path}/"))).await;
            assert!(slash["error"].is_string(), "{grants:?} {path}/: {slash}");
            for what in ["stat", "hash"] {
                let told = intruder.step(json!({ "do": what, "path": path, "follow": true })).await;
                assert_eq!(told["error"].is_string(), expect["error"].is_string(), "{grants:?} {what} {path}: {told}");
            }
            // Of what is outside at most the link itself is seen.
            let told = intruder.step(json!({ "do": "stat", "path": format!("{path}/"), "follow": false })).await;
            let inside = expect["ok"].is_string() || told["ok"]["type"] == "symbolic-link";
            assert!(told["error"].is_string() || inside, "{grants:?} stat {path}/: {told}");
        };
        let out = error("not-permitted");
        for path in [
            "..",
            "../beside",
            "../../secret",
            "sub/../../beside",
            "sub/../../../secret",
            "./../beside",
            "nothing/../../beside",
            "/etc/passwd",
            "/",
            "//etc/passwd",
            "absolute",
            "relative",
            "up",
            "parent/beside",
            "chain/beside",
            "folder/secret",
            "environ",
            "root/etc/passwd",
            "cwd/Cargo.toml",
        ] {
            if path.starts_with("nothing") {
                check(path, &error("no-entry")).await;
            } else {
                check(path, &out).await;
            }
        }
        check("file", &ok("d/file")).await;
        check("./file", &ok("d/file")).await;
        check("sub//deep", &ok("d/sub/deep")).await;
        check("sub/../file", &ok("d/file")).await;
        check("inside/deep", &ok("d/sub/deep")).await;
        check("FILE", &error("no-entry")).await;
        check("loop", &error("loop")).await;
        check("", &error("no-entry")).await;
        check("file\0", &error("invalid")).await;
        check(&"a".repeat(256), &error("name-too-long")).await;
        check(&"a".repeat(5000), &error("name-too-long")).await;
        check(&"a/".repeat(3000), &error("name-too-long")).await;
        assert_eq!(intruder.refused(), [""; 0]);
    }
}

#[tokio::test]
async fn what_is_read_only_is_not_changed_by_anything() {
    let home = Home::new(&["r/file", "r/sub/deep", "w/mine"]);
    home.link("r/to-file", "file");
    // In both the same directory is read-only: alone, beside a writable one, and inside of one.
    for grants in [&["fs:read:r"][..], &["fs:read:r", "fs:write:w"], &["fs:write:.", "fs:read:r"]] {
        let intruder = home.enter(grants).await;
        let at = |what: &str, path: &str| json!({ "do": what, "dir": "r", "path": path });
        let opening =
            |path: &str, with: &[&str]| json!({ "do": "open", "dir": "r", "path": path, "follow": true, "with": with });
        let steps = [
            at("mkdir", "new"),
            at("rmdir", "sub"),
            at("unlink", "file"),
            at("unlink", "to-file"),
            at("set-times", "file"),
            at("set-times", "."),
            json!({ "do": "symlink", "dir": "r", "path": "new", "to": "file" }),
            json!({ "do": "rename", "dir": "r", "path": "file", "to": "new" }),
            json!({ "do": "link", "dir": "r", "path": "file", "to": "new" }),
            opening("file", &["write"]),
            opening("file", &["read", "write"]),
            opening("file", &["truncate"]),
            opening("file", &["read", "truncate"]),
            opening("file", &["create"]),
            opening("new", &["create"]),
            opening("new", &["create", "exclusive"]),
            opening("to-file", &["write"]),
            opening("sub", &["write"]),
        ];
        for step in &steps {
            assert_eq!(intruder.step(step.clone()).await, error("not-permitted"), "{grants:?} {step}");
        }
        // A descriptor that was opened for reading.
        for (path, with) in [("file", &["read"][..]), ("file", &["read", "mutate"])] {
            assert_eq!(intruder.step(opening(path, with)).await, ok(true));
            for what in ["fd-write", "fd-write-stream", "fd-append", "fd-set-size", "fd-set-times"] {
                assert_eq!(intruder.step(json!({ "do": what })).await, error("not-permitted"), "{grants:?} {what}");
            }
            assert_eq!(intruder.step(json!({ "do": "fd-flags" })).await, ok(json!(["read"])));
            assert_eq!(intruder.step(json!({ "do": "fd-read" })).await, ok("r/file"));
            assert_eq!(intruder.step(json!({ "do": "fd-stream" })).await, ok("r/file"));
            assert_eq!(intruder.step(json!({ "do": "fd-sync" })).await, ok(true));
            assert_eq!(intruder.step(json!({ "do": "fd-advise" })).await, ok(true));
        }
        // And a directory in it.
        assert_eq!(intruder.step(opening("sub", &["read", "mutate", "directory"])).await, ok(true));
        for step in [
            json!({ "do": "unlink", "dir": "open", "path": "deep" }),
            json!({ "do": "mkdir", "dir": "open", "path": "new" }),
            json!({ "do": "open", "dir": "open", "path": "deep", "with": ["write"] }),
            json!({ "do": "fd-set-times" }),
        ] {
            assert_eq!(intruder.step(step.clone()).await, error("not-permitted"), "{grants:?} {step}");
        }
        if grants.len() > 1 {
            let w = if grants[0] == "fs:write:." { "." } else { "w" };
            let mine = if w == "." { "w/mine" } else { "mine" };
            for step in [
                json!({ "do": "rename", "dir": "r", "path": "file", "to-dir": w, "to": "taken" }),
                json!({ "do": "link", "dir": "r", "path": "file", "to-dir": w, "to": "taken" }),
                json!({ "do": "rename", "dir": w, "path": mine, "to-dir": "r", "to": "file" }),
                json!({ "do": "link", "dir": w, "path": mine, "to-dir": "r", "to": "new" }),
            ] {
                assert_eq!(intruder.step(step.clone()).await, error("not-permitted"), "{grants:?} {step}");
            }
        }
        if grants[0] == "fs:write:." {
            // By the directory around it.
            for step in [
                json!({ "do": "open", "dir": ".", "path": "r/file", "with": ["write"] }),
                json!({ "do": "open", "dir": ".", "path": "r/file", "with": ["truncate"] }),
                json!({ "do": "unlink", "dir": ".", "path": "r/file" }),
                json!({ "do": "rename", "dir": ".", "path": "r", "to": "mine-now" }),
                json!({ "do": "rename", "dir": ".", "path": "w", "to": "r" }),
                json!({ "do": "rmdir", "dir": ".", "path": "r" }),
                json!({ "do": "set-times", "dir": ".", "path": "r" }),
            ] {
                assert_eq!(intruder.step(step.clone()).await, error("not-permitted"), "{step}");
            }
        }
        assert_eq!((home.text("r/file"), home.text("r/sub/deep")), ("r/file".to_owned(), "r/sub/deep".to_owned()));
        assert_eq!(std::fs::read_dir(home.at("r")).expect("the directory").count(), 3);
        let mut refused = intruder.refused();
        refused.dedup();
        assert_eq!(refused, ["fs:write:r --grant p=fs:write:r"], "{grants:?}");
    }
}

#[tokio::test]
async fn what_may_be_written_can_be() {
    let home = Home::new(&["w/file", "w/other", "r/file"]);
    for grants in [&["fs:write:w"][..], &["fs:write:w", "fs:read:r", "fs:read:w/kept"]] {
        home.write("w/file", "w/file");
        home.write("w/kept/x", "x");
        let intruder = home.enter(grants).await;
        let steps = json!([
            { "do": "open", "dir": "w", "path": "file", "with": ["read", "write"] },
            { "do": "fd-set-size" },
            { "do": "fd-write" },
            { "do": "fd-append" },
            { "do": "fd-read" },
            { "do": "fd-set-times" },
            { "do": "mkdir", "dir": "w", "path": "new" },
            { "do": "rename", "dir": "w", "path": "file", "to": "new/file" },
            { "do": "link", "dir": "w", "path": "new/file", "to": "hard" },
            { "do": "symlink", "dir": "w", "path": "soft", "to": "new/file" },
            { "do": "readlink", "dir": "w", "path": "soft" },
            { "do": "cat", "dir": "w", "path": "soft", "follow": true },
            { "do": "cat", "dir": "w", "path": "soft" },
            { "do": "unlink", "dir": "w", "path": "soft" },
            { "do": "unlink", "dir": "w", "path": "hard" },
            { "do": "unlink", "dir": "w", "path": "new/file" },
            { "do": "rmdir", "dir": "w", "path": "new" },
        ]);
        let told = intruder.take(steps).await;
        let done = ok(true);
        let text = ok("intrudedintruded");
        let expect = [
            &done,
            &done,
            &ok(8),
            &done,
            &text,
            &done,
            &done,
            &done,
            &done,
            &done,
            &ok("new/file"),
            &text,
            &error("loop"),
            &done,
            &done,
            &done,
            &done,
        ];
        assert_eq!(told.iter().collect::<Vec<_>>(), expect, "{grants:?}");
        assert_eq!(intruder.refused(), [""; 0]);
    }
}

#[tokio::test]
async fn a_link_that_leads_out_is_not_made() {
    let home = Home::new(&["w/sub/file", "beside"]);
    home.link("w/here", ".");
    for grants in [&["fs:write:w"][..], &["fs:write:w", "fs:read:w/kept"]] {
        home.write("w/kept/x", "x");
        let intruder = home.enter(grants).await;
        let check = async |path: &str, to: &str, expect: Value| {
            let step = json!({ "do": "symlink", "dir": "w", "path": path, "to": to });
            assert_eq!(intruder.step(step.clone()).await, expect, "{grants:?} {step}");
            let _ = std::fs::remove_file(home.at("w").join(path));
        };
        // `here` is where it is, so that going up behind it leads out.
        for to in [
            "/etc/passwd",
            "..",
            "../beside",
            "sub/../../beside",
            "../../secret",
            "./..",
            "here/here/../../../secret",
            "here/../beside",
            "sub/..",
        ] {
            check("new", to, error("not-permitted")).await;
        }
        check("sub/new", "../file", ok(true)).await;
        check("sub/new", "../../beside", error("not-permitted")).await;
        // It is really in `w`, so one step up is out.
        check("here/new", "../beside", error("not-permitted")).await;
        check("new", "sub/file", ok(true)).await;
        check("new", "nothing", ok(true)).await;
        // Nor is one moved to where it leads out, from where it does not.
        std::fs::create_dir_all(home.at("w/a/b")).expect("to make");
        let steps = json!([
            { "do": "symlink", "dir": "w", "path": "a/b/link", "to": "../../../beside" },
            { "do": "symlink", "dir": "w", "path": "a/b/link", "to": "../../sub/file" },
            { "do": "rename", "dir": "w", "path": "a/b/link", "to": "link" },
            { "do": "rename", "dir": "w", "path": "a/b/link", "to": "here/link" },
            { "do": "link", "dir": "w", "path": "a/b/link", "to": "a/link" },
            { "do": "rename", "dir": "w", "path": "a/b/link", "to": "sub/link" },
            { "do": "rename", "dir": "w", "path": "a/b/link", "to": "a/b/moved" },
            { "do": "cat", "dir": "w", "path": "a/b/moved", "follow": true },
            { "do": "unlink", "dir": "w", "path": "a/b/moved" },
        ]);
        let (no, done) = (error("not-permitted"), ok(true));
        let expect = [&no, &done, &no, &no, &no, &no, &done, &ok("w/sub/file"), &done];
        assert_eq!(intruder.take(steps).await.iter().collect::<Vec<_>>(), expect, "{grants:?}");
    }
}

/// What takes longer waits for somebody, or reads all of a large directory for each of two hundred listings: that is forever and ten
/// seconds. What these tests do takes milliseconds, on a busy machine some more.
const PROMPT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn what_is_no_file_is_not_opened_and_holds_nobody() {
    let home = Home::new(&["w/file"]);
    let made = Command::new("mkfifo").arg(home.at("w/pipe")).status().expect("mkfifo can be started");
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(home.at("w/socket")).expect("a socket");
    home.link("w/to-pipe", "pipe");
    for grants in [&["fs:write:w"][..], &["fs:write:w", "fs:read:w/kept"]] {
        home.write("w/kept/x", "x");
        let intruder = home.enter(grants).await;
        for path in ["pipe", "socket", "to-pipe"] {
            for with in [&["read"][..], &["write"], &["read", "write"], &["truncate"], &["create"]] {
                let begun = Instant::now();
                assert_eq!(intruder.step(open(path, with)).await, error("not-permitted"), "{path} {with:?}");
                assert!(begun.elapsed() < PROMPT, "{path} {with:?}");
            }
            let stat = json!({ "do": "stat", "path": path, "follow": true });
            assert!(intruder.step(stat).await["ok"]["type"].is_string());
        }
        assert_eq!(intruder.step(open("file", &["read"])).await, ok(true));
    }
}

#[tokio::test]
async fn the_files_of_processes_are_not_opened() {
    let intruder =
        Intruder::enter(Entry { grants: &["fs:read:."], workspace: Some(Path::new("/")), ..Entry::default() }).await;
    for path in ["proc/self/environ", "proc/1/environ", "proc/self/cmdline", "proc/self/maps", "proc", "proc/self"] {
        let told = intruder.step(cat(path)).await;
        assert!(
            told == error("not-permitted") || told == error("access") || told == error("no-entry"),
            "{path}: {told}"
        );
    }
    assert_eq!(intruder.step(open("proc", &["read", "directory"])).await, error("not-permitted"));
    // Nor is a device, which could be an endless file, somebody's terminal, or a disk.
    for path in ["dev/zero", "dev/null", "dev/full", "dev/random", "dev/tty", "dev/stdin", "dev/fd/0"] {
        let told = intruder.step(open(path, &["read"])).await;
        assert!(told == error("not-permitted") || told == error("no-entry"), "{path}: {told}");
    }
    let zero = intruder.step(json!({ "do": "stat", "path": "dev/zero" })).await;
    assert_eq!(zero["ok"]["type"], "character-device");
}

#[tokio::test]
async fn links_that_are_swapped_lead_nowhere_else() {
    let home = Home::new(&["w/real/file", "w/kept/file"]);
    std::fs::write(home.at("w/kept/file"), "kept").expect("to write");
    home.write("outside/file", "outside");
    let changed = |path: &str| std::fs::metadata(home.at(path)).and_then(|it| it.modified()).expect("it is there");
    let entries = |path: &str| std::fs::read_dir(home.at(path)).expect("it is there").count();
    for grants in [&["fs:write:w"][..], &["fs:write:w", "fs:read:w/kept"]] {
        let intruder = home.enter(grants).await;
        let stop = Arc::new(AtomicBool::new(false));
        let swapping = {
            let (stop, w) = (stop.clone(), home.at("w"));
            let nested = grants.len() > 1;
            std::thread::spawn(move || {
                let (path, other) = (w.join("swapped"), w.join("swapped.next"));
                let targets: &[&str] = if nested { &["real", "kept"] } else { &["real", "../outside"] };
                let mut swaps = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    for target in targets {
                        let _ = std::fs::remove_file(&other);
                        symlink(target, &other).expect("to link");
                        std::fs::rename(&other, &path).expect("to swap");
                        swaps += 1;
                    }
                }
                swaps
            })
        };
        let before = (changed("outside/file"), changed("w/kept/file"));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let steps = json!([
                { "do": "open", "path": "swapped/file", "follow": true, "with": ["write"] },
                { "do": "fd-write" },
                { "do": "close" },
                { "do": "set-times", "path": "swapped/file", "follow": true },
                { "do": "unlink", "path": "swapped/new" },
                { "do": "rename", "path": "real/file", "to": "swapped/new" },
                { "do": "rename", "path": "swapped/new", "to": "real/file" },
                cat("swapped/file"),
            ]);
            intruder.take(steps).await;
            assert_eq!((changed("outside/file"), entries("outside")), (before.0, 1), "{grants:?}");
            if grants.len() > 1 {
                assert_eq!((changed("w/kept/file"), entries("w/kept")), (before.1, 1));
            }
            if !home.at("w/real/file").exists() {
                home.write("w/real/file", "w/real/file");
            }
        }
        stop.store(true, Ordering::Relaxed);
        let swaps = swapping.join().expect("it swaps");
        assert!(swaps > 1_000, "{swaps}");
        assert_eq!(home.text("outside/file"), "outside", "{grants:?}");
        if grants.len() > 1 {
            assert_eq!(home.text("w/kept/file"), "kept");
        }
    }
}

#[tokio::test]
async fn the_way_to_a_place_has_a_bound_where_it_is_kept() {
    let home = Home::new(&["w/kept/x"]);
    let intruder = home.enter(&["fs:write:w", "fs:read:w/kept"]).await;
    let name = "d".repeat(255);
    let down = |dir: &str| {
        let opening = json!({ "do": "open", "dir": dir, "path": name, "with": ["read", "directory"] });
        json!([{ "do": "mkdir", "dir": dir, "path": name }, opening])
    };
    assert_eq!(intruder.take(down("w")).await, [ok(true), ok(true)]);
    for depth in 2..16 {
        assert_eq!(intruder.take(down("open")).await, [ok(true), ok(true)], "{depth}");
    }
    assert_eq!(intruder.take(down("open")).await, [error("name-too-long"), error("name-too-long")]);
}

#[tokio::test]
async fn a_directory_stays_the_one_that_was_granted() {
    let home = Home::new(&["d/file", "other/file"]);
    let intruder = home.enter(&["fs:read:d"]).await;
    std::fs::rename(home.at("d"), home.at("moved")).expect("to move");
    home.link("d", "other");
    assert_eq!(intruder.step(cat("file")).await, ok("d/file"));
    assert_eq!(intruder.step(cat("../other/file")).await, error("not-permitted"));
    std::fs::remove_dir_all(home.at("moved")).expect("to remove");
    assert_eq!(intruder.step(cat("file")).await, error("no-entry"));
    assert_eq!(intruder.step(json!({ "do": "list" })).await, ok(json!([])));
}

#[tokio::test]
async fn names_are_bytes_and_directories_are_large() {
    let home = Home::new(&["d/a"]);
    std::fs::write(home.at("d").join(std::ffi::OsStr::from_bytes(b"bad\xff")), "x").expect("to write");
    let intruder = home.enter(&["fs:read:d"]).await;
    assert_eq!(intruder.step(json!({ "do": "list" })).await, ok(json!(["(illegal-byte-sequence)", "a"])));
    let kinds = Home::new(&["d/file", "d/dir/x"]);
    kinds.link("d/link", "file");
    let told = kinds.enter(&["fs:read:d"]).await.step(json!({ "do": "list-types" })).await;
    assert_eq!(told, ok(json!(["dir: directory", "file: regular-file", "link: symbolic-link"])));
    std::fs::create_dir(home.at("d/large")).expect("to make");
    for n in 0..100_000 {
        std::fs::File::create(home.at("d/large").join(n.to_string())).expect("to make");
    }
    // The longest that this thread computed while another of its tasks wanted its turn: a busy machine makes it wait, not compute.
    let longest = Arc::new(AtomicU64::new(0));
    let watch = tokio::spawn({
        let longest = longest.clone();
        async move {
            let mut last = computed();
            loop {
                tokio::task::yield_now().await;
                let now = computed();
                longest.fetch_max(u64::try_from((now - last).as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
                last = now;
            }
        }
    });
    assert_eq!(intruder.step(json!({ "do": "list", "path": "large" })).await, ok(100_000));
    watch.abort();
    let longest = longest.load(Ordering::Relaxed);
    assert!(longest < 100_000, "the thread was held for {longest} µs");
    // It is read as it is asked for: two hundred beginnings of it are no work, and no memory.
    let begun = Instant::now();
    assert_eq!(intruder.step(json!({ "do": "hold-listings", "path": "large", "count": 200 })).await, ok(200));
    assert!(begun.elapsed() < PROMPT, "it took {:?}", begun.elapsed());
}

/// How long this thread has computed.
fn computed() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a clock that begins at 0")
}

#[tokio::test]
async fn descriptors_are_counted_and_keep_their_rights() {
    let home = Home::new(&["d/file"]);
    let intruder = home.enter(&["fs:read:d"]).await;
    assert_eq!(intruder.step(open("file", &["read"])).await, ok(true));
    // The next call of the same instance still has it, and it can do no more.
    assert_eq!(intruder.step(json!({ "do": "fd-read" })).await, ok("d/file"));
    assert_eq!(intruder.step(json!({ "do": "fd-write" })).await, error("not-permitted"));
    // A call under a narrower profile is another instance.
    let hidden = Profile { paths: vec![], ..Profile::unrestricted() };
    let told = intruder.take_under(hidden, json!([{ "do": "fd-read" }, cat("file"), { "do": "list" }])).await;
    assert_eq!(told, [error("nothing is open"), error("access"), error("access")]);
}

/// The files that this process has open below a directory.
fn open_below(dir: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").expect("the list").flatten();
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(dir))).count()
}

#[tokio::test]
async fn what_is_held_open_has_a_bound() {
    let home = Home::new(&["w/file"]);
    for grants in [&["fs:write:w"][..], &["fs:write:w", "fs:read:w/kept"]] {
        home.write("w/kept/x", "x");
        let intruder = home.enter(grants).await;
        let before = open_below(home.root.path());
        // A listing is begun from an open directory, so that the last one has no room for both.
        for (what, path, held) in [
            ("open-many", "file", 256),
            ("hold-streams", "file", 256),
            ("hold-writers", "file", 256),
            ("hold-listings", ".", 255),
        ] {
            // Twice: what is closed is free again.
            for _ in 0..2 {
                let step = json!({ "do": what, "path": path, "count": 1_000 });
                assert_eq!(intruder.step(step).await, error(&format!("busy after {held}")), "{grants:?} {what}");
                // A short directory is read to its end at once.
                let open = if what == "hold-listings" { 0 } else { held };
                assert_eq!(open_below(home.root.path()), before + open, "{grants:?} {what}");
                if held == 256 {
                    assert_eq!(intruder.step(cat("file")).await, error("busy"), "{grants:?} {what}");
                }
                assert_eq!(intruder.step(json!({ "do": "close" })).await, ok(true));
                assert_eq!(open_below(home.root.path()), before, "{grants:?} {what}");
                assert_eq!(intruder.step(cat("file")).await, ok("w/file"), "{grants:?} {what}");
            }
        }
        // These are one descriptor, however often they are asked for.
        assert_eq!(intruder.step(json!({ "do": "hold-preopens", "count": 1_000 })).await, ok(1_000));
        assert_eq!(open_below(home.root.path()), before);
        drop(intruder);
    }
}

#[tokio::test]
async fn the_files_of_a_call_that_is_stopped_are_closed() {
    let home = Home::new(&["d/file"]);
    let limits = Limits { tool_cpu_ms: 50, ..Limits::default() };
    let intruder = home.enter_with(&["fs:read:d"], limits).await;
    let before = open_below(home.root.path());
    let steps = json!([{ "do": "open-many", "path": "file", "count": 100 }, { "do": "spin" }]);
    let message = intruder.fails(steps).await;
    assert!(message.starts_with("it computed for longer than the limit `tool-cpu-ms` of 50 ms"), "{message}");
    assert_eq!(open_below(home.root.path()), before);
}

#[tokio::test]
async fn a_call_that_is_stopped_still_says_what_it_was_refused() {
    let home = Home::new(&["docs/a", "r/file"]);
    let refused = [
        json!({ "do": "cat", "dir": ".", "path": "docs/a" }),
        json!({ "do": "open", "dir": "r", "path": "file", "with": ["write"] }),
    ];
    for (end, why) in [
        (json!({ "do": "spin" }), "it computed for longer than the limit `tool-cpu-ms` of 50 ms"),
        (json!({ "do": "sleep" }), "it took longer than the limit `tool-wall-ms` of 100 ms"),
        (json!({ "do": "trap" }), "it panicked or aborted"),
    ] {
        // Short only where it is to run out: on a busy machine 50 ms of computing take any time.
        let tool_wall_ms = if end["do"] == "sleep" { 100 } else { Limits::default().tool_wall_ms };
        let limits = Limits { tool_wall_ms, tool_cpu_ms: 50, ..Limits::default() };
        let intruder = home.enter_with(&["fs:read:r"], limits).await;
        let steps = json!([refused[0], refused[1], end]);
        let message = intruder.fails(steps).await;
        assert!(message.starts_with(why), "{message}");
        let expect = ["fs:read:docs --grant p=fs:read:docs", "fs:write:r --grant p=fs:write:r"];
        assert_eq!(intruder.refused(), expect, "{message}");
    }
}

#[tokio::test]
async fn a_profile_takes_away_parts() {
    let home = Home::new(&["a/file", "b/file"]);
    home.link("to-b", "b");
    let intruder = home.enter(&["fs:write:."]).await;
    let profile =
        Profile { denied: vec![PathGrant { path: "b".into(), access: Access::Read }], ..Profile::unrestricted() };
    let check = async |step: Value, expect: Value| {
        assert_eq!(intruder.take_under(profile.clone(), json!([step])).await, [expect], "{step}");
    };
    check(cat("a/file"), ok("a/file")).await;
    for path in ["b/file", "to-b/file", "a/../b/file", "b/nothing"] {
        check(cat(path), error("access")).await;
        check(json!({ "do": "stat", "path": path, "follow": true }), error("access")).await;
        check(json!({ "do": "hash", "path": path, "follow": true }), error("access")).await;
    }
    check(json!({ "do": "list", "path": "b" }), error("access")).await;
    check(json!({ "do": "rename", "path": "b", "to": "mine" }), error("not-permitted")).await;
    check(json!({ "do": "rename", "path": "b/file", "to": "mine" }), error("not-permitted")).await;
    check(json!({ "do": "link", "path": "b/file", "to": "mine" }), error("not-permitted")).await;
    check(json!({ "do": "symlink", "path": "b/mine", "to": "file" }), error("not-permitted")).await;
    check(json!({ "do": "readlink", "path": "to-b" }), ok("b")).await;
    assert_eq!(intruder.refused(), [""; 0]);
}

#[tokio::test]
async fn where_nothing_was_granted_the_grant_is_named() {
    let home = Home::new(&["docs/a", "granted/file", "b"]);
    for grants in [&[][..], &["fs:write:granted"], &["fs:write:granted", "fs:read:granted/kept"]] {
        home.write("granted/kept/x", "x");
        let intruder = home.enter(grants).await;
        let check = async |step: Value, code: &str, grant: Option<&str>| {
            assert_eq!(intruder.step(step.clone()).await, error(code), "{grants:?} {step}");
            let expect: Vec<_> = grant.into_iter().map(|grant| format!("{grant} --grant p={grant}")).collect();
            assert_eq!(intruder.refused(), expect, "{grants:?} {step}");
        };
        let at = |what: &str, path: &str| json!({ "do": what, "dir": ".", "path": path });
        let opening = |path: &str, with: &[&str]| json!({ "do": "open", "dir": ".", "path": path, "with": with });
        check(at("cat", "b"), "access", Some("fs:read:.")).await;
        check(at("stat", "."), "access", None).await;
        check(at("cat", "docs/a"), "access", Some("fs:read:docs")).await;
        check(at("cat", "./docs//x/../a"), "access", Some("fs:read:docs")).await;
        check(at("list", "docs"), "access", Some("fs:read:docs")).await;
        check(at("stat", "docs/nothing"), "access", Some("fs:read:docs")).await;
        check(at("hash", "nothing"), "access", Some("fs:read:.")).await;
        check(at("readlink", "docs/a"), "access", Some("fs:read:docs")).await;
        check(opening("docs/a", &["write"]), "not-permitted", Some("fs:write:docs")).await;
        check(opening("new", &["create"]), "not-permitted", Some("fs:write:.")).await;
        for what in ["mkdir", "rmdir", "unlink", "set-times"] {
            check(at(what, "docs/a"), "not-permitted", Some("fs:write:docs")).await;
        }
        let pair = |what: &str| json!({ "do": what, "dir": ".", "path": "docs/a", "to": "docs/c" });
        for what in ["symlink", "rename", "link"] {
            check(pair(what), "not-permitted", Some("fs:write:docs")).await;
        }
        // What nobody can grant, and what an option should not show.
        for path in ["../secret", "docs/../../secret", "/etc/passwd", "a\nb/c", "\u{1b}[2J/c", "\u{202e}/c"] {
            check(at("cat", path), "access", None).await;
        }
        check(at("cat", &"a/".repeat(5_000)), "access", None).await;
        let expect: Vec<_> = ["."].into_iter().chain((!grants.is_empty()).then_some("granted")).collect();
        let mut preopens = intruder.step(json!({ "do": "preopens" })).await["ok"].take();
        preopens.as_array_mut().expect("a list").retain(|name| name != "granted/kept");
        preopens.as_array_mut().expect("a list").sort_by_key(Value::to_string);
        assert_eq!(preopens, json!(expect));
    }
    // A C program, whose library looks for the directory first, learns the same.
    let intruder = home.enter(&["fs:read:granted"]).await;
    for (what, path, grant) in [
        ("c-open", "docs/a", "fs:read:docs"),
        ("c-open", "/docs/a", "fs:read:docs"),
        ("c-open", "b", "fs:read:."),
        ("c-stat", "docs/a", "fs:read:docs"),
        ("c-list", "docs", "fs:read:docs"),
        ("c-list", ".", "fs:read:."),
    ] {
        let told = intruder.step(json!({ "do": what, "path": path })).await;
        assert_eq!(told, error("permission denied"), "{what} {path}");
        assert_eq!(intruder.refused(), [format!("{grant} --grant p={grant}")], "{what} {path}");
    }
    for (what, path) in [("c-open", "granted/file"), ("c-stat", "granted/file"), ("c-list", "granted")] {
        assert_eq!(intruder.step(json!({ "do": what, "path": path })).await, ok(true), "{what} {path}");
    }
    assert_eq!(intruder.refused(), [""; 0]);
    // One call that tries every path is not listed for ever.
    let intruder = home.enter(&[]).await;
    let steps: Vec<_> = (0..200).map(|n| json!({ "do": "cat", "dir": ".", "path": format!("d{n}/x") })).collect();
    assert_eq!(intruder.take(json!(steps)).await, vec![error("access"); 200]);
    assert_eq!(intruder.refused().len(), 64);
}
