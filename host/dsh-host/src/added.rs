//! A plugin that the host added by itself, for the sake of models behind a network: it hears of failed requests to these only. An agent
//! beside them whose model is `echo` or a script goes on as if it were not there.

use std::sync::Arc;

use async_trait::async_trait;
use dsh_seam::plugin::{Attached, Plugin, PluginContext};
use dsh_seam::waterfall::{Listener, Next, RunContext};
use dsh_seam::waterfalls::{Recovery, RequestError};
use dsh_seam::{FailureMode, PluginError, PluginName};
use dsh_wasm::WasmPlugin;

use crate::providers;

/// One such plugin.
pub struct ForNetworks(pub Arc<WasmPlugin>);

impl Plugin for ForNetworks {
    fn name(&self) -> &PluginName {
        self.0.name()
    }

    fn failure_mode(&self) -> FailureMode {
        self.0.failure_mode()
    }

    fn sha256(&self) -> Option<&str> {
        Plugin::sha256(&*self.0)
    }

    fn attach(&self, context: Arc<dyn PluginContext>) -> Attached {
        let attached = self.0.attach(context);
        let request_error = attached.request_error.map(|inner| Arc::new(OfNetworks(inner)) as Arc<_>);
        Attached { request_error, ..attached }
    }
}

/// Its listener, which is passed over where the model is behind no network.
struct OfNetworks(Arc<dyn Listener<RequestError>>);

#[async_trait]
impl Listener<RequestError> for OfNetworks {
    async fn handle(
        &self,
        cx: &RunContext<RequestError>,
        value: (),
        next: Next<RequestError>,
    ) -> Result<Recovery, PluginError> {
        if providers::is_network(&cx.about.model) {
            return self.0.handle(cx, value, next).await;
        }
        // A failure inside is final already, whatever is answered here.
        Ok(next.run(value).await.unwrap_or(Recovery::GiveUp))
    }

    fn live(&self) -> bool {
        self.0.live()
    }
}
