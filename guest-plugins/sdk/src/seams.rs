//! A trait per seam, its way to the generated one, and the macro that exports exactly the seams it is given.

use crate::bindings::{
    configure, execute, flush, guard, observer, request, request_error, sections, step_result, tools, turn_continuation,
};
use crate::plugin::{Instance, Plugin, build, config_schema};
use crate::tool::{Call, Tool, dispatch};
use crate::{
    Answer, Decision, Definition, Entry, ExecuteNext, Failure, Level, LlmRequest, Message, Outcome, Part, Recovery,
    RequestErrorNext, RequestFailure, RequestNext, Step, StepResultNext, StepSummary, ToolCall, ToolInfo,
    TurnContinuationNext, Verdict, runtime,
};

/// Seam `request`: shape the request before it goes to the model. Run `next` once, unless a veto is meant.
pub trait RequestListener: Plugin {
    /// Edits are a transaction: they take effect when the whole waterfall has returned without a failure.
    fn on_request(&self, at: Step, request: &LlmRequest, next: &RequestNext) -> Result<(), Failure>;
}

/// Seam `request_error`: the model call failed; try again?
pub trait RequestErrorListener: Plugin {
    /// What to do; `next.run()` asks the listeners inside, and by default the answer is to give up.
    fn on_request_error(&self, at: Step, failed: &RequestFailure, next: &RequestErrorNext)
    -> Result<Recovery, Failure>;
}

/// Seam `step_result`: shape the assistant's message before it is logged and acted on.
pub trait StepResultListener: Plugin {
    /// The message to go on with.
    fn on_step_result(&self, at: Step, message: Message, next: &StepResultNext) -> Result<Message, Failure>;
}

/// Seam `turn_continuation`: decide whether the turn takes another step.
pub trait TurnContinuationListener: Plugin {
    /// The decision; `proposal` is what would happen.
    fn on_turn_continuation(
        &self,
        at: Step,
        summary: &StepSummary,
        proposal: Decision,
        next: &TurnContinuationNext,
    ) -> Result<Decision, Failure>;
}

/// Seam `execute`: around a tool call.
pub trait ToolExecuteListener: Plugin {
    /// What the call came to: `Ok(Answer::Pass(next.run(&call)?))` changes nothing. `tool` is none when no tool has that name.
    fn on_execute(
        &self,
        at: Step,
        call: ToolCall,
        tool: Option<&ToolInfo>,
        next: &ExecuteNext,
    ) -> Result<Answer, Failure>;
}

/// Seam `guard`: a gate over the final tool call that can only tighten.
pub trait Guard: Plugin {
    /// The verdict; a failure stops the call.
    fn check(&self, at: Step, call: &ToolCall, tool: &ToolInfo) -> Result<Verdict, Failure>;
}

/// Seam `tools`: tools for the model.
pub trait ToolProvider: Plugin {
    /// The tools, in the order the model sees them. Made anew for each call, so let it be cheap.
    fn tools(&self) -> Vec<Tool<'_>>;
}

/// Seam `observer`: see every event after it is in the log.
pub trait Observer: Plugin {
    /// Which kinds to be called for, exact or `tool/*`; empty: all but `assistant/chunk`.
    fn kinds(&self) -> Vec<String> {
        Vec::new()
    }

    /// One or more entries, in order.
    fn on_entries(&self, entries: Vec<Entry>);
}

/// Seam `flush`: make what was observed durable, at the end of each turn.
pub trait Flush: Plugin {
    /// Runs in the instance that observed.
    fn flush(&self) -> Result<(), Failure>;
}

/// Seam `sections`: parts of the system prompt.
pub trait Sections: Plugin {
    /// The parts for this step; an empty text is left out.
    fn sections(&self, at: Step) -> Result<Vec<Part>, Failure>;
}

/// Seam `configure`: the schema of the configuration, and the check when the plugin is loaded. Every plugin has it for nothing: it
/// parses [`Plugin::Config`] and calls [`Plugin::new`].
pub trait Configure: Plugin {}

impl<P: Plugin> Configure for P {}

impl<P: RequestListener + Instance> request::exports::dsh::agent::request::Guest for P {
    fn handle(at: Step, request: LlmRequest, next: RequestNext) -> Result<(), Failure> {
        P::with(|plugin| plugin.on_request(at, &request, &next))?
    }
}

impl<P: RequestErrorListener + Instance> request_error::exports::dsh::agent::request_error::Guest for P {
    fn handle(at: Step, failed: RequestFailure, next: RequestErrorNext) -> Result<Recovery, Failure> {
        P::with(|plugin| plugin.on_request_error(at, &failed, &next))?
    }
}

impl<P: StepResultListener + Instance> step_result::exports::dsh::agent::step_result::Guest for P {
    fn handle(at: Step, message: Message, next: StepResultNext) -> Result<Message, Failure> {
        P::with(|plugin| plugin.on_step_result(at, message, &next))?
    }
}

impl<P: TurnContinuationListener + Instance> turn_continuation::exports::dsh::agent::turn_continuation::Guest for P {
    fn handle(
        at: Step,
        summary: StepSummary,
        proposal: Decision,
        next: TurnContinuationNext,
    ) -> Result<Decision, Failure> {
        P::with(|plugin| plugin.on_turn_continuation(at, &summary, proposal, &next))?
    }
}

impl<P: ToolExecuteListener + Instance> execute::exports::dsh::tools::execute::Guest for P {
    fn handle(at: Step, call: ToolCall, tool: Option<ToolInfo>, next: ExecuteNext) -> Result<Answer, Failure> {
        P::with(|plugin| plugin.on_execute(at, call, tool.as_ref(), &next))?
    }
}

impl<P: Guard + Instance> guard::exports::dsh::tools::guard::Guest for P {
    fn check(at: Step, call: ToolCall, tool: ToolInfo) -> Result<Verdict, Failure> {
        P::with(|plugin| Guard::check(plugin, at, &call, &tool))?
    }
}

impl<P: ToolProvider + Instance> tools::exports::dsh::tools::provider::Guest for P {
    fn list_tools() -> Result<Vec<Definition>, Failure> {
        P::with(|plugin| plugin.tools().iter().map(Tool::definition).collect())
    }

    fn call_tool(at: Step, call: ToolCall) -> Result<Outcome, Failure> {
        P::with(|plugin| dispatch(&plugin.tools(), Call { at, call }))?
    }
}

impl<P: Observer + Instance> observer::exports::dsh::session::observer::Guest for P {
    fn kinds() -> Vec<String> {
        report(P::with(Observer::kinds)).unwrap_or_default()
    }

    fn on_entries(entries: Vec<Entry>) {
        report(P::with(|plugin| plugin.on_entries(entries)));
    }
}

impl<P: Flush + Instance> flush::exports::dsh::session::flush::Guest for P {
    fn flush() -> Result<(), Failure> {
        P::with(Flush::flush)?
    }
}

impl<P: Sections + Instance> sections::exports::dsh::system_prompt::section::Guest for P {
    fn sections(at: Step) -> Result<Vec<Part>, Failure> {
        P::with(|plugin| Sections::sections(plugin, at))?
    }
}

impl<P: Configure + Instance> configure::exports::dsh::plugin::configure::Guest for P {
    fn schema() -> String {
        config_schema::<P>()
    }

    fn validate(config: String) -> Result<(), Failure> {
        build::<P>(&config).map(|_plugin| ())
    }
}

/// An observer has no way to answer a failure, so it is said in the diagnostics.
fn report<T>(result: Result<T, Failure>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(failure) => {
            runtime::log(Level::Error, &failure.message);
            None
        }
    }
}

/// Exports the seams that are named, and no other: `export!(MyPlugin: request, guard, tools, configure)`.
///
/// | name | trait | interface |
/// |---|---|---|
/// | `request` | [`RequestListener`](crate::RequestListener) | `dsh:agent/request` |
/// | `request_error` | [`RequestErrorListener`](crate::RequestErrorListener) | `dsh:agent/request-error` |
/// | `step_result` | [`StepResultListener`](crate::StepResultListener) | `dsh:agent/step-result` |
/// | `turn_continuation` | [`TurnContinuationListener`](crate::TurnContinuationListener) | `dsh:agent/turn-continuation` |
/// | `execute` | [`ToolExecuteListener`](crate::ToolExecuteListener) | `dsh:tools/execute` |
/// | `guard` | [`Guard`](crate::Guard) | `dsh:tools/guard` |
/// | `tools` | [`ToolProvider`](crate::ToolProvider) | `dsh:tools/provider` |
/// | `observer` | [`Observer`](crate::Observer) | `dsh:session/observer` |
/// | `flush` | [`Flush`](crate::Flush) | `dsh:session/flush` |
/// | `sections` | [`Sections`](crate::Sections) | `dsh:system-prompt/section` |
/// | `configure` | [`Configure`](crate::Configure) | `dsh:plugin/configure` |
///
/// On other targets than WebAssembly nothing is exported, only the traits are checked, so that a plugin's logic can be tested by
/// `cargo test`.
#[macro_export]
macro_rules! export {
    ($plugin:ident: $($seam:ident),+ $(,)?) => {
        const _: () = {
            ::std::thread_local! {
                static INSTANCE: ::std::cell::OnceCell<::std::result::Result<$plugin, $crate::Failure>> =
                    const { ::std::cell::OnceCell::new() };
            }

            impl $crate::__private::Instance for $plugin {
                fn with<R>(body: impl ::std::ops::FnOnce(&Self) -> R) -> ::std::result::Result<R, $crate::Failure> {
                    INSTANCE.with(|cell| {
                        match cell.get_or_init(|| $crate::__private::build::<$plugin>(&$crate::runtime::config())) {
                            Ok(plugin) => Ok(body(plugin)),
                            Err(failure) => Err(failure.clone()),
                        }
                    })
                }
            }

            $($crate::__export_seam!($seam, $plugin);)+
        };
    };
}

/// One seam of [`export!`]: the check of the trait, and on WebAssembly the export.
#[doc(hidden)]
#[macro_export]
macro_rules! __export_seam {
    (request, $plugin:ident) => {
        $crate::__export_checked!(RequestListener, request, $plugin);
    };
    (request_error, $plugin:ident) => {
        $crate::__export_checked!(RequestErrorListener, request_error, $plugin);
    };
    (step_result, $plugin:ident) => {
        $crate::__export_checked!(StepResultListener, step_result, $plugin);
    };
    (turn_continuation, $plugin:ident) => {
        $crate::__export_checked!(TurnContinuationListener, turn_continuation, $plugin);
    };
    (execute, $plugin:ident) => {
        $crate::__export_checked!(ToolExecuteListener, execute, $plugin);
    };
    (guard, $plugin:ident) => {
        $crate::__export_checked!(Guard, guard, $plugin);
    };
    (tools, $plugin:ident) => {
        $crate::__export_checked!(ToolProvider, tools, $plugin);
    };
    (observer, $plugin:ident) => {
        $crate::__export_checked!(Observer, observer, $plugin);
    };
    (flush, $plugin:ident) => {
        $crate::__export_checked!(Flush, flush, $plugin);
    };
    (sections, $plugin:ident) => {
        $crate::__export_checked!(Sections, sections, $plugin);
    };
    (configure, $plugin:ident) => {
        $crate::__export_checked!(Configure, configure, $plugin);
    };
    ($other:ident, $plugin:ident) => {
        ::std::compile_error!(::std::concat!(
            "no seam `",
            ::std::stringify!($other),
            "`: there are request, request_error, step_result, turn_continuation, execute, ",
            "guard, tools, observer, flush, sections and configure"
        ));
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export_checked {
    ($trait:ident, $module:ident, $plugin:ident) => {
        const _: fn() = {
            fn implements<P: $crate::$trait>() {}
            implements::<$plugin>
        };
        #[cfg(target_family = "wasm")]
        $crate::bindings::$module::export!($plugin with_types_in $crate::bindings::$module);
    };
}
