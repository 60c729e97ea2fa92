//! What this host takes and provides, by name and by shape: the seams, the interfaces behind the capabilities, WASI.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use dsh_seam::Seam;
use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType, ComponentTypeId};
use wasmparser::{Validator, WasmFeatures};

use crate::refusal::Refusal;
use crate::shape::{Interface, Reader};

/// The version of every WIT package of ours.
pub(crate) const VERSION: &str = "0.1.0";

/// The WASI interfaces that are linked, all in some version 0.2.
const WASI: [(&str, &[&str]); 7] = [
    (
        "cli",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
    ),
    ("clocks", &["wall-clock", "monotonic-clock"]),
    ("filesystem", &["types", "preopens"]),
    ("http", &["types", "outgoing-handler"]),
    ("io", &["error", "poll", "streams"]),
    ("random", &["random", "insecure", "insecure-seed"]),
    (
        "sockets",
        &["network", "instance-network", "ip-name-lookup", "tcp", "tcp-create-socket", "udp", "udp-create-socket"],
    ),
];

/// The interface that a component exports for a seam.
pub(crate) fn interface_of(seam: Seam) -> String {
    format!("dsh:{}@{VERSION}", seam_path(seam))
}

/// `package/interface`; the package of prompt sections is `system-prompt`.
fn seam_path(seam: Seam) -> &'static str {
    seam.as_str()
}

/// All seams' interfaces.
pub(crate) fn seam_interfaces() -> Vec<String> {
    Seam::ALL.into_iter().map(interface_of).collect()
}

/// What a component may import, for a person.
pub(crate) fn provided_packages() -> Vec<String> {
    let mut names: Vec<String> =
        shapes().imports.iter().filter(|(_, interface)| !interface.is_empty()).map(|(name, _)| name.clone()).collect();
    names.retain(|name| !name.contains("-types@"));
    names.extend(WASI.iter().map(|(package, _)| format!("wasi:{package}@0.2")));
    names
}

/// A name taken apart: `dsh:agent/request@0.1.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    pub path: &'a str,
    pub version: Option<&'a str>,
}

impl<'a> Name<'a> {
    pub(crate) fn parse(name: &'a str) -> Self {
        match name.split_once('@') {
            Some((path, version)) => Self { path, version: Some(version) },
            None => Self { path: name, version: None },
        }
    }

    /// Whether two versions promise to fit: the same major, or below 1.0 the same minor.
    fn fits(&self, version: &str) -> bool {
        self.version.is_some_and(|have| track(have) == track(version))
    }
}

fn track(version: &str) -> (&str, Option<&str>) {
    let mut parts = version.split(['.', '-', '+']);
    let major = parts.next().unwrap_or("");
    (major, if major == "0" { parts.next() } else { None })
}

/// The shapes of everything that is exchanged with a component.
#[derive(Debug)]
pub(crate) struct Shapes {
    /// What a component may import, by full name.
    pub imports: BTreeMap<String, Interface>,
    /// What it may export.
    pub exports: BTreeMap<String, Interface>,
}

/// This host's shapes, from the same WIT that its bindings are made of.
pub(crate) fn shapes() -> &'static Shapes {
    static SHAPES: OnceLock<Shapes> = OnceLock::new();
    SHAPES.get_or_init(|| read_world(crate::bindings::COMPONENT_TYPE))
}

/// Reads the world that `bindgen!` encoded: a component that exports the type of a component that exports the type of the world.
fn read_world(encoded: &[u8]) -> Shapes {
    let types = Validator::new_with_features(WasmFeatures::all())
        .validate_all(encoded)
        .expect("invariant: bindgen encodes a valid world");
    let types = types.as_ref();
    let mut world = None;
    for payload in wasmparser::Parser::new(0).parse_all(encoded) {
        if let wasmparser::Payload::ComponentExportSection(section) = payload.expect("invariant: validated above") {
            for export in section {
                let export = export.expect("invariant: validated above");
                world = component_type(types.component_entity_type_of_export(export.name.0)).or(world);
            }
        }
    }
    let mut world = world.expect("invariant: the encoding exports the world's type");
    // One or two wrappers, depending on the encoder.
    while let [inner] =
        types[world].exports.values().filter_map(|item| component_type(Some(*item))).collect::<Vec<_>>()[..]
    {
        world = inner;
    }
    let mut reader = Reader::new(types);
    let instances = |items: &wasmparser::collections::IndexMap<String, ComponentEntityType>| {
        let found = items.iter().filter_map(|(name, item)| match item {
            ComponentEntityType::Instance(id) => Some((name.clone(), *id)),
            _ => None,
        });
        found.collect::<Vec<_>>()
    };
    let (imports, exports) = (instances(&types[world].imports), instances(&types[world].exports));
    for (_, id) in &imports {
        reader.learn_resources(*id);
    }
    let read = |list: Vec<(String, _)>| list.into_iter().map(|(name, id)| (name, reader.interface(id))).collect();
    Shapes { imports: read(imports), exports: read(exports) }
}

fn component_type(item: Option<ComponentEntityType>) -> Option<ComponentTypeId> {
    match item {
        Some(
            ComponentEntityType::Component(id)
            | ComponentEntityType::Type { referenced: ComponentAnyTypeId::Component(id), .. },
        ) => Some(id),
        _ => None,
    }
}

/// Which seam an exported name is, or why it is none. Names outside of `dsh:` are nobody's business.
pub(crate) fn seam_of_export(name: &str) -> Result<Option<Seam>, Refusal> {
    let parsed = Name::parse(name);
    let Some(path) = parsed.path.strip_prefix("dsh:") else { return Ok(None) };
    let Some(seam) = Seam::ALL.into_iter().find(|seam| seam_path(*seam) == path) else {
        // Interfaces of types only may be exported along with a seam.
        if shapes().imports.keys().any(|known| Name::parse(known).path == parsed.path) {
            return Ok(None);
        }
        return Err(Refusal::UnknownSeam { found: name.to_owned(), nearest: nearest(name, &seam_interfaces()) });
    };
    if parsed.fits(VERSION) {
        Ok(Some(seam))
    } else {
        Err(Refusal::OtherVersion { found: name.to_owned(), expected: interface_of(seam) })
    }
}

/// The host's shape of an imported interface of ours, none for WASI, or why nothing provides it.
pub(crate) fn check_import(name: &str) -> Result<Option<&'static Interface>, Refusal> {
    let parsed = Name::parse(name);
    let unknown = |nearest| Err(Refusal::UnknownImport { found: name.to_owned(), nearest });
    if let Some(path) = parsed.path.strip_prefix("wasi:") {
        let (package, interface) = path.split_once('/').unwrap_or((path, ""));
        let known = WASI.iter().any(|(known, interfaces)| *known == package && interfaces.contains(&interface));
        return match (known, parsed.fits("0.2.0")) {
            (true, true) => Ok(None),
            (true, false) => unknown(Some(format!("wasi:{package}/{interface}@0.2"))),
            (false, _) => unknown(None),
        };
    }
    let ours = shapes().imports.iter().find(|(known, _)| Name::parse(known).path == parsed.path);
    match ours {
        Some((_, interface)) if parsed.fits(VERSION) => Ok(Some(interface)),
        Some((known, _)) => unknown(Some(known.clone())),
        None => unknown(nearest(name, &shapes().imports.keys().cloned().collect::<Vec<_>>())),
    }
}

/// The known name that is most like `name`, if any is like it at all.
fn nearest(name: &str, known: &[String]) -> Option<String> {
    let name = Name::parse(name).path;
    let scored = known.iter().map(|known| (distance(name, Name::parse(known).path), known));
    scored.min().filter(|(distance, _)| *distance <= 3).map(|(_, known)| known.clone())
}

/// Levenshtein's distance, on bytes: names here are short ASCII.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 128;
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_has_every_seam_and_import() {
        let shapes = shapes();
        assert_eq!(
            shapes.exports.keys().cloned().collect::<std::collections::BTreeSet<_>>(),
            seam_interfaces().into_iter().collect()
        );
        let functions = |name: &str| shapes.imports[name].keys().cloned().collect::<Vec<_>>();
        assert_eq!(functions("dsh:llm/model@0.1.0"), ["generate"]);
        assert_eq!(functions("dsh:plugin/state@0.1.0"), ["get", "keys", "remove", "set"]);
        assert!(functions("dsh:agent/agent-types@0.1.0").contains(&"[method]llm-request.message-count".to_owned()));
    }

    #[test]
    fn exports_are_seams_or_say_why_not() {
        let check = |name: &str, expect: Result<Option<Seam>, &str>| {
            assert_eq!(
                seam_of_export(name).map_err(|refusal| refusal.to_string()),
                expect.map_err(str::to_owned),
                "{name}"
            );
        };
        check("dsh:agent/request@0.1.0", Ok(Some(Seam::Request)));
        check("dsh:agent/request@0.1.7", Ok(Some(Seam::Request)));
        check("wasi:cli/run@0.2.6", Ok(None));
        check("init", Ok(None));
        check(
            "dsh:agent/request@0.2.0",
            Err("the component exports `dsh:agent/request@0.2.0`, and this host takes `dsh:agent/request@0.1.0`"),
        );
        let unknown = seam_of_export("dsh:tools/gaurd@0.1.0").expect_err("no such seam");
        assert_eq!(unknown.hint(), "did you mean `dsh:tools/guard@0.1.0`?");
    }

    #[test]
    fn imports_are_provided_or_say_why_not() {
        let hint = |name: &str| check_import(name).expect_err("not provided").hint();
        assert!(check_import("wasi:io/streams@0.2.9").expect("provided").is_none());
        assert!(check_import("dsh:llm/model@0.1.0").expect("provided").is_some());
        assert!(hint("wasi:io/streams@0.3.0").contains("`wasi:io/streams@0.2`"));
        assert!(hint("dsh:llm/modle@0.1.0").contains("`dsh:llm/model@0.1.0`"));
        assert!(hint("wasi:nn/graph@0.2.0").starts_with("build the plugin without it"));
        assert!(hint("env").starts_with("a C library is missing"));
    }
}
