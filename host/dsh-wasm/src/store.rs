//! What a store holds for its one instance, and the one way in which host imports reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::bindings::dsh::llm::llm_types;
use crate::carried::Carried;
use crate::clock::{CallClock, Parked, Wait};
use crate::convert;
use crate::fault::Bound;
use crate::grants::Grant;
use crate::handles::Handles;
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::lists::Lists;
use crate::output::{GuestStream, Output, Stream};
use crate::plugin::Core;
use crate::receipt::{About, Metered, Tally};
use crate::state::Pending;
use crate::wasi::fs::FsLayer;
use crate::wasi::http::{MAX_FIELD_BYTES, NetHooks, Used};
use crate::wasi::refusals::Refusals;
use crate::words::{Failure, PluginContext, Profile, Seam, ToolContext};

/// The data of one store.
pub(crate) struct GuestState {
    pub core: Arc<Core>,
    /// On whose behalf; none while a plugin is loaded.
    pub session: Option<Arc<dyn PluginContext>>,
    pub clock: Arc<CallClock>,
    pub output: Arc<Output>,
    pub limiter: Limiter,
    pub handles: Handles,
    pub call: Call,
    pub fs: FsLayer,
    /// Grants that file operations of this call lacked; reported when it is over, which may be later than this is gone.
    pub refusals: Arc<Refusals>,
    pub wasi: Wasi,
    /// The meter of the call that this instance was made for, until it begins.
    pub metered: Metered,
    http: WasiHttpCtx,
    net: NetHooks,
}

/// What wasmtime's WASI needs.
pub(crate) struct Wasi {
    ctx: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Wasi {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.ctx, table: &mut self.table }
    }
}

/// What is known of the call under way.
pub(crate) struct Call {
    pub seam: Seam,
    /// Which function of the seam.
    pub function: &'static str,
    /// How deep in notifications it is: 0 outside of one.
    pub depth: u32,
    pub host_calls: u32,
    /// Reports of progress so far.
    pub reports: u32,
    /// Questions, programs, model calls and sub-agents so far.
    pub outside_calls: u32,
    /// Bytes that went into the log and the inbox so far.
    pub handed_over: usize,
    pub pending: Pending,
    /// Set inside `call-tool`.
    pub tool: Option<Box<ToolContext>>,
    /// Set inside `call-tool`: whether the host refused a capability meanwhile.
    pub refused: Option<Arc<AtomicBool>>,
    /// What it used of the network; none until it does.
    pub network: Option<Arc<Used>>,
    /// The tool call that it is about; only for a receipt.
    pub about: Option<Box<About>>,
    /// Where what is counted goes; none when nobody wants a receipt.
    pub tally: Option<Arc<Tally>>,
    /// Counted only with a tally.
    pub bytes_in: usize,
    /// Counted only with a tally.
    pub bytes_out: usize,
    /// Whether a listener answered something else than the rest did, where that is known.
    pub changed: Option<bool>,
}

impl Call {
    /// What is known while an instance is made for it.
    pub(crate) fn for_its_instance(&self) -> Self {
        Self { function: self.function, about: self.about.clone(), ..Self::new(self.seam) }
    }

    pub(crate) fn new(seam: Seam) -> Self {
        Self {
            seam,
            function: function_of(seam),
            depth: 0,
            host_calls: 0,
            reports: 0,
            outside_calls: 0,
            handed_over: 0,
            pending: Pending::default(),
            tool: None,
            refused: None,
            network: None,
            about: None,
            tally: None,
            bytes_in: 0,
            bytes_out: 0,
            changed: None,
        }
    }
}

/// The function that the calls of a seam call, those while a plugin is loaded aside.
fn function_of(seam: Seam) -> &'static str {
    match seam {
        Seam::Request | Seam::RequestError | Seam::StepResult | Seam::TurnContinuation | Seam::Execute => "handle",
        Seam::Guard => "check",
        Seam::Provider => "call-tool",
        Seam::Observer => "on-entries",
        Seam::Flush => "flush",
        Seam::Section => "sections",
        Seam::Configure => "validate",
    }
}

impl Drop for GuestState {
    /// An instance that is dropped in the middle of a call leaves its open lines and what it cost.
    fn drop(&mut self) {
        self.output.end_call();
        if let Some(tally) = &self.call.tally {
            tally.note(self);
        }
    }
}

impl GuestState {
    /// The data of a fresh instance. `profile` narrows what it may touch below its grants.
    pub(crate) fn new(core: Arc<Core>, session: Option<Arc<dyn PluginContext>>, profile: Option<Arc<Profile>>) -> Self {
        let output = Output::new(core.name.clone(), &core.limits);
        let mut table = ResourceTable::new();
        table.set_max_capacity(core.limits.handles as usize);
        let mut builder = WasiCtx::builder();
        builder
            .stdout(GuestStream::new(output.clone(), Stream::Stdout))
            .stderr(GuestStream::new(output.clone(), Stream::Stderr))
            .max_random_size(crate::limits::MAX_RANDOM_BYTES)
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false);
        for (name, value) in core.visible_env(profile.as_deref()) {
            builder.env(name, value);
        }
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(MAX_FIELD_BYTES);
        Self {
            limiter: Limiter::new(&core.limits),
            fs: FsLayer::new(&core, profile.as_deref()),
            net: NetHooks::new(core.clone(), session.clone(), profile),
            clock: Arc::default(),
            handles: Handles::new(core.limits.handles),
            call: Call::new(Seam::Configure),
            refusals: Refusals::new(session.clone()),
            metered: Metered::default(),
            wasi: Wasi { ctx: builder.build(), table },
            http,
            output,
            session,
            core,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.core.limits
    }

    /// Every import begins with this: it bounds how many calls a guest can make.
    pub(crate) fn enter(&mut self) -> wasmtime::Result<()> {
        self.count();
        self.check_host_calls().map_err(wasmtime::Error::new)
    }

    /// Counts a call to the host. WASI's imports have no other place of ours, so what is too much is found when one of our own is called,
    /// when the epoch moves, or when the call returns.
    pub(crate) fn count(&mut self) {
        self.call.host_calls = self.call.host_calls.saturating_add(1);
    }

    pub(crate) fn check_host_calls(&self) -> Result<(), Bound> {
        let limit = self.limits().host_calls;
        if self.call.host_calls > limit { Err(Bound::HostCalls(limit)) } else { Ok(()) }
    }

    /// Refuses a value with a list that is too long, before anything is made of it.
    pub(crate) fn check_lists(&self, value: &impl Lists) -> wasmtime::Result<usize> {
        Bound::check_lists(value, self.limits()).map_err(wasmtime::Error::new)
    }

    /// Counts bytes that stay with the host after the call: all of a call together are bounded, not only each.
    pub(crate) fn hand_over(&mut self, bytes: usize) -> Result<(), llm_types::Failure> {
        self.call.handed_over = self.call.handed_over.saturating_add(bytes);
        if self.call.handed_over <= self.limits().output_bytes() {
            return Ok(());
        }
        let message =
            format!("one call may hand over {} MiB (`output-mib`), and this is more", self.limits().output_mib);
        Err(convert::failure(Failure::new("limit", message)))
    }

    /// Counts what goes to the guest.
    pub(crate) fn gives<T: Carried>(&mut self, value: T) -> T {
        self.given(&value);
        value
    }

    /// The same for an argument of the guest's function.
    pub(crate) fn given<T: Carried + ?Sized>(&mut self, value: &T) {
        if self.call.tally.is_some() {
            self.call.bytes_in = self.call.bytes_in.saturating_add(value.bytes());
        }
    }

    /// Counts what comes from the guest.
    pub(crate) fn takes<T: Carried + ?Sized>(&mut self, value: &T) {
        if self.call.tally.is_some() {
            self.call.bytes_out = self.call.bytes_out.saturating_add(value.bytes());
        }
    }

    /// Runs an import that waits, with the clocks told about it.
    pub(crate) async fn waiting<F: Future>(clock: &Arc<CallClock>, wait: Wait, future: F) -> F::Output {
        let _parked = Parked::new(clock, wait);
        future.await
    }

    /// Something outside of the host is about to work for the guest, with limits of its own: how often it may is bounded here.
    pub(crate) fn outside_call(&mut self) -> wasmtime::Result<()> {
        self.call.outside_calls += 1;
        let limit = self.limits().outside_calls;
        if self.call.outside_calls > limit { Err(wasmtime::Error::new(Bound::OutsideCalls(limit))) } else { Ok(()) }
    }

    /// The session, if there is one and `grant` was given; otherwise the failure for the guest. A refusal is reported.
    pub(crate) async fn granted(&mut self, grant: Grant) -> Result<Arc<dyn PluginContext>, llm_types::Failure> {
        if !self.core.grants.has(&grant) {
            if let Some(refused) = &self.call.refused {
                refused.store(true, Ordering::Relaxed);
            }
            return Err(convert::failure(self.core.refuse(self.session.as_deref(), &grant).await));
        }
        self.session.clone().ok_or_else(|| convert::failure(no_session()))
    }
}

pub(crate) fn no_session() -> Failure {
    Failure::new("no-session", "there is no session while a plugin is loaded")
}

impl WasiView for GuestState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.count();
        self.wasi.ctx()
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        self.count();
        let used = self.call.network.get_or_insert_with(|| Used::new(self.call.refused.clone()));
        self.net.used.clone_from(used);
        WasiHttpCtxView { hooks: &mut self.net, table: &mut self.wasi.table, ctx: &mut self.http }
    }
}
