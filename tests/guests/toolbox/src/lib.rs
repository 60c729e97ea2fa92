//! Tools that behave in ways the loop must cope with: parallel and serial ones, slow ones, large and odd results.

use dsh_sdk::{
    Call, Failure, ImageBlock, ImageSource, NoConfig, Outcome, Plugin, ResultBlock, Tool, ToolProvider, tool,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Text {
    /// What to answer.
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fail {
    /// The text of the error.
    text: String,
    /// The code of the error outcome.
    code: Option<String>,
    /// Answers a failure instead of an outcome.
    #[serde(default)]
    failure: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Size {
    /// How many bytes of text to answer.
    #[schemars(range(max = 33_554_432))]
    bytes: u32,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Time {
    /// How long to wait, in milliseconds.
    ms: u32,
    /// Answers early once the turn was aborted.
    #[serde(default)]
    polite: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Steps {
    /// How many times to report.
    steps: u16,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Toolbox;

impl Plugin for Toolbox {
    type Config = NoConfig;

    fn new(_config: NoConfig) -> Result<Self, Failure> {
        Ok(Self)
    }
}

impl ToolProvider for Toolbox {
    fn tools(&self) -> Vec<Tool<'_>> {
        vec![
            tool("say", "Answers a text; parallel-safe.")
                .read_only()
                .parallel_safe()
                .typed(|args: Text, _call| Ok(Outcome::text(args.text))),
            tool("change", "Answers a text; changes nothing, but says that it may.")
                .typed(|args: Text, _call| Ok(Outcome::text(args.text))),
            tool("fail", "Answers an error.").typed(|args: Fail, _call| fail(args)),
            tool("big", "Answers a long text.")
                .read_only()
                .typed(|args: Size, _call| Ok(Outcome::text("x".repeat(args.bytes as usize)))),
            tool("wait", "Waits.").read_only().parallel_safe().typed(|args: Time, call| wait(&args, call)),
            tool("report", "Reports progress.").read_only().typed(|args: Steps, call| report(&args, call)),
            tool("odd", "Answers a text, an image and a block of another kind.")
                .read_only()
                .typed(|_: Nothing, _call| Ok(odd())),
            tool("nothing", "Answers without any block.")
                .read_only()
                .typed(|_: Nothing, _call| Ok(Outcome { content: Vec::new(), is_error: false, code: None })),
            tool("raw", "Answers its arguments as they came.")
                .read_only()
                .raw(r#"{"type":"object"}"#, |call| Ok(Outcome::text(&call.call.arguments))),
        ]
    }
}

fn fail(args: Fail) -> Result<Outcome, Failure> {
    match (args.failure, args.code) {
        (true, code) => Err(Failure::new(code.unwrap_or_else(|| "toolbox-failed".to_owned()), args.text)),
        (false, code) => Ok(Outcome { content: vec![ResultBlock::text(args.text)], is_error: true, code }),
    }
}

fn wait(args: &Time, call: &Call) -> Result<Outcome, Failure> {
    call.progress("waiting", None);
    let step = Duration::from_millis(5);
    let mut left = Duration::from_millis(u64::from(args.ms));
    while !left.is_zero() {
        std::thread::sleep(step.min(left));
        left = left.saturating_sub(step);
        if args.polite && call.cancelled() {
            return Ok(Outcome::text("waited until the turn was aborted"));
        }
    }
    Ok(Outcome::text(format!("waited {} ms", args.ms)))
}

fn report(args: &Steps, call: &Call) -> Result<Outcome, Failure> {
    for step in 1..=args.steps {
        call.progress(&format!("step {step}"), Some(f32::from(step) / f32::from(args.steps)));
    }
    Ok(Outcome::text("reported"))
}

fn odd() -> Outcome {
    let image = ImageBlock {
        source: ImageSource::Bytes(vec![0x89, 0x50, 0x4e, 0x47]),
        mime_type: Some("image/png".to_owned()),
        cache: None,
        opaque: None,
    };
    let other = r#"{"type":"x-chart","points":[1,2]}"#.to_owned();
    Outcome {
        content: vec![ResultBlock::text("text"), ResultBlock::Image(image), ResultBlock::Other(other)],
        is_error: false,
        code: None,
    }
}

dsh_sdk::export!(Toolbox: tools);
