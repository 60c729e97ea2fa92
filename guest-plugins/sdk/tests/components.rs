//! What the built components export and import: exactly the seams that were named, and no capability that is not called.

use std::collections::BTreeSet;
use std::path::PathBuf;
use wasmparser::{Parser, Payload};

/// What of an import is a capability, or opens one; the rest every plugin has.
const CAPABILITIES: [&str; 9] = [
    "dsh:llm/model",
    "dsh:session/log",
    "dsh:agent/inbox",
    "dsh:agent/agents",
    "dsh:tools/approval",
    "dsh:tools/process",
    "wasi:filesystem/preopens",
    "wasi:http/outgoing-handler",
    "wasi:sockets/tcp",
];

/// The largest a plugin may be, in bytes: the user's machine compiles it at its first load.
const MAX_BYTES: usize = 512 * 1024;

/// Names without their version, of a component's own imports and exports.
struct Shape {
    imports: BTreeSet<String>,
    exports: BTreeSet<String>,
    bytes: usize,
}

fn shape(name: &str) -> Shape {
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("../wasm32-wasip2/release")
        .join(name.replace('-', "_"))
        .with_extension("wasm");
    let component = std::fs::read(&built).unwrap_or_else(|error| {
        panic!("{}: {error}; run `cargo build --release --target wasm32-wasip2` first", built.display())
    });
    let mut shape = Shape { imports: BTreeSet::new(), exports: BTreeSet::new(), bytes: component.len() };
    let plain = |name: &str| name.split('@').next().unwrap_or(name).to_owned();
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(&component) {
        match payload.expect("a component that was just built parses") {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 0 => {
                shape.imports.extend(section.into_iter().map(|import| plain(import.expect("an import").name.name)));
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                shape.exports.extend(section.into_iter().map(|export| plain(export.expect("an export").name.name)));
            }
            _ => {}
        }
    }
    shape
}

fn check(name: &str, exports: &[&str], capabilities: &[&str]) {
    let shape = shape(name);
    let exports: BTreeSet<String> = exports.iter().map(|export| format!("dsh:{export}")).collect();
    assert_eq!(shape.exports, exports, "exports of `{name}`");
    let wanted: BTreeSet<&str> = capabilities.iter().copied().collect();
    let found: BTreeSet<&str> =
        CAPABILITIES.into_iter().filter(|capability| shape.imports.contains(*capability)).collect();
    assert_eq!(found, wanted, "capabilities of `{name}`");
    assert!(shape.bytes <= MAX_BYTES, "`{name}` has {} bytes", shape.bytes);
    let readme = std::fs::read_to_string(format!("../{name}/README.md")).expect("a README");
    for export in &exports {
        assert!(readme.contains(&format!("`{export}`")), "the README of `{name}` does not name `{export}`");
    }
}

#[test]
fn exactly_what_was_named() {
    check("echo", &["tools/provider", "plugin/configure"], &[]);
    check("files", &["tools/provider", "plugin/configure"], &["wasi:filesystem/preopens"]);
    check("shell", &["tools/provider", "plugin/configure"], &["dsh:tools/process"]);
    check("compaction", &["agent/request", "agent/request-error", "plugin/configure"], &["dsh:llm/model"]);
    check("retry", &["agent/request-error", "plugin/configure"], &[]);
    check("permission", &["tools/guard", "plugin/configure"], &[]);
    check("sandbox", &["tools/execute", "plugin/configure"], &[]);
    check("task", &["tools/provider", "plugin/configure"], &["dsh:agent/agents"]);
    check("plan-mode", &["tools/guard", "tools/provider", "system-prompt/section", "plugin/configure"], &[]);
}
