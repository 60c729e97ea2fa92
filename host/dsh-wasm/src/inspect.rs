//! What a component is, found by looking at its bytes: no code of it is compiled or run.

use std::fmt::Write as _;

use dsh_seam::Seam;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmparser::component_types::ComponentEntityType;
use wasmparser::{Chunk, Parser, Payload, Validator, WasmFeatures};

use crate::contract;
use crate::limits::MAX_COMPONENT_BYTES;
use crate::refusal::{Refusal, classify};
use crate::shape::Reader;

/// The custom section in which a plugin says the most it will ever ask for: a JSON list of `{"capability", "reason"}`. It may stand in
/// the component or in a core module directly inside it (that is where compilers put it).
pub const CEILING_SECTION: &str = "dsh-ceiling";

/// One line of a plugin's ceiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CeilingEntry {
    /// A capability as in a grant, or the first words of one: `fs:read` covers every `fs:read:PATH`.
    pub capability: String,
    /// Why the plugin may need it.
    pub reason: String,
}

/// What a file is: its hooks, its capabilities, its size and its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The seams that it implements.
    #[serde(serialize_with = "seam_names")]
    pub seams: Vec<Seam>,
    /// Everything that it exports, by name.
    pub exports: Vec<String>,
    /// Everything that it imports, by name.
    pub imports: Vec<String>,
    /// The capabilities that it could use if they were granted, from its imports.
    pub capabilities: Vec<String>,
    /// The most it will ever ask for, if it says so.
    pub ceiling: Option<Vec<CeilingEntry>>,
    /// Its size in bytes.
    pub size: usize,
    /// The SHA-256 of its bytes, in lower-case hex.
    pub sha256: String,
}

fn seam_names<S: serde::Serializer>(seams: &[Seam], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(seams.iter().map(|seam| seam.as_str()))
}

/// Looks at a file's bytes and checks everything that can be checked without compiling: that it is a whole and valid component, that it
/// exports a seam, and that every interface it shares with this host has the same shape.
///
/// # Errors
/// The [`Refusal`] that a load would give.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, Refusal> {
    let inspection = outline(bytes)?;
    check_shapes(bytes, &inspection)?;
    Ok(inspection)
}

/// The part of an inspection that costs next to nothing: section headers, names and the hash, no types and no function bodies.
///
/// # Errors
/// What can be told from that.
pub fn outline(bytes: &[u8]) -> Result<Inspection, Refusal> {
    classify(bytes)?;
    if bytes.len() > MAX_COMPONENT_BYTES {
        return Err(Refusal::TooLarge { bytes: bytes.len() });
    }
    let mut found = Found::default();
    walk(bytes, Parser::new(0), &mut found, 0)?;
    let mut seams = Vec::new();
    for name in &found.exports {
        seams.extend(contract::seam_of_export(name)?);
    }
    if seams.is_empty() {
        return Err(Refusal::NoSeam { exports: found.exports });
    }
    seams.sort();
    seams.dedup();
    for name in &found.imports {
        contract::check_import(name)?;
    }
    let capabilities = capabilities(&found.imports);
    Ok(Inspection {
        seams,
        capabilities,
        exports: found.exports,
        imports: found.imports,
        ceiling: found.ceiling.transpose()?,
        size: bytes.len(),
        sha256: sha256(bytes),
    })
}

/// The capabilities behind imported interfaces, in the words of a grant.
fn capabilities(imports: &[String]) -> Vec<String> {
    let known = [
        ("dsh:llm/model", "llm"),
        ("dsh:session/log", "session"),
        ("dsh:agent/inbox", "inbox"),
        ("dsh:agent/agents", "agents"),
        ("dsh:tools/approval", "approval"),
        ("dsh:tools/process", "process"),
        ("wasi:filesystem/preopens", "fs"),
        ("wasi:http/outgoing-handler", "net"),
        ("wasi:cli/environment", "env"),
    ];
    let has = |path: &str| imports.iter().any(|name| contract::Name::parse(name).path == path);
    known.iter().filter(|(path, _)| has(path)).map(|(_, capability)| (*capability).to_owned()).collect()
}

#[derive(Default)]
struct Found {
    imports: Vec<String>,
    exports: Vec<String>,
    ceiling: Option<Result<Vec<CeilingEntry>, Refusal>>,
}

/// Custom sections are looked for in the component and in modules directly inside it.
const MODULE_DEPTH: usize = 1;

fn walk(mut bytes: &[u8], mut parser: Parser, found: &mut Found, depth: usize) -> Result<(), Refusal> {
    loop {
        let (consumed, payload) = match parser.parse(bytes, true).map_err(|error| reader_error(&error))? {
            Chunk::NeedMoreData(_) => return Err(Refusal::Truncated { detail: "it ends inside a section".into() }),
            Chunk::Parsed { consumed, payload } => (consumed, payload),
        };
        let mut skip = 0;
        match payload {
            Payload::ModuleSection { parser: inner, unchecked_range } => {
                skip = unchecked_range.len();
                let inside = bytes.get(consumed..consumed + skip).ok_or_else(|| cut(consumed + skip - bytes.len()))?;
                if depth < MODULE_DEPTH {
                    walk(inside, inner, found, depth + 1)?;
                }
            }
            Payload::ComponentSection { unchecked_range, .. } => skip = unchecked_range.len(),
            Payload::CodeSectionStart { size, .. } => {
                parser.skip_section();
                skip = size as usize;
            }
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    found.imports.push(import.map_err(|error| reader_error(&error))?.name.0.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    found.exports.push(export.map_err(|error| reader_error(&error))?.name.0.to_owned());
                }
            }
            Payload::CustomSection(section) if section.name() == CEILING_SECTION => {
                found.ceiling = Some(parse_ceiling(section.data()));
            }
            Payload::End(_) => return Ok(()),
            _ => {}
        }
        bytes = bytes.get(consumed + skip..).ok_or_else(|| cut(consumed + skip - bytes.len()))?;
    }
}

fn cut(missing: usize) -> Refusal {
    Refusal::Truncated { detail: format!("{missing} bytes of a section are missing") }
}

fn parse_ceiling(data: &[u8]) -> Result<Vec<CeilingEntry>, Refusal> {
    serde_json::from_slice(data).map_err(|error| Refusal::Invalid {
        detail: format!("its section `{CEILING_SECTION}` is not a list of capabilities with reasons: {error}"),
    })
}

fn reader_error(error: &wasmparser::BinaryReaderError) -> Refusal {
    let detail = error.to_string();
    if detail.contains("unexpected end") { Refusal::Truncated { detail } } else { Refusal::Invalid { detail } }
}

/// The features that the engine has on: what is standard, without threads and without the component model's async parts.
fn features() -> WasmFeatures {
    let mut features = WasmFeatures::default();
    for off in [
        WasmFeatures::THREADS,
        WasmFeatures::CM_ASYNC,
        WasmFeatures::GC,
        WasmFeatures::EXCEPTIONS,
        WasmFeatures::LEGACY_EXCEPTIONS,
    ] {
        features.remove(off);
    }
    features
}

/// Validates the whole component and compares its shared interfaces with the host's.
pub(crate) fn check_shapes(bytes: &[u8], inspection: &Inspection) -> Result<(), Refusal> {
    let types = match Validator::new_with_features(features()).validate_all(bytes) {
        Ok(types) => types,
        Err(error) => {
            // With everything on it is valid, so what is missing is a feature.
            let valid = Validator::new_with_features(WasmFeatures::all()).validate_all(bytes).is_ok();
            return Err(if valid { Refusal::Feature { detail: error.to_string() } } else { reader_error(&error) });
        }
    };
    let types = types.as_ref();
    let mut reader = Reader::new(types);
    let instance = |item: Option<ComponentEntityType>| match item {
        Some(ComponentEntityType::Instance(id)) => Some(id),
        _ => None,
    };
    for name in &inspection.imports {
        if let Some(id) = instance(types.component_entity_type_of_import(name)) {
            reader.learn_resources(id);
        }
    }
    for name in &inspection.imports {
        let Some(expected) = contract::check_import(name)? else { continue };
        let Some(id) = instance(types.component_entity_type_of_import(name)) else {
            return Err(Refusal::Link { detail: format!("it imports `{name}` as something else than an interface") });
        };
        if let Some(difference) = reader.compare(expected, id, false) {
            return Err(Refusal::Shape {
                direction: "imports",
                interface: name.clone(),
                difference: Box::new(difference),
            });
        }
    }
    for name in &inspection.exports {
        let Some(seam) = contract::seam_of_export(name)? else { continue };
        let Some(id) = instance(types.component_entity_type_of_export(name)) else {
            return Err(Refusal::Link { detail: format!("it exports `{name}` as something else than an interface") });
        };
        let expected = &contract::shapes().exports[&contract::interface_of(seam)];
        if let Some(difference) = reader.compare(expected, id, true) {
            return Err(Refusal::Shape {
                direction: "exports",
                interface: name.clone(),
                difference: Box::new(difference),
            });
        }
    }
    Ok(())
}

/// The SHA-256 of a file's bytes, in lower-case hex: what `plugin inspect` and the lock file show.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
