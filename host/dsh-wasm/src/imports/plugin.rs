//! `dsh:plugin`: runtime and state.

use crate::bindings::dsh::llm::llm_types::Failure;
use crate::bindings::dsh::plugin::{runtime, state};
use crate::convert;
use crate::output::LogLevel;
use crate::state::NewValue;
use crate::store::{GuestState, no_session};

impl runtime::Host for GuestState {
    fn agent(&mut self) -> wasmtime::Result<Option<runtime::AgentInfo>> {
        self.enter()?;
        let info = self.session.as_ref().map(|session| {
            let agent = session.agent();
            runtime::AgentInfo {
                agent: agent.agent.as_str().to_owned(),
                session: agent.session.as_str().to_owned(),
                lineage: agent.lineage.iter().map(|ancestor| ancestor.as_str().to_owned()).collect(),
            }
        });
        Ok(self.gives(info))
    }

    fn config(&mut self) -> wasmtime::Result<String> {
        self.enter()?;
        let config = self.core.config.to_string();
        Ok(self.gives(config))
    }

    fn log(&mut self, level: runtime::Level, message: String) -> wasmtime::Result<()> {
        self.enter()?;
        self.takes(&message);
        let level = match level {
            runtime::Level::Trace => LogLevel::Trace,
            runtime::Level::Debug => LogLevel::Debug,
            runtime::Level::Info => LogLevel::Info,
            runtime::Level::Warn => LogLevel::Warn,
            runtime::Level::Error => LogLevel::Error,
        };
        self.output.log(level, &message);
        Ok(())
    }

    fn cancelled(&mut self) -> wasmtime::Result<bool> {
        self.enter()?;
        let of_call = self.call.tool.as_ref().map(|tool| tool.cancel.is_cancelled());
        Ok(of_call
            .unwrap_or_else(|| self.session.as_ref().is_some_and(|session| session.cancellation().is_cancelled())))
    }
}

impl state::Host for GuestState {
    fn get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        self.enter()?;
        let Some(session) = &self.session else { return Ok(None) };
        let value = self.call.pending.get(&**session, &key).map(|text| text.as_ref().to_owned());
        self.takes(&key);
        Ok(self.gives(value))
    }

    fn keys(&mut self, prefix: String) -> wasmtime::Result<Vec<String>> {
        self.enter()?;
        let Some(session) = &self.session else { return Ok(Vec::new()) };
        let keys = self.call.pending.keys(&**session, &prefix);
        self.takes(&prefix);
        Ok(self.gives(keys))
    }

    async fn set(&mut self, key: String, value: String) -> wasmtime::Result<Result<(), Failure>> {
        self.enter()?;
        self.takes(&(key.as_str(), value.as_str()));
        let limit = self.limits().state_bytes();
        let Some(session) = self.session.clone() else { return Ok(Err(convert::failure(no_session()))) };
        let entry = Self::work(&self.clock, value.len(), move || NewValue::of(key, value)).await;
        let set = entry.and_then(|entry| self.call.pending.set(&*session, entry, limit));
        Ok(set.map_err(convert::failure))
    }

    fn remove(&mut self, key: String) -> wasmtime::Result<Result<(), Failure>> {
        self.enter()?;
        self.takes(&key);
        let Some(session) = &self.session else { return Ok(Err(convert::failure(no_session()))) };
        Ok(self.call.pending.remove(&**session, key).map_err(convert::failure))
    }
}
