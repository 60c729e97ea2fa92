//! Real programs, really confined: no mock of the kernel.

use std::fs;
use std::net::TcpListener;
use std::time::Instant;

use dsh_seam::tools::{Access, NetworkPolicy, PathGrant};

use super::*;

struct Place {
    dir: TempDir,
    processes: HostProcesses,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["docs", "out", "secret"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
        fs::write(dir.path().join(folder).join("file"), format!("in {folder}\n")).unwrap();
    }
    let processes = HostProcesses::new(dir.path().to_owned());
    Place { dir, processes }
}

fn bash(script: &str) -> ProcessCommand {
    ProcessCommand {
        program: "bash".into(),
        args: vec!["-c".into(), script.into()],
        cwd: None,
        env: vec![],
        stdin: None,
        timeout_ms: None,
    }
}

impl Place {
    async fn run(&self, command: ProcessCommand, profile: &Profile) -> Result<ProcessExit, Failure> {
        self.processes.run(command, profile, &[], &CancellationToken::new()).await
    }

    /// What a script writes and its exit code, as one text; standard error only when it failed.
    async fn told(&self, script: &str, profile: &Profile) -> String {
        let exit = self.run(bash(script), profile).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match exit.code {
            Some(0) => text(&exit.stdout),
            code => format!("{}{}exit {code:?}", text(&exit.stdout), text(&exit.stderr)),
        }
    }
}

fn profile(paths: &[(&str, Access)], denied: &[(&str, Access)], network: NetworkPolicy) -> Profile {
    let list = |list: &[(&str, Access)]| {
        list.iter().map(|(path, access)| PathGrant { path: (*path).into(), access: *access }).collect()
    };
    Profile { paths: list(paths), denied: list(denied), network, ..Profile::unrestricted() }
}

/// Whether this kernel can hold programs at all; says loudly when not.
fn confines(place: &Place) -> bool {
    let closed = profile(&[(".", Access::Read)], &[], NetworkPolicy::Closed);
    match place.processes.enforceable(&closed) {
        Ok(()) => true,
        Err(failure) => {
            assert_eq!(failure.code, "unenforceable");
            println!("SKIPPED: {failure}");
            false
        }
    }
}

#[tokio::test]
async fn a_program_runs_to_its_end() {
    let place = place();
    let all = Profile::unrestricted();
    let mut command = bash("read -r line; echo \"$line $X\"; echo oops >&2; pwd | grep -o docs; exit 3");
    command.stdin = Some(b"hello\nunread".to_vec());
    command.env = vec![("X".into(), "there".into())];
    command.cwd = Some("./docs".into());
    let exit = place.run(command, &all).await.unwrap();
    let expect = ProcessExit {
        code: Some(3),
        stdout: b"hello there\ndocs\n".to_vec(),
        stderr: b"oops\n".to_vec(),
        timed_out: false,
        truncated: false,
    };
    assert_eq!(exit, expect);
    assert_eq!(place.told("kill -9 $$", &all).await, "exit None");
    assert_eq!(place.told("cat; test -t 0 || echo no terminal", &all).await, "no terminal\n");
    assert_eq!(place.told("cat < /dev/tty", &all).await.lines().last(), Some("exit Some(1)"));
}

#[tokio::test]
async fn what_cannot_run_is_said() {
    let place = place();
    std::os::unix::fs::symlink("/etc", place.dir.path().join("etc")).unwrap();
    let check = async |change: &dyn Fn(&mut ProcessCommand), profile: &Profile, code: &str, part: &str| {
        let mut command = bash("touch ran");
        change(&mut command);
        let failure = place.run(command, profile).await.unwrap_err();
        assert!(failure.code == code && failure.message.contains(part), "{failure:?}, expected {code}: {part}");
        assert!(!place.dir.path().join("ran").exists());
    };
    let all = Profile::unrestricted();
    check(&|command| command.program = "no-such-program".into(), &all, "not-available", "no program `no-such-program`")
        .await;
    check(&|command| command.program = "./docs/file".into(), &all, "not-available", "cannot be started").await;
    check(&|command| command.program = "a\0b".into(), &all, "invalid-argument", "cannot be started").await;
    check(&|command| command.cwd = Some("/etc".into()), &all, "invalid-argument", "not a folder inside the workspace")
        .await;
    check(&|command| command.cwd = Some("docs/../..".into()), &all, "invalid-argument", "not a folder inside").await;
    check(&|command| command.cwd = Some("etc".into()), &all, "invalid-argument", "not a folder inside").await;
    check(&|command| command.cwd = Some("nowhere".into()), &all, "invalid-argument", "cannot run in `nowhere`").await;
    check(&|command| command.env = vec![("A=B".into(), "c".into())], &all, "invalid-argument", "`A=B` is not").await;
    check(&|command| command.env = vec![("A".into(), "\0".into())], &all, "invalid-argument", "cannot be started")
        .await;
    let none = Profile { processes: false, ..all.clone() };
    check(&|_| {}, &none, "denied", "does not let it run programs").await;
    let hosts = Profile { network: NetworkPolicy::Hosts(vec!["example.com".into()]), ..all };
    check(&|_| {}, &hosts, "unenforceable", "").await;
    assert_eq!(place.processes.enforceable(&hosts).unwrap_err().code, "unenforceable");
    assert_eq!(place.processes.enforceable(&Profile { processes: false, ..hosts }), Ok(()));
}

#[tokio::test]
async fn the_environment_holds_what_was_granted() {
    let place = place();
    let granted = ["CARGO_PKG_NAME".to_owned()];
    let token = CancellationToken::new();
    let env = async |profile: &Profile| {
        let exit = place
            .processes
            .run(ProcessCommand { program: "env".into(), args: vec![], ..bash("") }, profile, &granted, &token)
            .await
            .unwrap();
        let text = String::from_utf8(exit.stdout).unwrap();
        let mut names: Vec<String> = text.lines().filter_map(|line| Some(line.split_once('=')?.0.to_owned())).collect();
        names.retain(|name| !["LANG", "TERM", "TMPDIR"].contains(&name.as_str()));
        names.sort();
        names.join(" ")
    };
    assert_eq!(env(&Profile::unrestricted()).await, "CARGO_PKG_NAME HOME PATH");
    assert_eq!(env(&Profile { env: vec![], ..Profile::unrestricted() }).await, "HOME PATH");
}

#[tokio::test]
async fn output_is_cut_and_the_program_never_waits() {
    let place = place();
    let small = Profile { max_output_bytes: Some(10), ..Profile::unrestricted() };
    let exit =
        place.run(bash("for i in {1..200000}; do echo 123456789; done; echo end >&2; exit 7"), &small).await.unwrap();
    assert_eq!(
        (exit.code, exit.stdout, exit.stderr, exit.truncated),
        (Some(7), b"123456789\n".to_vec(), b"end\n".to_vec(), true)
    );
    let exit = place.run(bash("printf 1234567890"), &small).await.unwrap();
    assert_eq!((exit.stdout, exit.truncated), (b"1234567890".to_vec(), false));
    let exit = place.run(bash("head -c 3000000 /dev/zero"), &Profile::unrestricted()).await.unwrap();
    assert_eq!((exit.stdout.len(), exit.truncated), (DEFAULT_OUTPUT_BYTES, true));
}

/// How many processes have `marker` among their arguments.
fn running(marker: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    entries.filter(|line| line.split(|byte| *byte == 0).any(|word| word == marker.as_bytes())).count()
}

/// Killed processes go as soon as the kernel has seen to them.
async fn all_gone(marker: &str) {
    let begin = Instant::now();
    while running(marker) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(5), "{} left", running(marker));
        tokio::task::yield_now().await;
    }
}

/// Starts children in and out of the group, with a number of seconds that is this test's own, and waits for them.
fn family(seconds: u32) -> String {
    format!(
        "sleep {seconds} & setsid sleep {seconds} & (setsid bash -c 'sleep {seconds} & wait' &) ; echo up; sleep {seconds}"
    )
}

#[tokio::test]
async fn a_timeout_ends_all_that_was_started() {
    let place = place();
    for (seconds, before) in [(31_001, ""), (31_002, "trap '' TERM; ")] {
        let mut command = bash(&format!("{before}{}", family(seconds)));
        command.timeout_ms = Some(400);
        let begin = Instant::now();
        let exit = place.run(command, &Profile::unrestricted()).await.unwrap();
        assert_eq!((exit.code, exit.stdout.as_slice(), exit.timed_out), (None, b"up\n".as_slice(), true));
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        assert_eq!(running(&seconds.to_string()), 0);
    }
    let short = Profile { timeout_ms: Some(50), ..Profile::unrestricted() };
    assert!(place.run(bash("sleep 31003"), &short).await.unwrap().timed_out);
}

#[tokio::test]
async fn a_cancelled_or_dropped_call_ends_all_that_was_started() {
    let place = place();
    let up = async |seconds: u32| {
        while running(&seconds.to_string()) < 4 {
            tokio::task::yield_now().await;
        }
    };
    let token = CancellationToken::new();
    let all = Profile::unrestricted();
    let command = bash(&family(32_001));
    let cancel = async {
        up(32_001).await;
        token.cancel();
    };
    let (exit, ()) = tokio::join!(place.processes.run(command, &all, &[], &token), cancel);
    assert_eq!(exit, Err(Failure::aborted()));
    all_gone("32001").await;
    assert_eq!(place.processes.run(bash("true"), &all, &[], &token).await, Err(Failure::aborted()));
    tokio::select! {
        exit = place.run(bash(&family(32_002)), &all) => panic!("{exit:?}"),
        () = up(32_002) => {}
    }
    all_gone("32002").await;
}

#[tokio::test]
async fn what_a_program_leaves_behind_does_not_hold_the_call() {
    let place = place();
    let begin = Instant::now();
    let all = Profile::unrestricted();
    assert_eq!(place.told("sleep 33001 & sleep 33001 >/dev/null 2>&1 & echo done", &all).await, "done\n");
    assert_eq!(running("33001"), 0);
    for leave in [
        "setsid sleep 33002 &",
        "setsid sleep 33002 >/dev/null 2>&1 & disown",
        "(setsid bash -c '(setsid sleep 33002 &) ; trap \"\" TERM HUP; sleep 33002' &)",
        "setsid env -i sleep 33002 </dev/null >/dev/null 2>&1 & kill -STOP $!",
        "kill -9 $$ & setsid sleep 33002",
    ] {
        let told = place.told(&format!("{leave}\necho done"), &all).await;
        assert!(told == "done\n" || leave.starts_with("kill"), "{leave}: {told}");
        // Not soon: when the call is over.
        assert_eq!(running("33002"), 0, "{leave}");
    }
    // The other end of a pipe that nobody waits for says its last words.
    assert_eq!(place.told("echo done > >(sleep 0.05; cat)", &all).await, "done\n");
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn files_are_held_to_the_profile() {
    let place = place();
    if !confines(&place) {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    let outside = outside.path().display();
    let read =
        profile(&[(".", Access::Read), ("out", Access::Write)], &[("secret", Access::Read)], NetworkPolicy::Open);
    let check = async |script: String, expect: &str| {
        let told = place.told(&script, &read).await;
        assert!(told.contains(expect), "{script}: {told}, expected {expect}");
    };
    check("cat docs/file".into(), "in docs").await;
    check("cat secret/file".into(), "Permission denied").await;
    check("ls secret".into(), "Permission denied").await;
    check("cp secret/file out/copy".into(), "Permission denied").await;
    check("ln secret/file out/hard && cat out/hard".into(), "exit Some(1)").await;
    check("mv secret out/moved".into(), "exit Some(1)").await;
    check("echo x > docs/new".into(), "Permission denied").await;
    check("echo x >> docs/file".into(), "Permission denied").await;
    check("truncate -s 0 docs/file".into(), "Permission denied").await;
    check("rm docs/file".into(), "Permission denied").await;
    check("echo x > out/new && cat out/new && mkdir out/d && rm out/new".into(), "x\n").await;
    check(format!("cat {outside}/file"), "Permission denied").await;
    check(format!("echo x > {outside}/new"), "Permission denied").await;
    check("echo x > /dev/null && echo fine".into(), "fine").await;
    check("echo x > /dev/stderr; cat <(echo piped)".into(), "piped").await;
    check("f=$(mktemp) && echo temp > $f && cat $f && cd && pwd | grep -c dsh-".into(), "temp\n1\n").await;
    check("cat /proc/$PPID/environ".into(), "Permission denied").await;
    check("cat /proc/$PPID/maps".into(), "Permission denied").await;
    check("git --version".into(), "git version").await;
    assert_eq!(fs::read_to_string(place.dir.path().join("docs/file")).unwrap(), "in docs\n");
    assert_eq!(
        place.told("cat secret/file docs/file; echo x > docs/new", &Profile::unrestricted()).await,
        "in secret\nin docs\n"
    );
}

#[tokio::test]
async fn a_program_that_may_write_nothing_changes_no_attributes() {
    let place = place();
    if !confines(&place) {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    fs::write(&file, "outside").unwrap();
    let read = profile(&[(".", Access::Read)], &[], NetworkPolicy::Open);
    let some = profile(&[(".", Access::Read), ("out", Access::Write)], &[], NetworkPolicy::Open);
    let state = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        let data = fs::metadata(path).unwrap();
        (data.mode(), data.uid(), data.gid(), data.mtime(), data.mtime_nsec())
    };
    let paths = [place.dir.path().join("docs/file"), file];
    let before = paths.each_ref().map(|path| state(path));
    let name = paths[1].display();
    for path in ["docs/file", &name.to_string()] {
        for script in [
            "chmod 777",
            "chown $UID",
            "touch -d 2001-01-01",
            "touch",
            "python3 -c 'import os, sys; os.setxattr(sys.argv[1], \"user.x\", b\"1\")'",
            "python3 -c 'import fcntl, sys; f = open(sys.argv[1]); fcntl.ioctl(f, 0x40086602, b\"\\0\" * 8)'",
            "python3 -c 'import os, sys; os.fchmod(os.open(sys.argv[1], 0), 0o777)'",
        ] {
            let told = place.told(&format!("{script} {path}"), &read).await;
            assert!(
                told.contains("not permitted") || told.contains("Permission denied") || told.contains("python3: "),
                "{script} {path}: {told}"
            );
        }
    }
    assert_eq!(paths.each_ref().map(|path| state(path)), before);
    // What a program does every day needs none of them.
    for script in [
        "echo x > $TMPDIR/a && cp $TMPDIR/a $TMPDIR/b && mkdir $TMPDIR/d && mv $TMPDIR/b $TMPDIR/d && cat $TMPDIR/d/b",
        "echo x | (cat)",
        "f=$(mktemp); echo x > $f; sed -i s/y/z/ $f; cat $f",
    ] {
        assert_eq!(place.told(script, &read).await, "x\n", "{script}");
    }
    assert_eq!(place.told("chmod 600 out/file && touch out/file && echo fine", &some).await, "fine\n");
}

#[tokio::test]
async fn no_descriptor_of_the_host_is_inherited() {
    let place = place();
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("file");
    fs::write(&path, "outside").unwrap();
    let file = fs::File::options().read(true).append(true).open(&path).unwrap();
    // As a shell opens what it hands on: `9>>file`.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    let inherited = std::os::fd::AsRawFd::as_raw_fd(&file);
    let mut profiles = vec![Profile::unrestricted()];
    if confines(&place) {
        profiles.push(profile(&[(".", Access::Write)], &[("secret", Access::Read)], NetworkPolicy::Open));
        profiles.push(profile(&[(".", Access::Read)], &[], NetworkPolicy::Closed));
    }
    for profile in profiles {
        for script in [format!("echo HACKED >&{inherited}"), format!("cat <&{inherited}")] {
            let told = place.told(&script, &profile).await;
            assert!(told.contains("Bad file descriptor") && told.contains("exit Some(1)"), "{script}: {told}");
        }
        // The last one is that of `ls`.
        assert_eq!(place.told("ls /proc/self/fd", &profile).await, "0\n1\n2\n3\n");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "outside");
}

#[tokio::test]
async fn the_host_is_out_of_reach() {
    let place = place();
    if !confines(&place) {
        return;
    }
    let host = std::process::id();
    let open =
        profile(&[(".", Access::Read), ("out", Access::Write)], &[("secret", Access::Read)], NetworkPolicy::Open);
    let closed = profile(&[(".", Access::Read)], &[], NetworkPolicy::Closed);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
    for profile in [&open, &closed] {
        for pid in ["$PPID".to_owned(), host.to_string()] {
            let set = place.told(&format!("prlimit --pid {pid} --core=0:0"), profile).await;
            if set.contains("command not found") {
                println!("SKIPPED: there is no `prlimit` here");
            } else {
                assert!(set.contains("not permitted"), "{pid}: {set}");
            }
        }
        assert_eq!(place.told("ulimit -f 100 && ulimit -f", profile).await, "100\n");
    }
    assert_eq!(rustix::process::getrlimit(rustix::process::Resource::Core), limit);
    if place.processes.support.scopes_signals() {
        for profile in [&open, &closed] {
            for pid in ["$PPID".to_owned(), host.to_string()] {
                let told = place.told(&format!("kill -0 {pid}"), profile).await;
                assert!(told.contains("not permitted"), "{pid}: {told}");
            }
            assert_eq!(place.told("sleep 35001 & kill $! && echo fine", profile).await, "fine\n");
        }
    } else {
        println!("SKIPPED: this kernel's Landlock does not hold signals (version 6 does)");
    }
}

#[tokio::test]
async fn the_temporary_folder_goes_with_the_call() {
    let place = place();
    if !confines(&place) {
        return;
    }
    let read = profile(&[(".", Access::Read)], &[], NetworkPolicy::Open);
    let folder = place.told("touch $TMPDIR/x; echo $TMPDIR", &read).await;
    assert!(folder.contains("/dsh-") && !Path::new(folder.trim()).exists(), "{folder}");
    assert_ne!(place.told("echo $TMPDIR", &read).await, folder);
}

#[tokio::test]
async fn the_network_is_held_to_the_profile() {
    let place = place();
    if !confines(&place) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{} && echo connected", listener.local_addr().unwrap().port());
    let with = |network| profile(&[(".", Access::Write)], &[], network);
    assert_eq!(place.told(&script, &Profile::unrestricted()).await, "connected\n");
    let open =
        Profile { paths: vec![PathGrant { path: "docs".into(), access: Access::Read }], ..with(NetworkPolicy::Open) };
    assert_eq!(place.told(&script, &open).await, "connected\n");
    let told = place.told(&script, &with(NetworkPolicy::Closed)).await;
    assert!(told.contains("Operation not permitted") && !told.contains("connected"), "{told}");
    let python = "import socket\nfor family in [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK]:\n  try: socket.socket(family); print('made')\n  except PermissionError: print('refused')\nsocket.socketpair(); print('pair')";
    let told = place
        .told(
            &format!("command -v python3 >/dev/null || exit 0; python3 -c \"{python}\""),
            &with(NetworkPolicy::Closed),
        )
        .await;
    assert!(told.is_empty() || told == "refused\nrefused\nrefused\nrefused\npair\n", "{told}");
}

/// Run by the next test in a process of its own, which is killed meanwhile.
#[tokio::test]
#[ignore = "runs until it is killed, which the next test does"]
async fn inside_of_a_killed_host() {
    if std::env::var_os("DSH_TEST_KILLED_HOST").is_some() {
        let _ = place().run(bash("setsid sleep 34001 & sleep 34001"), &Profile::unrestricted()).await;
    }
}

#[tokio::test]
async fn a_killed_host_takes_its_program_with_it() {
    let mut host = Command::new(std::env::current_exe().unwrap());
    host.args(["--exact", "processes::tests::inside_of_a_killed_host", "--ignored", "--test-threads", "1"]);
    let mut host = host.env("DSH_TEST_KILLED_HOST", "1").stdout(Stdio::null()).spawn().unwrap();
    while running("34001") < 2 {
        assert_eq!(host.try_wait().unwrap(), None);
        tokio::task::yield_now().await;
    }
    host.kill().unwrap();
    host.wait().unwrap();
    all_gone("34001").await;
}
