//! The cache of compiled plugins and the process that compiles, from outside: entries that were tampered with, several processes at
//! once, components made to harm a compiler, and a host that is stopped meanwhile.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dsh_tests::host::{self, Outcome, Run};
use dsh_tests::sandbox::Sandbox;
use dsh_tests::target_dir;
use rustix::process::{Pid, Signal, kill_process};

/// Until when a process that was killed must be gone.
const GONE: Duration = Duration::from_secs(30);

/// A place with a cache of its own.
struct Bed {
    sandbox: Sandbox,
}

impl Bed {
    fn new() -> Self {
        Self { sandbox: Sandbox::new().expect("a folder") }
    }

    fn home(&self) -> PathBuf {
        self.sandbox.root().join("own")
    }

    fn cache(&self) -> PathBuf {
        self.home().join("cache")
    }

    fn environment(&self) -> Vec<(String, String)> {
        let mut environment = self.sandbox.environment();
        environment.push(("DSH_HOME".into(), self.home().to_string_lossy().into_owned()));
        environment
    }

    fn run(&self, args: &[&str]) -> Outcome {
        let args = args.iter().map(ToString::to_string).collect();
        let run = Run { args, env: self.environment(), dir: self.sandbox.workspace.clone(), ..Run::default() };
        host::run(&run).expect("it runs")
    }

    /// A run with the plugin `echo` that has to go well; what it says on standard error.
    fn echo(&self) -> String {
        let outcome = self.run(&["--plugin", "echo", "--model", "echo", "--no-save", "echo hi"]);
        assert_eq!((outcome.exit, outcome.stdout.as_str()), (0, "HI\n"), "{}", outcome.stderr);
        outcome.stderr
    }

    /// The entries, without what processes at work have there.
    fn entries(&self) -> Vec<PathBuf> {
        let names = fs::read_dir(self.cache()).expect("a cache").map(|entry| entry.expect("an entry").path());
        let mut entries: Vec<PathBuf> = names.collect();
        entries.sort();
        entries
    }

    fn entry(&self) -> PathBuf {
        let entries = self.entries();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.into_iter().next().expect("one")
    }

    /// Starts a run with the plugin in `file`, and waits until it compiles.
    fn start(&self, program: &Path, file: &Path, args: &[&str]) -> Child {
        let mut command = Command::new(program);
        command.args(["--model", "echo", "--no-save", "hi", "--plugin"]).arg(file).args(args);
        command.env_clear().envs(self.environment()).current_dir(&self.sandbox.workspace);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        stderr.read_line(&mut line).expect("it says something");
        assert!(line.starts_with("note: compiling plugin "), "{line}");
        child
    }

    fn component(&self, name: &str, module: &[u8]) -> PathBuf {
        let path = self.sandbox.workspace.join(format!("{name}.wasm"));
        fs::write(&path, with_module(module)).expect("to write");
        path
    }
}

/// The plugin `echo` with one more core module inside, that nobody instantiates.
fn with_module(module: &[u8]) -> Vec<u8> {
    let echo = fs::read(target_dir().join("plugins/echo.wasm")).expect("built by `cargo xtask guests`");
    [echo, section(1, module)].concat()
}

fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).expect("seven bits");
        value >>= 7;
        bytes.push(if value == 0 { low } else { low | 0x80 });
        if value == 0 {
            return bytes;
        }
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [vec![id], number(content.len()), content.to_vec()].concat()
}

/// A module of so many functions from an `i32` to an `i32`, all with this body.
fn functions(count: usize, body: &[u8]) -> Vec<u8> {
    let types = [number(1), b"\x60\x01\x7f\x01\x7f".to_vec()].concat();
    let declared = [number(count), vec![0; count]].concat();
    let one = [number(body.len()), body.to_vec()].concat();
    let bodies = [number(count), one.repeat(count)].concat();
    [b"\0asm\x01\0\0\0".to_vec(), section(1, &types), section(3, &declared), section(10, &bodies)].concat()
}

/// A function whose 49,000 locals are all alive in loops: hours of work for a register allocator.
fn many_locals() -> Vec<u8> {
    const LOCALS: usize = 49_000;
    let mut round = b"\x03\x40".to_vec();
    for local in 1..LOCALS {
        let (before, other) = (number(local - 1), number(local * 7_919 % LOCALS));
        round.extend([b"\x20", &before[..], b"\x20", &other, b"\x6a\x21", &number(local)].concat());
    }
    round.extend(b"\x20\x00\x0d\x00\x0b");
    let locals = [number(1), number(LOCALS), vec![0x7f]].concat();
    functions(1, &[locals, round.repeat(4), b"\x20\x01\x0b".to_vec()].concat())
}

/// A table of 65,000 targets, forty times, among a thousand blocks.
fn many_targets() -> Vec<u8> {
    const BLOCKS: usize = 1_000;
    const TARGETS: usize = 65_000;
    let targets: Vec<u8> = (0..=TARGETS).flat_map(|target| number(target * 7 % BLOCKS)).collect();
    let table = [b"\x02\x40\x20\x00\x0e".to_vec(), number(TARGETS), targets, vec![0x0b]].concat();
    let body =
        [b"\0".to_vec(), b"\x02\x40".repeat(BLOCKS), table.repeat(40), vec![0x0b; BLOCKS], b"\x20\x00\x0b".to_vec()];
    functions(1, &body.concat())
}

/// Two million blocks inside each other.
fn deep_blocks() -> Vec<u8> {
    const DEPTH: usize = 2_000_000;
    functions(1, &[b"\0".to_vec(), b"\x02\x40".repeat(DEPTH), vec![0x0b; DEPTH], b"\x20\x00\x0b".to_vec()].concat())
}

/// The processes that compile for `host`.
fn compilers(host: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let ours = processes.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = arguments.split(|byte| *byte == 0).skip(1);
        let is_one = words.next()? == b"--compile-for-parent" && words.next()? == host.to_string().as_bytes();
        is_one.then_some(pid)
    });
    ours.collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < GONE, "{what}");
        std::thread::yield_now();
    }
}

fn ends(mut child: Child) -> (Option<i32>, String) {
    let mut stdout = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
    (child.wait().expect("it ends").code(), stdout)
}

#[test]
fn an_entry_that_was_tampered_with_is_compiled_again_and_never_run() {
    let bed = Bed::new();
    bed.echo();
    let (entry, whole) = (bed.entry(), fs::read(bed.entry()).expect("the entry"));
    assert_eq!(bed.echo(), "", "it is taken from the cache");
    let check = |what: &str, why: &str, change: &dyn Fn(&Path)| {
        change(&entry);
        let said = bed.echo();
        let expect = format!("is not used, because {why}; it is compiled again");
        assert!(said.starts_with("warning: plugin `echo`: ") && said.contains(&expect), "{what}: {said}");
        assert_eq!(said.lines().count(), 2, "{what}: {said}");
        assert_eq!(fs::symlink_metadata(&entry).expect("there").permissions().mode() & 0o7777, 0o600, "{what}");
        assert_eq!(bed.echo(), "", "{what}: it is good again");
        assert_eq!(bed.entries(), std::slice::from_ref(&entry), "{what}: nothing else is left");
    };
    let write = |path: &Path, bytes: &[u8]| fs::write(path, bytes).expect("to write");
    let damaged = "it is damaged";
    check("nothing", damaged, &|path| write(path, b""));
    check("the head only", damaged, &|path| write(path, &whole[..44]));
    check("half of it", damaged, &|path| write(path, &whole[..whole.len() / 2]));
    check("one byte less", damaged, &|path| write(path, &whole[..whole.len() - 1]));
    check("one byte more", damaged, &|path| write(path, &[&whole[..], b"x"].concat()));
    check("another byte at the end", damaged, &|path| {
        let mut changed = whole.clone();
        *changed.last_mut().expect("not empty") ^= 1;
        write(path, &changed);
    });
    check("zeros behind a good beginning", damaged, &|path| {
        write(path, &[&whole[..100], &vec![0; whole.len() - 100]].concat());
    });
    check("a hole of a terabyte", "it is larger than any machine code", &|path| {
        fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    });
    check("written by others", "other users can write to it", &|path| {
        fs::set_permissions(path, Permissions::from_mode(0o666)).expect("to change it");
    });
    check("a second name", "it has a second name (a hard link)", &|path| {
        let other = bed.sandbox.root().join("other");
        let _ = fs::remove_file(&other);
        fs::hard_link(path, other).expect("to link");
    });
    check("a link", "it is a symbolic link", &|path| {
        let other = bed.sandbox.root().join("moved");
        fs::rename(path, &other).and_then(|()| symlink(other, path)).expect("to link");
    });
    check("a pipe", "it is not a file", &|path| {
        fs::remove_file(path).expect("to remove");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    });
    check("a folder", "it is not a file", &|path| {
        fs::remove_file(path).and_then(|()| fs::create_dir(path)).expect("a folder");
    });
}

#[test]
fn an_entry_that_cannot_be_removed_is_told_once() {
    let bed = Bed::new();
    bed.echo();
    let entry = bed.entry();
    fs::remove_file(&entry)
        .and_then(|()| fs::create_dir_all(entry.join("full")))
        .expect("a folder with something in it");
    for _ in 0..2 {
        let said = bed.echo();
        assert_eq!(said.matches("is not used, because it is not a file").count(), 1, "{said}");
        assert_eq!(said.matches("could not be kept in").count(), 1, "{said}");
    }
}

#[test]
fn an_entry_cannot_stand_in_for_another() {
    let bed = Bed::new();
    assert_eq!(bed.run(&["plugin", "compile", "echo", "sandbox"]).exit, 0);
    let entries = bed.entries();
    let (first, second) = (fs::read(&entries[0]).expect("one"), fs::read(&entries[1]).expect("two"));
    fs::write(&entries[0], &second).and_then(|()| fs::write(&entries[1], &first)).expect("to swap them");
    assert!(bed.echo().contains("because it is damaged"));
}

#[test]
fn a_directory_that_may_only_be_read_is_used_and_one_of_others_is_not() {
    let bed = Bed::new();
    bed.echo();
    let mode = |mode| fs::set_permissions(bed.cache(), Permissions::from_mode(mode)).expect("to change it");
    mode(0o555);
    assert_eq!(bed.echo(), "");
    mode(0o777);
    let said = bed.echo();
    assert!(said.contains("is not used, because other users can write to it"), "{said}");
    assert!(said.contains("there is nowhere to keep the result"), "{said}");
    mode(0o755);
    assert_eq!(bed.echo(), "", "others may read the names");
}

#[test]
fn processes_that_start_at_once_compile_once() {
    let bed = Bed::new();
    let start = || {
        let mut command = Command::new(host::binary());
        command.args(["--plugin", "echo", "--model", "echo", "--no-save", "echo hi"]);
        command.env_clear().envs(bed.environment()).current_dir(&bed.sandbox.workspace).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let started: Vec<Child> = (0..6).map(|_| start()).collect();
    let done: Vec<_> = started.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
    let compiled = done.iter().filter(|output| !output.stderr.is_empty()).count();
    for output in &done {
        assert_eq!(output.stdout, b"HI\n", "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(compiled, 1, "the others waited for it");
    assert_eq!(bed.echo(), "");
    bed.entry();
}

#[test]
fn plugins_that_miss_the_cache_are_reported_in_order_when_they_fail() {
    let bed = Bed::new();
    let bad = bed.sandbox.workspace.join("bad.wasm");
    fs::write(&bad, "no component").expect("to write");
    let args =
        ["--model", "echo", "--no-save", "hi", "--compile-memory-mib", "4", "--plugin", "echo", "--plugin", "bad.wasm"];
    let outcome = bed.run(&args);
    assert_eq!((outcome.exit, outcome.stdout.as_str()), (2, ""));
    assert!(outcome.stderr.contains("plugin `echo`") && !outcome.stderr.contains("bad"), "{}", outcome.stderr);
}

#[test]
fn a_component_made_to_harm_a_compiler_is_refused_and_the_host_unharmed() {
    let bed = Bed::new();
    let check = |name: &str, module: &[u8], limits: &[&str], expect: &[&str]| {
        let file = bed.component(name, module);
        let file = file.to_string_lossy();
        let outcome = bed.run(&[&["--plugin", &file, "--model", "echo", "--no-save", "hi"], limits].concat());
        assert_eq!((outcome.exit, outcome.stdout.as_str()), (2, ""), "{name}: {}", outcome.stderr);
        let lines: Vec<&str> = outcome.stderr.lines().filter(|line| !line.starts_with("note: compil")).collect();
        let [error, hint] = lines[..] else { panic!("{name}: {}", outcome.stderr) };
        let begins = format!("error: plugin `{name}` (`{file}`): it takes too much to compile: more than ");
        let limit = error.strip_prefix(&begins).unwrap_or_else(|| panic!("{name}: {error}"));
        assert!(expect.contains(&limit), "{name}: {limit}");
        assert!(hint.starts_with("hint: ") && hint.contains("--compile-m"), "{hint}");
        assert_eq!(bed.entries(), Vec::<PathBuf>::new(), "{name}: nothing is kept");
    };
    // On a busy machine it may not get its processor time.
    let cpu = ["2000 ms of processor time (`compile-ms`)", "8000 ms on the clock (4 times `compile-ms`)"];
    let (memory, much) = (["--compile-memory-mib", "256"], ["256 MiB of memory (`compile-memory-mib`)"]);
    check("locals", &many_locals(), &["--compile-ms", "2000"], &cpu);
    check("targets", &many_targets(), &memory, &much);
    check("blocks", &deep_blocks(), &memory, &much);
    let small = functions(200_000, b"\0\x20\x00\x41\x01\x6a\x0b");
    check("functions", &small, &memory, &much);
    bed.echo();
}

#[test]
fn a_host_that_is_interrupted_or_killed_leaves_no_compiler_behind() {
    let bed = Bed::new();
    let file = bed.component("locals", &many_locals());
    for (signal, expect) in [(Signal::INT, Some(130)), (Signal::TERM, Some(130)), (Signal::KILL, None)] {
        let child = bed.start(&host::binary(), &file, &[]);
        let id = child.id();
        until("it compiles in another process", || !compilers(id).is_empty());
        let pid = Pid::from_raw(i32::try_from(id).expect("a number")).expect("a process");
        kill_process(pid, signal).expect("it runs");
        let (code, stdout) = ends(child);
        assert_eq!((code, stdout.as_str()), (expect, ""), "{signal:?}");
        until("nobody compiles for it any more", || compilers(id).is_empty());
    }
}

#[test]
fn a_compiler_that_is_killed_is_a_refusal() {
    let bed = Bed::new();
    let file = bed.component("locals", &many_locals());
    let mut command = Command::new(host::binary());
    command.args(["--model", "echo", "--no-save", "hi", "--plugin"]).arg(&file).env_clear().envs(bed.environment());
    command.current_dir(&bed.sandbox.workspace).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    until("it compiles in another process", || !compilers(child.id()).is_empty());
    let compiler = compilers(child.id())[0];
    kill_process(Pid::from_raw(compiler).expect("a process"), Signal::KILL).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("`): the process that compiles it was killed\nhint: if this machine ran out of memory"),
        "{said}"
    );
}

#[test]
fn a_program_that_was_removed_meanwhile_still_compiles() {
    let bed = Bed::new();
    let copy = bed.sandbox.root().join("copy");
    fs::copy(host::binary(), &copy).expect("to copy");
    let pipe = bed.sandbox.root().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let echo = target_dir().join("plugins/echo.wasm");
    let mut command = Command::new(&copy);
    command.args(["--model", "echo", "--no-save", "echo hi", "--plugin"]).arg(&echo);
    command.arg("--plugin-config").arg(format!("echo=@{}", pipe.display()));
    command.env_clear().envs(bed.environment()).current_dir(&bed.sandbox.workspace).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // It is open when the program reads its configuration, and so runs.
    let mut configuration = fs::OpenOptions::new().write(true).open(&pipe).expect("somebody reads");
    fs::remove_file(&copy).expect("to remove");
    configuration.write_all(b"{}").expect("it reads");
    drop(configuration);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"HI\n", "{}", String::from_utf8_lossy(&output.stderr));
    bed.entry();
}

/// A run with the plugin `echo` in a shell that sets limits before.
fn limited(bed: &Bed, limits: &str) -> Outcome {
    let program = host::binary();
    let script = format!("{limits}; exec '{}' --plugin echo --model echo --no-save 'echo hi'", program.display());
    let args = vec!["-c".into(), script];
    let run = Run { args, env: bed.environment(), dir: bed.sandbox.workspace.clone(), ..Run::default() };
    host::run_program(Path::new("/bin/bash"), &run).expect("it runs")
}

#[test]
fn little_address_space_is_enough() {
    let outcome = limited(&Bed::new(), "ulimit -v 16000000; ulimit -c unlimited");
    assert_eq!((outcome.exit, outcome.stdout.as_str()), (0, "HI\n"), "{}", outcome.stderr);
}

#[test]
fn what_the_machine_does_not_give_is_no_fault_of_the_plugin() {
    let check = |limits: &str, exit: i32, expect: &str| {
        let outcome = limited(&Bed::new(), limits);
        assert_eq!((outcome.exit, outcome.stdout.as_str()), (exit, ""), "{limits}: {}", outcome.stderr);
        assert!(outcome.stderr.ends_with(expect), "{limits}: {}", outcome.stderr);
    };
    check(
        "ulimit -n 8",
        7,
        "error: this process cannot have the threads it needs: Too many open files (os error 24)\nhint: look at `ulimit -u`, `ulimit -n`, and at the limit on processes of the container\n",
    );
    check(
        "ulimit -n 14",
        2,
        "the process that compiles it cannot be started: Too many open files (os error 24)\nhint: this program starts itself to compile: look at `ulimit -u`, `ulimit -n` and whether `/proc` is mounted\n",
    );
    check(
        "ulimit -v 2000000",
        2,
        "this machine gives it no memory: Cannot allocate memory (os error 12)\nhint: each memory of a plugin takes 4 GiB of address space, of which little is used: look at `ulimit -v`\n",
    );
}

#[test]
fn a_full_disk_only_costs_time() {
    let bed = Bed::new();
    for _ in 0..2 {
        let outcome = limited(&bed, "ulimit -f 100");
        assert_eq!((outcome.exit, outcome.stdout.as_str()), (0, "HI\n"), "{}", outcome.stderr);
        let warned = outcome.stderr.lines().filter(|line| line.contains("could not be kept in")).count();
        assert_eq!(warned, 1, "{}", outcome.stderr);
        assert!(outcome.stderr.contains(" s (there is nowhere to keep the result)\n"), "{}", outcome.stderr);
        assert_eq!(bed.entries(), Vec::<PathBuf>::new(), "nothing half written is left");
    }
}

#[test]
fn nothing_is_said_with_q_and_nothing_ever_on_standard_output() {
    let bed = Bed::new();
    let outcome = bed.run(&["-q", "--plugin", "echo", "--model", "echo", "--no-save", "echo hi"]);
    assert_eq!((outcome.exit, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "HI\n", ""));
    let bed = Bed::new();
    let outcome = bed.run(&["--plugin", "echo", "--plugin", "sandbox", "--model", "echo", "--no-save", "echo hi"]);
    assert_eq!((outcome.exit, outcome.stdout.as_str()), (0, "HI\n"));
    let mut lines: Vec<&str> = outcome.stderr.lines().collect();
    lines.sort_unstable();
    let expect = ["note: compiled plugin `echo` (", "note: compiled plugin `sandbox` ("];
    assert_eq!(lines.len(), expect.len(), "{lines:?}");
    for (line, expect) in lines.iter().zip(expect) {
        assert!(line.starts_with(expect) && line.ends_with(" s (once; the result is kept)"), "{line}");
    }
}

#[test]
fn a_full_cache_lets_go_of_what_was_not_used_for_the_longest_time() {
    let bed = Bed::new();
    let run = |plugin: &str| {
        let outcome =
            bed.run(&["-q", "--plugin", plugin, "--cache-max-mib", "1", "--model", "echo", "--no-save", "hi"]);
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
    };
    run("echo");
    let echo = bed.entry();
    fs::File::options()
        .append(true)
        .open(&echo)
        .and_then(|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH))
        .expect("long ago");
    // The one is about half a MiB, the other more than that.
    run("shell");
    run("compaction");
    assert!(!echo.exists(), "{:?}", bed.entries());
    let size: u64 = bed.entries().iter().map(|entry| fs::metadata(entry).expect("there").len()).sum();
    assert!(size <= 1024 * 1024, "{size}");
}
