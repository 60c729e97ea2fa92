//! Tools: what the model sees of one, and the code behind it.

use crate::{Annotations, Definition, Failure, Outcome, Profile, Step, ToolCall, running, runtime, schema_of};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// One call of a tool.
#[derive(Debug, Clone)]
pub struct Call {
    /// Where in the agent's life; 0 and 0 outside of a turn.
    pub at: Step,
    /// The call itself; its arguments match the tool's schema.
    pub call: ToolCall,
}

impl Call {
    /// Shows how far the work is, to people, never to the model. `fraction` is from 0 to 1.
    pub fn progress(&self, text: &str, fraction: Option<f32>) {
        running::progress(text, fraction);
    }

    /// What the call may touch, for a good message.
    pub fn limits(&self) -> Option<Profile> {
        running::limits()
    }

    /// True once the turn was aborted: a long computation should return.
    pub fn cancelled(&self) -> bool {
        runtime::cancelled()
    }
}

/// The code behind a tool: the arguments as text, and the call.
type Run<'a> = Box<dyn Fn(&Call) -> Result<Outcome, Failure> + 'a>;

/// A tool for the model; made by [`tool`].
pub struct Tool<'a> {
    name: &'static str,
    description: String,
    annotations: Annotations,
    schema: Box<dyn Fn() -> String + 'a>,
    run: Run<'a>,
}

impl Tool<'_> {
    /// The name the model calls it by.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What the model and the policies see.
    pub fn definition(&self) -> Definition {
        Definition {
            name: self.name.to_owned(),
            description: self.description.clone(),
            parameters: (self.schema)(),
            annotations: self.annotations,
        }
    }

    /// Runs it.
    pub fn run(&self, call: &Call) -> Result<Outcome, Failure> {
        (self.run)(call)
    }
}

/// Starts a tool: `tool("read", "Reads a file.").read_only().typed(|args: Read, call| …)`.
pub fn tool(name: &'static str, description: impl Into<String>) -> ToolBuilder {
    let annotations = Annotations {
        read_only: false,
        destructive: false,
        idempotent: false,
        open_world: false,
        parallel_safe: false,
    };
    ToolBuilder { name, description: description.into(), annotations }
}

/// A tool without its code yet. The annotations are hints for policies, all false to start with.
#[derive(Debug, Clone)]
#[must_use]
pub struct ToolBuilder {
    name: &'static str,
    description: String,
    annotations: Annotations,
}

impl ToolBuilder {
    /// It changes nothing.
    pub fn read_only(mut self) -> Self {
        self.annotations.read_only = true;
        self
    }

    /// It may destroy something.
    pub fn destructive(mut self) -> Self {
        self.annotations.destructive = true;
        self
    }

    /// Doing it twice is the same as doing it once.
    pub fn idempotent(mut self) -> Self {
        self.annotations.idempotent = true;
        self
    }

    /// It talks to the world outside of this machine.
    pub fn open_world(mut self) -> Self {
        self.annotations.open_world = true;
        self
    }

    /// It may run beside other calls that are.
    pub fn parallel_safe(mut self) -> Self {
        self.annotations.parallel_safe = true;
        self
    }

    /// Finishes it with arguments that are a Rust type: the JSON Schema and the parser both come from `A`.
    pub fn typed<'a, A, F>(self, run: F) -> Tool<'a>
    where
        A: DeserializeOwned + JsonSchema,
        F: Fn(A, &Call) -> Result<Outcome, Failure> + 'a,
    {
        let run = move |call: &Call| run(parse_arguments(&call.call.arguments)?, call);
        self.finish(Box::new(|| schema_of::<A>().to_string()), Box::new(run))
    }

    /// Finishes it with a JSON Schema (2020-12, an object) as text; the code reads `call.call.arguments` by itself.
    pub fn raw<'a, F>(self, schema: impl Into<String>, run: F) -> Tool<'a>
    where
        F: Fn(&Call) -> Result<Outcome, Failure> + 'a,
    {
        let schema = schema.into();
        self.finish(Box::new(move || schema.clone()), Box::new(run))
    }

    fn finish<'a>(self, schema: Box<dyn Fn() -> String + 'a>, run: Run<'a>) -> Tool<'a> {
        Tool { name: self.name, description: self.description, annotations: self.annotations, schema, run }
    }
}

/// Arguments as a type. The host has checked them against the schema, so this fails only where the type asks for more.
fn parse_arguments<A: DeserializeOwned>(arguments: &str) -> Result<A, Failure> {
    let text = if arguments.trim().is_empty() { "{}" } else { arguments };
    serde_json::from_str(text).map_err(|error| Failure::invalid_argument(error.to_string()))
}

/// Calls the tool that is meant.
pub(crate) fn dispatch(tools: &[Tool<'_>], call: Call) -> Result<Outcome, Failure> {
    match tools.iter().find(|tool| tool.name == call.call.name) {
        Some(tool) => tool.run(&call),
        None => Err(Failure::invalid_argument(format!("this plugin has no tool `{}`", call.call.name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    struct Args {
        text: String,
    }

    fn check(name: &str, arguments: &str, expect: Result<&str, &str>) {
        let tools = [
            tool("up", "upper case").typed(|args: Args, _| Ok(Outcome::text(args.text.to_uppercase()))),
            tool("raw", "as it is").raw(r#"{"type":"object"}"#, |call| Ok(Outcome::text(call.call.arguments.clone()))),
        ];
        let call =
            ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments: arguments.to_owned(), opaque: None };
        let got = dispatch(&tools, Call { at: Step { turn: 1, step: 1 }, call });
        let got = got.map(|outcome| outcome.to_text()).map_err(|failure| failure.message);
        assert_eq!(got, expect.map(str::to_owned).map_err(str::to_owned));
    }

    #[test]
    fn calls() {
        check("up", r#"{"text":"a"}"#, Ok("A"));
        check("up", "", Err("missing field `text` at line 1 column 2"));
        check("raw", "{}", Ok("{}"));
        check("down", "{}", Err("this plugin has no tool `down`"));
    }

    #[test]
    fn definitions() {
        let built = tool("up", "upper case").read_only().parallel_safe().typed(|_: Args, _| Ok(Outcome::text("")));
        let definition = built.definition();
        assert_eq!(
            definition.parameters,
            r#"{"properties":{"text":{"type":"string"}},"required":["text"],"type":"object"}"#
        );
        assert!(
            definition.annotations.read_only
                && definition.annotations.parallel_safe
                && !definition.annotations.destructive
        );
    }
}
