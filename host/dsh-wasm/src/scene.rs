//! What an author wants to know of a call that failed: where the guest was, what it was called with, what it wrote last.
//!
//! It is for people, so it goes to the diagnostics, level `info` (`-v`); the log and the model have one line. Function names come from the
//! component's `name` sections, which machine code in the cache keeps; lines of source come from its DWARF, which is read from the file
//! itself, and only here: somebody hostile could make reading it slow, and an operator who did not ask for it is not to wait for it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use addr2line::Context;
use gimli::{Dwarf, EndianSlice, LittleEndian};
use wasmparser::{Encoding, Parser, Payload};
use wasmtime::{FrameInfo, WasmBacktrace};

use crate::bindings::dsh::llm::llm_types::ToolCall;
use crate::fault::{Fault, LAST_LINES};
use crate::output::clean;
use crate::plugin::Core;
use crate::store::GuestState;
use crate::words::Seam;

/// Lines of a backtrace that are shown.
const MAX_FRAMES: usize = 32;
/// The longest name of a function that is shown, in characters: generics of Rust and C++ can fill a page.
const MAX_NAME: usize = 160;
/// The longest mangled name that is taken apart.
const MAX_MANGLED_BYTES: usize = 4_096;
/// The longest piece of a call's arguments that is shown, in characters.
const MAX_ARGUMENTS: usize = 300;
/// The largest component whose file is kept for its lines of source.
const MAX_KEPT_BYTES: usize = 64 * 1024 * 1024;
/// The longest cycle of functions that is looked for in a recursion.
const MAX_CYCLE: usize = 4;

/// Whether anybody wants to know.
fn wanted() -> bool {
    tracing::enabled!(target: "dsh::plugin", tracing::Level::INFO)
}

/// What is kept of a component's file to tell lines of source later.
pub(crate) fn keep(bytes: &[u8]) -> Option<Arc<[u8]>> {
    (wanted() && bytes.len() <= MAX_KEPT_BYTES).then(|| bytes.into())
}

/// Tells of a call that failed with an error of the engine.
pub(crate) fn tell(state: &GuestState, fault: &Fault, error: &wasmtime::Error) {
    let (core, plugin) = (&state.core, &state.core.name);
    let (_, message) = fault.words();
    // Its last lines follow, or stand above.
    let message = message.split(LAST_LINES).next().unwrap_or_default();
    if !wanted() {
        return hint(core, state.call.seam, message);
    }
    tracing::info!(target: "dsh::plugin", %plugin, "it failed in `{}`{}: {message}", state.call.seam, place(state));
    for line in lines(error, core) {
        tracing::info!(target: "dsh::plugin", %plugin, "{line}");
    }
    let recent = state.output.recent();
    if !recent.is_empty() {
        tracing::info!(target: "dsh::plugin", %plugin, "  the last that it wrote:");
        for line in recent {
            tracing::info!(target: "dsh::plugin", %plugin, "    {line}");
        }
    }
}

/// Tells of a call that failed without an error of the engine: it was stopped while it waited for the host, and nobody knows where it was,
/// or what it answered is the failure.
pub(crate) fn tell_failed(core: &Core, seam: Seam, fault: &Fault) {
    let (_, message) = fault.words();
    match fault {
        _ if wanted() => {
            tracing::info!(target: "dsh::plugin", plugin = %core.name, "it failed in `{seam}`: {message}");
        }
        Fault::Overtime(_) => hint(core, seam, &message),
        // Elsewhere the error of the turn, the outcome or a warning says it.
        _ if seam == Seam::Guard => {
            first_time(
                core,
                || tracing::warn!(target: "dsh::plugin", plugin = %core.name, "it failed in `{seam}`: {message}"),
            );
        }
        _ => {}
    }
}

/// What failed, and how to see more, once.
fn hint(core: &Core, seam: Seam, message: &str) {
    first_time(
        core,
        || tracing::warn!(target: "dsh::plugin", plugin = %core.name, "it failed in `{seam}`: {message}; `-v` shows where"),
    );
}

fn first_time(core: &Core, tell: impl FnOnce()) {
    if !core.told.swap(true, Ordering::Relaxed) {
        tell();
    }
}

/// Tells what a call that failed was called with.
pub(crate) fn tell_call(core: &Core, call: &ToolCall) {
    if wanted() {
        let arguments = first(&core.without_env(&call.arguments), MAX_ARGUMENTS);
        let (id, name) = (clean(call.id.as_bytes()), clean(call.name.as_bytes()));
        tracing::info!(target: "dsh::plugin", plugin = %core.name, "  it was called with the call `{id}` of the tool `{name}`: {}", clean(arguments.as_bytes()));
    }
}

fn place(state: &GuestState) -> String {
    let at = match (&state.call.tool, &state.session) {
        (Some(tool), _) => tool.at,
        (None, Some(session)) => session.at(),
        (None, None) => return format!(" (`{}`)", state.call.function),
    };
    if at.turn == 0 {
        return format!(" (`{}`, outside of a turn)", state.call.function);
    }
    format!(" (`{}`, turn {}, step {})", state.call.function, at.turn, at.step)
}

/// The backtrace, and what to do for a better one.
fn lines(error: &wasmtime::Error, core: &Core) -> Vec<String> {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>().filter(|trace| !trace.frames().is_empty()) else {
        return Vec::new();
    };
    let source = core.code.as_deref().map(Source::new);
    let mut named = false;
    let mut calls = Vec::new();
    for frame in trace.frames() {
        named |= frame.func_name().is_some();
        calls.extend(describe(frame, source.as_ref()));
    }
    let mut lines = folded(&calls);
    if lines.len() > MAX_FRAMES {
        lines.truncate(MAX_FRAMES);
        lines.push("      …".into());
    }
    if !named {
        lines.push("  it has no names of functions: build it without stripping them (in Rust: `strip = false` or `strip = \"debuginfo\"` in the profile)".into());
    } else if source.is_some_and(|source| !source.has_lines()) {
        lines.push("  it has no lines of source: build it with debug information (in Rust: `debug = \"line-tables-only\"` and `strip = false` in the profile)".into());
    }
    lines
}

/// A frame as calls, the innermost first: what the compiler put into a function has lines of its own.
fn describe(frame: &FrameInfo, source: Option<&Source<'_>>) -> Vec<String> {
    let name = match frame.func_name() {
        Some(name) => demangled(name),
        None => format!("function {}", frame.func_index()),
    };
    let found = frame.module_offset().and_then(|offset| source?.find(offset)).unwrap_or_default();
    if found.is_empty() {
        return vec![name];
    }
    let last = found.len() - 1;
    let call = |(n, found): (usize, &Found)| {
        // The outermost is the function itself, whose name the component knows best.
        let name = match &found.function {
            Some(function) if n < last => demangled(function),
            None if n < last => "an inlined function".into(),
            _ => name.clone(),
        };
        match &found.place {
            Some(place) => format!("{name} at {place}"),
            None => name,
        }
    };
    found.iter().enumerate().map(call).collect()
}

/// Numbered lines; a cycle that repeats is written once.
fn folded(calls: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = 0;
    while at < calls.len() {
        let rest = &calls[at..];
        let times = |cycle: usize| rest.chunks_exact(cycle).take_while(|chunk| *chunk == &rest[..cycle]).count();
        let (cycle, times) = (1..=MAX_CYCLE.min(rest.len()))
            .map(|cycle| (cycle, times(cycle)))
            .find(|(_, times)| *times > 2)
            .unwrap_or((1, 1));
        lines.extend(rest[..cycle].iter().enumerate().map(|(n, call)| format!("  {:>2}: {call}", at + n)));
        if times > 1 {
            let what = if cycle == 1 { "it".to_owned() } else { format!("these {cycle}") };
            lines.push(format!("      … {what} again, {} times and perhaps more", times - 1));
        }
        at += cycle * times;
    }
    lines
}

fn demangled(name: &str) -> String {
    let plain = if name.len() > MAX_MANGLED_BYTES { None } else { take_apart(name) };
    clean(first(plain.as_deref().unwrap_or(name), MAX_NAME).as_bytes())
}

fn take_apart(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return Some(format!("{rust:#}"));
    }
    if !name.starts_with("_Z") {
        return None;
    }
    cpp_demangle::Symbol::new(name).ok()?.demangle().ok()
}

/// The first characters of a text.
fn first(text: &str, count: usize) -> String {
    match text.char_indices().nth(count) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The standard library's files without the compiler's hash.
fn shortened(file: &str) -> &str {
    file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/')).map_or(file, |(_, file)| file)
}

/// A call that the source knows.
struct Found {
    function: Option<String>,
    place: Option<String>,
}

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The lines of source of a component's core modules.
struct Source<'a> {
    modules: Vec<Module<'a>>,
}

struct Module<'a> {
    code: Range<usize>,
    context: Context<Slice<'a>>,
}

impl<'a> Source<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { modules: modules(bytes) }
    }

    fn has_lines(&self) -> bool {
        !self.modules.is_empty()
    }

    /// Which calls an instruction belongs to, given its place in the file.
    fn find(&self, offset: usize) -> Option<Vec<Found>> {
        let module = self.modules.iter().find(|module| module.code.contains(&offset))?;
        let address = u64::try_from(offset - module.code.start).ok()?;
        let mut frames = module.context.find_frames(address).skip_all_loads().ok()?;
        let mut found = Vec::new();
        while let (Ok(Some(frame)), true) = (frames.next(), found.len() < MAX_FRAMES) {
            let function = frame.function.as_ref().and_then(|name| name.raw_name().ok()).map(|name| name.into_owned());
            let place = frame.location.and_then(|at| {
                let line = at.line.map(|line| format!(":{line}")).unwrap_or_default();
                let column = at.column.map(|column| format!(":{column}")).unwrap_or_default();
                Some(clean(format!("{}{line}{column}", shortened(at.file?)).as_bytes()))
            });
            found.push(Found { function, place });
        }
        Some(found)
    }
}

/// The core modules of a component that have debug information.
fn modules(bytes: &[u8]) -> Vec<Module<'_>> {
    struct Open<'a> {
        code: Option<Range<usize>>,
        debug: Vec<(&'a str, &'a [u8])>,
    }
    let (mut open, mut modules) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::Version { encoding, .. }) => {
                open.push((encoding, Open { code: None, debug: Vec::new() }));
            }
            Ok(Payload::CodeSectionStart { range, .. }) => {
                if let Some((_, module)) = open.last_mut() {
                    module.code = Some(range);
                }
            }
            Ok(Payload::CustomSection(section)) if section.name().starts_with(".debug_") => {
                if let Some((_, module)) = open.last_mut() {
                    module.debug.push((section.name(), section.data()));
                }
            }
            Ok(Payload::End(_)) => {
                let Some((Encoding::Module, Open { code: Some(code), debug })) = open.pop() else { continue };
                if debug.is_empty() {
                    continue;
                }
                let section =
                    |name: &str| debug.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, data)| data);
                let dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(EndianSlice::new(section(id.name()), LittleEndian)));
                modules.extend(dwarf.and_then(Context::from_dwarf).ok().map(|context| Module { code, context }));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(calls: &[&str]) -> Vec<String> {
        calls.iter().map(|call| (*call).to_owned()).collect()
    }

    #[test]
    fn a_recursion_is_folded() {
        let check = |calls: &[&str], expect: &[&str]| assert_eq!(folded(&texts(calls)), expect);
        check(&["a", "b"], &["   0: a", "   1: b"]);
        check(&["a", "a"], &["   0: a", "   1: a"]);
        check(&["a", "a", "a", "b"], &["   0: a", "      … it again, 2 times and perhaps more", "   3: b"]);
        check(
            &["x", "a", "b", "a", "b", "a", "b", "c"],
            &["   0: x", "   1: a", "   2: b", "      … these 2 again, 2 times and perhaps more", "   7: c"],
        );
        check(&[], &[]);
    }

    #[test]
    fn names_are_taken_apart_and_cut() {
        assert_eq!(demangled("_ZN5rules5check17h0123456789abcdefE"), "rules::check");
        assert_eq!(demangled("_RNvCs1234_5rules5check"), "rules::check");
        assert_eq!(demangled("_ZN5rules5checkEi"), "rules::check(int)");
        assert_eq!(demangled("plain\x1b[2J"), "plain\\u{1b}[2J");
        assert_eq!(demangled(&"x".repeat(1_000)).chars().count(), MAX_NAME + 1);
        assert_eq!(shortened("/rustc/0123abc/library/core/src/hint.rs"), "library/core/src/hint.rs");
        assert_eq!(shortened("src/lib.rs"), "src/lib.rs");
    }

    #[test]
    fn what_is_no_component_has_no_lines() {
        assert!(!Source::new(b"\0asm").has_lines());
        assert!(!Source::new(&[]).has_lines());
    }
}
