//! Files for guests: the granted directories as preopens, and a second wall around them.
//!
//! wasmtime's implementation keeps a guest inside each directory and honours read-only ones. This layer decides again, by itself, for every
//! operation, because read-only was broken there three times in one year, and because it knows more: of overlapping grants the longest
//! prefix decides, and a tool runs under a profile that may take away parts of a granted directory. Each open descriptor carries the
//! access that was decided when it was opened.
//!
//! Where access can change below a directory, a path is followed once (`place`), judged by where it really leads, and then used there
//! without following any link again: what is swapped meanwhile leads to an error, not elsewhere. Opening is ours alone, because a pipe
//! must not hold a thread for ever. Everything that asks the disk runs on threads that may wait. What a guest holds open is counted
//! (`slots`), and a directory is read in pieces (`listing`).

use std::collections::HashMap;
use std::fs::File;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cap_std::fs::Dir;
use dsh_seam::tools::covers;
use wasmtime::component::{HasData, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{self, DescriptorFlags, ErrorCode, OpenFlags, PathFlags};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};
use wasmtime_wasi::{FsPerms, OpenMode};

use crate::grants::{Grant, GrantPath};
use crate::output::clean;
use crate::plugin::Core;
use crate::store::GuestState;
use crate::words::{Access, PluginName, Profile};

use super::listing::{Listing, Piece};
use super::place::{Found, Place, Wish, blocking, stays_within};
use super::refusals::Refusals;
use super::slots::{Held, MAX_INSTANCE_FILES, Slot, Slots};

/// A directory that was granted, opened through the workspace when the plugin was loaded.
#[derive(Clone)]
pub(crate) struct GrantedDir {
    /// As written in the grant.
    pub path: GrantPath,
    /// Where it really is, relative to the workspace and without links.
    pub real: String,
    pub access: Access,
    /// All instances share this one descriptor.
    dir: wasmtime_wasi::filesystem::Dir,
}

/// Opens the directory of a grant below the workspace. Links may not lead out of it.
pub(crate) fn open_granted(workspace: &Dir, path: &GrantPath, access: Access) -> std::io::Result<GrantedDir> {
    if access == Access::Write {
        workspace.create_dir_all(&path.normal)?;
    }
    let real = real_path(workspace, &path.normal)?;
    let (perms, mode) = permissions(access);
    let dir = workspace.open_dir(&path.normal)?.into_std_file();
    let dir = wasmtime_wasi::filesystem::Dir::new(dir, perms, mode, false);
    Ok(GrantedDir { path: path.clone(), real, access, dir })
}

/// `path` without links, relative to `dir`, with `/`; `.` for `dir` itself.
fn real_path(dir: &Dir, path: &str) -> std::io::Result<String> {
    if path == "." {
        return Ok(".".into());
    }
    Ok(portable(&dir.canonicalize(path)?))
}

pub(super) fn portable(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_string_lossy()),
        _ => None,
    });
    let parts: Vec<_> = parts.collect();
    if parts.is_empty() { ".".into() } else { parts.join("/") }
}

pub(super) fn join(base: &str, path: &str) -> String {
    match (base, path) {
        (base, ".") => base.to_owned(),
        (".", path) => path.to_owned(),
        (base, path) => format!("{base}/{path}"),
    }
}

/// The longest path that Linux takes.
pub(super) const MAX_PATH_BYTES: usize = 4_096;

/// What one instance may do with files.
pub(crate) struct FsLayer {
    dirs: Vec<GrantedDir>,
    /// The profile with its paths resolved; none when it takes nothing away.
    profile: Option<Profile>,
    /// Whether access can change below a preopen, so that every path has to be resolved.
    mixed: bool,
    open: HashMap<u32, Opened>,
    /// Whether there is a workspace to grant something of.
    in_workspace: bool,
    null: Option<wasmtime_wasi::filesystem::File>,
    slots: Slots,
    /// Whether the diagnostics know that it wanted to hold too much open.
    told_full: bool,
}

/// What is known of an open descriptor.
#[derive(Clone)]
struct Opened {
    /// Where it is, relative to the workspace; only kept right while `mixed`.
    real: String,
    access: Access,
    /// False for the place that stands for everything that was not granted: nothing can be done there.
    granted: bool,
    /// None for what costs nothing: the granted directories, which all instances share.
    slot: Option<Slot>,
}

/// The name of the directory that holds what was not granted.
const NOWHERE: &str = ".";

impl FsLayer {
    pub(crate) fn new(core: &Core, profile: Option<&Profile>) -> Self {
        let profile = profile
            .filter(|profile| !profile.is_unrestricted())
            .map(|profile| resolved(profile, core.workspace.as_deref()));
        let dirs = core.dirs.clone();
        let nested = dirs.iter().any(|a| dirs.iter().any(|b| a.access != b.access && covers(&a.real, &b.real)));
        Self {
            mixed: nested || profile.is_some(),
            in_workspace: core.workspace.is_some(),
            open: HashMap::new(),
            null: None,
            slots: Slots::default(),
            told_full: false,
            profile,
            dirs,
        }
    }

    /// What stands for what was not granted: no directory, so that there is nothing to be done with it underneath either.
    fn nothing(&mut self) -> wasmtime::Result<Option<Descriptor>> {
        if !self.in_workspace {
            return Ok(None);
        }
        let file = match &self.null {
            Some(file) => file.clone(),
            None => {
                let file = File::open("/dev/null")?;
                let file = wasmtime_wasi::filesystem::File::new(file, FsPerms::ReadOnly, OpenMode::empty(), false);
                self.null.insert(file).clone()
            }
        };
        Ok(Some(Descriptor::File(file)))
    }

    /// The granted directory that decides over a place of the workspace: the one with the longest prefix.
    fn granted(&self, real: &str) -> Option<&GrantedDir> {
        let depth = |path: &str| if path == "." { 0 } else { path.len() };
        self.dirs.iter().filter(|dir| covers(&dir.real, real)).max_by_key(|dir| (depth(&dir.real), dir.access))
    }

    /// What may be done with a place of the workspace: by its grant, and by the profile.
    fn access(&self, real: &str) -> Option<Access> {
        let granted = self.granted(real)?.access;
        match &self.profile {
            None => Some(granted),
            Some(profile) => Some(granted.min(profile.access(real)?)),
        }
    }

    /// Whether something below `real` may do less than `real` itself: moving or removing it would take that along.
    fn less_below(&self, real: &str) -> bool {
        let below = |path: &str| path != real && covers(real, path);
        self.dirs.iter().any(|dir| dir.access == Access::Read && below(&dir.real))
            || self.profile.iter().flat_map(|profile| &profile.denied).any(|denied| below(&denied.path))
    }
}

/// The profile with the real places of its paths beside the written ones, so that a link is no way around it.
fn resolved(profile: &Profile, workspace: Option<&Dir>) -> Profile {
    let mut profile = profile.clone();
    let Some(workspace) = workspace else { return profile };
    for grants in [&mut profile.paths, &mut profile.denied] {
        let mut real = Vec::new();
        for grant in grants.iter() {
            let mut there = grant.clone();
            if let Ok(path) = real_path(workspace, &grant.path) {
                there.path = path;
            }
            real.push(there);
        }
        real.extend(grants.drain(..).filter(|grant| !real.contains(grant)).collect::<Vec<_>>());
        *grants = real;
    }
    profile
}

/// The data behind `wasi:filesystem`.
pub(crate) struct Fs;

impl HasData for Fs {
    type Data<'a> = FsView<'a>;
}

/// Our layer over wasmtime's.
pub(crate) struct FsView<'a> {
    inner: WasiFilesystemCtxView<'a>,
    layer: &'a mut FsLayer,
    plugin: &'a PluginName,
    refusals: &'a Refusals,
    /// Set when something is refused; none outside of `call-tool`.
    refused: Option<&'a AtomicBool>,
}

impl GuestState {
    pub(crate) fn files(&mut self) -> FsView<'_> {
        self.count();
        FsView {
            inner: self.wasi.filesystem(),
            layer: &mut self.fs,
            plugin: &self.core.name,
            refusals: &self.refusals,
            refused: self.call.refused.as_deref(),
        }
    }
}

type Fd = Resource<Descriptor>;

impl FsView<'_> {
    fn opened(&self, fd: &Fd) -> FsResult<Opened> {
        self.layer.open.get(&fd.rep()).cloned().ok_or_else(|| ErrorCode::BadDescriptor.into())
    }

    /// What is known of a descriptor, if something was granted there. `path` is what the guest wants below it.
    fn granted(&mut self, fd: &Fd, path: &str, wanted: Access) -> FsResult<Opened> {
        let opened = self.opened(fd)?;
        if opened.granted { Ok(opened) } else { Err(self.refuse_ungranted(parent_of(path), wanted)) }
    }

    /// Names the directory that would have to be granted, as it can be said without a look at the disk.
    fn refuse_ungranted(&mut self, dir: &str, wanted: Access) -> FsError {
        // A path that leads out can be granted by nobody.
        if let Some(normal) = lexically(dir) {
            let path = GrantPath { written: normal.clone(), normal };
            self.note(if wanted == Access::Write { Grant::FsWrite(path) } else { Grant::FsRead(path) });
        }
        if wanted == Access::Write { ErrorCode::NotPermitted.into() } else { ErrorCode::Access.into() }
    }

    fn note(&mut self, grant: Grant) {
        self.refusals.note(grant);
        if let Some(refused) = self.refused {
            refused.store(true, Ordering::Relaxed);
        }
    }

    /// Decides over `path` below an open directory, and says where an operation on it is to be done.
    async fn place(&mut self, fd: &Fd, path: String, follow: bool, wanted: Access) -> FsResult<Here> {
        if wanted == Access::Read && path == NOWHERE && !self.opened(fd)?.granted {
            // A question whether it is there, which libraries ask of themselves: no, and nothing is missing.
            return Err(ErrorCode::Access.into());
        }
        let base = self.granted(fd, &path, wanted)?;
        if !self.layer.mixed {
            if base.access < wanted {
                return Err(self.refuse(&base.real, wanted));
            }
            return Ok(Here { fd: Resource::new_borrow(fd.rep()), name: path, opened: base, temporary: false });
        }
        let (dir, real) = (self.dir(fd)?, base.real);
        let found = blocking(move || Place::find(&dir, &real, &path, follow)).await?;
        let access = match self.layer.access(&found.real) {
            Some(access) if access >= wanted => access,
            _ => return Err(self.refuse(&found.real, wanted)),
        };
        let (perms, mode) = permissions(access);
        let parent = wasmtime_wasi::filesystem::Dir::new(found.parent, perms, mode, false);
        let fd = self.inner.table.push(Descriptor::Dir(parent))?;
        let opened = Opened { real: found.real, access, granted: true, slot: None };
        Ok(Here { fd, name: found.name, opened, temporary: true })
    }

    /// The operation on `here` is done.
    fn leave<R>(&mut self, here: Here, done: FsResult<R>) -> FsResult<R> {
        if here.temporary {
            self.inner.table.delete(here.fd)?;
        }
        done
    }

    /// [`FsView::place`] for moving, removing and linking: the place may be written, and nothing below it may do less.
    async fn place_to_move(&mut self, fd: &Fd, path: String) -> FsResult<Here> {
        let here = self.place(fd, path, false, Access::Write).await?;
        if self.layer.mixed && self.layer.less_below(&here.opened.real) {
            return self.leave(here, Err(ErrorCode::NotPermitted.into()));
        }
        Ok(here)
    }

    /// Where something is moved or linked from, and where to.
    async fn both_ends(&mut self, (fd, old): (&Fd, String), (new_fd, new): (&Fd, String)) -> FsResult<(Here, Here)> {
        self.check_moved_link((fd, &old), (new_fd, &new)).await?;
        let from = self.place_to_move(fd, old).await?;
        match self.place_to_move(new_fd, new).await {
            Ok(to) => Ok((from, to)),
            Err(error) => self.leave(from, Err(error)),
        }
    }

    /// Refuses to move a link to where it would lead out, as [`stays_within`] refuses to make it there.
    async fn check_moved_link(&mut self, (fd, old): (&Fd, &str), (new_fd, new): (&Fd, &str)) -> FsResult<()> {
        let (from, to) = (self.opened(fd)?, self.opened(new_fd)?);
        if !from.granted || !to.granted || from.access.min(to.access) < Access::Write {
            // It is refused for that.
            return Ok(());
        }
        let (dir, new_dir) = (self.dir(fd)?, self.dir(new_fd)?);
        let (old, new) = (old.to_owned(), new.to_owned());
        let stays = move || {
            let Some(target) = Place::find(&dir, &from.real, &old, false)?.link_target() else { return Ok(true) };
            Ok(stays_within(&Place::find(&new_dir, &to.real, &new, false)?, &to.real, &target))
        };
        if blocking(stays).await? { Ok(()) } else { Err(ErrorCode::NotPermitted.into()) }
    }

    fn dir(&self, fd: &Fd) -> FsResult<Arc<File>> {
        match self.inner.table.get(fd)? {
            Descriptor::Dir(dir) => Ok(dir.dir.clone()),
            Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    /// Refuses, and remembers which grant would have allowed it if the grants are what is in the way.
    fn refuse(&mut self, place: &str, wanted: Access) -> FsError {
        // The granted directory, not the file, is what can be granted.
        if let Some(dir) = self.layer.granted(place)
            && dir.access < wanted
        {
            let grant = Grant::FsWrite(dir.path.clone());
            self.note(grant);
        }
        if wanted == Access::Write { ErrorCode::NotPermitted.into() } else { ErrorCode::Access.into() }
    }

    /// Room for one more open file.
    fn slot(&mut self) -> FsResult<Slot> {
        if let Some(slot) = self.layer.slots.take() {
            return Ok(slot);
        }
        if !std::mem::replace(&mut self.layer.told_full, true) {
            tracing::warn!(target: "dsh::plugin", plugin = %self.plugin, "a file was not opened: an instance may hold {MAX_INSTANCE_FILES} of them open, and all plugins together half of what the system lets a process open (`ulimit -n`)");
        }
        Err(ErrorCode::Busy.into())
    }

    /// Makes a stream keep its file counted.
    fn hold_output(
        &mut self,
        slot: Option<Slot>,
        stream: Resource<DynOutputStream>,
    ) -> FsResult<Resource<DynOutputStream>> {
        let Some(slot) = slot else { return Ok(stream) };
        let stream: DynOutputStream = Box::new(Held::new(self.inner.table.delete(stream)?, slot));
        Ok(self.inner.table.push(stream)?)
    }

    fn must_write(&mut self, fd: &Fd) -> FsResult<()> {
        let opened = self.granted(fd, "", Access::Write)?;
        if opened.access == Access::Write { Ok(()) } else { Err(self.refuse(&opened.real, Access::Write)) }
    }
}

/// Where an operation is done: in a directory, under a name.
struct Here {
    fd: Fd,
    name: String,
    opened: Opened,
    /// Whether `fd` is there for this operation only; then `name` is one name, and no link is to be followed any more.
    temporary: bool,
}

impl Here {
    fn dir(&self) -> Fd {
        Resource::new_borrow(self.fd.rep())
    }

    fn flags(&self, wished: PathFlags) -> PathFlags {
        if self.temporary { PathFlags::empty() } else { wished }
    }
}

fn parent_of(path: &str) -> &str {
    path.trim_end_matches('/').rsplit_once('/').map_or(".", |(dir, _)| dir)
}

/// `path` without `..`, as far as that stays inside; links are not looked at. None when it cannot stand in an option: it leads out, is no
/// path of any system, or would show something else than it is.
fn lexically(path: &str) -> Option<String> {
    if path.starts_with('/') || path.len() > MAX_PATH_BYTES || clean(path.as_bytes()) != path {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(if parts.is_empty() { ".".into() } else { parts.join("/") })
}

fn permissions(access: Access) -> (FsPerms, OpenMode) {
    match access {
        Access::Read => (FsPerms::ReadOnly, OpenMode::READ),
        Access::Write => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
    }
}

impl preopens::Host for FsView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Fd, String)>> {
        let mut list = Vec::with_capacity(self.layer.dirs.len());
        for dir in &self.layer.dirs {
            let fd = self.inner.table.push(Descriptor::Dir(dir.dir.clone()))?;
            // A profile that hides the directory itself may still show what is below it.
            let access = self.layer.access(&dir.real).unwrap_or(Access::Read);
            self.layer.open.insert(fd.rep(), Opened { real: dir.real.clone(), access, granted: true, slot: None });
            // Behind a closing slash C's library would not find the directory itself, only what is in it.
            list.push((fd, dir.path.written.trim_end_matches('/').to_owned()));
        }
        // Libraries look for the directory of a path among these and give up without a word to us when there is none. So there is one
        // that holds nothing, and it can say which grant is missing.
        if !self.layer.dirs.iter().any(|dir| dir.path.normal == NOWHERE)
            && let Some(nothing) = self.layer.nothing()?
        {
            let fd = self.inner.table.push(nothing)?;
            let opened = Opened { real: NOWHERE.into(), access: Access::Read, granted: false, slot: None };
            self.layer.open.insert(fd.rep(), opened);
            list.push((fd, NOWHERE.into()));
        }
        Ok(list)
    }
}

impl types::Host for FsView<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        types::Host::convert_error_code(&mut self.inner, error)
    }

    fn filesystem_error_code(&mut self, error: Resource<wasmtime::Error>) -> wasmtime::Result<Option<ErrorCode>> {
        types::Host::filesystem_error_code(&mut self.inner, error)
    }
}

fn follows(flags: PathFlags) -> bool {
    flags.contains(PathFlags::SYMLINK_FOLLOW)
}

impl types::HostDescriptor for FsView<'_> {
    async fn open_at(
        &mut self,
        fd: Fd,
        path_flags: PathFlags,
        path: String,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Fd> {
        let wish = Wish::new(open, flags)?;
        let base = self.opened(&fd)?;
        if !base.granted {
            let dir = if open.contains(OpenFlags::DIRECTORY) { path.as_str() } else { parent_of(&path) };
            return Err(self.refuse_ungranted(dir, wish.access()));
        }
        let (dir, slot) = (self.dir(&fd)?, Some(self.slot()?));
        let follow = follows(path_flags);
        let (decided, file) = if self.layer.mixed {
            let real = base.real;
            let found = blocking(move || Place::find(&dir, &real, &path, follow)).await?;
            let access = match self.layer.access(&found.real) {
                Some(access) if access >= wish.access() => access,
                _ => return Err(self.refuse(&found.real, wish.access())),
            };
            let decided = Opened { real: found.real.clone(), access, granted: true, slot };
            (decided, blocking(move || found.open(wish)).await?)
        } else {
            if base.access < wish.access() {
                return Err(self.refuse(&base.real, wish.access()));
            }
            let file = blocking(move || Place::find(&dir, ".", &path, follow)?.open(wish)).await?;
            (Opened { slot, ..base }, file)
        };
        let (perms, _) = permissions(decided.access);
        let opened = match file {
            Found::Dir(dir) => Descriptor::Dir(wasmtime_wasi::filesystem::Dir::new(dir, perms, wish.mode(), false)),
            Found::File(file) => {
                Descriptor::File(wasmtime_wasi::filesystem::File::new(file, perms, wish.mode(), false))
            }
        };
        let opened = self.inner.table.push(opened)?;
        self.layer.open.insert(opened.rep(), decided);
        Ok(opened)
    }

    fn drop(&mut self, fd: Fd) -> wasmtime::Result<()> {
        self.layer.open.remove(&fd.rep());
        types::HostDescriptor::drop(&mut self.inner, fd)
    }

    async fn set_size(&mut self, fd: Fd, size: types::Filesize) -> FsResult<()> {
        self.must_write(&fd)?;
        types::HostDescriptor::set_size(&mut self.inner, fd, size).await
    }

    async fn set_times(
        &mut self,
        fd: Fd,
        accessed: types::NewTimestamp,
        modified: types::NewTimestamp,
    ) -> FsResult<()> {
        self.must_write(&fd)?;
        types::HostDescriptor::set_times(&mut self.inner, fd, accessed, modified).await
    }

    async fn write(&mut self, fd: Fd, bytes: Vec<u8>, offset: types::Filesize) -> FsResult<types::Filesize> {
        self.must_write(&fd)?;
        types::HostDescriptor::write(&mut self.inner, fd, bytes, offset).await
    }

    fn write_via_stream(&mut self, fd: Fd, offset: types::Filesize) -> FsResult<Resource<DynOutputStream>> {
        self.must_write(&fd)?;
        let slot = self.opened(&fd)?.slot;
        let stream = types::HostDescriptor::write_via_stream(&mut self.inner, fd, offset)?;
        self.hold_output(slot, stream)
    }

    fn append_via_stream(&mut self, fd: Fd) -> FsResult<Resource<DynOutputStream>> {
        self.must_write(&fd)?;
        let slot = self.opened(&fd)?.slot;
        let stream = types::HostDescriptor::append_via_stream(&mut self.inner, fd)?;
        self.hold_output(slot, stream)
    }

    async fn create_directory_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let here = self.place(&fd, path, false, Access::Write).await?;
        let done = types::HostDescriptor::create_directory_at(&mut self.inner, here.dir(), here.name.clone()).await;
        self.leave(here, done)
    }

    async fn remove_directory_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let here = self.place_to_move(&fd, path).await?;
        let done = types::HostDescriptor::remove_directory_at(&mut self.inner, here.dir(), here.name.clone()).await;
        self.leave(here, done)
    }

    async fn unlink_file_at(&mut self, fd: Fd, path: String) -> FsResult<()> {
        let here = self.place_to_move(&fd, path).await?;
        let done = types::HostDescriptor::unlink_file_at(&mut self.inner, here.dir(), here.name.clone()).await;
        self.leave(here, done)
    }

    async fn symlink_at(&mut self, fd: Fd, to: String, path: String) -> FsResult<()> {
        let opened = self.granted(&fd, &path, Access::Write)?;
        let dir = self.dir(&fd)?;
        let (base, target, link) = (opened.real, to.clone(), path.clone());
        // A link that leads out would be nothing to this guest, and a trap for whoever follows it without a sandbox.
        if opened.access == Access::Write
            && !blocking(move || Ok(stays_within(&Place::find(&dir, &base, &link, false)?, &base, &target))).await?
        {
            return Err(ErrorCode::NotPermitted.into());
        }
        let here = self.place(&fd, path, false, Access::Write).await?;
        let done = types::HostDescriptor::symlink_at(&mut self.inner, here.dir(), to, here.name.clone()).await;
        self.leave(here, done)
    }

    async fn rename_at(&mut self, fd: Fd, old: String, new_fd: Fd, new: String) -> FsResult<()> {
        let (from, to) = self.both_ends((&fd, old), (&new_fd, new)).await?;
        let (old, new) = (from.name.clone(), to.name.clone());
        let done = types::HostDescriptor::rename_at(&mut self.inner, from.dir(), old, to.dir(), new).await;
        let done = self.leave(from, done);
        self.leave(to, done)
    }

    async fn link_at(&mut self, fd: Fd, flags: PathFlags, old: String, new_fd: Fd, new: String) -> FsResult<()> {
        let (from, to) = self.both_ends((&fd, old), (&new_fd, new)).await?;
        let (old, new) = (from.name.clone(), to.name.clone());
        let done = types::HostDescriptor::link_at(&mut self.inner, from.dir(), flags, old, to.dir(), new).await;
        let done = self.leave(from, done);
        self.leave(to, done)
    }

    async fn set_times_at(
        &mut self,
        fd: Fd,
        flags: PathFlags,
        path: String,
        accessed: types::NewTimestamp,
        modified: types::NewTimestamp,
    ) -> FsResult<()> {
        let here = self.place(&fd, path, follows(flags), Access::Write).await?;
        let (dir, flags, name) = (here.dir(), here.flags(flags), here.name.clone());
        let done = types::HostDescriptor::set_times_at(&mut self.inner, dir, flags, name, accessed, modified).await;
        self.leave(here, done)
    }

    async fn stat_at(&mut self, fd: Fd, flags: PathFlags, path: String) -> FsResult<types::DescriptorStat> {
        let here = self.place(&fd, path, follows(flags), Access::Read).await?;
        let (dir, flags, name) = (here.dir(), here.flags(flags), here.name.clone());
        let done = types::HostDescriptor::stat_at(&mut self.inner, dir, flags, name).await;
        self.leave(here, done)
    }

    async fn readlink_at(&mut self, fd: Fd, path: String) -> FsResult<String> {
        let here = self.place(&fd, path, false, Access::Read).await?;
        let done = types::HostDescriptor::readlink_at(&mut self.inner, here.dir(), here.name.clone()).await;
        self.leave(here, done)
    }

    async fn metadata_hash_at(&mut self, fd: Fd, flags: PathFlags, path: String) -> FsResult<types::MetadataHashValue> {
        let here = self.place(&fd, path, follows(flags), Access::Read).await?;
        let (dir, flags, name) = (here.dir(), here.flags(flags), here.name.clone());
        let done = types::HostDescriptor::metadata_hash_at(&mut self.inner, dir, flags, name).await;
        self.leave(here, done)
    }

    async fn advise(
        &mut self,
        fd: Fd,
        offset: types::Filesize,
        length: types::Filesize,
        advice: types::Advice,
    ) -> FsResult<()> {
        self.granted(&fd, "", Access::Read)?;
        types::HostDescriptor::advise(&mut self.inner, fd, offset, length, advice).await
    }

    async fn sync_data(&mut self, fd: Fd) -> FsResult<()> {
        self.granted(&fd, "", Access::Read)?;
        types::HostDescriptor::sync_data(&mut self.inner, fd).await
    }

    async fn get_flags(&mut self, fd: Fd) -> FsResult<DescriptorFlags> {
        if !self.opened(&fd)?.granted {
            // C's library asks before it opens something in there, and would give up before the path is known.
            return Ok(DescriptorFlags::READ);
        }
        types::HostDescriptor::get_flags(&mut self.inner, fd).await
    }

    async fn get_type(&mut self, fd: Fd) -> FsResult<types::DescriptorType> {
        if !self.opened(&fd)?.granted {
            return Ok(types::DescriptorType::Directory);
        }
        types::HostDescriptor::get_type(&mut self.inner, fd).await
    }

    async fn read(&mut self, fd: Fd, length: types::Filesize, offset: types::Filesize) -> FsResult<(Vec<u8>, bool)> {
        self.granted(&fd, "", Access::Read)?;
        types::HostDescriptor::read(&mut self.inner, fd, length, offset).await
    }

    async fn read_directory(&mut self, fd: Fd) -> FsResult<Resource<types::DirectoryEntryStream>> {
        let opened = self.granted(&fd, "", Access::Read)?;
        if self.layer.mixed && self.layer.access(&opened.real).is_none() {
            return Err(self.refuse(&opened.real, Access::Read));
        }
        let (dir, slot) = (self.dir(&fd)?, self.slot()?);
        let listing = blocking(move || Listing::open(&dir, slot)).await?;
        let listing = self.inner.table.push(listing)?;
        // The guest's handle has the name that the interface gives it.
        Ok(Resource::new_own(listing.rep()))
    }

    async fn sync(&mut self, fd: Fd) -> FsResult<()> {
        self.granted(&fd, "", Access::Read)?;
        types::HostDescriptor::sync(&mut self.inner, fd).await
    }

    async fn stat(&mut self, fd: Fd) -> FsResult<types::DescriptorStat> {
        self.granted(&fd, "", Access::Read)?;
        types::HostDescriptor::stat(&mut self.inner, fd).await
    }

    fn read_via_stream(&mut self, fd: Fd, offset: types::Filesize) -> FsResult<Resource<DynInputStream>> {
        let slot = self.granted(&fd, "", Access::Read)?.slot;
        let stream = types::HostDescriptor::read_via_stream(&mut self.inner, fd, offset)?;
        let Some(slot) = slot else { return Ok(stream) };
        let stream: DynInputStream = Box::new(Held::new(self.inner.table.delete(stream)?, slot));
        Ok(self.inner.table.push(stream)?)
    }

    async fn is_same_object(&mut self, a: Fd, b: Fd) -> wasmtime::Result<bool> {
        types::HostDescriptor::is_same_object(&mut self.inner, a, b).await
    }

    async fn metadata_hash(&mut self, fd: Fd) -> FsResult<types::MetadataHashValue> {
        self.granted(&fd, "", Access::Read)?;
        types::HostDescriptor::metadata_hash(&mut self.inner, fd).await
    }
}

impl types::HostDirectoryEntryStream for FsView<'_> {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<types::DirectoryEntryStream>,
    ) -> FsResult<Option<types::DirectoryEntry>> {
        let listing = Resource::<Listing>::new_borrow(stream.rep());
        loop {
            let read = self.inner.table.get_mut(&listing)?;
            if let Some(entry) = read.next() {
                return entry.map(Some).map_err(FsError::from);
            }
            let Some(rest) = read.take_rest() else { return Ok(None) };
            let piece = blocking(move || Ok(Piece::read(rest))).await?;
            self.inner.table.get_mut(&listing)?.put(piece);
        }
    }

    fn drop(&mut self, stream: Resource<types::DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.inner.table.delete(Resource::<Listing>::new_own(stream.rep()))?;
        Ok(())
    }
}
