//! A guest that does what its configuration says, to the host's face: it implements every seam, calls any import with any arguments and
//! answers any bytes. It is written from the contract, so that what is added there is called too.
//!
//! Its configuration is `{"words":"HEX"}`, bytes that it copies to [`WORDS`]. A seam's function reads calls from a place of its own there:
//! which import, then its arguments as they stand, until one is none; then it answers an address into them.

use std::fmt::Write as _;

use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Resolve, TypeDefKind, WorldId, WorldItem};

use crate::{contract, encode, prelude};

/// Where the words are in the guest's memory: a place that a word can name.
pub const WORDS: u32 = 0x1000;
/// How many bytes there are at most.
pub const WORDS_BYTES: u32 = 0x4000;

/// The fields that do not depend on the contract. What the host wants room for it gets behind the words, the same again and again.
const FIXED: &str = r#"
(memory (export "memory") 16)
(global $ready (mut i32) (i32.const 0))
(global $p (mut i32) (i32.const 0))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (if (i32.gt_u (local.get 3) (i32.const 0x80000)) (then unreachable))
  (i32.const 0x20000))
(func $digit (param $at i32) (result i32) (local $c i32)
  (local.set $c (i32.load8_u (local.get $at)))
  (if (result i32) (i32.ge_u (local.get $c) (i32.const 97))
    (then (i32.sub (local.get $c) (i32.const 87))) (else (i32.sub (local.get $c) (i32.const 48)))))
(func $setup (param $place i32) (local $from i32) (local $to i32) (local $end i32)
  (global.set $p (i32.add (i32.const 0x1000) (local.get $place)))
  (if (global.get $ready) (then (return)))
  (global.set $ready (i32.const 1))
  (call $config (i32.const 0x800))
  (local.set $from (i32.add (i32.load (i32.const 0x800)) (i32.const 10)))
  (local.set $end (i32.sub (i32.add (i32.load (i32.const 0x800)) (i32.load (i32.const 0x804))) (i32.const 3)))
  (local.set $to (i32.const 0x1000))
  (block (loop
    (br_if 1 (i32.ge_u (local.get $from) (local.get $end)))
    (i32.store8 (local.get $to) (i32.or (i32.shl (call $digit (local.get $from)) (i32.const 4)) (call $digit (i32.add (local.get $from) (i32.const 1)))))
    (local.set $from (i32.add (local.get $from) (i32.const 2)))
    (local.set $to (i32.add (local.get $to) (i32.const 1)))
    (br 0))))
(func $i32 (result i32) (global.set $p (i32.add (global.get $p) (i32.const 4))) (i32.load (i32.sub (global.get $p) (i32.const 4))))
(func $i64 (result i64) (i64.or (i64.extend_i32_u (call $i32)) (i64.shl (i64.extend_i32_u (call $i32)) (i64.const 32))))
(func $f32 (result f32) (f32.reinterpret_i32 (call $i32)))
(func $f64 (result f64) (f64.reinterpret_i64 (call $i64)))
(func $answer (result i32) (i32.add (i32.const 0x1000) (i32.and (call $i32) (i32.const 0x3ff8))))
"#;

/// The component. With `loads` it is well-behaved while it is loaded, so that its other functions are called too.
///
/// # Errors
/// When it does not fit the contract: a fault of this file.
pub fn chaos(loads: bool) -> Result<Vec<u8>, String> {
    encode(contract(), "include dsh:plugin/everything@0.1.0;", |resolve, world| {
        let (imports, calls) = imports(resolve, world);
        let cases: String = calls
            .iter()
            .map(|call| format!("(if (i32.eq (local.get $which) (i32.const {}))\n  (then {}))\n", call.0, call.1))
            .collect();
        let run = format!(
            "(func $run (local $which i32) (local $left i32) (local.set $left (i32.const 100))\n(loop (local.set $which (call $i32))\n{cases}(local.set $left (i32.sub (local.get $left) (i32.const 1)))\n(br_if 0 (i32.and (i32.ne (local.get $which) (i32.const 0)) (i32.ne (local.get $left) (i32.const 0))))))"
        );
        format!("(module {imports} {FIXED} {run} {})", exports(resolve, world, loads))
    })
}

/// The imports, and for each its number and its call.
fn imports(resolve: &Resolve, world: WorldId) -> (String, Vec<(usize, String)>) {
    let (mut out, mut calls) = (String::new(), Vec::new());
    for (key, item) in &resolve.worlds[world].imports {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = resolve.name_world_key(key);
        for function in resolve.interfaces[*id].functions.values() {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            let number = calls.len() + 1;
            let name = if interface.starts_with("dsh:plugin/runtime") && function.name == "config" {
                "config".to_owned()
            } else {
                format!("call-{number}")
            };
            let _ = writeln!(
                out,
                "(import \"{interface}\" \"{}\" (func ${name} (param {}) (result {})))",
                function.name,
                words(&signature.params),
                words(&signature.results)
            );
            let arguments: String = signature.params.iter().map(|ty| format!(" (call ${})", word(*ty))).collect();
            let call = format!("(call ${name}{arguments})");
            calls.push((number, signature.results.iter().fold(call, |call, _| format!("(drop {call})"))));
        }
        for (resource, ty) in &resolve.interfaces[*id].types {
            if resolve.types[*ty].kind == TypeDefKind::Resource {
                let number = calls.len() + 1;
                let _ = writeln!(
                    out,
                    "(import \"{interface}\" \"[resource-drop]{resource}\" (func $call-{number} (param i32)))"
                );
                calls.push((number, format!("(call $call-{number} (call $i32))")));
            }
        }
    }
    (out, calls)
}

/// A function for each export, which begins to read at a place of its own.
fn exports(resolve: &Resolve, world: WorldId, loads: bool) -> String {
    const APART: usize = 0x200;
    let mut out = if loads { prelude::answers(|_, _| true) } else { String::new() };
    let mut place = 0;
    for (key, item) in &resolve.worlds[world].exports {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = resolve.name_world_key(key);
        for function in resolve.interfaces[*id].functions.values() {
            if !(loads && prelude::has_answer(&interface, &function.name)) {
                out.push_str(&export(resolve, &interface, function, place * APART));
            }
            place += 1;
        }
    }
    out
}

fn export(resolve: &Resolve, interface: &str, function: &Function, place: usize) -> String {
    let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
    let answer = if signature.results.is_empty() { "" } else { "(call $answer)" };
    format!(
        "(func (export \"{interface}#{}\") (param {}) (result {}) (call $setup (i32.const {place})) (call $run) {answer})\n",
        function.name,
        words(&signature.params),
        words(&signature.results)
    )
}

/// Types as they stand in a text.
pub(crate) fn words(types: &[WasmType]) -> String {
    types.iter().map(|ty| word(*ty)).collect::<Vec<_>>().join(" ")
}

fn word(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_component() {
        assert!(!chaos(true).expect("it fits the contract").is_empty());
        assert!(!chaos(false).expect("it fits the contract").is_empty());
    }
}
