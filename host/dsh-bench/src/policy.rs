//! The same policy three times: as a component, as a native process that is started for each call, and as a Python process.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dsh_seam::ids::{PluginName, StepRef};
use dsh_seam::message::ToolCall;
use dsh_seam::tools::{Annotations, Guard, ToolInfo, Verdict};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::measure::{Pair, micros, micros_each};
use crate::report::{Reach, Row};
use crate::wasm::{Nobody, engine, load};
use crate::{Fallible, Places, Rows};

/// Calls of the component in one round.
const CALLS: u32 = 1_000;
/// Starts of the process in one round, and rounds: the first few dozen starts settle the page cache.
const STARTS: u32 = 20;
const ROUNDS: usize = 15;

/// The policy in Python: whatever is below `src/` may be read.
const PYTHON: &str = r#"
import json, posixpath, sys
call = json.load(sys.stdin)
path = posixpath.normpath(json.loads(call["arguments"])["path"])
allowed = call["name"] == "read" and path.startswith("src/")
print(json.dumps({"verdict": "abstain" if allowed else "deny"}))
"#;

fn call() -> ToolCall {
    ToolCall {
        id: "call".into(),
        name: "read".into(),
        arguments: r#"{"path":"src/deep/../main.rs"}"#.into(),
        opaque: None,
    }
}

/// The permission plugin as a guard, out of any agent.
struct Component {
    guard: Arc<dyn Guard>,
    tool: ToolInfo,
}

impl Component {
    async fn load(places: &Places) -> Fallible<Self> {
        let config = json!({ "default": "deny", "rules": [{ "tool": "read", "path": "src/**", "action": "allow" }] });
        let plugin = load(&engine()?, &places.plugins, "permission", "permission", config).await?;
        let attached = plugin.attach(Nobody::for_plugin(plugin.name()));
        let annotations = Annotations { read_only: true, ..Annotations::default() };
        let tool = ToolInfo { name: "read".into(), plugin: PluginName::new("files")?, annotations };
        Ok(Self { guard: attached.guard.clone().ok_or("`permission` is no guard")?, tool })
    }

    /// Microseconds a call, warm: the processes before it have used the caches.
    async fn warm_round(&self) -> Fallible<f64> {
        self.round().await?;
        self.round().await
    }

    /// Microseconds a call.
    async fn round(&self) -> Fallible<f64> {
        let (call, cancel) = (call(), CancellationToken::new());
        let start = Instant::now();
        for _ in 0..CALLS {
            let verdict = self.guard.check(StepRef { turn: 1, step: 1 }, &call, &self.tool, &cancel).await?;
            if verdict != Verdict::Abstain {
                return Err(format!("the component answered {verdict:?}").into());
            }
        }
        Ok(micros_each(start, CALLS))
    }
}

/// Microseconds a start of `program`, which judges one call.
fn round(program: &mut Command) -> Fallible<f64> {
    let call = serde_json::to_vec(&json!({ "name": call().name, "arguments": call().arguments }))?;
    let start = Instant::now();
    for _ in 0..STARTS {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no standard input")?.write_all(&call)?;
        let mut answer = String::new();
        child.stdout.take().ok_or("no standard output")?.read_to_string(&mut answer)?;
        if !child.wait()?.success() || !answer.contains("abstain") {
            return Err(format!("`{}` answered `{}`", program.get_program().to_string_lossy(), answer.trim()).into());
        }
    }
    Ok(micros(start.elapsed()) / f64::from(STARTS))
}

/// How many times cheaper the component is.
async fn compare(component: &Component, rounds: usize, what: &str, bound: f64, mut program: Command) -> Row {
    let what = format!("a policy as a component against {what}, times cheaper");
    let reach = Reach::at_least(bound, "×");
    let mut pair = Pair::default();
    for n in 0..=rounds {
        let (process, component) = match (round(&mut program), component.warm_round().await) {
            (Ok(process), Ok(component)) => (process, component),
            (Err(error), _) | (_, Err(error)) => return Row::skipped(what, reach, error),
        };
        // The first round warms up.
        if n > 0 {
            pair.push(process, component);
        }
    }
    Row::new(what, reach, pair.ratios()).detail(format!(
        "{:.2} µs against {:.0} µs",
        pair.other.median(),
        pair.this.median()
    ))
}

pub async fn rows(places: &Places) -> Rows {
    let (component, rounds) = (Component::load(places).await?, places.rounds(ROUNDS));
    let mut python = Command::new("python3");
    python.args(["-c", PYTHON]);
    let native = Command::new(places.own.with_file_name("dsh-bench-policy"));
    Ok(vec![
        compare(&component, rounds, "a spawned native executable", 300.0, native).await,
        compare(&component, rounds, "a spawned `python3`", 3_000.0, python).await,
    ])
}

/// Asks the policy for `time`, for a profiler.
pub async fn profile(places: &Places, time: Duration) -> Fallible<()> {
    let (component, start) = (Component::load(places).await?, Instant::now());
    while start.elapsed() < time {
        component.round().await?;
    }
    Ok(())
}
