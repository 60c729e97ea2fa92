//! The process that compiles: limits itself, reads a component, answers with machine code.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::frame::{Answer, Order};
use super::{Target, confine};
use crate::classes::compiling_engine;
use crate::limits::MAX_COMPONENT_BYTES;

/// The first argument of the process that compiles. A prompt cannot look like it: it would be an option that there is not.
pub const COMPILE_ARGUMENT: &str = "--compile-for-parent";

/// What the process does that was started with [`COMPILE_ARGUMENT`]: `arguments` are those after it, `input` and `output` its standard
/// streams. To be called before anything else, while there is one thread and no other open file.
///
/// # Errors
/// When somebody else than a host started it, or the host is gone. What goes wrong with the component is answered on `output`.
pub fn compile_for_parent(
    arguments: impl IntoIterator<Item = OsString>,
    input: impl Read,
    mut output: impl Write,
) -> Result<(), String> {
    let order = Order::parse(arguments).ok_or_else(|| format!("`{COMPILE_ARGUMENT}` is for this program's own use"))?;
    begin(&order).map_err(|error| format!("the process that compiles cannot be limited: {error}"))?;
    let mut bytes = Vec::new();
    let read = input.take(MAX_COMPONENT_BYTES as u64).read_to_end(&mut bytes);
    read.map_err(|error| format!("the component could not be read: {error}"))?;
    let answer = match catch_unwind(AssertUnwindSafe(|| compile(order.target, &bytes))) {
        Ok(Ok(code)) => Answer::Code(code),
        Ok(Err(detail)) if is_about_memory(&detail) => Answer::Memory,
        Ok(Err(detail)) => Answer::Refused(detail),
        // The panic has been printed; whoever waits reads that.
        Err(_) => return Err("the compiler panicked".into()),
    };
    answer.write(&mut output).map_err(|error| format!("the answer could not be written: {error}"))
}

/// Limits and confines this process.
fn begin(order: &Order) -> std::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The host may have ended before that was asked for.
    if getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs()) != Some(order.parent) {
        return Err(std::io::Error::other("whoever started it is gone"));
    }
    confine::go_first();
    confine::hide();
    confine::close_others();
    confine::limit(order.budget)?;
    // A kernel without such filters holds the limits all the same.
    let _ = confine::filter();
    Ok(())
}

/// Compiles in this process.
pub(super) fn compile(target: Target, bytes: &[u8]) -> Result<Vec<u8>, String> {
    // Where no thread can be had, one is enough.
    let parallel = std::thread::Builder::new().spawn(|| ()).is_ok();
    let engine = compiling_engine(target, parallel).map_err(|error| error.to_string())?;
    engine.precompile_component(bytes).map_err(|error| format!("{error:#}"))
}

/// Whether a text of the standard library, the system or the compiler says that there is no memory left.
pub(super) fn is_about_memory(text: &str) -> bool {
    ["memory allocation of", "out of memory", "Cannot allocate memory"].iter().any(|words| text.contains(words))
}
