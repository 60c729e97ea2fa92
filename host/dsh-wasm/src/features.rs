//! Which parts of WebAssembly the engine has on, and which of the others a component needs.

use wasmparser::types::Types;
use wasmparser::{Validator, WasmFeatures};

/// What is left off, in words: what our interfaces do not need, and what the engine is built without.
const OFF: [(WasmFeatures, &str); 9] = [
    (WasmFeatures::THREADS.union(WasmFeatures::SHARED_EVERYTHING_THREADS), "threads and shared memory"),
    (WasmFeatures::EXCEPTIONS.union(WasmFeatures::LEGACY_EXCEPTIONS), "exceptions"),
    (
        WasmFeatures::GC
            .union(WasmFeatures::GC_TYPES)
            .union(WasmFeatures::FUNCTION_REFERENCES)
            .union(WasmFeatures::CUSTOM_DESCRIPTORS)
            .union(WasmFeatures::CM_GC),
        "garbage collection and typed references",
    ),
    (WasmFeatures::STACK_SWITCHING, "stack switching"),
    (
        WasmFeatures::CM_ASYNC
            .union(WasmFeatures::CM_ASYNC_STACKFUL)
            .union(WasmFeatures::CM_MORE_ASYNC_BUILTINS)
            .union(WasmFeatures::CM_THREADING)
            .union(WasmFeatures::CM_ERROR_CONTEXT),
        "asynchronous functions, streams and futures",
    ),
    (WasmFeatures::CM_MAP.union(WasmFeatures::CM_FIXED_LENGTH_LISTS), "maps and lists of fixed length in interfaces"),
    (WasmFeatures::CM_VALUES.union(WasmFeatures::CM_NESTED_NAMES), "values and nested names of components"),
    (WasmFeatures::CM64, "components with 64-bit addresses"),
    (
        WasmFeatures::CUSTOM_PAGE_SIZES
            .union(WasmFeatures::MEMORY_CONTROL)
            .union(WasmFeatures::WIDE_ARITHMETIC)
            .union(WasmFeatures::COMPACT_IMPORTS),
        "proposals that are no standard yet",
    ),
];

/// What is on.
pub(crate) fn on() -> WasmFeatures {
    OFF.iter().fold(WasmFeatures::all(), |on, (off, _)| on.difference(*off))
}

/// What a component that is not valid here needs beyond, in words, and its types: when it is valid with everything on.
pub(crate) fn beyond(bytes: &[u8]) -> Option<(Vec<&'static str>, Types)> {
    let validate = |features| Validator::new_with_features(features).validate_all(bytes).ok();
    let types = validate(WasmFeatures::all())?;
    let needed = |off: WasmFeatures| validate(WasmFeatures::all().difference(off)).is_none();
    let names = OFF.iter().filter(|(off, _)| needed(*off)).map(|(_, name)| *name).collect();
    Some((names, types))
}
