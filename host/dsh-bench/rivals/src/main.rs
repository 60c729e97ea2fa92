//! Runs the policy in Extism or in QuickJS, as `dsh-bench` asks for it: a line `ENGINE READS CALLS` on standard input, for example
//! `extism last 100`, is answered by a line with the microseconds of one call. So `dsh-bench` can measure its own engine and these in turns.
//!
//! Usage: `dsh-rivals GUEST.wasm HISTORY.json`. Both engines are warm: what is loaded and compiled is not counted, and neither is making
//! the text of the history.

use std::io::{BufRead as _, Write as _};
use std::time::Instant;

use extism::{Manifest, Plugin, Wasm};
use rquickjs::{Context, Function, Runtime};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

/// The policy as a script.
const SCRIPT: &str = include_str!("policy.js");

struct Rivals {
    extism: Plugin,
    script: Context,
    history: String,
}

impl Rivals {
    fn load(guest: &str, history: &str) -> Fallible<Self> {
        let guest = Manifest::new([Wasm::data(std::fs::read(guest)?)]);
        let extism = Plugin::new(guest, [], false).map_err(|error| format!("{error:#}"))?;
        let script = Context::full(&Runtime::new()?)?;
        script.with(|script| script.eval::<(), _>(SCRIPT))?;
        Ok(Self { extism, script, history: std::fs::read_to_string(history)? })
    }

    /// One call of the Extism plugin.
    fn extism(&mut self, reads: &str) -> Fallible<bool> {
        let answer: &[u8] = self.extism.call(reads, self.history.as_bytes()).map_err(|error| format!("{error:#}"))?;
        Ok(answer == b"1")
    }

    /// One call of the script.
    fn quickjs(&self, reads: &str) -> Fallible<bool> {
        Ok(self.script.with(|script| {
            let allows: Function = script.globals().get("allows")?;
            allows.call((self.history.as_str(), reads == "all"))
        })?)
    }

    /// Microseconds of one call, as a line of standard input asks for it.
    fn round(&mut self, line: &str) -> Fallible<f64> {
        let [engine, reads, calls] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(format!("`{line}` is not `ENGINE READS CALLS`").into());
        };
        let calls: u32 = calls.parse()?;
        let start = Instant::now();
        for _ in 0..calls {
            let allowed = match engine {
                "extism" => self.extism(reads)?,
                "quickjs" => self.quickjs(reads)?,
                other => return Err(format!("there is no engine `{other}`").into()),
            };
            if !allowed {
                return Err(format!("`{engine}` refused what the policy allows").into());
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(calls))
    }
}

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [guest, history] = &arguments[..] else { return Err("usage: dsh-rivals GUEST.wasm HISTORY.json".into()) };
    let mut rivals = Rivals::load(guest, history)?;
    for line in std::io::stdin().lock().lines() {
        let micros = rivals.round(line?.trim())?;
        println!("{micros}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
