//! What a component is, found by looking at its bytes: no code of it is compiled or run.

use std::fmt::Write as _;

use dsh_seam::Seam;
use serde::Serialize;
use sha2::{Digest, Sha256};
use wasmparser::component_types::{ComponentEntityType, ComponentInstanceTypeId};
use wasmparser::types::{Types, TypesRef};
use wasmparser::{Chunk, Parser, Payload, Validator};

use crate::ceiling::{self, CEILING_SECTION, CeilingEntry};
use crate::contract;
use crate::features;
use crate::foreign::classify;
use crate::limits::{MAX_COMPONENT_BYTES, MOST_INSTANCES};
use crate::nested::core_instances;
use crate::refusal::{Refusal, one_line};
use crate::shape::{Direction, Interface, Reader};

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
/// The [`Refusal`] that a load would give, with everything that is wrong.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, Refusal> {
    let (inspection, mut problems) = look(bytes)?;
    problems.extend(shape_problems(bytes, &inspection)?);
    Refusal::of(problems).map_or(Ok(inspection), Err)
}

/// The part of an inspection that costs next to nothing: section headers, names and the hash, no types and no function bodies.
///
/// # Errors
/// What can be told from that.
pub fn outline(bytes: &[u8]) -> Result<Inspection, Refusal> {
    let (inspection, problems) = look(bytes)?;
    Refusal::of(problems).map_or(Ok(inspection), Err)
}

/// Validates the whole component and compares its shared interfaces with the host's.
pub(crate) fn check_shapes(bytes: &[u8], inspection: &Inspection) -> Result<(), Refusal> {
    Refusal::of(shape_problems(bytes, inspection)?).map_or(Ok(()), Err)
}

/// What a file is by its names, and everything that is wrong with them; an error when it cannot even be read.
fn look(bytes: &[u8]) -> Result<(Inspection, Vec<Refusal>), Refusal> {
    classify(bytes)?;
    if bytes.len() > MAX_COMPONENT_BYTES {
        return Err(Refusal::TooLarge { bytes: bytes.len() });
    }
    let mut found = Found::default();
    walk(bytes, Parser::new(0), &mut found, 0)?;
    let Found { imports, exports, ceilings } = found;
    let mut problems = Vec::new();
    let mut seams: Vec<(Seam, &String)> = Vec::new();
    for name in &exports {
        match contract::seam_of_export(name) {
            Ok(None) => {}
            Ok(Some(seam)) => match seams.iter().find(|(known, _)| *known == seam) {
                Some((_, first)) => {
                    problems.push(Refusal::SeamTwice { first: (*first).clone(), second: name.clone() });
                }
                None => seams.push((seam, name)),
            },
            Err(refusal) => problems.push(refusal),
        }
    }
    let mut seams: Vec<Seam> = seams.into_iter().map(|(seam, _)| seam).collect();
    seams.sort();
    // An export that is nearly a seam says more than that there is none.
    if seams.is_empty() && problems.is_empty() {
        problems.push(Refusal::NoSeam { exports: exports.clone(), imports: imports.clone() });
    }
    problems.extend(imports.iter().filter_map(|name| contract::check_import(name).err()));
    let ceiling = ceiling::parse(&ceilings).unwrap_or_else(|refusal| {
        problems.push(refusal);
        None
    });
    let capabilities = capabilities(&imports);
    let (size, sha256) = (bytes.len(), sha256(bytes));
    Ok((Inspection { seams, exports, imports, capabilities, ceiling, size, sha256 }, problems))
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
struct Found<'a> {
    imports: Vec<String>,
    exports: Vec<String>,
    ceilings: Vec<&'a [u8]>,
}

/// Custom sections are looked for in the component and in modules directly inside it.
const MODULE_DEPTH: usize = 1;

fn walk<'a>(mut bytes: &'a [u8], mut parser: Parser, found: &mut Found<'a>, depth: usize) -> Result<(), Refusal> {
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
                found.ceilings.push(section.data());
            }
            Payload::End(_) => return Ok(()),
            _ => {}
        }
        bytes = bytes.get(consumed + skip..).ok_or_else(|| cut(consumed + skip - bytes.len()))?;
    }
}

fn cut(missing: usize) -> Refusal {
    let bytes =
        if missing == 1 { "1 byte of a section is".to_owned() } else { format!("{missing} bytes of a section are") };
    Refusal::Truncated { detail: format!("{bytes} missing") }
}

pub(crate) fn reader_error(error: &wasmparser::BinaryReaderError) -> Refusal {
    let detail = one_line(error);
    if detail.contains("unexpected end") { Refusal::Truncated { detail } } else { Refusal::Invalid { detail } }
}

/// Everything that is wrong with the types; an error when the component is not even valid.
fn shape_problems(bytes: &[u8], inspection: &Inspection) -> Result<Vec<Refusal>, Refusal> {
    let mut problems = Vec::new();
    let types: Types = match Validator::new_with_features(features::on()).validate_all(bytes) {
        Ok(types) => types,
        Err(error) => {
            let (names, types) = features::beyond(bytes).ok_or_else(|| reader_error(&error))?;
            problems.push(Refusal::Feature { names, detail: one_line(&error) });
            types
        }
    };
    let count = core_instances(bytes);
    if count > MOST_INSTANCES.into() {
        problems.push(Refusal::TooManyInstances { count });
    }
    let types = types.as_ref();
    let mut reader = Reader::new(types);
    for (direction, name) in names(inspection) {
        if let Some(id) = instance(types, direction, name) {
            reader.learn(id, direction);
        }
    }
    for (direction, name) in names(inspection) {
        let Some(expected) = expected(direction, name) else { continue };
        match (instance(types, direction, name), expected) {
            (None, _) => problems.push(Refusal::NoInterface { direction, name: name.clone() }),
            // WASI is not ours to compare.
            (Some(_), None) => {}
            (Some(id), Some(expected)) => {
                let differences = reader.compare(expected, id, direction);
                let shape = |difference| Refusal::Shape {
                    direction,
                    interface: name.clone(),
                    difference: Box::new(difference),
                };
                problems.extend(differences.into_iter().map(shape));
            }
        }
    }
    Ok(problems)
}

/// All names, imports first, so that resources are known by the names of the interfaces they come from.
fn names(inspection: &Inspection) -> impl Iterator<Item = (Direction, &String)> {
    let imports = inspection.imports.iter().map(|name| (Direction::Imports, name));
    imports.chain(inspection.exports.iter().map(|name| (Direction::Exports, name)))
}

/// The host's side of a name: none when it is nobody's business or refused already, no shape for WASI.
fn expected(direction: Direction, name: &str) -> Option<Option<&'static Interface>> {
    match direction {
        Direction::Imports => contract::check_import(name).ok(),
        Direction::Exports => {
            let seam = contract::seam_of_export(name).ok()??;
            Some(Some(&contract::shapes().exports[&contract::interface_of(seam)]))
        }
    }
}

fn instance(types: TypesRef<'_>, direction: Direction, name: &str) -> Option<ComponentInstanceTypeId> {
    let item = match direction {
        Direction::Imports => types.component_entity_type_of_import(name),
        Direction::Exports => types.component_entity_type_of_export(name),
    };
    match item {
        Some(ComponentEntityType::Instance(id)) => Some(id),
        _ => None,
    }
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
