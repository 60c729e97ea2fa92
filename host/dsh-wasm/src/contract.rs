//! What this host takes and provides, by name and by shape: the seams, the interfaces behind the capabilities, WASI.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use dsh_seam::Seam;
use wasmparser::component_types::{ComponentAnyTypeId, ComponentEntityType, ComponentTypeId};
use wasmparser::{Validator, WasmFeatures};

use crate::difference::distance;
use crate::refusal::Refusal;
use crate::shape::{Direction, Interface, Reader};

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
    let mut names: Vec<String> = shapes()
        .imports
        .iter()
        .filter(|(_, interface)| !interface.functions.is_empty())
        .map(|(name, _)| name.clone())
        .collect();
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
        self.version.is_some_and(|have| track(have) == track(version) && (have == version || !have.contains('-')))
    }
}

/// How old a version of one of our packages is beside this host's.
pub(crate) enum Age {
    /// It says none, or none that can be compared.
    Unknown,
    /// An older one.
    Older,
    /// A newer one.
    Newer,
}

/// How old the version in a name is.
pub(crate) fn age(name: &str) -> Age {
    let number = |version: &str| -> Option<Vec<u64>> {
        version.split(['-', '+']).next()?.split('.').map(|part| part.parse().ok()).collect()
    };
    match (Name::parse(name).version.and_then(number), number(VERSION)) {
        (Some(have), Some(ours)) if have > ours => Age::Newer,
        // What comes before a version is older than it.
        (Some(_), Some(_)) => Age::Older,
        _ => Age::Unknown,
    }
}

/// Whether a name is that of a seam, in any version.
pub(crate) fn is_seam(name: &str) -> bool {
    let path = Name::parse(name).path.strip_prefix("dsh:");
    path.is_some_and(|path| Seam::ALL.into_iter().any(|seam| seam_path(seam) == path))
}

/// Whether a name is that of an interface that a plugin may import, in any version.
pub(crate) fn is_provided(name: &str) -> bool {
    let path = Name::parse(name).path;
    shapes().imports.keys().any(|known| Name::parse(known).path == path)
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
    for (direction, list) in [(Direction::Imports, &imports), (Direction::Exports, &exports)] {
        list.iter().for_each(|(_, id)| reader.learn(*id, direction));
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

/// Which seam an exported name is, or why it is none. Names outside of `dsh:` are nobody's business, unless they are almost a seam's: a
/// guard that is not there because of a slip would be missed by nobody.
pub(crate) fn seam_of_export(name: &str) -> Result<Option<Seam>, Refusal> {
    const SLIPS: usize = 2;
    let parsed = Name::parse(name);
    let unknown = |nearest| Err(Refusal::UnknownSeam { found: name.to_owned(), nearest });
    let Some(path) = parsed.path.strip_prefix("dsh:") else {
        let almost = seam_interfaces().into_iter().find(|seam| distance(parsed.path, Name::parse(seam).path) <= SLIPS);
        return if almost.is_some() { unknown(almost) } else { Ok(None) };
    };
    let Some(seam) = Seam::ALL.into_iter().find(|seam| seam_path(*seam) == path) else {
        // Interfaces of types only may be exported along with a seam.
        if is_provided(name) && path.ends_with("-types") {
            return Ok(None);
        }
        return unknown(if is_provided(name) { None } else { nearest(name, &seam_interfaces()) });
    };
    if parsed.fits(VERSION) {
        Ok(Some(seam))
    } else {
        let (found, expected) = (name.to_owned(), interface_of(seam));
        Err(Refusal::OtherVersion { direction: Direction::Exports, found, expected })
    }
}

/// The host's shape of an imported interface of ours, none for WASI, or why nothing provides it.
pub(crate) fn check_import(name: &str) -> Result<Option<&'static Interface>, Refusal> {
    let parsed = Name::parse(name);
    let unknown = |nearest| Err(Refusal::UnknownImport { found: name.to_owned(), nearest });
    let other =
        |expected| Err(Refusal::OtherVersion { direction: Direction::Imports, found: name.to_owned(), expected });
    if let Some(path) = parsed.path.strip_prefix("wasi:") {
        let (package, interface) = path.split_once('/').unwrap_or((path, ""));
        let known = WASI.iter().any(|(known, interfaces)| *known == package && interfaces.contains(&interface));
        return match (known, parsed.fits("0.2.0")) {
            (true, true) => Ok(None),
            (true, false) => other(format!("wasi:{package}/{interface}@0.2")),
            (false, _) => unknown(nearest(name, &wasi_interfaces())),
        };
    }
    let ours = shapes().imports.iter().find(|(known, _)| Name::parse(known).path == parsed.path);
    match ours {
        Some((_, interface)) if parsed.fits(VERSION) => Ok(Some(interface)),
        Some((known, _)) => other(known.clone()),
        None if is_seam(name) => unknown(None),
        None => unknown(nearest(name, &shapes().imports.keys().cloned().collect::<Vec<_>>())),
    }
}

fn wasi_interfaces() -> Vec<String> {
    let of = |(package, interfaces): (&str, &[&str])| -> Vec<String> {
        interfaces.iter().map(|interface| format!("wasi:{package}/{interface}@0.2")).collect()
    };
    WASI.into_iter().flat_map(of).collect()
}

/// The known name that is most like `name`, if any is like it at all; else one that is the same but for its package.
fn nearest(name: &str, known: &[String]) -> Option<String> {
    const LIKE: usize = 3;
    let interface = |path: &str| path.rsplit_once('/').map(|(_, interface)| interface.to_owned());
    let name = Name::parse(name).path;
    let scored = known.iter().map(|known| (distance(name, Name::parse(known).path), known));
    let like = scored.min().filter(|(distance, _)| *distance <= LIKE).map(|(_, known)| known);
    let same = || {
        known.iter().find(|known| interface(name).is_some() && interface(name) == interface(Name::parse(known).path))
    };
    let same = || if name.starts_with("dsh:") { same() } else { None };
    like.or_else(same).cloned()
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
        let functions = |name: &str| shapes.imports[name].functions.keys().cloned().collect::<Vec<_>>();
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
        assert_eq!(hint("wasi:io/streams@0.3.0"), "build it for WASI 0.2 (Rust's target `wasm32-wasip2`)");
        assert_eq!(
            hint("wasi:io/steams@0.2.0"),
            "did you mean `wasi:io/streams@0.2`? Otherwise build the plugin without it"
        );
        assert!(hint("dsh:llm/modle@0.1.0").contains("`dsh:llm/model@0.1.0`"));
        assert!(hint("dsh:agent/model@0.1.0").contains("`dsh:llm/model@0.1.0`"));
        assert_eq!(
            hint("dsh:llm/model@0.2.0"),
            "build it against the WIT of this host (`dsh:llm/model@0.1.0`), or use a newer host"
        );
        assert_eq!(hint("dsh:llm/model@0.0.9"), "build it against the WIT of this host (`dsh:llm/model@0.1.0`)");
        assert_eq!(hint("dsh:llm/model"), "name the version: `dsh:llm/model@0.1.0`");
        assert_eq!(hint("dsh:tools/guard@0.1.0"), "it is a seam: export it instead");
        assert_eq!(hint("wasi:nn/graph@0.2.0"), "ask a model with `dsh:llm/model` instead");
        assert!(hint("wasi:webgpu/webgpu@0.0.1").starts_with("build the plugin without it"));
        assert!(hint("env").starts_with("a C library is missing"));
    }

    #[test]
    fn what_is_almost_a_seam_is_refused() {
        let hint = |name: &str| seam_of_export(name).expect_err("no seam").hint();
        assert_eq!(hint("dhs:tools/guard@0.1.0"), "did you mean `dsh:tools/guard@0.1.0`?");
        assert_eq!(hint("dsh:agent/guard@0.1.0"), "did you mean `dsh:tools/guard@0.1.0`?");
        assert_eq!(hint("dsh:llm/model@0.1.0"), "this host provides it to plugins: import it instead");
        assert_eq!(hint("dsh:own/thing@0.1.0"), "leave the export out, or use a host that has it");
        assert_eq!(
            hint("dsh:tools/guard@0.1.0-rc.1"),
            "build it against the WIT of this host (`dsh:tools/guard@0.1.0`)"
        );
        assert_eq!(seam_of_export("acme:tools/guarding@0.1.0"), Ok(None));
        assert_eq!(seam_of_export("dsh:llm/llm-types@0.1.0"), Ok(None));
    }
}
