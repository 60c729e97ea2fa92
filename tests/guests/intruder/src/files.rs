//! Steps over files.

use std::any::Any;
use std::cell::RefCell;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{Advice, Descriptor, DescriptorFlags, ErrorCode, NewTimestamp, OpenFlags, PathFlags};
use wasip2::io::streams::StreamError;

use crate::{Told, c, code};

/// Paths are below the granted directory `dir` (default: the shortest, `.` last), or below the open one when `dir` is `"open"`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// The granted directories.
    Preopens,
    /// Opens, and keeps it as the open one.
    Open(Open),
    /// Opens it so many times and keeps all.
    OpenMany {
        path: String,
        count: u32,
    },
    /// Streams of the file so many times, without their descriptors.
    HoldStreams {
        path: String,
        count: u32,
    },
    /// The same, for writing.
    HoldWriters {
        path: String,
        count: u32,
    },
    /// Begins to list the directory so many times.
    HoldListings {
        path: String,
        count: u32,
    },
    /// Asks for the granted directories so many times and keeps all of them.
    HoldPreopens {
        count: u32,
    },
    /// Closes what is open, all of it.
    Close,
    Stat(At),
    Hash(At),
    SetTimes(At),
    Readlink(At),
    /// Opens it as a C program does; the error is a number of the library.
    COpen(At),
    /// Looks at it as a C program does.
    CStat(At),
    /// Looks into it as a C program does.
    CList(At),
    Mkdir(At),
    Rmdir(At),
    Unlink(At),
    Symlink(Pair),
    Rename(Pair),
    Link(Pair),
    /// Reads the whole file.
    Cat(At),
    /// The names, sorted; above 20 only their number.
    List(At),
    /// The names and what they are, sorted.
    ListTypes(At),
    /// The functions of the open descriptor.
    FdRead,
    FdStream,
    FdWrite,
    FdWriteStream,
    FdAppend,
    FdSetSize,
    FdSetTimes,
    FdStat,
    FdFlags,
    FdType,
    FdAdvise,
    FdSync,
    FdList,
    /// Whether the open descriptor is the directory `dir`.
    FdIs(At),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct At {
    dir: Option<String>,
    #[serde(default = "here")]
    path: String,
    #[serde(default)]
    follow: bool,
}

fn here() -> String {
    ".".to_owned()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pair {
    dir: Option<String>,
    path: String,
    to_dir: Option<String>,
    to: String,
    #[serde(default)]
    follow: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Open {
    dir: Option<String>,
    path: String,
    #[serde(default)]
    follow: bool,
    /// `read`, `write`, `mutate`, `create`, `exclusive`, `truncate`, `directory`.
    #[serde(default)]
    with: Vec<String>,
}

thread_local! {
    /// What is open; it outlives the call.
    static OPEN: RefCell<Vec<Descriptor>> = const { RefCell::new(Vec::new()) };
    /// What else is held.
    static HELD: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Makes so many of something and keeps them.
fn hold<T: 'static>(count: u32, mut make: impl FnMut() -> Result<T, String>) -> Told {
    for n in 0..count {
        let made = make().map_err(|error| format!("{error} after {n}"))?;
        HELD.with_borrow_mut(|all| all.push(Box::new(made)));
    }
    Ok(json!(count))
}

fn open(path: &str, open: OpenFlags, flags: DescriptorFlags) -> Result<Descriptor, String> {
    within(None, |dir| dir.open_at(PathFlags::empty(), path, open, flags))
}

/// Takes one step.
pub fn take(step: Step) -> Told {
    match step {
        Step::Preopens => Ok(json!(get_directories().into_iter().map(|(_, name)| name).collect::<Vec<_>>())),
        Step::Open(open) => {
            let opened = within(open.dir.as_deref(), |dir| {
                dir.open_at(path_flags(open.follow), &open.path, open_flags(&open.with), flags(&open.with))
            })?;
            OPEN.with_borrow_mut(|all| all.push(opened));
            Ok(json!(true))
        }
        Step::OpenMany { path, count } => {
            for n in 0..count {
                let opened = open(&path, OpenFlags::empty(), DescriptorFlags::READ);
                let opened = opened.map_err(|error| format!("{error} after {n}"))?;
                OPEN.with_borrow_mut(|all| all.push(opened));
            }
            Ok(json!(count))
        }
        Step::HoldStreams { path, count } => hold(count, || {
            let file = open(&path, OpenFlags::empty(), DescriptorFlags::READ)?;
            file.read_via_stream(0).map_err(|error| code(&error))
        }),
        Step::HoldWriters { path, count } => hold(count, || {
            let file = open(&path, OpenFlags::empty(), DescriptorFlags::WRITE)?;
            file.append_via_stream().map_err(|error| code(&error))
        }),
        Step::HoldListings { path, count } => hold(count, || {
            let dir = open(&path, OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
            let listing = dir.read_directory().map_err(|error| code(&error))?;
            drop(dir);
            listing.read_directory_entry().map_err(|error| code(&error))?.ok_or("nothing is in it")?;
            Ok(listing)
        }),
        Step::HoldPreopens { count } => hold(count, || Ok(get_directories())),
        Step::Close => {
            OPEN.with_borrow_mut(Vec::clear);
            HELD.with_borrow_mut(Vec::clear);
            Ok(json!(true))
        }
        other => at_path(other),
    }
}

fn at_path(step: Step) -> Told {
    match step {
        Step::Stat(at) => within(at.dir.as_deref(), |dir| dir.stat_at(path_flags(at.follow), &at.path))
            .map(|stat| json!({ "type": code(&stat.type_), "size": stat.size, "links": stat.link_count })),
        Step::Hash(at) => within(at.dir.as_deref(), |dir| dir.metadata_hash_at(path_flags(at.follow), &at.path))
            .map(|_| json!("a hash")),
        Step::SetTimes(at) => within(at.dir.as_deref(), |dir| {
            dir.set_times_at(path_flags(at.follow), &at.path, NewTimestamp::Now, NewTimestamp::Now)
        })
        .map(|()| json!(true)),
        Step::Readlink(at) => within(at.dir.as_deref(), |dir| dir.readlink_at(&at.path)).map(|to| json!(to)),
        Step::COpen(at) => c::open_it(&at.path),
        Step::CStat(at) => c::look(&at.path),
        Step::CList(at) => c::list(&at.path),
        Step::Mkdir(at) => within(at.dir.as_deref(), |dir| dir.create_directory_at(&at.path)).map(|()| json!(true)),
        Step::Rmdir(at) => within(at.dir.as_deref(), |dir| dir.remove_directory_at(&at.path)).map(|()| json!(true)),
        Step::Unlink(at) => within(at.dir.as_deref(), |dir| dir.unlink_file_at(&at.path)).map(|()| json!(true)),
        Step::Symlink(pair) => {
            within(pair.dir.as_deref(), |dir| dir.symlink_at(&pair.to, &pair.path)).map(|()| json!(true))
        }
        Step::Rename(pair) => two(&pair, |dir, to| dir.rename_at(&pair.path, to, &pair.to)),
        Step::Link(pair) => two(&pair, |dir, to| dir.link_at(path_flags(pair.follow), &pair.path, to, &pair.to)),
        Step::Cat(at) => {
            let file = within(at.dir.as_deref(), |dir| {
                dir.open_at(path_flags(at.follow), &at.path, OpenFlags::empty(), DescriptorFlags::READ)
            })?;
            read(&file)
        }
        Step::ListTypes(at) => {
            let dir = within(at.dir.as_deref(), |dir| {
                dir.open_at(path_flags(at.follow), &at.path, OpenFlags::DIRECTORY, DescriptorFlags::READ)
            })?;
            let stream = dir.read_directory().map_err(|error| code(&error))?;
            let mut found = Vec::new();
            while let Some(entry) = stream.read_directory_entry().map_err(|error| code(&error))? {
                found.push(format!("{}: {}", entry.name, code(&entry.type_)));
            }
            found.sort();
            Ok(json!(found))
        }
        Step::List(at) => {
            let opened = within(at.dir.as_deref(), |dir| {
                dir.open_at(path_flags(at.follow), &at.path, OpenFlags::DIRECTORY, DescriptorFlags::READ)
            })?;
            list(&opened)
        }
        other => with_open(|fd| of_open(&other, fd)),
    }
}

fn of_open(step: &Step, fd: &Descriptor) -> Told {
    let done = |result: Result<(), ErrorCode>| result.map(|()| json!(true)).map_err(|error| code(&error));
    match step {
        Step::FdRead => read(fd),
        Step::FdStream => {
            let stream = fd.read_via_stream(0).map_err(|error| code(&error))?;
            stream.blocking_read(1 << 16).map(text).map_err(stream_error)
        }
        Step::FdWrite => fd.write(b"intruded", 0).map(|n| json!(n)).map_err(|error| code(&error)),
        Step::FdWriteStream => {
            let stream = fd.write_via_stream(0).map_err(|error| code(&error))?;
            stream.blocking_write_and_flush(b"intruded").map(|()| json!(true)).map_err(stream_error)
        }
        Step::FdAppend => {
            let stream = fd.append_via_stream().map_err(|error| code(&error))?;
            stream.blocking_write_and_flush(b"intruded").map(|()| json!(true)).map_err(stream_error)
        }
        Step::FdSetSize => done(fd.set_size(0)),
        Step::FdSetTimes => done(fd.set_times(NewTimestamp::Now, NewTimestamp::Now)),
        Step::FdStat => fd.stat().map(|stat| json!({ "size": stat.size })).map_err(|error| code(&error)),
        Step::FdFlags => fd.get_flags().map(|flags| json!(names(flags))).map_err(|error| code(&error)),
        Step::FdType => fd.get_type().map(|kind| json!(code(&kind))).map_err(|error| code(&error)),
        Step::FdAdvise => done(fd.advise(0, 1, Advice::WillNeed)),
        Step::FdSync => done(fd.sync().and_then(|()| fd.sync_data())),
        Step::FdList => list(fd),
        Step::FdIs(at) => Ok(json!(fd.is_same_object(&directory(at.dir.as_deref())?))),
        _ => Err("no step of an open descriptor".to_owned()),
    }
}

/// Runs `f` in a directory.
fn within<R>(dir: Option<&str>, f: impl FnOnce(&Descriptor) -> Result<R, ErrorCode>) -> Result<R, String> {
    if dir == Some("open") {
        return with_open(|fd| f(fd).map_err(|error| code(&error)));
    }
    f(&directory(dir)?).map_err(|error| code(&error))
}

fn directory(name: Option<&str>) -> Result<Descriptor, String> {
    let mut dirs = get_directories();
    dirs.sort_by_key(|(_, name)| (name == ".", name.len()));
    let found = dirs.into_iter().find(|(_, known)| name.is_none_or(|name| name == known));
    Ok(found.ok_or("no such directory")?.0)
}

fn two(pair: &Pair, f: impl FnOnce(&Descriptor, &Descriptor) -> Result<(), ErrorCode>) -> Told {
    let to = directory(pair.to_dir.as_deref().or(pair.dir.as_deref()))?;
    within(pair.dir.as_deref(), |dir| f(dir, &to)).map(|()| json!(true))
}

fn with_open<R>(f: impl FnOnce(&Descriptor) -> Result<R, String>) -> Result<R, String> {
    OPEN.with_borrow(|all| f(all.last().ok_or("nothing is open")?))
}

fn read(file: &Descriptor) -> Told {
    let (bytes, _) = file.read(1 << 16, 0).map_err(|error| code(&error))?;
    Ok(text(bytes))
}

fn text(bytes: Vec<u8>) -> serde_json::Value {
    json!(String::from_utf8_lossy(&bytes))
}

fn list(dir: &Descriptor) -> Told {
    let stream = dir.read_directory().map_err(|error| code(&error))?;
    let mut found = Vec::new();
    loop {
        match stream.read_directory_entry() {
            Ok(Some(entry)) => found.push(entry.name),
            Ok(None) => break,
            Err(error) => found.push(format!("({})", code(&error))),
        }
    }
    found.sort();
    Ok(if found.len() > 20 { json!(found.len()) } else { json!(found) })
}

fn stream_error(error: StreamError) -> String {
    match error {
        StreamError::Closed => "closed".to_owned(),
        StreamError::LastOperationFailed(error) => error.to_debug_string(),
    }
}

fn path_flags(follow: bool) -> PathFlags {
    if follow { PathFlags::SYMLINK_FOLLOW } else { PathFlags::empty() }
}

fn open_flags(with: &[String]) -> OpenFlags {
    let flag = |name: &str, flag| if with.iter().any(|with| with == name) { flag } else { OpenFlags::empty() };
    flag("create", OpenFlags::CREATE)
        | flag("exclusive", OpenFlags::EXCLUSIVE)
        | flag("truncate", OpenFlags::TRUNCATE)
        | flag("directory", OpenFlags::DIRECTORY)
}

fn flags(with: &[String]) -> DescriptorFlags {
    let flag = |name: &str, flag| if with.iter().any(|with| with == name) { flag } else { DescriptorFlags::empty() };
    flag("read", DescriptorFlags::READ)
        | flag("write", DescriptorFlags::WRITE)
        | flag("mutate", DescriptorFlags::MUTATE_DIRECTORY)
}

fn names(flags: DescriptorFlags) -> Vec<&'static str> {
    let all = [
        (DescriptorFlags::READ, "read"),
        (DescriptorFlags::WRITE, "write"),
        (DescriptorFlags::MUTATE_DIRECTORY, "mutate"),
    ];
    all.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, name)| name).collect()
}
