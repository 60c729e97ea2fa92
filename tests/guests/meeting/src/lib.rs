//! Tools that wait for each other, so that calls of one message run together, and come to their end in an order that no clock decides.

use dsh_sdk::{Call, Failure, NoConfig, Outcome, Plugin, Tool, ToolProvider, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

/// Where they meet; the grant is `fs:write:meeting`.
const PLACE: &str = "meeting";
/// How long a call waits before it looks again who has come.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What one does who has come.
#[derive(Debug, Default, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Then {
    #[default]
    Answer,
    /// Answers once the turn was aborted.
    AwaitAbort,
    /// Waits an hour, whatever comes.
    Ignore,
    Fail,
    Trap,
    Loop,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    /// Who comes.
    name: String,
    /// Who must have come before.
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    then: Then,
}

struct Meeting;

impl Plugin for Meeting {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl ToolProvider for Meeting {
    fn tools(&self) -> Vec<Tool<'_>> {
        vec![
            tool("meet", "Waits for others, then comes.")
                .read_only()
                .parallel_safe()
                .typed(|args: Args, call| meet(&args, call)),
        ]
    }
}

fn meet(args: &Args, call: &Call) -> Result<Outcome, Failure> {
    let name = &args.name;
    let place = Path::new(PLACE);
    while !args.after.iter().all(|other| place.join(other).exists()) {
        if call.cancelled() {
            return Ok(Outcome::text(format!("{name} met nobody: the turn was aborted")));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    call.progress(&format!("{name} comes"), None);
    std::fs::write(place.join(name), "").map_err(|error| Failure::new("io", error.to_string()))?;
    match args.then {
        Then::Answer => Ok(Outcome::text(format!("{name} came"))),
        Then::AwaitAbort => {
            while !call.cancelled() {
                std::thread::sleep(LOOK_AGAIN);
            }
            Ok(Outcome::text(format!("{name} stayed until the turn was aborted")))
        }
        Then::Ignore => {
            std::thread::sleep(Duration::from_secs(3_600));
            Ok(Outcome::text(format!("{name} stayed an hour")))
        }
        Then::Fail => Ok(Outcome::error("tool-failed", format!("{name} came and failed"))),
        Then::Trap => panic!("{name} traps, as it was told to"),
        Then::Loop => loop {
            std::hint::black_box(0);
        },
    }
}

dsh_sdk::export!(Meeting: tools);
