//! What a store holds for its one instance, and the one way in which host imports reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::bindings::dsh::llm::llm_types;
use crate::clock::{CallClock, Parked, Wait};
use crate::convert;
use crate::fault::Bound;
use crate::grants::Grant;
use crate::handles::Handles;
use crate::limiter::Limiter;
use crate::limits::{Limits, MAX_HOST_CALLS, MAX_WASI_HANDLES};
use crate::output::{GuestStream, Output, Stream};
use crate::plugin::Core;
use crate::state::Pending;
use crate::wasi::fs::FsLayer;
use crate::wasi::http::NetHooks;
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
    /// Grants that file operations of this call lacked; reported when it is over.
    pub refusals: Vec<Grant>,
    pub wasi: Wasi,
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
    /// How deep in notifications it is: 0 outside of one.
    pub depth: u32,
    pub host_calls: u32,
    /// Reports of progress so far.
    pub reports: u32,
    /// Bytes that went into the log and the inbox so far.
    pub handed_over: usize,
    pub pending: Pending,
    /// Set inside `call-tool`.
    pub tool: Option<Box<ToolContext>>,
    /// Set inside `call-tool`: whether the host refused a capability meanwhile.
    pub refused: Option<Arc<AtomicBool>>,
}

impl Call {
    pub(crate) fn new(seam: Seam) -> Self {
        Self {
            seam,
            depth: 0,
            host_calls: 0,
            reports: 0,
            handed_over: 0,
            pending: Pending::default(),
            tool: None,
            refused: None,
        }
    }
}

impl GuestState {
    /// The data of a fresh instance. `profile` narrows what it may touch below its grants.
    pub(crate) fn new(core: Arc<Core>, session: Option<Arc<dyn PluginContext>>, profile: Option<Arc<Profile>>) -> Self {
        let output = Output::new(core.name.clone());
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_WASI_HANDLES);
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
        Self {
            limiter: Limiter::new(&core.limits),
            fs: FsLayer::new(&core, profile.as_deref()),
            net: NetHooks::new(core.clone(), session.clone(), profile),
            clock: Arc::default(),
            handles: Handles::default(),
            call: Call::new(Seam::Configure),
            refusals: Vec::new(),
            wasi: Wasi { ctx: builder.build(), table },
            http: WasiHttpCtx::new(),
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
        self.call.host_calls += 1;
        if self.call.host_calls > MAX_HOST_CALLS {
            return Err(wasmtime::Error::new(Bound::HostCalls(MAX_HOST_CALLS)));
        }
        Ok(())
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

    /// Runs an import that waits, with the clocks told about it.
    pub(crate) async fn waiting<F: Future>(clock: &Arc<CallClock>, wait: Wait, future: F) -> F::Output {
        let _parked = Parked::new(clock, wait);
        future.await
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
        self.wasi.ctx()
    }
}

impl WasiHttpView for GuestState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { hooks: &mut self.net, table: &mut self.wasi.table, ctx: &mut self.http }
    }
}
