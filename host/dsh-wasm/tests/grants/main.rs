//! What a guest gets beyond its grants, and what it is told: the guest `intruder` against files, the network and the machine.

mod environment;
mod files;
mod network;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;

use dsh_seam::message::{ToolCall, result_text};
use dsh_seam::plugin::Attached;
use dsh_seam::tools::Profile;
use dsh_wasm::{Compiler, Engine, EngineOptions, Grants, Limits, Network, PluginSpec};
use serde_json::{Value, json};
use support::*;
use tokio_util::sync::CancellationToken;

/// The intruder as part of an agent.
struct Intruder {
    attached: Attached,
    agent: Arc<Agent>,
}

/// How it gets in.
#[derive(Default)]
struct Entry<'a> {
    grants: &'a [&'a str],
    network: Network,
    workspace: Option<&'a Path>,
    env: &'a [(&'a str, &'a str)],
    limits: Limits,
}

impl Intruder {
    async fn enter(entry: Entry<'_>) -> Self {
        let open =
            |path| cap_std::fs::Dir::open_ambient_dir(path, cap_std::ambient_authority()).expect("the workspace");
        let engine = Engine::new(EngineOptions {
            cache_dir: Some(target().join("test-cache")),
            workspace: entry.workspace.map(open),
            network: entry.network,
            ..EngineOptions::new(Compiler::InProcess)
        });
        let grants = Grants::new(entry.grants.iter().map(|grant| grant.parse().expect("a grant")));
        let env = entry.env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let path = target().join("test-guests/intruder.wasm");
        let bytes = std::fs::read(&path).expect("the guests are built: `cargo xtask guests`");
        let spec = PluginSpec { grants, env, limits: entry.limits, ..spec("p") };
        let (attached, agent) = attach(&engine.expect("an engine"), &bytes, spec).await;
        Self { attached, agent }
    }

    /// Takes steps, and tells what came of each.
    async fn take(&self, steps: Value) -> Vec<Value> {
        self.take_under(Profile::unrestricted(), steps).await
    }

    /// Takes steps that end badly, and says how.
    async fn fails(&self, steps: Value) -> String {
        let arguments = json!({ "steps": steps }).to_string();
        let call = ToolCall { id: "call-1".into(), name: "intrude".into(), arguments, opaque: None };
        let provider = self.attached.provider.as_ref().expect("it has tools");
        let context = tool_context(Profile::unrestricted(), &CancellationToken::new());
        provider.call(&context, call).await.expect_err("it does not return").message
    }

    async fn take_under(&self, profile: Profile, steps: Value) -> Vec<Value> {
        let arguments = json!({ "steps": steps }).to_string();
        let call = ToolCall { id: "call-1".into(), name: "intrude".into(), arguments, opaque: None };
        let provider = self.attached.provider.as_ref().expect("it has tools");
        let outcome = provider.call(&tool_context(profile, &CancellationToken::new()), call).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
        let text = result_text(&outcome.content);
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }

    /// Takes one step.
    async fn step(&self, step: Value) -> Value {
        self.take(json!([step])).await.remove(0)
    }

    /// What it was refused, with the options to type, since it was asked last.
    fn refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.agent.refused.lock().expect("not poisoned"))
    }
}

/// The error of a step.
fn error(code: &str) -> Value {
    json!({ "error": code })
}

/// The value of a step.
fn ok(value: impl Into<Value>) -> Value {
    json!({ "ok": value.into() })
}
