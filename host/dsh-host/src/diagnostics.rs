//! Diagnostics on standard error: a line each, `warning: plugin \`x\`: …`, filtered by `-v`, `-q` and `DSH_LOG`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use crate::env::{Environment, LOG_VARIABLE};
use crate::output::chat::tame;

/// How much is said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loudness {
    /// How often `-v` was given.
    pub verbose: u8,
    /// Whether `-q` was.
    pub quiet: bool,
}

/// Whether `-q` was given.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Starts the diagnostics of the process.
pub fn start(loudness: Loudness, environment: &Environment) {
    QUIET.store(loudness.quiet, Ordering::Relaxed);
    let level = match (loudness.quiet, loudness.verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, 2) => "debug",
        (false, _) => "trace",
    };
    let filters = environment.variable(LOG_VARIABLE);
    let (filter, wrong) = match filters.as_deref().map(EnvFilter::try_new) {
        None => (EnvFilter::new(level), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(level), Some(error)),
    };
    // Whoever names filters may want the spans that they let through; `-vv` alone is lines.
    let spans = if filters.is_some() { FmtSpan::CLOSE } else { FmtSpan::NONE };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_span_events(spans)
        .event_format(Plain)
        .with_writer(std::io::stderr)
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        eprintln!("warning: diagnostics were started twice");
    }
    if let Some(error) = wrong {
        tracing::warn!("`{LOG_VARIABLE}` is ignored: {error}");
    }
}

/// Whether a warning is printed.
pub fn shows_warnings() -> bool {
    tracing::enabled!(Level::WARN)
}

/// Says something that a person should know whatever the filters are, unless they asked for silence.
pub fn note(message: impl fmt::Display) {
    if !QUIET.load(Ordering::Relaxed) {
        eprintln!("{}", tame(&format!("note: {message}")));
    }
}

/// Draws what goes on right now on one line, in place of what was drawn before; nothing takes it away. For terminals only.
pub fn draw(message: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        // To the line's beginning, and away with what stands there.
        eprint!("\r\u{1b}[2K{message}");
    }
}

/// Says that something went wrong and the run goes on.
pub fn complain(message: impl fmt::Display) {
    eprintln!("{}", tame(&format!("error: {message}")));
}

/// Says what to try.
pub fn hint(message: impl fmt::Display) {
    eprintln!("{}", tame(&format!("hint: {message}")));
}

/// `LEVEL: [plugin \`NAME\`: ]MESSAGE [key=value …]`; for a span that is over `LEVEL: OUTER{key=value …}:SPAN{…}: over TIMES`.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut parts = Parts::default();
        event.record(&mut parts);
        write!(writer, "{level}: ")?;
        // A plugin's own line has its name.
        if parts.message == CLOSE && parts.plugin.is_none() {
            return over(context, writer, &parts.rest);
        }
        if let Some(plugin) = &parts.plugin {
            write!(writer, "plugin `{plugin}`: ")?;
        } else if *metadata.level() >= Level::DEBUG {
            write!(writer, "{}: ", metadata.target())?;
        }
        writeln!(writer, "{}", tame(&format!("{}{}", parts.message, parts.rest)))
    }
}

/// The message that the library has for a span that is over.
const CLOSE: &str = "close";

/// A span that is over, with those around it.
fn over<S, N>(context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, times: &str) -> fmt::Result
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    for (n, span) in context.event_scope().into_iter().flat_map(|scope| scope.from_root()).enumerate() {
        let colon = if n == 0 { "" } else { ":" };
        let extensions = span.extensions();
        let fields = extensions.get::<FormattedFields<N>>().map(|fields| fields.fields.as_str()).unwrap_or_default();
        write!(writer, "{colon}{}{{{}}}", span.name(), tame(fields).replace('\n', " "))?;
    }
    writeln!(writer, ": over{times}")
}

#[derive(Default)]
struct Parts {
    plugin: Option<String>,
    message: String,
    rest: String,
}

impl Visit for Parts {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "plugin" => self.plugin = Some(format!("{value:?}")),
            name => self.rest.push_str(&format!(" {name}={value:?}")),
        }
    }
}
