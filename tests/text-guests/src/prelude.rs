//! The fields of a text guest's core module that it need not write: the imports that it names, a memory, an allocator, and the answers of
//! exports that the guest has nothing to say to.

use std::fmt::Write as _;

use wit_parser::abi::AbiVariant;
use wit_parser::{Function, Resolve, TypeDefKind, WorldId, WorldItem};

use crate::chaos::words;

/// An allocator that never frees. What it hands out is aligned and lies above the first page, which is the guest's own.
const REALLOC: &str = r#"
(global $heap (mut i32) (i32.const 65536))
(func $realloc (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
  (local $at i32) (local $missing i32)
  (local.set $at (i32.and (i32.add (global.get $heap) (i32.sub (local.get $align) (i32.const 1))) (i32.sub (i32.const 0) (local.get $align))))
  (global.set $heap (i32.add (local.get $at) (local.get $size)))
  (local.set $missing (i32.sub (i32.shr_u (i32.add (global.get $heap) (i32.const 65535)) (i32.const 16)) (memory.size)))
  (if (i32.gt_s (local.get $missing) (i32.const 0))
    (then (if (i32.eq (memory.grow (local.get $missing)) (i32.const -1)) (then unreachable))))
  (if (i32.and (i32.ne (local.get $old) (i32.const 0)) (i32.ne (local.get $old_size) (i32.const 0)))
    (then (memory.copy (local.get $at) (local.get $old) (local.get $old_size))))
  (local.get $at))
"#;

/// The address of a result that is ok and holds nothing, or zeros.
const OK: &str = "(func $ok (result i32) (memory.fill (i32.const 1024) (i32.const 0) (i32.const 64)) (i32.const 1024))";

/// A failure with the code `hostile` and the message `no`; it has the layout of `result<_, failure>` where the failure stands at 4.
const FAIL: &str = r#"
(data (i32.const 920) "hostile no")
(func $fail (result i32)
  (i32.store8 (i32.const 1024) (i32.const 1))
  (i32.store (i32.const 1028) (i32.const 920)) (i32.store (i32.const 1032) (i32.const 7))
  (i32.store (i32.const 1036) (i32.const 928)) (i32.store (i32.const 1040) (i32.const 2))
  (i32.const 1024))
"#;

/// An answer of `agent/step-result`: a message of the role `assistant` with the blocks at `$blocks`.
const SAID: &str = r#"
(func $said (param $blocks i32) (param $count i32) (result i32)
  (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store8 (i32.const 1028) (i32.const 2))
  (i32.store (i32.const 1032) (local.get $blocks)) (i32.store (i32.const 1036) (local.get $count))
  (i32.const 1024))
"#;

/// An answer of `tools/execute`: the outcome behind a handle.
const PASSED: &str = r#"
(func $passed (param $outcome i32) (result i32)
  (memory.fill (i32.const 1024) (i32.const 0) (i32.const 64)) (i32.store (i32.const 1032) (local.get $outcome))
  (i32.const 1024))
"#;

/// Runs the rest of `tools/execute` on the call as it was given: the outcome's handle.
const REST: &str = r#"
(func $rest (param $args i32) (result i32)
  (call $execute-next.run (i32.load offset=72 (local.get $args))
    (i32.load offset=8 (local.get $args)) (i32.load offset=12 (local.get $args))
    (i32.load offset=16 (local.get $args)) (i32.load offset=20 (local.get $args))
    (i32.load offset=24 (local.get $args)) (i32.load offset=28 (local.get $args))
    (i32.load8_u offset=32 (local.get $args)) (i32.load offset=36 (local.get $args)) (i32.load offset=40 (local.get $args))
    (i32.const 2048))
  (if (i32.load8_u (i32.const 2048)) (then unreachable))
  (i32.load (i32.const 2052)))
"#;

/// The texts of ordinary answers.
const TEXTS: &str = r#"(data (i32.const 900) "t") (data (i32.const 901) "{\"type\":\"object\"}")"#;

/// What an export answers of which the guest does not write anything: interface, function, fields.
const ANSWERS: &[(&str, &str, &str)] = &[
    // One tool `t` that takes any object.
    (
        "dsh:tools/provider@0.1.0",
        "list-tools",
        "(result i32)
          (i32.store (i32.const 1108) (i32.const 1120)) (i32.store (i32.const 1112) (i32.const 1))
          (i32.store (i32.const 1120) (i32.const 900)) (i32.store (i32.const 1124) (i32.const 1))
          (i32.store (i32.const 1136) (i32.const 901)) (i32.store (i32.const 1140) (i32.const 17))
          (i32.const 1104)",
    ),
    ("dsh:session/observer@0.1.0", "kinds", "(result i32) (i32.const 1168)"),
    (
        "dsh:plugin/configure@0.1.0",
        "schema",
        "(result i32) (i32.store (i32.const 1176) (i32.const 901)) (i32.store (i32.const 1180) (i32.const 17)) (i32.const 1176)",
    ),
    ("dsh:plugin/configure@0.1.0", "validate", "(param i32 i32) (result i32) (i32.const 1184)"),
];

/// A whole core module of the guest's own `fields`.
pub(crate) fn module(resolve: &Resolve, world: WorldId, fields: &str) -> String {
    let mut after = String::new();
    if !fields.contains("\"cabi_realloc\"") {
        after.push_str(REALLOC);
    }
    for (name, text) in [("$ok", OK), ("$fail", FAIL), ("$said", SAID), ("$passed", PASSED), ("$rest", REST)] {
        if has_token(fields, name) && !fields.contains(&format!("(func {name} ")) {
            after.push_str(text);
        }
    }
    after.push_str(&answers(|interface, function| {
        exports(resolve, world, interface) && !fields.contains(&format!("\"{interface}#{function}\""))
    }));
    if !fields.contains("(export \"memory\")") {
        after.push_str("(memory (export \"memory\") 2)");
    }
    let imports = imports(resolve, world, &format!("{fields}{after}"));
    format!("(module\n{imports}{fields}\n{after})")
}

/// Ordinary answers for those of these exports that are wanted.
pub(crate) fn answers(wanted: impl Fn(&str, &str) -> bool) -> String {
    let mut out = String::new();
    for (interface, function, text) in ANSWERS.iter().filter(|(interface, function, _)| wanted(interface, function)) {
        let _ = writeln!(out, "(func (export \"{interface}#{function}\") {text})");
    }
    if !out.is_empty() {
        out.push_str(TEXTS);
    }
    out
}

/// Whether there is an ordinary answer for an export.
pub(crate) fn has_answer(interface: &str, function: &str) -> bool {
    ANSWERS.iter().any(|(known, name, _)| (*known, *name) == (interface, function))
}

fn exports(resolve: &Resolve, world: WorldId, interface: &str) -> bool {
    resolve.worlds[world].exports.keys().any(|key| resolve.name_world_key(key) == interface)
}

/// An import for each function that `fields` call by its short name: `$log.append`, `$llm-request.set-system`, `$llm-request.drop`.
fn imports(resolve: &Resolve, world: WorldId, fields: &str) -> String {
    let mut out = String::new();
    for (key, item) in &resolve.worlds[world].imports {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = resolve.name_world_key(key);
        let short = interface.split(['/', '@']).nth(1).unwrap_or(&interface);
        for function in resolve.interfaces[*id].functions.values() {
            // A method's name says its resource: `[method]llm-request.set-system`.
            let name = match function.name.split_once(']') {
                Some((_, method)) => format!("${method}"),
                None => format!("${short}.{}", function.name),
            };
            if has_token(fields, &name) {
                let signature = signature(resolve, function);
                let _ = writeln!(out, "(import \"{interface}\" \"{}\" (func {name} {signature}))", function.name);
            }
        }
        for (resource, ty) in &resolve.interfaces[*id].types {
            let name = format!("${resource}.drop");
            if resolve.types[*ty].kind == TypeDefKind::Resource && has_token(fields, &name) {
                let _ =
                    writeln!(out, "(import \"{interface}\" \"[resource-drop]{resource}\" (func {name} (param i32)))");
            }
        }
    }
    out
}

fn signature(resolve: &Resolve, function: &Function) -> String {
    let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
    format!("(param {}) (result {})", words(&signature.params), words(&signature.results))
}

/// Whether `text` has `token` as a whole word.
fn has_token(text: &str, token: &str) -> bool {
    text.match_indices(token).any(|(at, _)| {
        let next = text[at + token.len()..].chars().next();
        !next.is_some_and(|c| c.is_ascii_alphanumeric() || "-_.$#".contains(c))
    })
}
