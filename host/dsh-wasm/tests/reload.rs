//! Versions of a plugin, one after the other, in one engine and for one agent: of one that left nothing is left.

mod support;

use std::sync::{Arc, Weak};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use dsh_seam::plugin::{Attached, Plugin as _};
use dsh_wasm::{Census, Compiler, Engine, EngineOptions, Grants, PluginSpec, WasmPlugin};
use support::*;

/// Versions that are loaded, used and left.
const VERSIONS: usize = 200;
/// What the process may have more of after them, in KiB: what an allocator keeps for itself, and next to nothing for each.
const MORE_KIB: usize = 16 * 1024 + 32 * VERSIONS;

/// A listener that passes everything on; each version has other bytes.
fn version(n: usize) -> Vec<u8> {
    request_listener(&format!(r#"(data (i32.const 512) "version {n}")"#), PASS)
}

async fn loaded(engine: &Engine, n: usize) -> Arc<WasmPlugin> {
    let grants = Grants::new(["fs:read:.".parse().expect("a grant")]);
    let spec = PluginSpec { grants, ..spec("p") };
    load(engine, &version(n), spec).await.unwrap_or_else(|error| panic!("{error}"))
}

fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("it is there").count()
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A version comes, is called, and the one before it leaves, as the loop does it between two turns.
async fn swap(engine: &Engine, agent: &Arc<Agent>, n: usize, before: Option<(Attached, Weak<WasmPlugin>)>) -> Held {
    let plugin = loaded(engine, n).await;
    let attached = plugin.attach(agent.clone());
    if let Some((attached, plugin)) = before {
        attached.lifecycle.as_ref().expect("it has one").detached();
        drop(attached);
        assert!(plugin.upgrade().is_none(), "somebody has version {} still", n - 1);
    }
    run_request(&[&attached], draft(1), nothing()).await.expect("it passes everything on");
    (attached, Arc::downgrade(&plugin))
}

type Held = (Attached, Weak<WasmPlugin>);

#[tokio::test]
async fn of_a_version_that_left_nothing_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let workspace = Dir::open_ambient_dir(folder.path(), ambient_authority()).expect("a folder");
    let options = EngineOptions { workspace: Some(workspace), ..EngineOptions::new(Compiler::InProcess) };
    let engine = Engine::new(options).expect("an engine");
    let agent = Agent::new("p");
    let mut held = None;
    let mut first = None;
    for n in 0..VERSIONS {
        held = Some(swap(&engine, &agent, n, held).await);
        let census = engine.census();
        assert_eq!((census.calls, census.instances, census.stacks), (0, 1, 1), "with version {n}");
        if n == 20 {
            first = Some((files(), resident_kib()));
        }
    }
    let (first, last) = (first.expect("there were more"), (files(), resident_kib()));
    assert_eq!(first.0, last.0, "open files");
    assert!(last.1 < first.1 + MORE_KIB, "resident memory: {} KiB, then {} KiB", first.1, last.1);
    // One strong reference each: the agent's own, and those of the last version.
    let (attached, plugin) = held.expect("there is one");
    attached.lifecycle.as_ref().expect("it has one").detached();
    drop(attached);
    assert!(plugin.upgrade().is_none());
    assert_eq!(Arc::strong_count(&agent), 1);
    assert_eq!(Census { ticking: false, ..engine.census() }, Census::default());
}
