//! Tries to get further than its grants. Its one tool does steps in their order and tells of each what came of it, as JSON: `{"ok": …}` or
//! `{"error": code}`. The steps are the functions of WASI as they are, without a library between that would make a path or an address
//! harmless.

mod c;
mod files;
mod machine;
mod requests;

use dsh_sdk::{Call, Failure, NoConfig, Outcome, Plugin, Tool, ToolProvider, tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// What to do, one after the other.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Args {
    steps: Vec<Step>,
}

/// One function of WASI, or a few that belong together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Step {
    File(files::Step),
    Request(requests::Step),
    Machine(machine::Step),
}

struct Intruder;

impl Plugin for Intruder {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl ToolProvider for Intruder {
    fn tools(&self) -> Vec<Tool<'_>> {
        vec![tool("intrude", "Tries to get further than the grants.").typed(|args: Args, _: &Call| {
            let told = args.steps.into_iter().map(|step| {
                let told = match step {
                    Step::File(step) => files::take(step),
                    Step::Request(step) => requests::take(&step),
                    Step::Machine(step) => machine::take(&step),
                };
                told.map_or_else(|error| json!({ "error": error }), |value| json!({ "ok": value }))
            });
            Ok(Outcome::text(Value::Array(told.collect()).to_string()))
        })]
    }
}

/// What a step came to: a value, or the name of an error.
type Told = Result<Value, String>;

/// The name of an error, as WIT writes it (`not-permitted`).
fn code(error: &impl std::fmt::Debug) -> String {
    let debug = format!("{error:?}");
    // Generated enums of errors show `ErrorCode { code, name, message }`, others `DescriptorType::RegularFile`.
    if let Some((name, _)) = debug.split_once("name: \"").and_then(|(_, rest)| rest.split_once('"')) {
        return name.to_owned();
    }
    let case = debug.rsplit("::").next().unwrap_or(&debug);
    let mut name = String::new();
    for (n, c) in case.chars().enumerate() {
        if c.is_ascii_uppercase() && n > 0 {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

dsh_sdk::export!(Intruder: tools);
